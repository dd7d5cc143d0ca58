"""An invitation as a link that a phone opens. All of it is in the fragment, which a browser never sends to a server.

Whoever has the link can join once: it is as secret as the invitation file. docs/formats.md has the form.
"""

import re

from crowdfl.documents.envelope import Envelope, from_base64url, to_base64url
from crowdfl.documents.signed import Invitation
from crowdfl.errors import FormatError, LimitExceeded, PlainHttpRefused
from crowdfl.protocols.messages import Limits, Message
from crowdfl.settings import ParticipantSettings, RequesterSettings, origin_of

_LONGEST = 4096  # characters of a fragment: an invitation has about 440, and a QR code at most 2,953
_LIMITS = Limits(None, 0, max_entries=0)
_TASK = re.compile(r"[0-9a-f]{64}")
_PLACE = re.compile(r"https?://[A-Za-z0-9._:\[\]/-]+")
_SAFE = re.compile(r"https://.*|http://(localhost|127(\.[0-9]{1,3}){3}|\[::1\])([:/].*)?")
_SIGNATURE, _KEY = 64, 32


class InvitationLink(Message, kind=70, repr=False):
    """What a link holds: an invitation in its two parts, and where to go with it."""

    payload: str
    signature: bytes
    kgc: str
    sp: str  # empty: where the page is
    kgc_key: bytes
    sp_key: bytes

    @property
    def envelope(self) -> Envelope:
        return Envelope(Invitation.kind, self.payload, self.signature)

    @property
    def invitation(self) -> str:
        """The document as its requester signed it."""
        return self.envelope.text

    @property
    def task(self) -> str:
        return Invitation.read(self.envelope).task


def invitation_link(page: str, contents: ParticipantSettings) -> str:
    """The link to a page, such as https://sp/join/, with what an invitation file holds."""
    found = Envelope.parse(contents.invitation, Invitation.kind)
    Invitation.read(found)  # whatever is wrong with it is told by its name
    sp = "" if origin_of(page) == origin_of(contents.sp) else contents.sp
    link = InvitationLink(found.payload, found.signature, contents.kgc, sp, contents.kgc_key, contents.sp_key)
    return f"{page}#{to_base64url(link.to_bytes())}"


def phone_page(settings: RequesterSettings) -> str:
    """Where people open their links."""
    return settings.phone or f"{settings.sp.rstrip('/')}/join/"


def read_link(link: str) -> InvitationLink:
    """What a link holds, as a phone would read it; nothing says yet who signed it."""
    found = _decoded(link.partition("#")[2])
    if (len(found.signature), len(found.kgc_key), len(found.sp_key)) != (_SIGNATURE, _KEY, _KEY):
        raise FormatError("this link's signature or keys are not of the right length")
    if not _TASK.fullmatch(found.task):
        raise FormatError("this link does not name a task")
    for place in (found.kgc, found.sp or found.kgc):
        _require_place(place)
    return found


def _require_place(address: str) -> None:
    if not _PLACE.fullmatch(address):
        raise FormatError("this link does not say where KGC or SP is")
    if not _SAFE.fullmatch(address):
        raise PlainHttpRefused(
            "this link leads to plain HTTP, which anyone can read and alter: ask for one with https://"
        )


def _decoded(fragment: str) -> InvitationLink:
    if len(fragment) > _LONGEST:
        raise LimitExceeded(f"a link of {len(fragment)} characters; at most {_LONGEST} are read")
    return InvitationLink.from_bytes(from_base64url(fragment), _LIMITS)
