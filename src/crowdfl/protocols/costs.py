"""Counters of operations, messages and bytes, per role."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.crypto.paillier import kernels

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
        before, self._scope = self._scope, protocol
        try:
            yield
        finally:
            self._scope = before

    def sent(self, message: bytes) -> bytes:
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
