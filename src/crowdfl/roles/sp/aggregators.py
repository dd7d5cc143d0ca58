"""SP's half of the protocols, as one process holds it: to check uploads with, and to add them up.

There is one protocol instance per task to check uploads with, and one per round under way that adds them up: the running
product of the protocols. However many uploads a round has, memory holds two vectors and one group of uploads, which go in
together. What a process has added up is lost with it, and added up again by the next from the uploads, which are durable.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from crowdfl.crypto.compute import Read, Work, run_work
from crowdfl.crypto.leaves import leaves_of
from crowdfl.crypto.own_files import CHECKED
from crowdfl.errors import (
    BadSignature,
    DocumentError,
    FormatError,
    NotReady,
    UploadDamaged,
)
from crowdfl.protocols.capabilities import (
    CarriesOver,
    ChecksSenders,
    TakesDealt,
    TakesReference,
    no_reference,
)
from crowdfl.protocols.profile import ChecksClaims, SpProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.uploads import Head
from crowdfl.roles.ports import Blobs
from crowdfl.roles.records import RoundState, Upload
from crowdfl.roles.sp.core import SpCore, reference_name
from crowdfl.roles.sp.results import read_result

_TOGETHER = 1024  # uploads added up at once
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
        """All of a task that has ended: each instance holds its secrets."""
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
        raise no_reference()
    return sp
