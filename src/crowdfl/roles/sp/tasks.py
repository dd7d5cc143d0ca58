"""A task's life as its requester and its participants see it: create, pause, resume, cancel, look.

It may end before its last round: by its requester, SP's operator, CSP, by its plan, or because it took too long.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crowdfl.crypto.long_bytes import Long, sha256_of
from crowdfl.crypto.randomness import random_between
from crowdfl.documents.signed import Appointment, Definition, Order
from crowdfl.errors import DocumentError, KeyMismatch, NotReady, SettingsError, UnknownTask
from crowdfl.learning.models.forms import require_safetensors
from crowdfl.protocols.registry import profile_named
from crowdfl.reasons import Void
from crowdfl.roles.kept_file import put_long
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import (
    EndedBy,
    Round,
    RoundState,
    StoredTask,
    TaskState,
    TaskStatus,
    Tombstone,
    last_claims,
)
from crowdfl.roles.retention import ended
from crowdfl.roles.sp.closing import Closing
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, LedgerPorts, SpCore, require_running
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.settings import require_claim_window

_UNEVEN = 1.5  # times the shortest, so that a crowd that comes at once spreads out
_LONGEST_REST = 1800.0  # seconds: the plan may change, and a phone ends with its battery

Abort = Callable[[str, Round], None]
"""Give an open round up, in a transaction that its caller holds."""


def longest_turn(active: int, looks_per_second: float) -> float:
    """Seconds until so many idle phones have all looked, if none asks more often than it is told."""
    return _UNEVEN * active / looks_per_second


def cancel_task(ports: LedgerPorts, task: str, ending: Tombstone, abort: Abort | None = None) -> None:
    """No further round; an open one is aborted, a closed one is finished, what is earned stays claimable. Idempotent.

    The time to claim begins when that round is over: until then claims are refused.
    """
    store = ports.store
    with store.transaction():
        state = store.task(task).state
        if state == TaskState.CANCELLED:
            return
        require_running(state)
        give_time_back(ports, task)
        rounds = store.rounds(task)
        if rounds and rounds[-1].state is RoundState.OPEN:
            (abort or (lambda _task, last: give_up_round(store, task, last)))(task, rounds[-1])
        now = ports.clock.now()
        hangs = bool(rounds) and rounds[-1].state in UNDER_WAY
        store.change_task(task, state=TaskState.CANCELLED, ended_at=None if hangs else now, end=ending)


def give_up_round(
    store: SpStore, task: str, current: Round, why: str = Void.CANCELLED, rejected: str | None = None
) -> None:
    """For good: its money returns to escrow, and its seeds are erased; `Conflict` if it is not as it was read. The caller holds
    a transaction."""
    rejected = rejected or current.rejected
    aborted = replace(current, state=RoundState.ABORTED, rejected=rejected, held=None, void=str(why))
    store.set_round(task, current, aborted)
    store.post(task, Ledger(store.movements(task)).abort_round(current.number))
    store.erase_seeds(task, current.number)


def give_time_back(ports: LedgerPorts, task: str) -> None:
    """A pause takes nothing from a round's window."""
    store = ports.store
    since = store.task(task).paused_at
    rounds = store.rounds(task)
    if since is not None:
        store.change_task(task, paused_at=None)
        if rounds and rounds[-1].state in (RoundState.OPEN, *UNDER_WAY):
            lost = max(0.0, ports.clock.now() - since)
            store.set_round(task, rounds[-1], replace(rounds[-1], opened_at=rounds[-1].opened_at + lost))


def _weights(task: str) -> str:
    return f"{task}/initial"


class Tasks:
    """Of one SP. `abort` gives up an open round, whose money returns; `closing` tells CSP of an end."""

    def __init__(self, core: SpCore, abort: Callable[[str, Round], None], closing: Closing) -> None:
        self._core = core
        self._ports = core.ports
        self._abort = abort
        self._closing = closing

    def create(self, definition: str, appointment: str, initial: Long | None) -> str:
        """Take a task over: papers checked, key fetched, CSP told. Idempotent.

        Without `initial` it is taken over if its first weights are here; else `NotReady`, once nothing else is wrong."""
        if initial is not None:
            self.take_weights(definition, appointment, initial)
        opened, appointed = self._papers(definition, appointment)
        ports, task = self._ports, opened.task
        if not self.has_weights(definition):
            raise NotReady("the task's first weights are not here: send them in pieces, then the task once more")
        kept = ports.bundles.has(f"{task}.sp")
        if kept:
            bundle = ports.bundles.get(f"{task}.sp")
        else:
            _, _, bundle = ports.kgc.bundle(task)
        profile = profile_named(opened.settings.profile)
        try:
            appointed.require_key(profile.sp(opened.spec, bundle, self._core.options.tools).fingerprint)
        except KeyMismatch:  # no task comes of it
            ports.blobs.delete(_weights(task))
            raise
        if not kept:
            ports.bundles.put(f"{task}.sp", bundle)
        if not self._is_known(task):  # else all of it was here before, and some may be burnt
            self._core.dealt.fetch(opened, ports.kgc)
        ports.kgc.acknowledge(task)
        ports.csp.prepare(task)
        destroyed = ports.kgc.acknowledge(task)  # once more: CSP has acknowledged too, and rounds need no KGC then
        with ports.store.transaction():  # of two that come at once, the second sees the first
            self._require_place(opened)
            ports.store.add_task(StoredTask(task, definition, appointment, TaskState.RUNNING, sole_holder=destroyed))
        return task

    def has_weights(self, definition: str) -> bool:
        return self._ports.blobs.has(_weights(Definition.open(definition).task))

    def take_weights(self, definition: str, appointment: str, initial: Long) -> None:
        """The first weights of a task that KGC has made and that would be taken over: that asks no other server. Idempotent."""
        opened, _ = self._papers(definition, appointment, len(initial))
        if sha256_of(initial).hex() != opened.initial:
            raise DocumentError("the initial weights are not those the definition names")
        require_safetensors(opened.shape, len(initial), lambda part: bytes(initial[part]))
        put_long(self._ports.blobs, _weights(opened.task), initial)

    def _papers(self, definition: str, appointment: str, initial: int = 0) -> tuple[Definition, Appointment]:
        """Those of a task that may be taken over, with first weights of so many bytes."""
        opened = Definition.open(definition)
        self._require_not_over(opened.task)
        appointed = Appointment.open(appointment, self._ports.kgc_key)
        if appointed.task != opened.task:
            raise DocumentError("this appointment is for another task")
        self._require_acceptable(opened, initial)
        return opened, appointed

    def _require_not_over(self, task: str) -> None:
        """Its keys are erased: what is left of it can be read, and no round will ever follow."""
        with contextlib.suppress(UnknownTask):
            stored = self._ports.store.task(task)
            if stored.state == TaskState.SETTLED:
                raise ended(stored)

    def _require_acceptable(self, definition: Definition, initial: int) -> None:
        """Of a new task: within this platform's limits, and with time to claim what would return to the requester."""
        if self._is_known(definition.task):
            return
        options = self._core.options
        options.quotas.require(definition, self._core.now())
        options.quotas.require_initial(initial)
        self._require_place(definition)
        if definition.settings.budget is not None:
            require_claim_window(definition.claim_window, options.min_claim_window)
        own = b"" if options.signing is None else options.signing.public
        if definition.recruiter not in (b"", own):
            raise SettingsError(
                f"this platform recruits by the key {own.hex() or 'of nobody'}, and the task names another: compare `sp_key` "
                "in the requester's settings with what the platform's operator tells you"
            )
        if definition.payer != (options.payer if definition.settings.budget is not None else b""):
            known = (
                f"the key {options.payer.hex()}: ask its holder whether that is right, then set"
                if options.payer
                else "no key: leave out"
            )
            raise SettingsError(f"this platform pays people out by {known} `payer_key` in the requester's settings")

    def _require_place(self, definition: Definition) -> None:
        if not self._is_known(definition.task):
            self._core.options.quotas.require_place(definition, self._ports.store.tasks())

    def _is_known(self, task: str) -> bool:
        with contextlib.suppress(UnknownTask):
            self._ports.store.task(task)
            return True
        return False

    def order(self, task: str, order: str) -> None:
        """A signed order of the requester's: pause, resume or cancel."""
        self._core.now()  # it counts from the moment it is given, which must be known
        opened = Order.open(order, self._core.definition(task).requester)
        actions = {"pause": self._pause, "resume": self._resume, "cancel": self._cancel}
        if opened.task != task or opened.action not in actions:
            raise DocumentError(f"an order names this task and one of {', '.join(actions)}")
        if opened.action == "cancel":
            self._closing.keep(task, bytes.fromhex(opened.closing))
        with self._ports.store.transaction():  # a delayed "pause" must not undo the "resume" that was signed after it
            before = self._ports.store.task(task).ordered_at
            if before is not None and opened.at < before:
                raise DocumentError("a later order was given since: this one is out of date")
            actions[opened.action](task)
            self._ports.store.change_task(task, ordered_at=opened.at)

    def _pause(self, task: str) -> None:
        self._core.require_running(task)
        before = self._ports.store.task(task).paused_at
        since = self._core.now() if before is None else before
        self._ports.store.change_task(task, state=TaskState.PAUSED, paused_at=since)

    def _resume(self, task: str) -> None:
        self._core.require_running(task)
        give_time_back(self._core.sure_books, task)
        self._ports.store.change_task(task, state=TaskState.RUNNING)

    def _cancel(self, task: str) -> None:
        cancel_task(self._core.sure_books, task, Tombstone("cancelled", EndedBy.REQUESTER), self._abort)

    def statement(self, task: str) -> Ledger:
        settled = self._ports.store.task(task).state == TaskState.SETTLED
        return self._core.ledger(task).for_requester(settled=settled)

    def deposits(self, task: str) -> list[dict[str, Any]]:
        """What the requester has announced, and what became of it."""
        found = self._ports.store.deposits(task)
        return [{"name": one.name, "amount": one.amount, "state": str(one.state)} for one in found]

    def status(self, task: str) -> dict[str, Any]:
        found = self._ports.store.status(task)
        settings = self._core.definition(task).settings
        return {
            "task": task,
            "now": self._core.probably_now(),
            "state": found.state,
            "ended": None if found.end is None else found.end.coded(),
            "key": settings.key,
            "insecure": settings.is_insecure,
            "epoch": found.epoch,
            "dropped": found.dropped,
            "claim_seconds_left": self._time_to_claim(task, found),
            "claims_extended": found.claims_extended,
            "enrolled": found.active,
            "enrolment": self._enrolment(task, found),
            "places_left": max(0, settings.max_participants - found.places_taken),
            "listed": None if not self._core.definition(task).recruits else found.listed,
            "next_round": self._next_round(task, found),
            "come_back": self._come_back(task, found),
            "rounds": [
                {
                    "number": r.number,
                    "state": str(r.state),
                    "last_call": r.last_call(
                        settings
                    ),  # its end, for everyone; as if it were resumed when it was paused
                    "uploads": uploads,
                    "drawn": drawn or None,  # how many; None: everyone is in it
                    # CSP never heard of it: nobody has learnt anything from its uploads.
                    "unused": r.state is RoundState.ABORTED and not r.asked,
                }
                | ({"reference": self._core.has_reference(task, r.number)} if settings.reference else {})
                for r, uploads, drawn in found.rounds
            ],
        }

    def _enrolment(self, task: str, found: TaskStatus) -> str:
        """Whether somebody can join now: open, full, over (as the plan says) or ended."""
        definition = self._core.definition(task)
        last = found.rounds[-1][0] if found.rounds else None
        through = last is not None and last.number >= definition.settings.rounds and last.state is not RoundState.OPEN
        if found.state in ENDED or through:
            return "ended"
        if self._core.probably_now() > definition.plan.enrolment_end:
            return "over"
        return "full" if found.places_taken >= definition.settings.max_participants else "open"

    def _next_round(self, task: str, found: TaskStatus) -> float | None:
        """When the next round opens if people and money are there by then; None where no plan says, and during a round."""
        definition = self._core.definition(task)
        last = found.rounds[-1][0] if found.rounds else None
        going_on = found.state == TaskState.RUNNING and (last is None or last.is_over)
        left = last is None or last.number < definition.settings.rounds
        if not going_on or not left or not self._core.clock_is_sure():
            return None
        opening = self._core.opening(task, found.ready_at, last)
        return opening if opening > self._core.now() else None

    def _come_back(self, task: str, found: TaskStatus) -> float:
        """In how many seconds a phone with nothing to do looks again: each is told another moment, so that all of them
        together look as often a second as SP is set to answer, whatever the window."""
        opening = self._next_round(task, found)
        wait = 0.0 if opening is None else min(opening - self._core.now(), _LONGEST_REST)
        latest = longest_turn(found.active, self._core.options.looks_per_second)
        return round(wait + random_between(latest / _UNEVEN, latest), 1)

    def _time_to_claim(self, task: str, found: TaskStatus) -> float | None:
        """Seconds until the unclaimed is returned; None before the end, and while the clock is in doubt.

        A duration: a phone's clock may be wrong.
        """
        if found.ended_at is None or not self._core.clock_is_sure():
            return None
        return max(0.0, last_claims(self._core.definition(task), found.claims_extended) - self._ports.clock.now())
