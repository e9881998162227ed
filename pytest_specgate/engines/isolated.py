"""The mlx-lm engine in a process of its own, here or elsewhere: its death is a message.

Three processes: pytest, execnet's gateway with ``supervisor`` in it, and ``worker`` below that.
"""

from __future__ import annotations

import gc
import json
import re
import signal
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import execnet

from ..config.plan import Decoding, Inputs
from . import supervisor, worker
from .base import (
    EngineError,
    EngineInfo,
    Generation,
    ModelInfo,
    PairInfo,
    PassCosts,
    SampledScores,
    Scores,
    Tick,
    Turns,
    Unsupported,
)
from .mlx_lm import (
    costs_of,
    generation_of,
    options,
    reference,
    sampled_scores_of,
    scores_of,
    turns_of,
)

_END_S = 5.0  # for a process to end once it is told to
_CLIP = 300


def worker_source() -> str:
    """What is sent to the other side and run there."""
    return Path(worker.__file__).read_text(encoding="utf-8")


class IsolatedEngine:
    """Loads pairs with mlx-lm in a worker; a worker that died is replaced at the next call."""

    name = "mlx-lm"
    holds_one = True  # the worker has one pair at a time

    def __init__(self, spec: str, timeout_s: float | None = None) -> None:
        """Nothing is started yet.

        Args:
            spec: of an execnet gateway, such as ``popen`` or ``ssh=host//python=python3.12``.
            timeout_s: the most that one call may take; the worker is killed after it.
        """
        self.spec = spec
        self.timeout_s = timeout_s
        self.worker_pid: int | None = None
        self.gateway_pid: int | None = None
        self._group = execnet.Group()
        self._gateway: Any = None
        self._channel: Any = None
        self._loaded: IsolatedPair | None = None

    def describe(self) -> EngineInfo:
        """Versions, device and memory limit of the worker's side; see ``Engine.describe``."""
        found = self.call("describe", "starting", {})
        found["details"]["worker_gateway"] = self.spec
        return EngineInfo(**found)

    def load(self, inputs: Inputs) -> IsolatedPair:
        """Load both models in the worker; see ``Engine.load``."""
        if inputs.target is None or inputs.draft is None:
            raise EngineError("no pair was given")
        request = {
            "target": reference(inputs.target),
            "draft": reference(inputs.draft),
            "trust_remote_code": inputs.trust_remote_code,
        }
        return IsolatedPair(self, request)

    def load_into(self, pair: IsolatedPair, request: Mapping[str, Any]) -> PairInfo:
        """Make this the worker's pair, in place of any other."""
        self._loaded = None
        target, draft = self.call("load", "loading the pair", request)
        self._loaded = pair
        return PairInfo(ModelInfo(**target), ModelInfo(**draft))

    def has(self, pair: IsolatedPair) -> bool:
        """The worker lives and holds this pair."""
        return self._loaded is pair

    def close(self) -> None:
        """End the worker and its gateway; a later call starts them again."""
        self._end_worker()
        self._gateway = None
        self._group.terminate(timeout=_END_S)

    # -- one call ----------------------------------------------------------------------------------

    def call(
        self, do: str, doing: str, request: Mapping[str, Any], tick: Tick | None = None
    ) -> Any:
        """The worker's answer.

        Args:
            do: what is asked for.
            doing: the same in words, for messages.
            request: plain JSON values.
            tick: told of progress while the worker is at it.

        Raises:
            EngineError: the worker says why not; or it, or its gateway, ended.
        """
        deadline = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        try:
            if self._channel is None:
                self._start()
            self._channel.send(json.dumps({**request, "do": do}).encode() + b"\n")
            return self._answer(doing, deadline, tick)
        except execnet.TimeoutError:
            self._end_worker()
            raise EngineError(
                f"no answer within {self.timeout_s:g} s (--spec-timeout) while {doing}, so the "
                "worker was killed"
            ) from None
        except execnet.RemoteError as error:
            self.close()
            *_, last = str(error).split("\n")
            raise EngineError(f"no worker can run in the gateway {self.spec}: {last}") from None
        except (EOFError, OSError):
            self.close()
            raise EngineError(
                f"connection lost while {doing}: the gateway {self.spec} ended, and the worker "
                "with it"
            ) from None
        except BaseException as error:  # Ctrl-C above all: nobody waits for that answer any more
            if not isinstance(error, EngineError):
                self._end_worker()
            raise

    def _answer(self, doing: str, deadline: float | None, tick: Tick | None) -> Any:
        next_tick = 0.0
        while True:
            message = self._receive(deadline)
            if "started" in message:
                self.worker_pid, self.gateway_pid = message["started"], message["gateway"]
            elif "ended" in message:
                self._end_worker()
                raise EngineError(how_it_ended(message["ended"], message["stderr"], doing))
            elif "failed" in message:
                raise (Unsupported if message["unsupported"] else EngineError)(message["failed"])
            elif "done" in message:
                return message["done"]
            elif tick is not None and message["tick"][1] >= next_tick:
                next_tick = tick(*message["tick"])

    def _receive(self, deadline: float | None) -> dict[str, Any]:
        """The next message; what is none (a print from before the worker ran) is skipped."""
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            found = self._channel.receive(left)
            if isinstance(found, bytes):
                try:
                    found = json.loads(found)
                except ValueError:
                    continue
            if isinstance(found, dict):
                return found

    # -- processes ---------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._gateway is None:
            self._gateway = self._open()
        self._channel = self._gateway.remote_exec(supervisor)
        self._channel.send(worker_source().encode())

    def _open(self) -> Any:
        """A new gateway; of one that does not come up nothing is left open.

        Raises:
            EngineError: why it does not.
        """
        with warnings.catch_warnings():
            # execnet leaves its pipes to the garbage collector then
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                return self._group.makegateway(self.spec)
            except Exception as error:
                message = " ".join(str(error).split())[:_CLIP] or "it ended at once"
                problem = f"{type(error).__name__}: {message}"
            gc.collect()
        raise EngineError(f"the gateway {self.spec} cannot be opened: {problem}")

    def _end_worker(self) -> None:
        """Have the worker killed if it lives, and wait until it is gone."""
        channel, self._channel, self._loaded, self.worker_pid = self._channel, None, None, None
        if channel is None:
            return
        try:
            channel.send(None)
            channel.waitclose(_END_S)
        except (EOFError, OSError, execnet.RemoteError):
            pass  # the gateway is gone or does not answer; its own end ends the worker


def how_it_ended(code: int, stderr: str, doing: str) -> str:
    """A worker's return code and last words, for the user."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (the system sends it when memory runs out)" if name == "SIGKILL" else ""
        what = f"the worker was ended by {name}{hint} while {doing}"
    else:
        what = f"the worker ended with exit code {code} while {doing}"
    words = _last_words(stderr)
    return f"{what}; {words}" if words else what


def _last_words(stderr: str) -> str:
    """What was said just before the end, and where Python was, by faulthandler."""
    before, _, crash = stderr.partition("Fatal Python error: ")
    said = " ".join(before.split())[-_CLIP:]
    # a thread of a library is none of Python's; its main thread is listed last
    crash = crash.partition("Current thread")[2] or crash.rpartition("most recent call first")[2]
    where = re.search(r'File "([^"]+)", line (\d+) in (\S+)', crash)
    words = [f"it said: {said}"] if said else []
    if where:
        words.append(f"Python was in {where[3]} ({Path(where[1]).name}:{where[2]})")
    return "; ".join(words)


def _path(num_draft_tokens: int | None) -> str:
    return "on the plain path" if num_draft_tokens is None else f"with k={num_draft_tokens}"


class IsolatedPair:
    """A pair in a worker. Its models are not here."""

    isolated = True
    target = draft = tokenizer = None

    def __init__(self, engine: IsolatedEngine, request: Mapping[str, Any]) -> None:
        """Load it; where that fails after a death, it is not tried a third time."""
        self._engine = engine
        self._request = request
        self._lost: EngineError | None = None
        self.info = engine.load_into(self, request)

    def _ask(
        self, do: str, doing: str, request: Mapping[str, Any], tick: Tick | None = None
    ) -> Any:
        if self._lost is not None:
            raise self._lost
        if not self._engine.has(self):
            try:
                self._engine.load_into(self, self._request)
            except EngineError as error:
                self._lost = EngineError(f"the pair could not be loaded again: {error}")
                raise self._lost from None
        return self._engine.call(do, doing, request, tick)

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """Prompt ids; see ``Pair.encode``."""
        request = {"text": text, "chat_template_args": dict(chat_template_args)}
        return tuple(self._ask("encode", "turning the prompt into tokens", request))

    def generate(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        observe: bool = False,
        tick: Tick | None = None,
    ) -> Generation:
        """One run in the worker, timed there; see ``Pair.generate``."""
        request = {
            "prompt": list(prompt),
            "decoding": options(decoding, max_tokens),
            "num_draft_tokens": num_draft_tokens,
            "observe": observe,
            "tick": tick is not None,
        }
        return generation_of(
            self._ask("generate", f"generating {_path(num_draft_tokens)}", request, tick)
        )

    def second_turn(
        self,
        prompt: Sequence[int],
        texts: tuple[str, str],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        chat_template_args: Mapping[str, Any],
    ) -> Turns:
        """Two turns in the worker; see ``KeepsCaches.second_turn``."""
        request = {
            "prompt": list(prompt),
            "texts": list(texts),
            "decoding": options(decoding, max_tokens),
            "num_draft_tokens": num_draft_tokens,
            "chat_template_args": dict(chat_template_args),
        }
        doing = f"going on with a second turn {_path(num_draft_tokens)}"
        return turns_of(self._ask("second_turn", doing, request))

    def score(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> Scores | None:
        """One pass of the target in the worker; see ``Pair.score``."""
        request = {
            "prompt": list(prompt),
            "tokens": list(tokens),
            "prefill_step_size": decoding.prefill_step_size,
        }
        return scores_of(self._ask("score", "scoring the output", request))

    def choices(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> tuple[int, ...]:
        """One pass of the draft in the worker; see ``Drafts.choices``."""
        request = {
            "prompt": list(prompt),
            "tokens": list(tokens),
            "prefill_step_size": decoding.prefill_step_size,
        }
        return tuple(self._ask("choices", "running the draft over the output", request))

    def spell(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """Texts by the target's tokenizer; see ``Drafts.spell``."""
        request = {"tokens": list(tokens)}
        return tuple(self._ask("spell", "turning tokens into text", request))

    def pass_costs(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        depths: Sequence[int],
        prompt_lengths: Sequence[int],
        rounds: int = 5,
    ) -> PassCosts:
        """Seconds of single passes, timed in the worker; see ``Costs.pass_costs``."""
        request = {
            "prompt": list(prompt),
            "decoding": options(decoding, max_tokens=1),
            "depths": list(depths),
            "prompt_lengths": list(prompt_lengths),
            "rounds": rounds,
        }
        return costs_of(self._ask("pass_costs", "timing single passes", request))

    def score_sampled(
        self,
        prompt: Sequence[int],
        tokens: Sequence[int],
        decoding: Decoding,
        ratios: Sequence[float],
    ) -> SampledScores:
        """The same with the law of the sampler; see ``KnowsItsLaw.score_sampled``."""
        request = {
            "prompt": list(prompt),
            "tokens": list(tokens),
            "decoding": options(decoding, len(tokens)),
            "ratios": list(ratios),
        }
        return sampled_scores_of(self._ask("score_sampled", "scoring the output", request))
