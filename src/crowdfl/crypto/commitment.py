"""A commitment: it binds to a value and hides it until its salt is shown."""

import hashlib


def commit(value: int, salt: bytes) -> bytes:
    """H(value, salt): binds to the value, hides it behind 32 bytes of salt."""
    digits = int(value).to_bytes((int(value).bit_length() + 7) // 8, "big")
    return hashlib.sha256(b"crowdfl commitment 1" + len(salt).to_bytes(2, "big") + salt + digits).digest()
