"""How a reward reaches its owner, in every profile that pays claims: CSP's half sealed and signed, SP's half beside it."""

from crowdfl.protocols.messages import Message


class RewardEnvelope(Message, kind=18):
    """SP to one participant: the mask, its salt, and what CSP sealed."""

    mask: int
    salt: bytes
    sealed: bytes

    def __repr__(self) -> str:
        return "RewardEnvelope(secret)"


def reward_context(context: bytes, who: str) -> bytes:
    return b"crowdfl reward 2" + len(context).to_bytes(4, "big") + context + who.encode()


def reward_statement(context: bytes, who: str, commitment: bytes, masked: bytes) -> bytes:
    """What CSP signs of a reward that it seals: for whom, in which round, under which mask."""
    parts = (context, who.encode(), commitment, masked)
    return b"crowdfl reward statement 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
