"""Whole scans of real models: one pass of a draft tells what real runs do, at every k."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef, Prompt
from pytest_specgate.demo.constructed import PairRecipe
from pytest_specgate.engines import worker
from pytest_specgate.engines.base import Generation
from pytest_specgate.engines.mlx_lm import MlxLmEngine
from pytest_specgate.measure.blocks import blocks_of
from pytest_specgate.measure.replay import EVERY_K, Forced
from tests.models import dense_config, save_pair

from ..conftest import ConstructedPair
from .conftest import Gate

AGREEMENTS = (0.5, 0.85, 1.0)
TEXTS = ("Say what a list is.", "水為什麼會結冰")
DECODING = Decoding(prefill_step_size=8)
Constructed = Callable[[PairRecipe], ConstructedPair]


def unlike_real_runs(
    folder: Path, budget: int, texts: tuple[str, ...] = TEXTS
) -> tuple[list[str], list[Generation]]:
    """Every k at which the replay of the draft is not the real run, and the plain outputs."""
    refs = (ModelRef("target", folder / "target"), ModelRef("draft", folder / "draft"))
    pair = MlxLmEngine().load(Inputs(*refs))
    wrong, plains = [], []
    for text in texts:
        ids = pair.encode(text, {})
        plain = pair.generate(ids, DECODING, max_tokens=budget, num_draft_tokens=None)
        choices = pair.choices(ids, plain.tokens, DECODING)
        forced = Forced(Prompt(text, text), plain, choices, budget)
        plains.append(plain)
        for k in EVERY_K:
            real = pair.generate(ids, DECODING, max_tokens=budget, num_draft_tokens=k)
            if real.tokens != plain.tokens or forced.blocks(k) != blocks_of(real, k, budget):
                wrong.append(f"{text}, k = {k}")
    return wrong, plains


@pytest.mark.parametrize("ends", [False, True], ids=["endless", "ends"])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_every_k_of_constructed_drafts(
    constructed: Constructed, agreement: float, ends: bool
) -> None:
    """Block for block, budgets that cut and an end inside a block among them."""
    recipe = PairRecipe(agreement=agreement, target_layers=2, ends=ends, seed=int(ends))
    folder, _ = constructed(recipe)
    for budget in (5, 21):
        wrong, plains = unlike_real_runs(folder, budget)
        assert wrong == []
        assert {plain.finish_reason for plain in plains} <= {"stop", "length"}


def test_every_k_of_random_models(tmp_path: Path) -> None:
    """Weights without any plan: the draft's cache matters, and it is refused now and then."""
    folder = save_pair(tmp_path, dense_config(), noise=0.1)
    wrong, plains = unlike_real_runs(folder, 24, TEXTS[:1])
    assert wrong == []
    pair = MlxLmEngine().load(
        Inputs(ModelRef("t", folder / "target"), ModelRef("d", folder / "draft"))
    )
    ids = pair.encode(TEXTS[0], {})
    choices = pair.choices(ids, plains[0].tokens, DECODING)
    matches = [a == b for a, b in zip(choices, plains[0].tokens, strict=True)]
    assert 0 < sum(matches) < len(matches)
    # chunks of the pass change nothing
    whole = pair.choices(ids, plains[0].tokens, Decoding(prefill_step_size=2048))
    assert whole == choices
    assert pair.spell(plains[0].tokens[:2]) == tuple(
        pair.tokenizer.decode([token]) for token in plains[0].tokens[:2]
    )


@pytest.fixture
def drafts(constructed: Constructed, tmp_path: Path) -> dict[str, Path]:
    """name -> folder: one target and three drafts of known agreement."""
    found = {}
    for agreement in AGREEMENTS:
        folder, _ = constructed(PairRecipe(agreement=agreement, target_layers=2))
        found["target"] = folder / "target"
        name = f"draft-{agreement:g}"
        found[name] = shutil.copytree(folder / "draft", tmp_path / name)
    return found


def options_for(drafts: Mapping[str, Path]) -> list[str]:
    """The target and every draft."""
    return [f"--spec-{name.partition('-')[0]}={folder}" for name, folder in drafts.items()]


@pytest.mark.parametrize("more", [(), ("--spec-isolate",)], ids=["here", "isolated"])
def test_three_drafts_are_ranked(
    gate: Gate,
    drafts: dict[str, Path],
    prompts: Callable[..., str],
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An item a draft, the best first in the table; the target is loaded once."""
    loads: Counter[str] = Counter()
    load = worker.load

    def counted(reference: Any, role: str, trust: bool) -> Any:
        loads[role] += 1
        return load(reference, role, trust)

    monkeypatch.setattr(worker, "load", counted)
    result, report = gate(
        None,
        *options_for(drafts),
        *("--spec-scan", "--spec-prompts", prompts(a=TEXTS[0], b=TEXTS[1]), "-v"),
        *("--spec-max-tokens", "20", "--spec-report", "markdown:out.md", *more),
    )
    result.assert_outcomes(passed=3)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["specgate: one pass over 2 plain outputs, 3 drafts; nothing is timed"]
        + [f"gates.yaml::scan[[]draft-{a:g}[]] PASSED*" for a in AGREEMENTS]
    )
    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["draft", "size"])
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == [
        "draft-1",
        "draft-0.85",
        "draft-0.5",
    ]
    assert not more or loads == {}
    assert more or loads == {"target": 1, "draft": 3}
    pairs = [report, *report["further_pairs"]]
    for pair, agreement in zip(pairs, AGREEMENTS, strict=True):
        assert list(pair["acceptance"]) == [f"k={k}" for k in EVERY_K]
        assert pair["trials"] == {"run": 0, "at_most": 0}
        one = pair["acceptance"]["k=3"]
        assert one["emitted"] == 40
        assert sum(part["proposed"] for part in one["quarters"]) == one["proposed"]
        assert list(one["kinds"]) == ["other"]
        checked = [case for case in pair["cases"] if "k=3" in case["arms"]]
        assert [case["id"] for case in checked] == ["a"]
        assert all(len(case["draft_choices"]) == 20 for case in pair["cases"])
        if agreement == 1:
            assert one["acceptance_rate"] == 1.0
    rates = [pair["acceptance"]["k=3"]["acceptance_rate"] for pair in pairs]
    assert rates == sorted(rates)
    assert [verdict["observed"] for verdict in report["verdicts"]] == rates
    assert "### Drafts" in Path("out.md").read_text(encoding="utf-8")


def test_one_draft_of_the_gates_file(
    gate: Gate, drafts: dict[str, Path], prompts: Callable[..., str], pytester: pytest.Pytester
) -> None:
    """``pair.draft`` as a list; gates of the file are not judged; a single draft by its name."""
    names = [str(folder) for name, folder in drafts.items() if name != "target"]
    pytester.path.joinpath("gates.yaml").write_text(
        f"version: 1\npair: {{target: {drafts['target']}, draft: {json.dumps(names)}}}\n"
        f"prompts: {{file: {prompts(a=TEXTS[0])}}}\ndecoding: {{max_tokens: 8}}\n"
        "gates: {speedup: {min: 99}}\n",
        encoding="utf-8",
    )
    result, report = gate(None, "gates.yaml::scan[draft-0.85]", "--spec-scan")
    result.assert_outcomes(passed=1)
    assert [verdict["gate"] for verdict in report["verdicts"]] == ["scan"]
    again = pytester.runpytest("gates.yaml")
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*gates.yaml, line 2: 3 drafts: a gate judges one pair; *"])


def test_drafts_of_the_ini_file(drafts: dict[str, Path], pytester: pytest.Pytester) -> None:
    """A draft a line."""
    lines = "".join(f"\n  {folder}" for name, folder in drafts.items() if name != "target")
    pytester.makeini(
        f"[pytest]\nspecgate_target = {drafts['target']}\nspecgate_draft = {lines}\n"
        "specgate_scan = true\nspecgate_noise = true\n"
    )
    result = pytester.runpytest("--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [
        f"gates.yaml::scan[draft-{agreement:g}]" for agreement in AGREEMENTS
    ]


def test_tests_of_the_project_are_skipped(
    gate: Gate, drafts: dict[str, Path], prompts: Callable[..., str], pytester: pytest.Pytester
) -> None:
    """A scan measures for nothing but itself; what has nothing to do with it runs."""
    pytester.makepyfile(
        test_own="""
        import pytest

        def test_other(): pass

        @pytest.mark.spec_parity
        def test_pair(spec_evidence): assert False
        """
    )
    name = prompts(a=TEXTS[0])
    options = ("--spec-scan", "--spec-prompts", name, "--spec-max-tokens", "4", "-rs")
    pair = {"target": drafts["target"], "draft-1": drafts["draft-1"]}
    result, _ = gate(None, *options_for(pair), *options, ".")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*--spec-scan judges and measures no test"])
    result, _ = gate(None, *options_for(pair), *options)
    result.assert_outcomes(passed=1)


def test_a_pair_that_the_pre_flight_check_refuses(
    gate: Gate, window_pairs: dict[int, Path], prompts: Callable[..., str]
) -> None:
    """A cache that cannot be rewound: no figure, a failed item with the finding."""
    result, report = gate(
        window_pairs[24], "--spec-scan", "--spec-prompts", prompts(a=TEXTS[0]), "-k", "scan"
    )
    result.assert_outcomes(failed=1)
    (verdict,) = report["verdicts"]
    assert verdict["reason"].startswith("nothing could be scanned: ")
    assert "window" in verdict["reason"]
    assert report["acceptance"] == {}


def test_temperature_is_refused(drafts: dict[str, Path], pytester: pytest.Pytester) -> None:
    """Before any model is loaded."""
    pytester.path.joinpath("gates.yaml").write_text("version: 1\ndecoding: {temperature: 0.5}\n")
    pair = {"target": drafts["target"], "draft-1": drafts["draft-1"]}
    result = pytester.runpytest(*options_for(pair), "--spec-scan")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --spec-scan: *decoding.temperature: 0.5"])


def test_several_drafts_of_a_marker(drafts: dict[str, Path], pytester: pytest.Pytester) -> None:
    """A test is judged on one pair."""
    names = [str(folder) for folder in drafts.values()]
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.spec_inputs(target={names[0]!r}, draft={names[1:]!r})
        @pytest.mark.spec_parity
        def test_pair(): pass
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*: test_pair: spec_inputs: 3 drafts: a gate judges one pair; *"])
