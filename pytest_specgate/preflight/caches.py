"""Can the caches be rewound, now and at prompt + max_tokens? Their own behaviour is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..engines.base import Pair
from .finding import Finding, Subject

_REFUSE = "Run without a draft, or take a model whose caches can be rewound."


def rewind(subject: Subject) -> Iterator[Finding]:
    """Rejected proposals really leave the cache of either model, at every length in use."""
    lengths = subject.lengths()
    longest = max((length for _, length in lengths), default=0)
    k = max(subject.inputs.num_draft_tokens)
    for role, model in (("target", subject.pair.target), ("draft", subject.pair.draft)):
        for name, make in _distinct(model):
            if not _rewinds(make, 2 * k + 4, k):
                yield Finding("error", f"{role} cache", f"its {name} cannot be rewound", _REFUSE)
                continue
            if longest <= 2 * k + 4 or _rewinds(make, longest, k):
                continue
            most = _longest_good(make, 2 * k + 4, longest, k)
            for prompt, length in lengths:
                if length > most:
                    yield Finding(
                        "error",
                        f"{role} cache",
                        f"its {name} (window {most}) cannot be rewound once it is full, and prompt "
                        f"+ max_tokens is {length} tokens",
                        f"Keep prompt + max_tokens at or under {most} for this model, or switch "
                        "the draft off.",
                        prompt.id,
                    )


def stuck(pair: Pair, length: int, k: int) -> tuple[str, ...]:
    """Names of the target's caches that cannot be rewound once ``length`` tokens are held.

    Args:
        pair: with mlx-lm's own models.
        length: tokens.
        k: proposals of a block.
    """
    return tuple(name for name, make in _distinct(pair.target) if not _rewinds(make, length, k))


def one_a_layer(subject: Subject) -> Iterator[Finding]:
    """mlx-lm splits a caller's prompt_cache by the number of layers."""
    from mlx_lm.models.cache import make_prompt_cache

    for role, model in (("target", subject.pair.target), ("draft", subject.pair.draft)):
        caches, layers = len(make_prompt_cache(model)), len(model.layers)
        if caches != layers:
            yield Finding(
                "warning" if role == "target" else "note",
                f"{role} cache",
                f"{caches} caches for {layers} layers",
                "Never pass a prompt_cache of your own with a draft: it would be split wrongly.",
            )


def _leaves(cache: Any) -> list[Any]:
    """The caches of one layer: a list of caches counts as its parts."""
    inner = getattr(cache, "caches", None)
    if isinstance(inner, list | tuple):
        return [leaf for part in inner for leaf in _leaves(part)]
    return [cache]


def _distinct(model: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(class name, maker of a fresh one) of each kind of cache: most layers share one kind."""
    from mlx_lm.models.cache import make_prompt_cache

    def maker(layer: int, leaf: int) -> Callable[[], Any]:
        return lambda: _leaves(make_prompt_cache(model)[layer])[leaf]

    seen = set()
    for layer, cache in enumerate(make_prompt_cache(model)):
        for number, leaf in enumerate(_leaves(cache)):
            settings = {k: v for k, v in vars(leaf).items() if isinstance(v, int | str)}
            kind = (type(leaf).__name__, *sorted(settings.items()))
            if kind not in seen:
                seen.add(kind)
                yield type(leaf).__name__, maker(layer, number)


def _rewinds(make: Callable[[], Any], length: int, k: int) -> bool:
    """Does a verify pass that ends just under ``length`` tokens leave no trace once rewound?

    Keys are the numbers of their positions. One cache takes k proposals that are then rewound,
    another never saw them; what both return for the next token must hold the same positions.
    """
    probed, control = make(), make()
    if not hasattr(probed, "update_and_fetch"):
        return bool(probed.is_trimmable())
    held = max(length - k - 2, 1)
    for cache in (probed, control):
        _feed(cache, range(held))
    _feed(probed, range(held, held + k + 1))
    _feed(control, range(held, held + 1))
    from mlx_lm.models.cache import trim_prompt_cache

    trim_prompt_cache([probed], k)
    if getattr(probed, "offset", None) != getattr(control, "offset", None):
        return False
    return _feed(probed, [-1]) == _feed(control, [-1])


def _feed(cache: Any, positions: Any) -> list[float]:
    import mlx.core as mx

    keys = mx.array(list(positions), dtype=mx.float32).reshape(1, 1, -1, 1)
    fetched, _ = cache.update_and_fetch(keys, keys)
    return sorted(float(value) for value in fetched.flatten().tolist())


def _longest_good(make: Callable[[], Any], good: int, bad: int, k: int) -> int:
    """The largest length that can still be rewound, between one that can and one that cannot."""
    while bad - good > 1:
        middle = (good + bad) // 2
        if _rewinds(make, middle, k):
            good = middle
        else:
            bad = middle
    return good
