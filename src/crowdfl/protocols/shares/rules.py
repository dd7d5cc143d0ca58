"""The rules that pay, as one: what KGC deals for a round's rewards, and both servers' halves from scores to rewards.

| rule | exchanges, after the one that opens the masked sum of all lanes |
|---|---|
| `gate` | operands, comparisons, bits, table, products: 5 (6 where it must divide) |
| `agreement` | comparisons, bits, division (2), products: 5 |
| `distance` | operands, divisions (2), products, division (2), products: 7 |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crowdfl.protocols.shares import agreement, distance, gate, payout
from crowdfl.protocols.shares.circuits.program import Half
from crowdfl.protocols.shares.circuits.reciprocal import Divider
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.rule_widths import RoundScores, RuleWidths

Watch = Callable[[RoundScores, Sequence[int]], None]
"""Told a server's shares of the scores and of the weights: both servers' together open them."""

_DealtRule = gate.DealtGate | agreement.DealtAgreement | distance.DealtDistance


@dataclass(frozen=True)
class DealtRewards:
    rule: _DealtRule
    payout: payout.DealtPayout

    @property
    def total_mask(self) -> Dealt | None:
        """Modulo 2^R, for the total of samples, which is opened before a rule begins; None where the rule does not ask for
        it."""
        return self.rule.total if isinstance(self.rule, distance.DealtDistance) else None


def deal(cards: Cards, widths: RuleWidths, samples: Dealt) -> DealtRewards:
    """`samples` are the masks, one for each slot, under which the samples are opened modulo 2^R."""
    return DealtRewards(_deal_rule(cards, widths, samples), payout.deal(cards, widths.payout))


def _deal_rule(cards: Cards, widths: RuleWidths, samples: Dealt) -> _DealtRule:
    if widths.rule == "gate":
        return gate.deal(cards, widths, samples)
    if widths.rule == "agreement":
        return agreement.deal(cards, widths)
    return distance.deal(cards, widths, samples)


def weights(divider: Divider, widths: RuleWidths, dealt: DealtRewards, scores: RoundScores) -> Half[list[int]]:
    """Shares modulo 2^weight_bits of everyone's weight."""
    if isinstance(dealt.rule, gate.DealtGate):
        return (yield from gate.weights(divider.side, widths, dealt.rule, scores))
    if isinstance(dealt.rule, agreement.DealtAgreement):
        return (yield from agreement.weights(divider.side, widths, dealt.rule, scores))
    return (yield from distance.weights(divider, widths, dealt.rule, scores))


def unwatched(scores: RoundScores, weights: Sequence[int]) -> None:
    """The watch of every server but a laboratory's."""


def rewards(
    divider: Divider,
    widths: RuleWidths,
    dealt: DealtRewards,
    scores: RoundScores,
    budget: int,
    watch: Watch = unwatched,
) -> Half[list[int]]:
    """Shares modulo 2^128 of everyone's reward, in millionths, in the order of the scores."""
    weighed = yield from weights(divider, widths, dealt, scores)
    watch(scores, weighed)
    return (yield from payout.rewards(divider, widths.payout, dealt.payout, weighed, budget))
