"""A prompt cache kept for a second turn, and options tried alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .cases import CASES, SEVEN, alone
from .conftest import Visit


def test_second_turn(visit: Visit) -> None:
    """The last token was not drafted: the cache is one token short, on the speculative path."""
    seen = visit("second-turn")
    verdict = seen.verdict("reuse")
    assert (seen.exit, seen.parity) == (1, "passed")
    assert (verdict["status"], verdict["kind"]) == ("failed", "cache-corruption")
    assert verdict["reason"].startswith("speculative path (k = 3): ")
    assert "differs from a fresh run" in verdict["reason"]
    assert "the kept cache is 1 token short" in verdict["reason"]
    plain, speculative = (verdict["evidence"][arm] for arm in ("plain", "k=3"))
    assert (plain["said_to_hold"], plain["holds"]) == (31, [31, 31])
    assert (speculative["said_to_hold"], speculative["holds"]) == (31, [30, 30])
    assert (plain["first_difference"], speculative["last_token_drafted"]) == (None, False)


@pytest.mark.parametrize(("max_tokens", "drafted"), [(23, True), (24, False)])
def test_second_turn_by_its_last_token(visit: Visit, max_tokens: int, drafted: bool) -> None:
    """Blocks of four, all accepted: only a last token of the draft leaves a whole cache."""
    seen = visit(replace(CASES["second-turn"], draft="target", max_tokens=max_tokens))
    verdict = seen.verdict("reuse")
    turn = verdict["evidence"]["k=3"]
    assert turn["last_token_drafted"] is drafted
    assert turn["holds"] == [7 + max_tokens - (not drafted)] * 2
    assert verdict["status"] == ("passed" if drafted else "failed")


def test_shared_caches(visit: Visit) -> None:
    """A caller's prompt_cache is split by the number of layers, of which two have no cache."""
    seen = visit("shared-caches")
    verdict = seen.verdict("reuse")
    assert (seen.exit, seen.parity, verdict["status"]) == (1, "passed", "failed")
    assert verdict["kind"] == "cache-corruption"
    words = "with a prompt_cache of the caller's own the first turn differs from token"
    assert words in verdict["reason"]
    assert verdict["details"][0].split() == ["plain", "equal"]
    assert any(line.startswith("warning target cache: 2 caches") for line in seen.preflight)


def test_max_kv_size(visit: Visit) -> None:
    """Dropped without a word once there is a draft."""
    seen = visit("max-kv-size")
    verdict = seen.verdict("options")
    assert (seen.exit, seen.parity, verdict["status"]) == (1, "passed", "failed")
    assert verdict["kind"] == "options-differ"
    assert "it has no effect on the speculative path" in verdict["reason"]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("start", [0, 30])
def test_kv_bits(visit: Visit, bits: int, start: int) -> None:
    """Reaches both paths."""
    row = replace(CASES["kv-bits"], gates=alone(f"kv_bits: {bits}"))
    seen = visit(replace(row, decoding=f"kv_group_size: 32, quantized_kv_start: {start}"))
    verdict = seen.verdict("options")
    assert (seen.exit, seen.parity, verdict["status"]) == (0, "passed", "passed")


def test_kv_bits_that_begin_inside_a_block(visit: Visit) -> None:
    """The plain cache is quantised at its token, the speculative one behind the whole block."""
    row = replace(CASES["kv-bits"], prompt=SEVEN, gates=alone("kv_bits: 4"))
    seen = visit(replace(row, decoding="kv_group_size: 32, quantized_kv_start: 30"))
    verdict = seen.verdict("options")
    assert (seen.exit, seen.parity, verdict["status"]) == (1, "passed", "failed")
    # 7 of the prompt and 22 emitted are held before token 22 is computed
    assert "the paths part at output token 22" in verdict["reason"]


def test_an_option_that_no_path_takes(visit: Visit) -> None:
    """Groups of 64 do not fit heads of 32: nothing to compare, so neither green nor red."""
    seen = visit(replace(CASES["kv-bits"], decoding="kv_group_size: 64"))
    verdict = seen.verdict("options")
    assert (seen.exit, verdict["status"]) == (0, "skipped")
    assert "not judged: " in verdict["details"][0]


def test_penalty_alone(visit: Visit) -> None:
    """The gate finds by itself what an option of the engine showed."""
    seen = visit("penalty-alone")
    verdict = seen.verdict("options")
    assert (seen.exit, seen.parity, verdict["status"]) == (1, "passed", "failed")
    assert "the paths part at output token 3" in verdict["reason"]


def test_bias_alone(visit: Visit) -> None:
    """A bias needs no context."""
    seen = visit("bias-alone")
    assert (seen.exit, seen.verdict("options")["status"]) == (0, "passed")


@pytest.mark.parametrize("case", ["second-turn", "penalty-alone"])
def test_the_same_in_a_process_of_its_own(visit: Visit, case: str) -> None:
    """The isolated engine keeps caches and tries options too; its prompts are text."""
    row = replace(CASES[case], engine="mlx-lm", prompt="Say it again.")
    here, apart = (visit(replace(row, options=o)) for o in ((), ("--spec-isolate",)))
    gate = "reuse" if case == "second-turn" else "options"
    ours, theirs = here.verdict(gate), apart.verdict(gate)
    assert ours["evidence"] == theirs["evidence"]
    assert ours["status"] == theirs["status"]
    assert ours["evidence"]
