"""A round's steps on SP: open, decide, add up, average, reward, abort. Every step is durable and can be repeated.

A process that dies inside a step leaves a state from which the next `tick`, here or in another process, takes the same step
with the same masks.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from crowdfl.errors import (
    BaseSpent,
    CrowdFLError,
    DealtMaterialDamaged,
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
from crowdfl.protocols.profile import SpProtocol
from crowdfl.protocols.round import AggregationRound
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.records import LONGEST_REASON, EndedBy, Round, RoundState, StoredTask, TaskState, Tombstone
from crowdfl.roles.sp.core import UNDER_WAY, SpCore
from crowdfl.roles.sp.csp_link import CspEnrolment, CspLink, forget_replies
from crowdfl.roles.sp.ledger import ESCROW, Ledger, round_account
from crowdfl.roles.sp.tasks import cancel_task, give_up_round
from crowdfl.roles.sp.uploads import RoundAggregators, left_name, upload_name
from crowdfl.settings import to_millionths
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


def rewards_name(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/rewards"


def rejected_name(task: str, number: int) -> str:
    """Whose uploads the servers left out, and why; not there if it is nobody's."""
    return f"{task}/rounds/{number}/rejected"


class RoundSteps:
    """`step` takes the next one of a task's last round, if there is one to take."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core, self._ports, self._aggregators = core, core.ports, aggregators
        self._csp = CspLink(core)
        self.introductions = CspEnrolment(core, self.end_with_csp)
        self._last_look: dict[str, tuple[int, int]] = {}  # by task: round, uploads in it
        self.dropped = 0  # uploads, by this process

    def step(self, task: str) -> bool:
        last = self._core.last_round(task)
        if last is not None and last.state is RoundState.OPEN:
            return self._decide(task, last.number) or self._head_start(task, last.number)
        if last is not None and last.state in UNDER_WAY:
            return self._as_csp_allows(task, last)
        return False

    def due(self, task: str, last: Round) -> bool:
        """Whether `step` has something to do with this round, by reading alone."""
        if last.state in UNDER_WAY:
            return True
        uploaded, missing = self._ports.store.turnout(task, last.number)
        return self._core.decided(task, last, uploaded, missing) != last or self._is_quiet(task, last.number, uploaded)

    def can_open(self, stored: StoredTask, last: Round | None) -> bool:
        """Whether `open_next` has something to do, if there is a next round: people, money, and what the plan says."""
        task, settings = stored.task, self._core.definition(stored.task).settings
        if _next_number(last) > settings.rounds or not self._core.options.opens_rounds:
            return False
        if self.is_deserted(task, last):
            return True
        enough = self._core.active(task) >= self._core.needed(task, last)
        cost = self._core.definition(task).plan.round_cost(settings)
        if not enough or self._core.ledger(task).balance(ESCROW) < cost:
            return False
        return stored.ready_at is None or self._core.now() >= self._core.opening(task, stored.ready_at, last)

    def open_next(self, task: str) -> bool:
        """The next round, once there are enough people and enough money, at its time; False also when there is none left."""
        with self._ports.store.transaction():  # what was true a moment ago may not be any more: an order may have come
            stored, last = self._ports.store.task(task), self._core.last_round(task)
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
            self._open(task, _next_number(last), self._payment(task))
        self.burn(task)  # of one that was given up meanwhile
        return True

    def is_deserted(self, task: str, last: Round | None) -> bool:
        """Whether too few have joined for a first round, and nobody can join any more."""
        definition = self._core.definition(task)
        over = self._core.now() > definition.plan.enrolment_end
        return last is None and over and self._core.active(task) < definition.settings.min_participants

    def _end_deserted(self, task: str) -> None:
        found, needed = self._core.active(task), self._core.definition(task).settings.min_participants
        why = f"{found} had joined when enrolment ended, and {needed} are needed"
        cancel_task(self._core.sure_books, task, Tombstone("cancelled", EndedBy.PLAN, why), self.abort)

    def _payment(self, task: str) -> int:
        budget = self._core.definition(task).settings.budget
        return to_millionths(budget) if budget is not None else 0

    def open(self, task: str, payment: int, *, final: bool = False) -> int:
        """Open the next round at once, for a caller that opens rounds itself; its number."""
        with self._ports.store.transaction():
            last = self._core.last_round(task)
            number = _next_number(last)
            rounds = self._core.definition(task).settings.rounds
            if number > rounds:
                raise RoundsExhausted(f"round {number} of {rounds}: the masks were sized for those")
            if self._ports.store.task(task).state != TaskState.RUNNING:
                raise TaskNotRunning("the task is not running: no further round can be opened")
            self._open(task, number, payment, final=final)
        return number

    def _open(self, task: str, number: int, payment: int, *, final: bool = False) -> None:
        """Prepaid before it opens."""
        definition = self._core.definition(task)
        kept = definition.plan.unused_budget(definition.settings)
        unused = [Ledger.fund_unused(number, kept)] if kept else []
        self._ports.store.post(task, Ledger.fund_round(number, payment), *unused)
        self._core.keep_round(task, Round(number, self._core.now(), final=final))

    def abort(self, task: str, current: Round) -> None:
        """Give a round up: its money returns to escrow. The caller holds a transaction."""
        give_up_round(self._ports.store, task, current)
        self._aggregators.forget(task, current.number)

    def out_of_patience(self, task: str, current: Round) -> bool:
        """Whether CSP has stayed away longer than anyone can wait."""
        last_call = current.last_call(self._core.definition(task).settings)
        return self._core.now() > last_call + self._core.options.csp_patience

    def _decide(self, task: str, number: int) -> bool:
        store = self._ports.store
        with store.transaction():
            current = store.round(task, number)
            decided = self._core.as_of_now(task, current)
            if decided == current or store.task(task).state == TaskState.PAUSED:
                return False
            if decided.state is RoundState.ABORTED:
                self.abort(task, current)
            else:
                self._core.keep_round(task, decided, current)
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
        store, since = self._ports.store, self._ports.store.task(task).csp_away_since
        try:
            moved = self._with_csp(task, current)
        except (TaskEnded, BaseSpent) as refusal:
            self.end_with_csp(task, str(refusal))
            return True
        except _SET_BACK as refusal:
            self.end_with_csp(task, f"RolledBack: CSP or SP was set back to an earlier state: {refusal}")
            return True
        except (ServiceError, ConnectionError):
            if since is None:
                store.change_task(task, csp_away_since=self._ports.clock.now())
            raise
        if since is not None:
            store.change_task(task, csp_away_since=None)
        return moved

    def end_with_csp(self, task: str, reason: str) -> None:
        """CSP answers this task no more: no round will ever be computed."""
        with self._ports.store.transaction():
            last = self._core.last_round(task)
            if last is not None and last.state in UNDER_WAY:
                self.abort(task, last)
        with contextlib.suppress(TaskNotRunning):  # it has ended meanwhile
            ending = Tombstone("cancelled", EndedBy.CSP, printable(reason, LONGEST_REASON))
            cancel_task(self._core.sure_books, task, ending, self.abort)

    def _with_csp(self, task: str, current: Round) -> bool:
        """A CSP that has ended a round, or stays away longer than anyone can wait, costs the round, and no money.

        So does one that was asked for this step with other contents before (SP was restored from a backup to before that),
        and one whose reply SP has lost.
        """
        try:
            return self._weigh_or_publish(task, current)
        except (BaseSpent, *_SET_BACK):
            raise
        except (CrowdFLError, ConnectionError) as failure:
            # CSP was asked with it, or must be: without it, masks would serve twice, or not at all.
            if isinstance(failure, UploadDamaged | ReplyLost | DealtMaterialDamaged):
                why = type(failure).__name__
                self._core.options.events("round void", task=task, number=current.number, error=why)
            elif not isinstance(failure, RoundEnded | OutOfTurn) and not self.out_of_patience(task, current):
                raise
            with self._ports.store.transaction():
                if self._still(task, current):
                    self.abort(task, current)
            self.burn(task)
            return True

    def _weigh_or_publish(self, task: str, current: Round) -> bool:
        if not current.asked and self._drop_damaged(task, current):
            return True
        payment = self._core.ledger(task).balance(round_account(current.number))
        if current.state is RoundState.CLOSED and payment > 0:
            return self._weigh(task, current, payment)
        return self._publish(task, current)

    def _drop_damaged(self, task: str, current: Round) -> bool:
        """Leave out what is no longer as it was acknowledged, before CSP hears of the round. True if there was something.

        Its owner may send it again while the round is open. A closed round in which too few are left is given up. If all is
        well with a closed round, its uploads are settled from now on: CSP answers for one set of them only.
        """
        number, store = current.number, self._ports.store
        damaged, given_up = self._aggregators.damaged(task, number), False
        for upload in damaged:  # first: while the upload stands in the books, nobody writes a new file under its name
            self._ports.blobs.delete(upload_name(task, number, upload.digest))
        with store.transaction():
            now = store.round(task, number)
            if now != current or now.asked:
                return True
            if damaged:
                store.drop_uploads(task, number, damaged)
            if current.state is not RoundState.OPEN:
                given_up = self._settle_uploads(task, current)
        if damaged:
            self._aggregators.forget(task, number)
            self.dropped += len(damaged)
            self._core.options.events("uploads damaged", task=task, number=number, uploads=len(damaged))
        return bool(damaged) or given_up

    def _settle_uploads(self, task: str, current: Round) -> bool:
        """True if too few are left, of whom some were damaged or taken back. The caller holds a transaction."""
        store, least = self._ports.store, self._core.definition(task).settings.min_participants
        if store.turnout(task, current.number)[0] < least:
            self.abort(task, current)
            return True
        store.mark_asked(task, current.number)
        return False

    def _weigh(self, task: str, current: Round, payment: int) -> bool:
        """Rewards first: of a round that cannot be rewarded nobody gets the average either."""
        name = rewards_name(task, current.number)
        if not self._ports.blobs.has(name):
            self.introductions.require_known(task, current.number)
            round_ = self._round(task, current.number)
            with self._naming(task, current.number, round_.sp):
                envelopes = round_.reward(payment)
            uploads, _ = self._ports.store.turnout(task, current.number)
            self._ports.blobs.put(name, pack_envelopes(envelopes, uploads))
        with self._ports.store.transaction():
            if self._still(task, current):
                self._ports.store.put_round(task, replace(current, state=RoundState.WEIGHED))
        return True

    def _publish(self, task: str, current: Round) -> bool:
        number = current.number
        self.publish(task, number, final=self._core.is_final(task, current))
        with self._ports.store.transaction():
            if self._still(task, current):
                self._ports.store.post(task, self._core.ledger(task).reward_round(number))
                self._ports.store.put_round(task, replace(current, state=RoundState.REWARDED))
        self._aggregators.forget(task, number)
        # A crash before this leaves them until the task is scrubbed.
        for done in self._never_computed_again(task, number):
            forget_replies(self._ports.store, self._ports.blobs, task, done)
        self.burn(task)
        return True

    def _never_computed_again(self, task: str, number: int) -> list[int]:
        """A hidden total's last average is scaled again if it is the requester's in the end: by the replies that are kept."""
        if self._core.definition(task).settings.total != "hidden":
            return [number]
        return [
            r.number for r in self._ports.store.rounds(task) if r.number < number and r.state is RoundState.REWARDED
        ]

    def publish(self, task: str, number: int, *, final: bool) -> None:
        """Average to an audience, once."""
        name, blobs = self.publication_name(task, number, final=final), self._ports.blobs
        if not blobs.has(name):
            if self._core.is_chained(task):  # CSP checks everyone's upload itself, in rounds that pay nobody too
                self.introductions.require_known(task, number)
            round_ = self._round(task, number)
            with self._naming(task, number, round_.sp):
                publication = round_.average(final=final)
            left = round_.sp.carry_over()
            if left is not None:  # first: a round with its publication is never computed again
                blobs.put(left_name(task, number), left)
            blobs.put(name, publication)
            self._core.options.events("average published", task=task, number=number, final=final)

    def publication_name(self, task: str, number: int, *, final: bool) -> str:
        """Where the average for the requester (`final`) is, or the participants'; of a chained profile they are one."""
        audience = "requester" if final and not self._core.is_chained(task) else "participants"
        return f"{task}/rounds/{number}/{audience}"

    @contextlib.contextmanager
    def _naming(self, task: str, number: int, sp: SpProtocol) -> Iterator[None]:
        """Whom the servers left out is kept, of a round that they gave up for it too."""
        try:
            yield
        except RoundEnded:
            self._keep_rejected(task, number, sp)
            raise
        self._keep_rejected(task, number, sp)

    def _keep_rejected(self, task: str, number: int, sp: SpProtocol) -> None:
        """Once: the rewards of a round and its average are of the same people."""
        rejected = dict(sp.rejected())
        if rejected:
            self._ports.blobs.put(rejected_name(task, number), json.dumps(rejected, sort_keys=True).encode())
            self._core.options.events("uploads rejected", task=task, number=number, uploads=len(rejected))

    def burn(self, task: str) -> None:
        """What was dealt for rounds that are over, and what all but the last of them left: they serve no other."""
        over = [r for r in self._ports.store.rounds(task) if r.is_over]
        definition = self._core.definition(task)
        if dealt_sizes(definition):
            self._core.dealt.burn(definition, [r.number for r in over])
        if self._core.is_chained(task):
            for before in [r.number for r in over if r.state is RoundState.REWARDED][:-1]:
                self._ports.blobs.delete(left_name(task, before))

    def _round(self, task: str, number: int) -> AggregationRound:
        sp, observer = self._aggregators.complete(task, number), self._core.options.tools.observer
        return AggregationRound(sp, self._csp.ask(task, number, sp.reply_form), observer)

    def _still(self, task: str, expected: Round) -> bool:
        """Whether a round is as it was when this step began: another process may have gone on with it meanwhile."""
        return self._ports.store.round(task, expected.number) == expected


def _next_number(last: Round | None) -> int:
    return 1 if last is None else last.number + 1
