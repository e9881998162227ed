"""One scan: plain outputs made once for all drafts, one pass of each draft over them, one check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.plan import Inputs, Prompt
from ..engines.base import EngineError, Generation
from ..preflight import Preflight
from .evidence import PLAIN, ArmEvidence, arm_name
from .record import Record, key_of
from .replay import Missed, forced_of, missed_tokens
from .runner import Runner

if TYPE_CHECKING:
    from .store import Store

MOST_MISSED = 10

PlainOutputs = dict[Any, Generation]
ArmOf = Callable[[Generation, int | None, Prompt, int], ArmEvidence]


def scan(
    records: Sequence[Record],
    inputs: Inputs,
    store: Store,
    runner: Runner,
    preflight: Callable[[], Preflight],
    arm_of: ArmOf,
) -> str | None:
    """Fill in what is not there yet; why not all of it is, or None.

    Args:
        records: of the prompts.
        inputs: target, draft and options.
        store: keeps the plain outputs of all drafts of a target, and the budget.
        runner: of the pair.
        preflight: checks the pair and all prompts.
        arm_of: (output, k, prompt, prompt tokens) -> evidence.
    """
    for record in records:
        if record.choices is not None or PLAIN in record.errors:
            continue
        cost = 0.0 if _plain_key(record, inputs) in store.plain_outputs else runner.cost(None)
        if problem := store.budget.exceeded_by(cost or 0.0):
            return problem
        try:
            if store.preflight and (problem := preflight().error(record.prompt.id)):
                raise EngineError(problem)
            if PLAIN in record.errors:
                continue  # the check has turned every prompt into tokens
            tokens = runner.encode(record)
            plain = _plain(record, inputs, store, runner)
            record.choices = runner.choices(tokens, plain.tokens)
            record.arms[PLAIN] = arm_of(plain, None, record.prompt, len(tokens))
        except EngineError as error:
            record.errors.setdefault(PLAIN, str(error))
        store.watcher.prompt_finished(record.prompt, None)
    _check(records, inputs.num_draft_tokens[0], runner, arm_of)
    return None


def _plain_key(record: Record, inputs: Inputs) -> Any:
    """What a plain output depends on: everything but the draft."""
    template = repr(sorted(inputs.chat_template_args.items()))
    decoding = replace(inputs.decoding, max_tokens=0)
    target = (inputs.engine, inputs.target, inputs.trust_remote_code)
    return (*target, decoding, template, key_of(record.prompt))


def _plain(record: Record, inputs: Inputs, store: Store, runner: Runner) -> Generation:
    key = _plain_key(record, inputs)
    if key not in store.plain_outputs:
        store.plain_outputs[key] = runner.generate(record, None)
    return store.plain_outputs[key]


def _check(records: Sequence[Record], k: int, runner: Runner, arm_of: ArmOf) -> None:
    """One real run of the speculative path, of the longest output."""
    name = arm_name(k)
    done = [record for record in records if record.choices is not None]
    if not done or any(name in record.arms or name in record.errors for record in done):
        return
    record = max(done, key=lambda record: len(record.arms[PLAIN].generation.tokens))
    try:
        generation = runner.generate(record, k, observe=True)
        record.arms[name] = arm_of(generation, k, record.prompt, len(record.tokens))
    except EngineError as error:
        record.errors[name] = f"with the draft ({name}): {error}"


def missed(records: Sequence[Record], runner: Runner) -> tuple[Missed, ...]:
    """The tokens that the draft misses most, with their texts where the engine tells them."""
    found = missed_tokens(forced_of([record.case() for record in records]), MOST_MISSED)
    try:
        texts = runner.spell([entry.token for entry in found])
    except EngineError:
        return found
    return tuple(replace(entry, text=text) for entry, text in zip(found, texts, strict=True))
