"""What is undecided: the policies, the sample that goes on, reruns, the budget, the noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from .test_scripted_sessions import OPTIONS, Session, project, session, with_faults, with_gates

__all__ = ["project", "session"]

# the ratio swings between 0.5 and 2: nobody can tell on which side of 1 it lies
NOISY = "PAIR.seconds = lambda prompt, arm, n: 0.2 if arm == 'plain' else (0.1, 0.4)[n % 2]"
MARKED = """
import pytest

@pytest.mark.spec_speedup(min=1.0)
def test_fast(): pass
"""


@pytest.fixture
def noisy(project: pytest.Pytester) -> pytest.Pytester:
    """A project with a speedup gate that stays undecided, and a passing parity gate."""
    with_faults(project, NOISY)
    with_gates(project, "parity: {}", "speedup: {min: 1.0}")
    return project


def by_item(report: dict[str, Any]) -> dict[str, str]:
    """item -> status."""
    return {v["item"]: v["status"] for v in report["verdicts"]}


def rounds_of(report: dict[str, Any], arm: str = "k=3") -> list[list[int]]:
    """The numbers of the rounds of an arm, a list a prompt."""
    return [[t["round"] for t in case["arms"][arm]["trials"]] for case in report["cases"]]


def junit_cases(path: Any) -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """(name, properties, outcome tags) of each case of a JUnit file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        found = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        yield case.get("name", ""), found, [e.tag for e in case if e.tag != "properties"]


# -- the policy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["option", "ini"])
@pytest.mark.parametrize(("policy", "code"), [("fail", 1), ("warn", 0), ("pass", 0), (None, 0)])
def test_policies(
    noisy: pytest.Pytester, session: Session, policy: str | None, code: int, place: str
) -> None:
    """Whatever it is, an undecided gate is shown as such, of a file and of a marker."""
    noisy.makepyfile(test_own=MARKED)
    options = []
    if policy and place == "option":
        options.append(f"--spec-on-inconclusive={policy}")
    elif policy:
        (noisy.path / "pytest.ini").write_text(f"[pytest]\nspecgate_on_inconclusive = {policy}\n")
    elif place == "ini":
        pytest.skip("no policy stands nowhere")
    result, report = session("-v", "--junitxml=out.xml", *options, "gates.yaml", "test_own.py")
    assert result.ret == code
    assert report["status"] == "inconclusive"
    assert by_item(report)["gates.yaml::speedup"] == "inconclusive"
    assert by_item(report)["test_own.py::test_fast"] == "inconclusive"
    counts = result.parseoutcomes()
    assert counts == {"passed": 2, ("failed" if code else "inconclusive"): 2}
    word = "FAILED" if code else "INCONCLUSIVE"
    result.stdout.fnmatch_lines([f"gates.yaml::speedup {word}*", f"test_own.py::test_fast {word}*"])
    explained = [line for line in result.outlines if "is undecided: " in line]
    assert bool(explained) == (policy != "pass")
    found = {name: (props, tags) for name, props, tags in junit_cases(noisy.path / "out.xml")}
    for name in ("speedup", "test_fast"):
        props, tags = found[name]
        assert props["specgate_status"] == "inconclusive"
        assert tags == ["failure" if code else "skipped"]
    rows = [line for line in result.outlines if line.startswith("speedup ")]
    assert not any("passed" in row for row in rows)
    if code:
        assert result.stdout.str().count("--spec-on-inconclusive=fail") >= 2


@pytest.mark.parametrize("value", ["", "Fail"])
def test_a_wrong_policy(noisy: pytest.Pytester, value: str) -> None:
    """Exit 4, before anything is generated."""
    options = ("--spec-target=t", "--spec-draft=d", "--spec-engine=fake")
    result = noisy.runpytest(*options, f"--spec-on-inconclusive={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    assert "--spec-on-inconclusive: " in text
    assert "fail, warn, pass" in text
    (noisy.path / "pytest.ini").write_text("[pytest]\nspecgate_on_inconclusive = never\n")
    result = noisy.runpytest(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "pytest.ini: specgate_on_inconclusive: " in result.stderr.str()


@pytest.mark.parametrize("policy", ["fail", "warn", "pass"])
def test_no_evidence_is_failed_whatever_the_policy(
    project: pytest.Pytester, session: Session, policy: str
) -> None:
    """Nothing drafted; and nothing that both paths agree on."""
    with_gates(project, "speedup: {}", "acceptance: {}")
    with_faults(project, "PAIR.ignores_draft = True")
    result, report = session(f"--spec-on-inconclusive={policy}")
    assert result.ret == 1
    assert {v["status"] for v in report["verdicts"]} == {"failed"}
    with_faults(
        project,
        "WRONG = Script(wrong={'k=3': (100, 101, 9, 9, 9, 9, 9, 9)})",
        "PAIR.scripts = {'say a': WRONG, 'say b': WRONG}",
    )
    result, report = session(f"--spec-on-inconclusive={policy}")
    assert result.ret == 1
    assert {v["status"] for v in report["verdicts"]} == {"failed"}


@pytest.mark.parametrize("strict", [True, False])
def test_an_undecided_test_that_is_expected_to_fail(
    noisy: pytest.Pytester, session: Session, strict: bool
) -> None:
    """Its own word, and no fault of ours in the report."""
    noisy.makepyfile(
        test_own=f"""
        import pytest

        @pytest.mark.xfail(strict={strict})
        @pytest.mark.spec_speedup(min=1.0)
        def test_fast(): pass
        """
    )
    result, report = session("--spec-on-inconclusive=fail", "test_own.py")
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert report["status"] == "inconclusive"
    assert "passed" not in result.parseoutcomes()


# -- the sample goes on ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["warn", "fail", "pass"])
def test_the_sample_of_an_undecided_session_goes_on(
    noisy: pytest.Pytester, session: Session, policy: str
) -> None:
    """``--lf`` selects the undecided item; its trials count, and its rounds are numbered on."""
    noisy.makepyfile(test_own=MARKED)
    option = f"--spec-on-inconclusive={policy}"
    paths = ("gates.yaml", "test_own.py")
    _, report = session(option, "--spec-rounds=5:6", *paths)
    assert rounds_of(report) == [[*range(1, 7)]] * 2
    for most in (12, 18):
        result, report = session("--lf", option, "--spec-rounds=5:6", *paths)
        assert set(by_item(report)) == {"gates.yaml::speedup", "test_own.py::test_fast"}
        assert rounds_of(report) == rounds_of(report, "plain") == [[*range(1, most + 1)]] * 2
        assert report["trials"] == {"run": 24, "at_most": 24}
        (verdict,) = (v for v in report["verdicts"] if v["item"] == "gates.yaml::speedup")
        assert verdict["samples"] == 2 * most
        words = f"goes on with {most - 6} rounds of an earlier, undecided session"
        assert words in verdict["details"]
        word = "failed" if policy == "fail" else "inconclusive"
        assert result.parseoutcomes() == {"deselected": 2, word: 2}


QUIET = "PAIR.seconds = lambda prompt, arm, n: 0.2 if arm == 'plain' else 0.1"
OUTPUT = "PAIR.scripts = {'say a': Script(tokens=tuple(range(7, 40)))}"


@pytest.mark.parametrize("other", ["output", "option", "prompt"])
def test_another_measurement_begins_afresh(
    noisy: pytest.Pytester, session: Session, other: str
) -> None:
    """The unit tests have every option; here it is read from a file, and generated."""
    with_gates(noisy, "speedup: {min: 1.0}")
    session("--spec-rounds=6")
    with_faults(noisy, NOISY, *([OUTPUT] if other == "output" else []))
    if other == "option":
        path = noisy.path / "gates.yaml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("max_tokens: 8}", "max_tokens: 8, seed: 7}"))
    if other == "prompt":
        more = '{"id": "c", "prompt": "say c"}\n'
        (noisy.path / "prompts.jsonl").write_text('{"id": "a", "prompt": "say a"}\n' + more)
    _, report = session("--spec-rounds=6")
    assert rounds_of(report) == [[*range(1, 7)]] * 2
    assert "goes on" not in json.dumps(report["verdicts"])


def test_fewer_prompts_go_on(noisy: pytest.Pytester, session: Session) -> None:
    """All that is to be timed is known."""
    with_gates(noisy, "speedup: {min: 1.0}")
    session("--spec-rounds=6")
    (noisy.path / "prompts.jsonl").write_text('{"id": "b", "prompt": "say b"}\n')
    _, report = session("--spec-rounds=6")
    assert rounds_of(report) == [[*range(1, 13)]]


def test_a_further_arm_begins_afresh(noisy: pytest.Pytester, session: Session) -> None:
    """Another k, or the plain path twice: rounds without that arm would not count for it."""
    with_gates(noisy, "speedup: {min: 1.0}")
    for option in ("--spec-num-draft-tokens=3,5", "--spec-noise"):
        session("--cache-clear", "--spec-rounds=6")
        _, report = session("--spec-rounds=6", option)
        assert rounds_of(report) == [[*range(1, 7)]] * 2


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_a_decided_verdict_ends_the_sample(
    noisy: pytest.Pytester, session: Session, outcome: str
) -> None:
    """The session after it begins afresh."""
    with_gates(noisy, "speedup: {min: 1.0}")
    session("--spec-rounds=6")
    folder = noisy.path / ".pytest_cache" / "d" / "specgate-samples"
    assert len([*folder.iterdir()]) == 1
    pace = 0.01 if outcome == "passed" else 4.0
    with_faults(noisy, QUIET.replace("0.1", str(pace)))
    _, report = session("--spec-rounds=5:60")
    assert report["status"] == outcome
    assert rounds_of(report)[0][0] == 1
    assert len(rounds_of(report)[0]) > 6
    assert [*folder.iterdir()] == []
    _, report = session("--spec-rounds=5")
    assert rounds_of(report) == [[1, 2, 3, 4, 5]] * 2


def test_parity_alone_leaves_the_sample(noisy: pytest.Pytester, session: Session) -> None:
    """Nothing timed was judged."""
    session("--spec-rounds=6")
    session("-k", "parity")
    _, report = session("--spec-rounds=6")
    assert rounds_of(report) == [[*range(1, 13)]] * 2


def test_an_interrupt_leaves_the_sample(noisy: pytest.Pytester, session: Session) -> None:
    """What was undecided before it can go on after it."""
    session("--spec-rounds=6")
    with_faults(noisy, NOISY, "PAIR.raises = {('say a', 'k=3', 2): KeyboardInterrupt()}")
    result = noisy.runpytest_subprocess(*OPTIONS, "--spec-rounds=6")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    with_faults(noisy, NOISY)
    _, report = session("--spec-rounds=6")
    assert rounds_of(report) == [[*range(1, 13)]] * 2


@pytest.mark.parametrize("text", ["{", "null"])
def test_a_sample_file_that_is_none(noisy: pytest.Pytester, session: Session, text: str) -> None:
    """The measurement begins afresh, and writes its own."""
    with_gates(noisy, "speedup: {min: 1.0}")
    session("--spec-rounds=6")
    (path,) = (noisy.path / ".pytest_cache" / "d" / "specgate-samples").iterdir()
    path.write_text(text)
    result, report = session("--spec-rounds=6")
    assert result.ret == 0
    assert rounds_of(report) == [[*range(1, 7)]] * 2
    assert json.loads(path.read_text())["schema"] == "specgate-sample/1"


def test_without_a_cache(noisy: pytest.Pytester, session: Session) -> None:
    """``-p no:cacheprovider``, a cache that cannot be written, and one that was cleared."""
    with_gates(noisy, "speedup: {min: 1.0}")
    for _ in range(2):
        result, report = session("-p", "no:cacheprovider", "--spec-rounds=6")
        assert result.ret == 0
        assert rounds_of(report) == [[*range(1, 7)]] * 2
    assert not (noisy.path / ".pytest_cache").exists()
    (noisy.path / "in-the-way").write_text("a file")
    result, report = session("-o", "cache_dir=in-the-way", "--spec-rounds=6")
    assert "INTERNALERROR" not in result.stdout.str()
    assert report["status"] == "inconclusive"
    session("--spec-rounds=6")
    _, report = session("--cache-clear", "--spec-rounds=6")
    assert rounds_of(report) == [[*range(1, 7)]] * 2


def test_collecting_makes_no_folder(noisy: pytest.Pytester) -> None:
    """Nor does it load anything."""
    noisy.runpytest("--spec-target=t", "--spec-draft=d", "--spec-engine=fake", "--collect-only")
    assert not (noisy.path / ".pytest_cache" / "d").exists()
