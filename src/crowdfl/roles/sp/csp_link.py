"""SP's link to CSP: every reply is durable before it is used, and no request is ever computed on with two replies.

SP's masks come from a durable record, so that a step that is repeated sends the same bytes. What is new in the record is set
before the request that depends on it leaves, in place of what was read: of two processes with masks of their own, the second
one sends nothing. A CSP that deviates could answer the same bytes otherwise the second time; later requests would then differ
by what it chose, under the same masks, and the difference of the two would be a participant's lanes. So a reply is parsed first
(`ReplyForm`): what is not the message of its step, such as the page of a proxy, is refused, kept nowhere and asked for again;
nothing was computed with it. Then its digest is recorded in the store, before it is used. From then on that reply counts, from
its file; if the file is gone or altered, the round is void. A request without a recorded reply may be repeated: nothing was
ever computed with one. With one reply for each request, all requests of a seed are the same for ever. In a task of `shares` a
request is counted in the task's row with its hash, then noted in the guard, and leaves after that.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from crowdfl.crypto.long_bytes import LONG_BYTES, Long, sha256_of
from crowdfl.errors import (
    Conflict,
    FormatError,
    NotReady,
    ReplyLost,
    ReplyUnreadable,
    RolledBack,
)
from crowdfl.protocols.capabilities import DealsFiles
from crowdfl.protocols.exchange import Ask, Reply, ReplyForm
from crowdfl.protocols.profile import SpProtocol
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.kept_file import KeptFile, put_long
from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.records import Round, StoredTask
from crowdfl.roles.sp.core import SpCore


def replies_folder(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/replies"


def forget_replies(store: SpStore, blobs: Blobs, task: str, number: int) -> None:
    """Of a round that is never computed again. Idempotent."""
    blobs.clear(replies_folder(task, number))
    if store.replies(task, number):
        store.forget_replies(task, number)


class CspLink:
    """How a round's steps reach CSP."""

    def __init__(self, core: SpCore) -> None:
        self._core = core

    def ask(self, task: str, current: Round, sp: SpProtocol) -> Ask:
        """For this half of the protocol, whose record was just read, in the step that found the round so."""
        self._require_destroyed(task)
        ports = self._core.ports
        number = current.number
        durable = sp.record
        store = ports.store
        # One sum for a base, with masks dealt or not: else a reader would have two sets of people to compare.
        is_noted = isinstance(profile_named(self._core.definition(task).settings.profile), DealsFiles)
        used = store.replies(task, number)  # what is recorded meanwhile, `_use` sees
        line = _Line(self._core)

        def ask(request: Long) -> Reply:
            nonlocal durable
            self._core.renew_lease(task)
            place = _Place(task, number, sha256_of(request).hex())
            before = used.get(place.request)
            if before is not None:
                return _given(self._used_before(place, before))
            stored = self._compared(task) if is_noted else None
            is_new = stored is not None and stored.said != place.request
            if sp.record != durable or is_new:
                with store.transaction():
                    if store.round(task, number) != current:
                        raise Conflict(f"round {number} is not as it was read: nothing more is sent for it")
                    store.set_sp_record(task, number, durable, sp.record)
                    if stored is not None and is_new:
                        self._count(stored, place.request)
                durable = sp.record
            if stored is not None:
                ports.guard.note(task, stored.steps + is_new, place.request)
            return self._reply(place, request, sp.reply_form(request), line)

        return ask

    def _compared(self, task: str) -> StoredTask:
        """The task, whose records say the same as its notes; what was sent last is noted."""
        ports = self._core.ports
        notes = ports.guard.look(task)
        stored = ports.store.task(task)
        try:
            ports.guard.compare(notes, stored)
        except RolledBack as found:
            found.is_own = True
            raise
        return stored

    def _count(self, known: StoredTask, request: str) -> None:
        """One more step that leaves. The request binds all that was said in its round: its hash is that of the whole."""
        store = self._core.ports.store
        if store.task(known.task).steps != known.steps:
            raise Conflict("another process has sent something for this task meanwhile")
        store.change_task(known.task, steps=known.steps + 1, said=request)

    def _require_destroyed(self, task: str) -> None:
        """Nothing is sent to CSP while KGC has what it dealt: if CSP leaves KGC its copy, the two could read uploads."""
        ports = self._core.ports
        if ports.store.task(task).sole_holder:
            return
        if not ports.kgc.acknowledge(task):
            ports.csp.prepare(task)  # its acknowledgement may have been lost
        if not ports.kgc.acknowledge(task):
            raise NotReady("KGC still has what it dealt for this task: no step is taken before CSP has acknowledged it")
        ports.store.change_task(task, sole_holder=True)

    def _reply(self, place: "_Place", request: Long, form: ReplyForm, line: "_Line") -> Reply:
        ports = self._core.ports
        if ports.blobs.has(place.file):  # a crash came before it was used
            return lambda: self._use(place, self._kept(place))
        return self._waiting(place, line.ask(place.task, request, form.longest), form)

    def _waiting(self, place: "_Place", future: "Future[Long]", form: ReplyForm) -> Callable[[], Long]:
        options = self._core.options

        def reply() -> Long:
            with options.runner.waiting():
                while not wait([future], options.lease_seconds / 3).done:
                    self._core.renew_lease(place.task)
            return self._keep(place, future.result(), form)

        return reply

    def _keep(self, place: "_Place", reply: Long, form: ReplyForm) -> Long:
        blobs = self._core.ports.blobs
        try:
            form.check(reply)
        except FormatError as wrong:
            self._core.options.events(
                "reply refused", task=place.task, number=place.number, error=type(wrong).__name__, size=len(reply)
            )
            raise ReplyUnreadable(f"what came as CSP's reply is not one ({wrong}): it is asked for again") from wrong
        try:
            put_long(blobs, place.file, reply)
        except Conflict:  # another process has kept one: that one counts
            return self._use(place, self._kept(place))
        return self._use(place, reply)

    def _kept(self, place: "_Place") -> Long:
        """Where it lies, if it is long."""
        kept = KeptFile(self._core.ports.blobs.open(place.file))
        return kept if len(kept) > LONG_BYTES else kept[:]

    def _use(self, place: "_Place", reply: Long) -> Long:
        """Recorded first: of two processes with two replies, the second one stops here."""
        digest = sha256_of(reply)
        if self._core.ports.store.use_reply(place.task, place.number, place.request, digest) != digest:
            raise place.lost()
        return reply

    def _used_before(self, place: "_Place", digest: bytes) -> Long:
        try:
            reply = self._kept(place)
        except NotReady:
            raise place.lost() from None
        if sha256_of(reply) != digest:
            raise place.lost()
        return reply


def _given(reply: Long) -> Reply:
    return lambda: reply


class _Line:
    """The requests of one step, which reach CSP one after the other while SP computes. After a failure none is sent."""

    def __init__(self, core: SpCore) -> None:
        self._core = core
        self._last = Future[Long]()
        self._last.set_result(b"")

    def ask(self, task: str, request: Long, longest: int) -> "Future[Long]":
        before = self._last

        def work() -> Long:
            before.result()
            return self._core.ports.csp.answer(task, request, longest)

        self._last = self._core.options.runner.beside(work)
        return self._last


@dataclass(frozen=True)
class _Place:
    """Where the reply to one request is."""

    task: str
    number: int
    request: str

    @property
    def file(self) -> str:
        return f"{replies_folder(self.task, self.number)}/{self.request}"

    def lost(self) -> ReplyLost:
        return ReplyLost(f"a reply of CSP that round {self.number} was computed with is missing or altered: it is void")
