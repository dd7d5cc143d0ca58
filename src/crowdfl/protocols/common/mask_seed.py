"""A seed of SP's for the masks of one sum."""

from dataclasses import dataclass, field

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.errors import FormatError, SeedReused


@dataclass(frozen=True)
class MaskSeed:
    """A seed, and the hash of what it masks. **It never serves two sums**: their difference would be a late participant's
    update in the clear."""

    seed: bytes = field(repr=False)
    digest: bytes

    @classmethod
    def bound_to(cls, bound: bytes) -> "MaskSeed":
        return cls(secret_bytes(SEED_BYTES), bound)

    @property
    def shown(self) -> bytes:
        """The seed of R, which readers are given. The blinds come from `seed` itself, which nobody is: else a reader together
        with CSP could strip them off."""
        return Coins(self.seed).child("shown").take(SEED_BYTES)

    def to_bytes(self) -> bytes:
        return self.seed + self.digest

    @classmethod
    def from_bytes(cls, data: bytes) -> "MaskSeed":
        if len(data) != 2 * SEED_BYTES:
            raise FormatError(f"a mask seed has {2 * SEED_BYTES} bytes, not {len(data)}")
        return cls(data[:SEED_BYTES], data[SEED_BYTES:])

    def require(self, bound: bytes) -> None:
        """Refuse to mask anything but what this seed is bound to."""
        if bound != self.digest:
            raise SeedReused(
                "this round was begun with another set of uploads already, and its seed masks that one alone"
            )

    @classmethod
    def kept(cls, state: bytes, bound: bytes) -> "MaskSeed":
        """The one that is kept for what has this hash, or a fresh one where none is."""
        seed = cls.from_bytes(state) if state else cls.bound_to(bound)
        seed.require(bound)
        return seed
