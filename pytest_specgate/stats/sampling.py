"""Are tokens drawn by a known law? Likelihood ratios, whose false alarms are bounded exactly.

A product of ratios q(x)/p(x) over tokens x drawn by p has the mean 1 whatever q is, as long as q is
chosen before the token is seen. So it exceeds 1/alpha with a chance of alpha at most (Ville 1939),
for any number of tokens, any laws, and however the prefix came about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

# temperatures that a path may use in place of the configured one, over that one; 0.1 is greedy
TEMPERATURE_RATIOS = (0.1, 0.5, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
# shares of proposals that a path may accept without a check
UNCHECKED_SHARES = (0.005, 0.02, 0.1, 0.5)


def log_mean_exp(logs: Sequence[float]) -> float:
    """ln of the mean of exp(logs)."""
    most = max(logs)
    if math.isinf(most):
        return most
    return most + math.log(math.fsum(math.exp(value - most) for value in logs) / len(logs))


def other_temperature(drawn: Sequence[float], tempered: Sequence[Sequence[float]]) -> float:
    """ln of the evidence that tokens were drawn at another temperature than the law's.

    Args:
        drawn: log probability of each token under the law.
        tempered: the same under the law at each of the other temperatures.
    """
    own = math.fsum(drawn)
    return log_mean_exp([math.fsum(row) - own for row in tempered] or [0.0])


def unchecked_proposals(
    drawn: Sequence[float], from_draft: Sequence[bool], proposed: Sequence[bool]
) -> float:
    """ln of the evidence that a share of proposals was accepted whatever the target said.

    A proposal that is checked is accepted with p(x), one that is not with certainty, so an accepted
    x counts (1 - e) + e / p(x) and a refusal 1 - e. What the draft's own law is does not matter.

    Args:
        drawn: log probability of each token under the target's law.
        from_draft: the token is an accepted proposal.
        proposed: there was a proposal for the token's position.
    """
    logs = []
    for share in UNCHECKED_SHARES:
        kept, total = math.log1p(-share), 0.0
        for own, accepted, judged in zip(drawn, from_draft, proposed, strict=True):
            if not judged:
                continue
            total += _log_sum(kept, math.log(share) - own) if accepted else kept
        logs.append(total)
    return log_mean_exp(logs)


def _log_sum(first: float, second: float) -> float:
    high, low = max(first, second), min(first, second)
    return high + math.log1p(math.exp(low - high))


def beyond_chance(evidence: Iterable[float]) -> float:
    """At most the chance that evidence as large as the mean of these arises by the law itself.

    Args:
        evidence: natural logs, of one sample.
    """
    return min(1.0, math.exp(-log_mean_exp(list(evidence))))
