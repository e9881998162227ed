"""What one session measures and judges: frozen values, complete before any model is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from .spec import Invalid, path_of

MAX_DRAFT_TOKENS = 16
SWEEP = (1, 2, 3, 5, 8)  # rise, sweet spot and fall
MOST_ROUNDS = 1000
# as huggingface_hub checks it, but with an owner
_HUB_PART = r"\w(?:[\w.\-]{0,94}\w)?"
_HUB_ID = re.compile(rf"(?!.*(?:--|\.\.|\.git$)){_HUB_PART}/{_HUB_PART}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelRef:
    """One model as the user named it: a local directory, or a hub id with an optional revision."""

    name: str
    directory: Path | None = None
    revision: str | None = None

    @property
    def short(self) -> str:
        """The last part of the name, for tables."""
        name = Path(self.name).name
        return self.directory.name if self.directory and name in ("", "..") else name

    @property
    def label(self) -> str:
        """The whole name, which loads the same model again."""
        if self.directory:
            return str(self.directory)
        return f"{self.name}@{self.revision}" if self.revision else self.name

    @classmethod
    def parse(cls, value: Any, base: Path) -> ModelRef:
        """Read a directory (relative to base) or a hub id ``owner/name[@revision]``.

        Raises:
            Invalid: neither an existing directory nor the form of a hub id.
        """
        if not isinstance(value, str) or not value.strip():
            raise Invalid("must name a model directory or a hub id (owner/name[@revision])")
        directory = path_of(value, base)
        if directory.is_dir():
            return cls(value, directory.resolve())
        name, _, revision = value.partition("@")
        if not _HUB_ID.fullmatch(name) or (base / name.split("/")[0]).is_dir():
            raise Invalid(
                f"no such directory: {directory} "
                "(allowed: a model directory, or a hub id as owner/name[@revision])"
            )
        if "@" in value and not revision:
            raise Invalid(f"{value!r} ends in '@' with no revision after it")
        return cls(name, None, revision or None)


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """One check that outputs are put through.

    Attributes:
        name: of the check.
        options: as they were written; once the plan is built, a mapping of every option.
        origin: the place that asked for it.
        base: the folder that its relative paths start from.
    """

    name: str
    options: Any = None
    origin: str = ""
    base: Path = Path()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of the mix; max_tokens is None where its line gives none.

    ``checks`` are those of its own line, which win over those of its kind in a gates file; None
    where it has none. ``usual_checks`` come with a prompt set, and give way to both.
    """

    id: str
    text: str
    kind: str = "other"
    max_tokens: int | None = None
    checks: tuple[CheckConfig, ...] | None = field(default=None, compare=False)
    usual_checks: tuple[CheckConfig, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Decoding:
    """The options that both paths get, explicitly and alike.

    mlx-lm's own defaults differ between its two paths (``prefill_step_size`` is 2048 plain and
    512 speculative), so every one is passed.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    min_tokens_to_keep: int = 1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    seed: int = 20260928
    prefill_step_size: int = 2048
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 0
    max_kv_size: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False

    @property
    def filters(self) -> dict[str, float]:
        """The options that leave out tokens before one is drawn, as far as they do so."""
        found = {
            "top_p": (self.top_p, self.top_p < 1),
            "top_k": (self.top_k, self.top_k > 0),
            "min_p": (self.min_p, self.min_p > 0),
            "xtc_probability": (self.xtc_probability, self.xtc_probability > 0),
        }
        return {name: value for name, (value, acts) in found.items() if acts}


@dataclass(frozen=True, slots=True)
class Draws:
    """Outputs drawn afresh, each arm with seeds of its own.

    Attributes:
        seeds: outputs a prompt and arm. The plain ones are split evenly into two arms where a
            ``control`` is wanted: plain against plain.
        tokens: most tokens of an output; 0 for the prompt's own budget.
        prompts: how many prompts are drawn from, spread over the set; 0 for all.
        control: see ``seeds``.
    """

    seeds: int
    tokens: int = 0
    prompts: int = 0
    control: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """How much is measured: passes thrown away first, then rounds."""

    warmup: int = 1
    min_rounds: int = 5
    max_rounds: int = 12


ParityMode = Literal["exact", "tie_aware", "scored"]
Objective = Literal["median_speedup", "worst_kind"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is generated: a pair, prompts with their own budgets, and the decoding options.

    ``parity`` is how outputs are compared: ``exact``; ``tie_aware``, which lets rounding through;
    or ``scored``, by the teacher-forced check alone, without a plain output. ``alone`` are
    decoding options that are tried one at a time, with their values; ``follow_up`` is what the user
    says in a second turn. ``sweep`` are further numbers of draft tokens to choose from, and
    ``configured`` those in use, where ``num_draft_tokens`` holds both. ``rivals`` are further
    drafts, which no gate judges. ``samples`` are the outputs of each path of a prompt, both drawn
    with one seed, another for each from the second on; ``draws`` are outputs drawn with many seeds,
    each arm with its own.
    """

    target: ModelRef | None = None
    draft: ModelRef | None = None
    prompts: tuple[Prompt, ...] = ()
    num_draft_tokens: tuple[int, ...] = (3,)
    decoding: Decoding = field(default_factory=Decoding)
    engine: str = "mlx-lm"
    chat_template_args: Mapping[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False
    parity: ParityMode = "exact"
    alone: Mapping[str, float] = field(default_factory=dict)
    follow_up: str = ""
    sweep: tuple[int, ...] = ()
    objective: Objective = "median_speedup"
    per_kind: bool = True
    configured: tuple[int, ...] = ()
    rivals: tuple[ModelRef, ...] = ()
    samples: int = 1
    draws: tuple[Draws, ...] = ()

    @property
    def has_pair(self) -> bool:
        """Both models are named."""
        return self.target is not None and self.draft is not None

    def swept(self) -> Inputs:
        """The same with every number of draft tokens of the sweep."""
        every = sorted({*self.num_draft_tokens, *(self.sweep or SWEEP)})
        return replace(self, num_draft_tokens=tuple(every), configured=self.num_draft_tokens)

    @property
    def each_draft(self) -> tuple[Inputs, ...]:
        """The same with each of the drafts in turn, and no rivals."""
        drafts = (self.draft, *self.rivals)
        return tuple(replace(self, draft=draft, rivals=()) for draft in drafts)

    @property
    def draft_names(self) -> tuple[str, ...]:
        """Of each draft: the last part of its name, or all of it where several end alike."""
        drafts = [one.draft for one in self.each_draft if one.draft is not None]
        shorts = [draft.short for draft in drafts]
        return tuple(d.label if shorts.count(d.short) > 1 else d.short for d in drafts)

    def only(self, prompt: Prompt) -> Inputs:
        """The same with this prompt alone."""
        return replace(self, prompts=(prompt,))


@dataclass(frozen=True, slots=True)
class GateConfig:
    """One gate of the plan with its checked options, and the place that asked for it."""

    name: str
    options: Mapping[str, Any]
    origin: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One gates file (or the built-in one) under the command line: what it measures and judges.

    ``settings`` is the file's own layer, which markers stand above.
    """

    inputs: Inputs
    measure: Measure
    gates: tuple[GateConfig, ...]
    path: Path
    settings: Mapping[tuple[str, str], Any] = field(default_factory=dict)
