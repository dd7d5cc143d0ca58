"""CSP: answers SP's requests with its half of the key. The same request gets the same answer, across crashes.

Which request may come when, the task's protocol decides by its records. What a request changes in them is set together with its
answer, in one transaction, if every record that it has read still stands: of two processes, one has answered.
"""

import contextlib
import hashlib
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from crowdfl.documents.signed import Appointment, Certificate, Definition
from crowdfl.errors import CrowdFLError, DocumentError, NotReady, Overtaken, StoreUnavailable, TaskEnded, UnknownTask
from crowdfl.protocols.capabilities import Enrols, SpendsRounds, TakesDealt
from crowdfl.protocols.profile import CspProtocol, Tools
from crowdfl.protocols.records import Look, Place, Standing
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.dealt import DealtFiles
from crowdfl.roles.ports import Blobs, CspStore, KgcPeer
from crowdfl.roles.records import EndedBy, StoredParticipant, StoredTask, Tombstone
from crowdfl.roles.retention import OVER, ended

_TRIES = 20  # each one lost to an answer that another process gave
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
class Csp:
    """One computation server."""

    store: CspStore
    blobs: Blobs
    bundles: Blobs
    kgc: KgcPeer
    kgc_key: bytes
    tools: Tools = field(default_factory=Tools.unwatched)
    _sides: dict[str, CspProtocol] = field(default_factory=dict, repr=False)
    _enrolled: Counter[str] = field(default_factory=Counter, repr=False)  # participants that a task's side knows
    _last: Counter[str] = field(default_factory=Counter, repr=False)  # the position of the last of them
    _erased: dict[str, int] = field(default_factory=dict, repr=False)  # the last round that this process has erased
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    def prepare(self, task: str) -> None:
        """Fetch this role's bundle from KGC, keep it durably, let KGC destroy its copy. Idempotent."""
        if not (self.require_answering(task) and self.bundles.has(f"{task}.csp")):
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
        """A participant that KGC has certified: rewards are sealed to its key, claims checked with it."""
        stored = self.store.task(task)
        _require_answering(stored)
        opened = Certificate.open(certificate, self.kgc_key)
        if opened.task != task:
            raise DocumentError("this certificate is for another task")
        participant = StoredParticipant(opened.identity, certificate, replaces=opened.replaces or None)
        self.store.add_participant(task, participant, stored.opened.settings.max_participants)

    def answer(self, task: str, request: bytes, _longest: int = 0) -> bytes:
        """The one answer to this request: what was answered before, or what follows from the records as they stand.

        Order: files, then the records with the answer; only then is anything erased, and does the reply leave.
        """
        name = hashlib.sha256(request).hexdigest()
        known = self._known(task, name)[2]
        if known is not None:
            return self.blobs.get(known)
        with self._locks.setdefault(task, threading.Lock()):  # a side computes one request at a time
            for _ in range(_TRIES):
                stored, enrolled, known = self._known(task, name)
                if known is not None:  # while this one waited
                    return self.blobs.get(known)
                with contextlib.suppress(Overtaken):
                    answer = self._answered(stored, enrolled, name, request)
                    if answer is not None:
                        return answer
        raise StoreUnavailable("other processes of CSP keep answering this task first: ask again")

    def _known(self, task: str, request: str) -> tuple[StoredTask, int, str | None]:
        """The task, how many take part, and the file of the answer that was given before."""
        stored, enrolled, known = self.store.answer_context(task, request)
        if stored is None:
            raise UnknownTask(f"there is no task {task} here")
        _require_answering(stored)
        return stored, enrolled, known

    def _answered(self, stored: StoredTask, enrolled: int, name: str, request: bytes) -> bytes | None:
        """One transition. `Overtaken` if another process was first: what was computed never leaves, and is swept later."""
        task = stored.task
        with self.tools.observer.working("CSP"):
            side, look = self._side(stored, enrolled), self._look(stored)
            outcome = side.answer(look, request)
        for (number, file), data in look.files.items():
            self.blobs.put(f"{_memory_folder(task, number)}/{file}", data)
        blob = None
        if isinstance(outcome, bytes):
            blob = f"{task}/answers/{name}/{hashlib.sha256(outcome).hexdigest()}"
            self.blobs.put(blob, outcome)
        try:
            with self.store.transaction():
                now = self.store.task(task)
                _require_answering(now)
                if now.restored != stored.restored:
                    raise Overtaken("CSP was restored from a backup meanwhile")
                self.store.set_records(task, look, name, blob)
        except TaskEnded:  # what was kept of the task may be erased already
            self.blobs.clear(f"{task}/answers/{name}")
            for number, _ in look.files:
                self.blobs.clear(_memory_folder(task, number))
            raise
        self._erase(stored, side, look)
        if isinstance(outcome, CrowdFLError):
            raise outcome
        return outcome

    def _look(self, stored: StoredTask) -> Look:
        return Look(_Source(self.store, self.blobs, stored.task), restored=stored.restored)

    def _erase(self, stored: StoredTask, side: CspProtocol, look: Look) -> None:
        """What rounds that are over need no more: dealt files, SP's payloads. Repeated by each process that begins."""
        if not isinstance(side, SpendsRounds):
            return
        done = self._erased.get(stored.task, 0)
        over = [number for number in side.spent_rounds(look) if number > done]
        self.dealt.burn(stored.opened, over)
        for number in over:
            self.blobs.clear(_memory_folder(stored.task, number))
        if over:
            self._erased[stored.task] = over[-1]

    def _side(self, stored: StoredTask, enrolled: int) -> CspProtocol:
        task = stored.task
        if task not in self._sides:
            definition = stored.opened
            if not self._become_sole_holder(task):
                raise NotReady(
                    "KGC still has what it dealt for this task: no step is answered before SP has acknowledged it"
                )
            bundle = self.bundles.get(f"{task}.csp")
            side = profile_named(definition.settings.profile).csp(definition.spec, bundle, self.tools)
            if isinstance(side, TakesDealt):
                side.set_dealt_loader(partial(self.dealt.load, definition))
            self._erase(stored, side, self._look(stored))
            self._sides[task] = side
        side = self._sides[task]
        if enrolled > self._enrolled[task] and isinstance(side, Enrols):
            for participant in self.store.participants(task, self._last[task]):  # whichever process was told of them
                side.enrol(participant.identity)
                self._enrolled[task] += 1
                self._last[task] = participant.position
        return side

    def require_answering(self, task: str) -> bool:
        """A task that has ended, or that the operator refuses, gets no answer, not even one that was given before.

        Whether the task is known here.
        """
        with contextlib.suppress(UnknownTask):
            _require_answering(self.store.task(task))
            return True
        return False

    def drop(self, task: str) -> None:
        """What this process has of a task in memory: the share among it."""
        self._sides.pop(task, None)
        self._enrolled.pop(task, None)
        self._last.pop(task, None)
        self._erased.pop(task, None)


def _require_answering(stored: StoredTask) -> None:
    if stored.state == OVER:
        raise ended(stored)
    if stored.state == REFUSED:
        words = stored.end.words() if stored.end else "its operator"
        raise TaskEnded(f"CSP answers task {stored.task} no more ({words})")


def _memory_folder(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/heard"


@dataclass(frozen=True)
class _Source:
    """The records of one task, as they are in the store."""

    store: CspStore
    blobs: Blobs
    task: str

    def standing(self, place: Place) -> Standing:
        return self.store.record(self.task, place)

    def file(self, number: int, name: str) -> bytes:
        return self.blobs.get(f"{_memory_folder(self.task, number)}/{name}")
