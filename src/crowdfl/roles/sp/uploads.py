"""Uploads as they arrive, and SP's half of the protocols that checks them and adds them up.

Uploads of one round come in groups: each is judged by itself, and all share the waits for the store. What several participants
bring at the same moment costs one look-up, one wait for their folder and one commit.

There is one protocol instance per task to check uploads with, and one per round under way that adds them up: the running
product of the protocols. However many uploads a round has, memory holds two vectors and one group of uploads, which go in
together. What a process has added up is lost with it, and added up again by the next from the uploads, which are durable.
"""

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from crowdfl.crypto.compute import Read, Work, run_work
from crowdfl.crypto.leaves import leaves_of
from crowdfl.crypto.own_files import CHECKED, Mark
from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    Conflict,
    CrowdFLError,
    DocumentError,
    Forbidden,
    FormatError,
    NotDrawn,
    NotEnoughMoney,
    NotReady,
    RoundNotOpen,
    UnknownParticipant,
    UploadDamaged,
)
from crowdfl.protocols.capabilities import (
    NO_REFERENCE,
    CarriesOver,
    ChecksSenders,
    TakesDealt,
    TakesReference,
)
from crowdfl.protocols.profile import ChecksClaims, SpProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.uploads import Head, upload_digest
from crowdfl.roles.ports import Blobs
from crowdfl.roles.records import Round, RoundState, TaskState, Upload, UploadContext, taking_uploads
from crowdfl.roles.sp.core import ENDED, SpCore, reference_name, require_running
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.results import read_result

_TOGETHER = 1024  # uploads added up at once
_IS_OPEN = (RoundState.OPEN, RoundState.ABORTED)  # or never closed: all others have, with their uploads
_MOST_KEPT = 8  # rounds in memory at once; one more costs another its head start


def upload_name(task: str, number: int, digest: str) -> str:
    return f"{task}/rounds/{number}/uploads/{digest}"


def read_upload(blobs: Blobs, name: str) -> bytes:
    """An upload as it was acknowledged: it is validated once, so that a file altered since must not pass."""
    try:
        upload = blobs.get(name)
    except NotReady:
        raise UploadDamaged(f"the file of upload {name} is missing") from None
    known = CHECKED.knows(name, upload)
    if known is None and (known := _is_whole(upload, name.rpartition("/")[2])):
        CHECKED.keep(name, [CHECKED.mark(upload)])
    if not known:
        raise UploadDamaged(f"the file of upload {name} was altered")
    return upload


def _is_whole(upload: bytes, digest: str) -> bool:
    """Whether an upload that this process has not seen yet is the one of this name."""
    try:
        head = Head.of(upload)
    except FormatError:
        return False
    pieces = memoryview(upload)[len(head.data) :]
    return head.digest == digest and len(pieces) == head.total and leaves_of(pieces) == head.leaves


@dataclass(frozen=True)
class _Looking(Work[str, list[str]]):
    """Which of these uploads, by digest, are missing, or not as they were acknowledged."""

    folder: str
    size: int  # of each

    def weight(self) -> int:
        return len(self.rows) * self.size

    def run(self, read: Read) -> list[str]:
        return [digest for digest in self.rows if _is_damaged(read, self.folder + digest)]

    def merged(self, found: Iterable[list[str]]) -> list[str]:
        return [digest for part in found for digest in part]


def _is_damaged(read: Read, name: str) -> bool:
    try:
        read(name)
    except UploadDamaged:
        return True
    return False


@dataclass
class _Aggregator:
    sp: SpProtocol
    number: int
    added: dict[str, str] = field(default_factory=dict)  # by participant, its upload's digest
    seen: int = 0  # the position of the last participant who was enrolled, where all are needed
    last: int = 0  # the position of the last upload that was added ahead of time


class RoundAggregators:
    """The protocol instances that one SP process holds."""

    def __init__(self, core: SpCore) -> None:
        self._core = core
        self._checking: dict[str, _Aggregator] = {}
        self._rounds: OrderedDict[tuple[str, int], _Aggregator] = OrderedDict()
        self._lock = threading.Lock()  # of `_rounds`: tasks move at the same time

    def checking(self, task: str, number: int | None = None, people: Collection[str] = ()) -> SpProtocol:
        """To check uploads of these with, those to this round; nothing is put into it, so that threads may share it."""
        known, options = self._checking.get(task), self._core.options
        other = known is not None and number not in (None, known.number) and isinstance(known.sp, ChecksSenders)
        if known is None or other:
            tools = replace(options.tools, backend=options.checker)
            known = self._checking[task] = _Aggregator(self._new(task, number or 1, tools), number or 1)
        if isinstance(known.sp, ChecksSenders):
            for who in known.sp.strangers(people):
                known.sp.enrol(self._core.identity(task, who))
        return known.sp

    def claiming(self, task: str, claim: bytes) -> ChecksClaims:
        """To check one claim with: it knows the claimant and nobody else."""
        sp = self.checking(task)
        return sp.paying(self._core.identity(task, sp.claimant(claim)))

    def add_new(self, task: str, number: int, most: int) -> int:
        """Add up uploads that came since the last time, at most `most` of them; how many there were.

        None of the others is looked at, or a crowd would take the square of its time. One that was overtaken on its way into
        the store, or dropped since, is found when all of them are.
        """
        aggregator = self._aggregator(task, number)
        rows = self._core.ports.store.uploads_after(task, number, aggregator.last, most)
        self._extend(task, number, aggregator, [upload for _, upload in rows])
        aggregator.last = max((place for place, _ in rows), default=aggregator.last)
        return len(rows)

    def _add_rest(self, task: str, number: int) -> _Aggregator:
        uploads = self._core.ports.store.uploads(task, number)
        aggregator = self._aggregator(task, number)
        known = {upload.who: upload.digest for upload in uploads}
        if not aggregator.added.items() <= known.items():  # another process has dropped what this one has added up
            self.forget(task, number)
            aggregator = self._aggregator(task, number)
        self._extend(task, number, aggregator, uploads)
        return aggregator

    def _extend(self, task: str, number: int, aggregator: _Aggregator, uploads: Sequence[Upload]) -> None:
        fresh = [upload for upload in uploads if upload.who not in aggregator.added]
        if fresh:
            self._introduce(task, aggregator)
        for start in range(0, len(fresh), _TOGETHER):
            names = {one.who: one.digest for one in fresh[start : start + _TOGETHER]}
            aggregator.sp.add_stored(upload_name(task, number, ""), names, self._read)
            aggregator.added.update(names)

    def is_behind(self, task: str, number: int, uploads: int) -> bool:
        """Whether some of so many uploads are not added up yet, and there is room to do it ahead of time."""
        known = self._rounds.get((task, number))
        if known is None:
            return uploads > 0 and len(self._rounds) < _MOST_KEPT  # else rounds would push each other out for ever
        return len(known.added) < uploads

    def damaged(self, task: str, number: int) -> list[Upload]:
        """The uploads of a round that are missing, or not as they were acknowledged.

        Those that nobody has added up are added up on the way: each is read once."""
        uploads = self._core.ports.store.uploads(task, number)
        known = self._rounds.get((task, number))
        before = set() if known is None else set(known.added)
        try:
            self._add_rest(task, number)
        except UploadDamaged:
            before = {upload.who for upload in uploads}
        digests = [upload.digest for upload in uploads if upload.who in before]
        looking = _Looking(digests, upload_name(task, number, ""), self.checking(task).upload_bytes())
        found = run_work(self._core.options.tools.backend, looking, self._read)
        bad = set(replace(looking, rows=found).run(self._read))  # whoever has looked: this process judges
        return [upload for upload in uploads if upload.digest in bad]

    def complete(self, task: str, number: int) -> SpProtocol:
        """A closed round's: every upload in, and the record as it was made durable."""
        aggregator = self._add_rest(task, number)
        self._introduce(task, aggregator)
        sp = aggregator.sp
        if self._core.definition(task).settings.reference:
            self._take_reference(sp, task, number)
        sp.record = self._core.ports.store.sp_record(task, number)
        return sp

    def _take_reference(self, sp: SpProtocol, task: str, number: int) -> None:
        try:
            _comparing(sp).take_reference(self._core.ports.blobs.get(reference_name(task, number)))
        except (NotReady, DocumentError, FormatError, BadSignature):
            raise UploadDamaged(f"the file of the reference of round {number} is missing, or was altered") from None

    def check_reference(self, task: str, number: int, upload: bytes) -> None:
        """Refuse what is not the requester's upload to this round."""
        _comparing(self._new(task, number)).take_reference(upload)

    def forget(self, task: str, number: int) -> None:
        with self._lock:
            self._rounds.pop((task, number), None)

    def drop(self, task: str) -> None:
        """All of a task that has ended: each instance holds the key share."""
        self._checking.pop(task, None)
        with self._lock:
            for place in [place for place in self._rounds if place[0] == task]:
                self._rounds.pop(place, None)

    def _aggregator(self, task: str, number: int) -> _Aggregator:
        """One that is pushed out by others' serves the step that holds it to its end."""
        known = self._rounds.get((task, number)) or _Aggregator(self._new(task, number), number)
        with self._lock:
            self._rounds[task, number] = known
            self._rounds.move_to_end((task, number))
            while len(self._rounds) > _MOST_KEPT:
                self._rounds.popitem(last=False)
        return known

    def _introduce(self, task: str, aggregator: _Aggregator) -> None:
        """Everyone who has joined since: signed uploads are checked by their keys."""
        if isinstance(aggregator.sp, ChecksSenders):
            for newcomer in self._core.ports.store.participants(task, aggregator.seen):
                aggregator.sp.enrol(newcomer.identity)
                aggregator.seen = newcomer.position

    def _read(self, name: str) -> bytes:
        return read_upload(self._core.ports.blobs, name)

    def _new(self, task: str, number: int, tools: Tools | None = None) -> SpProtocol:
        definition = self._core.definition(task)
        profile = profile_named(definition.settings.profile)
        bundle = self._core.bundle(task)
        sp = profile.sp(definition.spec, bundle, tools or self._core.options.tools)
        if isinstance(sp, TakesDealt):
            sp.set_dealt_loader(partial(self._core.dealt.load, definition))
        sp.open_round(number)
        if isinstance(sp, CarriesOver):
            rounds, blobs = self._core.ports.store.rounds(task), self._core.ports.blobs
            done = [
                r for r in rounds if r.number < number and r.state is RoundState.REWARDED
            ]  # aborted ones change nothing
            sp.load_previous(read_result(blobs, task, done[-1], "left_over") if done else None)
        return sp


def _comparing(sp: SpProtocol) -> TakesReference:
    if not isinstance(sp, TakesReference):
        raise NO_REFERENCE
    return sp


UploadOutcome = tuple[Upload, Literal["new", "again", "unused"]] | CrowdFLError
"""What became of an upload, or why it is refused. Nothing of an unused one is kept, and it is paid for as the plan says."""


@dataclass(frozen=True)
class PendingUpload:
    """An upload that nobody has looked at yet, of a participant who signed for it; of one in a file, its head."""

    who: str
    upload: bytes = field(repr=False)
    digest: str  # its name
    file: Path | None = None  # where all of it lies, its pieces held against their leaves
    marks: Sequence[Mark] = ()  # by which this process knows that file again

    @classmethod
    def of(cls, who: str, upload: bytes) -> "PendingUpload":
        return cls(who, upload, upload_digest(upload))


@dataclass
class Arrival:
    """An upload on its way into a round: welcome until something has become of it."""

    sent: PendingUpload
    late: bool = False
    outcome: UploadOutcome | None = None

    @property
    def upload(self) -> Upload:
        return Upload(self.sent.who, self.sent.digest, self.late)

    @property
    def leaves_nothing(self) -> bool:
        """Whether no byte of it stays."""
        unused = isinstance(self.outcome, tuple) and self.outcome[1] == "unused"
        return unused or isinstance(self.outcome, Forbidden | RoundNotOpen)


def _welcome(arrivals: Iterable[Arrival]) -> list[Arrival]:
    return [one for one in arrivals if one.outcome is None]


class Uploads:
    """SP's receiving end."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core = core
        self._ports = core.ports
        self._aggregators = aggregators

    def limit(self, task: str) -> int:
        """Bytes of an upload of this task: a longer body is refused before it is read."""
        return self._aggregators.checking(task).upload_bytes()

    def head(self, task: str) -> int:
        """Bytes of an upload's head."""
        return self._aggregators.checking(task).head_bytes()

    def one(self, task: str, number: int, who: str, upload: bytes) -> Upload:
        (received,) = self.receive(task, number, [PendingUpload.of(who, upload)])
        if isinstance(received, CrowdFLError):
            raise received
        if received[1] == "unused":
            raise RoundNotOpen(f"round {number} has all the uploads that it takes: you are paid for having sent one")
        return received[0]

    def is_drawn(self, task: str, number: int, who: str) -> bool:
        """Whether somebody is in a round; without `per_round`, everyone is."""
        found = self._ports.store.upload_context(task, number, [who])
        return self._core.definition(task).settings.per_round is None or who in found.drawn

    def reference(self, task: str, number: int, upload: bytes) -> None:
        """What the requester uploads to a round of a task with a reference; the first one stands."""
        current, state = self._ports.store.round(task, number), self._ports.store.task(task).state
        require_running(state)
        current.require_upload_welcome(self._core.definition(task).settings, self._time(task, state, current))
        self._aggregators.check_reference(task, number, upload)
        self._ports.blobs.put(reference_name(task, number), upload)

    def receive(self, task: str, number: int, uploads: Sequence[PendingUpload]) -> list[UploadOutcome]:
        """Check, keep durably, acknowledge; one that is refused says why. The same bytes again are the same upload."""
        standing = self._ports.store.upload_context(task, number, [one.who for one in uploads])
        arrivals = [self._judged(task, number, one, standing) for one in uploads]
        if welcome := _welcome(arrivals):
            self._check(task, number, welcome)
            if standing.round is not None and standing.round.state in self._taking(task):
                self._write(task, number, _welcome(welcome))
            self._take(task, number, _welcome(welcome))
        return [one.outcome for one in arrivals if one.outcome is not None]

    def _check(self, task: str, number: int, arrivals: Sequence[Arrival]) -> None:
        """Refuse bytes that are not an upload of this task and round."""
        side = self._aggregators.checking(task, number, [one.sent.who for one in arrivals])
        for in_file in (False, True):
            group = [one for one in arrivals if (one.sent.file is not None) is in_file]
            refusals = side.refusals([(one.sent.who, one.sent.upload) for one in group], heads=in_file) if group else []
            for one, refusal in zip(group, refusals, strict=True):
                one.outcome = refusal

    def _write(self, task: str, number: int, arrivals: Sequence[Arrival]) -> None:
        """Each under its name; where other bytes have it, that damaged file hinders no other upload."""
        whole = {upload_name(task, number, one.sent.digest): one for one in arrivals if one.sent.file is None}
        try:
            self._ports.blobs.put_all({name: one.sent.upload for name, one in whole.items()})
        except Conflict:
            for name, one in whole.items():
                self._put(name, one)
        for one in arrivals:
            name = upload_name(task, number, one.sent.digest)
            if one.sent.file is not None:
                self._put(name, one)
            if one.outcome is None:
                CHECKED.keep(name, one.sent.marks or [CHECKED.mark(one.sent.upload)])

    def _put(self, name: str, one: Arrival) -> None:
        try:
            if one.sent.file is None:
                self._ports.blobs.put(name, one.sent.upload)
            else:
                self._ports.blobs.put_file(name, one.sent.file)
        except Conflict as damage:
            one.outcome = damage

    def _take(self, task: str, number: int, arrivals: Sequence[Arrival]) -> None:
        """Into the round, if it is still open and still has room: the bytes were checked meanwhile.

        Of a task that pays for unused uploads, who is owed for one is found, and noted, in the same transaction: whoever is
        owed is never counted after all, and of several devices of a person one at most is counted or owed.
        """
        definition, store = self._core.definition(task), self._ports.store
        most = definition.plan.goal or definition.settings.most_in_round
        pays_unused = definition.plan.each_unused > 0
        with store.transaction() if pays_unused else contextlib.nullcontext():
            if pays_unused:
                for one in arrivals:
                    one.outcome = self._sent_before(task, number, one.upload)
            fresh = _welcome(arrivals)
            answers = (
                store.acknowledge(task, number, [one.upload for one in fresh], most, self._taking(task))
                if fresh
                else []
            )
            for one, answer in zip(fresh, answers, strict=True):
                one.outcome = answer if isinstance(answer, CrowdFLError) else (one.upload, "new" if answer else "again")
                if isinstance(answer, RoundNotOpen) and self._owe_unused(task, number, one.sent.who):
                    one.outcome = one.upload, "unused"
        for one in arrivals:
            if one.leaves_nothing:
                self._ports.blobs.delete(upload_name(task, number, one.sent.digest))

    def _taking(self, task: str) -> tuple[RoundState, ...]:
        return taking_uploads(self._core.definition(task).settings)

    def _sent_before(self, task: str, number: int, upload: Upload) -> UploadOutcome | None:
        """What a person hears who was counted in a round, or is owed for it, with this device or another."""
        store, who = self._ports.store, upload.who
        if self._is_owed(task, number, who):
            return upload, "unused"
        for device in store.devices(task, self._core.identity(task, who).place):
            sent = store.upload(task, number, device)
            if sent is not None and sent == replace(upload, late=sent.late):
                return sent, "again"
            if sent is not None or self._is_owed(task, number, device):
                return AlreadyCounted(
                    f"round {number} has an upload of {who} already, with other contents, or of a device that it replaces: a "
                    "person is paid once for a round"
                )
        return None

    def _is_owed(self, task: str, number: int, who: str) -> bool:
        """For an upload that was not used."""
        return self._ports.store.movement(task, Ledger.unused_name(who, number)) is not None

    def _owe_unused(self, task: str, number: int, who: str) -> bool:
        """Whether somebody who came in time, with good bytes, finds that the round has its goal: it is owed what the plan says,
        while there is money for it, and while neither the task has ended nor the round was given up.

        In time is before the round's last call, however early it has closed: who trains meanwhile cannot know. The caller holds
        a transaction."""
        plan, store = self._core.definition(task).plan, self._ports.store
        if not plan.each_unused:
            return False
        ended = store.task(task).state in ENDED or store.round(task, number).state is RoundState.ABORTED
        if ended or store.turnout(task, number)[0] < (plan.goal or math.inf):
            return False
        try:
            store.post(task, Ledger.owe_unused(who, number, plan.each_unused))
        except NotEnoughMoney:
            return False
        return True

    def _judged(self, task: str, number: int, sent: PendingUpload, standing: UploadContext) -> Arrival:
        """An upload that may come in if its bytes are good, one that is in already, or why it is neither."""
        try:
            return self._seen_before(task, number, sent, standing) or self._admitted(task, number, sent, standing)
        except CrowdFLError as refusal:  # of this one alone
            return Arrival(sent, outcome=refusal)

    def _seen_before(self, task: str, number: int, sent: PendingUpload, standing: UploadContext) -> Arrival | None:
        who = sent.who
        plan = self._core.definition(task).plan
        if who not in standing.enrolled:
            raise UnknownParticipant(f"nobody called {who} is enrolled in this task")
        known = standing.uploads.get(who)
        if known is not None and known.digest == sent.digest:
            return Arrival(sent, known.late, (known, "again"))
        if plan.each_unused and self._is_owed(task, number, who):
            return Arrival(sent, outcome=(Upload(who, sent.digest, late=False), "unused"))  # whatever the round became
        return None

    def _admitted(self, task: str, number: int, sent: PendingUpload, standing: UploadContext) -> Arrival:
        """One that comes in time, from somebody who is in the round."""
        definition, who = self._core.definition(task), sent.who
        settings, plan = definition.settings, definition.plan
        current = self._extended(task, number, standing.round)
        now = self._time(task, standing.state, current)
        require_running(standing.state)
        if not (plan.each_unused and current.state not in _IS_OPEN and now <= current.last_call(settings)):
            current.require_upload_welcome(settings, now)
        if who in standing.left:
            raise self._ports.store.participant(task, who).refusal()
        if settings.per_round is not None and who not in standing.drawn:
            raise NotDrawn(f"others were drawn for round {number}: you may be drawn later, or for the next round")
        is_after = current.state is not RoundState.OPEN and current.state in taking_uploads(settings)
        return Arrival(sent, is_after or current.is_late(settings, now))

    def _time(self, task: str, state: str, current: Round) -> float:
        """The task's own, which stands still while it is paused. While the clock is in doubt no upload comes too late: the
        round is open until its end is known to have come."""
        since = self._ports.store.task(task).paused_at if state == TaskState.PAUSED else None
        now = self._ports.clock.now() if since is None else since
        return now if self._core.clock_is_sure() else min(now, current.deadline(self._core.definition(task).settings))

    def _extended(self, task: str, number: int, seen: Round | None) -> Round:
        """A round as it was just seen, extended if it is below the quorum and its window has just passed."""
        if seen is not None and self._ports.clock.now() < seen.deadline(self._core.definition(task).settings):
            return seen
        if not self._core.clock_is_sure():
            return self._ports.store.round(task, number)
        store = self._ports.store
        with store.transaction():
            current = store.round(task, number)
            if store.task(task).state == TaskState.PAUSED:
                return current
            decided = self._core.decided(task, current, *store.turnout(task, number))
            if decided.state is RoundState.OPEN and decided != current:
                self._core.keep_round(task, decided, current)
                return decided
        return current
