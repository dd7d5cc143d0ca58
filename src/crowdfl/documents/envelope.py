"""The form of a signed document: what it is, the signature, and what was signed, to the letter.

    crowdfl KIND SIGNATURE {"task": ...}

The Ed25519 signature, in base64url, is over DSSE's encoding of the payload and its type: one kind never passes for another.
Whoever checks a document checks the bytes that came, and reads the JSON in them after that. Nobody writes a document twice:
it is kept and sent on as it came, and ids are hashes of what was signed.
"""

import hashlib
import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.documents.forms import completed, numbered
from crowdfl.errors import DocumentError, FormatError

_LONGEST = 1_000_000  # characters
_LONGEST_NUMBER = 30  # of characters too
_HEADER = re.compile(r"crowdfl ([a-z-]{1,40}) ([A-Za-z0-9_-]{86}) ")
_ADAPTERS: dict[str, TypeAdapter[Any]] = {}  # by kind; making one takes a while


@dataclass(frozen=True)
class Envelope:
    """A document that nobody has looked into yet."""

    kind: str
    payload: str = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def sign(cls, kind: str, payload: str, key: SigningKey) -> Self:
        return cls(kind, payload, key.sign(encode_for_signing(kind, payload)))

    @classmethod
    def parse(cls, text: str, kind: str) -> Self:
        if len(text) > _LONGEST:
            raise DocumentError(f"a {kind} of {len(text)} characters; at most {_LONGEST} are read")
        header = _HEADER.match(text)
        if header is None:
            raise DocumentError(f"this is no {kind}: it must be `crowdfl {kind} SIGNATURE`, then JSON")
        if header[1] != kind:
            raise DocumentError(f"a {header[1]} where a {kind} is expected")
        return cls(kind, text[header.end() :], from_base64url(header[2]))

    @property
    def text(self) -> str:
        return f"crowdfl {self.kind} {to_base64url(self.signature)} {self.payload}"

    @property
    def digest(self) -> str:
        """SHA-256 of what the signature is over, in hex."""
        return hashlib.sha256(encode_for_signing(self.kind, self.payload)).hexdigest()

    def verify(self, signer: bytes) -> None:
        verify(signer, encode_for_signing(self.kind, self.payload), self.signature)

    def body(self) -> dict[str, Any]:
        """The payload, if every reader finds the same in it: no name twice, no number that only some can hold."""
        try:
            body = json.loads(self.payload, object_pairs_hook=_with_names_once, **_NUMBERS)
        except (ValueError, RecursionError):
            raise DocumentError(f"the payload of this {self.kind} is not JSON of plain values") from None
        if not isinstance(body, dict):
            raise DocumentError(f"the payload of this {self.kind} is not a JSON object")
        return body


def kind_of(text: str) -> str | None:
    """Of a document; None of any other text."""
    header = _HEADER.match(text)
    return None if header is None else header[1]


def encode_for_signing(kind: str, payload: str) -> bytes:
    """DSSE's pre-authentication encoding: lengths before type and payload, so that neither can be taken for the other."""
    try:
        body = payload.encode()
    except UnicodeEncodeError:
        raise DocumentError(f"this {kind} holds half of a character, which UTF-8 cannot hold") from None
    name = f"application/vnd.crowdfl.{kind}+json".encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(body), body)


def compact_json(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_base64url(data: bytes) -> str:
    """Without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(letters: str) -> bytes:
    """Refused: other letters, padding, and bits of the last letter that are not used."""
    data = urlsafe_b64decode(letters + "==") if letters.isascii() and len(letters) % 4 != 1 else b""
    if to_base64url(data) != letters:
        raise FormatError("a field is not valid base64url: a part of it is missing or altered")
    return data


def refusal(kind: str, wrong: ValidationError) -> DocumentError:
    """Where the first wrong field is and what was expected; never what it held."""
    first = wrong.errors(include_url=False, include_input=False)[0]
    return DocumentError(
        f"this {kind} has a missing or wrong field: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    )


@dataclass(frozen=True)
class Document:
    """A document whose fields are a dataclass's: strictly of their types, all of them, and no others."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, val_json_bytes="hex", ser_json_bytes="hex"
    )
    kind: ClassVar[str]
    task: str

    def sign(self, key: SigningKey) -> str:
        body = numbered(self.kind, self._adapter().dump_python(self, mode="json"))
        return Envelope.sign(self.kind, compact_json(body), key).text

    @classmethod
    def open(cls, text: str, signer: bytes) -> Self:
        """What this signer has signed."""
        envelope = Envelope.parse(text, cls.kind)
        envelope.verify(signer)
        return cls.read(envelope)

    @classmethod
    def read(cls, envelope: Envelope) -> Self:
        """What it says; `open` says who signed it."""
        body = completed(cls.kind, envelope.body())
        try:
            found: Self = cls._adapter().validate_json(json.dumps(body))
        except ValidationError as wrong:
            raise refusal(cls.kind, wrong) from None
        return found

    @classmethod
    def _adapter(cls) -> TypeAdapter[Any]:
        if cls.kind not in _ADAPTERS:
            _ADAPTERS[cls.kind] = TypeAdapter(cls)
        return _ADAPTERS[cls.kind]


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _plain_number(written: str) -> int | float:
    if len(written) > _LONGEST_NUMBER or not math.isfinite(float(written)):
        raise ValueError("a number is too long, or none")
    return int(written) if written.lstrip("-").isdecimal() else float(written)


_NUMBERS: dict[str, Any] = dict.fromkeys(("parse_constant", "parse_float", "parse_int"), _plain_number)
