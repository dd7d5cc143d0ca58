"""CSP's signed word on a round of `hardened`: whom it has averaged, or that nothing of it was opened and nothing will be.

Whoever made an upload for a round and is not named was left out. There is one such word for a round: two that differ, in one
hand, prove that CSP was set back, or cheats.
"""

from dataclasses import replace

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import ProtocolError
from crowdfl.protocols.messages import Limits, Message, RoundRequest


class HardenedRecord(Message, kind=35):
    """Whom the manifest of a round names: they are averaged, or the round is void."""

    task: str
    number: int
    manifest: bytes  # its hash; empty in a round that CSP never heard of
    names: tuple[str, ...]
    void: int  # 1: nothing was opened to readers, and nothing will be; 0: the sum was, or a piece of it
    signature: bytes

    @property
    def accepted(self) -> tuple[str, ...]:
        return () if self.void else self.names

    @property
    def statement(self) -> bytes:
        return b"crowdfl hardened record 1" + self.unsigned()


class RecordRequest(RoundRequest, kind=36):
    """SP to CSP: the round is over. One of which nothing was opened is void from here on."""


class RecordReply(Message, kind=37):
    """CSP to SP, for everyone who made an upload."""

    record: bytes


def sign_record(record: HardenedRecord, signing: SigningKey) -> bytes:
    return replace(record, signature=signing.sign(record.statement)).to_bytes()


def parse_record(data: bytes, task: str, number: int, csp_key: bytes) -> HardenedRecord:
    """One that CSP has signed of this very round."""
    record = HardenedRecord.from_bytes(data, Limits.plain(len(data)))
    verify(csp_key, record.statement, record.signature)
    if (record.task, record.number) != (task, number):
        raise ProtocolError(f"what was shown for round {number} is CSP's record of another round or task")
    return record
