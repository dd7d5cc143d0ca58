"""Who takes part: joining, with a signed consent where the task asks for one; leaving; withdrawing; replacing a lost device.

Whoever leaves is waited for no more, and what it has sent counts. Whoever withdraws takes back what it has sent, as far as CSP
has not heard of it: from then on an upload is a part of its round's sum, and nobody can take it out. The name, the keys, the
consent and the withdrawal itself stay as evidence, and what was earned stays claimable.

A device that takes another's place is the same person: counted once, and in each round one of the two. What the old one has
earned is sealed to its keys, and no word of a requester's moves it: else a requester could have others' pay.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import admitted
from crowdfl.documents.signed import Consent, Definition
from crowdfl.errors import (
    BadSignature,
    Conflict,
    ConsentMissing,
    DocumentError,
    FormatError,
    NotReady,
    TaskEnded,
    TaskFull,
    UnknownParticipant,
)
from crowdfl.protocols.capabilities import HoldsAverage
from crowdfl.protocols.profile import Audience
from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.records import Round, RoundState, StoredParticipant, Upload, require_in_time
from crowdfl.roles.sp.aggregators import RoundAggregators, upload_name
from crowdfl.roles.sp.core import ENDED, SpCore, require_running
from crowdfl.roles.sp.results import read_result

CONSENT_COLUMNS = ("who", "state", "version", "language", "agreed", "received", "withdrawn", "document")


class People:
    """SP's reception. `end` hears, with the reason, of a task that CSP answers no more."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators, end: Callable[[str, str], None]) -> None:
        self._core, self._aggregators = core, aggregators
        self._ports = core.ports
        self._end = end

    def enrol(self, task: str, certificate: str, consent: str | None = None) -> str:
        """Somebody who is invited joins, once CSP has taken note of the same keys. Idempotent."""
        definition = self._core.definition(task)
        store = self._ports.store
        found = admitted(certificate, self._ports.kgc_key, definition)
        who = found.identity.who
        state = store.task(task).state
        if state in ENDED:
            with contextlib.suppress(UnknownParticipant):  # back after the end, for what it earned
                return store.participant(task, who).identity.who
        require_running(state)
        _require_consent(definition, consent, found.identity.signing)
        now = self._core.probably_now()
        try:
            store.participant(task, who)
        except UnknownParticipant:
            require_in_time(definition.plan, found.device, found.expires, now)
        self._tell_csp(task, who, certificate)
        at = None if consent is None else now
        newcomer = StoredParticipant(
            found.identity,
            certificate,
            found.device,
            consent=consent,
            consented_at=at,
            recruited=found.recruited,
            joined_at=now,
        )
        with store.transaction():
            self._require_not_withdrawn(task, who)
            settings = definition.settings
            store.add_participant(task, newcomer, settings.max_participants, settings.most_devices)
            earlier = [one for one in store.devices(task, found.identity.place) if one != who]
            for old in earlier:
                self._take_back(task, old)
            self._let_in(task, who, earlier)
        self._core.keep_identity(task, found.identity)
        for old in earlier:
            self._erase(task, old)
        return who

    def _tell_csp(self, task: str, who: str, certificate: str) -> None:
        """Nobody is in before CSP has said so: of two sets of keys for one invitation, those that CSP had first count."""
        try:
            self._ports.csp.enrol(task, certificate)
        except TaskEnded as refusal:
            self._end(task, str(refusal))
            raise
        except (
            BadSignature,
            Conflict,
            DocumentError,
            TaskFull,
        ) as refusal:  # SP and CSP do not agree: the operator hears of it
            self._core.options.events("participant refused by CSP", task=task, who=who, error=type(refusal).__name__)
            raise

    def _require_not_withdrawn(self, task: str, who: str) -> None:
        """Whoever has left may come back."""
        with contextlib.suppress(UnknownParticipant):
            known = self._ports.store.participant(task, who)
            if known.withdrawn_at is not None:
                raise known.refusal()

    def _let_in(self, task: str, who: str, earlier: Sequence[str]) -> None:
        """An open round that was drawn of fewer people than it takes has room for who comes later, or in another's place."""
        last = self._core.last_round(task)
        most = self._core.definition(task).settings.per_round
        if most is None or last is None or last.state is not RoundState.OPEN:
            return
        store = self._ports.store
        in_place = bool(store.upload_context(task, last.number, earlier).drawn)
        if in_place or store.places_drawn(task, last.number) < most:
            store.draw(task, last.number, [who])

    def leave(self, task: str, who: str) -> None:
        """A participant leaves: rounds neither wait for it nor take its uploads; what it earned stays claimable."""
        self._ports.store.participant(task, who)
        self._ports.store.leave(task, who)
        self._ports.store.delete_subscription(task, who)

    def withdraw(self, task: str, who: str) -> dict[str, list[int]]:
        """For good. In which rounds its upload was deleted, and in which one stands that nobody can take out. Idempotent."""
        store = self._ports.store
        store.participant(task, who)
        with store.transaction():
            store.withdraw(task, who, self._core.probably_now())
            self._take_back(task, who)
        self._erase(task, who)
        deleted = {number for number, whose, _ in store.gone_uploads(task) if whose == who}
        standing = [r.number for r in store.rounds(task) if store.upload(task, r.number, who) is not None]
        return {"deleted": sorted(deleted), "standing": standing}

    def _take_back(self, task: str, who: str) -> None:
        """Out of every round that CSP has not heard of. The caller holds a transaction."""
        store = self._ports.store
        for round_ in store.rounds(task):
            upload = store.upload(task, round_.number, who)
            if upload is not None and not self._is_heard_of(task, round_, upload):
                store.drop_uploads(task, round_.number, [upload], damaged=False)

    def _is_heard_of(self, task: str, round_: Round, upload: Upload) -> bool:
        """Whether CSP was asked with it. Of an average that is held, those who came in time are in it; a late one may be if it
        came while that average was made, and then it stays: two averages that differ by one person show that person."""
        if round_.state is not RoundState.HELD or not upload.late:
            return round_.asked
        in_time = {one.who: one.digest for one in self._ports.store.uploads(task, round_.number) if not one.late}
        sp = self._aggregators.checking(task)
        try:
            held = read_result(self._ports.blobs, task, round_, "held")
            return not (isinstance(sp, HoldsAverage) and sp.holds(held, in_time))
        except (NotReady, FormatError):  # what is not there, or not as it was written, says nothing
            return True

    def _erase(self, task: str, who: str) -> None:
        """The bytes, once the books say so; and those of rounds that are over, where no step will read them again."""
        erase_gone(self._ports.store, self._ports.blobs, task)
        self._ports.store.delete_subscription(task, who)
        for round_ in self._ports.store.rounds(task):
            upload = self._ports.store.upload(task, round_.number, who)
            if upload is not None and self._is_read_no_more(task, round_):
                self._ports.blobs.delete(upload_name(task, round_.number, upload.digest))

    def _is_read_no_more(self, task: str, round_: Round) -> bool:
        """The last average may be computed once more, for a requester whom the others do not serve."""
        served = Audience.REQUESTER in self._core.audience(task, final=False)
        done = round_.state is RoundState.REWARDED and served
        return done or round_.state is RoundState.ABORTED


def erase_gone(store: SpStore, blobs: Blobs, task: str) -> None:
    """Uploads of whoever has withdrawn or was replaced; after a crash in between, the next sweep does it."""
    for number, _, digest in store.gone_uploads(task):
        blobs.delete(upload_name(task, number, digest))


def consent_rows(store: SpStore, task: str) -> list[dict[str, Any]]:
    """Who has agreed to which version and when, with the signed proof, in the order they joined."""
    return [_consent_row(one) for one in store.participants(task) if one.consent is not None]


def _consent_row(one: StoredParticipant) -> dict[str, Any]:
    found = Consent.read(Envelope.parse(one.consent or "", Consent.kind))
    values = (one.identity.who, one.state, found.version, found.language, found.at, one.consented_at)
    return dict(zip(CONSENT_COLUMNS, (*values, one.withdrawn_at, one.consent), strict=True))


def _require_consent(definition: Definition, consent: str | None, signing: bytes) -> None:
    if consent is not None and definition.consent.version:
        Consent.open_own(consent, definition, signing)
    elif consent is not None:
        raise DocumentError("this task asks for no consent: send none")
    elif definition.consent.version:
        raise ConsentMissing(
            f"this task has a consent text, version {definition.consent.version}: read it, agree to it, then join"
        )
