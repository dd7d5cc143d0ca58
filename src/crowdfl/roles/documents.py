"""Signed documents: what the requester defines, what KGC appoints and certifies, whom the requester invites.

A document is JSON text with a kind, a body and an Ed25519 signature over both in canonical form; people can read one, any
language can check one, and one kind never passes for another.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from crowdfl.crypto.sealing import SigningKey, verify
from crowdfl.errors import CrowdFLError, DocumentError
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Identity, TaskSpec
from crowdfl.settings import TaskSettings

__all__ = [
    "Appointment",
    "Certificate",
    "Definition",
    "Invitation",
    "ModelArray",
    "open_document",
    "participant_name",
    "sign_document",
]

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
        raise DocumentError(f"this is no {kind}: it must be JSON with kind, body and signature") from None
    if found != kind or not isinstance(body, dict):
        raise DocumentError(f"a {found} where a {kind} is expected")
    if public is not None:
        verify(public, _canonical(kind, body), signature)
    return body


def participant_name(signing: bytes) -> str:
    """A participant's name in a task: a pseudonym that nobody else can take."""
    return hashlib.sha256(b"crowdfl participant 1" + signing).hexdigest()[:20]


@dataclass(frozen=True)
class ModelArray:
    """One array of a model."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        size = 1
        for side in self.shape:
            size *= side
        return size


@dataclass(frozen=True)
class Definition:
    """A task as its requester defines it: what for, on which terms, who reads the model, which model, which settings."""

    purpose: str
    terms: str
    readers: str
    arrays: tuple[ModelArray, ...]
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
        return TaskSpec(self.task, self.settings, sum(array.size for array in self.arrays))

    @property
    def shape(self) -> ModelShape:
        """The model's arrays, to lay them in a row and take them apart again."""
        return ModelShape(tuple(array.name for array in self.arrays), tuple(array.shape for array in self.arrays))

    def body(self) -> dict[str, Any]:
        return {
            "purpose": self.purpose,
            "terms": self.terms,
            "readers": self.readers,
            "arrays": [[array.name, list(array.shape)] for array in self.arrays],
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
        arrays = tuple(ModelArray(str(name), tuple(_whole(side) for side in shape)) for name, shape in body["arrays"])
        return cls(
            purpose=_text(body, "purpose"),
            terms=_text(body, "terms"),
            readers=_text(body, "readers"),
            arrays=arrays,
            initial=_text(body, "initial"),
            settings=TaskSettings.of(**body["settings"]),
            claim_window=_seconds(body["claim_window"]),
            requester=bytes.fromhex(body["requester"]),
            training=dict(body["training"]),
        )


@dataclass(frozen=True)
class Appointment:
    """KGC's word that this task has this key."""

    task: str
    fingerprint: str

    def sign(self, key: SigningKey) -> str:
        return sign_document("appointment", asdict(self), key)

    @classmethod
    def open(cls, text: str, kgc: bytes) -> "Appointment":
        body = open_document(text, "appointment", kgc)
        return _read("appointment", body, lambda b: cls(_text(b, "task"), _text(b, "fingerprint")))


@dataclass(frozen=True)
class Invitation:
    """The requester lets one person join."""

    task: str
    number: str
    expires: float

    def sign(self, key: SigningKey) -> str:
        return sign_document("invitation", asdict(self), key)

    @classmethod
    def open(cls, text: str, requester: bytes) -> "Invitation":
        body = open_document(text, "invitation", requester)
        return _read("invitation", body, lambda b: cls(_text(b, "task"), _text(b, "number"), _seconds(b["expires"])))


@dataclass(frozen=True)
class Certificate:
    """KGC's word that these are a participant's keys, and that it was invited."""

    task: str
    identity: Identity

    def sign(self, key: SigningKey) -> str:
        who = self.identity
        body = {"task": self.task, "who": who.who, "signing": who.signing.hex(), "reading": who.reading.hex()}
        return sign_document("certificate", body, key)

    @classmethod
    def open(cls, text: str, kgc: bytes) -> "Certificate":
        body = open_document(text, "certificate", kgc)
        return _read("certificate", body, cls.from_body)

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Certificate":
        """From JSON that was checked before."""
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
        raise TypeError(f"{name} must be text")
    return str(body[name])


def _seconds(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise ValueError(f"{value!r} is no number of seconds")
    return float(value)


def _whole(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise ValueError(f"{value!r} is no side of an array")
    return value


def _canonical(kind: str, body: Mapping[str, Any]) -> bytes:
    return b"crowdfl " + kind.encode() + b" 1 " + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
