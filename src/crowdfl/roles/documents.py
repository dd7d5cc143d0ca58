"""Signed documents: what the requester defines, what KGC appoints and certifies, whom the requester invites.

A document is JSON text with a kind, a body and an Ed25519 signature over both in canonical form; people can read one, any
language can check one, and one kind never passes for another.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

from crowdfl.crypto.sealing import SigningKey, verify
from crowdfl.errors import CrowdFLError, DocumentError
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Identity, TaskSpec
from crowdfl.settings import TaskSettings

_LONGEST = 1_000_000
_Document = TypeVar("_Document")


def sign_document(kind: str, body: Mapping[str, Any], key: SigningKey) -> str:
    signature = key.sign(_canonical(kind, body)).hex()
    return json.dumps({"kind": kind, "body": body, "signature": signature}, sort_keys=True)


def open_document(text: str, kind: str, public: bytes | None = None) -> dict[str, Any]:
    """The body of a document of this kind; with `public`, only if its owner signed it."""
    if len(text) > _LONGEST:
        raise DocumentError(f"a {kind} of {len(text)} characters; at most {_LONGEST} are read")
    try:
        document = json.loads(text)
        found, body, signature = document["kind"], document["body"], bytes.fromhex(document["signature"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DocumentError(f"this is not a {kind}: it must be JSON with kind, body and signature") from None
    if found != kind or not isinstance(body, dict):
        raise DocumentError(f"a {found} where a {kind} is expected")
    if public is not None:
        verify(public, _canonical(kind, body), signature)
    return body


def participant_name(signing: bytes) -> str:
    """A participant's name in a task: a pseudonym that nobody else can take."""
    return hashlib.sha256(b"crowdfl participant 1" + signing).hexdigest()[:20]


@dataclass(frozen=True)
class Definition:
    """A task as its requester defines it: what for, on which terms, who reads the model, which model, which settings."""

    purpose: str
    terms: str
    readers: str
    shape: ModelShape
    initial: str  # SHA-256 of the initial weights, in hex
    settings: TaskSettings
    claim_window: float  # seconds after the end of the task in which rewards can be claimed
    requester: bytes
    training: Mapping[str, Any]  # what a participant's learner is told; the platform does not look inside

    @property
    def task(self) -> str:
        """The task's id: a definition made twice is the same task."""
        return hashlib.sha256(_canonical("definition", self.body())).hexdigest()[:32]

    @property
    def about(self) -> TaskSpec:
        return TaskSpec(self.task, self.settings, self.shape.parameters)

    def body(self) -> dict[str, Any]:
        return {
            "purpose": self.purpose,
            "terms": self.terms,
            "readers": self.readers,
            "arrays": [[name, list(sides)] for name, sides in zip(self.shape.names, self.shape.shapes, strict=True)],
            "initial": self.initial,
            "settings": self.settings.model_dump(),
            "claim_window": self.claim_window,
            "requester": self.requester.hex(),
            "training": dict(self.training),
        }

    def sign(self, key: SigningKey) -> str:
        return sign_document("definition", self.body(), key)

    @classmethod
    def open(cls, text: str) -> "Definition":
        """A definition, signed by the requester it names."""
        body = open_document(text, "definition")
        definition = _read("definition", body, cls.from_body)
        open_document(text, "definition", definition.requester)
        return definition

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Definition":
        """From JSON that was checked before."""
        arrays = [(str(name), tuple(map(_side, sides))) for name, sides in body["arrays"]]
        return cls(
            purpose=_text(body, "purpose"),
            terms=_text(body, "terms"),
            readers=_text(body, "readers"),
            shape=ModelShape(tuple(name for name, _ in arrays), tuple(sides for _, sides in arrays)),
            initial=_text(body, "initial"),
            settings=TaskSettings.of(**body["settings"]),
            claim_window=_seconds(body, "claim_window"),
            requester=bytes.fromhex(body["requester"]),
            training=dict(body["training"]),
        )


@dataclass(frozen=True)
class _Signed:
    """A document that somebody else than its subject signs; `open` takes that one's public key."""

    kind: ClassVar[str]
    task: str

    def body(self) -> dict[str, Any]:
        return asdict(self)

    def sign(self, key: SigningKey) -> str:
        return sign_document(self.kind, self.body(), key)

    @classmethod
    def open(cls, text: str, signer: bytes) -> Self:
        return _read(cls.kind, open_document(text, cls.kind, signer), cls.from_body)

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Self:
        readers: dict[Any, Callable[[dict[str, Any], str], Any]] = {str: _text, float: _seconds}
        return cls(*(readers[field.type](body, field.name) for field in fields(cls)))


@dataclass(frozen=True)
class Appointment(_Signed):
    """KGC's word that this task has this key."""

    kind = "appointment"
    fingerprint: str


@dataclass(frozen=True)
class Invitation(_Signed):
    """The requester lets one person join."""

    kind = "invitation"
    number: str
    expires: float


@dataclass(frozen=True)
class Certificate(_Signed):
    """KGC's word that these are a participant's keys, and that it was invited."""

    kind = "certificate"
    identity: Identity

    def body(self) -> dict[str, Any]:
        who = self.identity
        return {"task": self.task, "who": who.who, "signing": who.signing.hex(), "reading": who.reading.hex()}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Self:
        keys = bytes.fromhex(body["signing"]), bytes.fromhex(body["reading"])
        return cls(_text(body, "task"), Identity(_text(body, "who"), *keys))


def _read(kind: str, body: dict[str, Any], reader: Callable[[dict[str, Any]], _Document]) -> _Document:
    try:
        return reader(body)
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        raise DocumentError(f"this {kind} has a missing or wrong field: {type(wrong).__name__} {wrong}") from None
    except DocumentError:
        raise
    except CrowdFLError as wrong:
        raise DocumentError(f"this {kind} does not stand: {wrong}") from None


def _text(body: dict[str, Any], name: str) -> str:
    if not isinstance(body[name], str):
        raise TypeError(f"{name} must be a string")
    return str(body[name])


def _seconds(body: dict[str, Any], name: str) -> float:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise ValueError(f"{value!r} is not a number of seconds")
    return float(value)


def _side(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise ValueError(f"{value!r} is not the side of an array")
    return value


def _canonical(kind: str, body: Mapping[str, Any]) -> bytes:
    return b"crowdfl " + kind.encode() + b" 1 " + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
