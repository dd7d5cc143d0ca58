"""Signed documents: what the requester defines, what KGC appoints and certifies, whom the requester invites, who asks to join.

A document is JSON text with a kind, a body and an Ed25519 signature over both in canonical form; people can read one, any
language can check one, and one kind never passes for another.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from crowdfl.crypto.sealing import SigningKey, verify
from crowdfl.errors import CrowdFLError, DocumentError, InvitationRefused, KeyMismatch
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Identity, TaskSpec
from crowdfl.settings import TaskSettings

_LONGEST = 1_000_000
_ENROLMENT = "request to enrol"
_STRICT = ConfigDict(strict=True)  # true is not 1, and "3" is not 3
_Text = Annotated[str, Field(strict=True)]
_Seconds = Annotated[float, Field(strict=True, ge=0, le=1e12)]
_Side = Annotated[int, Field(ge=1, le=10**9)]
_SERVER_STEP = {"server_step", "server_rate", "server_momentum", "server_squares", "server_floor"}
EndReason = Literal["settled", "cancelled", "expired"]


def _from_hex(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("expected hexadecimal digits")
    return bytes.fromhex(text)


_Hex = Annotated[bytes, BeforeValidator(_from_hex)]


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
    def spec(self) -> TaskSpec:
        return TaskSpec(self.task, self.settings, self.shape.parameters)

    def body(self) -> dict[str, Any]:
        return {
            "purpose": self.purpose,
            "terms": self.terms,
            "readers": self.readers,
            "arrays": [[name, list(sides)] for name, sides in zip(self.shape.names, self.shape.shapes, strict=True)],
            "initial": self.initial,
            "settings": self.settings.model_dump(exclude=_unnamed(self.settings)),
            "claim_window": self.claim_window,
            "requester": self.requester.hex(),
            "training": dict(self.training),
        }

    def sign(self, key: SigningKey) -> str:
        return sign_document("definition", self.body(), key)

    @classmethod
    def open(cls, text: str) -> "Definition":
        """A definition, signed by the requester it names."""
        definition = cls.from_body(open_document(text, "definition"))
        open_document(text, "definition", definition.requester)
        return definition

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Definition":
        try:
            found = dict(_DefinitionBody.model_validate(body))
            arrays = found.pop("arrays")
            shape = ModelShape(tuple(name for name, _ in arrays), tuple(tuple(sides) for _, sides in arrays))
            return cls(**found | {"shape": shape, "settings": TaskSettings.of(**found["settings"])})
        except ValidationError as wrong:
            raise _refusal("definition", wrong) from None
        except CrowdFLError as wrong:
            raise DocumentError(f"this definition does not stand: {wrong}") from None


def _unnamed(settings: TaskSettings) -> set[str]:
    """Settings that came later stay out of the ids of tasks that do not use them: those are what they were before."""
    unused = set() if settings.profile == "shares" else {"rule", "check", "max_norm"}
    return unused | (_SERVER_STEP if settings.server_step == "none" else set())


class _DefinitionBody(BaseModel):
    model_config = _STRICT

    purpose: str
    terms: str
    readers: str
    arrays: list[Annotated[tuple[str, list[_Side]], Field(strict=False)]]
    initial: str
    settings: dict[str, Any]
    claim_window: _Seconds
    requester: _Hex
    training: dict[str, Any]


@dataclass(frozen=True)
class _Signed:
    """A document that somebody else than its subject signs; `open` takes that one's public key."""

    kind: ClassVar[str]
    task: _Text

    def body(self) -> dict[str, Any]:
        return asdict(self)

    def sign(self, key: SigningKey) -> str:
        return sign_document(self.kind, self.body(), key)

    @classmethod
    def open(cls, text: str, signer: bytes) -> Self:
        try:
            return cls.from_body(open_document(text, cls.kind, signer))
        except ValidationError as wrong:
            raise _refusal(cls.kind, wrong) from None

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Self:
        return TypeAdapter(cls).validate_python(body)


@dataclass(frozen=True)
class Appointment(_Signed):
    """KGC's word that this task has this key."""

    kind = "appointment"
    fingerprint: _Text

    def require_key(self, fingerprint: bytes) -> None:
        """Whoever is given a key for this task makes sure that it is this one, before it keeps or uses it."""
        if fingerprint.hex() != self.fingerprint:
            raise KeyMismatch(
                f"the key received for task {self.task[:100]} is {fingerprint.hex()[:16]}, and KGC appointed "
                f"{self.fingerprint[:16]}: nothing is kept; ask KGC's operator which one is right"
            )


@dataclass(frozen=True)
class Invitation(_Signed):
    """The requester lets one person join."""

    kind = "invitation"
    number: _Text
    expires: _Seconds


@dataclass(frozen=True)
class TaskEnd(_Signed):
    """SP's word that a task is over: nobody will ask for anything of it, and what it needed can be erased."""

    kind = "end of task"
    why: EndReason
    at: _Seconds


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
        found = _CertificateBody.model_validate(body)
        if found.who != participant_name(found.signing):
            raise DocumentError("this certificate names somebody else than the owner of its signing key")
        return cls(found.task, Identity(found.who, found.signing, found.reading))


class _CertificateBody(BaseModel):
    model_config = _STRICT

    task: str
    who: str
    signing: _Hex
    reading: _Hex


@dataclass(frozen=True)
class EnrolmentRequest:
    """A participant asks for a certificate of its keys under one invitation; signed by the key that it names."""

    task: str
    invitation: str  # SHA-256 of its text, in hex
    signing: bytes
    reading: bytes

    @classmethod
    def of(cls, task: str, invitation: str, identity: Identity) -> "EnrolmentRequest":
        return cls(task, _digest(invitation), identity.signing, identity.reading)

    def sign(self, key: SigningKey) -> str:
        keys = {"signing": self.signing.hex(), "reading": self.reading.hex()}
        return sign_document(_ENROLMENT, {"task": self.task, "invitation": self.invitation} | keys, key)

    @classmethod
    def open(cls, text: str) -> "EnrolmentRequest":
        """A request that the owner of its signing key has signed."""
        try:
            found = cls(**dict(_EnrolmentBody.model_validate(open_document(text, _ENROLMENT))))
        except ValidationError as wrong:
            raise _refusal(_ENROLMENT, wrong) from None
        open_document(text, _ENROLMENT, found.signing)
        return found

    def require(self, task: str, invitation: str) -> None:
        if (self.task, self.invitation) != (task, _digest(invitation)):
            raise InvitationRefused("this request was signed for another task or invitation: sign one for this")


class _EnrolmentBody(BaseModel):
    model_config = _STRICT

    task: str
    invitation: str
    signing: _Hex
    reading: _Hex


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refusal(kind: str, wrong: ValidationError) -> DocumentError:
    """Where the first wrong field is and what was expected; never what it held."""
    first = wrong.errors(include_url=False, include_input=False)[0]
    return DocumentError(
        f"this {kind} has a missing or wrong field: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    )


def _canonical(kind: str, body: Mapping[str, Any]) -> bytes:
    return b"crowdfl " + kind.encode() + b" 1 " + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
