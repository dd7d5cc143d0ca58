"""Uploads as they arrive.

Uploads of one round come in groups: each is judged by itself, and all share the waits for the store. What several participants
bring at the same moment costs one look-up, one wait for their folder and one commit.
"""

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from crowdfl.crypto.own_files import CHECKED, Mark
from crowdfl.errors import (
    AlreadyCounted,
    Conflict,
    CrowdFLError,
    Forbidden,
    NotDrawn,
    NotEnoughMoney,
    RoundNotOpen,
    UnknownParticipant,
)
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.records import Round, RoundState, TaskState, Upload, UploadContext, taking_uploads
from crowdfl.roles.sp.aggregators import RoundAggregators, upload_name
from crowdfl.roles.sp.core import ENDED, SpCore, reference_name, require_running
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.settings import averages_again

_NOT_SURELY_CLOSED = (RoundState.OPEN, RoundState.ABORTED)  # all others have closed, with their uploads


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
        owed is never counted after all. There, and where uploads come after the first average, of several devices of a person
        one at most is counted or owed.
        """
        definition, store = self._core.definition(task), self._ports.store
        most = definition.plan.goal or definition.settings.most_in_round
        one_each = definition.plan.each_unused > 0 or averages_again(definition.settings)
        with store.transaction() if one_each else contextlib.nullcontext():
            if one_each:
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
        if not (plan.each_unused and current.state not in _NOT_SURELY_CLOSED and now <= current.last_call(settings)):
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
