"""A worker that dies, hangs or loses its gateway costs one prompt, never the session's verdicts."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import execnet  # noqa: F401  # pytester forgets modules first imported inside it
import psutil
import pytest

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef
from pytest_specgate.demo.constructed import PairRecipe
from pytest_specgate.early import joined
from pytest_specgate.engines import isolated, supervisor, worker
from pytest_specgate.engines.base import EngineError
from pytest_specgate.engines.isolated import IsolatedEngine
from pytest_specgate.engines.mlx_lm import MlxLmEngine

from ..conftest import ConstructedPair
from .conftest import Gate

QUICK = PairRecipe(agreement=0.8, target_layers=2)
TOKENS = 12
DECODING = Decoding(temperature=0.0, prefill_step_size=8)

# before the worker's own last lines: what happens at the fifth call of the target, in one arm of
# the prompt that holds the word
_FATED = """
import signal

_real_generate = generate


class _Fatal:
    def __init__(self, model, fate):
        self.model, self.fate, self.calls = model, fate, 0

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *args, **more):
        self.calls += 1
        if self.calls == 5:
            print("a library prints")
            os.write(1, b"and so does C")
            exec(self.fate)
        return self.model(*args, **more)


def generate(target, draft, tokenizer, prompt, decoding, *, num_draft_tokens, observe, tick):
    for word, *when, fate in {fates}:
        if word in tokenizer.decode(list(prompt)) and when == [num_draft_tokens, observe]:
            target = _Fatal(target, fate)
    return _real_generate(target, draft, tokenizer, prompt, decoding,
                          num_draft_tokens=num_draft_tokens, observe=observe, tick=tick)


"""


def fated(*fates: tuple[str, int | None, bool, str]) -> str:
    """The worker's source with fates: word in the prompt, k, observed run or timed, code."""
    source, end, program = isolated.worker_source().partition('if __name__ == "__main__":')
    assert end
    return f"{source}{_FATED.format(fates=fates)}{end}{program}"


@pytest.fixture
def pair(constructed: Callable[[PairRecipe], ConstructedPair]) -> Path:
    """A quick pair that is exact, with proposals that are refused now and then."""
    return constructed(QUICK)[0]


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    here = psutil.Process()
    before = set(here.children(recursive=True))
    yield
    left = [process for process in here.children(recursive=True) if process not in before]
    assert left == []


@pytest.fixture(scope="module")
def inputs(constructed: Callable[[PairRecipe], ConstructedPair]) -> Inputs:
    """The pair as an engine loads it."""
    folder = constructed(QUICK)[0]
    target, draft = (ModelRef(role, folder / role) for role in ("target", "draft"))
    return Inputs(target, draft)


def is_gone(pid: int) -> bool:
    """The process ends, if it has not; one that nobody has reaped counts as ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        _, alive = psutil.wait_procs([process], timeout=30)
    except psutil.NoSuchProcess:
        return True
    return not alive or process.status() == psutil.STATUS_ZOMBIE


def options(prompts: str) -> tuple[str, ...]:
    """Of a session whose runs are short."""
    return "--spec-prompts", prompts, "--spec-max-tokens", str(TOKENS)


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, _no_process_is_left: None
) -> Iterator[IsolatedEngine]:
    """One whose workers cannot import specgate, execnet or pytest."""
    folder = tmp_path_factory.mktemp("bare")
    folder.joinpath("sitecustomize.py").write_text(
        textwrap.dedent(
            f"""
            import sys

            class Refuse:
                def find_spec(self, name, path=None, target=None):
                    if name.split(".")[0] in ("pytest_specgate", "execnet", "pytest", "_pytest"):
                        raise ImportError(name)

            sys.meta_path.insert(0, Refuse())
            if "specgate-worker" in sys.orig_argv:
                open({str(folder / "refuses")!r}, "w").close()
            """
        ),
        encoding="utf-8",
    )
    engine = IsolatedEngine(f"popen//env:PYTHONPATH={folder}")
    yield engine
    engine.close()
    assert folder.joinpath("refuses").exists()


def test_output_equals_the_in_process_engine(inputs: Inputs, engine: IsolatedEngine) -> None:
    """All that an observed run and a teacher-forced pass say, to the last bit; times aside.

    Another pair was loaded in between, so the first is loaded again.
    """
    near, far, _ = MlxLmEngine().load(inputs), engine.load(inputs), engine.load(inputs)
    assert far.info == near.info
    assert engine.describe().versions == MlxLmEngine().describe().versions
    prompt = near.encode("Say what a list is.", {})
    assert far.encode("Say what a list is.", {}) == prompt
    for k, observe in ((None, True), (None, False), (3, True), (3, False)):
        ours, theirs = (
            side.generate(
                prompt,
                DECODING,
                max_tokens=TOKENS,
                num_draft_tokens=k,
                observe=observe,
                tick=lambda _, seconds: seconds + 1,
            )
            for side in (near, far)
        )
        for field in ours.__slots__:
            if field not in ("token_times_s", "e2e_s", "peak_memory_bytes"):
                assert getattr(theirs, field) == getattr(ours, field), field
        assert len(theirs.token_times_s) == len(theirs.tokens) == TOKENS
        assert 0 < theirs.token_times_s[0] <= theirs.e2e_s
        assert theirs.peak_memory_bytes is not None
    scores = far.score(prompt, theirs.tokens, DECODING)
    assert scores == near.score(prompt, theirs.tokens, DECODING)


def test_a_hang_is_killed(inputs: Inputs, engine: IsolatedEngine) -> None:
    """Whatever the worker does, or does not, it is over after the timeout; the next one works."""
    pair = engine.load(inputs)
    prompt, hung = pair.encode("abc", {}), engine.worker_pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    engine.timeout_s = 0.5
    with pytest.raises(EngineError, match=r"no answer within 0\.5 s .*generating with k=3"):
        pair.generate(prompt, DECODING, max_tokens=TOKENS, num_draft_tokens=3)
    assert is_gone(hung)
    engine.timeout_s = None
    found = pair.generate(prompt, DECODING, max_tokens=TOKENS, num_draft_tokens=3)
    assert len(found.tokens) == TOKENS
    assert engine.worker_pid not in (None, hung)


def test_a_pair_that_is_lost_is_not_loaded_for_ever(
    inputs: Inputs, engine: IsolatedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be loaded again after a death, every later call says so at once."""
    pair = engine.load(inputs)
    engine.close()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "spec", "popen//python=/no/such/python")
        with pytest.raises(EngineError, match=r"could not be loaded again: .* cannot be opened"):
            pair.encode("abc", {})
    with pytest.raises(EngineError, match=r"could not be loaded again: .* cannot be opened"):
        pair.encode("abc", {})


# prompt id -> (k of the arm, what happens there, how it is named)
DEATHS = {
    "killed": (3, "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL (*memory runs out)"),
    "crashed": (None, "os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "lost": (3, "os.kill(os.getppid(), signal.SIGKILL)", "connection lost"),
}


def test_a_death_is_one_failed_item(
    gate: Gate, pair: Path, prompts: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signal, prompt and arm are named; the other prompts are judged; the report is whole.

    After a death in a timed round parity is judged already, so the timing gate is red.
    """
    timed = ("timed", 3, False, "os.abort()")
    source = fated(timed, *((name, k, True, fate) for name, (k, fate, _) in DEATHS.items()))
    monkeypatch.setattr(isolated, "worker_source", lambda: source)
    texts = {name: f"Say {name}." for name in ("first", *DEATHS, "timed")}
    chosen = ("--spec-isolate", "--spec-rounds", "2", "-k", "parity or preflight or speedup", "-v")
    result, report = gate(pair, *options(prompts(**texts)), *chosen)
    assert result.ret == 1
    result.assert_outcomes(passed=3, failed=len(DEATHS) + 1)
    result.stdout.fnmatch_lines(
        ["*preflight PASSED*", "*[[]first[]] PASSED*"]
        + [f"*[[]{name}[]] FAILED*" for name in DEATHS]
        + ["*[[]timed[]] PASSED*", "*speedup FAILED*"]
    )
    for name, (k, _, how) in DEATHS.items():
        before, arm = ("", "on the plain path") if k is None else ("with the draft (k=3): ", "k=3")
        result.stdout.fnmatch_lines(
            f"parity[[]{name}[]] failed: {before}*{how} while generating *{arm}*"
        )
    result.stdout.fnmatch_lines(
        "speedup failed: *timed, k=3, round 1: *SIGABRT while generating with k=3; it said: "
        "a library prints and so does C; Python was in *"
    )
    assert "Traceback" not in result.stdout.str()
    assert report["status"] == "failed"
    assert [case["id"] for case in report["cases"]] == list(texts)
    for case in report["cases"]:
        k, _, how = DEATHS.get(case["id"], (3, "", ""))
        assert bool(case["error"]) == (case["id"] != "first")
        assert set(case["arms"]) == (set() if k is None else {"plain"} if how else {"plain", "k=3"})
        rounds = 2 if case["id"] == "first" else 0
        assert all(len(arm["trials"]) == rounds for arm in case["arms"].values())
    judged = {v["subject"]: v["status"] for v in report["verdicts"] if v["gate"] == "parity"}
    assert judged == {name: "failed" if name in DEATHS else "passed" for name in texts}
    assert report["environment"]["device_details"]["worker_gateway"] == "popen"


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (7, "", "the worker ended with exit code 7 while loading"),
        (
            1,
            "Traceback\n  x\nSyntaxError: no\n",
            "exit code 1 while loading; it said: Traceback x SyntaxError: no",
        ),
        (
            -11,
            "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
            '  File "worker.py", line 5 in _read\n\nThread 0x2 (most recent call first):\n'
            '  File "a.py", line 7 in main\n',
            "SIGSEGV while loading; Python was in main (a.py:7)",
        ),
        (-99, "", "the worker was ended by signal 99 while loading"),
        (-9, "", "SIGKILL (the system sends it when memory runs out) while loading"),
        (
            -6,
            "libc++abi: out of memory\nFatal Python error: Aborted\n\nThread 0x1 (most recent call "
            'first):\n  File "a.py", line 1 in other\n\nCurrent thread 0x2 (most recent call '
            'first):\n  File "/x/mlx_lm/generate.py", line 301 in _step\n',
            "SIGABRT while loading; it said: libc++abi: out of memory; Python was in _step "
            "(generate.py:301)",
        ),
    ],
)
def test_how_a_worker_ended_in_words(code: int, stderr: str, words: str) -> None:
    """Return code, what was said last, and where Python was."""
    assert isolated.how_it_ended(code, stderr, "loading").endswith(words)


def test_the_timeout_of_a_session(gate: Gate, pair: Path, prompts: Callable[..., str]) -> None:
    """``--spec-timeout`` reaches the engine; what cannot be loaded in time is tried once."""
    chosen = ("--spec-isolate", "--spec-timeout", "0.001", "-k", "parity")
    result, _ = gate(pair, *options(prompts(one="abc", two="abcd")), *chosen)
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["parity[[]one[]] failed: no answer within 0.001 s (--spec-timeout)*"]
    )


def test_interrupt_ends_everything(
    pair: Path, prompts: Callable[..., str], pytester: pytest.Pytester
) -> None:
    """Ctrl-C while a worker generates: exit 2, an incomplete report, no process left."""
    kill = "Path('pids').write_text(f'{os.getpid()} {os.getppid()}'); "
    kill += "os.kill(int(os.environ['PYTEST_PID']), signal.SIGINT); time.sleep(600)"
    Path("source.py").write_text(fated(("abc", 3, True, kill)), encoding="utf-8")
    pytester.makeconftest(
        """
        import os, signal
        from pathlib import Path
        from pytest_specgate.engines import isolated

        # ignored where a shell has put the tests into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["PYTEST_PID"] = str(os.getpid())
        isolated.worker_source = lambda: Path("source.py").read_text(encoding="utf-8")
        """
    )
    models = ("--spec-target", f"{pair}/target", "--spec-draft", f"{pair}/draft")
    report = ("--spec-report", "json:out.json")
    chosen = ("--spec-isolate", "-k", "parity")
    result = pytester.runpytest_subprocess(*models, *report, *options(prompts(one="abc")), *chosen)
    assert result.ret == 2
    found = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert found["status"] == "incomplete"
    assert found["cases"][0]["id"] == "one"
    for pid in Path("pids").read_text(encoding="utf-8").split():
        assert is_gone(int(pid))


@pytest.mark.parametrize("module", [worker, supervisor])
def test_sent_source_imports_nothing_of_ours(module: object) -> None:
    """Sent as text: the standard library, and in the worker what mlx-lm brings."""
    path = Path(str(module.__file__))  # type: ignore[attr-defined]  # object: pytest gives modules
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).split(".")[0])
    brought = {"mlx", "mlx_lm", "huggingface_hub"} if module is worker else set()
    assert names - brought <= sys.stdlib_module_names


def test_another_engine_is_refused(pytester: pytest.Pytester) -> None:
    """The worker is mlx-lm's; another engine would silently stay in this process."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(optionalhook=True)
        def pytest_specgate_engines():
            return {"mine": object}
        """
    )
    result = pytester.runpytest("--spec-isolate", "--spec-engine=mine")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --spec-isolate: the engine 'mine' cannot run in a *"])


@pytest.mark.parametrize(
    ("given", "joins"),
    [
        (["--spec-isolate", "tests"], ["--spec-isolate=popen", "tests"]),
        (["--spec-isolate", "-k", "a"], ["--spec-isolate=popen", "-k", "a"]),
        (["--spec-isolate"], ["--spec-isolate=popen"]),
        (["--spec-isolate", "ssh=mac//python=py"], ["--spec-isolate=ssh=mac//python=py"]),
        (["--spec-isolate=popen", "tests"], ["--spec-isolate=popen", "tests"]),
        (["--", "--spec-isolate", "a"], ["--", "--spec-isolate", "a"]),
    ],
)
def test_alone_it_takes_no_path_for_its_value(
    given: list[str], joins: list[str], tmp_path: Path
) -> None:
    """``pytest --spec-isolate tests`` isolates, and runs tests."""
    assert joined(given, tmp_path) == joins


OTHERS_WITH_EXECNET = ("xdist", "xdist.looponfail", "rerunfailures")


def test_a_plain_session_loads_no_execnet(pytester: pytest.Pytester) -> None:
    """Only an isolated session pays for it."""
    pytester.makepyfile("import sys\ndef test_it(): assert 'execnet' not in sys.modules")
    others = [part for name in OTHERS_WITH_EXECNET for part in ("-p", f"no:{name}")]
    result = pytester.runpytest_subprocess(*others)
    assert result.ret == 0
