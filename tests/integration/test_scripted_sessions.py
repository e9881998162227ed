"""Whole sessions on an engine whose outputs, times and faults are scripted."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import_module("pytest_specgate.session")  # pytester would import it anew in each test

CONFTEST = """
import pytest
from pytest_specgate import BaseGate, Verdict
from tests.fakes import FakeEngine, FakePair, Script

PAIR = FakePair()
ENGINE = FakeEngine(PAIR)

@pytest.hookimpl(optionalhook=True)
def pytest_specgate_engines():
    return {"fake": lambda: ENGINE}
"""
PROMPTS = """\
{"id": "a", "prompt": "say a"}
{"id": "b", "prompt": "say b"}
"""
GATES = """\
version: 1
prompts: {file: prompts.jsonl}
decoding: {max_tokens: 8}
gates:
"""
OPTIONS = ("--spec-target=t", "--spec-draft=d", "--spec-engine=fake", "--spec-report=json:out.json")

Session = Callable[..., tuple[pytest.RunResult, dict[str, Any]]]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A conftest with the engine, two prompts, and two folders that stand for models."""
    pytester.mkdir("t")
    pytester.mkdir("d")
    pytester.makeconftest(CONFTEST)
    (pytester.path / "prompts.jsonl").write_text(PROMPTS, encoding="utf-8")
    return pytester


def with_faults(pytester: pytest.Pytester, *lines: str) -> None:
    """Add lines to the conftest."""
    pytester.makeconftest(CONFTEST + "\n".join(lines) + "\n")


def with_gates(pytester: pytest.Pytester, *lines: str) -> None:
    """The gates file; its gates begin on line 5."""
    text = GATES + "".join(f"  {line}\n" for line in lines)
    (pytester.path / "gates.yaml").write_text(text, encoding="utf-8")


@pytest.fixture
def session(project: pytest.Pytester) -> Session:
    """session(*args): a session in process; gives the result and the JSON report."""

    def run(*args: str) -> tuple[pytest.RunResult, dict[str, Any]]:
        result = project.runpytest(*OPTIONS, *args)
        document = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
        return result, document

    return run


# -- engines that break ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "step"),
    [("ENGINE", "describe"), ("ENGINE", "load"), ("PAIR", "encode"), ("PAIR", "generate")],
)
def test_an_engine_that_raises_is_one_paragraph(
    project: pytest.Pytester, session: Session, owner: str, step: str
) -> None:
    """Of gates, of a marker and of fixtures: its own message, and no traceback."""
    with_faults(
        project,
        "def broken(*args, **options):",
        "    raise ValueError('no such\\n  thing')",
        f"{owner}.{step} = broken",
    )
    with_gates(project, "parity: {}", "speedup: {}")
    project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.spec_acceptance
        def test_marked(): pass

        def test_compare(spec_compare):
            spec_compare("say c", max_tokens=4)

        def test_evidence(spec_evidence): pass
        """
    )
    result, report = session("test_own.py", "gates.yaml")
    result.assert_outcomes(failed=5, errors=1)
    words = "the engine fake broke: ValueError: no such thing"
    result.stdout.fnmatch_lines_random(
        [
            words,
            f"parity[[]a[]] failed: {words}",
            f"parity[[]b[]] failed: {words}",
            f"speedup failed: nothing could be generated: {words}",
            f"acceptance failed: nothing could be generated: {words}",
        ]
    )
    shown = result.stdout.str() + result.stderr.str()
    for trace in ("Traceback", "INTERNALERROR", "conftest.py:", "def broken", "store.py"):
        assert trace not in shown
    assert report["status"] == "failed"
    assert {case["error"] for case in report["cases"]} == {words}


def test_a_pair_that_cannot_be_loaded_fails_its_fixture(
    project: pytest.Pytester, session: Session
) -> None:
    """The paragraph stands where the fixture was asked for."""
    with_faults(project, "ENGINE.load = lambda inputs: {}['no such pair']")
    project.makepyfile(test_own="def test_pair(spec_pair): pass\n")
    result, _ = session("test_own.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("the engine fake broke: KeyError: 'no such pair'")
    assert "Traceback" not in result.stdout.str()


def test_an_engine_that_breaks_at_one_k_alone(project: pytest.Pytester, session: Session) -> None:
    """k = 3 is judged on both prompts, k = 5 on the one that it could generate."""
    with_faults(project, "PAIR.raises = {('say b', 'k=5', 0): ValueError('no kernel')}")
    with_gates(project, "parity: {}", "speedup: {}")
    result, report = session("--spec-num-draft-tokens=3,5", "gates.yaml")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "parity[[]b[]] failed: with the draft (k=5): the engine fake broke: "
            "ValueError: no kernel",
            "speedup k=3 *passed *2 prompts, 5 rounds",
            "speedup k=5 *passed *1 prompt, 5 rounds",
        ]
    )
    verdicts = {(v["gate"], v["subject"]): v for v in report["verdicts"]}
    assert verdicts["speedup", "k=3"]["details"] == []
    assert verdicts["speedup", "k=5"]["details"] == ["left out: b (generating failed)"]


# -- spec_compare ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('"x", rounds="3"', "rounds must be a whole number, found the text '3' (allowed: 0 to *"),
        ('"x", num_draft_tokens=[1, 3]', "num_draft_tokens must be a whole number, found a list *"),
        ("10**5000", "the prompt must be text that is not empty, found a number of too many *"),
    ],
)
def test_a_wrong_argument_of_spec_compare_is_named(
    project: pytest.Pytester, session: Session, call: str, words: str
) -> None:
    """In one line with the place of the test, before anything is generated."""
    path = project.makepyfile(test_own=f"def test_it(spec_compare):\n    spec_compare({call})\n")
    result, report = session("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(f"{path}:1: test_it: spec_compare: {words}")
    assert "pytest_specgate/" not in result.stdout.str()
    assert report["cases"] == []


# -- nothing judged --------------------------------------------------------------------------------

SKIPPED = """
import pytest

@pytest.mark.skip(reason="later")
@pytest.mark.spec_parity
def test_marked(): pass

@pytest.mark.skipif(True, reason="later")
def test_fixture(spec_evidence): pass
"""


@pytest.mark.parametrize("how", ["option", "ini"])
def test_required_gates_that_are_all_skipped(
    project: pytest.Pytester, session: Session, how: str
) -> None:
    """By marks of the tests: the session is red and says why; without the option it is green."""
    project.makepyfile(test_own=SKIPPED)
    required = "--spec-require" if how == "option" else "-ospecgate_require=true"
    result, report = session(required, "test_own.py")
    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    line = "ERROR: --spec-require: nothing was judged: what was collected was skipped"
    assert result.outlines.count(line) == 1
    assert (report["status"], report["verdicts"]) == ("nothing judged", [])
    assert session("test_own.py")[0].ret == 0


def test_required_gates_of_a_file_that_are_all_skipped(project: pytest.Pytester) -> None:
    """By a conftest."""
    with_faults(
        project,
        "def pytest_collection_modifyitems(items):",
        "    for item in items: item.add_marker(pytest.mark.skip(reason='later'))",
    )
    with_gates(project, "parity: {}")
    assert project.runpytest(*OPTIONS, "--spec-require", "gates.yaml").ret == 1


@pytest.mark.parametrize(
    "body",
    ["spec_compare): spec_compare('x', max_tokens=4, rounds=2)", "spec_pair): assert spec_pair"],
)
def test_a_required_pair_that_is_tested_by_hand(
    project: pytest.Pytester, session: Session, body: str
) -> None:
    """One test of two is skipped; what the other one asserts is judgement enough."""
    project.makepyfile(test_own=f"{SKIPPED}\ndef test_it({body}\n")
    result, _ = session("--spec-require", "test_own.py")
    result.assert_outcomes(skipped=2, passed=1)
    assert result.ret == 0


# -- one wrong k -----------------------------------------------------------------------------------


def test_a_prompt_that_is_wrong_at_one_k_alone(project: pytest.Pytester, session: Session) -> None:
    """Its parity is red; k = 3 is timed on it all the same, k = 5 is not."""
    with_faults(project, "PAIR.scripts = {'say b': Script(wrong={'k=5': (100, 1, 2)})}")
    with_gates(project, "parity: {}", "speedup: {}", "memory: {}", "acceptance: {}")
    result, report = session("--spec-num-draft-tokens=3,5", "gates.yaml")
    result.assert_outcomes(passed=7, failed=1)
    result.stdout.fnmatch_lines(
        ["parity[[]b[]] failed: *from output token 1 on * is not the target's own (k = 5)"]
    )
    verdicts = {(v["gate"], v["subject"]): v for v in report["verdicts"]}
    for gate in ("speedup", "memory"):
        assert (verdicts[gate, "k=3"]["samples"], verdicts[gate, "k=5"]["samples"]) == (10, 5)
    for gate in ("speedup", "memory", "acceptance"):
        assert "left out: b (its output differs)" in verdicts[gate, "k=5"]["details"]
        assert not any("left out" in line for line in verdicts[gate, "k=3"]["details"])
    trials = {
        case["id"]: {name: len(arm["trials"]) for name, arm in case["arms"].items()}
        for case in report["cases"]
    }
    assert trials == {"a": {"plain": 5, "k=3": 5, "k=5": 5}, "b": {"plain": 5, "k=3": 5, "k=5": 0}}


def test_a_prompt_that_is_wrong_with_two_sets_of_options(
    project: pytest.Pytester, session: Session
) -> None:
    """Each gets a saved case, and its verdict names its own."""
    with_faults(project, "PAIR.scripts = {'say b': Script(wrong={'k=3': (100, 1, 2)})}")
    with_gates(project, "parity: {}")
    project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.spec_parity
        @pytest.mark.spec_inputs(seed=7)
        def test_exact(): pass
        """
    )
    _, report = session("gates.yaml", "test_own.py")
    failed = [verdict for verdict in report["verdicts"] if verdict["status"] == "failed"]
    paths = [
        verdict["advice"][-1].removeprefix("Replay: pytest --spec-replay ") for verdict in failed
    ]
    assert paths[0] == ".specgate/failures/b.json"
    seeds = [json.loads((project.path / p).read_bytes())["decoding"]["seed"] for p in paths]
    assert seeds == [20260928, 7]


# -- gates of other plugins ------------------------------------------------------------------------

LENGTH = """
class LengthGate(BaseGate):
    name = "length_of_all"
    needs = "parity"

    def judge(self, evidence, options, subject):
        tokens = sum(len(case.plain.generation.tokens) for case in evidence.cases)
        return Verdict(self.name, subject, "passed", f"{tokens} tokens", observed=tokens)

@pytest.hookimpl(optionalhook=True)
def pytest_specgate_gates():
    return [LengthGate()]
"""


def test_a_gate_that_sets_only_its_name(project: pytest.Pytester, session: Session) -> None:
    """Its item, its marker and its row have that name."""
    with_faults(project, LENGTH)
    with_gates(project, "length_of_all:")
    project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.spec_length_of_all
        def test_marked(): pass
        """
    )
    result, report = session("--strict-markers", "-v", "gates.yaml", "test_own.py")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "gates.yaml::length_of_all PASSED*",
            "test_own.py::test_marked PASSED*",
            "length of all *passed*",
            "length of all test_marked *passed*",
        ]
    )
    assert [(v["gate"], v["item"], v["observed"]) for v in report["verdicts"]] == [
        ("length_of_all", "gates.yaml::length_of_all", 16),
        ("length_of_all", "test_own.py::test_marked", 16),
    ]
    assert (
        "gates.yaml::length_of_all"
        in project.runpytest(
            *OPTIONS, "--collect-only", "-q", "gates.yaml::length_of_all"
        ).stdout.str()
    )


# -- what markers and gates.yaml both ask for ------------------------------------------------------


@pytest.mark.parametrize("order", [("test_own.py", "gates.yaml"), ("gates.yaml", "test_own.py")])
def test_prompts_that_two_items_judge_are_counted_once(
    project: pytest.Pytester, session: Session, order: tuple[str, ...]
) -> None:
    """Two prompts, eight tokens each, however many ask."""
    with_gates(project, "parity: {}")
    project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.parametrize("time", [1, 2])
        @pytest.mark.spec_parity
        def test_exact(time): pass
        """
    )
    result, report = session(*order)
    result.assert_outcomes(passed=4)
    assert len(report["verdicts"]) == 6
    (row,) = (line for line in result.outlines if line.startswith("parity "))
    assert row.split() == ["parity", "passed", "2", "of", "2", "exact", "exact", "16", "tokens"]


def test_two_speedups_are_told_apart(project: pytest.Pytester, session: Session) -> None:
    """The limits differ, so the verdicts do: each row says whose it is."""
    with_gates(project, "speedup: {min: 1.5}")
    project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.spec_speedup(min=50)
        @pytest.mark.spec_inputs(min_rounds=7)
        def test_fast(): pass
        """
    )
    result, report = session("gates.yaml", "test_own.py")
    result.assert_outcomes(passed=1, failed=1)
    rows = [line.split() for line in result.outlines if line.startswith("speedup ")]
    rows = [row for row in rows if "failed:" not in row]
    assert [row[:4] for row in rows] == [
        ["speedup", "passed", "2.00x", "[2.00,"],
        ["speedup", "test_fast", "failed", "2.00x"],
    ]
    assert [(v["item"], v["limit"]) for v in report["verdicts"]] == [
        ("gates.yaml::speedup", 1.5),
        ("test_own.py::test_fast", 50.0),
    ]


@pytest.mark.parametrize(("bound", "rounds"), [("min_rounds=20", 20), ("max_rounds=3", 3)])
def test_one_bound_of_a_marker_is_enough_beside_the_built_in_gates(
    project: pytest.Pytester, session: Session, bound: str, rounds: int
) -> None:
    """The 5 and 12 of the package's own gates file are defaults: they give way."""
    project.makepyfile(
        test_own=f"""
        import pytest

        @pytest.mark.spec_speedup
        @pytest.mark.spec_inputs(prompts=["say a", "say b"], max_tokens=8, {bound})
        def test_fast(spec_evidence):
            assert spec_evidence.rounds == {rounds}
        """
    )
    result, report = session("test_own.py")
    assert result.ret == 0
    assert [len(c["arms"][n]["trials"]) for c in report["cases"] for n in c["arms"]] == [rounds] * 4
    assert report["status"] == ("passed" if rounds == 20 else "inconclusive")


# -- where it is reported --------------------------------------------------------------------------


def test_an_undecided_gate_stands_at_its_own_line(project: pytest.Pytester) -> None:
    """Of the gates file, or of the test; not at a line of specgate."""
    with_gates(project, "acceptance: {}", "speedup:", "  min: 1.1", "latency: {}")
    path = project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.spec_speedup
        def test_fast(): pass
        """
    )
    recorder = project.inline_run(*OPTIONS, "--spec-rounds=2", "gates.yaml", "test_own.py")
    places = []
    for report in recorder.getreports("pytest_runtest_logreport"):
        if report.skipped:
            assert isinstance(report.longrepr, tuple)
            places.append(report.longrepr)
    gates = str(project.path / "gates.yaml")
    reason = "2 rounds cannot decide: it takes 5"
    assert places[0] == (gates, 6, f"Skipped: {reason}")
    assert places[1][:2] == (gates, 8)
    assert "p95 cannot be estimated from 4 trials in 2 rounds" in places[1][2]
    assert places[2] == (str(path), 3, f"Skipped: speedup: {reason}")
    assert len(places) == 3


# -- text of others --------------------------------------------------------------------------------

CONTROL = "\x1b[31m\u2028\u202e\x07"
SHOWN = "\\x1b[31m\\u2028\\u202e\\x07"
LOUD = f"""
class Loud(BaseGate):
    name = "loud"
    needs = "parity"

    def judge(self, evidence, options, subject):
        odd = {CONTROL!r}
        if evidence.num_draft_tokens == (5,):
            return Verdict(self.name, subject, "inconclusive", odd)
        texts = dict(observed_text=odd, limit_text=odd, details=(odd,))
        return self.failed(subject + odd, odd, odd, **texts)

@pytest.hookimpl(optionalhook=True)
def pytest_specgate_gates():
    return [Loud()]
"""


def safe(result: pytest.RunResult) -> str:
    """What was shown: nothing of it can drive a terminal."""
    shown = result.stdout.str() + result.stderr.str()
    assert all(line.isprintable() for line in shown.split("\n"))
    return shown


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        (f"prompts={CONTROL!r}", f"prompt set {SHOWN} not found"),
        (f"target={CONTROL!r}, draft='d'", SHOWN),
        (f"seed={CONTROL!r}", f"found the text '{SHOWN}'"),
    ],
)
def test_control_characters_of_a_marker_are_shown_escaped(
    project: pytest.Pytester, marker: str, words: str
) -> None:
    """In the error of the collection, of which every marker has a line."""
    project.makepyfile(
        test_own=f"""
        import pytest
        @pytest.mark.spec_inputs({marker})
        def test_it(): pass
        @pytest.mark.spec_parity(mod=1)
        def test_that(): pass
        """
    )
    result = project.runpytest("test_own.py")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert words in safe(result).replace(f"'{SHOWN}' not", f"{SHOWN} not")
    result.stdout.fnmatch_lines(["*test_it: spec_inputs*", "*test_that: spec_parity*"])


@pytest.mark.parametrize("step", ["load", "generate"])
def test_control_characters_of_an_engine_are_shown_escaped(
    project: pytest.Pytester, session: Session, step: str
) -> None:
    """In fixtures, in calls, in gates, in the section of the report."""
    owner = "ENGINE" if step == "load" else "PAIR"
    broken = f"def broken(*args, **options): raise ValueError({CONTROL!r})"
    with_faults(project, broken, f"{owner}.{step} = broken")
    with_gates(project, "parity: {}", "acceptance: {}")
    project.makepyfile(
        test_own="""
        def test_evidence(spec_evidence): pass
        def test_compare(spec_compare): spec_compare("x", max_tokens=4)
        """
    )
    result, _ = session("-rA", "test_own.py", "gates.yaml")
    result.assert_outcomes(failed=4, errors=1)
    words = "the engine fake broke: ValueError: \\x1b[31m \\u202e\\x07"  # white space is one blank
    assert safe(result).count(words) >= 5


def test_control_characters_of_a_gate_are_shown_escaped(
    project: pytest.Pytester, session: Session
) -> None:
    """Failed and undecided, of a file and of a marker."""
    with_faults(project, LOUD)
    with_gates(project, "loud:")
    project.makepyfile(
        test_own="""
        import pytest
        @pytest.mark.spec_loud
        def test_it(): pass
        """
    )
    for k in (3, 5):
        result, _ = session("-rA", f"--spec-num-draft-tokens={k}", "test_own.py", "gates.yaml")
        assert safe(result).count(SHOWN) >= 2


def test_a_report_to_a_link_that_leads_to_itself(project: pytest.Pytester) -> None:
    """One line, and a red session: the verdicts stand, the report is not there."""
    (project.path / "loop").symlink_to("loop")
    with_gates(project, "parity: {}")
    result = project.runpytest(*OPTIONS[:3], "--spec-report=json:loop", "gates.yaml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    lines = [line for line in result.outlines if line.startswith("ERROR: ")]
    assert len(lines) == 1
    assert lines[0].startswith("ERROR: --spec-report json:loop: cannot be written: ")
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


BREAKS = """
def broken(report, path):
    raise TypeError("no such\\n  column")
@pytest.hookimpl(optionalhook=True)
def pytest_specgate_report():
    return {"mine": broken}
"""
NEVER_ENDS = """
def close():
    raise RuntimeError("still at work")
ENGINE.close = close
"""


def test_a_report_writer_that_breaks(project: pytest.Pytester) -> None:
    """One line, and a red session: the verdicts and the other reports stand."""
    with_faults(project, BREAKS)
    with_gates(project, "parity: {}")
    reports = ("--spec-report=mine:a.txt", "--spec-report=json:out.json")
    result = project.runpytest(*OPTIONS[:3], *reports, "gates.yaml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    line = "ERROR: --spec-report mine:a.txt: its writer broke: TypeError: no such column"
    assert line in result.outlines
    assert json.loads((project.path / "out.json").read_text(encoding="utf-8"))["verdicts"]
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_an_engine_that_would_not_end(project: pytest.Pytester, session: Session) -> None:
    """It is said, once; what was measured stands."""
    with_faults(project, NEVER_ENDS)
    with_gates(project, "parity: {}")
    result, report = session("gates.yaml")
    assert result.ret == 0
    assert report["verdicts"]
    words = "an engine could not be ended: RuntimeError: still at work"
    assert result.outlines.count(words) == 1


def test_control_characters_of_a_report_are_shown_escaped(project: pytest.Pytester) -> None:
    """In its name."""
    with_gates(project, "parity: {}")
    report = f"--spec-report=json:{CONTROL}.json"
    result = project.runpytest(*OPTIONS[:3], report, "gates.yaml")
    assert result.ret == 0
    assert f"json report: {project.path}/{SHOWN}.json" in safe(result)


# -- decoding options ------------------------------------------------------------------------------

SEEN = """
SEEN = []
generate = FakePair.generate
def noting(self, prompt, decoding, **options):
    SEEN.append(decoding)
    return generate(self, prompt, decoding, **options)
PAIR.generate = noting.__get__(PAIR)
def pytest_terminal_summary(terminalreporter):
    for decoding in dict.fromkeys(SEEN):
        terminalreporter.write_line(f"SEEN {decoding}")
"""


@pytest.mark.parametrize(
    ("line", "marker", "expected"),
    [
        ("repetition_penalty: 1.3", "repetition_penalty=1.3", "repetition_penalty=1.3"),
        ("presence_penalty: -1", "presence_penalty=-1", "presence_penalty=-1"),
        ("frequency_penalty: 0.5", "frequency_penalty=0.5", "frequency_penalty=0.5"),
        ("max_kv_size: 64", "max_kv_size=64", "max_kv_size=64"),
        ("top_p: 0.9", "top_p=0.9", "top_p=0.9"),
        ("top_k: 40", "top_k=40", "top_k=40"),
        ("min_p: 0.05", "min_p=0.05", "min_p=0.05"),
        ("min_tokens_to_keep: 2", "min_tokens_to_keep=2", "min_tokens_to_keep=2"),
        ("xtc_probability: 0.5", "xtc_probability=0.5", "xtc_probability=0.5"),
        ("xtc_threshold: 0.2", "xtc_threshold=0.2", "xtc_threshold=0.2"),
        (
            'logit_bias: {"7": 1, "5": -10}',
            "logit_bias={7: 1, 5: -10}",
            "logit_bias=((5, -10.0), (7,",
        ),
        ('logit_bias: {"5": -10}', 'logit_bias={"5": -10}', "logit_bias=((5, -10.0),)"),
    ],
)
def test_options_of_the_sampler_reach_the_engine(
    project: pytest.Pytester, session: Session, line: str, marker: str, expected: str
) -> None:
    """From the gates file and from a marker alike, and into the report."""
    with_faults(project, SEEN)
    with_gates(project, "parity: {}")
    path = project.path / "gates.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("max_tokens: 8}", f"max_tokens: 8, {line}}}"), encoding="utf-8")
    project.makepyfile(
        test_own=f"""
        import pytest

        @pytest.mark.spec_parity
        @pytest.mark.spec_inputs(prompts=["say a"], max_tokens=8, {marker})
        def test_it(): pass
        """
    )
    for where in ("gates.yaml", "test_own.py"):
        result, report = session(where)
        assert result.ret == 0
        seen = [line for line in result.outlines if line.startswith("SEEN ")]
        assert len(seen) == 1
        assert expected in seen[0]
        name = expected.partition("=")[0]
        assert report["decoding"][name]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("repetition_penalty: 0", "repetition_penalty"),
        ("presence_penalty: much", "presence_penalty"),
        ("max_kv_size: 7", "max_kv_size"),
        ("top_p: 0", "top_p"),
        ("top_p: 1.1", "top_p"),
        ("top_k: -1", "top_k"),
        ("top_k: 2.5", "top_k"),
        ("min_p: 1.5", "min_p"),
        ("min_tokens_to_keep: 0", "min_tokens_to_keep"),
        ("xtc_probability: 2", "xtc_probability"),
        ("xtc_threshold: 0.6", "xtc_threshold"),
        ("logit_bias: [5]", "logit_bias"),
        ("logit_bias: {x: 1}", "logit_bias"),
        ("logit_bias: {'-1': 1}", "logit_bias"),
        ("logit_bias: {'5': .nan}", "logit_bias"),
        ("logit_bias: {'5': 1, '05': 2}", "logit_bias"),
    ],
)
def test_wrong_options_of_the_sampler(project: pytest.Pytester, line: str, words: str) -> None:
    """Exit 4, with file, line and key."""
    with_gates(project, "parity: {}")
    path = project.path / "gates.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("max_tokens: 8}", f"max_tokens: 8, {line}}}"), encoding="utf-8")
    result = project.runpytest(*OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "gates.yaml, line 3: decoding." + words in result.stderr.str()


# -- gates that give what no gate should -----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("None", "it gave nothing (null) where a Verdict is due"),
        ("True", "it gave true, a truth value where a Verdict is due"),
        ("Verdict(self.name, subject, 'green', '')", "its verdict has the status 'green'"),
        ("Verdict('parity', subject, 'passed', '')", "its verdict names the gate 'parity'"),
    ],
)
def test_a_gate_that_gives_no_verdict(
    project: pytest.Pytester, session: Session, given: str, words: str
) -> None:
    """Failed, of a file and of a marker, never passed and no traceback."""
    with_faults(
        project,
        "class Odd(BaseGate):",
        "    name = 'odd'",
        "    needs = 'parity'",
        "    def judge(self, evidence, options, subject):",
        f"        return {given}",
        "@pytest.hookimpl(optionalhook=True)",
        "def pytest_specgate_gates():",
        "    return [Odd()]",
    )
    with_gates(project, "odd: {}")
    project.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.spec_odd
        def test_it(): pass
        """
    )
    result, report = session("gates.yaml", "test_own.py")
    result.assert_outcomes(failed=2)
    assert {v["reason"] for v in report["verdicts"]} == {f"the gate odd is at fault: {words}"}
    assert "Traceback" not in result.stdout.str()


# -- GitHub ----------------------------------------------------------------------------------------


@pytest.fixture
def in_github(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of GitHub Actions that checked out the project; gives the file of its summary."""
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path))
    return summary


OWN_TEST = """
import pytest


@pytest.mark.spec_acceptance(min=1)
def test_marked(): pass
"""


def test_a_job_of_github(project: pytest.Pytester, session: Session, in_github: Path) -> None:
    """Failures at the lines that asked for them, passes not; the report in the summary."""
    with_gates(project, "parity: {}", "speedup: {min: 50}")
    project.makepyfile(test_own=OWN_TEST)
    result, report = session("--spec-rounds=5", "gates.yaml", "test_own.py")
    assert report["status"] == "failed"
    errors = [line for line in result.outlines if line.startswith("::")]
    speedup, acceptance = sorted(errors)
    assert speedup.startswith(
        "::error file=gates.yaml,line=6,title=specgate%3A speedup (k=3) failed::"
        "the speculative path is "
    )
    assert acceptance.startswith("::error file=test_own.py,line=4,title=specgate%3A acceptance")
    text = in_github.read_text(encoding="utf-8")
    assert text.startswith("\n## specgate: failed\n")
    assert "<summary><b>speedup (k=3)</b>: the speculative path is " in text
    result.stdout.fnmatch_lines("the report is in the job's summary")
    session("--spec-rounds=5", "gates.yaml")
    assert in_github.read_text(encoding="utf-8").count("\n## specgate: failed\n") == 2


def test_outside_github(project: pytest.Pytester, session: Session) -> None:
    """Nothing but what was asked for."""
    with_gates(project, "speedup: {min: 50}")
    before = {path.name for path in project.path.iterdir()}
    result, _ = session("--spec-rounds=5", "gates.yaml")
    result.assert_outcomes(failed=1)
    assert "::error" not in result.stdout.str()
    assert "summary" not in result.stdout.str().replace("short test summary", "")
    left = {path.name for path in project.path.iterdir()} - before
    assert left <= {"out.json", ".pytest_cache", "__pycache__", ".benchmarks"}


@pytest.mark.parametrize("args", [("--collect-only", "gates.yaml"), ("test_plain.py",)])
def test_a_session_that_judges_nothing_leaves_the_summary_alone(
    project: pytest.Pytester, in_github: Path, args: tuple[str, ...]
) -> None:
    """Collecting alone, or tests of another kind."""
    with_gates(project, "parity: {}")
    project.makepyfile(test_plain="def test_it(): pass\n")
    result = project.runpytest(*OPTIONS[:3], *args)
    assert result.ret == 0
    assert not in_github.exists()


def test_a_summary_that_cannot_be_written(
    project: pytest.Pytester, session: Session, in_github: Path
) -> None:
    """The session stays green and says so."""
    in_github.mkdir()
    with_gates(project, "parity: {}")
    result, _ = session("gates.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines("the job's summary could not be written: *")


# -- reports for people ----------------------------------------------------------------------------


def test_the_checklist_is_shown_on_demand(project: pytest.Pytester, session: Session) -> None:
    """By the option or the ini key, behind all that was measured; in the JSON report always."""
    with_gates(project, "parity: {}", "speedup: {min: 0.1}")
    result, report = session("--spec-rounds=5", "gates.yaml")
    assert "Decision checklist" not in result.stdout.str()
    assert len(report["checklist"]) == 10
    for how in ("--spec-checklist", "-ospecgate_checklist=true"):
        result, _ = session("--spec-rounds=5", how, "gates.yaml")
        result.stdout.fnmatch_lines(
            [
                "kind *",
                "Decision checklist",
                "[[]?] tokenizers equal: not measured, the gate preflight measures it",
                "[[]x] plain baseline warm and repeated: 5 rounds after a warm-up",
                "[[]x] greedy parity: 2 prompts, token for token",
                "json report: *",
            ]
        )


def test_reports_of_every_kind(project: pytest.Pytester, session: Session) -> None:
    """Side by side, each in its file."""
    with_gates(project, "parity: {}", "speedup: {min: 0.1}")
    more = ("--spec-report=markdown:out.md", "--spec-report=csv:out.csv")
    session("--spec-rounds=5", *more, "--spec-save-baseline=main", "gates.yaml")
    text = (project.path / "out.md").read_text(encoding="utf-8")
    assert text.startswith("## specgate: passed\n")
    assert "\n- [x] baseline stored for the next upgrade: main\n" in text
    rows = (project.path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 2 * 2 * 5  # prompts, arms, rounds
