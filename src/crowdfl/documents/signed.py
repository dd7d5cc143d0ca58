"""What is signed about a task: by its requester, KGC, SP, CSP and its participants."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Document, Envelope, compact_json, refusal
from crowdfl.documents.forms import completed, numbered
from crowdfl.errors import CrowdFLError, DocumentError, KeyMismatch, SettingsError
from crowdfl.learning.models.forms import from_safetensors
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.profile import TaskSpec
from crowdfl.schema import Settings
from crowdfl.settings import (
    LANGUAGE,
    LAST_DATE,
    MOST_LANGUAGES,
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    TaskSettings,
    TextsSettings,
)

_KIND = "definition"
_KEY_BYTES = 32
_Seconds = Annotated[float, Field(ge=0, le=1e12)]
_DateOrNone = Annotated[int, Field(ge=0, le=LAST_DATE)]  # of a draft, as a model's file keeps it
_Date = Annotated[int, Field(ge=1, le=LAST_DATE)]  # seconds since 1970
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
    claims_until: int  # seconds since 1970: the unclaimed returns then; of a draft, the time to claim after the rounds
    training: Mapping[str, Any]  # what a participant's learner is told; the platform does not look inside
    initial: str = ""  # SHA-256 of the initial weights, in hex; known, as the requester's key, when it is signed
    requester: bytes = b""
    plan: PlanSettings = field(default_factory=PlanSettings)
    who: AskerSettings = field(default_factory=AskerSettings)
    payer: bytes = b""  # whom people tell where to be paid; nobody, if it is empty
    recruiter: bytes = (
        b""  # who may invite in the requester's place, and replace nobody: SP's key; nobody, if it is empty
    )
    language: str = "en"  # of what it says
    consent: ConsentSettings = field(default_factory=ConsentSettings)
    texts: Mapping[str, TextsSettings] = field(default_factory=dict)  # by language
    rounds_until: int = 0  # seconds since 1970: no round goes on after it; 0 of a draft, which has no dates yet
    recruits: bool = False  # SP lets people in: in what was signed, as the recruiter
    task: str = field(default="", init=False)  # its id, of what was signed

    def __post_init__(self) -> None:
        """Translations are of what the task has, and nobody claims before the end."""
        object.__setattr__(self, "recruits", self.recruits or bool(self.recruiter))
        if self.claims_until < self.rounds_until:
            raise SettingsError("`claims_until` is before `rounds_until`: rewards are claimed after the last round too")
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

    @property
    def claim_window(self) -> int:
        """Seconds after the last day of rounds in which rewards can be claimed."""
        return self.claims_until - self.rounds_until

    def dated(self, now: float) -> Self:
        """A draft with its dates, as its requester computes them at creation; what has dates keeps them."""
        if self.rounds_until:
            return self
        plan = self.plan.with_enrolment(now)
        end = plan.rounds_until(self.settings, now)
        if end + self.claim_window > LAST_DATE:
            raise SettingsError("people could claim for ever: set a shorter `claim_window`")
        return replace(self, plan=plan, rounds_until=end, claims_until=end + self.claim_window)

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
        """In the newest form, whichever it was signed in."""
        said = {
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
            "rounds_until": self.rounds_until,
            "claims_until": self.claims_until,
            "requester": self.requester.hex(),
            "payer": self.payer.hex(),
            "recruiter": self.recruiter.hex(),
            "training": dict(self.training),
        }
        return numbered(_KIND, said)

    def sign(self, key: SigningKey) -> str:
        try:
            payload = compact_json(self.body())
        except (TypeError, ValueError, RecursionError) as wrong:
            raise DocumentError(f"this definition holds what JSON cannot: {wrong}") from None
        return Envelope.sign(_KIND, payload, key).text

    @classmethod
    def open(cls, text: str) -> "Definition":
        """A definition, signed by the requester it names; made twice, it is the same task."""
        envelope = Envelope.parse(text, _KIND)
        definition = cls.from_body(envelope.body())
        envelope.verify(definition.requester)
        if definition.recruiter == definition.requester:
            raise DocumentError("this definition names its requester as the recruiter, who is the platform")
        if not definition.rounds_until:
            raise DocumentError("this definition has no last day of rounds, `rounds_until`: it is a draft")
        object.__setattr__(definition, "task", envelope.digest)
        return definition

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Definition":
        said = completed(_KIND, body)
        try:
            found = dict(_DefinitionBody.model_validate(said))
            arrays = found.pop("arrays")
            shape = ModelShape(tuple(name for name, _ in arrays), tuple(tuple(sides) for _, sides in arrays))
            settings = _whole(TaskSettings, found["settings"])
            plan = _whole(PlanSettings, found["plan"]).require(settings)
            consent, who = _whole(ConsentSettings, found["consent"]), _whole(AskerSettings, found["who"])
            texts = {language: _whole(TextsSettings, one) for language, one in found["texts"].items()}
            read = {"shape": shape, "settings": settings, "plan": plan, "who": who, "consent": consent, "texts": texts}
            return cls(
                **found | read | {name: bytes.fromhex(found[name]) for name in ("requester", "payer", "recruiter")}
            )
        except ValidationError as wrong:
            raise refusal(_KIND, wrong) from None
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
    rounds_until: _DateOrNone
    claims_until: _DateOrNone
    requester: Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]
    payer: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    recruiter: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
    training: dict[str, Any]


@dataclass(frozen=True)
class Appointment(Document):
    """KGC's word that this task has this key, and that its CSP signs with that one."""

    kind = "appointment"
    fingerprint: str
    csp: Annotated[
        str, Field(pattern="^([0-9a-f]{64})?$")
    ]  # for whoever is dealt nothing: the payer; "": CSP signs nothing

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
    closing: Annotated[str, Field(pattern="^([0-9a-f]{2})*$")] = ""  # of a cancel: the requester's word to CSP, in hex


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
class ClaimsExtension(Document):
    """CSP's word that people can claim longer, after a server was away: once, and by the time to claim at most."""

    kind = "claims-extension"
    until: _Date

    @classmethod
    def open_of(cls, text: str, definition: Definition, csp_key: bytes) -> Self:
        """By this task's CSP, and no longer than the definition allows."""
        found = cls.open(text, csp_key)
        if found.task != definition.task:
            raise DocumentError("this is about the claims of another task")
        found.require(definition)
        return found

    def require(self, definition: Definition) -> None:
        last = definition.claims_until + definition.claim_window
        if not definition.claims_until < self.until <= last:
            raise DocumentError(
                f"claims are extended to a moment after {definition.claims_until} and up to {last}, in seconds since 1970; "
                f"{self.until} is none"
            )


@dataclass(frozen=True)
class AttestedSum(Document):
    """CSP's word to the requester, once claims have ended: how much it has attested in all."""

    kind = "attested-sum"
    total: Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,38})$")]  # millionths
    currency: str
    complete: bool  # a CSP that was set back may have forgotten some
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


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
