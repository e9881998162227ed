"""Are the two tokenizers really one? Token ids of varied text, not the size of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..text import shown
from .finding import Finding, Subject

_TEXTS = (
    "請說明天空為什麼是藍色的，並舉一個生活中的例子。",  # noqa: RUF001  # as people write it
    "def fib(n: int) -> int:\n\treturn n if n < 2 else fib(n - 1) + fib(n - 2)\n",
    '{"id": 17, "tags": ["a", null, true], "price": -0.5e3}',
    "👩‍🚀🇹🇼 naïve café — e\u0301 ﬁ",
    "  two  spaces,\ttabs\t\tand\r\n\r\nlines   ",
    "Привет, שלום, مرحبا, नमस्ते, 안녕하세요, こんにちは",
    "0123456789 1234567 3.14159 1,000,000",
    "<think></think><|im_start|>user\n[INST] </s><s>",
)


def same_ids(subject: Subject) -> Iterator[Finding]:
    """Every text gives the same ids, special tokens included."""
    ours, theirs = subject.pair.tokenizer, _draft(subject)
    special = {str(token) for side in (ours, theirs) for token in side.all_special_tokens}
    for text in (*_TEXTS, *sorted(special)):
        one, other = (side.encode(text, add_special_tokens=False) for side in (ours, theirs))
        if list(one) != list(other):
            at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            yield Finding(
                "error",
                "draft tokenizer",
                f"{shown(text[:40])!r} is {_ids(one, at)} for the target and {_ids(other, at)} for "
                "the draft",
                "Use a draft with the target's own tokenizer: else its proposals mean other text.",
            )
            return


def _ids(ids: list[int], at: int) -> str:
    return f"[{'.. ' if at else ''}{' '.join(map(str, ids[at : at + 6]))}]"


def same_special_tokens(subject: Subject) -> Iterator[Finding]:
    """The special-token maps agree; only the target's are used."""
    ours, theirs = subject.pair.tokenizer, _draft(subject)
    for name in ("bos_token_id", "eos_token_id", "unk_token_id"):
        one, other = getattr(ours, name, None), getattr(theirs, name, None)
        if one != other:
            yield Finding(
                "note",
                "draft tokenizer",
                f"{name} is {other}, the target's is {one}",
                "Nothing to do: generation follows the target's.",
            )


def chat_templates(subject: Subject) -> Iterator[Finding]:
    """The target's template is used for both; a draft trained with another one accepts less."""
    ours = getattr(subject.pair.tokenizer, "chat_template", None)
    theirs = getattr(_draft(subject), "chat_template", None)
    if not ours:
        yield Finding(
            "note",
            "target chat template",
            "there is none: prompts go in as they are",
            "Give prompts in the form the model was trained on.",
        )
    elif ours != theirs:
        yield Finding(
            "note",
            "draft chat template",
            "it differs from the target's, and only the target's is used",
            "Nothing to do, unless few proposals are accepted.",
        )


def _draft(subject: Subject) -> Any:
    return subject.pair.draft_tokenizer  # type: ignore[attr-defined]  # asked for before
