"""Checks on 1,000 outputs of 512 tokens, each check alone and all of them.

    python benchmarks/checks.py

Text is made of a vocabulary of words, JSON records and Python functions, from a seed; no model is
run. The last lines put outputs through a pattern, and through a schema's pattern, that backtrack
without end: they are stopped.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path

from pytest_specgate.checks import builtin_checks
from pytest_specgate.checks.base import Output
from pytest_specgate.checks.examine import Examiner
from pytest_specgate.config.checks import ready
from pytest_specgate.config.plan import CheckConfig

OUTPUTS, TOKENS = 1000, 512
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id", "name", "total"],
        "additionalProperties": False,
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Z]-[0-9]+$"},
            "name": {"type": "string", "minLength": 1},
            "total": {"type": "number", "minimum": 0},
        },
    },
}


def outputs() -> list[Output]:
    """Three kinds in turn, of about four characters a token."""
    rng = random.Random(20260928)
    made = []
    for number in range(OUTPUTS):
        words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 8))) for _ in range(340)]
        if number % 3 == 0:
            records = [
                {"id": f"A-{i}", "name": words[i], "total": round(rng.random() * 99, 2)}
                for i in range(45)
            ]
            text = json.dumps(records)
        elif number % 3 == 1:
            body = "\n".join(
                f"    {a} = {b!r}" for a, b in zip(words[::4], words[1::4], strict=True)
            )
            text = f"Here:\n\n```python\ndef f(x):\n{body}\n    return x\n```\n"
        else:
            text = " ".join(words)
        # as rare and as common as words are; every tenth output ends in a loop
        tokens = tuple(min(int(rng.paretovariate(0.9)), 150_000) for _ in range(TOKENS))
        if number % 10 == 0:
            tokens = tokens[:100] + tokens[100:120] * 20
        kind = ("json", "python", "text")[number % 3]
        made.append(Output(text, tokens, "stop", f"p{number}", kind, "say it"))
    return made


def seconds(configs: list[CheckConfig], over: list[Output]) -> tuple[float, int]:
    """(seconds of CPU of one fresh examiner, problems it found)."""
    examiner = Examiner(builtin_checks())
    begin = time.process_time()
    found = sum(len(examiner.problems(configs, output)) for output in over)
    return time.process_time() - begin, found


def main() -> None:
    """Print a table."""
    everything = outputs()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "s.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        endless = {"items": {"properties": {"name": {"pattern": "^(a|aa)+$"}}}}
        (Path(folder) / "endless.json").write_text(json.dumps(endless), encoding="utf-8")

        def config(name: str, options: object = None) -> CheckConfig:
            return ready(CheckConfig(name, options, "", Path(folder)), builtin_checks())

        checks = [
            config("json", "s.json"),
            config("python", {"compile": True}),
            config("contains", "the"),
            config("regex", r"\b\w{5,}\b"),
            config("not_regex", r"(?i)sorry|as an ai"),
            config("length", {"min": 1, "max": 1000}),
            config("language", {"script": "Latin", "max_simplified": 0}),
            config("no_repetition"),
            config("finish"),
        ]
        print(f"{OUTPUTS} outputs of {TOKENS} tokens, seconds of CPU")
        for check in checks:
            spent, found = seconds([check], everything)
            print(f"{check.name:<22} {spent:7.3f}   {found} problems")
        print(f"{'all of them':<22} {seconds(checks, everything)[0]:7.3f}")
        stuck = [
            Output("a" * 60 + f"!{i}", (1,), "stop", f"p{i}", "x", "x") for i in range(OUTPUTS)
        ]
        spent, found = seconds([config("regex", "^(a|aa)+$")], stuck)
        print(f"{'endless pattern':<22} {spent:7.3f}   {found} stopped or not tried")
        stuck = [
            Output(json.dumps([{"name": "a" * 60 + f"!{i}"}]), (1,), "stop", f"p{i}", "x", "x")
            for i in range(OUTPUTS)
        ]
        spent, found = seconds([config("json", "endless.json")], stuck)
        print(f"{'endless in a schema':<22} {spent:7.3f}   {found} stopped or not tried")


if __name__ == "__main__":
    main()
