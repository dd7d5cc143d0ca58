"""Distances and weights of a paid round, opened by an experiment that plays both servers.

No party may see them, and no message carries them. In `paper` and `hardened` the experiment holds both shares of the task's key
and opens the ciphertexts that SP computes on; in `shares` it adds up both servers' shares. All of it stays in this process.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.crypto.randomness import Coins
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.paper.prirwd import PaperRewardSp, PaperRewardWidths
from crowdfl.protocols.paper.profile import PaperSp
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.protocols.shares.rule_widths import RoundScores
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import TaskSettings
from crowdfl_lab.parties import LocalParties

_Division = tuple[CipherVector, CipherVector]  # divisors and results
_Worth = tuple[list[float], list[float]]  # distances, weights


class Watcher(Protocol):
    """Snapshots on at one round's rewards."""

    def opened(self, samples: Sequence[int]) -> _Worth:
        """Everyone's distance and weight in the last round, at the scale of Eq. 10, in the order of the rewards."""


def watch(parties: LocalParties) -> Watcher:
    """Look on at the rewards of these parties from now on."""
    makers: Mapping[str, Callable[[LocalParties], Watcher]] = {
        "paper": PaperWatcher,
        "hardened": HardenedWatcher,
        "shares": SharesWatcher,
    }
    return makers[parties.dealer.spec.settings.profile](parties)


def _weights_of(distances: Sequence[float], raw: Sequence[int], unit: float) -> _Worth:
    return list(distances), [float(value * unit * sum(distances)) for value in raw]


class _KeyedWatcher:
    """Of a profile with a key: the first division of a round makes the weights."""

    def __init__(self, parties: LocalParties) -> None:
        self.parties, self.divisions = parties, list[_Division]()

    @property
    def task(self) -> TaskSettings:
        return self.parties.dealer.spec.settings

    def _open(self, vector: CipherVector) -> list[int]:
        half = keyed_party(self.parties.sp).partial_decrypt(vector)
        return [int(value) for value in to_ints(keyed_party(self.parties.csp).finish(vector, half))]


class HardenedWatcher(_KeyedWatcher):
    def __init__(self, parties: LocalParties) -> None:
        super().__init__(parties)
        cast(HardenedSp, parties.sp).reward_side = self._side

    def _side(self, party: KeyedParty, widths: RewardWidths, packing: Packing, round_number: int) -> RewardSp:
        self.divisions, self._shift = [], widths.shift
        return _WatchedSide(party, widths, packing, round_number, self.divisions)

    def opened(self, samples: Sequence[int]) -> _Worth:
        """As SP has them encrypted: y = Y^2 delta^2 (10^2L d + eps) + 1 and weight = delta^3 2^S / y."""
        divisors, results = map(self._open, self.divisions[0])
        total, scale = sum(samples), 10 ** (2 * self.task.decimals)
        found = [
            ((y - 1) / (total * delta) ** 2 - self.task.epsilon_units) / scale
            for y, delta in zip(divisors, samples, strict=True)
        ]
        return _weights_of(found, results, total * scale / (1 << self._shift))


class _WatchedSide(RewardSp):
    def __init__(
        self, party: KeyedParty, widths: RewardWidths, packing: Packing, number: int, kept: list[_Division]
    ) -> None:
        super().__init__(party, widths, packing, number)
        self._kept = kept

    def divide(
        self, purpose: str, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        result = yield from super().divide(purpose, x, y, coins)
        self._kept.append((y, result))
        return result


class PaperWatcher(_KeyedWatcher):
    def __init__(self, parties: LocalParties) -> None:
        super().__init__(parties)
        cast(PaperSp, parties.sp).reward_side = self._side

    def _side(self, party: KeyedParty, widths: PaperRewardWidths) -> PaperRewardSp:
        self.divisions = []
        return _WatchedPaperSide(party, widths, self.divisions)

    def opened(self, samples: Sequence[int]) -> _Worth:
        """As SP has them encrypted: y = 10^L Y (10^2L d + eps), and Alg. 4's own weight, whose sum of distances has n eps."""
        divisors, results = map(self._open, self.divisions[0])
        scale, total = 10**self.task.decimals, sum(samples)
        found = [(y / (scale * total) - self.task.epsilon_units) / scale**2 for y in divisors]
        return found, [value / scale for value in results]


class _WatchedPaperSide(PaperRewardSp):
    def __init__(self, party: KeyedParty, widths: PaperRewardWidths, kept: list[_Division]) -> None:
        super().__init__(party, widths)
        self._kept = kept

    def divide(
        self, kappa: int, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        result = yield from super().divide(kappa, x, y, coins)
        self._kept.append((y, result))
        return result


@dataclass
class _Seen:
    scores: RoundScores | None = field(default=None, repr=False)
    weights: Sequence[int] = field(default=(), repr=False)

    def watch(self, scores: RoundScores, weights: Sequence[int]) -> None:
        self.scores, self.weights = scores, list(weights)


class SharesWatcher:
    def __init__(self, parties: LocalParties) -> None:
        self._shape, self._sp, self._csp = SharesShape(parties.dealer.spec), _Seen(), _Seen()
        cast(SharesSp, parties.sp).watch = self._sp.watch
        cast(SharesCsp, parties.csp).watch = self._csp.watch

    def opened(self, samples: Sequence[int]) -> _Worth:
        """Both servers' shares of A, B and UU give |Y u - s U|^2 = (Y s)^2 d at the sketch's scale; weight = s^3 2^F / y."""
        mine, theirs, widths = self._sp.scores, self._csp.scores, self._shape.rule_widths
        if mine is None or theirs is None:
            raise ValueError("no round was rewarded yet")
        total, bits = sum(samples), widths.R
        scale = 10 ** (2 * self._shape.spec.settings.decimals) * mine.kept / widths.buckets
        sums = _joined([mine.UU, *mine.A, *mine.B], [theirs.UU, *theirs.A, *theirs.B], bits)
        uu, a, b = sums[0], sums[1 : 1 + len(samples)], sums[1 + len(samples) :]
        found = [
            (total**2 * own - 2 * total * s * cross + s**2 * uu) / (total * s) ** 2 / scale
            for own, cross, s in zip(a, b, samples, strict=True)
        ]
        raw = _joined(self._sp.weights, self._csp.weights, widths.weight_bits)
        return _weights_of(found, raw, total * scale / (1 << widths.distance_precision))


def _joined(mine: Sequence[int], theirs: Sequence[int], bits: int) -> list[int]:
    """Signed numbers from their two shares modulo 2^bits."""
    sums = [(a + b) % (1 << bits) for a, b in zip(mine, theirs, strict=True)]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in sums]
