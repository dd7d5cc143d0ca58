"""Rings of whole bytes against Python's integers."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.shares.expansion import Stream, expand
from crowdfl.crypto.shares.ring import Ring, RunningSum
from crowdfl.errors import LengthMismatch, WidthError

WIDTHS = range(8, 65, 8)
every_width = pytest.mark.parametrize("bits", WIDTHS)
words = st.lists(st.integers(0, 2**64 - 1), max_size=20)


def wire(bits: int, numbers: list[int]) -> bytes:
    """Numbers as they travel, one by one."""
    return b"".join((number % 2**bits).to_bytes(bits // 8, "little") for number in numbers)


def upload(bits: int, count: int, index: int) -> bytes:
    """Fixed bytes that look like an upload."""
    return expand(bytes(32), b"upload %d" % index, count * bits // 8)


@given(st.sampled_from(WIDTHS), words)
def test_elements_travel_as_little_endian_bytes(bits, numbers):
    """Whatever lies above the ring is cut off."""
    ring, elements = Ring(bits), np.array(numbers, dtype=np.uint64)
    assert ring.encode(elements) == wire(bits, numbers)
    assert ring.decode(wire(bits, numbers)).tolist() == [number % 2**bits for number in numbers]


@every_width
def test_every_kind_of_buffer_and_place_is_read(bits):
    """Bytes, a bytearray, and a view that begins at an odd place and ends with its buffer."""
    ring, data = Ring(bits), upload(bits, 21, 0)
    expected = [int.from_bytes(data[i : i + ring.bytes], "little") for i in range(0, len(data), ring.bytes)]
    for given_as in (data, bytearray(data), memoryview(b"x" + data)[1:], np.frombuffer(data, dtype=np.uint8).data):
        assert ring.decode(given_as).tolist() == expected
        total = RunningSum(ring, 21)
        total.add(given_as)
        assert total.result().tolist() == expected


@every_width
def test_elements_that_are_not_contiguous_are_encoded(bits):
    elements = np.arange(20, dtype=np.uint64)
    assert Ring(bits).encode(elements[::2]) == wire(bits, list(range(0, 20, 2)))


@every_width
def test_signed_numbers_come_back(bits):
    """The smallest and the largest among them; one more is the smallest again."""
    half = 2 ** (bits - 1)
    ring, numbers = Ring(bits), [-half, -half + 1, -1, 0, 1, half - 1]
    assert ring.signed(ring.of_signed(np.array(numbers, dtype=np.int64))).tolist() == numbers
    assert ring.of_signed(np.array([-1], dtype=np.int64)).tolist() == [2**bits - 1]
    assert ring.signed(np.array([half], dtype=np.uint64)).tolist() == [-half]


@given(st.sampled_from(WIDTHS), st.integers(0, 40), st.lists(st.booleans(), max_size=12))
def test_a_running_sum_is_the_sum_modulo_the_ring(bits, count, here):
    """In one part, or in two that are put together; of any length, down to nothing."""
    ring, total, other, expected = Ring(bits), RunningSum(Ring(bits), count), RunningSum(Ring(bits), count), [0] * count
    for index, is_here in enumerate(here):
        data = upload(bits, count, index)
        (total if is_here else other).add(data)
        numbers = [int.from_bytes(data[i : i + ring.bytes], "little") for i in range(0, len(data), ring.bytes)]
        expected = [(a + b) % 2**bits for a, b in zip(expected, numbers, strict=True)]
    total.merge(other)
    assert total.result().tolist() == expected


@every_width
def test_a_thousand_uploads_of_the_largest_elements(bits):
    """Carries beyond every limb; the result may be read at any time and changes nothing."""
    ring, total = Ring(bits), RunningSum(Ring(bits), 9)
    for count in range(1, 1001):
        total.add(b"\xff" * (9 * ring.bytes))
        assert total.result().tolist() == [-count % 2**bits] * 9


def test_memory_does_not_grow_with_the_uploads():
    """Four models at most, the upload under way not counted."""
    ring, data = Ring(56), upload(56, 50_000, 0)
    tracemalloc.start()
    try:
        total = RunningSum(ring, 50_000)
        for _ in range(100):
            total.add(data)
        total.result()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(data)


def test_a_result_stays_as_it_was():
    total = RunningSum(Ring(64), 3)
    before = total.result()
    total.add(wire(64, [1, 2, 3]))
    assert before.tolist() == [0, 0, 0]


@pytest.mark.parametrize("bits", [0, 4, 7, 12, 63, 72, -8])
def test_rings_of_other_widths_are_refused(bits):
    with pytest.raises(WidthError):
        Ring(bits)


@pytest.mark.parametrize("length", [0, 20, 22, 28])
def test_uploads_of_another_length_are_refused(length):
    total = RunningSum(Ring(56), 3)
    with pytest.raises(LengthMismatch):
        total.add(bytes(length))
    assert total.result().tolist() == [0, 0, 0]


def test_half_an_element_is_refused():
    with pytest.raises(LengthMismatch):
        Ring(56).decode(bytes(15))


SEED = bytes(range(32))
KEPT = 1 << 22  # zeros that the stream keeps: longer pieces are put together


@given(st.lists(st.integers(0, 100), max_size=8))
def test_pieces_give_what_one_piece_gives(lengths):
    """Also where they do not end with a block of AES."""
    stream = Stream(SEED, b"pieces")
    assert b"".join(stream.take(length) for length in lengths) == expand(SEED, b"pieces", sum(lengths))


@pytest.mark.parametrize("extra", [-1, 0, 1, KEPT + 5])
def test_long_pieces_are_as_right_as_short_ones(extra):
    """Around the length of the zeros that are kept, and beyond twice that length."""
    long = expand(SEED, b"long", KEPT + extra)
    stream = Stream(SEED, b"long")
    assert long == b"".join(stream.take(min(1000, KEPT + extra - at)) for at in range(0, KEPT + extra, 1000))


@pytest.mark.parametrize("before", [0, 7, 16, 33])
def test_what_is_left_for_later_is_what_would_have_come(before):
    whole, stream = expand(bytes(32), b"later", 1000), Stream(bytes(32), b"later")
    assert stream.take(before) == whole[:before]
    read = stream.aside(500)
    assert stream.take(100) == whole[before + 500 : before + 600]
    assert (read(0, 500), read(41, 9)) == (whole[before : before + 500], whole[before + 41 : before + 50])


def test_seeds_and_contexts_give_streams_of_their_own():
    """Three streams that have nothing to do with each other."""
    streams = {expand(SEED, b"a", 32), expand(SEED, b"b", 32), expand(bytes(32), b"a", 32)}
    assert len(streams) == 3


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_seed_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match="a seed has 32 bytes"):
        Stream(bytes(length), b"")


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="-1 bytes"):
        Stream(SEED, b"").take(-1)


def test_a_stream_does_not_show_its_seed():
    assert repr(Stream(SEED, b"")) == "Stream(secret)"
