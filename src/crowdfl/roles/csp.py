"""CSP: answers SP's requests with its half of the key. The same request gets the same answer, across crashes.

Which request may come when, the task's protocol decides; what it must remember for that is kept here, durably.
"""

import contextlib
import hashlib
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from crowdfl.documents.signed import Appointment, Certificate, Definition
from crowdfl.errors import CrowdFLError, DocumentError, NotReady, RoundEnded, TaskEnded, UnknownTask
from crowdfl.protocols.profile import CspProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.dealt import DealtFiles
from crowdfl.roles.ports import Blobs, CspStore, KgcPeer, Place
from crowdfl.roles.records import EndedBy, StoredParticipant, StoredTask, Tombstone
from crowdfl.roles.retention import OVER, ended

_SHORT, _FEW = 4096, 64  # bytes and values that are read at once
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
        """Compute, keep the answer, give it. Whoever keeps an answer first, that one is given."""
        name = hashlib.sha256(request).hexdigest()
        stored, enrolled, known = self.store.answer_context(task, name)
        if stored is None:
            raise UnknownTask(f"there is no task {task} here")
        _require_answering(stored)
        if known is not None:
            return self.blobs.get(known)
        with self._locks.setdefault(task, threading.Lock()):  # a side remembers for one request at a time
            try:
                return self._computed(stored, enrolled, name, request)
            except CrowdFLError:  # the same request was answered while this one waited, and its step is done
                self.require_answering(task)
                known = self.store.answered(task, name)
                if known is None:
                    raise
                return self.blobs.get(known)

    def _computed(self, stored: StoredTask, enrolled: int, name: str, request: bytes) -> bytes:
        draft = _Draft(self.store, self.blobs, stored.task, stored.restored)
        with self.tools.observer.working("CSP"):
            side = self._side(stored, enrolled)
            side.remember(draft)
            reply = side.answer(request)
        kept = self._keep(stored.task, name, reply, draft)
        # After a crash before this, the next answer does it.
        self.dealt.burn(stored.opened, side.spent_rounds())
        for number in side.spent_rounds():
            self.blobs.clear(_memory_folder(stored.task, number))
        return kept

    def _keep(self, task: str, name: str, reply: bytes, draft: "_Draft") -> bytes:
        blob = f"{task}/answers/{name}/{hashlib.sha256(reply).hexdigest()}"
        self.blobs.put(blob, reply)
        kept_here = draft.in_files()
        try:
            with self.store.transaction():  # what the side remembers and the answer stand or fall together
                self.require_answering(task)
                kept = self.store.put_answer(task, name, blob)
                if kept == blob:
                    draft.require_admitted()
                    self.store.remember(task, kept_here)
        except (TaskEnded, RoundEnded):  # while this was computed
            for written in (blob, *draft.files):
                self.blobs.delete(written)
            raise
        return reply if kept == blob else self.blobs.get(kept)

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
            side.set_dealt_loader(partial(self.dealt.load, definition))
            self._sides[task] = side
        if enrolled > self._enrolled[task]:
            for participant in self.store.participants(task, self._last[task]):  # whichever process was told of them
                self._sides[task].enrol(participant.identity)
                self._enrolled[task] += 1
                self._last[task] = participant.position
        return self._sides[task]

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


def _require_answering(stored: StoredTask) -> None:
    if stored.state == OVER:
        raise ended(stored)
    if stored.state == REFUSED:
        words = stored.end.words() if stored.end else "its operator"
        raise TaskEnded(f"CSP answers task {stored.task} no more ({words})")


def _is_in_file(name: str) -> bool:
    """What is long, and of no more use once its round is over: the store has its file's name."""
    return name == "sums" or name.startswith("heard ")


def _memory_folder(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/heard"


@dataclass
class _Draft:
    """What a side keeps during one request stays apart until the answer is kept: a long computation holds no transaction.

    What it reserves is durable at once: of two requests that reserve the same name, here or in another process, one is second.
    """

    store: CspStore
    blobs: Blobs
    task: str
    restored: bool
    kept: dict[Place, bytes] = field(default_factory=dict, repr=False)
    files: list[str] = field(default_factory=list)  # what was written for it
    _refusals: dict[Place, CrowdFLError] = field(default_factory=dict, repr=False)
    _read: dict[Place, bytes | None] = field(default_factory=dict, repr=False)
    _rounds: set[int] = field(default_factory=set, repr=False)  # that were read; 0 is the task's
    _last: int = field(default=0, repr=False)  # round that was asked for: read again with the task's
    _are_few: bool = field(default=True, repr=False)

    def get(self, name: str, number: int = 0, who: str = "") -> bytes | None:
        """What is about no participant is read together, once, where it is little: a request is of one round."""
        place = number, who, name
        if place in self.kept:
            return self.kept[place]
        if _is_in_file(name):
            file = self.store.remembered(self.task, *place)
            return self.blobs.get(file.decode()) if file else file
        self._last = number or self._last
        if number not in self._rounds and self._are_few and not who:
            found = self.store.memories(self.task, self._last, _SHORT, _FEW)
            self._are_few, self._read = found is not None, self._read | (found or {})
            self._rounds |= {0, self._last}
        if self._are_few and not who and (place not in self._read or self._read[place] is not None):
            return self._read.get(place)
        return self.store.remembered(self.task, *place)

    def keep(self, name: str, value: bytes, number: int = 0, who: str = "") -> None:
        self.kept[number, who, name] = value

    def in_files(self) -> dict[Place, bytes]:
        """What was kept, long values by the names of their files, which are written now."""
        found = dict(self.kept)
        for place in [place for place, value in found.items() if value and _is_in_file(place[2])]:
            file = f"{_memory_folder(self.task, place[0])}/{hashlib.sha256(found[place]).hexdigest()}"
            self.blobs.put(file, found[place])
            self.files.append(file)
            found[place] = file.encode()
        return found

    def reserve(self, name: str, value: bytes, number: int = 0, who: str = "") -> bytes:
        # Another request may have reserved something since: of the two, one sees the other.
        self._read, self._rounds = {}, set()
        return self.store.reserve(self.task, (number, who, name), value)

    def refuse_after(self, name: str, refusal: CrowdFLError, number: int) -> None:
        self._refusals[number, "", name] = refusal

    def require_admitted(self) -> None:
        """In the transaction that keeps the answer."""
        for place, refusal in self._refusals.items():
            if self.store.remembered(self.task, *place) is not None:
                raise refusal
