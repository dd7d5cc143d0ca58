"""Statements that are signed or sealed to: a label and parts that cannot be taken for other parts."""


def bind(label: str, *parts: bytes) -> bytes:
    """Each part stands behind its length, 4 bytes big endian."""
    return label.encode() + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
