"""SP's half of the protocols: one instance per task to check uploads with, one per round under way that adds them up.

Adding up is the running product of the protocols: however many uploads a round has, memory holds two vectors and one group
of uploads, which go in together. What a process has added up is lost with it, and added up again by the next from the uploads,
which are durable.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from crowdfl.errors import NotReady, UploadDamaged
from crowdfl.protocols.profile import SpProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import RoundState, Upload
from crowdfl.roles.sp.core import SpCore

_MOST_KEPT = 8  # rounds in memory at once; one more costs another its head start
_GROUP = 15  # uploads multiplied in at once: sixteen factors with the sum so far
_GROUP_BYTES = 32 * 2**20  # of a group, held twice while it is multiplied in; a longer upload goes in alone


def upload_name(task: str, number: int, digest: str) -> str:
    return f"{task}/rounds/{number}/uploads/{digest}"


def left_name(task: str, number: int) -> str:
    """What a published round left for the next one: shares of its sum, say."""
    return f"{task}/rounds/{number}/left"


@dataclass
class _Aggregator:
    sp: SpProtocol
    number: int
    added: dict[str, str] = field(default_factory=dict)  # by participant, its upload's digest
    known: set[str] = field(default_factory=set)  # participants, where uploads are signed


class RoundAggregators:
    """The protocol instances that one SP process holds."""

    def __init__(self, core: SpCore) -> None:
        self._core = core
        self._checking: dict[str, _Aggregator] = {}
        self._rounds: OrderedDict[tuple[str, int], _Aggregator] = OrderedDict()

    def checking(self, task: str, number: int | None = None, people: Collection[str] = ()) -> SpProtocol:
        """To check uploads of these with, those to this round; nothing is put into it, so that threads may share it."""
        known, options = self._checking.get(task), self._core.options
        other = known is not None and number not in (None, known.number) and self._core.is_chained(task)
        if known is None or other:
            tools = replace(options.tools, backend=options.checker)
            known = self._checking[task] = _Aggregator(self._new(task, number or 1, tools), number or 1)
        if not known.known.issuperset(people):
            self._introduce(task, known)
        return known.sp

    def claiming(self, task: str, claim: bytes) -> SpProtocol:
        """To check one claim with: it knows the claimant and nobody else."""
        who = self.checking(task).claimant(claim)
        sp = self._new(task, 1)
        sp.enrol(self._core.ports.store.participant(task, who).identity)
        return sp

    def add_new(self, task: str, number: int, most: int | None = None) -> int:
        """Add up the uploads that came since the last time, at most `most` of them; how many there were."""
        uploads = self._core.ports.store.uploads(task, number)
        aggregator = self._current(task, number, {upload.who: upload.digest for upload in uploads})
        fresh = [upload for upload in uploads if upload.who not in aggregator.added][:most]
        if fresh:
            self._introduce(task, aggregator)
        size = max(1, min(_GROUP, _GROUP_BYTES // aggregator.sp.upload_bytes()))
        for start in range(0, len(fresh), size):
            group = fresh[start : start + size]
            read = {one.who: self._read(task, number, one.digest) for one in group}
            aggregator.sp.add_all(read, validated=True)  # when they were received
            aggregator.added.update({one.who: one.digest for one in group})
        return len(fresh)

    def is_behind(self, task: str, number: int, uploads: int) -> bool:
        """Whether some of so many uploads are not added up yet, and there is room to do it ahead of time."""
        known = self._rounds.get((task, number))
        if known is None:
            return uploads > 0 and len(self._rounds) < _MOST_KEPT  # else rounds would push each other out for ever
        return len(known.added) < uploads

    def damaged(self, task: str, number: int) -> list[Upload]:
        """The uploads of a round that are missing, or not as they were acknowledged; one at a time is read."""
        return [
            upload for upload in self._core.ports.store.uploads(task, number) if self._is_damaged(task, number, upload)
        ]

    def _is_damaged(self, task: str, number: int, upload: Upload) -> bool:
        try:
            self._read(task, number, upload.digest)
        except UploadDamaged:
            return True
        return False

    def complete(self, task: str, number: int) -> SpProtocol:
        """A closed round's: every upload in, and the mask seeds as they were made durable."""
        self.add_new(task, number)
        aggregator, store = self._aggregator(task, number), self._core.ports.store
        self._introduce(task, aggregator)
        sp = aggregator.sp
        sp.keep_seeds(store.seeds(task, number), partial(store.put_seed, task, number))
        return sp

    def forget(self, task: str, number: int) -> None:
        self._rounds.pop((task, number), None)

    def drop(self, task: str) -> None:
        """All of a task that has ended: each instance holds the key share."""
        self._checking.pop(task, None)
        for place in [place for place in self._rounds if place[0] == task]:
            self._rounds.pop(place, None)

    def _current(self, task: str, number: int, uploads: Mapping[str, str]) -> _Aggregator:
        """One that holds nothing but these: another process may have dropped what this one has added up."""
        aggregator = self._aggregator(task, number)
        if aggregator.added.items() <= uploads.items():
            return aggregator
        self.forget(task, number)
        return self._aggregator(task, number)

    def _aggregator(self, task: str, number: int) -> _Aggregator:
        if (task, number) not in self._rounds:
            sp = self._new(task, number)
            sp.set_upload_loader(partial(self._upload_of, task, number))
            self._rounds[task, number] = _Aggregator(sp, number)
        self._rounds.move_to_end((task, number))
        while len(self._rounds) > _MOST_KEPT:
            self._rounds.popitem(last=False)
        return self._rounds[task, number]

    def _introduce(self, task: str, aggregator: _Aggregator) -> None:
        """Everyone who has joined since: signed uploads are checked by their keys. Two threads at once do it twice."""
        if aggregator.sp.signed_uploads:
            for newcomer in self._core.ports.store.participants(task, len(aggregator.known)):
                aggregator.sp.enrol(newcomer.identity)
                aggregator.known.add(newcomer.identity.who)

    def _upload_of(self, task: str, number: int, who: str) -> bytes:
        digest = self._aggregator(task, number).added.get(who)
        return self._read(task, number, digest) if digest is not None else b""

    def _read(self, task: str, number: int, digest: str) -> bytes:
        """An upload as it was acknowledged: it is validated once, so that a file altered since must not pass."""
        try:
            upload = self._core.ports.blobs.get(upload_name(task, number, digest))
        except NotReady:
            raise UploadDamaged(f"the file of upload {digest} in round {number} is missing") from None
        if hashlib.sha256(upload).hexdigest() != digest:
            raise UploadDamaged(f"the file of upload {digest} in round {number} was altered")
        return upload

    def _new(self, task: str, number: int, tools: Tools | None = None) -> SpProtocol:
        definition = self._core.definition(task)
        profile = profile_named(definition.settings.profile)
        bundle = self._core.bundle(task)
        sp = profile.sp(definition.spec, bundle, tools or self._core.options.tools)
        sp.set_dealt_loader(partial(self._core.dealt.load, definition))
        sp.open_round(number)
        if profile.chained:
            sp.load_previous(self._left_before(task, number) if number > 1 else None)
        return sp

    def _left_before(self, task: str, number: int) -> bytes | None:
        """By the last round that was published: aborted ones change nothing."""
        store, blobs = self._core.ports.store, self._core.ports.blobs
        done = [r.number for r in store.rounds(task) if r.number < number and r.state is RoundState.REWARDED]
        return blobs.get(left_name(task, done[-1])) if done else None
