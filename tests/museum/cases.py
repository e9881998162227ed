"""The table: what each case runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_specgate.gates.options import OptionsGate

from .pairs import pair_folder

SEVEN = "300 400 500 600 700 800 900"
SIXTY = " ".join(str(20 + 16 * i) for i in range(60))
TWELVE = "931 450 61 285 543 517 434 960 822 869 330 508"
JUDGED = "preflight: {}, parity: {}"
REUSE = f"{JUDGED}, reuse: {{follow_up: '300 400'}}"
TIMED = f"{JUDGED}, speedup: {{min: 0.01}}"
FATED = "Say how a worker ends. " * 8
ISOLATED = ("--spec-isolate", "--spec-trust-remote-code")
TIE_AWARE = "preflight: {}, parity: {mode: tie_aware}"


def _before_the_end(steps: int) -> Callable[[Path], str]:
    """A prompt whose ``steps``-th new token ends the text."""

    def prompt(folder: Path) -> str:
        tables = json.loads((folder / "oracle.json").read_text(encoding="utf-8"))
        follows, here, walked = tables["target"], 500, [500]
        while here != 0:  # through the cycle to the end-of-text token
            walked.append(here := follows[here])
        return f"20 {walked[-1 - steps]}"

    return prompt


def _emoji_start(folder: Path) -> str:
    ids = json.loads((folder / "oracle.json").read_text(encoding="utf-8"))["ids"]
    return str(ids[-1])


def alone(option: str) -> str:
    """Gates with one option of the gate ``options``, the others left out."""
    name = option.split(":")[0]
    others = (other for other in OptionsGate.options if other != name)
    return f"{JUDGED}, options: {{{option}, {', '.join(f'{other}: null' for other in others)}}}"


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        pair: of ``pairs.BUILDERS``.
        prompt: the text, or what makes it from the pair's folder; ids for the museum's engines.
        k, max_tokens, engine: as on the command line.
        gates: the body of ``gates:`` in a gates file.
        decoding: the body of ``decoding:`` in a gates file.
        draft: which of the pair's folders drafts.
        rounds: of the timing gates.
        others: prompts beside the case's own.
        options: further ones of the command line.
    """

    pair: str
    prompt: str | Callable[[Path], str] = SEVEN
    k: str = "3"
    max_tokens: int = 24
    engine: str = "museum"
    gates: str = JUDGED
    draft: str = "draft"
    rounds: int = 1
    decoding: str = ""
    others: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def arguments(self, models: Path, here: Path, *, preflight: bool = True) -> list[str]:
        """Arguments of pytest; prompts and gates are written to the folder ``here``."""
        folder = pair_folder(models, self.pair)
        text = self.prompt if isinstance(self.prompt, str) else self.prompt(folder)
        texts = {"case": text, **{f"other{i}": other for i, other in enumerate(self.others)}}
        lines = [json.dumps({"id": name, "prompt": each}) for name, each in texts.items()]
        (here / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        gates = f"version: 1\ndecoding: {{{self.decoding}}}\ngates: {{{self.gates}}}\n"
        (here / "gates.yaml").write_text(gates, encoding="utf-8")
        return [
            *("-p", "tests.museum.plugin", "-p", "no:cacheprovider"),
            *("--spec-target", str(folder / "target"), "--spec-draft", str(folder / self.draft)),
            *("--spec-engine", self.engine, "--spec-prompts", "prompts.jsonl"),
            *("--spec-num-draft-tokens", self.k, "--spec-max-tokens", str(self.max_tokens)),
            *("--spec-rounds", str(self.rounds), "--spec-report", "json:out.json"),
            *self.options,
            *([] if preflight else ["--spec-no-preflight"]),
        ]


CASES: dict[str, Case] = {
    "window-crossed": Case("window24", k="1,3,5", max_tokens=80),
    "window-crossed-short": Case("window24", k="1,3,5", max_tokens=20),
    "window-not-crossed": Case("window512", max_tokens=40),
    "window-self-draft": Case("window24", max_tokens=80, draft="target"),
    "prompt-over-window": Case("window24", SIXTY, max_tokens=12),
    "hybrid-target": Case("hybrid", max_tokens=40),
    "ssm-target": Case("mamba", max_tokens=40),
    "ssm-draft": Case("ssm-draft"),
    # Up to 0.31.1 only the speculative path's processors see the prompt (all but its last token);
    # in 0.31.2 and 0.31.3 neither path's do, so the outputs are equal; since 0.32 only the plain
    # path's do.
    "penalty": Case("dense", TWELVE, engine="penalty"),
    "penalty-one-token-prompt": Case("dense", "20", engine="penalty"),
    "logit-bias": Case("dense", engine="logit-bias"),
    "second-turn": Case("dense", gates=REUSE),
    "shared-caches": Case("gemma4", max_tokens=40, gates=REUSE),
    "max-kv-size": Case("qwen2", max_tokens=300, gates=alone("max_kv_size: 128")),
    "kv-bits": Case(
        "dense", SIXTY, max_tokens=60, gates=alone("kv_bits: 8"), decoding="kv_group_size: 32"
    ),
    "penalty-alone": Case("dense", TWELVE, gates=alone("repetition_penalty: 1.3")),
    "bias-alone": Case("dense", gates=alone("logit_bias: -10")),
    "vocab-larger-draft": Case("vocab-larger", "20 30 40"),
    "vocab-smaller-draft": Case("vocab-smaller", "20 30 40"),
    "draft-always-wrong": Case(
        "always-wrong",
        "500 600",
        k="5",
        max_tokens=40,
        gates=f"{JUDGED}, speedup: {{}}, acceptance: {{}}",
        rounds=5,
    ),
    "nothing-drafted": Case("dense", engine="ignoring"),
    "eos-first": Case("constructed", _before_the_end(1), gates=f"{JUDGED}, speedup: {{}}"),
    "eos-in-block": Case("constructed", _before_the_end(6), k="8"),
    "budget-cut": Case("constructed", "500 600", k="8", max_tokens=5),
    "one-token": Case("dense", max_tokens=1, gates=f"{JUDGED}, speedup: {{}}"),
    "empty-prompt": Case("no-template", "", engine="mlx-lm"),
    "no-limit": Case("dense", max_tokens=-1),
    "near-tie": Case("dense", "41 55 620", k="1,2,4", max_tokens=36, engine="near-tie"),
    "near-tie-aware": Case(
        "dense", "41 55 620", k="2", max_tokens=60, engine="near-tie", gates=TIE_AWARE
    ),
    "near-tie-shared": Case(
        "dense", "41 55 620", k="2", max_tokens=60, engine="near-tie-shared", gates=TIE_AWARE
    ),
    "wide-fault": Case("dense", max_tokens=60, engine="wide-fault"),
    "wide-fault-aware": Case("dense", max_tokens=60, engine="wide-fault", gates=TIE_AWARE),
    "flaky-draft": Case(
        "dense", max_tokens=40, engine="flaky", gates=f"{JUDGED}, acceptance: {{min: 0}}", rounds=3
    ),
    "random-target": Case("dense", max_tokens=40, engine="random-target"),
    "emoji-split": Case("emoji", _emoji_start),
    "tokenizer-shifted": Case("shifted"),
    "template-differs": Case("template", "Hello", engine="mlx-lm"),
    "truncated-weights": Case("truncated"),
    # mlx-lm 0.28.4 loads no code from a model's folder: there nothing happens to these two
    "killed": Case(
        "killed",
        FATED,
        max_tokens=12,
        engine="mlx-lm",
        gates=TIMED,
        rounds=3,
        others=("Say one.", "Say two."),
        options=ISOLATED,
    ),
    "hang": Case(
        "hang",
        FATED,
        max_tokens=12,
        engine="mlx-lm",
        others=("Say one.", "Say two."),
        options=(*ISOLATED, "--spec-timeout", "15"),
    ),
}
