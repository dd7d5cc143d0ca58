"""What every concern of SP shares: the ports, the options, and look-ups that are the same for all."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from crowdfl.crypto.compute import Backend, Threads
from crowdfl.crypto.randomness import random_sample, secret_hex
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import ClockInDoubt, Forbidden, TaskNotRunning, TooLate
from crowdfl.protocols.profile import Audience, Identity, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.dealt import DealtFiles
from crowdfl.roles.guard import Guard
from crowdfl.roles.limits import SpQuotas
from crowdfl.roles.ports import Blobs, Clock, CspPeer, Events, KgcPeer, SpStore, ignore_event
from crowdfl.roles.records import Round, RoundState, StoredPayment, TaskState
from crowdfl.roles.retention import ended
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.time import ClockWatch

MOST_IDENTITIES = 10_000  # at hand
ENDED = (TaskState.FINISHED, TaskState.CANCELLED, TaskState.SETTLED)
UNDER_WAY = (
    RoundState.CLOSED,
    RoundState.HELD,
    RoundState.GATHERED,
    RoundState.PUBLISHED,
    RoundState.WEIGHED,
)


Draw = Callable[[int, Sequence[str], int], Sequence[str]]
"""So many of these people, in the order they joined, for the round of this number."""


def draw_at_random(_number: int, people: Sequence[str], count: int) -> list[str]:
    """By the operating system's randomness: nobody can tell beforehand who is in a round."""
    return random_sample(people, count)


_Result = TypeVar("_Result")


class StepRunner:
    """Who takes the tasks' steps. Here: whoever looks for them, one after the other. A service has threads."""

    patience = 0.0  # seconds that a look waits for a step's end

    def begin(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """A task's step; a few are computed at a time."""
        return done(work)

    def beside(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """A wait for a peer, while its step goes on."""
        return done(work)

    def waiting(self) -> AbstractContextManager[None]:
        """Where a step waits for a peer: another task's is computed meanwhile."""
        return nullcontext()


def done(work: Callable[[], _Result], future: "Future[_Result] | None" = None) -> "Future[_Result]":
    """What came of it, here and now."""
    future = future or Future()
    try:
        future.set_result(work())
    except BaseException as failure:  # noqa: BLE001 -- raised for whoever asks for the result
        future.set_exception(failure)
    return future


def reference_name(task: str, number: int) -> str:
    """The requester's own upload of a round: it goes when the others' do."""
    return f"{task}/rounds/{number}/uploads/reference"


class Failures:
    """What becomes of a task whose step failed. Here: whoever asked for the step is told. A service lets the task back off."""

    def is_backing_off(self, task: str) -> bool:
        del task
        return False

    def record_failure(self, task: str, failure: Exception) -> Exception | None:
        """What is to be raised once the other tasks had their step."""
        del task
        return failure

    def record_success(self, task: str) -> None: ...

    def count(self) -> int:
        """Tasks and chores of tasks that failed last."""
        return 0


@dataclass
class LedgerPorts:
    """What deposits, payments and the end of a task need; most of it takes a clock that says nothing while it is in doubt."""

    store: SpStore
    clock: Clock


@dataclass
class SpPorts(LedgerPorts):
    """What SP reaches outside itself."""

    blobs: Blobs
    bundles: Blobs
    guard: Guard
    kgc: KgcPeer
    csp: CspPeer
    kgc_key: bytes


@dataclass
class SpOptions:
    """How an SP process works; the defaults are those of a single process."""

    tools: Tools = field(default_factory=Tools.unwatched)
    checker: Backend = field(default_factory=lambda: Threads(1))  # where uploads are validated as they come
    owner: str = field(default_factory=lambda: secret_hex(8))
    on_paid: Callable[[StoredPayment], None] | None = None  # pays; raises `PaymentFailed` if it surely did not
    failures: Failures = field(default_factory=Failures, repr=False)
    runner: StepRunner = field(default_factory=StepRunner, repr=False)
    lease_seconds: float = 30.0  # how long a killed process keeps others waiting; two at once would send the same bytes
    csp_patience: float = 86400.0  # seconds after a round's end until a CSP that stays away costs the round
    signing: SigningKey | None = field(default=None, repr=False)  # signs receipts, and invitations where SP recruits
    max_joins: int = 2**31 - 1  # places of a task that SP gives out in an hour
    payer: bytes = b""  # whom participants tell where to be paid
    push_hosts: Sequence[str] = ()  # that reminders may go to
    looks_per_second: float = 50.0  # of all idle phones of a task together
    min_claim_window: float = 86400.0  # seconds: the least time to claim in that a task with rewards must give
    events: Events = ignore_event
    around_step: Callable[[str], AbstractContextManager[object]] = lambda _task: nullcontext()  # a step of a task
    quotas: SpQuotas = field(default_factory=SpQuotas)
    draw: Draw = draw_at_random
    opens_rounds: bool = True  # False: the caller opens each round, as simulations and Flower's federation do
    watch: ClockWatch | None = None  # without one, the clock is believed


class SpCore:
    """Look-ups and rules that more than one concern needs."""

    def __init__(self, ports: SpPorts, options: SpOptions) -> None:
        self.ports, self.options = ports, options
        self.dealt = DealtFiles(ports.bundles, "sp")  # what KGC dealt for single rounds
        self._definitions: dict[str, Definition] = {}
        self._papers: dict[str, tuple[str, str]] = {}
        self._identities: dict[tuple[str, str], Identity] = {}  # by task and name

    def definition(self, task: str) -> Definition:
        """What the task is; it never changes, so that it is read once."""
        if task not in self._definitions:
            self._definitions[task] = self.ports.store.task(task).opened
        return self._definitions[task]

    def papers(self, task: str) -> tuple[str, str]:
        """Definition and appointment, as they were signed."""
        if task not in self._papers:
            stored = self.ports.store.task(task)
            self._papers[task] = stored.definition, stored.appointment
        return self._papers[task]

    def identity_at_hand(self, task: str, who: str) -> Identity | None:
        return self._identities.get((task, who))

    def identity(self, task: str, who: str) -> Identity:
        """Read once: a name never changes its keys. Of a stranger nothing is kept."""
        known = self._identities.get((task, who))
        return known or self.keep_identity(task, self.ports.store.participant(task, who).identity)

    def keep_identity(self, task: str, identity: Identity) -> Identity:
        while len(self._identities) >= MOST_IDENTITIES:  # the one that came first
            self._identities.pop(next(iter(self._identities)), None)
        self._identities[task, identity.who] = identity
        return identity

    def clock_is_sure(self) -> bool:
        return self.options.watch is None or self.options.watch.is_sure()

    def now(self) -> float:
        """The time, for what cannot be undone; `ClockInDoubt` while nobody knows what time it is."""
        return (self.options.watch or self.ports.clock).now()

    def probably_now(self) -> float:
        """For what must not wait until the clock is right, and dates nothing that ends."""
        watch = self.options.watch
        return self.ports.clock.now() if watch is None else watch.estimate()

    @property
    def sure_books(self) -> LedgerPorts:
        """For what counts from now."""
        return LedgerPorts(self.ports.store, self.options.watch or self.ports.clock)

    def is_about_now(self, moment: float, most: float) -> bool:
        """Whether it is at most so many seconds away. While the clock is in doubt, nobody is told that it is not."""
        watch = self.options.watch
        if abs(self.ports.clock.now() - moment) <= most:
            return True
        if watch is None or watch.is_sure():
            return False
        if abs(watch.estimate() - moment) <= most:
            return True
        raise ClockInDoubt("this platform's clock is in doubt, and your request is of another time: try again later")

    def bundle(self, task: str) -> bytes:
        """What KGC dealt SP for the task, as long as the task lives."""
        stored = self.ports.store.task(task)
        if stored.state == TaskState.SETTLED:
            raise ended(stored)
        return self.ports.bundles.get(f"{task}.sp")

    def audience(self, task: str, *, final: bool) -> Audience:
        """Whom a round's publication serves."""
        return profile_named(self.definition(task).settings.profile).audience(final=final)

    def ledger(self, task: str) -> Ledger:
        return Ledger(self.ports.store.movements(task))

    def last_round(self, task: str) -> Round | None:
        rounds = self.ports.store.rounds(task)
        return rounds[-1] if rounds else None

    def active(self, task: str) -> int:
        return self.ports.store.turnout(task, 0)[1]  # no upload is of round 0

    def needed(self, task: str, last: Round | None) -> int:
        """How many must have joined before the next round opens."""
        definition = self.definition(task)
        over = self.now() > definition.plan.enrolment_end
        return definition.plan.needed(definition.settings, first=last is None, over=over)

    def opening(self, task: str, ready_at: float | None, last: Round | None) -> float:
        """When the next round opens, as far as it is known now."""
        ready = self.now() if ready_at is None else ready_at
        return self.definition(task).plan.opening(ready, None if last is None else last.opened_at)

    def require_in_time_to_claim(self, task: str) -> None:
        """While the clock is in doubt nobody is late: nothing is returned meanwhile."""
        until = self.ports.store.task(task).claims_until
        if self.clock_is_sure() and self.ports.clock.now() > until:
            raise TooLate(
                "the last day of claims of this task is over, and what was unclaimed goes back to the requester"
            )

    def has_time(self, task: str) -> bool:
        """Whether a round that opens now is over by the last day of rounds, if it is not extended."""
        definition = self.definition(task)
        return Round(0, self.now()).fits(definition.settings, definition.rounds_until)

    def require_running(self, task: str) -> None:
        require_running(self.ports.store.task(task).state)

    def is_final(self, task: str, current: Round) -> bool:
        """Whether a round's average is for the requester alone."""
        if self.options.opens_rounds:
            return current.number == self.definition(task).settings.rounds
        return current.final

    def decided(self, task: str, current: Round, uploaded: int, missing: int) -> Round:
        """What the clock and this turnout make of a round, whether anyone has looked since or not; who left is not missing."""
        definition = self.definition(task)
        enrolled = uploaded + missing
        has_reference = self.has_reference(task, current.number)
        until = float(definition.rounds_until)
        about = definition.settings, self.now(), uploaded, enrolled, definition.plan
        return current.decide(*about, has_reference=has_reference, until=until)

    def keep_round(self, task: str, round_: Round, before: Round | None = None) -> None:
        """Durably, in place of what it was, and with whom it draws. The caller holds a transaction."""
        store = self.ports.store
        most = self.definition(task).settings.per_round
        store.set_round(task, before, round_)
        if most is not None and (before is None or round_.redrawn > before.redrawn):
            drawn = store.drawn(task, round_.number)
            places = most - store.turnout(task, round_.number)[0]
            others = [one.identity.who for one in store.participants(task) if not one.left]
            others = [who for who in others if who not in drawn]
            store.draw(task, round_.number, self.options.draw(round_.number, others, min(places, len(others))))

    def has_reference(self, task: str, number: int) -> bool:
        """Whether a round has what its task asks of the requester; of most tasks that is nothing."""
        return not self.definition(task).settings.reference or self.ports.blobs.has(reference_name(task, number))

    def renew_lease(self, task: str) -> None:
        """Long steps keep their lease; one that was lost meanwhile must not go on."""
        options = self.options
        if not self.ports.store.lease(task, options.owner, self.ports.clock.now(), options.lease_seconds):
            raise Forbidden("another process has taken this task over")


def require_running(state: str) -> None:
    if state not in (TaskState.RUNNING, TaskState.PAUSED):
        raise TaskNotRunning(f"the task is {state}")
