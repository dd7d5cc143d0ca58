"""What every party has: a place to compute, counters, and a record of what it saw; in a task with a key, that too."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from crowdfl.crypto.blocks import Block, as_mpz
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Backend, Kernel, Progress, default_backend
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.paillier import kernels, vector
from crowdfl.crypto.paillier.pctd import FreshRandomizers, KeyShare, PublicKey, RandomizerSource
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, Unchecked
from crowdfl.errors import CrowdFLError, InvalidKey
from crowdfl.protocols.messages import Limits, Message

_Sent = TypeVar("_Sent", bound=Long)
_OPERATIONS: dict[type, str] = {
    kernels.Encrypt: "Enc",
    kernels.AddPlain: "PAdd",
    kernels.PartialDecrypt: "PDec",
    kernels.Combine: "TDec",
    kernels.MulMod: "PAdd",
    kernels.BucketProduct: "PAdd",
    kernels.PowMod: "PMul",
    kernels.PowEach: "PMul",
    kernels.MultiPow: "PMul",
    kernels.InvMod: "inverse",
    kernels.FixedBasePower: "randomizer",
    kernels.CheckUnits: "check",
}


@dataclass
class Costs:
    """What one role did. Operations inside SMUL or SDIV are kept apart, as the paper's tables count them apart."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    messages: int = 0
    bytes_sent: int = 0
    _scope: str = ""

    def count(self, operation: str, times: int = 1) -> None:
        self.counts[self._scope, operation] += times

    @contextmanager
    def inside(self, protocol: str, times: int) -> Iterator[None]:
        """Count `times` runs of SMUL or SDIV, and what they do under their own name."""
        self.count(protocol, times)
        with self.continuing(protocol):
            yield

    @contextmanager
    def continuing(self, protocol: str) -> Iterator[None]:
        """A later step of runs that `inside` has counted already."""
        before = self._scope
        self._scope = protocol
        try:
            yield
        finally:
            self._scope = before

    def sent(self, message: _Sent) -> _Sent:
        self.messages += 1
        self.bytes_sent += len(message)
        return message

    def total(self, operation: str) -> int:
        return sum(times for (_, name), times in self.counts.items() if name == operation)

    def outside(self, operation: str) -> int:
        """Of an operation outside SMUL and SDIV."""
        return self.counts["", operation]

    def as_dict(self) -> dict[str, int]:
        names = sorted({name for _, name in self.counts})
        return {name: self.total(name) for name in names} | {"messages": self.messages, "bytes": self.bytes_sent}


@dataclass(frozen=True)
class CountingBackend:
    """A backend that counts what a role has computed on it."""

    inner: Backend
    costs: Costs

    @property
    def name(self) -> str:
        return self.inner.name

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        self.costs.count(_OPERATIONS[type(kernel)], len(blocks[0]) * _operations_a_row(kernel))
        return self.inner.map(kernel, *blocks, out=out, progress=progress)


def _operations_a_row(kernel: Kernel) -> int:
    """A sum costs the same however its terms were grouped on their way into it."""
    if isinstance(kernel, kernels.BucketProduct):
        return kernel.size - int(kernel.all_plus)
    return kernel.size if isinstance(kernel, kernels.MultiPow) else 1


@dataclass
class View:
    """What a party saw in the clear beyond its own inputs, by the name of the step: the raw material of the audit.

    `keep=False` records nothing: a service has no use for it, and no business keeping it.
    """

    entries: list[tuple[str, Any]] = field(default_factory=list, repr=False)
    keep: bool = True
    hidden: dict[str, Any] = field(default_factory=dict, repr=False)

    def saw(self, what: str, values: Any) -> None:  # noqa: ANN401 -- whatever a step opened
        if self.keep:
            self.entries.append((what, values))

    def computed(self, what: str, values: Any) -> None:  # noqa: ANN401
        """Shared or encrypted numbers, the last of their name: an experiment that plays both servers can open them."""
        if self.keep:
            self.hidden[what] = values

    def of(self, what: str) -> list[Any]:
        """Everything seen under one name, in order."""
        return [values for name, values in self.entries if name == what]


@dataclass
class Party:
    """One role's tools, of a task with or without a key."""

    name: str
    backend: Backend = field(default_factory=default_backend, kw_only=True)
    costs: Costs = field(default_factory=Costs, kw_only=True)
    view: View = field(default_factory=View, repr=False, kw_only=True)
    progress: Progress | None = field(default=None, repr=False, kw_only=True)

    def send(self, message: Message | CipherVector) -> bytes:
        return self.costs.sent(message.to_bytes())


@dataclass
class KeyedParty(Party):
    """A party of a task with a Paillier key. Built from its own share alone."""

    public: PublicKey
    share: KeyShare | None = field(default=None, repr=False)
    randomizers: RandomizerSource = field(init=False, repr=False)
    constant_time: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.compute = CountingBackend(self.backend, self.costs)
        self.randomizers = FreshRandomizers(self.public, backend=self.compute)

    def limits(self, max_count: int) -> Limits:
        return Limits(self.public, max_count, backend=self.compute)

    def refusals(self, received: Iterable[bytes], parse: Callable[[bytes], Unchecked]) -> list[CrowdFLError | None]:
        """Why each of some received vectors is refused, or None; those that parse are validated as one batch."""
        parsed = [_parsed(data, parse) for data in received]
        vectors = [numbers for numbers in parsed if isinstance(numbers, Unchecked)]
        validated = iter(Unchecked.refusals(vectors, self.public, backend=self.compute))
        return [next(validated) if isinstance(numbers, Unchecked) else numbers for numbers in parsed]

    def encrypt(self, plaintexts: Block | Iterable[int], coins: Coins | None = None) -> CipherVector:
        """Enc; with `coins`, replayable."""
        return vector.encrypt(self._randomizers(coins), plaintexts, backend=self.compute, progress=self.progress)

    def rerandomise(self, c: CipherVector, coins: Coins | None = None) -> CipherVector:
        return c.rerandomise(self._randomizers(coins), backend=self.compute, progress=self.progress)

    def add(self, a: CipherVector, b: CipherVector) -> CipherVector:
        """PAdd."""
        return a.add(b, backend=self.compute)

    def subtract(self, a: CipherVector, b: CipherVector) -> CipherVector:
        return a.subtract(b, backend=self.compute)

    def scale(self, c: CipherVector, k: int) -> CipherVector:
        return c.scale(k, backend=self.compute)

    def scale_each(self, c: CipherVector, factors: Iterable[int] | Block) -> CipherVector:
        return c.scale_each(factors, backend=self.compute)

    def scale_modulo(self, c: CipherVector, factors: Iterable[int]) -> CipherVector:
        """By secret factors that are uniform modulo N."""
        return c.scale_modulo(factors, backend=self.compute)

    def add_plain(self, c: CipherVector, plaintexts: Iterable[int]) -> CipherVector:
        """Known numbers, taken modulo N, added to ciphertexts."""
        n = self.public.n
        return c.add_plain(vector.residues((as_mpz(m) % n for m in plaintexts), self.public), backend=self.compute)

    def sum(self, c: CipherVector) -> CipherVector:
        return self.sums(c, len(c))

    def sums(self, c: CipherVector, size: int) -> CipherVector:
        """The sum of each `size` neighbours."""
        return c.sums(size, backend=self.compute)

    def partial_decrypt(self, c: CipherVector) -> PartialVector:
        if self.share is None:
            raise InvalidKey(f"{self.name} holds no key share")
        return c.partial_decrypt(
            self.share, constant_time=self.constant_time, backend=self.compute, progress=self.progress
        )

    def finish(self, c: CipherVector, other: PartialVector) -> Block:
        """PDec and TDec: the residues of what the other share holder has partially decrypted."""
        return vector.combine(other, self.partial_decrypt(c), backend=self.compute)

    def _randomizers(self, coins: Coins | None) -> RandomizerSource:
        if coins is not None:
            return FreshRandomizers(self.public, backend=self.compute, entropy=coins.take)
        return self.randomizers


def _parsed(data: bytes, parse: Callable[[bytes], Unchecked]) -> Unchecked | CrowdFLError:
    try:
        return parse(data)
    except CrowdFLError as refusal:
        return refusal
