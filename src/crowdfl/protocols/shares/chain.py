"""The chain of models: what every upload, manifest, record and publication is bound to, and what a reader holds.

base_0 is the hash of the task's id, which covers its initial weights; base_r is the hash of the base before it and of what
CSP's record of round r states, without its signature: signing it again makes no other base. A round that was given up changes
nothing. Whoever names another base has trained on another model.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.long_bytes import Long, sha256_of
from crowdfl.errors import ChainBroken, FormatError, NotFinite, SlotOverflow
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.shares.server_optimizers import Moments, ServerStep

HASH_BYTES = 32
ROUND_BYTES = 4
Integers = npt.NDArray[np.int64]
_LARGEST = 2**62  # of a weight in units: two of them can still be added


@dataclass(frozen=True)
class RoundPlace:
    """What everything of one round is bound to: the task, the round, the model that it starts from."""

    task: str
    number: int
    base: bytes

    def bind(self, label: str, *parts: bytes) -> bytes:
        number = self.number.to_bytes(ROUND_BYTES, "big")
        return bind(label, self.task.encode(), number, self.base, *parts)


def first_base(task: str) -> bytes:
    return hashlib.sha256(b"crowdfl base 1" + task.encode()).digest()


def next_base(base: bytes, statement: bytes) -> bytes:
    """The base after a round, from what CSP's record of it states."""
    return hashlib.sha256(b"crowdfl next base 2" + base + sha256(statement)).digest()


def next_secret(secret: bytes, masks: tuple[bytes, ...]) -> bytes:
    """What readers alone know after a round: each server has the seed of its own mask and not of the other's."""
    return hashlib.sha256(b"crowdfl secret 2" + secret + b"".join(masks)).digest()


def sha256(data: Long) -> bytes:
    return hashlib.sha256(data).digest() if isinstance(data, bytes) else sha256_of(data)


@dataclass(frozen=True)
class ModelChain:
    """The model that a reader holds: integers of 10^-L, the same on every device, and which round they come from.

    In a task with a server step also what the step carries from round to round.
    """

    number: int  # 0: the initial weights
    base: bytes
    weights: Integers = field(repr=False)
    moments: Moments = field(default=(), repr=False)
    secret: bytes = field(default=bytes(HASH_BYTES), repr=False)  # of everything read: known to readers alone

    @classmethod
    def start(
        cls, task: str, initial: npt.NDArray[np.float64], unit: int, step: ServerStep | None = None
    ) -> "ModelChain":
        flat = np.asarray(initial, dtype=np.float64).reshape(-1)
        if not np.isfinite(flat).all():
            raise NotFinite("an initial weight is NaN or infinite")
        moments = () if step is None else step.start(len(flat))
        return cls(0, first_base(task), _in_range(np.rint(flat * unit)), moments)

    def averaged(self, change: Integers) -> Integers:
        """The model that this change leads to, before any step."""
        return _in_range(self.weights + change)

    def after(
        self, number: int, base: bytes, secret: bytes, change: Integers, step: ServerStep | None = None
    ) -> "ModelChain":
        """The next model: `change` is what the round's average is from this one."""
        if number <= self.number:
            raise ChainBroken(f"round {number} was published after round {self.number}: averages are read in order")
        moments = self.moments
        if step is not None:
            change, moments = step.apply(change, moments)
        return ModelChain(number, base, self.averaged(change), moments, secret)

    def digest(self) -> str:
        """The same on every device that has read the same rounds, and on no other. To others it says nothing of the model."""
        return hashlib.sha256(b"crowdfl state 1" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        arrays = self.weights.astype("<i8"), *(moment.astype("<f8") for moment in self.moments)
        head = self.number.to_bytes(ROUND_BYTES, "big") + self.base + self.secret
        return head + b"".join(array.tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, data: bytes, parameters: int, step: ServerStep | None = None) -> "ModelChain":
        start = ROUND_BYTES + 2 * HASH_BYTES
        count = 0 if step is None else step.moments
        if len(data) != start + 8 * parameters * (1 + count):
            raise FormatError(f"{len(data)} bytes are not the model of this task, which has {parameters} weights")
        weights = np.frombuffer(data, dtype="<i8", count=parameters, offset=start).astype(np.int64)
        carried = np.frombuffer(data, dtype="<f8", offset=start + 8 * parameters).astype(np.float64)
        if not np.isfinite(carried).all():
            raise FormatError("the state that was kept with the model is damaged: delete it, and it is read again")
        moments = tuple(carried.reshape(count, parameters)) if count else ()
        base = data[ROUND_BYTES : start - HASH_BYTES]
        secret = data[start - HASH_BYTES : start]
        return cls(int.from_bytes(data[:ROUND_BYTES], "big"), base, weights, moments, secret)


def rounded_quotient(sums: Integers, total: int) -> Integers:
    """sums / total, to the nearest integer, halves to the even one: the same on every device."""
    quotient = sums // total
    rest = sums - quotient * total
    quotient += 2 * rest + (quotient & 1) > total  # at a half, an odd one goes up
    return quotient


def _in_range(weights: npt.NDArray[np.float64] | Integers) -> Integers:
    if not (weights.max() < _LARGEST and weights.min() > -_LARGEST):
        raise SlotOverflow(
            "a weight is too large to be counted in units of 10^-decimals: lower `decimals`, or start again"
        )
    return weights.astype(np.int64)
