"""What is undecided: the policies, the sample that goes on, reruns, the budget, the noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.fakes import FakePair

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


# -- run again in the same session -----------------------------------------------------------------


def test_a_rerun_of_an_undecided_gate_goes_on(noisy: pytest.Pytester, session: Session) -> None:
    """The most rounds once more, on top; one verdict, and each property once."""
    result, report = session("--reruns=2", "--spec-on-inconclusive=fail", "--spec-rounds=5:6")
    assert result.parseoutcomes() == {"passed": 2, "failed": 1, "rerun": 2}
    assert rounds_of(report) == [[*range(1, 19)]] * 2
    assert sorted(by_item(report)) == [
        "gates.yaml::parity[a]",
        "gates.yaml::parity[b]",
        "gates.yaml::speedup",
    ]
    assert len(report["verdicts"]) == 3
    assert report["trials"] == {"run": 2 * 2 * 18, "at_most": 2 * 2 * 18}


def test_a_rerun_of_an_undecided_marker_goes_on(noisy: pytest.Pytester, session: Session) -> None:
    """As a gate of the file does; JUnit has each property once."""
    noisy.makepyfile(test_own=MARKED)
    options = ("--reruns=1", "--spec-on-inconclusive=fail", "--spec-rounds=5:6", "--junitxml=o.xml")
    result, report = session(*options, "test_own.py")
    assert result.parseoutcomes() == {"failed": 1, "rerun": 1}
    assert rounds_of(report) == [[*range(1, 13)]] * 2
    assert [v["samples"] for v in report["verdicts"]] == [24]
    cases = ElementTree.parse(noisy.path / "o.xml").getroot().iter("testcase")
    *_, last = [[p.get("name") for p in case.iter("property")] for case in cases]
    assert len(last) == len(set(last)) > 5


@pytest.mark.parametrize("where", ["gates.yaml", "test_own.py"])
def test_a_rerun_of_a_failed_gate_begins_afresh(
    project: pytest.Pytester, session: Session, where: str
) -> None:
    """The first parity pass and its rounds are slow, and only the rerun counts."""
    with_faults(
        project,
        "PAIR.seconds = lambda prompt, arm, n: 0.2 if arm == 'plain' else 0.3 if n < 8 else 0.1",
    )
    with_gates(project, "speedup: {min: 1.0}")
    project.makepyfile(test_own=MARKED)
    result, report = session("--reruns=1", "--spec-rounds=7:7", where)
    assert result.parseoutcomes() == {"passed": 1, "rerun": 1}
    assert [v["status"] for v in report["verdicts"]] == ["passed"]
    assert rounds_of(report) == [[*range(1, 8)]] * 2
    assert report["status"] == "passed"
    folder = project.path / ".pytest_cache" / "d" / "specgate-samples"
    assert [*folder.iterdir()] == []


def test_a_rerun_of_a_failed_parity_generates_again(
    project: pytest.Pytester, session: Session
) -> None:
    """A difference that does not come again is not kept."""
    with_faults(project, "PAIR.unstable = {('say a', 'k=3', 0): (1, 2, 3)}")
    with_gates(project, "parity: {}")
    result, report = session("--reruns=1")
    assert result.parseoutcomes() == {"passed": 2, "rerun": 1}
    assert {v["status"] for v in report["verdicts"]} == {"passed"}


def test_a_rerun_after_a_sample(noisy: pytest.Pytester, session: Session) -> None:
    """An earlier session's rounds, this one's, and those that were granted."""
    with_gates(noisy, "speedup: {min: 1.0}")
    session("--spec-rounds=5:6")
    options = ("--reruns=1", "--spec-on-inconclusive=fail", "--spec-rounds=5:6")
    _, report = session("--lf", *options)
    assert rounds_of(report) == [[*range(1, 19)]] * 2
    assert report["trials"] == {"run": 48, "at_most": 48}


# -- the time budget -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0m",
        "-1",
        "1.5m",
        "10 m",
        "m",
        "10M",
        "1h30",
        "30s1m",
        "1d",
        "1e3",
        "inf",
        "9" * 30,
    ],
)
def test_a_wrong_budget(project: pytest.Pytester, text: str) -> None:
    """Exit 4 with the accepted form, from either place."""
    with_gates(project, "parity: {}")
    result = project.runpytest(*OPTIONS, f"--spec-budget={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--spec-budget: must be a duration such as 10m, 90s or 1h30m" in result.stderr.str()


def test_a_wrong_budget_of_the_ini_file(project: pytest.Pytester) -> None:
    """It is named."""
    (project.path / "pytest.ini").write_text("[pytest]\nspecgate_budget = soon\n")
    result = project.runpytest(*OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "pytest.ini: specgate_budget: must be a duration" in result.stderr.str()


@pytest.fixture
def slow(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Each generation takes a minute of the budget's clock, which stands still otherwise."""
    from pytest_specgate.measure import budget, runner

    now = [0.0]
    monkeypatch.setattr(budget.Budget.__init__, "__defaults__", (None, lambda: now[0]))
    monkeypatch.setattr(runner, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    generate = FakePair.generate

    def taking_a_minute(self: FakePair, *args: Any, **options: Any) -> Any:
        now[0] += 60
        return generate(self, *args, **options)

    monkeypatch.setattr(FakePair, "generate", taking_a_minute)
    return project


USED_UP = "the time budget of {} s (--spec-budget) is used up"


@pytest.mark.parametrize("policy", ["warn", "fail"])
def test_a_prompt_that_there_was_no_time_for(
    slow: pytest.Pytester, session: Session, policy: str
) -> None:
    """It is undecided with the reason, as are the times; what was generated is judged."""
    with_gates(slow, "parity: {}", "speedup: {}", "latency: {}", "memory: {}", "acceptance: {}")
    options = ("--spec-budget=3m", f"--spec-on-inconclusive={policy}")
    result, report = session(*options)
    assert result.ret == (1 if policy == "fail" else 0)
    assert by_item(report) == {
        "gates.yaml::parity[a]": "passed",
        "gates.yaml::parity[b]": "inconclusive",
        "gates.yaml::speedup": "inconclusive",
        "gates.yaml::latency_p95": "inconclusive",
        "gates.yaml::memory": "inconclusive",
        "gates.yaml::acceptance": "passed",
    }
    verdicts = {v["item"].partition("::")[2]: v for v in report["verdicts"]}
    for name in ("parity[b]", "speedup", "latency_p95", "memory"):
        assert verdicts[name]["reason"] == USED_UP.format(180)
    assert f"not all was measured: {USED_UP.format(180)}" in verdicts["acceptance"]["details"]
    assert report["status"] == "inconclusive"
    assert [case["id"] for case in report["cases"]] == ["a"]
    assert report["false_alarm_at_most"] == 0


def test_no_time_for_anything(slow: pytest.Pytester, session: Session) -> None:
    """Nothing was drafted, but nobody is to blame: undecided, not failed; a call fails."""
    with_gates(slow, "parity: {}", "speedup: {}", "latency: {}", "memory: {}", "acceptance: {}")
    slow.makepyfile(
        test_own="""
        import pytest

        def test_first(spec_compare):
            spec_compare("say z", max_tokens=4)

        @pytest.mark.spec_parity
        @pytest.mark.spec_acceptance
        def test_marked(): pass

        def test_compare(spec_compare):
            spec_compare("say c", max_tokens=4)

        def test_timed(spec_compare):
            spec_compare("say d", max_tokens=4, rounds=3)
        """
    )
    result, report = session("--spec-budget=90", "test_own.py", "gates.yaml")
    assert result.parseoutcomes() == {"passed": 1, "inconclusive": 7, "failed": 2}
    assert {v["status"] for v in report["verdicts"]} == {"inconclusive"}
    assert {v["reason"] for v in report["verdicts"]} == {USED_UP.format(90)}
    assert "Traceback" not in result.stdout.str()
    assert "ValueError" not in result.stdout.str()


@pytest.mark.parametrize(
    ("budget", "rounds"), [("4m", [0, 0]), ("7m", [0, 1]), ("8m", [1, 1]), ("14m59s", [2, 3])]
)
def test_rounds_that_there_was_no_time_for(
    slow: pytest.Pytester, session: Session, budget: str, rounds: list[int]
) -> None:
    """A round of a prompt is whole, or is not begun; what is undecided says why."""
    with_gates(slow, "speedup: {}", "memory: {}")
    result, report = session(f"--spec-budget={budget}")
    assert "rounds end once decided" not in result.stdout.str()
    assert sorted(map(len, rounds_of(report))) == rounds
    assert rounds_of(report) == rounds_of(report, "plain")
    verdicts = {v["gate"]: v for v in report["verdicts"]}
    assert verdicts["speedup"]["status"] == "inconclusive"
    assert "(--spec-budget) is used up" in verdicts["speedup"]["reason"]
    assert verdicts["memory"]["status"] == ("passed" if rounds[1] else "inconclusive")
    if rounds[1]:
        assert any(d.startswith("not all was measured") for d in verdicts["memory"]["details"])


def test_a_budget_that_is_enough(slow: pytest.Pytester, session: Session) -> None:
    """Nothing is said of it."""
    with_gates(slow, "parity: {}", "speedup: {}")
    result, report = session("--spec-budget=1h30m")
    assert report["status"] == "passed"
    assert "used up" not in result.stdout.str() + json.dumps(report)


# -- the noise of the machine ----------------------------------------------------------------------


def test_plain_against_plain(project: pytest.Pytester, session: Session) -> None:
    """A further arm in every round; no gate, no table and no count takes it for the draft."""
    # the plain path: parity pass, then two runs a round; every other run is 10 % slower
    with_faults(
        project,
        "PAIR.seconds = lambda prompt, arm, n: (2, 2.2)[n % 3 % 2] / (1 if arm == 'plain' else 2)",
    )
    with_gates(project, "parity: {}", "speedup: {min: 1.0, margin: 0.001}", "latency: {}")
    result, report = session("--spec-noise", "--spec-rounds=6")
    assert result.ret == 0
    words = next(line for line in result.outlines if "generations planned" in line)
    assert words.startswith(f"specgate: {2 * 2 + 2 * 3 * 6} generations planned")
    for case in report["cases"]:
        assert {name: len(arm["trials"]) for name, arm in case["arms"].items()} == {
            "plain": 6,
            "plain again": 6,
            "k=3": 6,
        }
        assert case["first_difference"] == {"k=3": None}
    assert report["trials"] == {"run": 36, "at_most": 36}
    noise = report["noise"]
    assert noise["variation"] > 0.01
    assert noise["ratio_interval"][0] < noise["ratio"] < noise["ratio_interval"][1]
    assert noise["smallest_effect"] > 0.001
    result.stdout.fnmatch_lines(["noise: plain against plain *x [[]*, *], CV *% a trial, drift *"])
    speedup = next(v for v in report["verdicts"] if v["gate"] == "speedup")
    assert speedup["status"] == "passed"
    assert any(d.startswith("finer than the noise: margin is 0.1%") for d in speedup["details"])
    rows = [line for line in result.outlines if line.startswith("other ")]
    assert len(rows) == 1
    assert [v["subject"] for v in report["verdicts"]] == ["a", "b", "k=3", "k=3"]


def test_without_it_no_noise_is_told(project: pytest.Pytester, session: Session) -> None:
    """Neither in words nor in JSON."""
    with_gates(project, "speedup: {min: 1.0}")
    result, report = session("--spec-rounds=5")
    assert report["noise"] is None
    assert "noise:" not in result.stdout.str()
    (project.path / "pytest.ini").write_text("[pytest]\nspecgate_noise = true\n")
    _, report = session("--spec-rounds=5")
    assert report["noise"] is not None


# -- what is said at the end -----------------------------------------------------------------------


def test_trials_that_were_spared(project: pytest.Pytester, session: Session) -> None:
    """Decided at round 5 of 12."""
    with_gates(project, "speedup: {min: 1.0}")
    result, report = session()
    assert report["trials"] == {"run": 20, "at_most": 48}
    line = "20 of at most 48 timed trials were run: rounds end once decided."
    assert result.outlines.count(line) == 1
    result, report = session("--spec-rounds=5")
    assert report["trials"] == {"run": 20, "at_most": 20}
    assert "timed trials were run" not in result.stdout.str()


def test_the_chance_of_a_false_alarm(project: pytest.Pytester, session: Session) -> None:
    """The sum over what could have failed; nothing where facts alone were judged."""
    with_gates(project, "parity: {}", "memory: {}", "speedup: {min: 1.0}")
    result, report = session()
    assert report["false_alarm_at_most"] == 0.01
    result.stdout.fnmatch_lines(["Chance of a false alarm in this session: at most 1.0%."])
    for options in (("--spec-rounds=2",), ("-k", "parity or memory")):
        result, report = session(*options)
        assert report["false_alarm_at_most"] == 0
        assert "false alarm" not in result.stdout.str()


@pytest.mark.parametrize("gate", ["ttft", "tpot"])
def test_a_gate_by_its_marker_and_in_the_file(
    project: pytest.Pytester, session: Session, gate: str
) -> None:
    """p95 of the time to the first token, and of the time per output token."""
    with_gates(project, f"{gate}: {{p95_max_ratio: 1.0}}")
    project.makepyfile(
        test_own=f"""
        import pytest

        @pytest.mark.spec_{gate}(p95_max_ratio=1.0, p95_max_seconds=9)
        def test_it(): pass
        """
    )
    result, report = session("--spec-rounds=30", "gates.yaml", "test_own.py")
    assert result.ret == 0
    assert by_item(report) == {
        f"gates.yaml::{gate}_p95": "passed",
        "test_own.py::test_it": "passed",
    }
    assert [v["observed"] for v in report["verdicts"]] == pytest.approx([0.5, 0.5])


def test_ttft_needs_a_limit(project: pytest.Pytester) -> None:
    """With a draft the first token is later by nature: say what it may cost."""
    with_gates(project, "ttft: {}")
    result = project.runpytest(*OPTIONS, "gates.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "give p95_max_ratio or p95_max_seconds" in result.stderr.str()
