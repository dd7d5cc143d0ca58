"""What KGC deals for one round: the script that KGC, SP and CSP run alike, and the files it makes.

A file ends with a tag that only its server and KGC can make: one that was truncated, altered, or dealt for another task or round
is refused before anything is computed with it.
"""

import hmac

from crowdfl.crypto.shares.expansion import Stream, expand
from crowdfl.errors import DealtMaterialDamaged
from crowdfl.protocols.shares.chain import ROUND_BYTES, bind
from crowdfl.protocols.shares.shape import SharesShape

TAG_BYTES = 32
SP_ROLE, CSP_ROLE = "sp", "csp"


def dealt_stream(shape: SharesShape, seed: bytes, role: str, number: int) -> Stream:
    """What a server's own part of the correlations of a round comes from."""
    return Stream(seed, _context("crowdfl dealt 1", shape, role, number))


def sealed_file(shape: SharesShape, seed: bytes, role: str, number: int, body: bytes) -> bytes:
    return body + _tag(shape, seed, role, number, body)


def opened_file(shape: SharesShape, seed: bytes, role: str, number: int, data: bytes) -> bytes:
    """The file that KGC dealt to this server for this round, without its tag."""
    body, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(shape, seed, role, number, body)):
        raise DealtMaterialDamaged(
            f"what KGC dealt for round {number} is truncated, altered, or of another task or round: the round is void"
        )
    return body


def _tag(shape: SharesShape, seed: bytes, role: str, number: int, body: bytes) -> bytes:
    key = expand(seed, _context("crowdfl dealt tag 1", shape, role, number), 32)
    return hmac.digest(key, body, "sha256")


def _context(label: str, shape: SharesShape, role: str, number: int) -> bytes:
    return bind(label, shape.spec.name.encode(), role.encode(), number.to_bytes(ROUND_BYTES, "big"))
