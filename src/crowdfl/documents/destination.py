"""Where a participant wants to be paid: signed by it, sealed to whoever pays, and bound to its task, its name and a counter.

SP keeps the sealed bytes and hands them on. All have one length, so that not even the kind shows. The signature names the
payer's key: bytes that were opened on the way and sealed again are refused. Each new one of a person has the next counter; the
person's claim says which is the newest, and CSP signs that for the payer.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Document, Envelope
from crowdfl.documents.signed import participant_name
from crowdfl.errors import DocumentError, SettingsError

PayKind = Literal["email", "iban", "text"]
_KINDS: tuple[PayKind, ...] = get_args(PayKind)
_LONGEST = 200  # characters
_BYTES = 1536  # of the padded document
SEALED_BYTES = _BYTES + 48  # with HPKE's key and tag
_EMAIL = re.compile(r"[^\s@,;:<>()\[\]\"\\]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,63}")
_IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")
_Key = Annotated[bytes, Field(min_length=32, max_length=32)]
_Counter = Annotated[str, Field(pattern="^[1-9][0-9]{0,9}$")]  # decimal, from 1 on


@dataclass(frozen=True)
class Destination(Document):
    """A participant's word where it is to be paid."""

    kind = "destination"
    who: str
    signing: _Key
    payer: _Key
    counter: _Counter
    way: PayKind
    to: str

    def __repr__(self) -> str:
        return f"Destination(of {self.who})"

    def seal(self, signing: SigningKey) -> bytes:
        text = self.sign(signing).encode()
        return seal_to(self.payer, text.ljust(_BYTES), _context(self.task, self.who, int(self.counter)))


def destination_name(sealed: bytes) -> bytes:
    """What a claim and CSP's statement name it by."""
    return hashlib.sha256(sealed).digest()


def open_destination(key: ReaderKey, sealed: bytes, task: str, who: str, counter: int) -> Destination:
    """`SealBroken`, `BadSignature` or `DocumentError` for anything but what this participant has sealed under this counter."""
    text = key.open(sealed, _context(task, who, counter)).rstrip(b" ").decode(errors="replace")
    envelope = Envelope.parse(text, Destination.kind)
    found = Destination.read(envelope)
    envelope.verify(found.signing)
    if (found.task, found.who, found.counter) != (task, who, str(counter)) or participant_name(found.signing) != who:
        raise DocumentError("this destination was signed for another task, participant or counter: do not pay it")
    if found.payer != key.public:
        raise DocumentError("this destination was given to another payer's key, and sealed again: somebody has read it")
    if checked(found.way, found.to) != (found.way, found.to):
        raise DocumentError("this destination is not written as it should be: ask the participant")
    return found


def checked(kind: str, to: str) -> tuple[PayKind, str]:
    """Kind and text as they are written, an IBAN without spaces and in capitals; `SettingsError` for what cannot be."""
    way = next((one for one in _KINDS if one == kind), None)
    if way is None:
        raise SettingsError(f"people are paid by {', '.join(_KINDS)}, not by {kind!r}")
    found = "".join(to.split()).upper() if way == "iban" else " ".join(to.split())
    if not found or len(found) > _LONGEST or not found.isprintable():
        raise SettingsError(f"where to be paid is a line of 1 to {_LONGEST} characters")
    if way == "email" and not _EMAIL.fullmatch(found):
        raise SettingsError("this is not an e-mail address: expected one such as ann@example.org")
    if way == "iban" and not _is_iban(found):
        raise SettingsError("this is not an IBAN: a digit is wrong or missing")
    return way, found


def _is_iban(text: str) -> bool:
    """ISO 13616: letters count from 10 on, and the whole is 1 modulo 97."""
    return bool(_IBAN.fullmatch(text)) and int("".join(str(int(one, 36)) for one in text[4:] + text[:4])) % 97 == 1


def _context(task: str, who: str, counter: int) -> bytes:
    return f"crowdfl destination 2 {task} {who} {counter}".encode()
