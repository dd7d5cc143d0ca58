"""The requester's word that its task is cancelled, as CSP takes it: no step of any round follows.

SP carries it, and can withhold it. CSP still opens to the requester a sum that it has opened before, and attests claims.
"""

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import FormatError
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.messages import Message


class CancelRequest(Message, kind=38):
    """The requester to CSP, by SP's hand."""

    task: str
    signature: bytes

    @classmethod
    def signed(cls, task: str, signing: SigningKey) -> "CancelRequest":
        return cls(task, signing.sign(_statement(task)))

    def require_of(self, task: str, requester: bytes) -> None:
        if self.task != task:
            raise FormatError("this cancels another task")
        verify(requester, _statement(task), self.signature)


class CancelReply(Message, kind=39):
    """CSP to SP and the requester: its signature under the same word."""

    signature: bytes


def sign_cancelled(task: str, signing: SigningKey) -> CancelReply:
    return CancelReply(signing.sign(b"crowdfl cancelled 1" + _statement(task)))


def _statement(task: str) -> bytes:
    return bind("crowdfl cancel 1", task.encode())
