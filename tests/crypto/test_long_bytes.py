"""Long bytes are the same bytes, wherever they lie and however they are looked at."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import long_bytes
from crowdfl.crypto.long_bytes import Joined, LongPart, blocks_of, sha256_of, whole
from crowdfl.crypto.shares import ring as rings
from crowdfl.crypto.shares.expansion import Expansion, expand
from crowdfl.crypto.shares.ring import Ring, RunningSum
from crowdfl.errors import LengthMismatch

CUTS = st.tuples(st.integers(-3, 40), st.integers(-3, 40)).map(lambda ends: slice(*ends))


@given(st.lists(st.binary(max_size=9), max_size=5), CUTS)
def test_joined_parts_are_sliced_as_bytes_are(parts, cut):
    """In memory or not: a part of a part too."""
    together = b"".join(parts)
    joined = Joined([LongPart(part, 0, len(part)) for part in parts])
    assert (len(joined), joined[:], joined[cut]) == (len(together), together, together[cut])
    view = LongPart(joined, 0, len(joined)).part(0, len(joined))
    assert bytes(view[cut]) == together[cut]


def test_what_is_long_is_looked_at_in_blocks(monkeypatch):
    monkeypatch.setattr(long_bytes, "BLOCK_BYTES", 4)
    data = bytes(range(10))
    assert [len(block) for block in blocks_of(Joined([data[:3], data[3:]]))] == [4, 4, 2]
    assert whole(Joined([data, data])) == data + data
    assert sha256_of(Joined([data]), data) == hashlib.sha256(data + data).digest()


@pytest.mark.parametrize("bits", [16, 40, 64])
def test_sums_are_the_same_in_blocks(monkeypatch, bits):
    ring, numbers = Ring(bits), np.random.default_rng(7).integers(0, 2**60, 50, dtype=np.uint64)
    left, right = ring.encode(numbers), ring.encode(numbers[::-1].copy())
    expected = ring.encode(numbers + numbers[::-1])
    monkeypatch.setattr(rings, "_BLOCK", 7)
    assert b"".join(ring.added(left, Joined([right[:9], right[9:]]))) == expected
    total = RunningSum(ring, 50)
    total.add(left)
    total.add(Joined([right]))
    assert total.encoded() == expected
    total.subtract(Joined([right]))
    assert total.encoded() == left
    with pytest.raises(LengthMismatch):
        list(ring.added(left, right[:-1]))


def test_a_sum_that_is_merged_is_used_up():
    """Two are not kept where one will do, and nothing is counted twice."""
    ring = Ring(16)
    one, other = RunningSum(ring, 2), RunningSum(ring, 2)
    other.add(b"\1\0\2\0")
    one.merge(other)
    one.merge(other)
    assert (list(one.result()), list(other.result())) == ([1, 2], [0, 0])


@given(CUTS)
def test_an_expansion_is_the_stream_wherever_it_is_looked_at(cut):
    long, stream = Expansion(bytes(32), b"here", 40), expand(bytes(32), b"here", 40)
    assert (len(long), long[cut]) == (40, stream[cut])
