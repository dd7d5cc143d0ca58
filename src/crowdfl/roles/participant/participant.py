"""Participant: look before joining, enrol, train on data that stays here, upload, read, be paid, leave.

What must survive a crash lies in `blobs`, written before it is sent: an upload that was interrupted is sent again with the same
bytes, so that it is the same upload.
"""

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.paillier.pctd import FreshRandomizers, PublicKey, RandomizerSource
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.destination import Destination, checked, destination_name
from crowdfl.documents.invitations import Invitation, Ticket
from crowdfl.documents.signed import (
    Appointment,
    ClaimsExtension,
    Consent,
    ConsentReceipt,
    Definition,
    Receipt,
    consent_copy,
    digest_of,
    participant_name,
)
from crowdfl.documents.task_summary import recruiting_words, task_summary
from crowdfl.errors import (
    AlreadyCounted,
    Conflict,
    ConsentMissing,
    CrowdFLError,
    DocumentError,
    EnrolmentOver,
    Forbidden,
    FormatError,
    InvitationRefused,
    NotAuthenticated,
    NotDrawn,
    NothingToContribute,
    NotReady,
    PlaceFreed,
    PoolExhausted,
    Replaced,
    RewardOutOfRange,
    RolledBack,
    RoundNotOpen,
    ServiceError,
    TaskFull,
    TaskNotRunning,
    TooFewParticipants,
    TooLate,
    UnknownParticipant,
    UploadRejected,
    Withdrawn,
    WrongBase,
)
from crowdfl.learning.models.forms import from_safetensors, to_safetensors
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.capabilities import (
    DealsFiles,
    FollowsModel,
    PaysByRecord,
    PaysOpenly,
    ReadsRecords,
    ScalesDown,
    TakesRandomizers,
)
from crowdfl.protocols.claims import BONUS, PlaceNote, open_place_kept
from crowdfl.protocols.profile import (
    Average,
    ParticipantKeys,
    ParticipantProtocol,
    Tools,
)
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.uploads import upload_digest
from crowdfl.reasons import Reason
from crowdfl.roles import home
from crowdfl.roles.participant.chain import KeptChain
from crowdfl.roles.participant.claims import Claiming
from crowdfl.roles.participant.enrolment import EnrollingKgc, enrol, takes_a_place
from crowdfl.roles.participant.evidence import CspWord, Evidence, SpWord, contradicts, holds_receipt, signed_of
from crowdfl.roles.ports import Blobs, Stock, replace_blob
from crowdfl.roles.records import NOT_OPEN, PaidClaim, PayWord, RoundState, last_claims, taking_uploads
from crowdfl.settings import DELTA, LEAST_PARTICIPANTS

# What a home folder keeps of joining.
INVITATION, LEAST, ALL_THE_SAME, TICKET_KEY = "invitation", "least-participants", "all-the-same", "ticket-key"
CHARGED = "charged.json"  # what it keeps of differential privacy
CONSENT_COPY = "consent.json"
_UNDER_WAY = ("running", "paused")
_LONGEST_REST = 3600.0  # seconds: a platform that asks for more is looked at all the same
_NO_ROOM = {"full": TaskFull, "over": EnrolmentOver, "ended": TaskNotRunning}
Train = Callable[[Weights, Mapping[str, Any], int], tuple[Weights, int]]
"""From a model, the task's training settings and the round's number to a trained model and how many samples it saw."""
Evaluate = Callable[[Weights, int], Mapping[str, float]]
"""How the model of a round does on this participant's own held-out data."""


class ParticipantSp(Protocol):
    """SP as a participant reaches it."""

    def papers(self, task: str) -> tuple[str, str]: ...  # definition and appointment
    def initial_weights(self, task: str) -> bytes: ...
    def status(self, task: str) -> dict[str, Any]: ...
    def enrol(self, task: str, certificate: str, consent: str | None) -> str | None: ...  # the receipt of a consent
    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str: ...  # the signed receipt
    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None: ...  # the digest that SP holds
    def is_drawn(self, task: str, number: int, keys: ParticipantKeys) -> bool: ...  # for this round
    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes: ...
    def end(
        self, task: str, number: int, keys: ParticipantKeys
    ) -> bytes: ...  # CSP's word on a round that was given up
    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes: ...
    def claim(self, task: str, claim: bytes, keys: ParticipantKeys) -> PaidClaim: ...
    def pay_to(
        self, task: str, sealed: bytes, keys: ParticipantKeys
    ) -> bytes: ...  # CSP's word, if a note came with it
    def pay_words(self, task: str, keys: ParticipantKeys) -> Mapping[int, PayWord]: ...
    def leave(self, task: str, keys: ParticipantKeys, *, withdraw: bool) -> dict[str, list[int]]: ...  # `Sp.withdraw`'s
    def recruit(self, task: str, key: bytes) -> str: ...  # an invitation to this key, of a listed task


def _seconds(told: object) -> float:
    return min(float(told), _LONGEST_REST) if isinstance(told, int | float) and told >= 0 else 0.0


def least_words(number: int | str) -> str:
    """How somebody accepts so many people, in Python and on the command line."""
    return f"least_participants={number} (--least-participants {number})"


@dataclass
class Participant:
    """One participant in one task."""

    task: str
    blobs: Blobs
    kgc: EnrollingKgc
    sp: ParticipantSp
    kgc_key: bytes
    tools: Tools = field(default_factory=Tools.unwatched)
    on_event: Callable[[str, Mapping[str, Any]], None] = lambda _what, _details: None
    sp_key: bytes | None = None  # what receipts are checked with, where it is known
    open_stock: Callable[[PublicKey], Stock] | None = None  # randomizers made while idle; else made when needed
    state: str = "running"  # the task's, when this participant last looked
    come_back: float = 0.0  # seconds after that look until the platform wants the next one, if there is nothing to do
    least_participants: int = LEAST_PARTICIPANTS  # in a smaller crowd an average says too much about this one
    all_the_same: bool = False  # its owner takes part where SP may be everybody else
    charged_elsewhere: float = 0.0  # epsilon of its owner's other tasks
    language: str = ""  # its owner's, or locale
    agree: str | None = None  # the version of the consent text that its owner has read and agrees to
    now: Callable[[], float] = field(default=time.time, repr=False)  # this device's clock
    _stock: Stock | None = field(default=None, repr=False)
    _side: ParticipantProtocol | None = field(default=None, repr=False)
    _joined: Definition | None = field(default=None, repr=False)
    _keys: ParticipantKeys | None = field(default=None, repr=False)
    _latest: Mapping[str, Any] | None = field(default=None, repr=False)  # at the last step
    _epoch: str | None = field(default=None, repr=False)  # SP's, when this participant last looked
    _looked: dict[int, tuple[str, int]] = field(default_factory=dict, repr=False)  # by round: epoch, uploads
    _undrawn: dict[int, tuple[str | None, int]] = field(
        default_factory=dict, repr=False
    )  # by round: epoch, people drawn
    _told: set[tuple[str, int, str]] = field(default_factory=set, repr=False)  # what need not be told again
    unread: dict[int, bool] = field(default_factory=dict, repr=False)  # rewards that could not be read: may that pass?

    def __post_init__(self) -> None:
        home.bring_up(self.blobs)

    def claims_until(self, status: Mapping[str, Any]) -> int:
        """The last moment of claims, in seconds since 1970: by the definition, or a later one by CSP's word, which is kept."""
        shown = status.get("claims_extended")
        kept = "claims-extended"
        side = self.side
        if isinstance(shown, str) and not self.blobs.has(kept):
            with contextlib.suppress(CrowdFLError):  # another's word changes nothing
                ClaimsExtension.open_of(shown, self.definition, side.csp_key)
                self.blobs.put(kept, shown.encode())
        return last_claims(self.definition, self.blobs.get(kept).decode() if self.blobs.has(kept) else None)

    def on_wait(self, why: Exception, seconds: float) -> None:
        """Tell what is waited for; also for the links to the platform, at each attempt that failed."""
        self.on_event("waiting", {"why": str(why), "seconds": round(seconds, 1)})

    def look(self) -> Definition:
        """The task as its requester signed it and KGC appointed it: read this before joining."""
        return self._papers()[1]

    def summary(self, definition: Definition) -> str:
        """A task in words for whoever is asked to join."""
        return task_summary(definition, self.least_participants, self.charged_elsewhere, self.language)

    def _papers(self) -> tuple[str, Definition, Appointment]:
        text, appointment = self.sp.papers(self.task)
        definition, appointed = Definition.open(text), Appointment.open(appointment, self.kgc_key)
        if definition.task != self.task or appointed.task != self.task:
            raise DocumentError("the platform showed the papers of another task")
        return text, definition, appointed

    def require_company(self, definition: Definition) -> None:
        """Refuse a task whose averages may be of fewer people than this participant accepts: of this one alone, for what SP can
        know, where SP lets people in and no noise hides anyone."""
        if definition.recruits and definition.settings.epsilon is None and not self._accepts_all_the_same:
            raise TooFewParticipants(
                f"{recruiting_words(definition)}. Take part in a task with `epsilon`, or accept it with all_the_same=True "
                "(--all-the-same)"
            )
        fewest = definition.settings.min_participants
        if fewest < self.least_participants:
            raise TooFewParticipants(
                f"this task averages as few as {fewest} participants, and you take part from {self.least_participants} on: "
                f"ask the requester to raise min_participants, or accept it with {least_words(fewest)}"
            )

    def require_agreement(self, definition: Definition) -> None:
        """Refuse to join a task whose consent text its owner has not agreed to."""
        version = definition.consent.version
        if version and self.agree != version and not self.blobs.has("consent"):
            raise ConsentMissing(
                f"this task asks for your consent to its text, version {version}: read it (`crowdfl participant look`); if "
                f"you agree, say so with agree={version!r} (--agree {version})"
            )

    @property
    def _accepts_all_the_same(self) -> bool:
        return self.all_the_same or self.blobs.has(ALL_THE_SAME)

    def join(self, invitation: str) -> str:
        """Enrol with KGC and SP; safe to repeat. The name this participant goes by.

        Without an invitation ("") SP is asked for one, of a task that it lists.
        """
        if self.blobs.has("stopped"):
            raise UploadRejected(f"this device takes no further part in the task: {self.blobs.get('stopped').decode()}")
        if self.blobs.has("withdrawing"):
            raise Withdrawn("you have withdrawn from this task, for good: to take part again, ask for a new invitation")
        text, definition, appointment = self._papers()
        self.require_company(definition)
        self.require_agreement(definition)
        if not self.blobs.has("certificate"):
            self._require_room(takes_place=takes_a_place(invitation))
        if not self.blobs.has("keys"):
            keys = SigningKey.fresh(), ReaderKey.fresh()
            home.begin(self.blobs)
            self.blobs.put("keys", json.dumps([keys[0].private.hex(), keys[1].private.hex()]).encode())
        keys_ = self.keys
        if definition.consent.version and not self.blobs.has("consent"):
            language = definition.language_for(self.language, consent=True)
            agreed = Consent.of(definition, keys_.signing.public, self._platform_time(), language)
            self.blobs.put("consent", agreed.sign(keys_.signing).encode())
        if not self.blobs.has("certificate"):
            enrolled = enrol(self.kgc, definition, invitation or self._recruited(definition), keys_, self.kgc_key)
            appointment.require_key(self._new_side(definition, enrolled.bundle).fingerprint)
            self.blobs.put("definition", text.encode())
            for left in ("bundle", INVITATION):  # by a crash; nothing was done with them
                self.blobs.delete(left)
            self.blobs.put_all({"bundle": enrolled.bundle, INVITATION: digest_of(invitation).encode()})
            self.blobs.put("certificate", enrolled.certificate.encode())
        if self._enrol():
            self._keep_least()
            self.blobs.delete("leave-sent")
            self.blobs.delete("left")
            self.on_event("joined", {"who": keys_.who})
        return keys_.who

    def _recruited(self, definition: Definition) -> str:
        """A ticket that SP has signed; its key is kept first, so that whoever asks again has the same place."""
        if not definition.recruits:
            raise InvitationRefused(
                "the platform does not let people into this task: ask its requester for an invitation"
            )
        if not self.blobs.has(TICKET_KEY):
            self.blobs.put(TICKET_KEY, SigningKey.fresh().private)
        key = SigningKey(self.blobs.get(TICKET_KEY))
        text = self.sp.recruit(self.task, key.public)
        found = Invitation.open_in(text, definition)
        if (found.key, found.device) != (key.public, 1):
            raise DocumentError("the platform has signed another key than it was asked to: nothing is joined")
        return Ticket(text, key).text

    def _enrol(self) -> bool:
        """With SP, with the consent that was given; False if another device has taken this one's place."""
        consent = self.blobs.get("consent").decode() if self.blobs.has("consent") else None
        try:
            receipt = self.sp.enrol(self.task, self.blobs.get("certificate").decode(), consent)
        except Replaced as why:
            self._stop(str(why), "replaced")
            return False
        if consent is not None and not self.blobs.has(CONSENT_COPY):
            if receipt is not None and self.sp_key is not None:
                found = ConsentReceipt.open(receipt, self.sp_key)
                if found != ConsentReceipt(self.task, self.keys.who, digest_of(consent), found.at):
                    raise DocumentError("the platform's receipt is not for your consent: keep it and complain")
            self.blobs.put(CONSENT_COPY, consent_copy(self.definition, consent, receipt).encode())
            self.on_event("agreed", {"version": self.definition.consent.version, "copy": CONSENT_COPY})
        return True

    def _platform_time(self) -> float:
        """By SP's clock, where it tells: this device's may be wrong."""
        told = self.sp.status(self.task).get("now")
        return float(told) if isinstance(told, int | float) and 0 <= told < 1e11 else self.now()

    def _require_room(self, *, takes_place: bool) -> None:
        """Before the invitation is used up: a task that takes nobody says so."""
        state = self.sp.status(self.task).get("enrolment")
        if state in NOT_OPEN and (state == "ended" or not takes_place):
            raise _NO_ROOM[state](f"{NOT_OPEN[state]}; your invitation is not used up")

    def _keep_least(self) -> None:
        if self.all_the_same and not self.blobs.has(ALL_THE_SAME):
            self.blobs.put(ALL_THE_SAME, b"")
        chosen = str(self.least_participants).encode()
        if not self.blobs.has(LEAST) or self.blobs.get(LEAST) != chosen:
            replace_blob(self.blobs, LEAST, chosen)

    @property
    def keys(self) -> ParticipantKeys:
        if self._keys is None:  # once made, they never change
            signing, reading = (bytes.fromhex(key) for key in json.loads(self.blobs.get("keys")))
            key = SigningKey(signing)
            self._keys = ParticipantKeys(participant_name(key.public), key, ReaderKey(reading))
        return self._keys

    def step(self, train: Train, evaluate: Evaluate | None = None) -> bool:
        """Do what is due: read new averages and rewards, and take part in an open round. True if anything was done."""
        status = self.look_again()
        self.state, self.come_back = status["state"], _seconds(status.get("come_back"))
        try:
            if self.has_left and self.state in _UNDER_WAY:
                self.state = "left"
                return self._step_left(status)
            return self._step(status, train, evaluate)
        except RolledBack as wrong:
            self._stop(str(wrong))
            return True

    def _step_left(self, status: Mapping[str, Any]) -> bool:
        """Nothing is sent any more. What was made may be judged, used and paid all the same: CSP's word of it is read."""
        self._send_leave()
        did = False
        for entry in status["rounds"]:
            if entry["state"] == "rewarded":
                did |= self._read_own(entry["number"])
            if entry["state"] == "aborted":
                did |= self._explain(entry["number"], status["state"], unused=bool(entry.get("unused")))
        return did

    def _step(self, status: Mapping[str, Any], train: Train, evaluate: Evaluate | None) -> bool:
        if isinstance(profile_named(self.definition.settings.profile), DealsFiles):  # else a restored SP goes on
            self._chain.require_forward(status)
        self._come_back(status)
        did = False
        for entry in status["rounds"]:
            number, state = entry["number"], entry["state"]
            if state in self._taking or self.blobs.has(f"rounds/{number}/upload"):  # its receipt may have been lost
                did |= self._take_part(number, train, entry.get("drawn"))
            if state in ("published", "rewarded"):
                did |= self._read(number, evaluate)
            if state == "rewarded":
                did |= self._open_reward(number)
            if state == "aborted":
                did |= self._explain(number, self.state, unused=bool(entry.get("unused")))
        return did

    @property
    def _taking(self) -> tuple[RoundState, ...]:
        return taking_uploads(self.definition.settings)

    @property
    def awaits_words(self) -> bool:
        """Whether CSP's signed word is missing about a round that an upload was made for."""
        return isinstance(self.side, ReadsRecords) and bool(self._wordless())

    def _wordless(self) -> list[int]:
        """The rounds that an upload was made for, and of which CSP's word was not heeded, or is not here."""
        rounds = range(1, self.definition.settings.rounds + 1)
        return [number for number in filter(self._has_made, rounds) if not self._is_heeded(number)]

    def _is_heeded(self, number: int) -> bool:
        return self._chain.has_end(number) or self.blobs.has(f"rounds/{number}/heeded")

    def _has_made(self, number: int) -> bool:
        """An upload for a round, whatever became of it."""
        return self.blobs.has(f"rounds/{number}/made") or holds_receipt(self.blobs, number)

    def _come_back(self, status: Mapping[str, Any]) -> None:
        """After SP was restored from a backup: enrol again, and forget the receipts of uploads that it no longer has."""
        epoch = str(status.get("epoch", ""))
        if self._epoch not in (None, epoch):
            self.on_event("restored", {})
            self._enrol()
        for entry in status["rounds"]:
            if entry["state"] == "open" and self._is_lost(entry, f"{epoch} {status.get('dropped', 0)}"):
                self._forget_receipt(entry["number"])
        self._epoch = epoch

    def _is_lost(self, entry: Mapping[str, Any], epoch: str) -> bool:
        """Asked once by each process, and again when SP was restored, has dropped uploads, or shows fewer than before."""
        number, now = entry["number"], (epoch, int(entry.get("uploads", 0)))
        known, held = self._looked.get(number), f"rounds/{number}/receipt"
        news = known is None or known[0] != now[0] or known[1] > now[1]
        lost = news and self.blobs.has(held) and self.blobs.has(f"rounds/{number}/upload")
        lost = lost and self.sp.uploaded(self.task, number, self.keys) is None
        self._looked[number] = now
        return lost

    def _forget_receipt(self, number: int) -> None:
        """What was made for the round is sent again; the first receipt is kept, as evidence."""
        receipt = self.blobs.get(f"rounds/{number}/receipt")
        if not self.blobs.has(f"rounds/{number}/lost-receipt"):
            self.blobs.put(f"rounds/{number}/lost-receipt", receipt)
        self.blobs.delete(f"rounds/{number}/receipt")
        self.on_event("sending again", {"round": number})

    @property
    def has_left(self) -> bool:
        return self.blobs.has("left")

    def _explain(self, number: int, state: str, *, unused: bool) -> bool:
        """A round that nobody is paid for; `unused`: before the servers looked at any upload, as SP says.

        Where CSP signs what became of it, SP's word for that is not heard while anything may still be sent or claimed.
        """
        if self.blobs.has(f"rounds/{number}/given-up") or not self._has_made(number):
            return False
        if isinstance(self.side, ReadsRecords):
            heard = self._hear_end(self.side, number, unused=unused, again=state != "settled")
            if heard or state != "settled":
                return heard
        if holds_receipt(self.blobs, number):
            self.on_event("given up", {"round": number})
            self._stop_if_unshown(this=not unused)
        self.blobs.put(f"rounds/{number}/given-up", b"unused" if unused else b"")
        return True

    def _hear_end(self, side: ReadsRecords, number: int, *, unused: bool, again: bool) -> bool:
        """CSP's signed word about a round that SP has given up; `again`: it is looked for once more later."""
        try:
            end = self.sp.end(self.task, number, self.keys)
            word = side.read_end(end, number)
        except CrowdFLError as wrong:
            if again:
                self._tell_once("record missing", number, wrong)
            return False
        if word.record:  # its sum was opened all the same: what SP says of it cannot be
            is_news = not self._chain.has_record(number)
            self._chain.keep_record(number, word.record)
            self._heed(number, word.standing)
            self.tell_difference(number, SpWord.NO_AVERAGE, signed_of(word.standing))
            return is_news
        if unused and word.shown:
            self.tell_difference(number, SpWord.NOBODY_LOOKED, CspWord.SHOWN)
        taken = holds_receipt(self.blobs, number)
        if taken:
            self.on_event("given up", {"round": number})
        # A CSP that looks, fails and signs that it has shown nothing would ask round after round: SP's word counts beside it.
        shown = word.shown or (taken and not unused)
        if word.standing is not None:
            self._heed(number, word.standing)
        else:
            self._stop_if_unshown(this=shown)
        self._chain.keep_end(number, end)
        self.blobs.put(f"rounds/{number}/given-up", b"" if shown else b"unused")
        return True

    def _stop_if_unshown(self, *, this: bool) -> None:
        """A server that deviates learns something in a round, and then lets it fail. So a few are enough, with `this` one."""
        unshown = this + sum(map(self._is_unshown, range(1, self.definition.settings.rounds + 1)))
        stays = self.definition.settings.reference  # where many may be left out, honest ones too
        most = profile_named(self.definition.settings.profile).most_unshown
        if this and not stays and unshown >= most:
            self._stop(f"{most} rounds that you uploaded to came to nothing, and no signed record says why")

    def _is_unshown(self, number: int) -> bool:
        given_up = f"rounds/{number}/given-up"
        if self.blobs.has(given_up):
            return self.blobs.get(given_up) != b"unused"
        return self._no_reward(number) is Reason.NOT_PASSED_ON

    def _no_reward(self, number: int) -> Reason | None:
        """Why a round pays this participant nothing, if that is known."""
        name = f"rounds/{number}/no-reward"
        return Reason(self.blobs.get(name).decode()) if self.blobs.has(name) else None

    def _stop(self, why: str, what: str = "stopped") -> None:
        """For good: a server that could ask about this participant's updates round after round learns no more."""
        if not self.blobs.has("stopped"):
            self.blobs.put("stopped", why.encode())
            self.on_event(what, {"why": why})
        if not self.has_left:  # the platform is told at the next look
            self.blobs.put("left", b"")

    def stock_up(self) -> bool:
        """While there is nothing else to do: make the randomizers of the next upload. True if some were missing."""
        side = self.side  # opens the stock too
        last = f"rounds/{self.definition.settings.rounds}/receipt"
        if self._stock is None or not isinstance(side, TakesRandomizers) or self.blobs.has(last):
            return False
        missing = side.upload_randomizers() - self._stock.available
        if missing <= 0:
            return False
        self._stock.fill(missing, FreshRandomizers(self._stock.public, backend=self.tools.backend))
        return True

    def _take_part(self, number: int, train: Train, drawn: int | None) -> bool:
        ends = any(self.blobs.has(f"rounds/{number}/{end}") for end in ("receipt", "refused", "nothing", "unused"))
        is_made = self.blobs.has(f"rounds/{number}/upload")
        if ends or self.has_left or not self._has_words(number, is_made=is_made):
            return False
        self.require_company(self.definition)  # before the work; the number may have been raised since joining
        if not is_made:
            if not self._is_drawn(number, drawn or 0) or not self._has_caught_up(number):
                return False
            try:
                self.encrypt(number, *train(self.model(), self.definition.training, number))
            except NothingToContribute as nothing:
                self.blobs.put(f"rounds/{number}/nothing", b"")  # the next round may find data
                self.on_event("nothing to contribute", {"round": number, "why": str(nothing)})
                return True
        return self.send(number)

    def _has_words(self, number: int, *, is_made: bool = True) -> bool:
        """Nothing is made before CSP's signed word is here about every round that an upload was made for, in whatever order SP
        opens them, and nothing is sent before it is of every earlier one: a restored SP is sent what it had."""

        def missing() -> list[int]:
            return [other for other in self._wordless() if other < number or (other > number and not is_made)]

        if not missing() or not isinstance(self.side, ReadsRecords):
            return True
        status = self.look_again()
        for entry in status["rounds"]:
            if entry["number"] != number and entry["state"] == "rewarded":
                self._read_own(entry["number"])
            if entry["number"] != number and entry["state"] == "aborted":
                self._explain(entry["number"], status["state"], unused=bool(entry.get("unused")))
        for earlier in missing():
            why = NotReady(f"the platform does not show it, and nothing is sent for round {number} before it does")
            self._tell_once("record missing", earlier, why)
        return not missing() and not self.has_left  # by one of these words, or by its owner meanwhile

    def _is_drawn(self, number: int, people: int) -> bool:
        """Asked once a round, and again when SP has drawn more people, or was restored and may have drawn others."""
        if self.definition.settings.per_round is None:
            return True
        known, now = self._undrawn.get(number), (self._epoch, people)
        if known == now:
            return False
        drawn = self.sp.is_drawn(self.task, number, self.keys)
        if not drawn:
            self._undrawn[number] = now
            if known is None:
                self.on_event("not drawn", {"round": number})
        return drawn

    def encrypt(self, number: int, weights: Weights, samples: int) -> None:
        """A round's upload, made from what was trained; durable before it is sent, so that a retry sends the same bytes."""
        self._catch_up(number)
        upload = self.side.encrypt_update(self.definition.shape.flat(weights), samples, number)
        self._charge()
        self.blobs.put(f"rounds/{number}/made", b"")  # stays when the upload goes
        self.blobs.put(f"rounds/{number}/upload", upload)
        details: dict[str, Any] = {"round": number, "samples": samples, "clipped": self.side.clipped}
        if isinstance(self.side, ScalesDown):
            details |= {} if self.side.scaled is None else {"scaled": round(self.side.scaled, 4)}
            details |= {} if self.definition.settings.epsilon is None else {"length": self.side.length}
        self.on_event("trained", details)

    def _charge(self) -> None:
        """A task's whole epsilon, at its first upload: what leaves this device does not come back, whatever is opened of it."""
        settings = self.definition.settings
        if settings.epsilon is not None and not self.blobs.has(CHARGED):
            kept = {"task": self.task, "epsilon": settings.epsilon, "delta": float(settings.delta or DELTA)}
            self.blobs.put(CHARGED, json.dumps(kept).encode())

    def uploaded(self) -> list[int]:
        """The rounds that took an upload of this device."""
        return list(filter(self.has_earned, range(1, self.definition.settings.rounds + 1)))

    def opened(self) -> list[int]:
        """Those of them whose average was opened, by CSP's signed record."""
        return list(filter(self._chain.has_record, self.uploaded()))

    def has_earned(self, number: int) -> bool:
        """By SP's receipt, or by CSP's record, whatever SP said."""
        return holds_receipt(self.blobs, number) or self._is_accepted(number)

    def _is_accepted(self, number: int) -> bool:
        side = self.side
        if not isinstance(side, ReadsRecords) or not self._chain.has_record(number):
            return False
        return side.standing_in(self._chain.record(number)) is None

    def epsilon(self) -> dict[str, float]:
        """Of this task, what was charged and what opened rounds have spent; of others, what was charged. Without noise, {}."""
        if self.definition.settings.epsilon is None:
            return {}
        charged = float(json.loads(self.blobs.get(CHARGED))["epsilon"]) if self.blobs.has(CHARGED) else 0.0
        spent = self.definition.settings.epsilon_spent(len(self.opened()))
        return {"charged": charged, "spent": spent, "others": self.charged_elsewhere}

    def send(self, number: int) -> bool:
        """Upload what was made for a round; a refusal is noted and told. True if there was an answer."""
        self.require_company(self.definition)
        if self.has_left or not self._has_words(number):
            return False
        upload = self.blobs.get(f"rounds/{number}/upload")
        try:
            receipt = self._send_as_enrolled(number, upload)
        except Replaced as why:
            self.blobs.put(f"rounds/{number}/refused", str(why).encode())
            self._stop(str(why), "replaced")
            return True
        except Forbidden:
            if self.has_left:  # while this was under way; nothing is noted: who joins again may send it
                return False
            raise
        except (TooLate, RoundNotOpen, NotDrawn, AlreadyCounted, TaskFull, TaskNotRunning, WrongBase) as refusal:
            self.blobs.put(f"rounds/{number}/refused", str(refusal).encode())
            self.on_event("refused", {"round": number, "why": str(refusal)})
            return True
        found = self._checked(receipt, number, upload)
        if found is not None and found.unused:
            self.blobs.put(f"rounds/{number}/unused", receipt.encode())
            paid = {"millionths": self.definition.plan.each_unused, "currency": self.currency}
            self.on_event("unused", {"round": number} | paid)
            return True
        self.blobs.put(f"rounds/{number}/receipt", receipt.encode())
        self.on_event("uploaded", {"round": number, "bytes": len(upload), "late": found and found.late})
        return True

    def _send_as_enrolled(self, number: int, upload: bytes) -> str:
        """An SP that was restored from a backup while this participant trained may not know it: then it enrols again."""
        try:
            return self.sp.send(self.task, number, self.keys, upload)
        except PlaceFreed:
            if not self._enrol():  # or `TaskFull`: others have the place
                raise
        except (NotAuthenticated, UnknownParticipant):
            before = self._epoch
            self._come_back(self.look_again())
            if before in (None, self._epoch):
                raise
        return self.sp.send(self.task, number, self.keys, upload)

    def _checked(self, receipt: str, number: int, upload: bytes) -> Receipt | None:
        """None where SP's key is not known; a receipt that would prove nothing later is refused now."""
        if self.sp_key is None:
            return None
        found = Receipt.open(receipt, self.sp_key)
        sent = upload_digest(upload)
        if found != Receipt(self.task, number, self.keys.who, sent, found.late, found.unused):
            raise DocumentError(
                f"the platform's receipt is not for this upload of round {number}: keep it and complain"
            )
        return found

    def _read(self, number: int, evaluate: Evaluate | None) -> bool:
        if number >= self.definition.settings.rounds:
            return self._read_record(number)
        if self.blobs.has(f"rounds/{number}/average"):
            return False
        try:
            read = self.read(number)
        except CrowdFLError as wrong:
            if wrong.passes or isinstance(wrong, ServiceError | RolledBack):
                raise  # the platform is away: training on an older model would be a pity
            self._tell_once("average missing", number, wrong)
            return False
        self._heed(number, read.standing)  # first: with its average, a round is known to have taken it
        model = self.definition.shape.arrays(read.model)
        self.blobs.put(f"rounds/{number}/average", to_safetensors(self.definition.shape, model))
        if read.noise is not None:
            self.on_event("noise", {"round": number, **asdict(read.noise)})
        metrics = dict(evaluate(model, number)) if evaluate is not None else {}
        state = {} if read.state is None else {"state": read.state}
        self.on_event("read", {"round": number, **metrics, **state})
        return True

    def _read_own(self, number: int) -> bool:
        """The record of a round that an upload was made for, and what it pays."""
        did = self._has_made(number) and self._read_record(number)
        return self._open_reward(number) or did

    def _read_record(self, number: int) -> bool:
        """The last average is the requester's; CSP's record of it is everyone's. Nobody's claim waits for it."""
        if self._chain.has_record(number):
            return self._heed_kept(number)
        try:
            self._catch_up(number)
            if not isinstance(self.side, ReadsRecords):
                return False
            record, standing = self.side.read_record(self._publication(number), number)
        except RolledBack as wrong:  # there is nothing left to stay out of, and what was earned is still claimed
            self._stop(str(wrong))
            return False
        except CrowdFLError as wrong:
            self._tell_once("record missing", number, wrong)
            return False
        self._chain.keep_record(number, record)  # first: whatever is heeded is here
        self._heed(number, standing)
        return True

    def _heed_kept(self, number: int) -> bool:
        """A record that is here, after a crash before it was heeded, or once SP has said something else of the upload."""
        unheeded = self._chain.has_record(number) and self._has_made(number) and not self._is_heeded(number)
        if not unheeded or not isinstance(self.side, ReadsRecords):
            return False
        self._heed(number, self.side.standing_in(self._chain.record(number)))
        return True

    def read(self, number: int) -> Average:
        """A round's average, after those that it follows from."""
        self._catch_up(number)
        with self._reading() as side:
            return self._chain.read(side, number, self._publication(number))

    def _catch_up(self, number: int) -> None:
        """Read what this round's model follows from."""
        if self._chain.last() >= number:  # read again: from the beginning
            self._chain.forget()
            self._side = None
        with self._reading() as side:
            for earlier, read in self._chain.catch_up(side, number, self.look_again, self._publication):
                self._heed(earlier, read.standing)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[ParticipantProtocol]:
        """A side that fails on the way may stand elsewhere than what is kept says: then it is made again."""
        try:
            yield self.side
        except BaseException:
            if isinstance(self._side, FollowsModel):
                self._side = None
            raise

    def _publication(self, number: int) -> bytes:
        return self.sp.average(self.task, number, self.keys)

    def _has_caught_up(self, number: int) -> bool:
        """Whoever cannot read an average that the round builds on stays out of it, and looks again later."""
        try:
            self._catch_up(number)
        except CrowdFLError as wrong:
            if wrong.passes or isinstance(wrong, ServiceError | RolledBack):
                raise
            self._tell_once("average missing", number, wrong)
            return False
        return True

    def _heed(self, number: int, standing: Reason | None) -> None:
        """What CSP has signed of this participant's upload counts, whatever SP said of it.

        A record that does not name an upload without a receipt says nothing: it may have come too late. One that names it
        counts also for a device that was set back, and has forgotten that it made one.
        """
        said, signed = self.evidence.said(number), signed_of(standing)
        if signed is CspWord.ABSENT and not self._has_made(number):
            return
        if signed is not CspWord.ABSENT or said is SpWord.TAKEN:
            if said is not None and contradicts(said, signed):
                self.tell_difference(number, said, signed)
            if standing is not None:
                self._note_rejected(number, standing)
            elif self._no_reward(number) is Reason.WITHDRAWN:
                self.blobs.delete(f"rounds/{number}/no-reward")
        if not self.blobs.has(f"rounds/{number}/heeded"):
            self.blobs.put(f"rounds/{number}/heeded", b"")

    def tell_difference(self, number: int, said: SpWord, signed: CspWord) -> None:
        """Once. Where a receipt is not borne out, that the upload was left out is told anyway."""
        if self.evidence.has_difference(number):
            return
        if said is not SpWord.TAKEN:
            self.on_event("words differ", {"round": number, "said": said, "signed": signed})
        self.evidence.keep(number, said, signed)

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.blobs, self.definition.settings.rounds)

    def export_evidence(self) -> dict[str, Any]:
        """Where SP's word and CSP's signed record differ, with both, and whom to send it to."""
        if not isinstance(self.side, ReadsRecords):
            raise NotReady("in this task CSP signs no records that its platform's word could differ from")
        return self.evidence.export(self.definition, self.side.record_key)

    def _note_rejected(self, number: int, why: Reason) -> None:
        """Once: this participant's upload was left out, and it earns nothing.

        What leaves this device keeps the task's bounds. If it is rejected all the same, a server has asked a question with it;
        or, of a task with a reference, it is not in line: after the second time its owner should look at the data.
        """
        if self._no_reward(number) not in (None, Reason.WITHDRAWN):  # that was SP's word
            return
        self.on_event("upload rejected", {"round": number, "why": why})
        if self.definition.settings.reference:
            if why is Reason.NOT_IN_LINE and self._times_out_of_line() == 1:
                self.on_event("check data", {"round": number})
        elif why is not Reason.NOT_PASSED_ON:
            self._stop(
                f"your upload of round {number} kept the task's bounds and was rejected all the same ({why.words})"
            )
        self._stop_if_unshown(this=why is Reason.NOT_PASSED_ON)
        replace_blob(self.blobs, f"rounds/{number}/no-reward", why.encode())

    def _times_out_of_line(self) -> int:
        numbers = range(1, self.definition.settings.rounds + 1)
        return sum(self._no_reward(number) is Reason.NOT_IN_LINE for number in numbers)

    def _open_reward(self, number: int) -> bool:
        done = self.blobs.has(f"rounds/{number}/reward") or not self.has_earned(number)
        if done or self.blobs.has(f"rounds/{number}/no-reward") or self.definition.settings.budget is None:
            return False
        try:
            self.open_reward(number)
        except RewardOutOfRange as wrong:  # as CSP has signed it: no claim of it would be paid
            self.blobs.put(f"rounds/{number}/no-reward", Reason.OUT_OF_RANGE.encode())
            self.on_event("reward refused", {"round": number, "why": str(wrong)})
        except RolledBack as wrong:
            self._stop(str(wrong))
            return False
        except CrowdFLError as wrong:
            if self.blobs.has(f"rounds/{number}/no-reward"):
                return True
            if isinstance(wrong, ServiceError) and not wrong.passes:
                raise
            # Not there, not what CSP made, or SP alone says that the upload was left out: the platform may still show it, and
            # one reward must not hold up the rest.
            self.unread[number] = wrong.passes
            self._tell_once("reward missing", number, wrong)
            return False
        return True

    def _tell_once(self, what: str, number: int, why: Exception) -> None:
        if (what, number, type(why).__name__) not in self._told:
            self._told.add((what, number, type(why).__name__))
            self.on_event(what, {"round": number, "why": str(why)})

    def open_at_end(self, number: int) -> None:
        self._read_own(number)  # the record first: nobody waits for the reward of an upload that it leaves out

    def open_bonus(self) -> None:
        """Of a task that is over: CSP's word whether this participant gets it; the platform may still show it later."""
        if self.definition.settings.bonus_each and not self._knows_bonus:
            try:
                self.open_reward(BONUS)
            except UploadRejected:
                self.blobs.put(f"rounds/{BONUS}/no-reward", b"")
            except CrowdFLError as wrong:
                if isinstance(wrong, ServiceError) and not wrong.passes:
                    raise
                self.unread[BONUS] = wrong.passes

    @property
    def _knows_bonus(self) -> bool:
        return self.blobs.has(f"rounds/{BONUS}/reward") or self.blobs.has(f"rounds/{BONUS}/no-reward")

    def awaits_bonus(self) -> bool:
        """Whether it is to come, or to be told that it does not; who was in no round gets none."""
        numbers = range(1, self.definition.settings.rounds + 1)
        return (
            bool(self.definition.settings.bonus_each) and not self._knows_bonus and any(map(self.has_earned, numbers))
        )

    def open_reward(self, number: int) -> int:
        envelope = self._reward_envelope(number)
        try:
            amount = self.side.open_reward(envelope, number)
        except UploadRejected as wrong:  # by CSP's signed record
            if number == BONUS:
                raise
            self._note_rejected(number, Reason(wrong.reason))
            raise
        if number != BONUS and isinstance(self.side, PaysByRecord) and (record := self.side.record_in(envelope)):
            self._chain.require_only(number, record)
        self.blobs.put(f"rounds/{number}/reward", envelope)
        self.on_event("rewarded", {"round": number, "millionths": amount, "currency": self.currency})
        return amount

    def _reward_envelope(self, number: int) -> bytes:
        """Made of CSP's record, where that says what it pays; else SP has a part of it."""
        if number != BONUS and isinstance(self.side, PaysByRecord) and self._is_accepted(number):
            made = self.side.reward_by(self._chain.record(number))
            if made is not None:
                return made
        try:
            return self.sp.reward(self.task, number, self.keys)
        except RewardOutOfRange as said:  # who can read it finds that out: SP cannot
            raise NotReady(f"the platform shows no reward of round {number}, and says: {said}") from None
        except UploadRejected as said:  # of a round, its record says so
            if number != BONUS:
                raise
            raise NotReady(f"the platform shows no word of CSP's about the bonus, and says: {said}") from None

    def rewards(self) -> dict[int, int]:
        """By round, those of unused uploads too; one that CSP's record shows in the average is not unused."""
        earned = {}
        for number in range(BONUS, self.definition.settings.rounds + 1):
            if self.blobs.has(f"rounds/{number}/reward"):
                earned[number] = self.side.open_reward(self.blobs.get(f"rounds/{number}/reward"), number)
            elif self.blobs.has(f"rounds/{number}/unused") and not self._is_accepted(number):
                earned[number] = self.definition.plan.each_unused
        return earned

    def unused_rounds(self) -> list[int]:
        """Of which this device holds SP's receipt "unused", and CSP's word: it may have been used after all."""
        has_words = isinstance(self.side, ReadsRecords)
        return [
            number
            for number in range(1, self.definition.settings.rounds + 1)
            if self.blobs.has(f"rounds/{number}/unused")
            and not self.blobs.has(f"rounds/{number}/reward")
            and not self._is_accepted(number)
            and (not has_words or self._chain.has_record(number) or self._chain.has_end(number))
        ]

    def claim(self) -> int:
        """Claim all that can be claimed now; millionths that SP has booked so far. Safe to repeat."""
        try:
            return Claiming(self).claim()
        finally:
            with contextlib.suppress(CrowdFLError, ConnectionError):  # what it said last is shown meanwhile
                self.claimed.ask_pay()

    def look_again(self) -> Mapping[str, Any]:
        """Where the task stands. Rounds name what this device keeps: each is a number that the task has, once."""
        status, known = self.sp.status(self.task), set[int]()
        for entry in status["rounds"]:
            number = entry["number"]
            if type(number) is not int or not 1 <= number <= self.definition.settings.rounds or number in known:
                raise FormatError(f"the platform lists a round {number!r}, which this task cannot have, or has once")
            known.add(number)
        self._latest = status
        return status

    @property
    def awaits_rewards(self) -> bool:
        """Whether the platform, as of the last look, may still show a reward that was earned."""
        return self._latest is not None and Claiming(self).waits(self._latest)

    @property
    def has_claims(self) -> bool:
        """Whether something can be claimed, as of the last step, that SP has not answered."""
        pays = self.definition.settings.budget is not None and self.blobs.has("certificate")
        return pays and self._latest is not None and Claiming(self).is_due(self._latest)

    @property
    def claimed(self) -> Claiming:
        """What was claimed, and what SP has answered."""
        return Claiming(self)

    @property
    def currency(self) -> str:
        return self.definition.settings.currency

    @property
    def is_asked_where(self) -> bool:
        """Whether somebody wants to know where to pay."""
        return bool(self.definition.payer)

    def pay_to(self, kind: str, text: str) -> None:
        """Where to be paid: signed, and sealed to the payer whom the requester has named. The next claim names it."""
        if not self.is_asked_where:
            raise Conflict("this task asks nobody where to be paid: its platform pays in its own way")
        if not self.blobs.has("certificate"):
            raise NotReady("join first: then say where to be paid")
        own, counter = self.keys.signing, self.destination[1] + 1
        way, place = checked(kind, text)
        to = Destination(self.task, self.keys.who, own.public, self.definition.payer, str(counter), way, place)
        self.blobs.put(
            f"destinations/{counter}", to.seal(own)
        )  # first: what was sent once is sent again, to the letter
        self.send_destination()

    @property
    def destination(self) -> tuple[bytes, int]:
        """The newest one, sealed, and its counter; 0 with none."""
        counter = 0
        while self.blobs.has(f"destinations/{counter + 1}"):
            counter += 1
        return (self.blobs.get(f"destinations/{counter}") if counter else b""), counter

    def send_destination(self, *, again: bool = False) -> None:
        """What SP does not have yet; `again` also what it may have lost."""
        sealed, counter = self.destination
        if counter and (again or not self.blobs.has(f"destinations/{counter}-sent")):
            self._send_place(sealed, counter)
            if not self.blobs.has(f"destinations/{counter}-sent"):
                self.blobs.put(f"destinations/{counter}-sent", b"")
                self.on_event("pay to", {})

    def _send_place(self, sealed: bytes, counter: int) -> None:
        """Where CSP's records say what was earned, with a note for CSP: what is never claimed is paid there, and not lost."""
        settings, key = self.definition.settings, self.side.csp_key
        profile = profile_named(settings.profile)
        if not isinstance(profile, PaysOpenly) or not profile.pays_openly(settings):
            self.sp.pay_to(self.task, sealed, self.keys)
            return
        name = destination_name(sealed)
        note = PlaceNote.made(self.task, self.keys.who, name, counter, self.keys.signing)
        kept = self.sp.pay_to(self.task, sealed + note.to_bytes(), self.keys)
        open_place_kept(kept, note, key)
        replace_blob(self.blobs, "place-kept", kept)

    def states(self) -> dict[int, str]:
        """By round, the digest of what this participant held after it; of a task with a server step."""
        return self._chain.states()

    def leave(self, *, withdraw: bool = False) -> None:
        """What was sent counts; to `withdraw`, which is final, takes back what no server has begun to average."""
        self.blobs.put("left", b"")  # first: a crash must not make someone stay who wants to go
        if withdraw:
            self.blobs.put("withdrawing", b"")
        self._send_leave()
        if not withdraw:
            self.on_event("left", {})

    def _send_leave(self) -> None:
        withdraws = self.blobs.has("withdrawing")
        sent = "withdrawn" if withdraws else "leave-sent"
        if not self.blobs.has(sent):
            answer = self.sp.leave(self.task, self.keys, withdraw=withdraws)
            if withdraws:
                self._forget_uploads(answer["deleted"])
                self.on_event("withdrawn", answer)
            self.blobs.put(sent, json.dumps(answer).encode() if withdraws else b"")
            for number in answer["deleted"] if withdraws else ():
                self._heed_kept(number)

    def _forget_uploads(self, deleted: Collection[int]) -> None:
        """Where CSP's record is here, it is compared with this new word of SP's too."""
        for number in range(1, self.definition.settings.rounds + 1):
            self.blobs.delete(f"rounds/{number}/upload")
            if number in deleted and self._chain.has_record(number):
                self.blobs.delete(f"rounds/{number}/heeded")
            elif number in deleted and not self.blobs.has(f"rounds/{number}/no-reward"):
                self.blobs.put(f"rounds/{number}/no-reward", Reason.WITHDRAWN.encode())

    def model(self) -> Weights:
        """The newest model this participant has: what the last average led to, or the initial weights."""
        for number in range(self.definition.settings.rounds, 0, -1):
            if self.blobs.has(f"rounds/{number}/average"):
                return from_safetensors(self.definition.shape, self.blobs.get(f"rounds/{number}/average"))
        return self._initial_weights()

    def _initial_weights(self) -> Weights:
        if not self.blobs.has("initial"):
            initial = self.sp.initial_weights(self.task)
            self.definition.initial_weights(initial)
            self.blobs.put("initial", initial)
        return self.definition.initial_weights(self.blobs.get("initial"))

    @property
    def side(self) -> ParticipantProtocol:
        if self._side is None:
            side = self.new_side()
            self._chain.resume(side, lambda: self.definition.shape.flat(self._initial_weights()))
            if self.open_stock is not None and isinstance(side, TakesRandomizers):
                self._stock = self.open_stock(side.party.public)
                side.party.randomizers = _Stocked(self._stock, side.party.randomizers)
            self._side = side
        return self._side

    def new_side(self) -> ParticipantProtocol:
        """One that has opened nothing: it claims what it opens."""
        return self._new_side(self.definition, self.blobs.get("bundle"))

    def _new_side(self, definition: Definition, bundle: bytes) -> ParticipantProtocol:
        profile = profile_named(definition.settings.profile)
        return profile.participant(definition.spec, bundle, self.keys, self.tools)

    @property
    def _chain(self) -> KeptChain:
        return KeptChain(self.blobs, "rounds", self.definition.settings.rounds)

    @property
    def definition(self) -> Definition:
        if self._joined is None:  # what was joined never changes: read once
            if not self.blobs.has("definition"):
                raise NotReady("join the task first")
            self._joined = Definition.open(self.blobs.get("definition").decode())
        return self._joined


@dataclass(frozen=True)
class _Stocked:
    """From the stock what it has enough of, else made on the spot."""

    stock: Stock
    fresh: RandomizerSource

    @property
    def public(self) -> PublicKey:
        return self.stock.public

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        try:
            return self.stock.take(count, progress=progress)
        except PoolExhausted:
            return self.fresh.take(count, progress=progress)
