"""What the user typed is wrong: exit 4 and one clear message before any model; nothing is left."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from pytest_specgate.config.plan import ModelRef
from pytest_specgate.config.spec import Invalid

import_module("pytest_specgate.session")  # pytester would import it anew in each test

PAIR = ("--spec-target=t", "--spec-draft=d")
# what pytest, pytest-benchmark and pytester leave
OTHERS = {".pytest_cache", "__pycache__", ".benchmarks", "stdout", "stderr"}
OTHERS |= {"runpytest-0", "runpytest-current"}
TRACES = ("Traceback", "INTERNALERROR")
HEAVY = ("mlx", "mlx_lm", "yaml", "numpy", "transformers", "tabulate", "psutil")

Run = Callable[..., pytest.RunResult]


def files(folder: Path) -> set[str]:
    """All that lies in a folder, but for what others leave there."""
    paths = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in paths if not OTHERS.intersection(path.parts)}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A test that passes, and two empty folders: a pair that could never be loaded."""
    pytester.mkdir("t")
    pytester.mkdir("d")
    pytester.makepyfile(test_plain="def test_plain(): pass\n")
    return pytester


@pytest.fixture
def run(project: pytest.Pytester) -> Run:
    """Run pytest in process; no traceback may be shown, and no file left behind."""

    def check(*args: str) -> pytest.RunResult:
        before = files(project.path)
        result = project.runpytest(*args)
        shown = result.stdout.str() + result.stderr.str()
        for word in TRACES:
            assert word not in shown
        assert files(project.path) == before
        return result

    return check


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """(args, words): exit 4; gives the one message."""

    def check(args: tuple[str, ...], *words: str) -> str:
        result = run(*args)
        message = result.stderr.str()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert message.count("ERROR: ") == 1
        assert all(line.isprintable() for line in message.split("\n"))
        for word in words:
            assert word in message
        assert " passed" not in result.stdout.str()
        return message

    return check


Refused = Callable[..., str]


# -- the command line ------------------------------------------------------------------------------

K = "--spec-num-draft-tokens"
WRONG: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    # half a pair, and models that are not there
    (("--spec-target=t",), ("--spec-target: a target without a draft", "--spec-draft")),
    (("--spec-draft=d",), ("--spec-draft: a draft without a target", "--spec-target")),
    (("--spec-target=owner/name",), ("--spec-target: a target without a draft",)),
    (
        ("--spec-target=nowhere", "--spec-draft=d"),
        ("--spec-target: ", "no such directory", "owner/name"),
    ),
    (("--spec-target=t", "--spec-draft=no/such/folder"), ("--spec-draft: ", "no such directory")),
    (("--spec-target=t", "--spec-draft=a/b@"), ("--spec-draft: ", "'a/b@'", "revision")),
    (("--spec-target=", "--spec-draft=d"), ("--spec-target: must not be empty",)),
    (("--spec-target=t", "--spec-draft= "), ("--spec-draft: must not be empty",)),
    (("--spec-target=test_plain.py", "--spec-draft=d"), ("--spec-target: ", "no such directory")),
    # num_draft_tokens
    (("--spec-sweep=0",), ("--spec-sweep: sweep.num_draft_tokens must be at least 1",)),
    (("--spec-sweep=1,x",), ("--spec-sweep: must be a whole number", "'x'")),
    ((f"{K}=0",), (f"{K}: ", "num_draft_tokens must be at least 1", "found 0", "1 to 16")),
    ((f"{K}=-1",), (f"{K}: ", "must be at least 1", "found -1")),
    ((f"{K}=17",), (f"{K}: ", "must be at most 16", "found 17")),
    ((f"{K}=3,17",), (f"{K}: ", "must be at most 16", "found 17")),
    ((f"{K}=3,3",), (f"{K}: ", "must not repeat a number", "[3, 3]")),
    ((f"{K}=1.5",), (f"{K}: must be a whole number", "'1.5'")),
    ((f"{K}=a",), (f"{K}: must be a whole number", "'a'")),
    ((f"{K}=",), (f"{K}: must not be empty",)),
    ((f"{K}=3,",), (f"{K}: must be a whole number",)),
    ((f"{K}=1 3",), (f"{K}: must be a whole number", "'1 3'")),
    ((f"{K}={'9' * 5000}",), (f"{K}: must be a whole number", "'999")),
    # max_tokens
    (("--spec-max-tokens=-1",), ("--spec-max-tokens: ", "must be at least 1", "found -1")),
    (("--spec-max-tokens=0",), ("--spec-max-tokens: ", "must be at least 1", "found 0", "limit")),
    (("--spec-max-tokens=x",), ("--spec-max-tokens: ", "must be a whole number", "'x'")),
    (("--spec-max-tokens=1.0",), ("--spec-max-tokens: ", "must be a whole number", "'1.0'")),
    (("--spec-max-tokens=",), ("--spec-max-tokens: must not be empty",)),
    (("--spec-max-tokens=1_000",), ("--spec-max-tokens: ", "must be a whole number", "'1_000'")),
    # rounds
    (("--spec-rounds=0",), ("--spec-rounds: ", "must be at least 1", "found 0")),
    (("--spec-rounds=-2",), ("--spec-rounds: ", "must be at least 1", "found -2")),
    (("--spec-rounds=1001",), ("--spec-rounds: ", "must be at most 1000", "found 1001")),
    (("--spec-rounds=2:1001",), ("--spec-rounds: ", "must be at most 1000", "found 1001")),
    (("--spec-rounds=a",), ("--spec-rounds: must be MIN or MIN:MAX", "'a'")),
    (("--spec-rounds=",), ("--spec-rounds: must not be empty",)),
    (("--spec-rounds=5:",), ("--spec-rounds: must be MIN or MIN:MAX", "'5:'")),
    (("--spec-rounds=:5",), ("--spec-rounds: must be MIN or MIN:MAX", "':5'")),
    (("--spec-rounds=1:2:3",), ("--spec-rounds: must be MIN or MIN:MAX", "'1:2:3'")),
    (("--spec-rounds=1.5",), ("--spec-rounds: must be MIN or MIN:MAX", "'1.5'")),
    (("--spec-rounds=5:3", *PAIR), ("max_rounds (3) is below min_rounds (5)",)),
    # prompts
    (("--spec-prompts=",), ("--spec-prompts: must not be empty",)),
    (("--spec-prompts=cor", *PAIR), ("--spec-prompts: ", "'cor'", "core", "smoke")),
    (("--spec-prompts=none.jsonl", *PAIR), ("--spec-prompts: ", "none.jsonl", "core", "smoke")),
    (("--spec-prompts=t", *PAIR), ("--spec-prompts: ", "'t'", "no file")),
    # gates
    (("--spec-gates=none.yaml",), ("--spec-gates: no such file: ", "none.yaml")),
    (("--spec-gates=t",), ("--spec-gates: no such file: ",)),
    (("--spec-gates=",), ("--spec-gates: ",)),
    # report
    (("--spec-report=gate.json",), ("--spec-report", "must be KIND:PATH", "'gate.json'")),
    (("--spec-report=json:",), ("--spec-report", "must be KIND:PATH", "'json:'")),
    (("--spec-report=jsn:x",), ("--spec-report", "kind 'jsn'", "did you mean 'json'?", "allowed:")),
    (("--spec-report=:x",), ("--spec-report", "kind ''", "allowed: ")),
    (("--spec-report=json:t",), ("--spec-report", "is a directory")),
    (("--spec-report=",), ("--spec-report", "must be KIND:PATH")),
    (("--spec-report=json:a", "--spec-report=b"), ("--spec-report b", "must be KIND:PATH")),
    # engine
    (("--spec-engine=mlx",), ("--spec-engine: no engine 'mlx'", "did you mean 'mlx-lm'?")),
    (("--spec-engine=vllm", *PAIR), ("--spec-engine: no engine 'vllm'", "allowed: mlx-lm")),
    # chat template
    (("--spec-chat-template-args={",), ("--spec-chat-template-args: must be a JSON object",)),
    (("--spec-chat-template-args=[1]",), ("--spec-chat-template-args: ", "found a list")),
    (("--spec-chat-template-args=3",), ("--spec-chat-template-args: ", "found 3")),
    (("--spec-chat-template-args=null",), ("--spec-chat-template-args: ", "nothing (null)")),
    (("--spec-chat-template-args=",), ("--spec-chat-template-args: must not be empty",)),
    (("--spec-chat-template-args={a: 1}",), ("--spec-chat-template-args: must be a JSON object",)),
    (("--spec-chat-template-args=" + "[" * 99_999,), ("--spec-chat-template-args: ",)),
    # a process of its own
    (("--spec-isolate=tests",), ("--spec-isolate: must be an execnet spec", "'tests'", "popen")),
    (("--spec-isolate=",), ("--spec-isolate: must be an execnet spec",)),
    (("--spec-isolate=popen//popen",), ("--spec-isolate: not an execnet spec", "duplicate")),
    (("--spec-isolate=popen//via=a",), ("--spec-isolate: not an execnet spec", "via")),
    (("--spec-isolate=popen//_x=1",), ("--spec-isolate: not an execnet spec",)),
    (("--spec-isolate=popen//",), ("--spec-isolate: not an execnet spec",)),
    (("--spec-timeout=5",), ("--spec-timeout: needs --spec-isolate",)),
    (("--spec-isolate", "--spec-timeout=0"), ("--spec-timeout: ", "must be > 0", "found 0")),
    (("--spec-isolate", "--spec-timeout=-1"), ("--spec-timeout: ", "must be > 0", "found -1")),
    (("--spec-isolate", "--spec-timeout=x"), ("--spec-timeout: must be a number of sec", "'x'")),
    (("--spec-isolate", "--spec-timeout=nan"), ("--spec-timeout: must be a number of seconds",)),
    (("--spec-isolate", "--spec-timeout="), ("--spec-timeout: must be a number of seconds",)),
    (("--spec-isolate", "--spec-timeout=1" + "0" * 400), ("--spec-timeout: must be",)),
    # what does not go together
    (("--spec-demo", "--spec-target=t"), ("--spec-demo", "its own pair", "--spec-target")),
    (("--spec-demo", "--spec-draft=d"), ("--spec-demo", "its own pair", "--spec-draft")),
    (("--spec-demo", "--spec-replay=test_plain.py"), ("--spec-replay", "--spec-demo")),
    (("--spec-target=t", "--spec-draft=d", "--spec-draft=t"), ("--spec-draft: 2 drafts",)),
    (("--spec-target=t", "--spec-draft=d", "--spec-draft=t"), ("--spec-scan", "--spec-sweep")),
    (
        ("--spec-scan", "--spec-target=t", "--spec-draft=d", "--spec-draft=d"),
        ("--spec-draft: ", "must not repeat a model"),
    ),
    (
        ("--spec-scan", "--spec-target=t", "--spec-draft=d", "--spec-draft=./d"),
        ("--spec-draft: ", "must not repeat a model"),
    ),
    (
        ("--spec-scan", "--spec-target=t", "--spec-draft=d", "--spec-draft="),
        ("--spec-draft: ", "must not be empty"),
    ),
    (
        ("--spec-scan", "--spec-target=t", "--spec-draft=d", "--spec-draft=none"),
        ("--spec-draft: ", "no such directory", "none"),
    ),
    (("--spec-scan",), ("--spec-scan: no pair was given", "--spec-draft")),
    (("--spec-scan=yes",), ("--spec-scan",)),
    (("--spec-scan", "--spec-rounds=5", *PAIR), ("--spec-scan times nothing", "--spec-rounds")),
    (("--spec-scan", "--spec-noise", *PAIR), ("--spec-scan", "leave out --spec-noise")),
    (("--spec-scan", "--spec-save-baseline=x", *PAIR), ("leave out --spec-save-baseline",)),
    (("--spec-scan", "--spec-sweep=1,3", *PAIR), ("leave out --spec-sweep",)),
    # replay
    (("--spec-replay=none.json",), ("--spec-replay: no such file: ", "none.json")),
    (("--spec-replay=t",), ("--spec-replay: no such file: ",)),
    (("--spec-replay=test_plain.py",), ("test_plain.py: not a saved case", "not JSON")),
    # flags
    (("--spec-demo=yes",), ("--spec-demo",)),
    (("--spec-require=yes",), ("--spec-require",)),
    (("--spec-noise=yes",), ("--spec-noise",)),
    (("--spec-checklist=yes",), ("--spec-checklist",)),
    (("--spec-on-inconclusive=maybe",), ("--spec-on-inconclusive: ", "fail, warn, pass")),
    (("--spec-budget=soon",), ("--spec-budget: ", "'soon'", "10m")),
    (("--spec-baseline=no/such.json",), ("--spec-baseline: ", "no such file")),
    (("--spec-baseline-dir=test_plain.py",), ("--spec-baseline-dir: ", "no folder")),
    (("--spec-save-baseline=../x",), ("--spec-save-baseline: ", "'../x'", "plain word")),
    (("--spec-update-baseline",), ("--spec-update-baseline: ", "--spec-save-baseline NAME")),
    (("--spec-keep-failed-baseline",), ("--spec-keep-failed-baseline: ", "needs")),
    (("--spec-against=../x",), ("--spec-against: ", "mlx-lm==0.32.2", "'../x'")),
    (("--spec-no-preflight=yes",), ("--spec-no-preflight",)),
    (("--spec-trust-remote-code=yes",), ("--spec-trust-remote-code",)),
]


@pytest.mark.parametrize(("args", "words"), WRONG, ids=[" ".join(args)[:50] for args, _ in WRONG])
def test_wrong_option(refused: Refused, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    more = () if any("--spec-report" in arg for arg in args) else ("--spec-report=json:out.json",)
    refused((*args, *more), *words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--spec-prompts=cor",), ("--spec-prompts: prompt set 'cor' not found", "smoke")),
        (("--spec-prompts=none.jsonl",), ("--spec-prompts: ", "no file ", "none.jsonl")),
        (("--spec-rounds=5:3",), ("--spec-rounds: max_rounds (3) is below min_rounds (5)",)),
        (("--spec-max-tokens=8", "--spec-prompts=cor"), ("--spec-prompts: ", "'cor'")),
    ],
)
def test_wrong_option_where_nothing_is_gated(
    refused: Refused, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """No pair was given and no test asks: told all the same, before any test is run."""
    refused(args, *words)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompts": "cor"}, ("specgate_prompts: prompt set 'cor' not found",)),
        ({"rounds": "5:3"}, ("specgate_rounds: max_rounds (3) is below min_rounds (5)",)),
    ],
)
def test_wrong_ini_value_where_nothing_is_gated(
    project: pytest.Pytester, refused: Refused, settings: dict[str, str], words: tuple[str, ...]
) -> None:
    write_ini(project.path, "ini", {f"specgate_{name}": value for name, value in settings.items()})
    refused((), f"{project.path / 'pytest.ini'}: ", *words)


@pytest.mark.parametrize("more", [(), PAIR])
def test_html_report_without_its_extra(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Told before anything is loaded, with what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(
        ("--spec-report=html:out.html", *more),
        "--spec-report html:out.html: the html report needs matplotlib: "
        "pip install 'pytest-specgate[report]'",
    )


TEMPLATE_ARGS = "--spec-chat-template-args"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"a": NaN}', "must hold plain JSON values alone: "),
        ('{"a": [1, {"b": -Infinity}]}', "must hold plain JSON values alone: "),
        ('{"a": 1e999}', "must hold plain JSON values alone: "),
        ('{"a": 1, "a": 2}', f"{TEMPLATE_ARGS}: 'a' is given twice"),
        ('{"a": {"b": 1, "b": 1}}', f"{TEMPLATE_ARGS}: 'b' is given twice"),
        ('{"a": 1,}', f"{TEMPLATE_ARGS}: must be a JSON object"),
        ('{"a": ' + "9" * 5000 + "}", f"{TEMPLATE_ARGS}: "),
    ],
    ids=["NaN", "Infinity", "1e999", "twice", "twice inside", "comma", "5000 digits"],
)
def test_chat_template_arguments_that_are_no_plain_json(
    refused: Refused, value: str, words: str
) -> None:
    refused((f"{TEMPLATE_ARGS}={value}",), TEMPLATE_ARGS, words)


ODD_PATHS = {"no such user": "~no_such_user/x", "5000 characters": "x" * 5000}
ODD_PATHS |= {"a folder of 5000 characters": "x" * 5000 + "/y"}


@pytest.mark.parametrize("what", ODD_PATHS)
@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("--spec-target", ("--spec-draft=d",)),
        ("--spec-draft", ("--spec-target=t",)),
        ("--spec-prompts", ()),
        ("--spec-prompts", PAIR),
        ("--spec-gates", ()),
        ("--spec-replay", ()),
        ("--spec-report", ()),
        ("--spec-report", PAIR),
    ],
)
@pytest.mark.parametrize("joined", [True, False])
def test_path_that_cannot_be(
    refused: Refused, option: str, more: tuple[str, ...], what: str, joined: bool
) -> None:
    """As wrong as any other value: one message that names the option."""
    value = f"json:{ODD_PATHS[what]}" if option == "--spec-report" else ODD_PATHS[what]
    message = refused((f"{option}={value}", *more) if joined else (option, value, *more))
    assert message.startswith(f"ERROR: {option}")
    assert f"not a usable path: the text '{ODD_PATHS[what][:80]}'" in message


@pytest.mark.parametrize("what", ODD_PATHS)
@pytest.mark.parametrize("key", ["target", "draft", "prompts", "gates", "report"])
def test_path_that_cannot_be_in_the_ini_file(
    project: pytest.Pytester, refused: Refused, key: str, what: str
) -> None:
    settings = {"target": "t", "draft": "d"}
    settings[key] = f"{'json:' if key == 'report' else ''}{ODD_PATHS[what]}"
    write_ini(project.path, "ini", {f"specgate_{name}": value for name, value in settings.items()})
    place = f"{project.path / 'pytest.ini'}: specgate_{key}: "
    refused((), place, f"not a usable path: the text '{ODD_PATHS[what][:80]}'")


@pytest.mark.parametrize("what", ODD_PATHS)
@pytest.mark.parametrize(
    "setting",
    ["pair: {{target: {}, draft: d}}", "pair: {{target: t, draft: {}}}", "prompts: {{file: {}}}"],
)
def test_path_that_cannot_be_in_a_gates_file(
    project: pytest.Pytester, refused: Refused, setting: str, what: str
) -> None:
    project.makefile(".yaml", gates=f"version: 1\n{setting.format(ODD_PATHS[what])}\n")
    place = f"{project.path / 'gates.yaml'}, line 2: "
    refused(("gates.yaml",), place, f"not a usable path: the text '{ODD_PATHS[what][:80]}'")


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("what", ODD_PATHS)
def test_path_that_cannot_be_in_a_saved_case(
    project: pytest.Pytester, refused: Refused, role: str, what: str
) -> None:
    pair = {"target": "t", "draft": "d", role: ODD_PATHS[what]}
    path = project.path / "case.json"
    path.write_text(json.dumps({**CASE, "pair": pair}), encoding="utf-8")
    refused(("--spec-replay=case.json",), f"{path}: {role}: not a usable path: ")


CONTROL = "\x1b[31m\u2028\u202e\x07"
SHOWN = "\\x1b[31m\\u2028\\u202e\\x07"


@pytest.mark.parametrize(
    "args",
    [
        ("--spec-target={}", "--spec-draft=d"),
        ("--spec-target=t", "--spec-draft={}"),
        ("--spec-target=t", "--spec-draft=a/b{}@main"),
        (f"{K}={{}}",),
        ("--spec-max-tokens={}",),
        ("--spec-rounds={}",),
        ("--spec-prompts={}",),
        ("--spec-gates={}",),
        ("--spec-replay={}",),
        ("--spec-report={}",),
        ("--spec-report={}:x",),
        ("--spec-engine={}",),
        ("--spec-chat-template-args=[{}]",),
        ("-o", "specgate_engine={}"),
        ("-o", "specgate_require={}"),
    ],
    ids=lambda args: " ".join(args),
)
@pytest.mark.parametrize("character", ["", "\0", "\ud800"])
def test_control_characters_of_an_option_are_shown_escaped(
    refused: Refused, args: tuple[str, ...], character: str
) -> None:
    """The message cannot drive the terminal; ``refused`` looks at every line of it."""
    message = refused(tuple(arg.format(f"{CONTROL}{character}x") for arg in args))
    if "template" not in args[0]:
        assert SHOWN in message


def test_control_characters_in_files_are_shown_escaped(
    project: pytest.Pytester, refused: Refused
) -> None:
    """Of names and of contents: a gates file, a prompt file, a saved case, a line break as well."""
    gates = project.path / f"{CONTROL}\ngates.yaml"
    gates.write_text("version: 1\ngate: {}\n", encoding="utf-8")
    refused((f"--spec-gates={gates.name}",), SHOWN, "line 2: unknown key 'gate'")
    gates.write_text('version: 1\n"\\e[31m": {}\n', encoding="utf-8")
    refused((f"--spec-gates={gates.name}",), SHOWN, "unknown key '\\x1b[31m'")
    prompts = project.path / f"{CONTROL}.jsonl"
    prompts.write_text('{"id": "a\\u001b[31m", "prompt": "x"}\n', encoding="utf-8")
    refused((f"--spec-prompts={prompts.name}",), SHOWN, "found 'a\\x1b[31m'")
    case = project.path / f"{CONTROL}.json"
    pair = {"target": "t", "draft": f"no{CONTROL}"}
    case.write_text(json.dumps({**CASE, "pair": pair}), encoding="utf-8")
    refused((f"--spec-replay={case.name}",), f"{SHOWN}.json: draft: no such directory: ")


def test_every_option_has_a_wrong_value_here(pytester: pytest.Pytester) -> None:
    names = {
        "--" + name.replace("_", "-")
        for name in vars(pytester.parseconfig().option)
        if name.startswith("spec_")
    }
    assert names
    assert names == {arg.partition("=")[0] for args, _ in WRONG for arg in args}


# -- gates and prompt files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("gates.yml", PAIR),
        ("gates.yaml", PAIR),
        ("gates.yaml", ("gates.yaml",)),
        ("gates.yml", ("gates.yml::speedup",)),
        ("gates.yaml", ("--spec-gates=gates.yaml",)),
        ("gates.yaml", ("--spec-demo",)),
    ],
)
def test_wrong_gates_file(
    project: pytest.Pytester, refused: Refused, name: str, args: tuple[str, ...]
) -> None:
    """In the rootdir of a session that gates, or named in any way."""
    project.path.joinpath(name).write_text("version: 1\ngate: {}\n", encoding="utf-8")
    refused(args, f"{project.path / name}, line 2: unknown key 'gate'", "did you mean 'gates'?")


def test_wrong_gates_file_of_another_name(project: pytest.Pytester, refused: Refused) -> None:
    path = project.path / "other.txt"
    path.write_text("version: 1\ngates: {speedpu: {}}\n", encoding="utf-8")
    refused(("--spec-gates=other.txt",), f"{path}, line 2: no gate 'speedpu'", "'speedup'?")
    path.write_text("", encoding="utf-8")
    refused(("--spec-gates=other.txt",), f"{path}: the file is empty", "version: 1")


def test_wrong_gates_file_is_not_read_by_a_session_that_gates_nothing(
    project: pytest.Pytester, run: Run
) -> None:
    project.makefile(".yaml", gates="version: 1\ngate: {}\n")
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(("half", "other"), [("target", "draft"), ("draft", "target")])
@pytest.mark.parametrize("args", [("gates.yaml",), ("--spec-gates=gates.yaml",)])
def test_half_a_pair_in_the_gates_file(
    project: pytest.Pytester, refused: Refused, half: str, other: str, args: tuple[str, ...]
) -> None:
    project.makefile(".yaml", gates=f"version: 1\n\npair: {{{half}: {half[0]}}}\n")
    refused(args, f"{project.path / 'gates.yaml'}, line 3: a {half} without a {other}")


@pytest.mark.parametrize(("half", "other"), [("target", "draft"), ("draft", "target")])
def test_halves_of_a_pair_in_two_places_are_a_pair(
    project: pytest.Pytester, run: Run, half: str, other: str
) -> None:
    project.makefile(".yaml", gates=f"version: 1\npair: {{{half}: {half[0]}}}\n")
    result = run("gates.yaml", f"--spec-{other}={other[0]}", "--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines("gates.yaml::speedup")


def test_wrong_prompt_file(project: pytest.Pytester, refused: Refused) -> None:
    path = project.path / "p.jsonl"
    path.write_text('{"id": "a", "prompt": "x"}\n{"id": "a"}\n', encoding="utf-8")
    words = f"{path}, line 2: prompt is missing"
    refused((*PAIR, "--spec-prompts=p.jsonl"), words)
    project.makefile(".yaml", gates="version: 1\nprompts: {file: p.jsonl}\n")
    refused(PAIR, words)
    refused(("gates.yaml",), words)


# -- saved cases -----------------------------------------------------------------------------------

DECODING: dict[str, object] = {
    "num_draft_tokens": [3],
    "max_tokens": 4,
    "temperature": 0.0,
    "seed": 1,
    "prefill_step_size": 2048,
    "kv_bits": None,
    "kv_group_size": 64,
    "quantized_kv_start": 0,
    "chat_template_args": {},
}
CASE: dict[str, object] = {
    "schema": "specgate-case/1",
    "pair": {"target": "t", "draft": "d"},
    "engine": "mlx-lm",
    "decoding": DECODING,
    "prompt": {"id": "a", "kind": "k", "prompt": "x"},
}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ("not a saved case", "not JSON")),
        ("{", ("not a saved case", "not JSON")),
        ("[" * 99_999, ("not a saved case", "not JSON")),
        ("[]", ("not a saved case", "specgate-case/1")),
        ("3", ("not a saved case", "specgate-case/1")),
        ("null", ("not a saved case", "specgate-case/1")),
        ("{}", ("not a saved case", "specgate-case/1")),
        ('{"version": 1, "tests": []}', ("not a saved case", "specgate-case/1")),
        ('{"schema": "specgate-case/2"}', ("specgate-case/1", "'specgate-case/2'")),
        ('{"schema": "specgate-case/1"}', ("not a whole saved case: pair.target is missing",)),
        ({"pair": {"target": "t"}}, ("not a whole saved case: pair.draft is missing",)),
        ({"pair": {"target": None, "draft": None}}, ("pair.target must be text", "(null)")),
        ({"pair": {"target": "t", "draft": None}}, ("pair.draft must be text", "(null)")),
        ({"pair": {"target": "t", "draft": "nowhere"}}, ("draft", "no such directory")),
        ({"pair": []}, ("not a whole saved case: pair.target is missing",)),
        ({"decoding": {}}, ("not a whole saved case: decoding.num_draft_tokens is missing",)),
        ({"decoding": {**DECODING, "max_tokens": 0}}, ("max_tokens must be at least 1", "found 0")),
        ({"decoding": {**DECODING, "num_draft_tokens": 99}}, ("must be at most 16", "found 99")),
        (
            {"prompt": {"id": "a", "kind": "k"}},
            ("not a whole saved case: prompt.prompt is missing",),
        ),
        (
            {"prompt": {"id": "a::b", "kind": "k", "prompt": "x"}},
            ("not a whole saved case: id must be", "without '::'", "found 'a::b'"),
        ),
        ({"prompt": "x"}, ("not a whole saved case: prompt.id is missing",)),
        ({"engine": "vllm"}, ("no engine 'vllm'", "mlx-lm")),
    ],
)
def test_replay_of_a_file_that_is_no_saved_case(
    project: pytest.Pytester,
    refused: Refused,
    content: str | Mapping[str, object],
    words: tuple[str, ...],
) -> None:
    path = project.path / "case.json"
    text = content if isinstance(content, str) else json.dumps({**CASE, **content})
    path.write_text(text, encoding="utf-8")
    refused(("--spec-replay=case.json",), str(path), *words)


def test_replay_of_a_binary_file(project: pytest.Pytester, refused: Refused) -> None:
    path = project.path / "case.json"
    path.write_bytes(b"\n\xff\xfe")
    refused(("--spec-replay=case.json",), f"{path}, line 2: byte 0xff is not UTF-8")


def test_replay_collects_the_case(project: pytest.Pytester, run: Run) -> None:
    """The case that the tests above spoil is right."""
    project.path.joinpath("case.json").write_text(json.dumps(CASE), encoding="utf-8")
    result = run("--spec-replay=case.json", "--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines("case.json::parity*")


# -- ini files -------------------------------------------------------------------------------------

INI: list[tuple[str, str, tuple[str, ...]]] = [
    ("target", "", ("must not be empty",)),
    ("draft", "", ("must not be empty",)),
    ("sweep", "0", ("must be at least 1", "found 0")),
    ("sweep", "1,x", ("must be a whole number", "'x'")),
    ("num_draft_tokens", "0", ("must be at least 1", "found 0")),
    ("num_draft_tokens", "17", ("must be at most 16", "found 17")),
    ("num_draft_tokens", "3,3", ("must not repeat a number",)),
    ("num_draft_tokens", "1.5", ("must be a whole number", "'1.5'")),
    ("num_draft_tokens", "a", ("must be a whole number", "'a'")),
    ("num_draft_tokens", "", ("must not be empty",)),
    ("max_tokens", "-1", ("must be at least 1", "found -1")),
    ("max_tokens", "0", ("must be at least 1", "found 0")),
    ("max_tokens", "x", ("must be a whole number", "'x'")),
    ("isolate", "yes", ("must be an execnet spec", "'yes'", "popen")),
    ("timeout", "5", ("needs --spec-isolate",)),
    ("prompts", "", ("must not be empty",)),
    ("rounds", "0", ("must be at least 1", "found 0")),
    ("rounds", "5:", ("must be MIN or MIN:MAX", "'5:'")),
    ("rounds", "a", ("must be MIN or MIN:MAX", "'a'")),
    ("engine", "mlx", ("no engine 'mlx'", "did you mean 'mlx-lm'?")),
    ("gates", "none.yaml", ("no such file", "none.yaml")),
    ("report", "gate.json", ("must be KIND:PATH", "'gate.json'")),
    ("report", "jsn:x", ("kind 'jsn'", "did you mean 'json'?")),
    ("report", "json:t", ("is a directory",)),
    ("require", "maybe", ("must be true or false", "'maybe'")),
    ("noise", "maybe", ("must be true or false", "'maybe'")),
    ("checklist", "maybe", ("must be true or false", "'maybe'")),
    ("on_inconclusive", "maybe", ("fail, warn, pass", "'maybe'")),
    ("budget", "soon", ("10m", "'soon'")),
    ("baseline", "no/such.json", ("no such file",)),
    ("baseline_dir", "test_plain.py", ("no folder",)),
    ("against", "../x", ("mlx-lm==0.32.2", "'../x'")),
    ("scan", "maybe", ("must be true or false", "'maybe'")),
    ("require", "", ("must be true or false",)),
    ("no_preflight", "maybe", ("must be true or false", "'maybe'")),
    ("trust_remote_code", "2", ("must be true or false", "'2'")),
    ("chat_template_args", "{", ("must be a JSON object",)),
    ("chat_template_args", "[1]", ("must be a JSON object", "found a list")),
]
NATIVE = pytest.mark.skipif(
    pytest.version_tuple < (9,), reason="pytest 9 is the first with a [tool.pytest] table"
)


def write_ini(folder: Path, form: str, settings: Mapping[str, str]) -> None:
    """The same settings as pytest.ini, or as a native or an old table of pyproject.toml."""
    if form == "ini":
        text = "[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())
        folder.joinpath("pytest.ini").write_text(text, encoding="utf-8")
    else:
        table = {"native": "tool.pytest", "old": "tool.pytest.ini_options"}[form]
        text = f"[{table}]\n" + "".join(f"{key} = '{v}'\n" for key, v in settings.items())
        folder.joinpath("pyproject.toml").write_text(text, encoding="utf-8")


FORMS = ["ini", "old", pytest.param("native", marks=NATIVE)]


@pytest.mark.parametrize(("key", "value", "words"), INI)
def test_wrong_ini_value(
    project: pytest.Pytester, refused: Refused, key: str, value: str, words: tuple[str, ...]
) -> None:
    write_ini(project.path, "ini", {f"specgate_{key}": value})
    refused((), f"specgate_{key}", *words)


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize(
    ("key", "value", "words"), {key: (key, value, words) for key, value, words in INI}.values()
)
def test_wrong_ini_value_in_toml(
    project: pytest.Pytester,
    refused: Refused,
    form: str,
    key: str,
    value: str,
    words: tuple[str, ...],
) -> None:
    write_ini(project.path, form, {f"specgate_{key}": value})
    refused((), f"specgate_{key}", *words)


# where only a session that gates something asks
INI_WITH_A_PAIR: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("specgate_target", {"target": "t"}, ("a target without a draft",)),
    ("specgate_draft", {"draft": "d"}, ("a draft without a target",)),
    ("specgate_target", {"target": "nowhere", "draft": "d"}, ("no such directory", "owner/name")),
    ("specgate_draft", {"target": "t", "draft": "a/b/c"}, ("no such directory", "owner/name")),
    ("specgate_prompts", {"target": "t", "draft": "d", "prompts": "cor"}, ("'cor'", "smoke")),
    (
        "specgate_rounds",
        {"target": "t", "draft": "d", "rounds": "5:3"},
        ("max_rounds (3) is below min_rounds (5)",),
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("key", "settings", "words"), INI_WITH_A_PAIR)
def test_wrong_pair_in_the_ini_file(
    project: pytest.Pytester,
    refused: Refused,
    form: str,
    key: str,
    settings: dict[str, str],
    words: tuple[str, ...],
) -> None:
    project.makefile(".yaml", gates="version: 1\n")
    write_ini(project.path, form, {f"specgate_{name}": value for name, value in settings.items()})
    refused((), key, *words)


def test_every_ini_key_has_a_wrong_value_here(pytester: pytest.Pytester) -> None:
    names = {
        name.removeprefix("spec_")
        for name in vars(pytester.parseconfig().option)
        if name.startswith("spec_")
    }
    assert {key for key, _, _ in INI} == names - {
        *("demo", "replay", "save_baseline", "update_baseline", "keep_failed_baseline"),
    }  # of the command line alone


@NATIVE
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, "3") for key in sorted({key for key, _, _ in INI})),
        *(("require", value) for value in ("true", "1.5", "['true']", "{a = 1}")),
        *(("max_tokens", value) for value in ("8.0", "2026-01-01", "[8]")),
    ],
)
def test_native_toml_value_without_quotes(
    project: pytest.Pytester, refused: Refused, key: str, value: str
) -> None:
    path = project.path / "pyproject.toml"
    path.write_text(f"[tool.pytest]\nspecgate_{key} = {value}\n", encoding="utf-8")
    refused((), f"{path}: specgate_{key} must be text", "numbers", "in quotes", f"{key} = ")


@NATIVE
def test_native_toml_value_in_quotes(project: pytest.Pytester, run: Run) -> None:
    write_ini(
        project.path,
        "native",
        {"specgate_max_tokens": "8", "specgate_num_draft_tokens": "1,3", "specgate_rounds": "2"},
    )
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(("key", "value", "words"), INI)
def test_wrong_ini_value_on_the_command_line(
    refused: Refused, key: str, value: str, words: tuple[str, ...]
) -> None:
    """No file to name."""
    message = refused(("-o", f"specgate_{key}={value}"), *words)
    assert message.startswith(f"ERROR: ini option specgate_{key}: ")


def test_half_a_pair_in_the_ini_file_with_the_built_in_gates(
    project: pytest.Pytester, refused: Refused
) -> None:
    """No gates file of the project's own."""
    write_ini(project.path, "ini", {"specgate_target": "t"})
    place = f"{project.path / 'pytest.ini'}: specgate_target: "
    refused((), f"{place}a target without a draft: give --spec-draft as well")
    refused(("-o", "specgate_draft=nowhere"), "specgate_draft: draft: no such directory")


def test_ini_file_with_the_built_in_gates(project: pytest.Pytester, run: Run) -> None:
    """What it says beats the package's own gates file: twelve prompts, two numbers."""
    settings = {"target": "t", "draft": "d", "prompts": "smoke", "num_draft_tokens": "1,2"}
    write_ini(project.path, "ini", {f"specgate_{name}": value for name, value in settings.items()})
    result = run("--collect-only", "-q")
    assert result.ret == 0
    names = [line for line in result.outlines if line.startswith("gates.yaml::")]
    assert sum(name.startswith("gates.yaml::parity[") for name in names) == 12
    assert names[0] == "gates.yaml::preflight"
    assert names[13:] == [
        f"gates.yaml::{gate}[k={k}]"
        for gate in ("speedup", "latency_p95", "memory")
        for k in (1, 2)
    ]
    result = run("--collect-only", "-q", "--spec-prompts=core", f"{K}=3")
    names = [line for line in result.outlines if line.startswith("gates.yaml::")]
    assert names[-3:] == [f"gates.yaml::{gate}" for gate in ("speedup", "latency_p95", "memory")]
    assert len(names) > 12 + 3


# -- names of models -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name", "revision"),
    [
        ("owner/name", "owner/name", None),
        ("mlx-community/Qwen2.5-7B-Instruct-4bit", "mlx-community/Qwen2.5-7B-Instruct-4bit", None),
        ("owner/name@main", "owner/name", "main"),
        ("owner/name@v1.0", "owner/name", "v1.0"),
        ("owner/name@refs/pr/1", "owner/name", "refs/pr/1"),
        ("o1/a_b.c-d@0123abc", "o1/a_b.c-d", "0123abc"),
        ("a/b", "a/b", None),
        ("A/B9@B", "A/B9", "B"),
        ("_a/_b_", "_a/_b_", None),
        ("0/1", "0/1", None),
        ("my.org/model-1.5B_q4", "my.org/model-1.5B_q4", None),
        ("a-b/c-d", "a-b/c-d", None),
        ("owner/name.gitx", "owner/name.gitx", None),
        ("owner/git", "owner/git", None),
        (f"{'o' * 96}/{'n' * 96}", f"{'o' * 96}/{'n' * 96}", None),
    ],
)
def test_hub_id(tmp_path: Path, value: str, name: str, revision: str | None) -> None:
    made = ModelRef.parse(value, tmp_path)
    assert made == ModelRef(name, None, revision)
    assert made.label == value
    assert made.short == name.partition("/")[2]


@pytest.mark.parametrize(
    "value",
    [
        "name", "owner/", "/name", "owner//name", "a/b/c", "./a", "../a", "a/..", "a b/c", "a/b c",
        "owner/name ", "-a/b", "a/-b", ".a/b", "a/.b", "a--b/c", "a/b--c", "a/b..c", "@main",
        "a/b@", "owner@main", "a/b\n", "https://huggingface.co/a/b", "a:b/c", "a\\b", "a/b\0",
        "a/b.", "a/b-", "a./b", "a-/b", "a..b/c", "a/b.git", "a/b.git@main", "ü/b", "a/水", "a/b/",
        f"{'o' * 97}/n", f"o/{'n' * 97}", "a/b c@main", "@", "a/@main", "/b@main",
    ],
)  # fmt: skip
def test_neither_a_hub_id_nor_a_directory(tmp_path: Path, value: str) -> None:
    with pytest.raises(Invalid, match=r"owner/name|'a/b@'"):
        ModelRef.parse(value, tmp_path)


@pytest.mark.parametrize("value", ["", "  ", None, 3, True, ["a/b"]])
def test_model_that_is_no_name(tmp_path: Path, value: object) -> None:
    with pytest.raises(Invalid, match="must name a model directory or a hub id"):
        ModelRef.parse(value, tmp_path)


def test_directory_of_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    for value in ("models/mine", "./models/mine", "models/../models/mine/", str(folder)):
        made = ModelRef.parse(value, tmp_path)
        assert (made.directory, made.label, made.short) == (folder, str(folder), "mine")
    assert ModelRef.parse(".", folder).short == "mine"
    (tmp_path / "models" / "a@b").mkdir()
    assert ModelRef.parse("models/a@b", tmp_path).directory == tmp_path / "models" / "a@b"


def test_misspelt_directory_is_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(Invalid, match="no such directory"):
        ModelRef.parse("models/mien", tmp_path)
    assert ModelRef.parse("other/mien", tmp_path).directory is None


# -- markers ---------------------------------------------------------------------------------------

MARKED = """import pytest


@pytest.mark.{}
def test_marked():
    pass
"""
ALLOWED_INPUTS = ("prompts", "kinds", "target", "draft", "num_draft_tokens", "max_tokens")
DIGITS = "found a number of too many digits"
PLAIN_JSON = "chat_template_args must hold plain JSON values alone: "
WRONG_MARKERS: list[tuple[str, tuple[str, ...]]] = [
    # names of arguments
    ("spec_parity(mod='exact')", ("no argument 'mod'", "did you mean 'mode'?", "allowed: mode")),
    ("spec_speedup(minimum=1)", ("no argument 'minimum'", "'min'?", "min, statistic, margin")),
    ("spec_latency(p95=1)", ("no argument 'p95'", "p95_max_ratio", "p95_max_seconds")),
    ("spec_memory(maxgb=1)", ("no argument 'maxgb'", "did you mean 'max_gb'?", "headroom")),
    ("spec_acceptance(max=1)", ("no argument 'max'", "allowed: min")),
    ("spec_inputs(promts='core')", ("no argument 'promts'", "'prompts'?", *ALLOWED_INPUTS)),
    ("spec_inputs(warmup=2)", ("no argument 'warmup'", *ALLOWED_INPUTS)),
    # positional arguments
    ("spec_parity('exact')", ("takes no positional argument", "'exact'", "mode=")),
    ("spec_speedup(1.15)", ("takes no positional argument", "1.15", "min=")),
    ("spec_latency(1.0, p95_max_seconds=3)", ("takes no positional argument", "1.0")),
    ("spec_memory(16)", ("takes no positional argument", "16", "max_gb=")),
    ("spec_acceptance(0.5)", ("takes no positional argument", "0.5", "min=")),
    ("spec_inputs('core')", ("takes no positional argument", "'core'", "prompts=")),
    # values of a gate
    ("spec_parity(mode='fuzzy')", ("mode must be one of exact", "'fuzzy'")),
    ("spec_speedup(min='fast')", ("min must be a number", "'fast'", "> 0")),
    ("spec_speedup(min=True)", ("min must be a number", "found true")),
    ("spec_speedup(min=float('nan'))", ("min must be a finite number", "found nan")),
    ("spec_speedup(min=0)", ("min must be > 0", "found 0")),
    ("spec_speedup(margin=0.6)", ("margin must be", "<= 0.5", "found 0.6")),
    (
        "spec_latency(p95_max_ratio=10**400)",
        ("latency.p95_max_ratio must be a finite number", "found a number of too many digits"),
    ),
    ("spec_latency(p95_max_ratio=None)", ("p95_max_ratio or p95_max_seconds", "nothing to judge")),
    ("spec_memory(max_gb=-1)", ("max_gb must be > 0", "found -1")),
    ("spec_memory(headroom=None, max_swap_growth_gb=None)", ("max_gb", "nothing to judge")),
    ("spec_acceptance(min=1.5)", ("min must be >= 0 and <= 1", "found 1.5")),
    # values of the inputs
    ("spec_inputs(prompts='none.jsonl')", ("'none.jsonl' not found", "core", "smoke")),
    ("spec_inputs(prompts=[])", ("prompts must be core, smoke", "found a list")),
    ("spec_inputs(prompts=['a', ''])", ("prompts must be core, smoke", "prompt is empty")),
    ("spec_inputs(prompts=3)", ("prompts must be core, smoke", "found 3")),
    ("spec_inputs(kinds=['jsn'])", ("kind 'jsn'", "did you mean 'json'?", "present: ")),
    ("spec_inputs(kinds=3)", ("kinds must be a list of texts", "found 3")),
    ("spec_inputs(num_draft_tokens=0)", ("num_draft_tokens must be at least 1", "found 0")),
    ("spec_inputs(num_draft_tokens=[3, 17])", ("num_draft_tokens must be at most 16", "17")),
    ("spec_inputs(max_tokens=-1)", ("max_tokens must be at least 1", "found -1")),
    ("spec_inputs(temperature='hot')", ("temperature must be a number", "'hot'")),
    ("spec_inputs(seed=1.5)", ("seed must be a whole number", "found 1.5")),
    ("spec_inputs(kv_bits=7)", ("kv_bits must be", "found 7", "null")),
    ("spec_inputs(chat_template_args=[1])", ("chat_template_args must be a mapping", "a list")),
    ("spec_inputs(target='t')", ("a target without a draft",)),
    ("spec_inputs(draft='d')", ("a draft without a target",)),
    ("spec_inputs(target='nowhere', draft='d')", ("target", "no such directory", "owner/name")),
    ("spec_inputs(target=3, draft='d')", ("target must be text", "found 3")),
    ("spec_inputs(min_rounds=9, max_rounds=3)", ("max_rounds (3) is below min_rounds (9)",)),
    ("spec_inputs(kv_bits=4.0)", ("kv_bits must be one of 2, 3, 4, 5, 6, 8, found 4.0",)),
    ("spec_inputs(kv_group_size=16)", ("kv_group_size must be one of 32, 64, 128, found 16",)),
    # numbers that Python refuses to write out
    *(
        (f"spec_inputs({name}={sign}10**5000)", (f"{name} must be ", DIGITS))
        for name in ("num_draft_tokens", "max_tokens", "seed", "kv_bits", "prompts", "kinds")
        for sign in ("", "-")
    ),
    ("spec_inputs(num_draft_tokens=[3, 10**5000])", ("num_draft_tokens must be at most", DIGITS)),
    ("spec_inputs(temperature=10**5000)", ("temperature must be a finite number", DIGITS)),
    ("spec_inputs(min_rounds=10**5000)", ("min_rounds must be at most 1000", DIGITS)),
    ("spec_inputs(target=10**5000, draft='d')", ("target must be text", DIGITS)),
    ("spec_speedup(min=10**5000)", ("speedup.min must be a finite number", DIGITS)),
    ("spec_speedup(10**5000)", ("takes no positional argument", DIGITS)),
    *(
        (f"spec_inputs({name}={value})", (f"{name} must be ", words))
        for name in ("num_draft_tokens", "seed", "temperature", "kv_bits", "prompts", "kinds")
        for value, words in (
            ("{10**5000}", "found a set that cannot be written out"),
            ("frozenset([10**5000])", "found a frozenset that cannot be written out"),
            ("(10**5000,)", "found "),
            ("{'a': 10**5000}", "found a mapping"),
        )
    ),
    ("spec_speedup(min={10**5000})", ("speedup.min must be a number", "found a set that cannot")),
    ("spec_parity(mode={10**5000})", ("mode must be one of exact", "found a set that cannot")),
    ("spec_parity({10**5000})", ("no positional argument, found a set that cannot",)),
    # arguments of the chat template
    *(
        (f"spec_inputs(chat_template_args={value})", (PLAIN_JSON,))
        for value in ("{'a': float('nan')}", "{'a': print}", "{'a': {1, 2}}", "{'a': [b'x']}")
    ),
    ("spec_inputs(chat_template_args={1: 'x'})", ("must be a mapping with text keys",)),
    # paths that cannot be
    ("spec_inputs(prompts='~no_such_user/x')", ("prompts: not a usable path", "no_such_user")),
    (f"spec_inputs(prompts='{'x' * 5000}')", ("prompts: not a usable path", "xxxx")),
    (f"spec_inputs(target='{'x' * 5000}', draft='d')", ("target: not a usable path", "xxxx")),
    ("spec_inputs(target='t', draft='~no_such_user/x')", ("draft: not a usable path",)),
]


@pytest.fixture
def uncollected(run: Run) -> Callable[..., str]:
    """(args, words, errors): the collection fails with exit 2; gives what was shown."""

    def check(args: tuple[str, ...], *words: str, errors: int = 1) -> str:
        result = run("--strict-markers", *args)
        assert result.ret == pytest.ExitCode.INTERRUPTED
        result.assert_outcomes(errors=errors)
        shown = result.stdout.str()
        for word in words:
            assert word in shown
        return shown

    return check


Uncollected = Callable[..., str]


def test_wrong_markers(project: pytest.Pytester, uncollected: Uncollected) -> None:
    """A module each, in one session: each is an error of its own, with a message of its own."""
    for number, (marker, _) in enumerate(WRONG_MARKERS):
        project.makepyfile(**{f"test_{number}": MARKED.format(marker)})
    shown = uncollected((), errors=len(WRONG_MARKERS)).splitlines()
    for number, (marker, words) in enumerate(WRONG_MARKERS):
        name, _, _ = marker.partition("(")
        place = f"{project.path / f'test_{number}.py'}:4: test_marked: {name}"
        (message,) = (line for line in shown if line.startswith(place))
        assert message.count(name) == 1
        for word in words:
            assert word in message


@pytest.mark.parametrize(
    "more", ["spec_inputs(temperature=0.7)", "spec_inputs(temperature=0.7, target='t', draft='d')"]
)
def test_parity_marker_with_a_temperature(
    project: pytest.Pytester, uncollected: Uncollected, more: str
) -> None:
    project.makepyfile(test_marked=MARKED.format(f"spec_parity\n@pytest.mark.{more}"))
    place = f"{project.path / 'test_marked.py'}:4: test_marked: spec_parity: "
    uncollected((), place, "exact parity needs temperature 0", "found 0.7", "to 0.0")


def test_wrong_marker_of_a_class_and_of_a_module(
    project: pytest.Pytester, uncollected: Uncollected
) -> None:
    project.makepyfile(
        test_class="""
        import pytest
        @pytest.mark.spec_speedup(minimum=1)
        class TestIt:
            def test_in_class(self): pass
        """,
        test_module="""
        import pytest
        pytestmark = pytest.mark.spec_inputs(seeds=1)
        def test_in_module(): pass
        """,
    )
    shown = uncollected((), "no argument 'minimum'", "no argument 'seeds'", errors=2)
    assert "test_class.py:4: " in shown
    assert "test_in_class: spec_speedup" in shown
    assert "test_module.py:3: test_in_module: spec_inputs" in shown


def test_all_wrong_markers_of_a_module_are_named(
    project: pytest.Pytester, uncollected: Uncollected
) -> None:
    project.makepyfile(
        test_marked="""
        import pytest
        @pytest.mark.spec_speedup(minimum=1)
        def test_first(): pass
        @pytest.mark.parametrize("n", range(3))
        @pytest.mark.spec_parity("exact")
        def test_second(n): pass
        """
    )
    uncollected((), "test_first: spec_speedup has no argument", "spec_parity takes no positional")


def test_wrong_marker_does_not_stop_other_modules(project: pytest.Pytester, run: Run) -> None:
    project.makepyfile(test_marked=MARKED.format("spec_parity('exact')"))
    result = run("--continue-on-collection-errors")
    result.assert_outcomes(errors=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_misspelt_marker_is_strict(project: pytest.Pytester, uncollected: Uncollected) -> None:
    project.makepyfile(test_marked=MARKED.format("spec_speedpu"))
    uncollected((), "'spec_speedpu' not found in `markers`")


USES = """
import pytest
from pytest_specgate import spec_acceptance, spec_inputs, spec_latency, spec_memory
from pytest_specgate import spec_parity, spec_speedup

@spec_parity
@spec_parity(mode="exact")
@spec_speedup(min=1.2, margin=0.05)
@spec_latency(p95_max_seconds=3)
@spec_memory(max_gb=16, max_ratio=2)
@spec_acceptance(min=0.4)
@spec_inputs(prompts=["one", "two"], num_draft_tokens=[1, 3], max_tokens=8)
def test_markers(): pass

@pytest.mark.spec_inputs(kinds="json", min_rounds=2)
def test_inputs(): pass

def test_pair(spec_pair): pass
def test_compare(spec_compare): pass
def test_evidence(spec_evidence): pass
def test_environment(spec_environment): pass
"""


def test_no_pair_skips_with_the_reason(project: pytest.Pytester, run: Run) -> None:
    project.makepyfile(test_uses=USES)
    result = run("--strict-markers", "-rs")
    assert result.ret == 0
    result.assert_outcomes(skipped=6, passed=1)
    result.stdout.fnmatch_lines("*no pair was given: *--spec-target*--spec-draft*--spec-demo*")


def test_a_skip_without_a_pair_stands_at_the_test(project: pytest.Pytester) -> None:
    """Not at a line of specgate: the summary shows which tests were not run."""
    path = project.makepyfile(
        test_uses="""
        import pytest

        @pytest.mark.spec_parity
        def test_marked(): pass

        class TestIt:
            def test_evidence(self, spec_evidence): pass
        """
    )
    assert skipped_at(project) == [(str(path), 3), (str(path), 7)]


def test_gates_without_a_pair_are_skipped_at_their_own_lines(project: pytest.Pytester) -> None:
    """A named gates file whose pair is not set yet."""
    path = project.makefile(
        ".yaml", gates="version: 1\n\ngates:\n  speedup: {}\n  memory: {headroom: 0.2}\n"
    )
    assert skipped_at(project, "gates.yaml") == [(str(path), 4), (str(path), 5)]


def skipped_at(pytester: pytest.Pytester, *args: str) -> list[tuple[str, int]]:
    """File and line of each test that was skipped for want of a pair, as every report has it."""
    places = []
    for report in pytester.inline_run(*args).getreports("pytest_runtest_logreport"):
        if report.skipped:
            assert isinstance(report.longrepr, tuple)
            path, line, reason = report.longrepr
            assert "no pair was given: " in reason
            places.append((path, line))
    return places


@pytest.mark.parametrize("how", ["option", "ini"])
def test_no_pair_is_an_error_where_one_is_required(
    project: pytest.Pytester, run: Run, how: str
) -> None:
    project.makepyfile(test_uses=USES)
    if how == "ini":
        write_ini(project.path, "ini", {"specgate_require": "true"})
    result = run("--strict-markers", *(["--spec-require"] if how == "option" else []))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(errors=6, passed=1)
    result.stdout.fnmatch_lines("*no pair was given: *--spec-target*(--spec-require)*")


@pytest.mark.parametrize("args", [("-k", "nothing"), ("test_plain.py",), ("-m", "spec_parity")])
def test_required_gates_that_are_not_collected(refused: Refused, args: tuple[str, ...]) -> None:
    """A report would look like a result: none is written, the old one stays as it was."""
    words = "--spec-require: no gate was collected", "-k"
    refused(("--spec-require", *PAIR, *args, "--spec-report=json:out.json"), *words)
    Path("out.json").write_text("of last week", encoding="utf-8")
    refused(("--spec-require", *PAIR, *args, "--spec-report=json:out.json"), *words)
    assert Path("out.json").read_text(encoding="utf-8") == "of last week"


def test_markers_are_listed(run: Run) -> None:
    result = run("--markers")
    assert result.ret == 0
    for name in ("parity", "speedup", "latency", "memory", "acceptance", "inputs"):
        result.stdout.fnmatch_lines(f"@pytest.mark.spec_{name}(*")


def test_switched_off(project: pytest.Pytester, run: Run) -> None:
    """Only the markers are left, which the project registers itself."""
    names = ("parity", "speedup", "latency", "memory", "acceptance", "inputs")
    write_ini(project.path, "ini", {"markers": "".join(f"\n    spec_{name}" for name in names)})
    project.makeconftest(
        """
        import pytest
        @pytest.hookimpl(optionalhook=True)
        def pytest_specgate_gates(): return []
        """
    )
    tests, _, _ = USES.partition("def test_pair")
    project.makepyfile(test_uses=tests)
    result = run("-p", "no:specgate", "--strict-markers")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    result = run("--strict-markers")  # registered twice is no fault either
    result.assert_outcomes(passed=1, skipped=2)


# -- sessions that load and write nothing ----------------------------------------------------------

LOADED = """
import sys

def pytest_sessionfinish():
    loaded = [name for name in {} if name in sys.modules]
    assert not loaded, loaded
"""


def test_plain_session_loads_and_says_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADED.format((*HEAVY, "pytest_specgate.session")))
    pytester.makepyfile(test_it="def test_it(tmp_path): pass\n")
    before = files(pytester.path)
    result = pytester.runpytest_subprocess("-v", "-rA")
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    shown = [line for line in result.outlines + result.errlines if "specgate" in line]
    assert len(shown) == 1
    assert shown[0].startswith("plugins: ")
    assert files(pytester.path) == before


def test_collect_only_loads_no_model_and_writes_nothing(project: pytest.Pytester) -> None:
    project.makeconftest(LOADED.format(("mlx", "mlx_lm", "transformers", "numpy")))
    project.makepyfile(test_uses=USES)
    before = files(project.path)
    result = project.runpytest_subprocess(
        *PAIR, "--collect-only", "-q", "--spec-report=json:out.json"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gates.yaml::parity*", "gates.yaml::speedup"])
    result.stdout.fnmatch_lines("test_uses.py::test_markers*")
    assert files(project.path) == before


@pytest.mark.parametrize("cache", [True, False])
def test_collect_only_builds_no_demo_pair(
    project: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, cache: bool
) -> None:
    """Nor its folder: neither in pytest's cache nor, where that is off, in the temporary one."""
    temporary = project.mkdir("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    result = run(
        "--spec-demo", "--collect-only", "-q", *(() if cache else ("-p", "no:cacheprovider"))
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gates.yaml::parity*", "gates.yaml::speedup"])
    assert list(temporary.iterdir()) == []
    assert not (project.path / ".pytest_cache" / "d").exists()
