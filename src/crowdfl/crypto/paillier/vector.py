"""CipherVector: many ciphertexts under one key in one contiguous buffer, and what one does with them.

The binary form (docs/formats.md) is fixed-width big-endian numbers behind a short header; any language can write it.
Received bytes become an `Unchecked` vector first: nothing computes on one until `validate` has checked every number.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.crypto import blocks
from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, BatchOptions, Kernel, Progress, default_backend, run_batch
from crowdfl.crypto.paillier import kernels
from crowdfl.crypto.paillier.pctd import Ciphertext, KeyShare, PublicKey, RandomizerSource
from crowdfl.errors import (
    CiphertextOutOfRange,
    CrowdFLError,
    FormatError,
    KeyMismatch,
    LengthMismatch,
    LimitExceeded,
    NotAUnit,
    TooManyUploads,
    TrailingBytes,
    Truncated,
    UnsupportedVersion,
)

_MAGIC = b"CFLV"
_VERSION = 1
_HEADER = struct.Struct(">4sBBH32sIQ")  # magic, version, kind, reserved, fingerprint, width, count
VECTOR_HEADER_BYTES = _HEADER.size
_CIPHERTEXTS, _PARTIAL_DECRYPTIONS = 1, 2  # kinds


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Numbers modulo N^2 under one key."""

    public: PublicKey
    block: Block

    def __post_init__(self) -> None:
        if self.block.ndim != 2 or self.block.shape[1] != self.public.ciphertext_bytes:
            raise LengthMismatch(f"numbers under this key are rows of {self.public.ciphertext_bytes} bytes")

    def __len__(self) -> int:
        return len(self.block)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Numbers) or type(self) is not type(other):
            return NotImplemented
        return self.public == other.public and np.array_equal(self.block, other.block)

    __hash__ = None  # type: ignore[assignment]  # a buffer cannot be a dictionary key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} under {self.public!r})"

    def require_like(self, other: "_Numbers") -> None:
        self.public.require_same(other.public)
        if len(self) != len(other):
            raise LengthMismatch(f"vectors of {len(self)} and {len(other)} entries do not go together")


@dataclass(frozen=True, eq=False, repr=False)
class _Checked(_Numbers):
    """Every number in it is known to be a unit below N^2; so it may be sent, and computed with."""

    _kind: ClassVar[int]

    def to_bytes(self) -> bytes:
        public = self.public
        header = _HEADER.pack(_MAGIC, _VERSION, self._kind, 0, public.fingerprint, public.ciphertext_bytes, len(self))
        return b"".join([header, np.ascontiguousarray(self.block).data])

    @classmethod
    def from_bytes(cls, data: bytes, public: PublicKey, *, max_count: int, backend: Backend | None = None) -> Self:
        unchecked = Unchecked.parse(data, public, max_count=max_count, kind=cls._kind)
        return cls(public, unchecked.validate(backend=backend).block)

    def _map(self, kernel: Kernel, *more: Block, **options: Unpack[BatchOptions]) -> Self:
        return type(self)(self.public, run_batch(kernel, self.block, *more, **options))


@dataclass(frozen=True, eq=False, repr=False)
class CipherVector(_Checked):
    """[[m_1]], ..., [[m_k]] under one key."""

    _kind = _CIPHERTEXTS

    def add(self, other: "CipherVector", **options: Unpack[BatchOptions]) -> "CipherVector":
        self.require_like(other)
        return self._map(kernels.MulMod(self.public.n_squared), other.block, **options)

    def negate(self, **options: Unpack[BatchOptions]) -> "CipherVector":
        return self._map(kernels.InvMod(self.public.n_squared), **options)

    def subtract(self, other: "CipherVector", **options: Unpack[BatchOptions]) -> "CipherVector":
        self.require_like(other)
        return self.add(other.negate(**options), **options)

    def scale(self, k: int, **options: Unpack[BatchOptions]) -> "CipherVector":
        self.public.residue(k)
        return self._map(kernels.PowMod(blocks.as_mpz(k), self.public.n_squared), **options)

    def sums(self, size: int, **options: Unpack[BatchOptions]) -> "CipherVector":
        """The sum of each `size` neighbours, by halves: as many additions as one after the other, in a few batches."""
        if size < 1 or len(self) % size:
            raise LengthMismatch(f"{len(self)} ciphertexts are not sums of {size} each")
        width = self.public.ciphertext_bytes
        rows = self.block.reshape(-1, size, width)
        while (left := rows.shape[1]) > 1:
            half = left // 2
            first, second = (CipherVector(self.public, rows[:, part].reshape(-1, width)) for part in _halves(half))
            added = first.add(second, **options).block.reshape(-1, half, width)
            rows = np.concatenate([added, rows[:, 2 * half :]], axis=1)
        return CipherVector(self.public, np.ascontiguousarray(rows[:, 0]))

    def scale_each(self, factors: Iterable[int] | Block, **options: Unpack[BatchOptions]) -> "CipherVector":
        """By signed integers, or by a block of numbers that are not negative."""
        if isinstance(factors, np.ndarray):
            if len(factors) != len(self):
                raise LengthMismatch(f"{len(factors)} factors for {len(self)} ciphertexts")
            return self._map(kernels.PowEach(self.public.n_squared, 8 * factors.shape[1]), factors, **options)
        signed = [blocks.as_mpz(k) for k in factors]
        if len(signed) != len(self):
            raise LengthMismatch(f"{len(signed)} factors for {len(self)} ciphertexts")
        for k in signed:
            self.public.residue(k)
        longest = max((abs(k).bit_length() for k in signed), default=1)
        exponents = blocks.from_ints((abs(k) for k in signed), max(1, (longest + 7) // 8))
        powers = self._map(kernels.PowEach(self.public.n_squared, longest), exponents, **options)
        minus = np.array([k < 0 for k in signed], dtype=np.bool_)
        if minus.any():
            negative = CipherVector(self.public, powers.block[minus])
            powers.block[minus] = negative.negate(backend=options.get("backend")).block
        return powers

    def scale_modulo(self, factors: Iterable[int], **options: Unpack[BatchOptions]) -> "CipherVector":
        """Each times its factor modulo N, by the same steps whatever the factors are: none is taken for a negative one."""
        n = self.public.n
        exponents = residues((k % n for k in factors), self.public)
        return self._map(kernels.PowEach(self.public.n_squared, self.public.bits), exponents, **options)

    def add_plain(self, plaintexts: Block, **options: Unpack[BatchOptions]) -> "CipherVector":
        """Entry-wise sum with known residues modulo N. Blinds nothing: what leaves the party is rerandomised first."""
        _require_residues(plaintexts, self.public)
        # Enc with the ciphertext in the randomizer's place: (1 + m*N) * c.
        return CipherVector(self.public, run_batch(kernels.AddPlain(self.public.n), plaintexts, self.block, **options))

    def rerandomise(self, randomizers: RandomizerSource, **options: Unpack[BatchOptions]) -> "CipherVector":
        """The same plaintexts under fresh randomizers."""
        self.public.require_same(randomizers.public)
        fresh = randomizers.take(len(self), progress=options.get("progress"))
        return self._map(kernels.MulMod(self.public.n_squared), fresh, **options)

    def bucket_sums(
        self,
        order: npt.NDArray[np.int64],
        signs: npt.NDArray[np.bool_],
        buckets: int,
        **options: Unpack[BatchOptions],
    ) -> "CipherVector":
        """Signed sums: entry order[j] falls into bucket j % buckets, subtracted where signs[j]. Each bucket is one sum."""
        if len(order) != len(self) or len(signs) != len(self) or not 0 < buckets <= len(self):
            text = f"{len(order)} places, {len(signs)} signs, {buckets} buckets for {len(self)} ciphertexts"
            raise LengthMismatch(text)
        if not np.array_equal(np.sort(order), np.arange(len(self))):
            raise LengthMismatch("order must name every ciphertext once")
        size = -(-len(self) // buckets)
        width = self.public.ciphertext_bytes
        rows = np.zeros((size * buckets, width), dtype=np.uint8)
        rows[:, -1] = 1  # the places that no ciphertext fills hold the neutral 1
        rows[: len(self)] = self.block[order]
        minus = np.zeros(size * buckets, dtype=np.uint8)
        minus[: len(self)] = signs
        grid = np.ascontiguousarray(rows.reshape(size, buckets, width).swapaxes(0, 1)).reshape(buckets, size * width)
        grid_signs = np.ascontiguousarray(minus.reshape(size, buckets).swapaxes(0, 1))
        kernel = kernels.BucketProduct(self.public.n_squared, size)
        return CipherVector(self.public, run_batch(kernel, grid, grid_signs, **options))

    def partial_decrypt(
        self, share: KeyShare, *, constant_time: bool = False, **options: Unpack[BatchOptions]
    ) -> "PartialVector":
        self.public.require_same(share.public)
        kernel = kernels.PartialDecrypt(share.exponent, self.public.n_squared, constant_time)
        return PartialVector(self.public, run_batch(kernel, self.block, **options))

    def __add__(self, other: "CipherVector") -> "CipherVector":
        return self.add(other)

    def __sub__(self, other: "CipherVector") -> "CipherVector":
        return self.subtract(other)

    def __mul__(self, k: int) -> "CipherVector":
        return self.scale(k)

    __rmul__ = __mul__

    def __getitem__(self, index: int) -> Ciphertext:
        if not isinstance(index, int):
            raise TypeError("an index gives one ciphertext; part(start, stop) gives several")
        return Ciphertext(mpz.from_bytes(self.block[index].tobytes(), "big"), self.public)

    def part(self, start: int, stop: int | None = None) -> "CipherVector":
        return CipherVector(self.public, self.block[start:stop])

    @classmethod
    def concat(cls, vectors: Sequence["CipherVector"]) -> "CipherVector":
        if not vectors:
            raise LengthMismatch("no vectors to join")
        for vector in vectors:
            vectors[0].public.require_same(vector.public)
        return cls(vectors[0].public, np.concatenate([vector.block for vector in vectors]))

    @classmethod
    def of(cls, ciphertexts: Iterable[Ciphertext], public: PublicKey) -> "CipherVector":
        values = []
        for c in ciphertexts:
            public.require_same(c.public)
            values.append(c.value)
        return cls(public, blocks.from_ints(values, public.ciphertext_bytes))


@dataclass(frozen=True, eq=False, repr=False)
class PartialVector(_Checked):
    """The partial decryptions of a vector by one share."""

    _kind = _PARTIAL_DECRYPTIONS


@dataclass(frozen=True, eq=False, repr=False)
class Unchecked(_Numbers):
    """Received numbers that nobody has checked yet."""

    @classmethod
    def parse(cls, data: bytes, public: PublicKey, *, max_count: int, kind: int = _CIPHERTEXTS) -> "Unchecked":
        count = _decode_header(data[: _HEADER.size], public, max_count, kind)
        expected = _HEADER.size + count * public.ciphertext_bytes
        if len(data) < expected:
            raise Truncated(f"{len(data)} bytes where {count} ciphertexts need {expected}")
        if len(data) > expected:
            raise TrailingBytes(f"{len(data)} bytes where {count} ciphertexts need {expected}")
        return cls(public, blocks.from_bytes(memoryview(data)[_HEADER.size :], public.ciphertext_bytes))

    def trusted(self) -> CipherVector:
        """As ciphertexts, for bytes that `validate` or `refusals` has accepted before."""
        return CipherVector(self.public, self.block)

    def validate(self, **options: Unpack[BatchOptions]) -> CipherVector:
        """Check 0 < c < N^2 and gcd(c, N) = 1 for every number: one gcd a chunk."""
        refusal = self._refusal(run_batch(kernels.CheckUnits(self.public.n), self.block, **options)[:, 0])
        if refusal is not None:
            raise refusal
        return self.trusted()

    @staticmethod
    def refusals(
        vectors: Sequence["Unchecked"], public: PublicKey, *, backend: Backend | None = None
    ) -> list[CrowdFLError | None]:
        """What `validate` would raise, or None, for each of several vectors, checked as one batch."""
        for vector in vectors:
            public.require_same(vector.public)
        if not vectors:
            return []
        together = np.concatenate([vector.block for vector in vectors])
        verdict = run_batch(kernels.CheckUnits(public.n), together, backend=backend)[:, 0]
        ends = np.cumsum([len(vector) for vector in vectors])
        return [vector._refusal(part) for vector, part in zip(vectors, np.split(verdict, ends[:-1]), strict=True)]

    def _refusal(self, verdict: npt.NDArray[np.uint8]) -> CrowdFLError | None:
        bad = np.flatnonzero(verdict != kernels.VALID)
        if not bad.size:
            return None
        where = f"{bad.size} of {len(self)} numbers are not ciphertexts, the first at position {bad[0]}"
        if verdict[bad[0]] == kernels.OUT_OF_RANGE:
            return CiphertextOutOfRange(f"{where}: not in (0, N^2)")
        return NotAUnit(f"{where}: a factor in common with N")


class RunningProduct:
    """The sum of vectors that arrive over time, in any order: two vectors of memory, whatever their number.

    The second vector takes each new sum, so that an addition that fails or is cancelled leaves the sum as it was.
    """

    def __init__(self, public: PublicKey, length: int, limit: int, *, backend: Backend | None = None) -> None:
        self.public = public
        self.limit = limit
        self.count = 0
        self._backend = backend or default_backend()
        self._block = np.zeros((length, public.ciphertext_bytes), dtype=np.uint8)
        self._block[:, -1] = 1
        self._next = np.empty_like(self._block)

    def add(self, vector: CipherVector, *, progress: Progress | None = None) -> None:
        self.add_all([vector], progress=progress)

    def add_all(self, vectors: Sequence[CipherVector], *, progress: Progress | None = None) -> None:
        """Multiply uploads in as one batch, which a backend may reduce as a tree; all of them or none."""
        for vector in vectors:
            self.public.require_same(vector.public)
            if len(vector) != len(self._block):
                raise LengthMismatch(f"an upload of {len(vector)} ciphertexts where {len(self._block)} are expected")
        if self.count + len(vectors) > self.limit:
            raise TooManyUploads(f"the width budget allows {self.limit} uploads; another could overflow a slot")
        if vectors:
            so_far = [self._block] if self.count else []
            self._multiply([*so_far, *(vector.block for vector in vectors)], progress or Progress())
            self._block, self._next = self._next, self._block
            self.count += len(vectors)

    def _multiply(self, factors: Sequence[Block], progress: Progress) -> None:
        modulus = self.public.n_squared
        if len(factors) == 1:  # the first upload is the sum so far
            progress.check()
            self._next[:] = factors[0]
            progress.report(len(self._next), len(self._next))
        elif len(factors) == 2:
            self._backend.map(kernels.MulMod(modulus), *factors, out=self._next, progress=progress)
        else:
            side_by_side = np.concatenate(factors, axis=1)
            plus = np.zeros((len(side_by_side), len(factors)), dtype=np.uint8)
            kernel = kernels.BucketProduct(modulus, len(factors), all_plus=True)
            self._backend.map(kernel, side_by_side, plus, out=self._next, progress=progress)

    def result(self) -> CipherVector:
        """The sum so far; later additions do not change it."""
        return CipherVector(self.public, self._block.copy())


def _halves(half: int) -> tuple[slice, slice]:
    return slice(0, half), slice(half, 2 * half)


def encrypt(
    randomizers: RandomizerSource, plaintexts: Block | Iterable[int], **options: Unpack[BatchOptions]
) -> CipherVector:
    """Enc of many plaintexts: residues modulo N as a block (from a packing), or signed integers."""
    public = randomizers.public
    if isinstance(plaintexts, np.ndarray):
        block = plaintexts
        _require_residues(block, public)
    else:
        block = residues((public.residue(m) for m in plaintexts), public)
    blinds = randomizers.take(len(block), progress=options.get("progress"))
    return CipherVector(public, run_batch(kernels.Encrypt(public.n), block, blinds, **options))


def signed_residues(values: npt.NDArray[np.int64], public: PublicKey) -> Block:
    """Signed integers as plaintexts, none of them an object of its own where all lie in (-N/2, N/2) anyway."""
    if public.bits > 65:
        return blocks.signed_residues(values, public.n)
    return residues((public.residue(m) for m in values.tolist()), public)


def combine(first: PartialVector, second: PartialVector, **options: Unpack[BatchOptions]) -> Block:
    """TDec of every entry: plaintext residues modulo N, for a packing to unpack."""
    first.require_like(second)
    return run_batch(kernels.Combine(first.public.n), first.block, second.block, **options)


def residues(numbers: Iterable[int], public: PublicKey) -> Block:
    """Numbers in [0, N) as a block of plaintexts."""
    return blocks.from_ints(numbers, public.plaintext_bytes)


def _require_residues(block: Block, public: PublicKey) -> None:
    fits = block.dtype == np.uint8 and block.ndim == 2 and block.shape[1] == public.plaintext_bytes
    if not fits or blocks.at_least(block, public.n).any():
        raise FormatError(f"plaintext residues are rows of {public.plaintext_bytes} bytes below N")


def form_bytes(public: PublicKey, count: int) -> int:
    """Bytes of the binary form of `count` ciphertexts."""
    return _HEADER.size + count * public.ciphertext_bytes


def signed_values(residues: Block, public: PublicKey) -> list[int]:
    """Plaintext residues as numbers in (-N/2, N/2), one by one."""
    return [public.signed(residue) for residue in blocks.to_ints(residues)]


def _decode_header(data: bytes, public: PublicKey, max_count: int, expected: int) -> int:
    if len(data) < _HEADER.size:
        raise Truncated(f"{len(data)} bytes where the header alone has {_HEADER.size}")
    magic, version, kind, reserved, fingerprint, width, count = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise FormatError("these bytes are not a CrowdFL vector")
    if version != _VERSION:
        raise UnsupportedVersion(f"a vector of version {version}; this program reads version {_VERSION}")
    if kind != expected:
        raise FormatError(f"a vector of kind {kind} where kind {expected} is expected")
    if reserved:
        raise FormatError("the reserved bytes of a vector must be zero")
    if fingerprint != public.fingerprint:
        raise KeyMismatch(f"a vector under key {fingerprint.hex()[:16]}, expected {public.fingerprint.hex()[:16]}")
    if width != public.ciphertext_bytes:
        raise FormatError(f"numbers of {width} bytes where this key has {public.ciphertext_bytes}")
    if count > max_count:
        raise LimitExceeded(f"{count} ciphertexts announced, at most {max_count} allowed here")
    return int(count)
