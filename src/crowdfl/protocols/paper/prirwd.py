"""PriRwd as printed: Alg. 4, line by line, over the whole parameter vector. CSP reads distances and rewards off it.

Deviations, each listed in docs/deviations.md: Omega is summed after all distances are known (the printed loop uses it too
early) and over d'_i = d_i + eps, which leaves Eq. 10's ratios as they are and does not divide zero by zero when all models
agree (D10); eps = 10^-L, as the text says (the printed +[[1]] means 10^-2L).
"""

from collections.abc import Generator

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import WidthBudgetExceeded
from crowdfl.protocols.common.sdiv import PaperSdivSp
from crowdfl.protocols.common.smul import PaperSmulSp
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.party import KeyedParty

_Exchange = Generator[bytes, Reply, CipherVector]


class PaperRewardWidths:
    """kappa of every operand of Alg. 4, from the task's bounds: 32 bits, as printed, would be far too few.

    All are numbers of bits. The weights, the payment and the samples are at scale 10^L, the distances at scale 10^2L.
    """

    def __init__(self, budget: WidthBudget, epsilon_units: int, largest_payment: int, sigma: int) -> None:
        self.budget, self.epsilon_units, self.sigma = budget, epsilon_units, sigma
        largest = 2 * budget.encoding.bound
        scale = budget.encoding.scale
        people = budget.max_participants
        self.difference = bits(largest)  # a coordinate of w_i - average
        self.distance = bits(budget.parameters * largest**2 + epsilon_units)  # d'_i
        self.all_distances = self.distance + bits(people)  # Omega
        self.samples = bits(people * budget.max_samples * scale)  # pi
        self.quotient = max(1, self.all_distances - bits(epsilon_units) + 1)  # w_i unscaled: at most Omega over eps
        if self.quotient >= sigma - 1:
            raise WidthBudgetExceeded(f"weights of {self.quotient} bits are not covered by masks of {sigma}")
        self.weight = self.quotient + bits(scale)  # w_i
        self.payment = bits(largest_payment)  # b
        # The factors of Alg. 4's three kinds of SMUL, and kappa of the divisions that make w_i and mu_i.
        self.factors = (self.difference, self.all_distances + self.samples, self.payment + self.weight)
        self.weight_kappa = self.samples + self.all_distances
        self.reward_kappa = self.weight + max(self.payment, bits(scale) + bits(people))


class PaperRewardSp:
    """SP's side of Alg. 4: yields requests for CSP, returns [[mu_i]] for every participant."""

    def __init__(self, party: KeyedParty, widths: PaperRewardWidths) -> None:
        self.party, self.widths = party, widths

    def run(
        self, models: list[CipherVector], samples: CipherVector, average: CipherVector, payment: int, coins: Coins
    ) -> _Exchange:
        """models: [[w_i]] per participant; samples: all [[delta_i]] at scale 10^L; payment: b at scale 10^L."""
        distances = yield from self.distances(models, average, coins)
        return (yield from self.pay(distances, samples, payment, coins))

    def distances(self, models: list[CipherVector], average: CipherVector, coins: Coins) -> _Exchange:
        """Lines 2-4: [[d_i]], the sum of the squares (w_i - average)^2 over the coordinates."""
        party = self.party
        negative = average.negate(backend=party.compute)
        differences = CipherVector.concat([party.add(model, negative) for model in models])
        squares = yield from self._smul(self.widths.difference, differences, differences, coins)
        return party.sums(squares, len(average))

    def pay(self, distances: CipherVector, samples: CipherVector, payment: int, coins: Coins) -> _Exchange:
        """Lines 4-12, of as many numbers as there are people."""
        party = self.party
        w = self.widths
        n = len(distances)
        # Line 4: d'_i = d_i + eps, pi = sum of delta_i, Omega = sum of d'_i.
        distances = party.add(distances, party.encrypt([w.epsilon_units] * n))
        pi, omega = party.sum(samples), party.sum(distances)
        # Line 5 and line 8: the two halves of w_i.
        down = yield from self._smul(w.all_distances + w.samples, _repeat(pi, n), distances, coins)
        up = yield from self._smul(w.all_distances + w.samples, samples, _repeat(omega, n), coins)
        weights = yield from self.divide("weights", w.weight_kappa, up, down, coins)
        b = _repeat(party.encrypt([payment]), n)
        paid = yield from self._smul(w.payment + w.weight, b, weights, coins)
        # Lines 10-12: mu_i = b w_i / sum of w_k.
        scale = self.widths.budget.encoding.scale
        total = party.scale(party.sum(weights), scale)
        return (yield from self.divide("rewards", w.reward_kappa, paid, _repeat(total, n), coins))

    def _smul(self, width: int, x: CipherVector, y: CipherVector, coins: Coins) -> _Exchange:
        smul = PaperSmulSp(self.party, mask_bits=width + self.widths.sigma)
        return (yield from smul.run(x, y, coins))

    def divide(self, purpose: str, kappa: int, x: CipherVector, y: CipherVector, coins: Coins) -> _Exchange:
        decimals = self.widths.budget.decimals
        sdiv = PaperSdivSp(self.party, kappa=kappa, sigma=self.widths.sigma, decimals=decimals)
        quotients = yield from sdiv.run(x, y, coins)
        self.party.view.computed(purpose, (y, quotients))
        return quotients


def _repeat(c: CipherVector, times: int) -> CipherVector:
    return CipherVector.concat([c] * times)
