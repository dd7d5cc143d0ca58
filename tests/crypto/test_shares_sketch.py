"""Count sketches against a plain one, and the bound on their loads against exact fractions."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.shares import sketch as module
from crowdfl.crypto.shares.expansion import expand
from crowdfl.crypto.shares.sketch import MAX_BUCKETS, Sketch, load_bound
from crowdfl.errors import LengthMismatch

COINS = bytes(range(32))


def plain(coins: bytes, attempt: int, parameters: int, row: int, buckets: int) -> list[tuple[int, int]]:
    """Bucket and sign of every coordinate of a row, as the words of the definition say."""
    data = expand(coins, f"crowdfl sketch 1 {attempt} {row}".encode(), 8 * parameters)
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    return [((word >> 16) * buckets >> 48, -1 if word & 1 else 1) for word in words]


def plain_lanes(vector: list[int], rows: list[list[tuple[int, int]]], buckets: int) -> list[int]:
    """The lanes of one vector, coordinate by coordinate."""
    lanes = [0] * (len(rows) * buckets)
    for row, places in enumerate(rows):
        for value, (bucket, sign) in zip(vector, places, strict=True):
            lanes[row * buckets + bucket] += sign * value
    return [lane % 2**64 for lane in lanes]


def numbers(participants: int, parameters: int) -> np.ndarray:
    data = expand(COINS, b"numbers", 8 * participants * parameters)
    return np.frombuffer(data, dtype="<u8").reshape(participants, parameters)


@settings(max_examples=40, deadline=None)
@given(
    coins=st.binary(min_size=32, max_size=32),
    parameters=st.integers(1, 60),
    rows=st.integers(1, 4),
    buckets=st.integers(1, 80),
    participants=st.integers(0, 3),
)
def test_lanes_are_those_of_the_plain_sketch(coins, parameters, rows, buckets, participants):
    """Empty buckets, signs that meet nobody, one bucket for all, more buckets than coordinates."""
    sketch, block = Sketch(coins, parameters, rows, buckets), numbers(participants, parameters)
    places = [plain(coins, 0, parameters, row, buckets) for row in range(rows)]
    expected = [plain_lanes([int(x) for x in vector], places, buckets) for vector in block]
    assert sketch.lanes(block).tolist() == expected
    assert [list(zip(*map(list, sketch.of(row)), strict=True)) for row in range(rows)] == places


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([1, 3, (1 << 31) // 9, (1 << 31) // 8, 1 << 40, -(1 << 63)]), min_size=1, max_size=5),
    st.integers(1, 3),
)
def test_vectors_that_share_a_word_have_the_lanes_that_they_have_alone(largest, rows):
    """Of both signs, up to where a lane would leave its half and beyond."""
    sketch = Sketch(COINS, 8, rows, 1)  # one bucket: every lane is as large as it can be
    signs = 1 - 2 * (numbers(len(largest), 8) & np.uint64(1)).astype(np.int64)
    block = [np.int64(most) * sign for most, sign in zip(largest, signs, strict=True)]
    block.append(sketch.of(0)[1] * ((1 << 31) // 8 - 1))  # no sign cancels another
    assert np.array_equal(sketch.whole_lanes(block), sketch.lanes([vector.view(np.uint64) for vector in block]))


def test_lanes_beyond_one_piece_are_those_of_the_plain_sketch():
    """More coordinates than are worked on at a time, in an array that is not contiguous."""
    parameters = module._PIECE + 7
    sketch, block = Sketch(COINS, parameters, 2, 5), np.asfortranarray(numbers(2, parameters))
    places = [plain(COINS, 0, parameters, row, 5) for row in range(2)]
    assert sketch.lanes(block).tolist() == [plain_lanes([int(x) for x in v], places, 5) for v in block]


def test_the_sketch_of_a_sum_is_the_sum_of_the_sketches():
    """Modulo 2^64, and so modulo 2^56: each server sketches its own shares."""
    sketch, block = Sketch(COINS, 1000, 3, 17), numbers(2, 1000)
    mask = np.uint64(2**56 - 1)
    both = sketch.lanes(block)
    assert sketch.lanes(block.sum(axis=0, keepdims=True)).tolist() == [both.sum(axis=0).tolist()]
    assert (sketch.lanes(block & mask) & mask).tolist() == (both & mask).tolist()


def test_rows_are_independent_of_each_other_and_of_the_coins_of_others():
    """Pairs of coordinates that share a bucket in one row do not in the next: 1 in 100, not all."""
    first, other = Sketch(COINS, 5000, 2, 100), Sketch(bytes(32), 5000, 2, 100)
    places = [s.of(row)[0] for s in (first, other) for row in (0, 1)]
    for a in range(4):
        for b in range(a):
            assert 10 <= int((places[a] == places[b]).sum()) <= 100  # 50 expected, these coins are fixed
    signs = [s.of(row)[1] for s in (first, other) for row in (0, 1)]
    assert all(2300 <= int((signs[a] == signs[b]).sum()) <= 2700 for a in range(4) for b in range(a))


def test_the_load_is_the_fullest_bucket_of_all_rows():
    sketch = Sketch(COINS, 3000, 4, 40)
    assert sketch.load == max(int(np.bincount(sketch.of(row)[0]).max()) for row in range(4))
    assert sketch.load <= load_bound(3000, 40, 4)


def test_an_overloaded_sketch_is_drawn_again(monkeypatch):
    """Under the next number, all rows of it, until the bound holds."""
    parameters, buckets = 30, 10

    def load_of(attempt: int) -> int:
        rows = [[place for place, _ in plain(COINS, attempt, parameters, row, buckets)] for row in range(2)]
        return max(row.count(bucket) for row in rows for bucket in range(buckets))

    loads = [load_of(attempt) for attempt in range(50)]
    bound = min(loads)
    assert loads[0] > bound, "other coins are needed here"
    monkeypatch.setattr(module, "load_bound", lambda *_: bound)
    sketch, attempt = Sketch(COINS, parameters, 2, buckets), loads.index(bound)
    assert sketch.load == bound
    expected = [plain(COINS, attempt, parameters, row, buckets) for row in range(2)]
    assert [list(zip(*map(list, sketch.of(row)), strict=True)) for row in range(2)] == expected


def exceeded(load: int, parameters: int, buckets: int, rows: int) -> Fraction:
    """rows * buckets * P[Binomial > load], exactly."""
    ways = sum(comb(parameters, k) * (buckets - 1) ** (parameters - k) for k in range(load + 1, parameters + 1))
    return rows * buckets * Fraction(ways, buckets**parameters)


@pytest.mark.parametrize(
    ("parameters", "buckets", "rows"), [(1, 2, 1), (5, 7, 2), (40, 2, 3), (60, 60, 5), (300, 16, 1), (500, 100, 5)]
)
def test_the_bound_on_the_load_is_the_smallest_that_holds(parameters, buckets, rows):
    """But for a chance of 2^-40, by exact fractions."""
    bound, limit = load_bound(parameters, buckets, rows), Fraction(1, 2**40)
    assert exceeded(bound, parameters, buckets, rows) <= limit
    assert bound == 0 or exceeded(bound - 1, parameters, buckets, rows) > limit


def test_the_bound_of_the_paper_s_task_and_of_extreme_ones():
    """277,006 coordinates in 820 buckets; one bucket; a model so large that the chance of an empty bucket is no float."""
    assert load_bound(277_006, 820, 5) == 498
    assert load_bound(1000, 1, 5) == 1000
    assert 100_000 < load_bound(10_000_000, 100, 5) < 103_000


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, MAX_BUCKETS + 1)])
def test_sketches_without_sense_are_refused(shape):
    with pytest.raises(ValueError, match="no sketch"):
        Sketch(COINS, *shape)


@pytest.mark.parametrize("shape", [(2, 9), (2, 11), (10,), (1, 2, 10)])
def test_blocks_of_another_shape_are_refused(shape):
    with pytest.raises(LengthMismatch):
        Sketch(COINS, 10, 2, 3).lanes(np.zeros(shape, dtype=np.uint64))
