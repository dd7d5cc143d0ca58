"""A round's steps on SP: open, decide, settle its uploads, reward, average, abort. Every step can be repeated.

A step reads the round's record, works, and sets the record in one transaction, if it is still as it was read: of two processes
one has taken the step. What it made lies in files that the record names, written before; then come the events, and what is
needed no more is erased. A process that dies in between leaves a record from which the next `tick`, here or in another process,
goes on with the same masks.
"""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace

from crowdfl.crypto.long_bytes import whole
from crowdfl.errors import (
    BaseSpent,
    Conflict,
    CrowdFLError,
    DealtMaterialDamaged,
    NotReady,
    OutOfTurn,
    ReplyLost,
    RolledBack,
    RoundEnded,
    RoundsExhausted,
    ServiceError,
    TaskEnded,
    TaskNotRunning,
    UploadDamaged,
    WrongBase,
)
from crowdfl.protocols.capabilities import DealsFiles, HearsEnds, PaysBonus, ShowsRecord
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.round import AggregationRound
from crowdfl.reasons import Void
from crowdfl.roles.dealt import file_sizes
from crowdfl.roles.records import LONGEST_REASON, EndedBy, Round, RoundState, StoredTask, TaskState, Tombstone
from crowdfl.roles.sp.aggregators import RoundAggregators, upload_name
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, SpCore
from crowdfl.roles.sp.csp_link import CspLink, forget_replies
from crowdfl.roles.sp.ledger import ESCROW, Ledger, round_account
from crowdfl.roles.sp.results import (
    drop_surplus,
    keep_results,
    publication_kind,
    read_result,
    result_folder,
    result_name,
)
from crowdfl.roles.sp.tasks import cancel_task, give_up_round
from crowdfl.settings import averages_again, to_millionths
from crowdfl.text import printable

_SET_BACK = (WrongBase, RolledBack)  # as CSP says, or as its record shows
_PIECE = 100  # uploads added up at a look, so that other tasks and uploads have their turn


def pack_envelopes(envelopes: Mapping[str, bytes], uploads: int | None = None) -> bytes:
    """Each once, with all whom it is for: a record that says what everyone has earned is long. If it is for all of so many
    uploads, nobody is named: no list of a crowd is read for each of them."""
    owners: dict[bytes, list[str]] = {}
    for who, envelope in envelopes.items():
        owners.setdefault(envelope, []).append(who)
    if len(owners) == 1 and len(envelopes) == uploads:
        owners = {envelope: [] for envelope in owners}
    return json.dumps({envelope.hex(): names for envelope, names in owners.items()}).encode()


def find_envelope(packed: bytes, who: str) -> bytes | None:
    """Of somebody who has an upload in the round."""
    owners: dict[str, list[str]] = json.loads(packed)
    return next((bytes.fromhex(envelope) for envelope, names in owners.items() if who in names or not names), None)


def rewarded_people(packed: bytes) -> list[str]:
    """Whose they are; nobody's of those that are everyone's who has sent."""
    owners: dict[str, list[str]] = json.loads(packed)
    return [who for names in owners.values() for who in names]


def _set_back_words(refusal: CrowdFLError) -> str:
    return str(refusal) if isinstance(refusal, RolledBack) else f"one of the servers was set back: {refusal}"


class RoundSteps:
    """`step` takes the next one of a task's last round, if there is one to take."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core = core
        self._ports = core.ports
        self._aggregators = aggregators
        self._csp = CspLink(core)
        self._last_look: dict[str, tuple[int, int]] = {}  # by task: round, uploads in it
        self._opened: dict[str, tuple[int, frozenset[str]]] = {}  # by task: the last round that CSP was told of
        self._heard: set[str] = set()  # ended tasks whose last word this process has asked for
        self.dropped = 0  # uploads, by this process

    def step(self, task: str) -> bool:
        last = self._core.last_round(task)
        if last is not None and last.state is RoundState.OPEN:
            return self._decide(task, last.number) or self._head_start(task, last.number)
        if last is not None and last.state in UNDER_WAY and not self._waits_for_late(task, last):
            return self._as_csp_allows(task, last)
        return False

    def due(self, task: str, last: Round) -> bool:
        """Whether `step` has something to do with this round, by reading alone."""
        if last.state in UNDER_WAY:
            return not self._waits_for_late(task, last)
        uploaded, missing = self._ports.store.turnout(task, last.number)
        return self._core.decided(task, last, uploaded, missing) != last or self._is_quiet(task, last.number, uploaded)

    def _waits_for_late(self, task: str, last: Round) -> bool:
        """Whether an average is held for uploads that may still come; of a task that has ended none may."""
        if last.state is not RoundState.HELD or self._ports.store.task(task).state in ENDED:
            return False
        definition = self._core.definition(task)
        uploaded, missing = self._ports.store.turnout(task, last.number)
        about = definition.settings, self._core.now(), uploaded, uploaded + missing, definition.plan
        return not last.is_gathered(*about)

    def can_open(self, stored: StoredTask, last: Round | None) -> bool:
        """Whether `open_next` has something to do, if there is a next round: people, money, and what the plan says."""
        task = stored.task
        settings = self._core.definition(stored.task).settings
        if _next_number(last) > settings.rounds or not self._core.options.opens_rounds:
            return False
        if self.is_deserted(task, last):
            return True
        if not self._core.has_time(task):  # nothing is paid for what could not be closed; it ends with its last day
            return False
        enough = self._core.active(task) >= self._core.needed(task, last)
        cost = self._core.definition(task).plan.round_cost(settings, first=last is None)
        if not enough or self._core.ledger(task).balance(ESCROW) < cost:
            return False
        return stored.ready_at is None or self._core.now() >= self._core.opening(task, stored.ready_at, last)

    def open_next(self, task: str) -> bool:
        """The next round, once there are enough people and enough money, at its time; False also when there is none left."""
        if self.hear_end(task):
            return True
        with self._ports.store.transaction():  # what was true a moment ago may not be any more: an order may have come
            stored = self._ports.store.task(task)
            last = self._core.last_round(task)
            ready = stored.state == TaskState.RUNNING and (last is None or last.is_over)
            if not ready or not self.can_open(stored, last):
                return False
            if self.is_deserted(task, last):
                self._end_deserted(task)
                return True
            if self._core.now() < self._core.opening(task, stored.ready_at, last):
                self._ports.store.change_task(task, ready_at=self._core.now())
                return True
            self._ports.store.change_task(task, ready_at=None)
            budget = self._core.definition(task).settings.budget
            self._open(task, _next_number(last), to_millionths(budget or 0))
        self.burn(task)  # of one that was given up meanwhile
        return True

    def is_deserted(self, task: str, last: Round | None) -> bool:
        """Whether too few have joined for a first round, and nobody can join any more."""
        definition = self._core.definition(task)
        over = self._core.now() > definition.plan.enrolment_end
        return last is None and over and self._core.active(task) < definition.settings.min_participants

    def _end_deserted(self, task: str) -> None:
        found = self._core.active(task)
        needed = self._core.definition(task).settings.min_participants
        why = f"{found} had joined when enrolment ended, and {needed} are needed"
        cancel_task(self._core.sure_books, task, Tombstone("cancelled", EndedBy.PLAN, why), self.abort)

    def open(self, task: str, payment: int, *, final: bool = False) -> int:
        """Open the next round at once, for a caller that opens rounds itself; its number."""
        self.hear_end(task)
        with self._ports.store.transaction():
            last = self._core.last_round(task)
            number = _next_number(last)
            rounds = self._core.definition(task).settings.rounds
            if number > rounds:
                raise RoundsExhausted(f"round {number} of {rounds}: the masks were sized for those")
            if self._ports.store.task(task).state != TaskState.RUNNING:
                raise TaskNotRunning("the task is not running: no further round can be opened")
            if not self._core.has_time(task):
                raise TaskNotRunning(
                    "the last day of rounds comes before another one could be over: define another task"
                )
            self._open(task, number, payment, final=final)
        return number

    def end_due(self, stored: StoredTask) -> bool:
        """Of a task that has ended: whether people still wait for CSP's word about its last round, which was given up."""
        if stored.state not in (TaskState.FINISHED, TaskState.CANCELLED) or stored.task in self._heard:
            return False
        last = self._core.last_round(stored.task)
        return last is not None and last.state is RoundState.ABORTED and last.word is None

    def hear_last_end(self, task: str) -> bool:
        """Once: a CSP that refuses it says nothing later either."""
        heard = self.hear_end(task)
        self._heard.add(task)
        return heard

    def hear_end(self, task: str) -> bool:
        """Before the next round: CSP's signed word about one that was given up. Without it no phone sends anything.

        A CSP that cannot say what it has shown, or has opened a sum which SP has not got, ends the task.
        """
        last = self._core.last_round(task)
        if last is None or last.state is not RoundState.ABORTED or last.word is not None:
            return False
        sp = self._aggregators.checking(task)
        if not isinstance(sp, HearsEnds):
            return False
        try:
            reply = whole(self._ports.csp.answer(task, *sp.ask_end(last.number)))
        except (TaskEnded, RoundEnded) as refusal:
            self.end_with_csp(task, str(refusal))
            return True
        except _SET_BACK as refusal:
            self.end_with_csp(task, _set_back_words(refusal))
            return True
        is_opened = sp.is_opened(reply, last.number)
        changed = keep_results(self._ports.blobs, task, last, word=reply)
        with contextlib.suppress(Conflict), self._ports.store.transaction():
            self._ports.store.set_round(task, last, changed)
        if is_opened and isinstance(profile_named(self._core.definition(task).settings.profile), DealsFiles):
            self.end_with_csp(task, f"CSP has opened a sum of round {last.number} that SP has not got")
        return True

    def _open(self, task: str, number: int, payment: int, *, final: bool = False) -> None:
        """Prepaid before it opens."""
        definition = self._core.definition(task)
        kept = definition.plan.unused_budget(definition.settings)
        more = [Ledger.fund_unused(number, kept)] if kept else []
        bonuses = definition.settings.bonus_budget if number == 1 and payment else 0
        more += [Ledger.fund_bonuses(bonuses)] if bonuses else []
        self._ports.store.post(task, Ledger.fund_round(number, payment), *more)
        self._core.keep_round(task, Round(number, self._core.now(), final=final))

    def abort(self, task: str, current: Round, why: str = Void.CANCELLED, rejected: str | None = None) -> None:
        """Give a round up, unless it has changed (`Conflict`): its money returns to escrow. The caller holds a transaction."""
        give_up_round(self._ports.store, task, current, why, rejected)
        self._aggregators.forget(task, current.number)

    def out_of_patience(self, task: str, current: Round) -> bool:
        """Whether CSP has stayed away longer than anyone can wait."""
        last_call = current.last_call(self._core.definition(task).settings)
        return self._core.now() > last_call + self._core.options.csp_patience

    def _decide(self, task: str, number: int) -> bool:
        store = self._ports.store
        with store.transaction():
            current = store.round(task, number)
            uploaded, missing = store.turnout(task, number)
            decided = self._core.decided(task, current, uploaded, missing)
            if decided == current or store.task(task).state == TaskState.PAUSED:
                return False
            if decided.state is RoundState.ABORTED:
                enough = uploaded >= self._core.definition(task).settings.min_participants
                self.abort(task, current, Void.NO_REFERENCE if enough else Void.TOO_FEW)
            else:
                closed = None if decided.state is RoundState.OPEN else self._core.now()
                self._core.keep_round(task, replace(decided, closed_at=closed), current)
        return True

    def _is_quiet(self, task: str, number: int, uploaded: int) -> bool:
        """Add up while no uploads come: receiving them matters more, and what is left is added up at the close."""
        before = self._last_look.get(task)
        self._last_look[task] = number, uploaded
        return before == (number, uploaded) and self._aggregators.is_behind(task, number, uploaded)

    def _head_start(self, task: str, number: int) -> bool:
        if not self._aggregators.is_behind(task, number, self._ports.store.turnout(task, number)[0]):
            return False
        try:
            return self._aggregators.add_new(task, number, _PIECE) > 0
        except UploadDamaged:
            return self._drop_damaged(task, self._ports.store.round(task, number))

    def _as_csp_allows(self, task: str, current: Round) -> bool:
        """Since when CSP is away is remembered, for the operator. A CSP that has ended the task ends it here too.

        So does one that has opened a sum which SP has not got: every later model would follow from it; and one that does not
        know the sum which SP has got, or signs a record of another model: it was set back, or SP was.
        """
        store = self._ports.store
        stored = self._ports.store.task(task)
        since = stored.csp_away_since
        try:
            moved = self._with_csp(task, stored.state, current)
        except (TaskEnded, BaseSpent) as refusal:
            self.end_with_csp(task, str(refusal))
            return True
        except _SET_BACK as refusal:
            by = EndedBy.SP if isinstance(refusal, RolledBack) and refusal.is_own else EndedBy.CSP
            self.end_with_csp(task, _set_back_words(refusal), by)
            return True
        except (ServiceError, ConnectionError):
            if since is None:
                store.change_task(task, csp_away_since=self._ports.clock.now())
            raise
        if since is not None:
            store.change_task(task, csp_away_since=None)
        return moved

    def end_with_csp(self, task: str, reason: str, by: EndedBy = EndedBy.CSP) -> None:
        """CSP answers this task no more, or must not be asked: no round will ever be computed."""
        with self._ports.store.transaction():
            last = self._core.last_round(task)
            if last is not None and last.state in UNDER_WAY:
                self.abort(task, last, Void.CSP_ENDED)
        with contextlib.suppress(TaskNotRunning):  # it has ended meanwhile
            ending = Tombstone("cancelled", by, printable(reason, LONGEST_REASON))
            cancel_task(self._core.sure_books, task, ending, self.abort)

    def _with_csp(self, task: str, state: str, current: Round) -> bool:
        """A CSP that has ended a round, or stays away longer than anyone can wait, costs the round, and no money.

        So does one that was asked for this step with other contents before (SP was restored from a backup to before that),
        and one whose reply SP has lost. Whom the servers left out is kept of a round that they gave up for it too.
        """
        number = current.number
        try:
            if not current.asked:
                self._drop_damaged(task, current)
            elif averages_again(self._core.definition(task).settings):
                self._average_again(task, state, current)
            elif current.state is RoundState.CLOSED and (
                payment := self._core.ledger(task).balance(round_account(number))
            ):
                self._weigh(task, state, current, payment)
            else:
                self.publish(task, state, current, final=self._core.is_final(task, current))
        except (BaseSpent, *_SET_BACK):
            raise
        except (CrowdFLError, ConnectionError) as failure:
            # CSP was asked with it, or must be: without it, masks would serve twice, or not at all.
            if isinstance(failure, UploadDamaged | ReplyLost | DealtMaterialDamaged):
                why = type(failure).__name__
                self._core.options.events("round void", task=task, number=number, error=why)
            elif not isinstance(failure, RoundEnded | OutOfTurn) and not self.out_of_patience(task, current):
                raise
            rejected = _packed(failure.rejected) if isinstance(failure, RoundEnded) else None
            void = keep_results(self._ports.blobs, task, current, rejected=rejected)
            with contextlib.suppress(Conflict), self._ports.store.transaction():
                self.abort(task, current, _why_void(failure), void.rejected)
            self.burn(task)
        return True

    def _drop_damaged(self, task: str, current: Round) -> bool:
        """Leave out what is no longer as it was acknowledged, before CSP hears of the round. True if there was something.

        Its owner may send it again while the round is open. A closed round in which too few are left is given up. If all is
        well with a closed round, its uploads are settled from now on: CSP answers for one set of them only. Where late ones are
        averaged in, all are settled once they are gathered.
        """
        number = current.number
        store = self._ports.store
        damaged = self._aggregators.damaged(task, number)
        for upload in damaged:  # first: while the upload stands in the books, nobody writes a new file under its name
            self._ports.blobs.delete(upload_name(task, number, upload.digest))
        with store.transaction():
            if damaged:
                if store.round(task, number) != current:
                    return True
                store.drop_uploads(task, number, damaged)
            if current.state is RoundState.OPEN:
                pass
            elif store.turnout(task, number)[0] < self._core.definition(task).settings.min_participants:
                self.abort(task, current, Void.TOO_FEW)  # some were damaged or taken back
            elif current.state is RoundState.HELD:
                store.set_round(task, current, replace(current, state=RoundState.GATHERED))
            else:
                store.set_round(task, current, replace(current, asked=True))
        if damaged:
            self._aggregators.forget(task, number)
            self.dropped += len(damaged)
            self._core.options.events("uploads damaged", task=task, number=number, uploads=len(damaged))
        return bool(damaged)

    def _weigh(self, task: str, state: str, current: Round, payment: int) -> None:
        """Rewards first: of a round that cannot be rewarded nobody gets the average either."""
        round_ = self._round(task, current)
        packed = pack_envelopes(round_.reward(payment), self._ports.store.turnout(task, current.number)[0])
        self._set(task, state, current, RoundState.WEIGHED, round_.rejected, rewards=packed)

    def _average_again(self, task: str, state: str, current: Round) -> None:
        """The next transition of a round that late uploads are averaged into: each sets one record.

        closed: averaged, held. held: gathered. gathered: what is held is erased if it is of other uploads, then averaged once
        more, then published. published: rewarded."""
        if current.state is RoundState.HELD:
            self._drop_damaged(task, current)
            return
        round_, held = self._round(task, current), self._held(task, current)
        is_of_all = held is not None and round_.take_held(held)
        if current.state is RoundState.PUBLISHED:
            self._reward_published(task, state, current, round_)
        elif is_of_all:
            pays = self._core.ledger(task).balance(round_account(current.number)) > 0
            after = RoundState.PUBLISHED if pays else RoundState.REWARDED
            self.publish(task, state, current, final=self._core.is_final(task, current), after=after)
        elif current.held is not None:
            with contextlib.suppress(Conflict), self._ports.store.transaction():
                self._ports.store.set_round(task, current, replace(current, held=None))
        else:
            self._erase_held(task, current.number)
            after = RoundState.HELD if current.state is RoundState.CLOSED else RoundState.GATHERED
            self._set(task, state, current, after, round_.rejected, held=round_.hold())

    def _held(self, task: str, current: Round) -> bytes | None:
        """The average that is held; None if there is none, or if its file is not as it was written: it is made again."""
        if current.held is None:
            return None
        try:
            held = read_result(self._ports.blobs, task, current, "held")
        except NotReady:
            return None
        return held if hashlib.sha256(held).hexdigest() == current.held else None

    def _erase_held(self, task: str, number: int) -> None:
        """The average, and what CSP answered for it. Idempotent."""
        self._ports.blobs.clear(result_folder(task, number, "held"))
        forget_replies(self._ports.store, self._ports.blobs, task, number)

    def _reward_published(self, task: str, state: str, current: Round, round_: AggregationRound) -> None:
        """What was published is rewarded, by the average that was."""
        number = current.number
        envelopes = round_.reward(self._core.ledger(task).balance(round_account(number)))
        packed = pack_envelopes(envelopes, self._ports.store.turnout(task, number)[0])
        self._set(task, state, current, RoundState.REWARDED, round_.rejected, rewards=packed)
        self._aggregators.forget(task, number)
        self.burn(task)

    def publish(
        self, task: str, state: str, current: Round, *, final: bool, after: RoundState = RoundState.REWARDED
    ) -> None:
        """Average to an audience."""
        number = current.number
        round_ = self._round(task, current)
        publication = round_.average(final=final)
        kind = publication_kind(self._core.audience(task, final=final))
        made = {kind: publication, "left_over": round_.carry_over()}
        if kind == "model" and current.average is None and isinstance(round_.sp, ShowsRecord):
            made["average"] = round_.sp.record_publication()
        if self._set(task, state, current, after, round_.rejected, **made):
            self._core.options.events("average published", task=task, number=number, final=final)
        if after is RoundState.REWARDED:
            self._aggregators.forget(task, number)
            self.burn(task)

    def _set(
        self,
        task: str,
        state: str,
        current: Round,
        after: RoundState,
        rejected: Mapping[str, str],
        **made: bytes | None,
    ) -> bool:
        """What a step has made: files, then the record that names them, with the money, if task and round are as they were when
        the step began. Else another process has gone on: False, and files that no record will name are deleted."""
        store = self._ports.store
        blobs = self._ports.blobs
        number = current.number
        changed = replace(current, state=after, held=None if after is RoundState.REWARDED else current.held)
        changed = keep_results(blobs, task, changed, rejected=_packed(rejected), **made)
        try:
            with store.transaction():
                if store.task(task).state != state:
                    raise Conflict("the task is not as it was when this step began")
                store.set_round(task, current, changed)
                if after is RoundState.REWARDED and not current.is_over:
                    store.post(task, *self._core.ledger(task).rewards_of_round(number, self._fixed(task, changed)))
        except Conflict:
            drop_surplus(blobs, task, changed, store.round(task, number))
            return False
        if changed.rejected != current.rejected:
            self._core.options.events("uploads rejected", task=task, number=number, uploads=len(rejected))
        return True

    def _fixed(self, task: str, current: Round) -> int | None:
        """Millionths that a round of fixed pay owes all whom CSP's record accepts; None of other pay."""
        each = self._core.definition(task).settings.each_round
        if not each or current.rewards is None:
            return None
        named = rewarded_people(read_result(self._ports.blobs, task, current, "rewards"))
        return each * (len(named) or self._ports.store.turnout(task, current.number)[0])

    def opened_due(self, stored: StoredTask) -> bool:
        """Of a task with a bonus: whether CSP was not told yet whom an open round asks, by this process."""
        if not self._core.definition(stored.task).settings.bonus_each:
            return False
        last = self._core.last_round(stored.task)
        if last is None or last.state is not RoundState.OPEN:
            return False
        return self._opened.get(stored.task) != self._asked_by(stored.task, last)

    def tell_opened(self, task: str) -> bool:
        """Idempotent: the same people again change nothing."""
        last, sp = self._core.last_round(task), self._aggregators.checking(task)
        if last is None or last.state is not RoundState.OPEN or not isinstance(sp, PaysBonus):
            return False
        asked = self._asked_by(task, last)
        with contextlib.suppress(OutOfTurn, RoundEnded):  # it has begun there: nobody else is asked
            _, people = asked
            self._ports.csp.answer(task, *sp.tell_opened(last.number, people))
        self._opened[task] = asked
        return True

    def _asked_by(self, task: str, last: Round) -> tuple[int, frozenset[str]]:
        return last.number, self._ports.store.drawn(task, last.number)

    def burn(self, task: str) -> None:
        """What rounds that are over need no more: CSP's replies, what was dealt for them, what all but the last of them left.

        Idempotent: the next step repeats it, after a crash in between too. The last average of a hidden total is scaled again
        if it is the requester's in the end, by the replies that are kept."""
        over = [r for r in self._ports.store.rounds(task) if r.is_over]
        definition = self._core.definition(task)
        done = [r for r in over if r.state is RoundState.REWARDED]
        kept = done[-1:] if definition.settings.total == "hidden" else []
        for round_ in over:
            if averages_again(definition.settings):
                self._ports.blobs.clear(result_folder(task, round_.number, "held"))
            if round_ not in kept:
                forget_replies(self._ports.store, self._ports.blobs, task, round_.number)
        if file_sizes(definition):
            self._core.dealt.burn(definition, [r.number for r in over])
        for before, after in itertools.pairwise(done):
            if before.left_over is not None and not self._may_come_unused(task, after):
                self._ports.blobs.delete(result_name(task, before.number, "left_over", before.left_over))

    def _may_come_unused(self, task: str, current: Round) -> bool:
        """Whether uploads to a round that is over are still checked, by what it began with, and owed for."""
        definition = self._core.definition(task)
        return definition.plan.each_unused > 0 and self._core.probably_now() <= current.last_call(definition.settings)

    def _round(self, task: str, current: Round) -> AggregationRound:
        sp = self._aggregators.complete(task, current.number)
        observer = self._core.options.tools.observer
        return AggregationRound(sp, self._csp.ask(task, current, sp), observer)


def _why_void(failure: Exception) -> str:
    if isinstance(failure, UploadDamaged | ReplyLost | DealtMaterialDamaged):
        return Void.LOST
    if isinstance(failure, RoundEnded):
        return failure.reason or Void.CSP_REFUSED
    return Void.CSP_REFUSED if isinstance(failure, OutOfTurn) else Void.CSP_AWAY


def _packed(rejected: Mapping[str, str]) -> bytes | None:
    return json.dumps(dict(rejected), sort_keys=True).encode() if rejected else None


def _next_number(last: Round | None) -> int:
    return 1 if last is None else last.number + 1
