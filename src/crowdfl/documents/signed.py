"""What people sign: a requester its task, invitations and orders; KGC keys and certificates; a participant its request to join
and its consent; SP receipts and the end of a task."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.envelope import Document, Envelope, refusal
from crowdfl.errors import CrowdFLError, DocumentError, InvitationRefused, KeyMismatch, SettingsError
from crowdfl.learning.models.forms import from_safetensors
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.profile import Identity, TaskSpec
from crowdfl.schema import Settings
from crowdfl.settings import (
    LANGUAGE,
    MOST_LANGUAGES,
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    TaskSettings,
    TextsSettings,
)

_KEY_BYTES = 32
_Seconds = Annotated[float, Field(ge=0, le=1e12)]
_Side = Annotated[int, Field(ge=1, le=10**9)]
_Key = Annotated[bytes, Field(min_length=_KEY_BYTES, max_length=_KEY_BYTES)]
EndReason = Literal["settled", "cancelled", "expired"]


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
    settings: TaskSettings
    claim_window: float  # seconds after the end of the task in which rewards can be claimed
    training: Mapping[str, Any]  # what a participant's learner is told; the platform does not look inside
    initial: str = ""  # SHA-256 of the initial weights, in hex; known, as the requester's key, when it is signed
    requester: bytes = b""
    plan: PlanSettings = field(default_factory=PlanSettings)
    who: AskerSettings = field(default_factory=AskerSettings)
    payer: bytes = b""  # whom people tell where to be paid; nobody, if it is empty
    language: str = "en"  # of what it says
    consent: ConsentSettings = field(default_factory=ConsentSettings)
    texts: Mapping[str, TextsSettings] = field(default_factory=dict)  # by language
    task: str = field(default="", init=False)  # its id, of what was signed

    def __post_init__(self) -> None:
        """Translations are of what the task has."""
        asked = [one for one in self.training.get("questions", ()) if isinstance(one, Mapping)]
        known = {
            *self.training.get("labels", ()),
            *(word for one in asked for word in (one.get("text"), *one.get("choices", ()))),
        }
        for language in (self.language, *self.texts):
            if not LANGUAGE.fullmatch(language):
                raise SettingsError(f"{language[:40]!r} is no language; expected one such as de, zh-Hans or pt-BR")
        for language, texts in self.texts.items():
            if unknown := sorted(texts.words.keys() - known):
                raise SettingsError(f"[texts.{language}.words]: `{unknown[0]}` is no label or question of this task")
            if texts.consent and not self.consent.version:
                raise SettingsError(f"[texts.{language}]: `consent` translates a text that [consent] does not have")
        if len(self.texts) > MOST_LANGUAGES:
            raise SettingsError(f"texts in {len(self.texts)} languages; at most {MOST_LANGUAGES} can be given")

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(self.task, self.settings, self.shape.parameters, requester=self.requester)

    def language_for(self, reader: str, *, consent: bool = False) -> str:
        """Which translation is for a reader of de-AT, or of the locale de_AT.UTF-8; "" for the task's own texts."""
        tag = reader.partition(".")[0].replace("_", "-")
        short, _, region = tag.partition("-")
        script = {"CN": "zh-Hans", "SG": "zh-Hans", "TW": "zh-Hant", "HK": "zh-Hant", "MO": "zh-Hant"}.get(region, tag)
        known = [one for one in (tag, script if short == "zh" else tag, short) if one in (self.language, *self.texts)]
        found = known[0] if known and known[0] in self.texts else ""
        return found if found and (self.texts[found].consent or not consent) else ""

    def consent_text(self, language: str = "") -> str:
        """What whoever reads this language agrees to; "" is the task's own."""
        texts = self.texts.get(language)
        if language and not (texts and texts.consent):
            raise DocumentError("the task has no consent text in this language")
        return texts.consent if texts else self.consent.text

    def initial_weights(self, data: bytes) -> Weights:
        """What everyone starts from, if these are the bytes that the requester meant."""
        if hashlib.sha256(data).hexdigest() != self.initial:
            raise DocumentError("the platform's initial weights are not those that the task's definition names")
        return from_safetensors(self.shape, data)

    def body(self) -> dict[str, Any]:
        return {
            "purpose": self.purpose,
            "terms": self.terms,
            "readers": self.readers,
            "arrays": [[name, list(sides)] for name, sides in zip(self.shape.names, self.shape.shapes, strict=True)],
            "initial": self.initial,
            "settings": self.settings.model_dump(mode="json"),
            "plan": self.plan.model_dump(mode="json"),
            "who": self.who.model_dump(mode="json"),
            "language": self.language,
            "consent": self.consent.model_dump(mode="json"),
            "texts": {language: texts.model_dump(mode="json") for language, texts in self.texts.items()},
            "claim_window": self.claim_window,
            "requester": self.requester.hex(),
            "payer": self.payer.hex(),
            "training": dict(self.training),
        }

    def sign(self, key: SigningKey) -> str:
        try:
            payload = json.dumps(self.body(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as wrong:
            raise DocumentError(f"this definition holds what JSON cannot: {wrong}") from None
        return Envelope.sign("definition", payload, key).text

    @classmethod
    def open(cls, text: str) -> "Definition":
        """A definition, signed by the requester it names; made twice, it is the same task."""
        envelope = Envelope.parse(text, "definition")
        definition = cls.from_body(envelope.body())
        envelope.verify(definition.requester)
        object.__setattr__(definition, "task", envelope.digest)
        return definition

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Definition":
        try:
            found = dict(_DefinitionBody.model_validate(body))
            arrays = found.pop("arrays")
            shape = ModelShape(tuple(name for name, _ in arrays), tuple(tuple(sides) for _, sides in arrays))
            settings = _whole(TaskSettings, found["settings"])
            plan = _whole(PlanSettings, found["plan"]).require(settings)
            consent, who = _whole(ConsentSettings, found["consent"]), _whole(AskerSettings, found["who"])
            texts = {language: _whole(TextsSettings, one) for language, one in found["texts"].items()}
            read = {"shape": shape, "settings": settings, "plan": plan, "who": who, "consent": consent, "texts": texts}
            return cls(**found | read | {name: bytes.fromhex(found[name]) for name in ("requester", "payer")})
        except ValidationError as wrong:
            raise refusal("definition", wrong) from None
        except CrowdFLError as wrong:
            raise DocumentError(f"this definition does not stand: {wrong}") from None


_Model = TypeVar("_Model", bound=Settings)


def _whole(model: type[_Model], found: dict[str, Any]) -> _Model:
    """A definition names every setting: nobody fills in a default that another does not have."""
    if missing := sorted(model.model_fields.keys() - found.keys()):
        raise DocumentError(f"it does not say {', '.join(missing)}")
    return model(**found)


class _DefinitionBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")  # true is not 1, and "3" is not 3

    purpose: str
    terms: str
    readers: str
    arrays: list[Annotated[tuple[str, list[_Side]], Field(strict=False)]]
    initial: str
    settings: dict[str, Any]
    plan: dict[str, Any]
    who: dict[str, Any]
    language: str
    consent: dict[str, Any]
    texts: dict[str, dict[str, Any]]
    claim_window: _Seconds
    requester: Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]
    payer: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    training: dict[str, Any]


@dataclass(frozen=True)
class Appointment(Document):
    """KGC's word that this task has this key."""

    kind = "appointment"
    fingerprint: str

    def require_key(self, fingerprint: bytes) -> None:
        """Whoever is given a key for this task makes sure that it is this one, before it keeps or uses it."""
        if fingerprint.hex() != self.fingerprint:
            raise KeyMismatch(
                f"the key received for task {self.task[:100]} is {fingerprint.hex()[:16]}, and KGC appointed "
                f"{self.fingerprint[:16]}: nothing is kept; ask KGC's operator which one is right"
            )


@dataclass(frozen=True)
class Order(Document):
    """The requester pauses, resumes or cancels its task."""

    kind = "order"
    action: str
    at: _Seconds


@dataclass(frozen=True)
class EnrolmentEnd(Document):
    """The requester lets nobody else join."""

    kind = "enrolment-end"


@dataclass(frozen=True)
class TaskEnd(Document):
    """SP's word that a task is over: nobody will ask for anything of it, and what it needed can be erased."""

    kind = "task-end"
    why: EndReason
    at: _Seconds


@dataclass(frozen=True)
class Receipt(Document):
    """SP's word that it has an upload."""

    kind = "receipt"
    round: int
    who: str
    digest: str  # SHA-256 of the upload, in hex
    late: bool
    unused: bool = False  # enough others were there first: it is not kept, and the plan's `unused_pay` is owed


@dataclass(frozen=True)
class Invitation(Document):
    """The requester lets one person join, or take the place that the same person had with another device."""

    kind = "invitation"
    number: str = field(repr=False)
    expires: _Seconds
    replaces: str  # "", or the number of the invitation that the other device joined with, or its name in the task


@dataclass(frozen=True)
class EnrolmentRequest(Document):
    """A participant asks for a certificate of its keys under one invitation; signed by the key that it names."""

    kind = "enrolment-request"
    invitation: str  # SHA-256 of its text, in hex
    signing: _Key
    reading: _Key

    @classmethod
    def of(cls, task: str, invitation: str, identity: Identity) -> "EnrolmentRequest":
        return cls(task, digest_of(invitation), identity.signing, identity.reading)

    @classmethod
    def open_own(cls, text: str) -> "EnrolmentRequest":
        """A request that the owner of its signing key has signed."""
        envelope = Envelope.parse(text, cls.kind)
        found = cls.read(envelope)
        envelope.verify(found.signing)
        return found

    def require(self, task: str, invitation: str) -> None:
        if (self.task, self.invitation) != (task, digest_of(invitation)):
            raise InvitationRefused("this request was signed for another task or invitation: sign one for this")


@dataclass(frozen=True)
class Consent(Document):
    """A participant agrees to its task's consent text; signed by the key that it names. The task's id covers the text."""

    kind = "consent"
    version: str
    language: str  # of the text that was read; "" for the task's own
    text: str  # SHA-256 of that text, in hex: the copy that its owner keeps proves itself
    signing: _Key
    at: _Seconds  # by its owner's clock

    @classmethod
    def of(cls, definition: Definition, signing: bytes, at: float, language: str = "") -> "Consent":
        text = digest_of(definition.consent_text(language))
        return cls(definition.task, definition.consent.version, language, text, signing, at)

    @classmethod
    def open_own(cls, document: str, definition: Definition, signing: bytes) -> "Consent":
        """One that the owner of this key has signed, of this very text."""
        found = cls.open(document, signing)
        if found != cls.of(definition, signing, found.at, found.language):
            raise DocumentError("this consent is for another task, text, version or key: agree to this one")
        return found


@dataclass(frozen=True)
class ConsentReceipt(Document):
    """SP's word that it has a consent."""

    kind = "consent-receipt"
    who: str
    digest: str  # SHA-256 of the consent, in hex
    at: _Seconds  # by SP's clock


def consent_copy(definition: Definition, consent: str, receipt: str | None) -> str:
    """What its owner keeps, as JSON: the text that was agreed to, the signed consent, and SP's signed receipt."""
    found = Consent.read(Envelope.parse(consent, Consent.kind))
    copy = {
        "task": found.task,
        "purpose": definition.purpose,
        "asked by": definition.who.model_dump(exclude={"logo"}),
        "version": found.version,
        "language": found.language,
        "text": definition.consent_text(found.language),
        "consent": consent,
        "receipt": receipt,
    }
    return json.dumps(copy, ensure_ascii=False, indent=2) + "\n"


@dataclass(frozen=True)
class Certificate(Document):
    """KGC's word that these are a participant's keys, and that it was invited."""

    kind = "certificate"
    who: str
    signing: _Key
    reading: _Key
    replaces: str  # "", or the participant whose place this one takes

    @classmethod
    def of(cls, task: str, identity: Identity, replaces: str = "") -> "Certificate":
        return cls(task, identity.who, identity.signing, identity.reading, replaces)

    @property
    def identity(self) -> Identity:
        return Identity(self.who, self.signing, self.reading)

    @classmethod
    def read(cls, envelope: Envelope) -> Self:
        found = super().read(envelope)
        if found.who != participant_name(found.signing):
            raise DocumentError("this certificate names somebody else than the owner of its signing key")
        return found


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
