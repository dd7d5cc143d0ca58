"""Distributed comparison: together the parties know whether t < alpha, apart nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.shares.dcf import evaluate, generate
from crowdfl.crypto.shares.expansion import expand
from crowdfl.errors import LengthMismatch


def seeds_of(count: int, label: str = "") -> tuple[bytes, bytes]:
    data = expand(bytes(32), f"seeds {label}".encode(), 32 * count)
    return data[: 16 * count], data[16 * count :]


def together(alphas: list[int], bits: int, points: list[list[int]], label: str = "") -> list[list[int]]:
    """Both outputs, put together, for each number at its points."""
    sp, csp = seeds_of(len(alphas), label)
    corrections = generate(alphas, bits, sp, csp)
    instance = np.repeat(np.arange(len(alphas)), [len(p) for p in points])
    flat = [point for some in points for point in some]
    outputs = evaluate(0, sp, corrections, instance, flat, bits) ^ evaluate(1, csp, corrections, instance, flat, bits)
    return [outputs[instance == i].tolist() for i in range(len(alphas))]


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_number_is_compared_with_every_point(bits):
    numbers = list(range(2**bits))
    assert together(numbers, bits, [numbers] * len(numbers)) == [[int(t < alpha) for t in numbers] for alpha in numbers]


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([9, 63, 64, 65, 168, 320]), st.data())
def test_long_numbers_are_compared_with_their_neighbours(bits, data):
    """alpha - 1, alpha, alpha + 1, both ends, and anything."""
    alphas = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=3))
    anything = data.draw(st.integers(0, 2**bits - 1))
    points = [[(alpha - 1) % 2**bits, alpha, (alpha + 1) % 2**bits, 0, 2**bits - 1, anything] for alpha in alphas]
    expected = [[int(t < alpha) for t in some] for alpha, some in zip(alphas, points, strict=True)]
    assert together(alphas, bits, points) == expected


def test_numbers_of_two_thousand_bits_are_compared():
    alpha = int.from_bytes(expand(bytes(32), b"alpha", 250), "big")
    assert together([alpha], 2000, [[alpha - 1, alpha, alpha + 1]]) == [[1, 0, 0]]


def test_points_come_in_any_order_and_a_key_may_be_left_out():
    sp, csp = seeds_of(3)
    corrections = generate([10, 20, 30], 8, sp, csp)
    instance, points = np.array([2, 0, 2, 0]), [29, 10, 30, 9]
    outputs = evaluate(0, sp, corrections, instance, points, 8) ^ evaluate(1, csp, corrections, instance, points, 8)
    assert outputs.tolist() == [1, 0, 0, 1]


def test_no_points_give_no_outputs():
    sp, csp = seeds_of(2)
    corrections = generate([1, 2], 8, sp, csp)
    assert evaluate(0, sp, corrections, np.array([], dtype=np.int64), [], 8).tolist() == []
    assert generate([], 8, b"", b"") == b""


@pytest.mark.parametrize("party", [0, 1])
def test_one_party_s_outputs_are_balanced_whatever_alpha_is(party):
    """2,000 keys each: far within seven standard deviations of one half, below, at and above alpha."""
    for alpha in (0, 77, 255):
        seeds = seeds_of(2000, f"{alpha}")
        corrections = generate([alpha] * 2000, 8, *seeds)
        for point in (0, 76, 77, 255):
            ones = int(evaluate(party, seeds[party], corrections, np.arange(2000), [point] * 2000, 8).sum())
            assert 843 <= ones <= 1157


def test_the_corrections_show_nothing_of_alpha():
    """Every bit of the corrections of 2,000 keys of one alpha is set about as often as not, on and off its path."""
    for alpha in (0, 5, 7):
        corrections = generate([alpha] * 2000, 3, *seeds_of(2000, f"layout {alpha}"))
        rows = np.frombuffer(corrections, dtype=np.uint8).reshape(2000, -1)
        ones = np.unpackbits(rows, axis=1, bitorder="little")[:, : 3 * 128 + 4].sum(axis=0)
        assert 843 <= ones.min() <= ones.max() <= 1157


@pytest.mark.parametrize("wrong", ["party", "seed", "corrections"])
def test_with_a_wrong_key_the_outputs_are_garbage(wrong):
    """Neither the comparison nor its opposite: about half of 2,000 are right."""
    sp, csp = seeds_of(2000)
    corrections = generate([100] * 2000, 8, sp, csp)
    theirs = evaluate(1, csp, corrections, np.arange(2000), [99] * 2000, 8)
    if wrong == "party":
        mine = evaluate(1, sp, corrections, np.arange(2000), [99] * 2000, 8)
    elif wrong == "seed":
        mine = evaluate(0, seeds_of(2000, "others")[0], corrections, np.arange(2000), [99] * 2000, 8)
    else:
        others = generate([100] * 2000, 8, *seeds_of(2000, "others"))
        mine = evaluate(0, sp, others, np.arange(2000), [99] * 2000, 8)
    assert 843 <= int((mine ^ theirs).sum()) <= 1157


@pytest.mark.parametrize("number", [-1, 256])
def test_numbers_of_too_many_bits_are_refused(number):
    sp, csp = seeds_of(1)
    corrections = generate([3], 8, sp, csp)
    with pytest.raises(ValueError, match="not below 2"):
        generate([number], 8, sp, csp)
    with pytest.raises(ValueError, match="not below 2"):
        evaluate(0, sp, corrections, np.array([0]), [number], 8)


def test_keys_and_points_that_do_not_fit_are_refused():
    sp, csp = seeds_of(2)
    corrections, both = generate([3, 4], 8, sp, csp), np.array([0, 1])
    for seeds, given_, points in [
        (sp[:-1], corrections, [1, 2]),
        (sp[:16], corrections, [1, 2]),
        (sp, corrections[:-1], [1, 2]),
        (sp, generate([3, 4], 16, sp, csp), [1, 2]),
        (sp, corrections, [1]),
    ]:
        with pytest.raises(LengthMismatch):
            evaluate(0, seeds, given_, both, points, 8)
    with pytest.raises(LengthMismatch):
        generate([3, 4], 8, sp, csp[:16])


def test_there_is_no_third_party():
    """SP is 0, CSP is 1."""
    sp, csp = seeds_of(1)
    corrections = generate([3], 8, sp, csp)
    with pytest.raises(ValueError, match="parties"):
        evaluate(2, sp, corrections, np.array([0]), [1], 8)
