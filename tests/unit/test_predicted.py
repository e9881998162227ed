"""measure/prediction.py: costs of depths and widths, acceptance by position, a row for every k."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_specgate.engines.base import DepthCosts, FirstToken, LoopCost, PassCosts
from pytest_specgate.measure.blocks import Block, Blocks
from pytest_specgate.measure.prediction import (
    MOST,
    Output,
    costs_at,
    outputs_of,
    position_acceptance,
    predict,
)
from tests.fakes import make_evidence, timed_case


def depth_costs(depth: int, plain: float) -> DepthCosts:
    """A draft step costs 0.1, a pass 1 + 0.2 a token more, a block 0.05 + 0.01 k besides."""

    def block(k: int, whole: float) -> float:
        return plain * (0.1 * k + 0.04 * whole + 1 + 0.2 * k + 0.05 + 0.01 * k)

    return DepthCosts(
        depth=depth,
        plain_s=plain,
        draft_s=(0.1 * plain, 0.14 * plain),
        target_s=tuple((width, plain * (0.8 + 0.2 * width)) for width in (1, 3, 7, 11, 17)),
        loops=tuple(
            LoopCost(k, block(k, whole), whole, 1.0)
            for k, whole in ((1, 0.9), (4, 0.5), (8, 0.0), (16, 0.1))
        ),
    )


# a plain token takes 1 s at a depth of 10 and 3 s at 50
COSTS = PassCosts(
    depths=(depth_costs(10, 1.0), depth_costs(50, 3.0)),
    first=(FirstToken(10, 4.0, 9.0), FirstToken(30, 8.0, 15.0)),
)
THREE = Blocks((Block(3, 3), Block(3, 1), Block(2, 1)), 8)


def output(name: str = "a", kind: str = "json", **more: object) -> Output:
    """Eight tokens after a prompt of ten, so a mean depth of 14."""
    made = Output(name, kind, prompt_tokens=10, emitted=8, blocks={3: THREE})
    return replace(made, **more)  # type: ignore[arg-type]  # any field


def test_costs_between_depths_and_widths() -> None:
    """Linear in both; outside of the depths as at the nearest."""
    assert costs_at(COSTS, 30.0).plain == pytest.approx(2.0)
    assert (costs_at(COSTS, 1.0).plain, costs_at(COSTS, 99.0).plain) == (1.0, 3.0)
    at = costs_at(COSTS, 30.0)
    assert at.target == pytest.approx([2 * (0.8 + 0.2 * width) for width in range(1, MOST + 2)])
    assert (at.draft, at.draft_after_whole) == pytest.approx((0.2, 0.28))
    assert at.rest[1:] == pytest.approx([2 * (0.05 + 0.01 * k) for k in range(1, MOST + 1)])


def test_acceptance_by_position() -> None:
    """Given those before it: 5 of 6, 2 of 3, 1 of 1. What the end cut off is not judged."""
    blocks = [Block(3, 3), Block(3, 1), Block(3, 1, "eos"), Block(3, 0), Block(1, 1, "max_tokens")]
    assert position_acceptance(Blocks((*blocks, Block(2, 2)), 0)) == (5 / 6, 2 / 3, 1.0)
    assert position_acceptance(Blocks((Block(3, 0), Block(3, 0)), 2)) == (0.0,)
    assert position_acceptance(Blocks((Block(3, 0, "eos"),), 1)) == ()
    assert position_acceptance(Blocks()) == ()


def test_one_prompt_by_hand() -> None:
    """k = 3 from its own blocks, at a mean depth of 14 where a plain token takes 1.2 s.

    Plain: a first token of 4 s less a token, and 8 tokens. Speculative: a first token of 9 s less a
    block of one proposal, then three blocks of which the second follows a whole one.
    """
    found = predict(COSTS, [output(measured={3: 0.5})], least=1.15)
    assert (found.depth, found.plain_s) == pytest.approx((14.0, 1.2))
    assert (found.draft, found.draft_after_whole) == pytest.approx((0.1, 0.14))
    assert found.alpha == THREE.token_acceptance == 5 / 7
    assert found.positions == (1.0, 1 / 3, 1.0)

    def block(k: int) -> float:
        return 1.2 * (0.1 * k + 1 + 0.2 * k + 0.05 + 0.01 * k)

    plain = 4 - 1.2 + 8 * 1.2
    ours = 9 - block(1) + 2 * block(3) + block(2) + 1.2 * 0.04
    row = found.rows[2]
    assert row.speedup == pytest.approx(plain / ours)
    assert (row.num_draft_tokens, row.origin) == (3, "blocks")
    assert row.tokens_per_block == pytest.approx(8 / 3)
    assert row.by_kind == {"json": row.speedup}
    assert (row.verify, row.rest) == pytest.approx((1.6, 0.08))
    spent = (0.1 * 8 + 0.04, 1.6 * 2 + 1.4, 0.08 * 2 + 0.07)
    assert row.shares == pytest.approx([each / sum(spent) for each in spent])
    assert row.measured == 0.5
    assert row.error == found.errors["a", 3] == pytest.approx(row.speedup / 0.5 - 1)
    assert found.error == pytest.approx(abs(row.speedup / 0.5 - 1))


def test_break_even_of_a_row() -> None:
    """At one proposal a block costs 0.1 + 1.2 + 0.06 plain tokens, and 0.04 after a whole one."""
    row = predict(COSTS, [output()], least=1.15).rows[0]
    assert row.break_even == pytest.approx((1.36 - 1) / (1 - 0.04))
    assert row.break_even_gate == pytest.approx((1.15 * 1.36 - 1) / (1 - 1.15 * 0.04))


def test_every_k_has_a_row() -> None:
    """Those without blocks of their own come from the positions, beyond the last as there."""
    found = predict(COSTS, [output()], least=1.15)
    assert [row.num_draft_tokens for row in found.rows] == list(range(1, 17))
    origins = {row.num_draft_tokens: row.origin for row in found.rows}
    assert origins == {**dict.fromkeys(range(1, 17), "positions"), 3: "blocks"}
    assert found.rows[0].tokens_per_block == pytest.approx(2.0)
    assert found.rows[4].tokens_per_block == pytest.approx(1 + 1 + 1 / 3 * 4)
    assert all(row.error is row.measured is None for row in found.rows)
    assert found.error is None
    assert found.best is not None
    assert found.best.speedup == max(row.speedup for row in found.rows)


def test_prompts_and_kinds() -> None:
    """Medians over prompts; a k is of blocks only where every prompt has them."""
    poor = Blocks(tuple(Block(3, 0) for _ in range(8)), 8)
    outputs = [
        output("a", "json", measured={3: 0.9}),
        output("b", "json", blocks={3: poor}, measured={3: 0.4}),
        output("c", "python", blocks={2: THREE}),
    ]
    found = predict(COSTS, outputs, least=1.0)
    row = found.rows[2]
    assert row.origin == "positions"
    assert set(found.errors) == {("a", 3), ("b", 3)}
    singly = [predict(COSTS, [each], least=1.0).rows[2].speedup for each in outputs]
    alone = dict(zip("abc", singly, strict=True))
    assert row.by_kind == pytest.approx(
        {"json": (alone["a"] + alone["b"]) / 2, "python": alone["c"]}
    )
    assert row.speedup == pytest.approx(sorted(alone.values())[1])
    assert row.measured == pytest.approx(0.65)
    assert row.error == pytest.approx((alone["a"] + alone["b"]) / 2 / 0.65 - 1)


def test_nothing_was_judged() -> None:
    """No row, and nothing to say of acceptance."""
    for outputs in ([], [output(blocks={3: Blocks((Block(3, 0, "eos"),), 1)})]):
        found = predict(COSTS, outputs, least=1.0)
        assert (found.rows, found.alpha, found.positions) == ((), None, ())
        assert (found.error, found.best, found.errors) == (None, None, {})


def test_outputs_of_measured_evidence() -> None:
    """Each timed case with the blocks and the median ratio of each k."""
    case = timed_case("a", [4.0, 4.0, 9.0], [2.0, 4.0, 3.0], kind="json")
    (found,) = outputs_of(make_evidence(case))
    (arm,) = case.speculative
    assert (found.prompt, found.kind) == ("a", "json")
    assert (found.prompt_tokens, found.emitted) == (
        len(case.tokens),
        len(case.plain.generation.tokens),
    )
    assert found.blocks == {3: arm.blocks}
    assert found.measured == {3: 2.0}
