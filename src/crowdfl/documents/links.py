"""An invitation as a link that a phone opens. All of it is in the fragment, which a browser never sends to a server.

Whoever has the link can join once: it is as secret as the invitation file. docs/formats.md has the form.
"""

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope, from_base64url, to_base64url
from crowdfl.documents.invitations import Invitation, Ticket
from crowdfl.protocols.messages import Limits, Message
from crowdfl.settings import ParticipantSettings, RequesterSettings, origin_of


class InvitationLink(Message, kind=70, repr=False):
    """What a link holds: an invitation in its two parts, its private key, and where to go with it."""

    payload: str
    signature: bytes
    key: bytes
    kgc: str
    sp: str  # empty: where the page is
    kgc_key: bytes
    sp_key: bytes

    @property
    def ticket(self) -> Ticket:
        return Ticket(Envelope(Invitation.kind, self.payload, self.signature).text, SigningKey(self.key))

    @property
    def task(self) -> str:
        return self.ticket.opened.task


def invitation_link(page: str, contents: ParticipantSettings) -> str:
    """The link to a page, such as https://sp/join/, with what an invitation file holds."""
    ticket = Ticket.parse(contents.invitation)
    found = Envelope.parse(ticket.invitation, Invitation.kind)
    key = ticket.key.private
    sp = "" if origin_of(page) == origin_of(contents.sp) else contents.sp
    link = InvitationLink(found.payload, found.signature, key, contents.kgc, sp, contents.kgc_key, contents.sp_key)
    return f"{page}#{to_base64url(link.to_bytes())}"


def phone_page(settings: RequesterSettings) -> str:
    """Where people open their links."""
    return settings.phone or f"{settings.sp.rstrip('/')}/join/"


def read_link(link: str) -> InvitationLink:
    """What a link holds, for whoever wrote it. A phone looks closer: web/phone/protocol/invitation.js."""
    return InvitationLink.from_bytes(from_base64url(link.partition("#")[2]), Limits.plain())
