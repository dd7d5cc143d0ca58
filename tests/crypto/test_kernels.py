"""Every kernel against the scalar formula in plain Python integers."""

import math

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.kernels import (
    NON_UNIT,
    OUT_OF_RANGE,
    VALID,
    BucketProduct,
    CheckUnits,
    Combine,
    FixedBase,
    FixedBasePower,
    InvMod,
    MulMod,
    MultiPow,
    PartialDecrypt,
    PowEach,
    PowMod,
)
from crowdfl.errors import NotAUnit, SharesDoNotMatch

P, Q = 4294967291, 4294967279  # the two largest primes below 2^32
N = P * Q
SQUARE = N * N
WIDTH = 16
units = st.integers(1, SQUARE - 1).filter(lambda x: math.gcd(x, N) == 1)
unit_lists = st.lists(units, max_size=12)


def run(kernel, *columns: list[int]) -> list[int]:
    """A kernel on columns of integers of the modulus' width."""
    result = kernel.run(*(blocks.from_ints(column, WIDTH) for column in columns))
    assert result.shape == (len(columns[0]), kernel.out_width)
    return [int(x) for x in blocks.to_ints(result)]


@given(bases=unit_lists, exponent=st.integers(-(2**80), 2**80))
def test_pow_mod_raises_each_row(bases, exponent):
    assert run(PowMod(mpz(exponent), mpz(SQUARE)), bases) == [pow(b, exponent, SQUARE) for b in bases]


def test_pow_mod_in_constant_time_uses_the_protected_power(monkeypatch):
    seen = []

    def spy(base: int, exponent: int, modulus: int) -> mpz:
        seen.append(base)
        return mpz(pow(base, exponent, modulus))

    monkeypatch.setattr("crowdfl.crypto.paillier.kernels.gmpy2.powmod_sec", spy)
    run(PowMod(mpz(3), mpz(SQUARE)), [4, 5])
    assert seen == []
    run(PowMod(mpz(3), mpz(SQUARE), constant_time=True), [4, 5])
    assert seen == [4, 5]


def test_pow_mod_keeps_its_exponent_out_of_its_repr():
    for kind in (PowMod, PartialDecrypt):
        assert "987654321" not in repr(kind(mpz(987654321), mpz(SQUARE)))


@given(pairs=st.lists(st.tuples(units, st.integers(0, 2**70 - 1)), max_size=12))
def test_pow_each_raises_each_row_to_its_own(pairs):
    bases, exponents = [b for b, _ in pairs], [e for _, e in pairs]
    assert run(PowEach(mpz(SQUARE), 70), bases, exponents) == [pow(b, e, SQUARE) for b, e in pairs]


@given(pairs=st.lists(st.tuples(units, units), max_size=12))
def test_mul_mod_multiplies_row_by_row(pairs):
    expected = [a * b % SQUARE for a, b in pairs]
    assert run(MulMod(mpz(SQUARE)), [a for a, _ in pairs], [b for _, b in pairs]) == expected


@given(numbers=unit_lists)
def test_inv_mod_inverts_each_row(numbers):
    """One inversion for all gives the inverse of each."""
    assert run(InvMod(mpz(SQUARE)), numbers) == [pow(x, -1, SQUARE) for x in numbers]


def test_inv_mod_refuses_what_has_no_inverse():
    """A named error, not a division by zero."""
    with pytest.raises(NotAUnit):
        run(InvMod(mpz(SQUARE)), [2, P, 3])


def test_combine_refuses_what_comes_out_uneven():
    """One bad row among good ones is enough."""
    with pytest.raises(SharesDoNotMatch):
        run(Combine(mpz(N)), [1, 5, 1], [1, 1, 1 + N])


@given(
    numbers=st.lists(
        st.sampled_from([0, 1, P, Q, N, 2 * N, P * P, SQUARE - 1, SQUARE, SQUARE + 1, 2**128 - 1]) | units, max_size=12
    )
)
def test_check_units_gives_each_row_its_verdict(numbers):
    def verdict(x: int) -> int:
        if not 0 < x < SQUARE:
            return OUT_OF_RANGE
        return VALID if math.gcd(x, N) == 1 else NON_UNIT

    assert run(CheckUnits(mpz(N)), numbers) == [verdict(x) for x in numbers]


@given(rows=st.lists(st.lists(st.tuples(units, st.booleans()), min_size=3, max_size=3), max_size=5))
def test_bucket_product_divides_where_the_sign_is_minus(rows):
    """The product of numbers^(+-1) of each row."""
    grid = blocks.from_bytes(b"".join(x.to_bytes(WIDTH, "big") for row in rows for x, _ in row), 3 * WIDTH)
    signs = np.array([[minus for _, minus in row] for row in rows], dtype=np.uint8).reshape(-1, 3)
    result = BucketProduct(mpz(SQUARE), 3).run(grid, signs)
    expected = [math.prod(pow(x, -1 if minus else 1, SQUARE) for x, minus in row) % SQUARE for row in rows]
    assert blocks.to_ints(result) == expected


def test_bucket_product_refuses_what_has_no_inverse():
    """A non-unit that is to be subtracted."""
    grid = blocks.from_bytes((2).to_bytes(WIDTH, "big") + P.to_bytes(WIDTH, "big"), 2 * WIDTH)
    with pytest.raises(NotAUnit):
        BucketProduct(mpz(SQUARE), 2).run(grid, np.array([[0, 1]], dtype=np.uint8))


@given(data=st.data(), size=st.integers(1, 40), exponent_bits=st.sampled_from([1, 7, 8, 20, 61]))
def test_multi_pow_is_the_product_of_powers(data, size, exponent_bits):
    """Any number of bases, exponents up to their full length and zero."""
    top = 2**exponent_bits - 1
    exponents = st.sampled_from([0, 1, top]) | st.integers(0, top)
    pairs = st.lists(st.tuples(units, exponents), min_size=size, max_size=size)
    rows = data.draw(st.lists(pairs, max_size=3))
    bases = blocks.from_bytes(b"".join(b.to_bytes(WIDTH, "big") for row in rows for b, _ in row), size * WIDTH)
    powers = blocks.from_bytes(b"".join(e.to_bytes(8, "big") for row in rows for _, e in row), size * 8)
    result = MultiPow(mpz(SQUARE), size, exponent_bits).run(bases, powers)
    assert blocks.to_ints(result) == [math.prod(pow(b, e, SQUARE) for b, e in row) % SQUARE for row in rows]


def test_multi_pow_handles_many_bases():
    """Windows grow with the number of bases, up to their limit."""
    rng = np.random.default_rng(3)
    bases = [int(x) | 1 for x in rng.integers(1, 2**62, 20_000)]
    exponents = [int(x) for x in rng.integers(0, 2**20, 20_000)]
    kernel = MultiPow(mpz(SQUARE), 20_000, 20)
    grid = blocks.from_ints(bases, WIDTH).reshape(1, -1)
    result = kernel.run(grid, blocks.from_ints(exponents, 3).reshape(1, -1))
    expected = 1
    for base, exponent in zip(bases, exponents, strict=True):
        expected = expected * pow(base, exponent, SQUARE) % SQUARE
    assert blocks.to_ints(result) == [expected]


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("exponent_bits", [1, 13, 32, 37])
def test_fixed_base_power_equals_the_plain_power(window, exponent_bits):
    """Any window, with exponents that fill no whole digits or bytes; the extremes included."""
    fixed = FixedBase(mpz(1234567), mpz(SQUARE), exponent_bits, window)
    top = 2**exponent_bits - 1
    exponents = [0, 1, top, top // 2, top // 3]
    result = FixedBasePower(fixed).run(blocks.from_ints(exponents, fixed.exponent_width))
    assert blocks.to_ints(result) == [pow(1234567, e, SQUARE) for e in exponents]


@given(exponents=st.lists(st.integers(0, 2**64 - 1), max_size=8))
def test_fixed_base_ignores_bits_beyond_its_length(exponents):
    """Random bytes may carry more bits than an exponent has; they do not count."""
    fixed = FixedBase(mpz(7), mpz(SQUARE), 61, 5)
    result = FixedBasePower(fixed).run(blocks.from_ints(exponents, 8))
    assert blocks.to_ints(result) == [pow(7, e % 2**61, SQUARE) for e in exponents]


@pytest.mark.parametrize("window", [1, 3, 8])
def test_table_is_as_large_as_announced(window):
    fixed = FixedBase(mpz(7), mpz(SQUARE), 61, window)
    assert len(fixed.table) == fixed.digits == math.ceil(61 / window)
    assert {len(row) for row in fixed.table} == {2**window}
    assert fixed.table_bytes >= fixed.digits * 2**window * WIDTH


@pytest.mark.parametrize(
    "kernel",
    [
        PowMod(mpz(2**4095), mpz(SQUARE)),
        PowMod(mpz(0), mpz(SQUARE)),
        PowEach(mpz(SQUARE), 4096),
        BucketProduct(mpz(SQUARE), 10**6),
        MultiPow(mpz(SQUARE), 10**6, 4096),
        MultiPow(mpz(SQUARE), 1, 1),
        FixedBasePower(FixedBase(mpz(7), mpz(SQUARE), 10**6, 1)),
    ],
    ids=repr,
)
def test_a_chunk_is_never_empty_nor_endless(kernel):
    assert 1 <= kernel.chunk <= 32 * 1024
