"""Long bytes in pieces, each of which is a leaf: hashed by itself, with its place and the length of the whole.

A piece is checked when it has come, whatever is still on its way, and whoever checks it holds no more than that piece. The
hash is BLAKE3: docs/formats.md says what was measured.
"""

from collections.abc import Iterator

from blake3 import blake3

from crowdfl.crypto.long_bytes import Long, Wire, view_of

LEAF_BYTES = 32
_LABEL = b"crowdfl leaf 1"
_LEAST, _MOST = 1 << 18, 64  # bytes of a piece, and how many pieces a whole has


def piece_bytes(total: int) -> int:
    """Of every piece but the last: 256 KiB, doubled until there are at most 64 of them."""
    size = _LEAST
    while size * _MOST < total:
        size *= 2
    return size


def leaves_bytes(total: int) -> int:
    """Of the leaves of so many bytes, one after the other."""
    return -(-total // piece_bytes(total)) * LEAF_BYTES


class Leaf:
    """One leaf, from the bytes of its piece as they come."""

    def __init__(self, total: int, index: int) -> None:
        self._hash = blake3(_LABEL + total.to_bytes(8, "big") + index.to_bytes(8, "big"))

    def update(self, part: Wire) -> None:
        self._hash.update(part)

    def digest(self) -> bytes:
        return self._hash.digest()


def pieces_of(data: Long) -> Iterator[Wire]:
    view, size = view_of(data), piece_bytes(len(data))
    for start in range(0, len(view), size):
        yield view[start : start + size]


def leaves_of(data: Long) -> bytes:
    """One after the other."""
    found = []
    for index, piece in enumerate(pieces_of(data)):
        leaf = Leaf(len(data), index)
        leaf.update(piece)
        found.append(leaf.digest())
    return b"".join(found)
