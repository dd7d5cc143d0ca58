"""Pieces and their leaves: as many as there may be, each bound to its place and to the whole."""

import pytest

from crowdfl.crypto.leaves import LEAF_BYTES, Leaf, leaves_bytes, leaves_of, piece_bytes, pieces_of


@pytest.mark.parametrize(
    ("total", "size", "count"),
    [(1, 2**18, 1), (2**18 + 1, 2**18, 2), (2**24, 2**18, 64), (2**24 + 1, 2**19, 33), (8 * 10**8, 2**24, 48)],
)
def test_pieces_grow_with_the_whole(total, size, count):
    """A hundred million parameters of eight bytes are 48 pieces of 16 MiB."""
    assert (piece_bytes(total), leaves_bytes(total)) == (size, count * LEAF_BYTES)


def test_a_leaf_is_of_its_bytes_its_place_and_the_length_of_the_whole():
    def leaf(total: int, index: int, *parts: bytes) -> bytes:
        made = Leaf(total, index)
        for part in parts:
            made.update(part)
        return made.digest()

    found = [leaf(10, 0, b"piece"), leaf(10, 1, b"piece"), leaf(11, 0, b"piece"), leaf(10, 0, b"piecE"), leaf(10, 0)]
    assert len(set(found)) == 5
    assert leaf(10, 0, b"pi", b"", b"ece") == found[0]


def test_the_leaves_are_those_of_the_pieces():
    data = bytes(2**18) + b"rest"
    first, last = pieces_of(data)
    leaves = []
    for index, piece in enumerate((first, last)):
        leaf = Leaf(len(data), index)
        leaf.update(piece)
        leaves.append(leaf.digest())
    assert leaves_of(data) == b"".join(leaves)
    assert (len(first), bytes(last)) == (2**18, b"rest")
