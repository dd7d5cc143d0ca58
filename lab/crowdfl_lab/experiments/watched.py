"""Distances and weights of a paid round, opened by an experiment that plays both servers.

No party may see them, and no message carries them. In `paper` and `hardened` the experiment holds both shares of the task's key
and opens the ciphertexts that SP computes on; in `shares` it adds up both servers' shares. All of it stays in this process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.party import View
from crowdfl.protocols.profile import RoleProtocol
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import TaskSettings
from crowdfl_lab.parties import LocalParties

_Worth = tuple[list[float], list[float]]  # distances, weights


class Watcher(Protocol):
    """Looks on at one round's rewards."""

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


def _watched(side: RoleProtocol) -> View:
    """A record of what this side sees, from now on."""
    side.party.view = View()
    return side.party.view


class _KeyedWatcher:
    """Of a profile with a key: SP's view has the divisors and the quotients of the last divisions, encrypted."""

    def __init__(self, parties: LocalParties) -> None:
        self.parties, self._view = parties, _watched(parties.sp)

    @property
    def task(self) -> TaskSettings:
        return self.parties.dealer.spec.settings

    def _weights(self) -> tuple[list[int], list[int]]:
        """Divisors and quotients of the division that makes them."""
        divisors, quotients = self._view.hidden["weights"]
        return self._open(divisors), self._open(quotients)

    def _open(self, vector: CipherVector) -> list[int]:
        half = keyed_party(self.parties.sp).partial_decrypt(vector)
        return [int(value) for value in to_ints(keyed_party(self.parties.csp).finish(vector, half))]


class HardenedWatcher(_KeyedWatcher):
    def opened(self, samples: Sequence[int]) -> _Worth:
        """As SP has them encrypted: y = Y^2 delta^2 (10^2L d + eps) + 1 and weight = delta^3 2^S / y."""
        divisors, results = self._weights()
        total, scale = sum(samples), 10 ** (2 * self.task.decimals)
        found = [
            ((y - 1) / (total * delta) ** 2 - self.task.epsilon_units) / scale
            for y, delta in zip(divisors, samples, strict=True)
        ]
        shift = reward_widths(self.task, self.parties.dealer.spec.parameters).shift
        return _weights_of(found, results, total * scale / (1 << shift))


class PaperWatcher(_KeyedWatcher):
    def opened(self, samples: Sequence[int]) -> _Worth:
        """As SP has them encrypted: y = 10^L Y (10^2L d + eps), and Alg. 4's own weight, whose sum of distances has n eps."""
        divisors, results = self._weights()
        scale, total = 10**self.task.decimals, sum(samples)
        found = [(y / (scale * total) - self.task.epsilon_units) / scale**2 for y in divisors]
        return found, [value / scale for value in results]


class SharesWatcher:
    def __init__(self, parties: LocalParties) -> None:
        self._shape, self._views = SharesShape(parties.dealer.spec), (_watched(parties.sp), _watched(parties.csp))

    def opened(self, samples: Sequence[int]) -> _Worth:
        """Both servers' shares of A, B and UU give |Y u - s U|^2 = (Y s)^2 d at the sketch's scale; weight = s^3 2^F / y."""
        (mine, own), (theirs, other) = (view.hidden["weights"] for view in self._views)
        widths = self._shape.rule_widths
        total, bits = sum(samples), widths.R
        scale = 10 ** (2 * self._shape.spec.settings.decimals) * mine.kept / widths.buckets
        sums = _joined([mine.UU, *mine.A, *mine.B], [theirs.UU, *theirs.A, *theirs.B], bits)
        uu, a, b = sums[0], sums[1 : 1 + len(samples)], sums[1 + len(samples) :]
        found = [
            (total**2 * own - 2 * total * s * cross + s**2 * uu) / (total * s) ** 2 / scale
            for own, cross, s in zip(a, b, samples, strict=True)
        ]
        raw = _joined(own, other, widths.weight_bits)
        return _weights_of(found, raw, total * scale / (1 << widths.distance_precision))


def _joined(mine: Sequence[int], theirs: Sequence[int], bits: int) -> list[int]:
    """Signed numbers from their two shares modulo 2^bits."""
    sums = [(a + b) % (1 << bits) for a, b in zip(mine, theirs, strict=True)]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in sums]
