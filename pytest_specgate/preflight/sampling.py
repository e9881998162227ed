"""Do the sampling options reach both paths, and do they mean the same there?"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

from ..config.plan import Decoding
from .finding import Finding, Subject

_COINS = 40  # with which two rows agree by chance once in 10^12
_LEAVE_OUT = "Leave it out while a draft is in use, or use a release of mlx-lm that mends it."


def sampling_options(subject: Subject) -> Iterator[Finding]:
    """Each filter acts, mlx-lm has it, and a block of rows gets what each row alone would get.

    The plain path samples one row a pass, the speculative path all rows of a block at once.
    """
    decoding, module = subject.inputs.decoding, importlib.import_module("mlx_lm.sample_utils")
    if not decoding.filters:
        return
    names = ", ".join(decoding.filters)
    if not decoding.temperature:
        yield Finding(
            "warning",
            "sampling options",
            f"{names}: without effect at temperature 0, where the likeliest token is taken",
            "Set decoding.temperature, or leave them out.",
        )
        return
    takes = inspect.signature(module.make_sampler).parameters
    for name in decoding.filters:
        if name not in takes:
            yield Finding(
                "error",
                "sampling options",
                f"mlx-lm has no {name}",
                "Leave it out, or use a newer release.",
            )
    rows = subject.pair.info.target.embedding_rows
    if rows is not None and decoding.top_k >= rows:
        yield Finding(
            "error",
            "sampling options",
            f"top_k {decoding.top_k} is not below the {rows} tokens of the target, as mlx-lm asks",
            "Leave it out: it would filter nothing.",
        )
    for name, keep in _filters(module, decoding).items():
        if name in takes and rows_mix(keep):
            yield Finding(
                "warning",
                "sampling options",
                f"{name} on the speculative path: what a row keeps depends on the other rows of "
                "its block",
                _LEAVE_OUT,
            )
    if decoding.xtc_probability and one_coin_for_all_rows(module.apply_xtc):
        yield Finding(
            "warning",
            "sampling options",
            "xtc_probability on the speculative path: one coin is thrown for a whole block, on the "
            "plain path one for each token",
            _LEAVE_OUT,
        )


def _filters(module: Any, decoding: Decoding) -> dict[str, Callable[[Any], Any]]:
    """Option -> the filter of mlx-lm as it is set, on rows of eight log probabilities."""
    made: dict[str, Callable[[Any], Any]] = {
        "top_p": lambda rows: module.apply_top_p(rows, decoding.top_p),
        "top_k": lambda rows: module.apply_top_k(rows, min(decoding.top_k, 4)),
        "min_p": lambda rows: module.apply_min_p(rows, decoding.min_p, 1),
        # surely: the coin is another matter; a low threshold, so that something is left out
        "xtc_probability": lambda rows: module.apply_xtc(rows, 1.0, 0.01, []),
    }
    return {name: made[name] for name in decoding.filters}


def _rows() -> Any:
    """Three rows over eight tokens, one nearly certain, one flat, one between."""
    import mlx.core as mx

    logits = mx.array(
        [[9.0, *range(7)], [0.1 * n for n in range(8)], [0.7 * (n % 5) for n in range(8)]]
    )
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def rows_mix(keep: Callable[[Any], Any]) -> bool:
    """A filter treats a row otherwise when further rows stand beside it."""
    import mlx.core as mx

    rows = _rows()
    together = keep(rows)
    alone = mx.concatenate([keep(rows[number : number + 1]) for number in range(len(rows))])
    return bool(((together > -math.inf) != (alone > -math.inf)).any().item())


def one_coin_for_all_rows(apply_xtc: Callable[..., Any]) -> bool:
    """The coin of xtc falls alike in all rows."""
    import mlx.core as mx

    row = _rows()[1:2]
    both = mx.concatenate([row, row])
    for _ in range(_COINS):
        fell = (apply_xtc(both, 0.5, 0.01, []) > -math.inf).sum(axis=-1)
        if fell[0].item() != fell[1].item():
            return False
    return True
