"""A campaign of `shares` that goes on whatever dies on the way, and what must hold of it at its end.

The script is a list of stages. Each is tried again until it is reached: whoever has died is started again, and time passes.
"""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, NotReady
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesSpBundle
from crowdfl.protocols.shares.round import average
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.retry import Backoff, no_jitter
from crowdfl.roles.csp import Csp
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import PaymentState, RoundState, StoredPayment, TaskState
from crowdfl.roles.requester import Requester
from crowdfl.roles.retention import Retention, secrets_of
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.end_notices import EndNotices
from crowdfl.roles.sp.ledger import REQUESTER as PAYER
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.settings import PlanSettings, TaskSettings, to_millionths
from crowdfl.simulation.disks import MemoryDisk
from crowdfl.simulation.faults import BEFORE, Plan, Point, nothing_happens
from crowdfl.simulation.host import CSP, FOREVER, KGC, PEOPLE, REQUESTER, SP, Call, Deliver, Host
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.storage.sql import SqlStore
from tests.campaigns.passed import Passed
from tests.hosts import test_tools

__all__ = ["NOISY", "REFERRED", "Campaign", "Script"]

UNIT, SIZE = 10, 2
LONG = 10.0**6  # seconds: no round ends by its deadline, however often somebody is started again
PATIENCE = 61.0  # longer than the lease of a process that has died
Step = Callable[[], Any]
COMMON: dict[str, Any] = {
    "profile": "shares",
    "decimals": 1,
    "clip": 2.0,
    "max_norm": 4.0,
    "weighting": "equal",
    "lanes": 1024,
    "cohort": 3,
    "budget": "9.00",
    "window": LONG,
}


@dataclass(frozen=True)
class Script:
    """Who does what when. Who is against the reference in a round is left out of it; if everyone is, the round is void."""

    people: Sequence[str]
    settings: Mapping[str, Any]
    late: Mapping[str, int] = field(default_factory=dict)  # by name: the round that somebody comes for
    withdraws: Mapping[str, int] = field(default_factory=dict)  # and the one that somebody takes an upload back from
    against: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def task(self) -> TaskSettings:
        return TaskSettings.of(**COMMON | {"max_participants": len(self.people)} | dict(self.settings))

    @property
    def rounds(self) -> range:
        return range(1, self.task.rounds + 1)

    def present(self, number: int) -> list[str]:
        """Who sends to a round, and does not take it back."""
        early = [name for name in self.people if self.late.get(name, 1) <= number]
        return [name for name in early if self.withdraws.get(name, number + 1) > number]

    def accepted(self, number: int) -> list[str]:
        """Nobody's: the round is void."""
        return [name for name in self.present(number) if name not in self.against.get(number, ())]

    def units(self, name: str, number: int) -> list[int]:
        """What somebody's training changes in a round."""
        sign = -1 if name in self.against.get(number, ()) else 1
        place = self.people.index(name)
        return [
            sign * (4 + (place + number + entry) % 2) for entry in range(SIZE)
        ]  # within what a reference of 4 allows

    def train(self, name: str) -> Callable[[Weights, Mapping[str, Any], int], tuple[Weights, int]]:
        return lambda arrays, _settings, number: (
            [array + np.array(self.units(name, number)) / UNIT for array in arrays],
            1,
        )


REFERRED = Script(
    ("ada", "bob", "cem", "dora", "eva"),
    {"reference": True, "rounds": 3},
    late={"eva": 2},
    withdraws={"bob": 3},
    against={2: ("ada", "bob", "cem", "dora", "eva"), 3: ("dora",)},
)
"""Round 1 goes well, 2 is void after CSP has shown who is out of line, 3 starts from the same model again."""
NOISY = Script(("ada", "bob", "cem", "dora"), {"epsilon": 8.0, "noise": "any", "rounds": 2})
"""The settings allow noise and a reference only apart."""


class Campaign(Host):
    """`live` brings it to its end; `check` looks at what came of it."""

    clock: ManualClock

    def __init__(
        self, script: Script, faults: Plan = nothing_happens, *, begins: Plan = nothing_happens, **more: Any
    ) -> None:
        """`begins` is called before each transaction that writes, and before CSP is asked: when others can still come first."""
        self.script, self.passed, self.keys = script, Passed(), SigningKey.fresh()
        self.begins, self._begun = begins, Counter[tuple[str, str]]()
        self.asking = b""  # the last request that has left for CSP
        self.may_be_void: set[int] = set()  # rounds that somebody has tampered with
        clock = ManualClock(1000.0)
        self.bank: list[StoredPayment] = []
        self.sent: dict[tuple[str, str, int], set[bytes]] = defaultdict(set)  # uploads and references that left
        self.noise: dict[bytes, list[Any]] = defaultdict(list)
        self.ends: dict[str, Retention[Any]] = {}
        self.invitations: dict[str, str] = {}
        self.task = ""
        self._done: set[str] = set()
        self.route: Callable[[Call], str | None] = lambda _call: None  # which process a message goes to
        tools = test_tools()
        options = SpOptions(tools, checker=tools.backend, on_paid=self._pay_out, min_claim_window=0.0)
        disk = _Watched(clock.now)
        super().__init__(tools, disk=disk, clock=clock, wire=self._carry, faults=faults, options=options, **more)

    # The servers, with what ends a task.

    def new_kgc(self) -> Kgc:
        kgc = super().new_kgc()
        self.ends[KGC] = KgcRetention(kgc.store, kgc.bundles, self.clock, sp_key=self.keys.public)
        return kgc

    def new_csp(self, disk: Any = None, name: str = CSP) -> Csp:
        csp = super().new_csp(disk, name)
        own = csp.store, csp.bundles, self.clock, csp.blobs, csp.guard
        self.ends[name] = CspRetention(*own, sp_key=self.keys.public, forget=csp.drop)
        return csp

    def new_sp(self, options: SpOptions | None = None, disk: Any = None, name: str = SP) -> Sp:
        sp = super().new_sp(options, disk, name)
        own = sp.store, sp.ports.bundles, self.clock, sp.blobs, sp.ports.guard, _NoParts()
        peers = {KGC: sp.ports.kgc, CSP: sp.ports.csp}
        rests = Backoff(10.0, PATIENCE, jitter=no_jitter, clock=self.clock.now)
        forget = sp.aggregators.drop
        notices = EndNotices(sp.store, self.clock, self.keys, peers, rests)
        self.ends[name] = SpRetention(*own, notices=notices, forget=forget)  # type: ignore[arg-type]
        return sp

    def _front(self, process: str, sender: str) -> Any:
        front = super()._front(process, sender)
        return _Ending(front, self.ends[process]) if process in (KGC, *self.names(CSP)) else front

    def _store(self, role: str, life: Any, disk: Any = None) -> SqlStore:
        store = super()._store(role, life, disk)
        write = store._write

        def begun() -> Any:
            if store._open_one() is None:
                self._begins(life.process, "begin")
            return write()

        store._write = begun  # type: ignore[method-assign]
        return store

    def _begins(self, process: str, what: str) -> None:
        self._begun[process, what] += 1
        self.begins(Point(process, what, self._begun[process, what], BEFORE))

    def _pay_out(self, payment: StoredPayment) -> None:
        self.bank.append(payment)

    def _carry(self, call: Call, deliver: Deliver) -> Any:
        """What leaves a process is noted, whether it arrives or not; so is what comes back."""
        to = self.route(call)
        if call.name in ("send", "reference"):
            self.sent[call.sender, call.name, call.arguments[1]].add(bytes(call.arguments[-1]))
        if (call.receiver, call.name) != (CSP, "answer"):
            return deliver(to)
        task, request, *_ = call.arguments
        step = self.passed.step_of(task, request)
        if step is not None:
            self.passed.requests[step].add(request)
        self.asking = request
        self._begins(CSP, "asked")
        reply = bytes(deliver(to))
        self.heard(task, request, reply)
        return reply

    def heard(self, task: str, request: bytes, reply: bytes) -> None:
        """An answer of CSP's has left it."""
        self.passed.answers[task, request].add(reply)
        step = self.passed.step_of(task, request)
        if step is not None:
            self.passed.note(step, reply)

    # The script.

    def live(self) -> None:
        with self._noting_noise():
            for stage in self._stages():
                self._reach(*stage)

    def _stages(self) -> Iterator[tuple[Callable[[], bool], *tuple[Step, ...]]]:
        """What is to be true, and who does something for it."""
        script, of = self.script, self._of
        early = [name for name in script.people if name not in script.late]
        yield self._said("create"), of(REQUESTER, "create", self._create)
        yield from self._joining(early)
        yield self._said("fund"), of(REQUESTER, "fund", self._fund)
        for number in script.rounds:
            yield partial(self._is_in, number, RoundState.OPEN), self.run
            if self._is_cut_short():
                break
            yield from self._joining([name for name, first in script.late.items() if first == number])
            for name in [name for name, last in script.withdraws.items() if last == number]:
                yield self._has(name, f"rounds/{number}/receipt"), self._stepping(name)
                yield self._has(name, "withdrawn"), of(PEOPLE + name, "", lambda one: one.leave(withdraw=True))
            refer = of(REQUESTER, f"refer {number}", partial(self._refer, number))
            yield partial(self._is_over, number), refer, *map(self._stepping, script.present(number)), self.run
        yield self._said("close"), of(REQUESTER, "close", lambda one: one.close_enrolment(self.task))
        yield partial(self._is_task, TaskState.FINISHED, TaskState.CANCELLED, TaskState.SETTLED), self.run
        for name in script.people:
            yield self._said(f"claim {name}"), self._stepping(name), of(PEOPLE + name, f"claim {name}", _claim)
        yield self._all_paid, self._make_payments
        yield self._said("read"), of(REQUESTER, "read", self._read)
        yield partial(self._is_task, TaskState.SETTLED), partial(self._wait, LONG), self.run
        yield self._all_told, *(of(name, "", partial(self._tell, name)) for name in self.names(SP))
        self._wait(3 * 86400.0)
        for name in self.ends:
            yield self._said(f"sweep {name}"), of(name, f"sweep {name}", partial(self._sweep, name))

    def _reach(self, done: Callable[[], bool], *steps: Step) -> None:
        for _ in range(40):
            for name in self.dead():
                self.start(name)
            for step in steps:
                with contextlib.suppress(CrowdFLError):
                    step()
            if done():
                return
            self._wait(PATIENCE)
        raise AssertionError("the campaign hangs")

    def _of(self, process: str, what: str, act: Callable[[Any], Any]) -> Step:
        """Something that a process does by itself, until it has done it once."""

        def step() -> None:
            if what in self._done:
                return
            self.act(process, act)
            if what and self.is_running(process):
                self._done.add(what)

        return step

    def _said(self, what: str) -> Callable[[], bool]:
        return lambda: what in self._done

    def _has(self, name: str, blob: str) -> Callable[[], bool]:
        return lambda: self.disk.blobs(PEOPLE + name).has(blob)

    def _wait(self, seconds: float) -> None:
        self.clock.time += seconds

    def _create(self, requester: Requester) -> None:
        definition = Definition(
            "purpose", "terms", "readers", ModelShape(("w",), ((SIZE,),)), self.script.task, int(LONG / 2), {}
        )
        first = len(self.script.present(1))
        definition = Definition(**vars(definition) | {"plan": PlanSettings(start_with=first)})
        self.task = requester.create(definition, [np.zeros(SIZE)])

    def _joining(self, names: Sequence[str]) -> Iterator[tuple[Callable[[], bool], *tuple[Step, ...]]]:
        for name in names:
            yield self._said(f"invite {name}"), self._of(REQUESTER, f"invite {name}", partial(self._invite, name))
            self.people[name] = self.new_participant(self.task, name)
            yield self._said(f"join {name}"), self._of(PEOPLE + name, f"join {name}", self._join)

    def _invite(self, name: str, requester: Requester) -> None:
        (self.invitations[name],) = requester.invite(self.task, 1, FOREVER)

    def _join(self, person: Participant) -> None:
        name = next(name for name, one in self.people.items() if one is person)
        person.join(self.invitations[name])

    def _fund(self, requester: Requester) -> None:
        requester.fund(self.task, self.script.task.rounds * self.budget, "all")

    def _refer(self, number: int, requester: Requester) -> None:
        """In a void round it is the others who go against it."""
        if self.script.task.reference and self._is_in(number, RoundState.OPEN):
            requester.refer(self.task, number, _moved(0.4))

    def _stepping(self, name: str) -> Step:
        return self._of(PEOPLE + name, "", lambda person: person.step(self.script.train(name)))

    def _make_payments(self) -> None:
        for name in self.names(SP):
            if self.is_running(name):
                self.act(name, self._pay_one_by_one)

    def _pay_one_by_one(self, sp: Sp) -> None:
        while sp.payments.run_one():
            pass
        for payment in sp.store.payments(self.task, [PaymentState.UNKNOWN]):  # the operator asks the bank
            known = payment.key in {one.key for one in self.bank}
            resolve_payment(sp.ports, self.task, payment.key, "paid" if known else "again", "by hand")

    def _read(self, requester: Requester) -> None:
        self.averages = {n: requester.read(self.task, n) for n in self.script.rounds if self.accepted(n)}

    def _tell(self, name: str, _sp: Sp) -> None:
        self.ends[name].tick()  # type: ignore[attr-defined]

    def _sweep(self, name: str, _role: Any) -> None:
        self.ends[name].sweep(self.clock.now(), counting=True)

    # Where it stands, as is on the disk.

    def accepted(self, number: int) -> list[str]:
        """Whose average a round is; nobody's if it is void."""
        tampered = number in self.may_be_void or self._is_cut_short()
        given_up = tampered and self._states().get(number) in (RoundState.ABORTED, None)
        return [] if given_up else self.script.accepted(number)

    def _is_cut_short(self) -> bool:
        """By somebody who tampers with a round once SP has sent its sum: no second one is ever sent, and the task ends."""
        return bool(self.may_be_void) and self.books.task(self.task).end is not None

    @property
    def books(self) -> Any:
        return self.disk.store(SP)

    @property
    def budget(self) -> int:
        return to_millionths(self.script.task.budget or 0)

    def _states(self) -> dict[int, RoundState]:
        return {round_.number: round_.state for round_ in self.books.rounds(self.task)}

    def _is_in(self, number: int, state: RoundState) -> bool:
        return self._states().get(number) is state or self._is_cut_short()

    def _is_over(self, number: int) -> bool:
        return self._states().get(number) in (RoundState.REWARDED, RoundState.ABORTED)

    def _is_task(self, *states: str) -> bool:
        return self.books.task(self.task).state in states

    def _all_paid(self) -> bool:
        return all(one.state is PaymentState.PAID for one in self.books.payments(self.task))

    def _all_told(self) -> bool:
        stored = self.books.task(self.task)
        return stored.csp_told_end is not None and stored.kgc_told_end is not None

    @contextlib.contextmanager
    def _noting_noise(self) -> Iterator[None]:
        drawn = average.discrete_gaussian

        def noted(seed: bytes, context: bytes, sigma: int, count: int) -> npt.NDArray[np.int64]:
            found = drawn(seed, context, sigma, count)
            self.noise[context].append(found)
            return found

        average.discrete_gaussian = noted
        try:
            yield
        finally:
            average.discrete_gaussian = drawn

    # What must hold at the end.

    def check(self) -> None:
        self.passed.check()
        assert all(len(found) == 1 for found in self.sent.values()), "an upload left with two contents"
        self._check_averages()
        self._check_money()
        self._check_nothing_is_left()

    @property
    def _who(self) -> dict[str, str]:
        """By pseudonym, the name here."""
        return {person.keys.who: name for name, person in self.people.items()}

    def _check_averages(self) -> None:
        """By whole numbers, of exactly those who sent, are in line, and did not take it back."""
        base, script = [0] * SIZE, self.script
        for number in script.rounds:
            state, is_void = self._states().get(number), not self.accepted(number)
            known = state is RoundState.ABORTED or (state is None and self._is_cut_short())
            assert known if is_void else state is RoundState.REWARDED, f"round {number} is {state}"
        assert set(self.averages) == {number for number in script.rounds if self.accepted(number)}
        for number, found in self.averages.items():
            record = RoundRecord.from_bytes(found.record, Limits.plain(len(found.record)))
            names = [self._who[who] for who in record.accepted]
            assert sorted(names) == self.accepted(number), f"round {number} is of {names}"
            sums = [sum(entries) for entries in zip(*(script.units(name, number) for name in names), strict=True)]
            units = [round(weight * UNIT) for weight in found.weights]
            possible = [
                [b + round(Fraction(s + int(n), len(names))) for b, s, n in zip(base, sums, noise, strict=True)]
                for noise in self._noises(record)
            ]
            assert units in possible, f"round {number}: {units}, and the plain average is {possible}"
            base = units

    def _noises(self, record: RoundRecord) -> list[Any]:
        """That may be in a sum: one draw of each server's. Without noise, none."""
        if self.script.task.sigma is None:
            return [np.zeros(SIZE, dtype=int)]
        shape = SharesShape(self.requester.definition(self.task).spec)
        drawn = self.noise[shape.place(record.number, record.base).bind("crowdfl noise 1")]
        return [one + other for place, one in enumerate(drawn) for other in drawn[:place]]

    def _check_money(self) -> None:
        """Everyone is paid once what its rounds have earned it; the rest is the requester's again."""
        script, books, ledger = self.script, self.books, self.sp.core.ledger(self.task)
        earned = Counter(dict.fromkeys(script.people, 0))
        for number in script.rounds:
            accepted = self.accepted(number)
            earned.update({name: self.budget // len(accepted) for name in accepted})
        by_name = {self._who[who]: sum(rounds.values()) for who, rounds in ledger.paid().items()}
        assert by_name == {name: amount for name, amount in earned.items() if name in by_name}, by_name
        assert {name for name in earned if earned[name]} <= by_name.keys()
        assert len({payment.key for payment in self.bank}) == len(self.bank), "an instalment was handed over twice"
        handed = [(self._who[payment.who], payment.amount) for payment in self.bank]
        assert sorted(handed) == sorted((name, amount) for name, amount in earned.items() if amount)
        for name, amount in earned.items():
            assert self._told(name) == amount, f"{name} was told another amount"
        balances = {account: amount for account, amount in ledger.balances().items() if amount}
        assert sum(balances.values()) == 0
        assert {account for account in balances if not account.startswith("participant ")} <= {PAYER}, balances
        assert -balances.get(PAYER, 0) == sum(earned.values())
        assert all(payment.state is PaymentState.PAID for payment in books.payments(self.task))

    def _told(self, name: str) -> int:
        """By SP, of what it has booked."""
        blobs = self.disk.blobs(PEOPLE + name)
        answer = json.loads(blobs.get("claim-answered"))["answer"] if blobs.has("claim-answered") else {}
        return sum(sum(answer.get(how, {}).values()) for how in ("paid", "unused"))

    def _check_nothing_is_left(self) -> None:
        for name, retention in self.ends.items():
            held = {task: dict(secrets_of(kinds)) for task, kinds in retention.held().items()}
            assert not any(held.values()), f"{name} still holds {held}"
        contents: Any = self.disk.contents()  # type: ignore[attr-defined]
        servers = {
            name: _bytes_of(found) for name, found in contents.items() if not name.startswith((PEOPLE, REQUESTER))
        }
        for secret in self.disk.secrets:  # type: ignore[attr-defined]
            for name, found in servers.items():
                assert secret not in found, f"{name} holds something that KGC dealt, or a key"


def _claim(person: Participant) -> None:
    """Everything: whoever cannot read a reward yet comes back."""
    person.claim()
    if person.awaits_rewards:
        raise NotReady("a reward is not shown yet")


def _bytes_of(found: Any) -> bytes:
    """All that a store or a folder holds, one after the other."""
    if isinstance(found, dict):
        return b"\0".join(_bytes_of(one) for one in found.values())
    if isinstance(found, list | tuple):
        return b"\0".join(map(_bytes_of, found))
    if isinstance(found, bytes | memoryview):
        return bytes(found)
    return str(found).encode()


def _moved(distance: float) -> Callable[..., tuple[Weights, int]]:
    return lambda arrays, _settings, _number: ([array + distance for array in arrays], 1)


class _Watched(MemoryDisk):
    """It remembers the secrets that were ever in a folder of keys of a server."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self.secrets: set[bytes] = set()

    def _new_blobs(self, name: str) -> MemoryBlobs:
        blobs = super()._new_blobs(name)
        if not name.endswith("/keys"):
            return blobs
        put_all = blobs.put_all

        def noted(given: Mapping[str, bytes]) -> None:
            for blob, data in given.items():
                self.secrets |= _secrets_in(blob, data)
            put_all(given)

        blobs.put_all = noted  # type: ignore[method-assign]
        return blobs


def _secrets_in(name: str, data: bytes) -> set[bytes]:
    """Of a file of keys; a piece of one that was dealt for a round."""
    kind = name.partition(".")[2]
    if kind == "sp":
        return {SharesSpBundle.from_bytes(data, Limits.plain()).seed}
    if kind == "csp":
        bundle = SharesCspBundle.from_bytes(data, Limits.plain())
        return {bundle.seed, bundle.signing, bundle.sealing}
    if kind == "source":
        return {data[-32:]}
    return {data[len(data) // 2 :][:32]} if kind.startswith("dealt.") else set()


@dataclass(frozen=True)
class _Ending:
    """A server, and how it hears that a task is over."""

    _role: Any
    _retention: Any

    def end(self, task: str, document: str) -> None:
        self._retention.end(task, document)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._role, name)


class _NoParts:
    """Uploads come whole here."""

    def places(self) -> list[tuple[str, int]]:
        return []

    def key(self, _task: str, _who: str) -> str:
        return ""

    def remove(self, _key: str, _number: int) -> None: ...

    def sweep(self) -> int:
        return 0
