"""What can be seen in seconds, before any generation: each check is a function that gives findings.

The checks probe behaviour rather than names of classes, so that a release which mends a fault turns
green by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..config.plan import Inputs
from ..engines.base import EngineInfo, Pair
from ..text import in_a_line
from . import caches, prompts, resources, sampling, tokenizers
from .finding import Finding, Preflight, Subject

__all__ = ["Finding", "Preflight", "run", "stuck"]


def run(
    pair: Pair, inputs: Inputs, tokens: Mapping[str, Sequence[int]], engine: EngineInfo | None
) -> Preflight:
    """All checks of one loaded pair.

    Args:
        pair: loaded; checks that need mlx-lm's own objects are left out where there are none.
        inputs: its prompts carry their budgets.
        tokens: prompt id -> ids, of the prompts that could be turned into tokens.
        engine: for the device's memory limit.
    """
    begin = time.perf_counter()
    subject = Subject(pair, inputs, tokens, engine)
    checks: list[Callable[[Subject], Iterator[Finding]]] = [prompts.fits_the_context]
    if _has_models(pair):
        checks += [
            tokenizers.same_ids,
            tokenizers.same_special_tokens,
            tokenizers.chat_templates,
            caches.rewind,
            caches.one_a_layer,
            resources.vocabulary,
            resources.draft_is_smaller,
            resources.memory,
            resources.options_reach_both_paths,
            sampling.sampling_options,
        ]
    elif getattr(pair, "isolated", False):
        checks = [resources.vocabulary, resources.draft_is_smaller, _left_out]
    findings: list[Finding] = []
    for check in checks:
        findings += _safely(check.__name__, check(subject))
    return Preflight(tuple(findings), len(checks), time.perf_counter() - begin)


def stuck(pair: Pair, length: int, k: int) -> tuple[str, ...] | None:
    """The target's caches that cannot be rewound at a length; None where they cannot be probed.

    Args:
        pair: loaded.
        length: tokens held.
        k: proposals of a block.
    """
    try:
        return caches.stuck(pair, length, k) if _has_models(pair) else None
    except Exception:  # a cache of an unknown kind: the diagnosis goes on without it
        return None


def _has_models(pair: Pair) -> bool:
    """The pair shows mlx-lm's own objects."""
    return getattr(pair, "draft_tokenizer", None) is not None


def _left_out(_: Subject) -> Iterator[Finding]:
    yield Finding(
        "note",
        "isolated pair",
        "tokenizers, caches, context, memory and options are checked in-process only",
        "Run -k preflight once without --spec-isolate.",
    )


def _safely(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """A check that a model of an unknown kind breaks is a warning, never the end of the session."""
    found: list[Finding] = []
    try:
        found += findings
    except Exception as error:
        found.append(
            Finding(
                "warning",
                name.replace("_", " "),
                f"could not be checked: {in_a_line(error)}",
                "Judge by the other gates; report it with the model's name.",
            )
        )
    return found
