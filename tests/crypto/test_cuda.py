"""The GPU backend against the CPU's kernels, byte for byte.

The CUDA source runs on a GPU where there is one, and everywhere else compiled for the CPU, one group of lanes at a time.
"""

import secrets
import sys
from pathlib import Path

import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl.crypto import blocks
from crowdfl.crypto.backends import backend_named
from crowdfl.crypto.compute import Progress, Threads
from crowdfl.crypto.gpu import ring as cuda_ring
from crowdfl.crypto.gpu.backend import Cuda
from crowdfl.crypto.gpu.ring import CupyDevice, layouts_for
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.kernels import (
    AddPlain,
    BucketProduct,
    CheckUnits,
    Combine,
    Encrypt,
    FixedBase,
    FixedBasePower,
    InvMod,
    MulMod,
    MultiPow,
    PartialDecrypt,
    PowEach,
    PowMod,
)
from crowdfl.crypto.randomness import random_unit
from crowdfl.errors import BackendUnavailable, Cancelled, NotAUnit, SettingsError, SharesDoNotMatch
from tests.crypto.emulated import COMPILER, EmulatedDevice

_FEW, _LONG = 5, 37  # rows; and more than two levels of a product


class Bench:
    """A backend, a key, and numbers under it."""

    def __init__(self, backend: Cuda, prime_bits: int) -> None:
        self.backend = backend
        self.keys = pctd.keygen(prime_bits, insecure_test_key=prime_bits < pctd.SECURE_PRIME_BITS)
        self.n, self.square = self.keys.public.n, self.keys.public.n_squared

    def units(self, count: int) -> blocks.Block:
        return blocks.from_ints([random_unit(self.square) for _ in range(count)], blocks.width_of(self.square))

    def below(self, bound: int, count: int) -> blocks.Block:
        numbers = (secrets.randbelow(int(bound)) for _ in range(count))
        return blocks.from_ints(numbers, blocks.width_of(int(bound) - 1))

    def agrees(self, kernel, *given: blocks.Block) -> bool:
        """Whether the backend gives the bytes of the CPU's kernel."""
        return np.array_equal(self.backend.map(kernel, *given), kernel.run(*given))


@pytest.fixture(scope="session")
def emulated(tmp_path_factory) -> EmulatedDevice:
    """The CUDA source, compiled for this machine's processor."""
    if COMPILER is None:
        pytest.skip("no C++ compiler (g++) to emulate the GPU with")
    return EmulatedDevice(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def small(emulated) -> Bench:
    """A test key on the emulated device."""
    return Bench(Cuda(emulated, Threads(1), table_window=3, fewest=0), 128)


@pytest.fixture(scope="session", params=["emulated", 1024, 2048, 3072], ids=lambda where: f"|N| = {where}")
def bench(request) -> Bench:
    """The test key, and real keys on a real GPU."""
    if request.param == "emulated":
        return request.getfixturevalue("small")
    try:
        device = CupyDevice()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    return Bench(Cuda(device, fewest=0), request.param // 2)


def test_one_exponent_for_all(bench):
    """Key shares, short and negative exponents; zero is the CPU's."""
    numbers = bench.units(_FEW)
    share = bench.keys.private.split()[0].exponent
    assert bench.agrees(PartialDecrypt(share, bench.square), numbers[:2])
    assert bench.agrees(PartialDecrypt(share, bench.square, constant_time=True), numbers[:1])
    for exponent in (0, 1, 2, 3, 1 << 20, -1, -77):
        assert bench.agrees(PowMod(mpz(exponent), bench.square), numbers)


def test_exponents_longer_than_n(bench):
    """They are taken apart by N; numbers that have a factor in common with N come out right too."""
    n = bench.n
    edges = blocks.from_ints(
        [0, 1, n, n - 1, bench.square - 1, bench.keys.private.lambda_ * n], blocks.width_of(bench.square)
    )
    numbers = np.concatenate([bench.units(2), edges])
    for exponent in (n * n // 2, n * n - 1, n * n, n * n * n + 5):
        assert bench.agrees(PowMod(exponent, bench.square), numbers)
    assert bench.agrees(PowMod(-n * n - n - 1, bench.square), bench.units(3))


def test_an_exponent_for_each(bench):
    exponents = np.concatenate([bench.below(1 << 24, _FEW - 2), blocks.from_ints([0, 1], 3)])
    assert bench.agrees(PowEach(bench.square, 24), bench.units(_FEW), exponents)


def test_products_and_inverses(bench):
    for rows in (1, 2, _FEW, 3 * _LONG):
        numbers = bench.units(rows)
        assert bench.agrees(MulMod(bench.square), numbers, bench.units(rows))
        assert bench.agrees(InvMod(bench.square), numbers)


def test_the_ends_of_the_range(bench):
    """0, 1, N and its neighbours, N^2 - 1, and what is not below N^2 at all."""
    n, top = int(bench.n), 256 ** blocks.width_of(bench.square) - 1
    edges = [0, 1, 2, n - 1, n, n + 1, n * n - 1, n * n - n, n * n, top]
    left = blocks.from_ints([x for x in edges for _ in edges], blocks.width_of(bench.square))
    right = blocks.from_ints(edges * len(edges), blocks.width_of(bench.square))
    assert bench.agrees(MulMod(bench.square), left, right)


def test_an_inverse_that_does_not_exist(bench):
    """The same error as on the CPU."""
    numbers = np.concatenate([bench.units(3), blocks.from_ints([bench.n], blocks.width_of(bench.square))])
    with pytest.raises(NotAUnit):
        bench.backend.map(InvMod(bench.square), numbers)


def test_encryption(bench):
    """Every plaintext, those beyond N included, which the CPU takes modulo N."""
    width = blocks.width_of(bench.n)
    plaintexts = blocks.from_ints([0, 1, int(bench.n) - 1, int(bench.n), 256**width - 1], width)
    for kernel in (Encrypt(bench.n), AddPlain(bench.n)):
        assert bench.agrees(kernel, plaintexts, bench.units(_FEW))
        assert bench.agrees(kernel, bench.below(bench.n, _FEW), bench.units(_FEW))


def test_combining_shares(bench):
    c = blocks.from_ints([bench.keys.public.encrypt(m).value for m in (0, 1, -1, 12345)], blocks.width_of(bench.square))
    first, second = (PartialDecrypt(s.exponent, bench.square).run(c) for s in bench.keys.private.split())
    assert bench.agrees(Combine(bench.n), first, second)
    with pytest.raises(SharesDoNotMatch):
        bench.backend.map(Combine(bench.n), first, first)


def test_checking_units(bench):
    square, width = int(bench.square), blocks.width_of(bench.square)
    good = bench.units(_LONG)
    outside = blocks.from_ints([0, square, 256**width - 1, square - 1], width)
    factor = blocks.from_ints([bench.n], width)
    for rows in ([good], [good, outside], [outside, good, factor], [factor]):
        assert bench.agrees(CheckUnits(bench.n), np.concatenate(rows))


@pytest.mark.parametrize("size", [1, 16, 18, _LONG])
def test_bucket_products(bench, size):
    """Signs of both kinds, all plus, all minus."""
    numbers = bench.units(3 * size).reshape(3, -1)
    signs = np.array([[0] * size, [1] * size, [j % 2 for j in range(size)]], dtype=np.uint8)
    assert bench.agrees(BucketProduct(bench.square, size), numbers, signs)


@pytest.mark.parametrize("size", [1, 17])
def test_products_of_powers(bench, size):
    """More bases than a group takes, and a single one."""
    exponents = bench.below(1 << 16, 2 * size).reshape(2, -1)
    assert bench.agrees(MultiPow(bench.square, size, 16), bench.units(2 * size).reshape(2, -1), exponents)


def test_fixed_base(bench):
    """A table of its own, whatever the window of the CPU's."""
    public = bench.keys.public
    fixed = FixedBase(public.h_s, bench.square, public.exponent_bits, 4)
    exponents = blocks.from_bytes(secrets.token_bytes(3 * fixed.exponent_width), fixed.exponent_width)
    assert bench.agrees(FixedBasePower(fixed), exponents)


def test_a_modulus_that_is_no_square_runs_on_threads(small):
    for modulus in (int(small.square) + 2, 10**24):
        numbers = small.below(modulus, 3)
        assert small.agrees(MulMod(mpz(modulus)), numbers, numbers)


def test_what_is_not_worth_a_trip_or_too_long_stays_on_the_cpu(monkeypatch):
    """A few products, and an N beyond what the kernels are laid out for; powers of few numbers do go."""
    device = EmulatedDevice(Path())
    launches: list[str] = []
    monkeypatch.setattr(device, "launch", lambda layout, kernel, *_: launches.append(kernel))
    backend, n = Cuda(device, Threads(1)), mpz(2**61 - 1)
    one = blocks.from_ints([7], 16)
    assert np.array_equal(backend.map(MulMod(n * n), one, one), MulMod(n * n).run(one, one))
    long = mpz(2**5000 + 1)
    row = blocks.from_ints([7], 1251)
    kernel = PowMod(mpz(3), long * long)
    assert np.array_equal(backend.map(kernel, row), kernel.run(row))
    assert not launches
    backend.map(PowMod(mpz(3), n * n), one)
    assert "power" in launches


def test_results_go_where_the_caller_says(small):
    """`out` may be one of the operands."""
    left, right = small.units(_FEW).copy(), small.units(_FEW)
    expected = MulMod(small.square).run(left, right)
    assert small.backend.map(MulMod(small.square), left, right, out=left) is left
    assert np.array_equal(left, expected)


def test_inputs_are_left_as_they_were(small):
    """Secret digits are wiped on the device, not in the caller's block."""
    bases, exponents = small.units(2), small.below(1 << 24, 2)
    before = exponents.copy()
    small.backend.map(PowEach(small.square, 24), bases, exponents)
    assert np.array_equal(exponents, before)


def test_a_batch_reports_and_stops(small):
    seen: list[tuple[int, int]] = []
    progress = Progress(lambda done, total: seen.append((done, total)))
    numbers = small.units(2)
    small.backend.map(MulMod(small.square), numbers, numbers, progress=progress)
    assert seen == [(0, 2), (2, 2)]
    progress.cancel()
    with pytest.raises(Cancelled):
        small.backend.map(MulMod(small.square), numbers, numbers, progress=progress)


def test_a_device_that_fails_is_named(small, monkeypatch):
    """Out of memory, say: what to do, and nothing half done."""

    def full(*_) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(small.backend.device, "launch", full)
    numbers = small.units(2)
    with pytest.raises(BackendUnavailable, match="no room"):
        small.backend.map(MulMod(small.square), numbers, numbers)


def test_digits_of_secret_exponents_are_wiped(small):
    """Key shares and masks do not stay in device memory."""
    ring = small.backend._ring(small.n)
    pairs = ring.read(small.units(2))
    digits = ring.digits(small.below(1 << 24, 2), 24, 4, highest_first=True)
    assert digits.any()
    ring.power(pairs, digits, 1, 4)
    assert not digits.any()
    digits = ring.digits(small.below(1 << 24, 2), 24, 4, highest_first=True)
    ring.power_products(pairs, digits, 2, 4)
    assert not digits.any()


def test_no_rows_give_no_rows(small):
    none = blocks.empty(0, blocks.width_of(small.square))
    assert len(small.backend.map(MulMod(small.square), none, none)) == 0


@pytest.mark.parametrize("bits", [1024, 2048, 3072])
def test_a_modulus_close_to_its_limbs_gets_one_more(bits):
    """Results reach N + 3 * 2^(32 * (limbs - 1)): they must fit."""
    for n in ((1 << bits) - 1, (0xFFFFFFFC << (bits - 32)) + 1, (0xFFFFFFFB << (bits - 32)) + 1, (1 << (bits - 1)) + 1):
        for layout in layouts_for(n):
            assert n + 3 * (1 << (32 * (layout.size - 1))) <= 1 << (32 * layout.size)
            assert layout.limbs % 2 == 0
    assert layouts_for((1 << (bits - 1)) + 1)[0].size == bits // 32


def test_the_longest_modulus_of_its_limbs(emulated):
    """N with all bits set, squared and multiplied at its largest residues."""
    n = mpz((1 << 512) - 1)
    backend, kernel = Cuda(emulated, Threads(1), fewest=0), MulMod(n * n)
    numbers = blocks.from_ints([n * n - 1, n * n - 2, n, n - 1], 128)
    assert np.array_equal(backend.map(kernel, numbers, numbers), kernel.run(numbers, numbers))


def test_carries_run_through_all_lanes(emulated):
    """Residues of all ones and nearly so: the rare carries that random numbers do not meet."""
    n = mpz((0xFFFFFFFB << 480) + 1)
    backend, kernel = Cuda(emulated, Threads(1), fewest=0), MulMod(n * n)
    edges = [(1 << bits) - d for bits in (32, 64, 511, 512, 1023) for d in (1, 2)] + [n * n - 1, n * (n - 1), n - 1]
    left = blocks.from_ints([x % (n * n) for x in edges for _ in edges], 128)
    right = blocks.from_ints([x % (n * n) for x in edges] * len(edges), 128)
    assert np.array_equal(backend.map(kernel, left, right), kernel.run(left, right))


def test_squares_of_numbers_that_fill_their_limbs(emulated):
    """The upper half of a pair is doubled to square it, and its highest bit must not be lost."""
    n = mpz((0xFFFFFFFB << 480) + 1)
    backend, kernel = Cuda(emulated, Threads(1), fewest=0), PowMod(mpz(1 << 5), n * n)
    numbers = blocks.from_ints([secrets.randbelow(int(n * n)) for _ in range(6)] + [n * n - 1, n * (n - 2) + 3], 128)
    assert np.array_equal(backend.map(kernel, numbers), kernel.run(numbers))


def test_without_cupy_the_reason_is_named(monkeypatch):
    """What is missing and what to do; nothing else needs CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable, match="extra `cuda`"):
        backend_named("cuda")


def test_backends_by_name():
    """Threads are there everywhere; an unknown name lists the known ones."""
    assert backend_named("threads", workers=2).name == "threads"
    with pytest.raises(SettingsError, match="threads, cuda"):
        backend_named("abacus")


def test_the_pieces_of_a_product_are_as_long_as_the_tests_assume():
    """So that the sizes above do cross the borders they mean to."""
    assert cuda_ring._PIECE == 16
