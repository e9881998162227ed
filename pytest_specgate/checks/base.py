"""What a check is: a function of one output that says what is wrong with it, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config.plan import Prompt
from ..config.spec import Invalid, Spec, found, nearest
from ..engines.base import Generation
from ..text import in_a_line


@dataclass(frozen=True, slots=True)
class Output:
    """One output of one path, as a check sees it.

    Attributes:
        text: nothing normalised.
        tokens: emitted ids, a final end-of-text id included.
        finish_reason: ``stop``, ``length``, or None where the engine does not say.
        prompt_id, prompt_kind, prompt_text: of the prompt that was answered.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str | None
    prompt_id: str
    prompt_kind: str
    prompt_text: str

    @classmethod
    def of(cls, prompt: Prompt, generation: Generation) -> Output:
        """What a path emitted for a prompt."""
        return cls(
            generation.text,
            tuple(generation.tokens),
            generation.finish_reason,
            prompt.id,
            prompt.kind,
            prompt.text,
        )

    @property
    def cut(self) -> bool:
        """It did not stop by itself."""
        return self.finish_reason == "length"


class CheckFault(Exception):
    """A check cannot judge: it, or what it was given, is at fault and not the output."""


class Stalled(Exception):
    """A pattern was stopped, since it had searched for too long; the text is for the user."""


def _no_complaint(options: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class Check:
    """One check, by the name that prompts and gates files give.

    Attributes:
        name: as in ``"checks": [{"json": {}}]``.
        run: (output, options) -> what is wrong with the output, or None. It never executes what it
            is given.
        options: option -> how it is checked; those without a default must be given.
        defaults: of the options that may be left out.
        short: the option that a bare value stands for, as in ``{"contains": "total"}``.
        complaint: why these options cannot be judged with, or None; asked when the gate is.
    """

    name: str
    run: Callable[[Output, Mapping[str, Any]], str | None]
    options: Mapping[str, Spec] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    short: str | None = None
    complaint: Callable[[Mapping[str, Any]], str | None] = _no_complaint

    def checked(self, given: Any, base: Any) -> dict[str, Any]:
        """Every option: the given ones checked, the rest from the defaults.

        Args:
            given: a mapping of options, nothing, or a bare value for the option ``short``.
            base: the folder that relative paths start from.

        Raises:
            Invalid: names the option, what was found and what is allowed.
        """
        if self.short and given is not None and not isinstance(given, dict):
            given = {self.short: given}
        if given is not None and not isinstance(given, dict):
            raise Invalid(
                f"{self.name} must be a mapping of options (or {{}}), found {found(given)}"
            )
        options = dict(self.defaults)
        for key, value in (given or {}).items():
            if key not in self.options:
                allowed = ", ".join(self.options) or "none: it takes no option"
                raise Invalid(
                    f"{self.name} has no option {key!r}{nearest(key, self.options)} "
                    f"(allowed: {allowed})"
                )
            try:
                options[key] = self.options[key].at(base)(value)
            except Invalid as error:
                raise Invalid(f"{self.name}.{key} {error}") from None
        for key, spec in self.options.items():
            if key not in options:
                raise Invalid(f"{self.name}.{key} is missing (allowed: {spec.allowed})")
        return options


def message_of(check: Check, output: Output, options: Mapping[str, Any]) -> str | None:
    """What a check says of one output; an assertion that fails in it is its message.

    Raises:
        CheckFault: it broke, or gave something that is no message.
        Stalled: it was stopped.
    """
    import pytest

    try:
        said: object = check.run(output, options)
    except (CheckFault, Stalled):
        raise
    except (AssertionError, pytest.fail.Exception) as error:
        # pytest puts what it knows of the values on further lines
        return str(error).strip().partition("\n")[0][:300] or "an assertion of the check failed"
    except (RecursionError, MemoryError) as error:
        return f"it nests too deeply to be checked ({type(error).__name__})"
    except Exception as error:
        raise CheckFault(f"it broke on an output: {in_a_line(error)}") from error
    if said is None:
        return None
    if not isinstance(said, str) or not said.strip():
        raise CheckFault(f"it gave {found(said)} where a message, or None, is due")
    return said
