"""What names an upload: the hash of its head, which is everything but the shares where these come in pieces.

The head holds the leaf of each piece, and its sender signs them: so a receipt, a name in a store and a signed request for an
upload are over the head alone, and a piece is held against its leaf as it comes. An upload of another profile is all head.
Other long bytes travel the same way, as a parcel.
"""

import hashlib
from dataclasses import dataclass, replace

from crowdfl.crypto.leaves import LEAF_BYTES, Leaf, leaves_bytes, leaves_of, piece_bytes
from crowdfl.crypto.long_bytes import Long, Wire, view_of
from crowdfl.errors import BadSignature, FormatError
from crowdfl.protocols.messages import HEADER_BYTES, LENGTH_BYTES, Message

IN_PIECES, PARCEL = 53, 103  # the kinds of the messages that end in pieces
_BEFORE_LEAVES = {IN_PIECES: 9, PARCEL: 0}  # fields


class Parcel(Message, kind=PARCEL, repr=False):
    """Long bytes that are no upload, on their way in pieces: a task's first weights, a request to CSP."""

    leaves: bytes
    body: Long

    @classmethod
    def of(cls, body: Long) -> "Parcel":
        return cls(leaves_of(body), body)

    def head(self) -> bytes:
        """What stands before the body, its length included."""
        empty = replace(self, body=b"").to_bytes()
        return empty[:-LENGTH_BYTES] + len(self.body).to_bytes(LENGTH_BYTES, "big")


def parcel_head_bytes(total: int) -> int:
    """Before so many bytes."""
    return HEADER_BYTES + 2 * LENGTH_BYTES + leaves_bytes(total)


@dataclass(frozen=True)
class Head:
    """An upload's first bytes, and what they say of the rest."""

    data: bytes
    leaves: bytes
    total: int  # bytes of all pieces

    @property
    def digest(self) -> str:
        """The upload's name, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def length(self) -> int:
        return len(self.data) + self.total

    def parts(self) -> list[slice]:
        """Of the upload, as it is sent: the first piece comes with the head; what is all head is cut as long pieces are."""
        start, size = (len(self.data), piece_bytes(self.total)) if self.total else (0, piece_bytes(len(self.data)))
        ends = [*range(start + size, self.length, size), self.length]
        return [slice(0 if place == 0 else ends[place - 1], end) for place, end in enumerate(ends)]

    def require_leaf(self, index: int, leaf: Leaf) -> None:
        place = index * LEAF_BYTES
        if leaf.digest() != self.leaves[place : place + LEAF_BYTES]:
            raise BadSignature(
                f"piece {index + 1} of this upload is not the one that was signed: it was cut off or altered"
            )

    @classmethod
    def of(cls, upload: Long) -> "Head":
        """Of an upload or a parcel, or of as much of one as has come."""
        view = view_of(upload)
        before = _BEFORE_LEAVES.get(Message.kind_of(view)) if len(view) >= HEADER_BYTES else None
        if before is None:
            return cls(bytes(view[:]), b"", 0)
        place = HEADER_BYTES
        for _ in range(before):
            place += LENGTH_BYTES + _length(view, place)
        end = place + LENGTH_BYTES + _length(view, place)
        total = _length(view, end)
        leaves = bytes(view[place + LENGTH_BYTES : end])
        if len(leaves) != leaves_bytes(total):
            raise FormatError(f"{len(leaves)} bytes of leaves where {total} bytes of shares have {leaves_bytes(total)}")
        return cls(bytes(view[: end + LENGTH_BYTES]), leaves, total)


def upload_digest(upload: Wire) -> str:
    """An upload's name, in hex; of bytes that are none, the hash of all."""
    try:
        return Head.of(upload).digest
    except FormatError:
        return hashlib.sha256(upload).hexdigest()


def _length(view: Long, place: int) -> int:
    if len(view) < place + LENGTH_BYTES:
        raise FormatError("an upload ends within its head")
    return int.from_bytes(view[place : place + LENGTH_BYTES], "big")
