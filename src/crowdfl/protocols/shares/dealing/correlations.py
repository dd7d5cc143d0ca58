"""Correlated randomness: one script says what KGC deals for a round, and three run it.

KGC runs it with both seeds and learns every value; SP and CSP each run it with their own seed and their own file, and get their
shares, in the same order. A value that is uniform needs no file: each server's share is its own stream's. A value that depends
on others (a product of masks, say) is corrected in CSP's file. What both must have in the same form is in both files.

The index of a stream is the round: nothing that is dealt serves twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from crowdfl.crypto.shares.limbs import Bytes, add_rows, subtract_rows
from crowdfl.crypto.shares.ring import Stream, Wire
from crowdfl.errors import DealtMaterialDamaged
from crowdfl.protocols.shares.circuits.scalars import flips_bytes, unpack, unpack_flips

_Values = Callable[[], Sequence[int]]
_ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Dealt:
    """Numbers modulo 2^bits: this server's shares; at KGC, the values. Empty where they are another's alone."""

    bits: int
    share: list[int] = field(repr=False)


@dataclass(frozen=True)
class DealtRows:
    """The same as rows of little-endian bytes, for what there is much of."""

    bits: int
    share: Bytes = field(repr=False)


class Cards(Protocol):
    """Whoever runs a script. `bits` is a multiple of 8 everywhere; XOR-shared bits are arrays of 0 and 1."""

    def uniform(self, count: int, bits: int) -> Dealt: ...
    def derived(self, count: int, bits: int, values: _Values) -> Dealt: ...  # KGC alone evaluates `values`
    def private_sp(self, count: int, bits: int) -> Dealt: ...  # known to SP, and to KGC
    def private_csp(self, count: int, bits: int) -> Dealt: ...
    def uniform_rows(self, count: int, bits: int) -> DealtRows: ...
    def narrow_rows(
        self, count: int, narrow: int, bits: int
    ) -> DealtRows: ...  # uniform in [0, 2^narrow), shared modulo 2^bits
    def derived_rows(self, count: int, bits: int, values: Callable[[], Bytes]) -> DealtRows: ...
    def flips(self, count: int) -> Bytes: ...  # uniform bits, XOR-shared
    def seeds(
        self, count: int, size: int
    ) -> tuple[bytes, bytes]: ...  # SP's and CSP's, each known to its owner and to KGC
    def public(self, length: int, make: Callable[[], bytes]) -> Wire: ...  # the same bytes for both servers


class _Numbers:
    """Bytes, taken one after the other, read as numbers, rows and bits."""

    def __init__(self, take: Callable[[int], Wire]) -> None:
        self.take = take

    def ints(self, count: int, bits: int) -> list[int]:
        return unpack(self.take(count * bits // 8), bits)

    def rows(self, count: int, bits: int) -> Bytes:
        """Taken a part at a time: what there is much of is in memory once."""
        rows = np.empty((count, bits // 8), dtype=np.uint8)
        self.fill(rows)
        return rows

    def fill(self, rows: Bytes) -> None:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            part[:] = np.frombuffer(self.take(part.size), dtype=np.uint8).reshape(part.shape)

    def flips(self, count: int) -> Bytes:
        return unpack_flips(self.take(flips_bytes(count)), count)


class _File:
    """A file that is read from its beginning to its end; it must be as long as the script says, and no longer."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._place = memoryview(data), 0

    def take(self, length: int) -> memoryview:
        """Not copied: a file is long, and most of it is used as it lies."""
        piece = self._data[self._place : self._place + length]
        if len(piece) != length:
            raise DealtMaterialDamaged("what KGC dealt for this round ends too early: the round cannot be computed")
        self._place += length
        return piece

    def require_end(self) -> None:
        if self._place != len(self._data):
            raise DealtMaterialDamaged("what KGC dealt for this round is longer than the task needs")


class _ServerCards:
    """What is uniform comes from the server's own stream, what is public from its file."""

    def __init__(self, own: _Numbers, derived: _Numbers, file: _File) -> None:
        self._own, self._derived, self._file = own, derived, file

    def uniform(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, self._own.ints(count, bits))

    def derived(self, count: int, bits: int, values: _Values) -> Dealt:
        del values
        return Dealt(bits, self._derived.ints(count, bits))

    def uniform_rows(self, count: int, bits: int) -> DealtRows:
        return DealtRows(bits, self._own.rows(count, bits))

    def derived_rows(self, count: int, bits: int, values: Callable[[], Bytes]) -> DealtRows:
        del values
        return DealtRows(bits, self._derived.rows(count, bits))

    def flips(self, count: int) -> Bytes:
        return self._own.flips(count)

    def public(self, length: int, make: Callable[[], bytes]) -> Wire:
        del make
        return self._file.take(length)

    def require_end(self) -> None:
        self._file.require_end()

    def _nothing(self, count: int, bits: int) -> Dealt:
        """The other server's alone."""
        del count
        return Dealt(bits, [])


class SpCards(_ServerCards):
    """SP's shares: what is derived comes from its stream too."""

    def __init__(self, stream: Stream, file: bytes | memoryview) -> None:
        own = _Numbers(stream.take)
        super().__init__(own, own, _File(file))

    private_sp, private_csp = _ServerCards.uniform, _ServerCards._nothing

    def narrow_rows(self, count: int, narrow: int, bits: int) -> DealtRows:
        del narrow
        return self.uniform_rows(count, bits)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(self._own.take(count * size)), b""


class CspCards(_ServerCards):
    """CSP's shares: what is derived is in its file."""

    def __init__(self, stream: Stream, file: bytes | memoryview) -> None:
        opened = _File(file)
        super().__init__(_Numbers(stream.take), _Numbers(opened.take), opened)

    private_sp, private_csp = _ServerCards._nothing, _ServerCards.uniform

    def public(self, length: int, make: Callable[[], bytes]) -> Wire:
        """Copied: most of CSP's file is of no more use once it is read."""
        return bytes(super().public(length, make))

    def narrow_rows(self, count: int, narrow: int, bits: int) -> DealtRows:
        rows = np.empty((count, bits // 8), dtype=np.uint8)
        self._own.fill(rows[:, : narrow // 8])
        self._derived.fill(rows[:, narrow // 8 :])
        return DealtRows(bits, rows)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return b"", bytes(self._own.take(count * size))


class KgcCards:
    """Every value, and the files of both servers as they grow; or, much faster, SP's alone, which nothing derived is in."""

    def __init__(self, sp: Stream, csp: Stream, *, sp_alone: bool = False) -> None:
        self._sp, self._csp, self._sp_alone = _Numbers(sp.take), _Numbers(csp.take), sp_alone
        self._sp_file: list[bytes] = []
        self._csp_file: list[bytes] = []

    def files(self) -> tuple[bytes, bytes]:
        """SP's and CSP's."""
        return b"".join(self._sp_file), b"".join(self._csp_file)

    def uniform(self, count: int, bits: int) -> Dealt:
        pairs = zip(self._sp.ints(count, bits), self._csp.ints(count, bits), strict=True)
        return Dealt(bits, [(a + b) % (1 << bits) for a, b in pairs])

    def derived(self, count: int, bits: int, values: _Values) -> Dealt:
        dealt = [value % (1 << bits) for value in values()]
        for value, share in zip(dealt, self._sp.ints(count, bits), strict=True):
            self._csp_file.append(((value - share) % (1 << bits)).to_bytes(bits // 8, "little"))
        return Dealt(bits, dealt)

    def private_sp(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, self._sp.ints(count, bits))

    def private_csp(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, self._csp.ints(count, bits))

    def uniform_rows(self, count: int, bits: int) -> DealtRows:
        return DealtRows(bits, add_rows(self._sp.rows(count, bits), self._csp.rows(count, bits)))

    def narrow_rows(self, count: int, narrow: int, bits: int) -> DealtRows:
        """The last bits of both shares are the servers' own; CSP's first ones make the sum come out below 2^narrow."""
        if self._sp_alone:
            return self._skipped(count, bits, narrow)
        theirs, low = self._sp.rows(count, bits), self._csp.rows(count, narrow)
        value = np.zeros((count, bits // 8), dtype=np.uint8)
        value[:, : narrow // 8] = add_rows(np.ascontiguousarray(theirs[:, : narrow // 8]), low)
        correction = subtract_rows(value, theirs)[:, narrow // 8 :]
        self._csp_file.append(correction.tobytes())
        return DealtRows(bits, value)

    def derived_rows(self, count: int, bits: int, values: Callable[[], Bytes]) -> DealtRows:
        if self._sp_alone:
            return self._skipped(count, bits, 0)
        dealt = values()
        self._csp_file.append(subtract_rows(dealt, self._sp.rows(count, bits)).tobytes())
        return DealtRows(bits, dealt)

    def _skipped(self, count: int, bits: int, narrow: int) -> DealtRows:
        """Rows that nothing in SP's file comes from: the streams go on as if they had been made."""
        for numbers, each in ((self._sp, bits), (self._csp, narrow)):
            for start in range(0, count, _ROWS_AT_ONCE):
                numbers.take(min(_ROWS_AT_ONCE, count - start) * each // 8)
        return DealtRows(bits, np.broadcast_to(np.uint8(0), (count, bits // 8)))

    def flips(self, count: int) -> Bytes:
        return self._sp.flips(count) ^ self._csp.flips(count)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(self._sp.take(count * size)), bytes(self._csp.take(count * size))

    def public(self, length: int, make: Callable[[], bytes]) -> bytes:
        made = make()
        if len(made) != length:
            raise ValueError(f"{len(made)} bytes where {length} are dealt")
        self._sp_file.append(made)
        self._csp_file.append(made)
        return made


class _Zeros(_Numbers):
    """No numbers, but how many bytes they would take; zeros that take no memory where there are many."""

    def __init__(self) -> None:
        super().__init__(bytes)
        self.counted = 0

    def ints(self, count: int, bits: int) -> list[int]:
        self.counted += count * bits // 8
        return [0] * count

    def rows(self, count: int, bits: int) -> Bytes:
        self.counted += count * bits // 8
        return np.broadcast_to(np.uint8(0), (count, bits // 8))

    def flips(self, count: int) -> Bytes:
        return np.zeros(count, dtype=np.uint8)


class CountingCards(_ServerCards):
    """Runs a script for the lengths of the files that it makes."""

    def __init__(self) -> None:
        self._zeros, self._public = _Zeros(), 0
        super().__init__(_Zeros(), self._zeros, _File(b""))

    private_sp = private_csp = _ServerCards.uniform

    def narrow_rows(self, count: int, narrow: int, bits: int) -> DealtRows:
        self._zeros.rows(count, bits - narrow)
        return self.uniform_rows(count, bits)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(count * size), b""

    def public(self, length: int, make: Callable[[], bytes]) -> Wire:
        del make
        self._public += length
        return b""

    def lengths(self) -> tuple[int, int]:
        """Of SP's and CSP's."""
        return self._public, self._public + self._zeros.counted
