"""Correlated randomness: one script says what KGC deals for a round, and three run it.

KGC runs it with both seeds and learns every value; SP and CSP each run it with their own seed and their own file, and get their
shares, in the same order. A value that is uniform needs no file: each server's share is its own stream's. A value that depends
on others (a product of masks, say) is corrected in CSP's file. What both must have in the same form is in both files.

The index of a stream is the round: nothing that is dealt serves twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Protocol

import numpy as np

from crowdfl.crypto.long_bytes import Long, Wire
from crowdfl.crypto.shares.expansion import Stream
from crowdfl.crypto.shares.limbs import Bytes, add_rows, subtract_rows
from crowdfl.errors import DealtMaterialDamaged
from crowdfl.protocols.shares.circuits.scalars import flips_bytes, pack, unpack, unpack_flips

_Values = Callable[[], Sequence[int]]
_Reader = Callable[[int, int], Wire]  # where a piece starts, and its length
_RowMaker = Callable[[int, int], Bytes]  # of rows from one to before another
_PIECE_BYTES = 1 << 22  # of rows that are made together


@dataclass(frozen=True)
class Part:
    """A part of a long file, which stays where it is."""

    whole: Long = field(repr=False)
    start: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, piece: slice) -> Wire:
        first, last, _ = piece.indices(self.length)
        return self.whole[self.start + first : self.start + last]


@dataclass(frozen=True)
class Dealt:
    """Numbers modulo 2^bits: this server's shares; at KGC, the values. Empty where they are another's alone."""

    bits: int
    share: list[int] = field(repr=False)


@dataclass(frozen=True)
class Masks:
    """Rows [slots, lanes, bytes] that are made when they are looked at: together they are longer than all else of a round."""

    slots: int
    lanes: int
    size: int
    make: _RowMaker = field(repr=False)  # [rows, bytes]

    def __len__(self) -> int:
        return self.slots

    def __getitem__(self, chosen: slice | Sequence[int]) -> Bytes:
        """Of these slots."""
        places = np.arange(self.slots)[chosen]
        if not len(places):
            return np.empty((0, self.lanes, self.size), dtype=np.uint8)
        first = int(places.min())
        last = int(places.max()) + 1
        rows = self.make(first * self.lanes, last * self.lanes).reshape(-1, self.lanes, self.size)
        return rows if len(places) == len(rows) else rows[places - first]

    def parts(self) -> Iterator[slice]:
        """All slots, as many at a time as fit a piece."""
        step = max(1, _PIECE_BYTES // (self.lanes * self.size))
        return (slice(start, min(self.slots, start + step)) for start in range(0, self.slots, step))


class Cards(Protocol):
    """Whoever runs a script. `bits` is a multiple of 8 everywhere; XOR-shared bits are arrays of 0 and 1."""

    def uniform(self, count: int, bits: int) -> Dealt: ...
    def derived(self, count: int, bits: int, values: _Values) -> Dealt: ...  # KGC alone evaluates `values`
    def private_sp(self, count: int, bits: int) -> Dealt: ...  # known to SP, and to KGC
    def private_csp(self, count: int, bits: int) -> Dealt: ...
    def uniform_rows(self, count: int, bits: int) -> Bytes: ...  # little-endian, for what there is much of
    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        """Uniform in [0, 2^narrow), shared modulo 2^bits."""

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        """KGC alone makes `values`, a few rows at a time, and keeps none."""

    def flips(self, count: int) -> Bytes: ...  # uniform bits, XOR-shared
    def seeds(
        self, count: int, size: int
    ) -> tuple[bytes, bytes]: ...  # SP's and CSP's, each known to its owner and to KGC
    def public(self, length: int, make: Callable[[], Iterable[bytes]]) -> Long: ...  # the same bytes for both servers


class _Numbers:
    """Bytes, taken one after the other, read as numbers, rows and bits."""

    def __init__(self, source: "Stream | _File") -> None:
        self.take, self.aside = source.take, source.aside

    def ints(self, count: int, bits: int) -> list[int]:
        return unpack(self.take(count * bits // 8), bits)

    def rows(self, count: int, bits: int) -> Bytes:
        return np.frombuffer(self.take(count * bits // 8), dtype=np.uint8).reshape(count, bits // 8)

    def later(self, count: int, bits: int) -> _RowMaker:
        """The same, made when they are looked at."""
        size = bits // 8
        read = self.aside(count * size)

        def made(first: int, last: int) -> Bytes:
            return np.frombuffer(read(first * size, (last - first) * size), dtype=np.uint8).reshape(-1, size)

        return made

    def flips(self, count: int) -> Bytes:
        return unpack_flips(self.take(flips_bytes(count)), count)


class _File:
    """A file that is read from its beginning to its end; it must be as long as the script says, and no longer."""

    def __init__(self, data: Long) -> None:
        self._data, self._place = data, 0

    def part(self, length: int) -> Part:
        """Not read: a file is long, and what is in it is looked at a piece at a time."""
        part = Part(self._data, self._place, length)
        self._place += length
        if self._place > len(self._data):
            raise DealtMaterialDamaged("what KGC dealt for this round ends too early: the round cannot be computed")
        return part

    def take(self, length: int) -> Wire:
        return self.part(length)[:]

    def aside(self, length: int) -> _Reader:
        part = self.part(length)
        return lambda start, size: part[start : start + size]

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

    def uniform_rows(self, count: int, bits: int) -> Bytes:
        return self._own.rows(count, bits)

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        del values
        return self._derived.rows(count, bits)

    def flips(self, count: int) -> Bytes:
        return self._own.flips(count)

    def public(self, length: int, make: Callable[[], Iterable[bytes]]) -> Long:
        del make
        return self._file.part(length)

    def require_end(self) -> None:
        self._file.require_end()

    def _nothing(self, count: int, bits: int) -> Dealt:
        """The other server's alone."""
        del count
        return Dealt(bits, [])


class SpCards(_ServerCards):
    """SP's shares: what is derived comes from its stream too."""

    def __init__(self, stream: Stream, file: Long) -> None:
        own = _Numbers(stream)
        super().__init__(own, own, _File(file))

    private_sp, private_csp = _ServerCards.uniform, _ServerCards._nothing

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        del narrow
        return Masks(slots, lanes, bits // 8, self._own.later(slots * lanes, bits))

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(self._own.take(count * size)), b""


class CspCards(_ServerCards):
    """CSP's shares: what is derived is in its file."""

    def __init__(self, stream: Stream, file: Long) -> None:
        opened = _File(file)
        super().__init__(_Numbers(stream), _Numbers(opened), opened)

    private_sp, private_csp = _ServerCards._nothing, _ServerCards.uniform

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        low = self._own.later(slots * lanes, narrow)
        high = self._derived.later(slots * lanes, bits - narrow)
        return Masks(slots, lanes, bits // 8, lambda first, last: np.hstack((low(first, last), high(first, last))))

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return b"", bytes(self._own.take(count * size))


class KgcCards:
    """Every value; and the files of both servers, whose long parts are made as they are read, and again by each reader."""

    def __init__(self, sp: Stream, csp: Stream) -> None:
        self._sp, self._csp = _Numbers(sp), _Numbers(csp)
        self._sp_file: list[Callable[[], Iterable[bytes]]] = []
        self._csp_file: list[Callable[[], Iterable[bytes]]] = []

    def files(self) -> tuple[Iterator[bytes], Iterator[bytes]]:
        """SP's and CSP's, in pieces."""
        sp, csp = (chain.from_iterable(part() for part in file) for file in (self._sp_file, self._csp_file))
        return sp, csp

    def uniform(self, count: int, bits: int) -> Dealt:
        pairs = zip(self._sp.ints(count, bits), self._csp.ints(count, bits), strict=True)
        return Dealt(bits, [(a + b) % (1 << bits) for a, b in pairs])

    def derived(self, count: int, bits: int, values: _Values) -> Dealt:
        dealt = [value % (1 << bits) for value in values()]
        rests = [value - share for value, share in zip(dealt, self._sp.ints(count, bits), strict=True)]
        self._csp_file.append(lambda: [pack(rests, bits)])
        return Dealt(bits, dealt)

    def private_sp(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, self._sp.ints(count, bits))

    def private_csp(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, self._csp.ints(count, bits))

    def uniform_rows(self, count: int, bits: int) -> Bytes:
        return add_rows(self._sp.rows(count, bits), self._csp.rows(count, bits))

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        """The last bits of both shares are the servers' own; CSP's first ones make the sum come out below 2^narrow."""
        sp = self._sp.later(slots * lanes, bits)
        csp = self._csp.later(slots * lanes, narrow)
        size = bits // 8

        @lru_cache(maxsize=1)  # those of a few people are asked for twice
        def drawn(first: int, last: int) -> tuple[Bytes, Bytes]:
            """SP's shares, and the values."""
            theirs = sp(first, last)
            rows = np.zeros((last - first, size), dtype=np.uint8)
            rows[:, : narrow // 8] = add_rows(np.ascontiguousarray(theirs[:, : narrow // 8]), csp(first, last))
            return theirs, rows

        def corrections() -> Iterator[bytes]:
            for part in masks.parts():
                theirs, rows = drawn(part.start * lanes, part.stop * lanes)
                yield subtract_rows(rows, theirs)[:, narrow // 8 :].tobytes()

        masks = Masks(slots, lanes, size, lambda first, last: drawn(first, last)[1])
        self._csp_file.append(corrections)
        return masks

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        theirs = self._sp.later(count, bits)

        def corrections() -> Iterator[bytes]:
            done = 0
            for rows in values():
                yield subtract_rows(rows, theirs(done, done + len(rows))).tobytes()
                done += len(rows)

        self._csp_file.append(corrections)
        return np.empty((0, bits // 8), dtype=np.uint8)

    def flips(self, count: int) -> Bytes:
        return self._sp.flips(count) ^ self._csp.flips(count)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(self._sp.take(count * size)), bytes(self._csp.take(count * size))

    def public(self, length: int, make: Callable[[], Iterable[bytes]]) -> bytes:
        del length
        self._sp_file.append(make)
        self._csp_file.append(make)
        return b""


class CountingCards(_ServerCards):
    """Runs a script for the lengths of the files that it makes."""

    def __init__(self) -> None:
        self._derived_bytes = self._public = 0
        super().__init__(_Numbers(_File(b"")), _Numbers(_File(b"")), _File(b""))

    def uniform(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, [0] * count)

    private_sp = private_csp = uniform

    def derived(self, count: int, bits: int, values: _Values) -> Dealt:
        del values
        self._derived_bytes += count * bits // 8
        return Dealt(bits, [0] * count)

    def uniform_rows(self, count: int, bits: int) -> Bytes:
        return np.broadcast_to(np.uint8(0), (count, bits // 8))

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        del values
        self._derived_bytes += count * bits // 8
        return self.uniform_rows(count, bits)

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        self._derived_bytes += slots * lanes * (bits - narrow) // 8
        return Masks(slots, lanes, bits // 8, lambda first, last: np.zeros((last - first, bits // 8), dtype=np.uint8))

    def flips(self, count: int) -> Bytes:
        return np.zeros(count, dtype=np.uint8)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(count * size), b""

    def public(self, length: int, make: Callable[[], Iterable[bytes]]) -> Long:
        del make
        self._public += length
        return b""

    def lengths(self) -> tuple[int, int]:
        """Of SP's and CSP's."""
        return self._public, self._public + self._derived_bytes
