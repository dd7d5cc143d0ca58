"""CSP: answers SP's requests with its half of the protocol. The same request gets the same answer, across crashes.

Which request may come when, the task's protocol decides by its records. What a request changes in them is set together with its
answer, in one transaction, if every record that it has read still stands: of two processes, one has answered. The order of
every step: files, the records with the answer, the note in the guard; then the reply leaves, and what it has spent is erased.
"""

import contextlib
import hashlib
import math
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from crowdfl.crypto.long_bytes import Long, sha256_of, whole
from crowdfl.documents.invitations import admitted
from crowdfl.documents.signed import Appointment, ClaimsExtension, Definition
from crowdfl.errors import (
    Conflict,
    CrowdFLError,
    DealtMaterialDamaged,
    DocumentError,
    EnrolmentOver,
    InvitationRefused,
    NotReady,
    Overtaken,
    RolledBack,
    StoreUnavailable,
    TaskEnded,
    TooLate,
    UnknownParticipant,
    UnknownTask,
)
from crowdfl.protocols.capabilities import AnswersLong, SpendsRounds, TakesDealt
from crowdfl.protocols.claims import BonusRequest, OpenedClaim, UnclaimedRequest, is_claim
from crowdfl.protocols.profile import CspProtocol, Tools
from crowdfl.protocols.records import Look, Outcome
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.csp_records import OPENED, STEPS, StoredRecords, memory_folder
from crowdfl.roles.csp_retention import CLAIMS, CLAIMS_BUNDLE
from crowdfl.roles.dealt import DealtFiles
from crowdfl.roles.guard import Guard, Notes
from crowdfl.roles.ports import Blobs, Clock, CspStore, KgcPeer
from crowdfl.roles.records import EndedBy, StoredParticipant, StoredTask, Tombstone, require_in_time, unclaimed_from
from crowdfl.roles.retention import OVER, ended

_TRIES = 20  # each one lost to an answer that another process gave
_NOTED = (STEPS, OPENED)  # what opens something leaves after it is noted in the guard
REFUSED = "refused"  # the state of a task that the operator answers no more


def refuse_task(store: CspStore, task: str, reason: str) -> None:
    """CSP's operator: no answer for this task any more. Final; SP cancels the task when it hears of it."""
    with store.transaction():
        state = store.task(task).state
        if state == OVER:
            raise ended(store.task(task))
        if state != REFUSED:
            store.change_task(task, state=REFUSED, end=Tombstone("cancelled", EndedBy.CSP_OPERATOR, reason))


@dataclass
class CspBooks:
    """What an operator's command beside the service has of CSP."""

    store: CspStore
    bundles: Blobs
    clock: Clock
    tools: Tools


def extend_claims(ports: CspBooks, task: str, seconds: float) -> int:
    """CSP's operator, after a server was away: people can claim so much longer. Once, before the last day; until when."""
    store = ports.store
    with store.transaction():
        stored = store.task(task)
        definition, now = stored.opened, ports.clock.now()
        _require_answering(stored, steps=False)
        if stored.claims_extended is not None:
            raise Conflict(f"the last day of claims was extended already, and once is all: to {stored.claims_until}")
        if now >= definition.claims_until:
            raise TooLate("the last day of claims is over: what nobody claimed is on its way back to the requester")
        until = definition.claims_until + math.ceil(seconds)
        longer = ClaimsExtension(task, until)
        longer.require(definition)
        bundle = _bundle(ports.bundles, stored)
        side = profile_named(definition.settings.profile).csp(definition.spec, bundle, ports.tools)
        store.change_task(task, claims_extended=longer.sign(side.task_key))
    return until


@dataclass
class Csp:
    """One computation server."""

    store: CspStore
    blobs: Blobs
    bundles: Blobs
    guard: Guard
    kgc: KgcPeer
    kgc_key: bytes
    clock: Clock
    tools: Tools = field(default_factory=Tools.unwatched)
    _sides: dict[str, CspProtocol] = field(default_factory=dict, repr=False)
    _enrolled: Counter[str] = field(default_factory=Counter, repr=False)  # participants that a task's side knows
    _last: Counter[str] = field(default_factory=Counter, repr=False)  # the position of the last of them
    _closed: dict[str, bool] = field(default_factory=dict, repr=False)  # whether a task's side is for claims alone
    _erased: dict[str, int] = field(default_factory=dict, repr=False)  # the last round that this process has erased
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    def prepare(self, task: str) -> None:
        """Fetch this role's bundle from KGC, keep it durably, let KGC destroy its copy. Idempotent."""
        if not (self.require_answering(task, steps=True) and self.bundles.has(f"{task}.csp")):
            definition, appointment, bundle = self.kgc.bundle(task)
            opened, appointed = Definition.open(definition), Appointment.open(appointment, self.kgc_key)
            if opened.task != task or appointed.task != task:
                raise DocumentError("KGC sent the papers of another task")
            profile = profile_named(opened.settings.profile)
            appointed.require_key(profile.csp(opened.spec, bundle, self.tools).fingerprint)
            self.store.add_task(StoredTask(task, definition, appointment, "open"))
            self.bundles.put(f"{task}.csp", bundle)
            if self.store.task(task).state == OVER:  # meanwhile
                self.bundles.delete(f"{task}.csp")
                raise ended(self.store.task(task))
        self._become_sole_holder(task)

    def _become_sole_holder(self, task: str) -> bool:
        """Nothing is answered before KGC has destroyed its copies, SP's too.

        Else a CSP that is restored from a backup of before the task could fetch the share again, and answer a second time;
        and an SP that leaves KGC its copy could have uploads read with it.
        """
        if self.store.task(task).sole_holder:
            return True
        self.dealt.fetch(self.store.task(task).opened, self.kgc)  # resumable: what is here is not fetched again
        if self.store.task(task).state == OVER:  # meanwhile
            self.dealt.erase(task)
            raise ended(self.store.task(task))
        destroyed = self.kgc.acknowledge(task)
        if destroyed:
            self.store.change_task(task, sole_holder=True)
        return destroyed

    @property
    def dealt(self) -> DealtFiles:
        return DealtFiles(self.bundles, "csp")

    def enrol(self, task: str, certificate: str) -> None:
        """A participant whom the requester has invited, in time: rewards are sealed to its key, uploads and claims checked with
        it. CSP looks at the whole chain itself, and the first keys that it has for an invitation stand. Idempotent."""
        stored = self.store.task(task)
        _require_answering(stored, steps=False)
        definition = stored.opened
        found = admitted(certificate, self.kgc_key, definition)
        try:
            self.store.participant(task, found.identity.who)
        except UnknownParticipant:
            try:
                require_in_time(definition.plan, found.device, found.expires, self.clock.now())
            except (EnrolmentOver, InvitationRefused):
                if not self._is_set_back(task):  # else it is told again of who came in time, and they can only claim
                    raise
        participant = StoredParticipant(found.identity, certificate, found.device, recruited=found.recruited)
        most = definition.settings.most_devices
        # Which places SP frees where it recruits, CSP need not know: no round is of more people than the task has places.
        places = most if definition.recruits else definition.settings.max_participants
        self.store.add_participant(task, participant, places, most)

    def answer(self, task: str, request: Long, _longest: int = 0) -> bytes:
        """The one answer to this request: what was answered before, or what follows from the records as they stand."""
        name, folder = sha256_of(request).hex(), _folder(request)
        *_, answered = self._known(task, name)
        if answered is not None:
            known = self.kept(task, name)
            if known is not None:
                with known:
                    return known.read()
        if is_claim(request, UnclaimedRequest):
            self._require_last_days(task)
        # Who was there in every round, no CSP says that has lost some.
        needs_all = folder in _NOTED or is_claim(request, BonusRequest)
        with self._locks.setdefault(task, threading.Lock()):  # a side computes one request at a time
            for _ in range(_TRIES):
                notes = self.guard.look(task) if needs_all else None  # before the records are read
                stored, enrolled, blob = self._known(task, name)
                if notes is not None:
                    self._compare(notes, stored)
                if blob is not None:  # while this one waited
                    if notes is not None:
                        self.guard.note(task, stored.steps, stored.said)
                    return self.blobs.get(blob)
                with contextlib.suppress(Overtaken):
                    answer = self._answered(stored, enrolled, name, request, folder)
                    if answer is not None:
                        return answer
        raise StoreUnavailable("other processes of CSP keep answering this task first: ask again")

    def _require_last_days(self, task: str) -> None:
        """Until then people claim by themselves: nobody's amounts are asked for behind them."""
        stored = self.store.task(task)
        if self.clock.now() < unclaimed_from(stored.opened, stored.claims_until):
            raise NotReady("what nobody has claimed is attested in the last days of claims, and not before")

    def kept(self, task: str, request: str) -> BinaryIO | None:
        """The answer that was given before, by the request's hash; it leaves once what was said last is noted."""
        blob = self.store.answered(task, request)
        if blob is None:
            return None
        folder = blob.split("/")[1]
        if folder in _NOTED:
            notes = self.guard.look(task)
            stored = self.store.task(task)
            _require_answering(stored, steps=folder == STEPS)
            self._compare(notes, stored)
            self.guard.note(task, stored.steps, stored.said)  # whoever was first may have failed before it was durable
        return self.blobs.open(blob)

    def _compare(self, notes: Notes, stored: StoredTask) -> None:
        """A CSP that was set back takes no further step of the task, for good."""
        if stored.rolled_back:
            raise RolledBack("CSP was set back to an earlier state: it answers no step of this task any more")
        try:
            self.guard.compare(notes, stored)
        except RolledBack:
            self.store.change_task(stored.task, rolled_back=True)
            raise

    def _is_set_back(self, task: str) -> bool:
        notes = self.guard.look(task)
        try:
            self._compare(notes, self.store.task(task))
        except RolledBack:
            return True
        return False

    def _known(self, task: str, request: str) -> tuple[StoredTask, int, str | None]:
        """The task, how many take part, and the file of the answer that was given before."""
        stored, enrolled, known = self.store.answer_context(task, request)
        if stored is None:
            raise UnknownTask(f"there is no task {task} here")
        _require_answering(stored, steps=False)
        return stored, enrolled, known

    def _answered(self, stored: StoredTask, enrolled: int, name: str, request: Long, folder: str) -> bytes | None:
        """One transition. `Overtaken` if another process was first: what was computed never leaves, and is swept later."""
        task = stored.task
        with self.tools.observer.working("CSP"):
            side, look = self._side(stored, enrolled), self._look(task)
            try:
                outcome = _outcome(side, look, request)
            except DealtMaterialDamaged:  # it is not: another process has gone on, and erased what it has used up
                require_latest(self.store.task(task), stored)
                raise
        for (number, file), data in look.files.items():
            self.blobs.put(f"{memory_folder(task, number)}/{file}", data)
        blob, steps, said = None, stored.steps, stored.said
        digest = type(outcome).__name__  # a refusal that is kept tells something too
        if isinstance(outcome, bytes):
            digest = hashlib.sha256(outcome).hexdigest()
            blob = f"{task}/{folder}/{name}/{digest}"
            self.blobs.put(blob, outcome)
        if outcome is not None and folder in _NOTED:
            steps = steps + 1
            said = hashlib.sha256(f"crowdfl note 1 {said} {name} {digest}".encode()).hexdigest()
        try:
            with self.store.transaction():
                now = self.store.task(task)
                _require_answering(now, steps=folder == STEPS)
                require_latest(now, stored)
                self.store.set_records(task, look, name, blob)
                if steps != stored.steps:
                    self.store.change_task(task, steps=steps, said=said)
        except Overtaken:
            for number, _ in look.files:  # the round may be over, and erased in this process: once more
                self._erased[task] = min(self._erased.get(task, 0), number - 1)
            raise
        except TaskEnded:  # what was kept of the task may be erased already
            self.blobs.clear(f"{task}/{folder}/{name}")
            for number, _ in look.files:
                self.blobs.clear(memory_folder(task, number))
            raise
        if steps != stored.steps:
            self._note(task, steps, said)
        if isinstance(outcome, CrowdFLError):
            raise outcome
        return outcome

    def _note(self, task: str, steps: int, said: str) -> None:
        try:
            self.guard.note(task, steps, said)
        except RolledBack:
            self.store.change_task(task, rolled_back=True)
            raise

    def _look(self, task: str) -> Look:
        return Look(StoredRecords(self.store, self.blobs, task))

    def tidy(self, task: str) -> None:
        """Once a reply has left: erase what rounds that are over need no more. Whoever begins does so too."""
        side = self._sides.get(task)
        if side is not None:
            self._erase(self.store.task(task), side)

    def _erase(self, stored: StoredTask, side: CspProtocol) -> None:
        """Dealt files, SP's payloads."""
        if not isinstance(side, SpendsRounds) or stored.state == CLAIMS:
            return
        done = self._erased.get(stored.task, 0)
        over = [number for number in side.spent_rounds(self._look(stored.task)) if number > done]
        self.dealt.burn(stored.opened, over)
        for number in over:
            self.blobs.clear(memory_folder(stored.task, number))
        if over:
            self._erased[stored.task] = over[-1]

    def _side(self, stored: StoredTask, enrolled: int) -> CspProtocol:
        task = stored.task
        if self._closed.get(task, False) != (
            stored.state == CLAIMS
        ):  # another process was told that its steps are over
            self.drop(task)
        if task not in self._sides:
            definition = stored.opened
            if stored.state != CLAIMS and not self._become_sole_holder(task):
                raise NotReady(
                    "KGC still has what it dealt for this task: no step is answered before SP has acknowledged it"
                )
            bundle = _bundle(self.bundles, stored)
            self._closed[task] = stored.state == CLAIMS
            side = profile_named(definition.settings.profile).csp(definition.spec, bundle, self.tools)
            if isinstance(side, TakesDealt):
                side.set_dealt_loader(partial(self.dealt.load, definition))
            self._sides[task] = side
        side = self._sides[task]
        self._erase(stored, side)
        if enrolled > self._enrolled[task]:
            for participant in self.store.participants(task, self._last[task]):  # whichever process was told of them
                side.enrol(participant.identity)
                self._enrolled[task] += 1
                self._last[task] = participant.position
        return side

    def attested(self, task: str) -> str:
        """The signed sum of all that was attested, for the requester; not before claims have ended, whoever asks."""
        stored = self.store.task(task)
        if stored.attested is None:
            raise NotReady("CSP says how much it has attested in all once claims have ended: ask again then")
        return stored.attested

    def claims_extended(self, task: str) -> str:
        """The signed word that people can claim longer; "" if the operator has not given it."""
        return self.store.task(task).claims_extended or ""

    def require_answering(self, task: str, *, steps: bool = False) -> bool:
        """A task that has ended, or that the operator refuses, gets no answer, not even one that was given before. One whose
        `steps` are over may still answer claims.

        Whether the task is known here.
        """
        with contextlib.suppress(UnknownTask):
            _require_answering(self.store.task(task), steps=steps)
            return True
        return False

    def drop(self, task: str) -> None:
        """What this process has of a task in memory: the share among it."""
        self._sides.pop(task, None)
        self._closed.pop(task, None)
        self._enrolled.pop(task, None)
        self._last.pop(task, None)
        self._erased.pop(task, None)


def _outcome(side: CspProtocol, look: Look, request: Long) -> Outcome:
    if isinstance(side, AnswersLong) and not isinstance(request, bytes):
        return side.answer_long(look, request)
    return side.answer(look, whole(request))


def _folder(request: Long) -> str:
    """Where its answer is kept."""
    if is_claim(request, OpenedClaim):
        return OPENED
    return CLAIMS if is_claim(request) else STEPS


def _bundle(bundles: Blobs, stored: StoredTask) -> bytes:
    """Of a task whose steps are over, what claims need of it."""
    return bundles.get(f"{stored.task}.{CLAIMS_BUNDLE if stored.state == CLAIMS else 'csp'}")


def _require_answering(stored: StoredTask, *, steps: bool) -> None:
    if stored.state == OVER or (steps and stored.state == CLAIMS):
        raise ended(stored)
    if stored.state == REFUSED:
        words = stored.end.words() if stored.end else "its operator"
        raise TaskEnded(f"CSP answers task {stored.task} no more ({words})")


def require_latest(now: StoredTask, stored: StoredTask) -> None:
    """Where an answer follows from the last step that this server has taken."""
    if (now.steps, now.said, now.rolled_back) != (stored.steps, stored.said, stored.rolled_back):
        raise Overtaken("another process has gone on meanwhile")
