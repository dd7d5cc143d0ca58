"""Numbers modulo N^2 on a GPU: constants, conversions and batches. `kernels.cu` says how a number lies there.

A device array of pairs holds numbers times R (Montgomery's form) unless a name says `plain`. CuPy is imported here, and late.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, Protocol

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_ints, to_ints, width_of
from crowdfl.crypto.paillier.kernels import inverses
from crowdfl.errors import BackendUnavailable

_ADVICE = "install the extra `cuda` on a machine with an NVIDIA GPU and its driver, or compute on threads"


def source() -> str:
    return resources.files("crowdfl.crypto.gpu").joinpath("kernels.cu").read_text("utf-8")


@dataclass(frozen=True)
class Layout:
    """How a number modulo N lies in threads: `lanes` threads of `limbs` 32-bit limbs each, the latter even."""

    lanes: int
    limbs: int
    blocks: int  # that a multiprocessor should hold at a time: bounds the registers of a thread

    @property
    def size(self) -> int:
        return self.lanes * self.limbs

    def defines(self, block: int) -> tuple[str, ...]:
        return (f"-DTPI={self.lanes}", f"-DL={self.limbs}", f"-DBLOCK={block}", f"-DMIN_BLOCKS={self.blocks}")


class Device(Protocol):
    """Arrays by an array module (CuPy, or NumPy where kernels are emulated), and launches."""

    xp: Any
    failures: tuple[type[Exception], ...]  # what array operations and launches raise when the device fails

    @property
    def block(self) -> int: ...  # threads of a block
    @property
    def processors(self) -> int: ...  # multiprocessors
    def host(self, array: Any) -> Any: ...  # noqa: ANN401 -- a NumPy array with the contents of a device array

    def launch(self, layout: Layout, kernel: str, threads: int, *args: Any) -> None:  # noqa: ANN401 -- arrays and ints
        """Run a kernel on at least so many threads. A plain integer is passed as 64 bits."""


class CupyDevice:
    """The first NVIDIA GPU, through CuPy."""

    block = 128

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise BackendUnavailable(f"CuPy cannot be imported ({error}): {_ADVICE}") from None
        self.xp: Any = cupy
        try:
            properties = self.xp.cuda.runtime.getDeviceProperties(0)
        except self.xp.cuda.runtime.CUDARuntimeError as error:
            raise BackendUnavailable(f"no GPU can be used ({error}): {_ADVICE}") from None
        self.processors = int(properties["multiProcessorCount"])
        self.name = str(properties["name"].decode())
        cuda = self.xp.cuda
        self.failures: tuple[type[Exception], ...] = (
            cuda.memory.OutOfMemoryError,
            cuda.runtime.CUDARuntimeError,
            cuda.driver.CUDADriverError,
            cuda.compiler.CompileException,
        )
        self._module = cache(self._compile)

    def launch(self, layout: Layout, kernel: str, threads: int, *args: Any) -> None:  # noqa: ANN401
        function = self._module(layout).get_function(kernel)
        wide = tuple(np.uint64(x) if isinstance(x, int) else x for x in args)
        function((-(-threads // self.block),), (self.block,), wide)

    def host(self, array: Any) -> Any:  # noqa: ANN401
        return self.xp.asnumpy(array)

    def _compile(self, layout: Layout) -> Any:  # noqa: ANN401
        # The driver's compiler comes with CuPy; it keeps what it compiled in the user's cache folder.
        return self.xp.RawModule(code=source(), options=("--std=c++17", *layout.defines(self.block)))


_LIMB = 32
_TOP_LIMIT = 0xFFFFFFFC  # of N's highest limb: see kernels.cu
_PIECE = 16  # factors that one group multiplies up
_TREE_LEAF = 64  # numbers whose product the host inverts
_Pairs = Any  # a device array (rows, 2 * size) of uint32
_Words = npt.NDArray[np.uint32]


def layouts_for(n: int) -> tuple[Layout, Layout]:
    """How to lay out numbers modulo n: for many numbers at once, and, with more threads for each, for few."""
    limbs = -(-int(n).bit_length() // _LIMB)
    size = -(-limbs // 16) * 16
    if size == limbs and int(n) >> (_LIMB * (limbs - 1)) >= _TOP_LIMIT:
        size += 16
    many = _layout(8, size)
    return many, _layout(16, size) if size % 32 == 0 else many


def _layout(lanes: int, size: int) -> Layout:
    """With as many blocks a multiprocessor as the registers of its threads allow, measured at 4 to 12 limbs."""
    limbs = size // lanes
    return Layout(lanes, limbs, 8 if limbs <= 4 else 6 if limbs <= 6 else 4 if limbs <= 12 else 2)


def window_for(bits: int) -> int:
    """The window that takes the fewest multiplications: 2^w for the table, one a digit."""
    return min(range(1, 9), key=lambda w: (1 << w) + -(-bits // w))


def digits_of(exponent: int, window: int, places: int = 1) -> npt.NDArray[np.uint16]:
    """The digits of one exponent, highest first, in so many places at least."""
    count = max(places, -(-int(exponent).bit_length() // window))
    mask = (1 << window) - 1
    return np.array([int(exponent >> (window * i)) & mask for i in reversed(range(count))], dtype=np.uint16)


@dataclass(frozen=True, eq=False)
class DeviceRing:
    """Z modulo n^2 on a device."""

    device: Device
    n: mpz
    many: Layout
    few: Layout

    @classmethod
    def of(cls, device: Device, n: mpz) -> "DeviceRing":
        return cls(device, mpz(n), *layouts_for(int(n)))

    @property
    def size(self) -> int:
        return self.many.size

    @property
    def width(self) -> int:
        return width_of(self._modulus)

    @cached_property
    def modulus(self) -> Any:  # noqa: ANN401
        """n, and -1/n modulo 2^32 behind it."""
        inverse = int(gmpy2.invert(-self.n, 1 << _LIMB))
        return self._put(np.concatenate([self._limbs(self.n, self.size), np.array([inverse], dtype=np.uint32)]))

    @cached_property
    def one(self) -> _Pairs:
        return self._put(self._pair(self._r))

    def limbs(self, block: Block, size: int) -> Any:  # noqa: ANN401
        rows, width = block.shape
        raw = self._put(np.ascontiguousarray(block))
        out = self.device.xp.empty((rows, size), dtype=np.uint32)
        self._launch("limbs_of_rows", rows * size, raw, out, rows, np.uint32(width), np.uint32(size))
        return out

    def fits(self, block: Block) -> bool:
        return int(block.shape[1]) <= 8 * self.size

    def rows(self, numbers: Any, width: int) -> Block:  # noqa: ANN401
        rows, size = numbers.shape
        out = self.device.xp.empty((rows, width), dtype=np.uint8)
        self._launch("rows_of_limbs", rows * width, numbers, out, rows, np.uint32(width), np.uint32(size))
        result: Block = self.device.host(out)
        return result

    def enter(self, numbers: Any) -> _Pairs:  # noqa: ANN401
        out = self._pairs(len(numbers))
        self._launch_groups("enter", len(numbers), numbers, out, len(numbers), self._powers, self.modulus)
        return out

    def read(self, block: Block) -> _Pairs:
        return self.enter(self.limbs(block, 2 * self.size))

    def write(self, pairs: _Pairs) -> Block:
        return self.write_plain(self.multiply(pairs, self._unit))

    def write_plain(self, plain: _Pairs) -> Block:
        """Plain pairs, with parts below 2n, as rows of bytes."""
        out = self.device.xp.empty((len(plain), 2 * self.size), dtype=np.uint32)
        self._launch("leave", len(plain), plain, out, len(plain), self.modulus)
        return self.rows(out, self.width)

    def quotients(self, pairs: _Pairs) -> tuple[Block, npt.NDArray[np.bool_]]:
        """(x - 1)/n for every x that is 1 modulo n; and which are not."""
        plain = self.multiply(pairs, self._unit)
        count = len(pairs)
        out = self.device.xp.empty((count, self.size), dtype=np.uint32)
        wrong = self.device.xp.empty(count, dtype=np.uint8)
        self._launch("quotients", count, plain, out, wrong, count, self.modulus)
        return self.rows(out, width_of(self.n)), self.device.host(wrong).astype(np.bool_)

    def blinded(self, plaintexts: Block, pairs: _Pairs) -> Block:
        """(1 + m*n) * x, as rows of bytes."""
        numbers = self.limbs(plaintexts, self.size)
        plain = self._pairs(len(pairs))
        self._launch("plain_pairs", len(pairs), numbers, plain, len(pairs), self.modulus)
        # The product of a plain pair and one times R is plain; times R/R, its parts are below 2n.
        return self.write_plain(self.multiply(self.multiply(pairs, plain), self.one))

    def multiply(self, a: _Pairs, b: _Pairs) -> _Pairs:
        """Row by row; a `b` of one row serves all."""
        out = self._pairs(len(a))
        self._multiply(a, 1, b, int(len(b) > 1 or len(a) == 1), out, 1, len(a))
        return out

    def power(self, bases: _Pairs, digits: Any, step: int, window: int, kernel: str = "power") -> _Pairs:  # noqa: ANN401
        """Each row to the one exponent (step 0), or to its own; digits highest first."""
        count = len(bases)
        out = self._pairs(len(bases))
        layout = self._layout(count)
        groups = self._resident(layout, count)
        tables = self._pairs(groups << window)
        length = digits.shape[-1]
        self._launch_as(
            layout, kernel, groups, bases, digits, step * length, np.uint32(length), np.uint32(window), tables,
            out, count, groups, self.one, self.modulus,
        )  # fmt: skip
        self._forget(digits)
        return out

    def power_of_all(self, bases: _Pairs, exponent: int) -> _Pairs:
        """Each row to one positive exponent.

        One that is much longer than n is low + n * high: x^low * (x^high)^n. An n-th power follows from its base modulo n, so
        x^high is taken modulo n alone, which halves its products, and the other two powers share their squarings.
        """
        bits = int(self.n).bit_length()
        if 4 * exponent.bit_length() < 7 * bits:
            return self._power_of_all(bases, exponent, "power")
        high, low = divmod(exponent, int(self.n))
        count, window = len(bases), window_for(bits)
        both = self._pairs(2 * count).reshape(count, 2, 2 * self.size)
        both[:, 0] = bases
        both[:, 1] = self._power_of_all(bases, high, "power_low")
        pair = self._put(np.stack([digits_of(one, window, -(-bits // window)) for one in (low, int(self.n))]))
        digits = self.device.xp.tile(pair, (count, 1))
        self._forget(pair)
        return self.power_products(both.reshape(2 * count, -1), digits, 2, window)

    def _power_of_all(self, bases: _Pairs, exponent: int, kernel: str) -> _Pairs:
        window = window_for(exponent.bit_length())
        return self.power(bases, self._put(digits_of(exponent, window)), 0, window, kernel)

    def digits(self, exponents: Block, bits: int, window: int, *, highest_first: bool) -> Any:  # noqa: ANN401
        rows, width = exponents.shape
        count = max(1, -(-bits // window))
        out = self.device.xp.empty((rows, count), dtype=np.uint16)
        raw = self._put(np.ascontiguousarray(exponents))
        numbers = (np.uint32(x) for x in (width, bits, window, count, highest_first))
        self._launch("digits_of_rows", rows * count, raw, out, rows, *numbers)
        self._forget(raw)
        return out

    def fixed_table(self, base: mpz, bits: int, window: int) -> _Pairs:
        """base^(d * 2^(window*i)) for every digit d of every place i."""
        places = -(-bits // window)
        powers = self._pairs(places * window)
        start = self.read(from_ints([base], self.width))
        self._launch_as(self.few, "squarings", 1, start, powers, len(powers), self.modulus)
        table = self._pairs(places << window)
        table.reshape(places, 1 << window, 2 * self.size)[:, 0] = self.one
        for bit in range(window):
            count = places << bit
            numbers = np.uint32(window), np.uint32(bit), count
            self._launch_groups("grow_table", count, table, powers, *numbers, self.modulus)
        return table

    def fixed_power(self, table: _Pairs, digits: Any, window: int) -> _Pairs:  # noqa: ANN401
        """The fixed base to exponents whose digits are given lowest first."""
        rows, count = digits.shape
        out = self._pairs(rows)
        numbers = np.uint32(count), np.uint32(window)
        self._launch_groups("look_up", rows, table, digits, *numbers, out, rows, self.modulus)
        self._forget(digits)
        return out

    def products(self, pairs: _Pairs, size: int, marks: Any = None, wanted: int = 0) -> _Pairs:  # noqa: ANN401
        """The product of each `size` pairs in a row; with marks, of those alone whose mark is `wanted`."""
        rows = len(pairs) // size
        while True:
            pieces = -(-size // _PIECE)
            out = self._pairs(rows * pieces)
            given = marks if marks is not None else np.uint64(0)
            self._launch_groups(
                "piece_product", len(out), pairs, given, np.uint32(wanted), size, _PIECE, out, len(out), self.one,
                self.modulus,
            )  # fmt: skip
            if pieces == 1:
                return out
            pairs, size, marks = out, pieces, None

    def power_products(self, bases: _Pairs, digits: Any, size: int, window: int) -> _Pairs:  # noqa: ANN401
        piece = min(size, _PIECE)
        pieces = -(-size // piece)
        out = self._pairs(len(bases) // size * pieces)
        layout = self._layout(len(out))
        groups = self._resident(layout, len(out))
        tables = self._pairs(groups * piece << window)
        self._launch_as(
            layout, "power_product", groups, bases, digits, np.uint32(digits.shape[1]), np.uint32(window), size, piece,
            tables, out, len(out), groups, self.one, self.modulus,
        )  # fmt: skip
        self._forget(digits)
        return self.products(out, pieces)

    def inverses(self, pairs: _Pairs) -> _Pairs:
        """By one inversion on the host and three multiplications a row: products up a tree, inverses down it."""
        levels = [self._even(pairs)]
        while len(levels[-1]) > _TREE_LEAF:
            lower = levels[-1]
            upper = self._pairs(len(lower) // 2)
            self._multiply(lower, 2, lower[1:], 2, upper, 1, len(upper))
            levels.append(self._even(upper))
        inverse = self.read(from_ints(inverses(to_ints(self.write(levels[-1])), self._modulus), self.width))
        for lower in reversed(levels[:-1]):
            below = self._pairs(len(lower))
            half = len(lower) // 2
            self._multiply(inverse, 1, lower[1:], 2, below, 2, half)
            self._multiply(inverse, 1, lower, 2, below[1:], 2, half)
            inverse = below
        return inverse[: len(pairs)]

    def outside(self, numbers: Any) -> Any:  # noqa: ANN401
        """1 for each number of 2 * size limbs that is zero or not below n^2; stays on the device."""
        out = self.device.xp.empty(len(numbers), dtype=np.uint8)
        self._launch("out_of_range", len(numbers), numbers, out, len(numbers), self._square)
        return out

    @property
    def _modulus(self) -> mpz:
        return self.n * self.n

    @property
    def _r(self) -> mpz:
        return mpz(1) << (_LIMB * (self.size + 1))

    @cached_property
    def _powers(self) -> Any:  # noqa: ANN401
        squared = self._r * self._r
        high = mpz(1) << (_LIMB * self.size)
        return self._put(np.concatenate([self._pair(squared), self._pair(squared * high)]))

    @cached_property
    def _unit(self) -> _Pairs:
        return self._put(self._pair(mpz(1)))

    @cached_property
    def _square(self) -> Any:  # noqa: ANN401
        return self._put(self._limbs(self._modulus, 2 * self.size))

    def _pair(self, x: mpz) -> _Words:
        high, low = gmpy2.f_divmod(x % self._modulus, self.n)
        return np.concatenate([self._limbs(low, self.size), self._limbs(-high % self.n, self.size)])[None, :]

    @staticmethod
    def _limbs(x: mpz, size: int) -> _Words:
        return np.frombuffer(int(x).to_bytes(4 * size, "little"), dtype="<u4").astype(np.uint32)

    @staticmethod
    def _forget(secret: Any) -> None:  # noqa: ANN401
        """Exponents may be key shares or masks: nothing of them stays in memory that is used again."""
        secret.fill(0)

    def _put(self, array: npt.NDArray[Any]) -> Any:  # noqa: ANN401
        return self.device.xp.array(array)  # a copy even where the device is this machine

    def _pairs(self, rows: int) -> _Pairs:
        return self.device.xp.empty((rows, 2 * self.size), dtype=np.uint32)

    def _even(self, pairs: _Pairs) -> _Pairs:
        return self.device.xp.concatenate([pairs, self.one]) if len(pairs) % 2 else pairs

    def _multiply(self, a: _Pairs, a_step: int, b: _Pairs, b_step: int, out: _Pairs, step: int, count: int) -> None:
        self._launch_groups("multiply", count, a, a_step, b, b_step, out, step, count, self.modulus)

    def _layout(self, count: int) -> Layout:
        """More threads a number where the numbers alone would leave the device half idle."""
        return self.few if count < 16 * self.device.processors else self.many

    def _resident(self, layout: Layout, count: int) -> int:
        """Groups that the device holds at a time, in whole blocks; no more than it takes."""
        each = max(1, self.device.block // layout.lanes)
        held = self.device.processors * layout.blocks * each
        return min(held, -(-count // each) * each)

    def _launch(self, kernel: str, threads: int, *arguments: Any) -> None:  # noqa: ANN401
        self.device.launch(self.many, kernel, threads, *arguments)

    def _launch_groups(self, kernel: str, groups: int, *arguments: Any) -> None:  # noqa: ANN401
        self._launch_as(self._layout(groups), kernel, groups, *arguments)

    def _launch_as(self, layout: Layout, kernel: str, groups: int, *arguments: Any) -> None:  # noqa: ANN401
        self.device.launch(layout, kernel, groups * layout.lanes, *arguments)
