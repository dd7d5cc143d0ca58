"""Uploads as they arrive, in groups of one round: each is judged by itself, and all share the waits for the store.

What several participants bring at the same moment costs one look-up, one wait for their folder and one commit.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdfl.errors import Conflict, CrowdFLError, Forbidden, UnknownParticipant
from crowdfl.roles.records import Round, RoundState, TaskState, Upload, UploadContext
from crowdfl.roles.sp.aggregators import RoundAggregators, upload_name
from crowdfl.roles.sp.core import SpCore, require_running

UploadOutcome = tuple[Upload, bool] | CrowdFLError  # the upload and whether it is new, or why it is refused


@dataclass(frozen=True)
class PendingUpload:
    """An upload that nobody has looked at yet, of a participant who signed for it."""

    who: str
    upload: bytes = field(repr=False)
    digest: str  # SHA-256 of the upload, in hex: its name

    @classmethod
    def of(cls, who: str, upload: bytes) -> "PendingUpload":
        return cls(who, upload, hashlib.sha256(upload).hexdigest())


class Uploads:
    """SP's receiving end."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core, self._ports, self._aggregators = core, core.ports, aggregators

    def limit(self, task: str) -> int:
        """Bytes of an upload of this task: a longer body is refused before it is read."""
        return self._aggregators.checking(task).upload_bytes()

    def one(self, task: str, number: int, who: str, upload: bytes) -> Upload:
        (received,) = self.receive(task, number, [PendingUpload.of(who, upload)])
        if isinstance(received, CrowdFLError):
            raise received
        return received[0]

    def receive(self, task: str, number: int, arrivals: Sequence[PendingUpload]) -> list[UploadOutcome]:
        """Check, keep durably, acknowledge; one that is refused says why. The same bytes again are the same upload."""
        standing = self._ports.store.upload_context(task, number, [arrival.who for arrival in arrivals])
        judged = [self._judge(task, number, arrival, standing) for arrival in arrivals]
        judged = self._checked(task, number, arrivals, judged)
        judged = self._written(task, number, arrivals, judged)
        welcome = [entry for entry in judged if isinstance(entry, Upload)]
        # The store looks once more: the round may have closed while the bytes were checked.
        outcomes = iter(self._ports.store.acknowledge(task, number, welcome) if welcome else [])
        return [_outcome(entry, next(outcomes)) if isinstance(entry, Upload) else entry for entry in judged]

    def _judge(self, task: str, number: int, arrival: PendingUpload, standing: UploadContext) -> Upload | UploadOutcome:
        """An upload that may come in if its bytes are good, one that is in already, or why it is neither."""
        try:
            return self._welcome(task, number, arrival, standing)
        except CrowdFLError as refusal:  # of this one alone
            return refusal

    def _welcome(
        self, task: str, number: int, arrival: PendingUpload, standing: UploadContext
    ) -> Upload | UploadOutcome:
        settings = self._core.definition(task).settings
        if arrival.who not in standing.enrolled:
            raise UnknownParticipant(f"nobody called {arrival.who} is enrolled in this task")
        known = standing.uploads.get(arrival.who)
        if known is not None and known.digest == arrival.digest:
            return known, False
        current = self._extended(task, number, standing.round)
        now = self._time(task, standing.state, current)
        require_running(standing.state)
        current.require_upload_welcome(settings, now)
        if arrival.who in standing.left:
            raise Forbidden(f"{arrival.who} has left this task: join again to take part")
        return Upload(arrival.who, arrival.digest, current.is_late(settings, now))

    def _time(self, task: str, state: str, current: Round) -> float:
        """While the clock is in doubt no upload comes too late: the round is open until its end is known to have come."""
        now = self._core.time(task, state)
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
            decided = self._core.as_of_now(task, current)
            if decided.state is RoundState.OPEN and decided != current:
                store.put_round(task, decided)
                return decided
        return current

    def _checked(
        self, task: str, number: int, arrivals: Sequence[PendingUpload], judged: Sequence[Upload | UploadOutcome]
    ) -> list[Upload | UploadOutcome]:
        """The same, but for those whose bytes are not an upload of this task and round."""
        pairs = list(zip(arrivals, judged, strict=True))
        new = [(arrival.who, arrival.upload) for arrival, entry in pairs if isinstance(entry, Upload)]
        side = self._aggregators.checking(task, number, [who for who, _ in new])
        refusals = iter(side.refusals(new) if new else [])
        return [(next(refusals) or entry) if isinstance(entry, Upload) else entry for _, entry in pairs]

    def _written(
        self, task: str, number: int, arrivals: Sequence[PendingUpload], judged: Sequence[Upload | UploadOutcome]
    ) -> list[Upload | UploadOutcome]:
        """The same, but for those whose name is taken by other bytes: a damaged file hinders no other upload."""
        pairs = list(zip(arrivals, judged, strict=True))
        try:
            self._ports.blobs.put_all(
                {upload_name(task, number, a.digest): a.upload for a, e in pairs if isinstance(e, Upload)}
            )
        except Conflict:
            return [self._alone(task, number, arrival, entry) for arrival, entry in pairs]
        return list(judged)

    def _alone(
        self, task: str, number: int, arrival: PendingUpload, entry: Upload | UploadOutcome
    ) -> Upload | UploadOutcome:
        try:
            if isinstance(entry, Upload):
                self._ports.blobs.put(upload_name(task, number, arrival.digest), arrival.upload)
        except Conflict as damage:
            return damage
        return entry


def _outcome(entry: Upload, outcome: bool | CrowdFLError) -> UploadOutcome:
    return outcome if isinstance(outcome, CrowdFLError) else (entry, outcome)
