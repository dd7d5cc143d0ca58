"""Every route of money in random orders, with lost, repeated and unheard messages: each cent is with the requester, a person or
in escrow, and everyone who was accepted is paid once, or can still claim.

One seed is one order. In the second tier two processes of SP share PostgreSQL, and die at random points.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.errors import CrowdFLError, PaymentFailed, PaymentUnknown, RoundNotOpen, ServiceUnavailable
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import DepositState, DisputeState, PaymentState, RoundState, StoredPayment, TaskState
from crowdfl.roles.sp.claims import resolve_dispute
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.ledger import REQUESTER, Ledger, participant_account
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.uploads import PendingUpload
from crowdfl.settings import PlanSettings, TaskSettings
from crowdfl.simulation.disks import Disk, MemoryDisk
from crowdfl.simulation.faults import Crash, Point
from crowdfl.simulation.host import FOREVER, PEOPLE, SP, Call, Deliver, Host
from crowdfl.simulation.host import REQUESTER as ASKER
from crowdfl.storage.sql import SqlStore
from tests.hosts import INITIAL_MODEL, SMALL_TASK, FileDisk, small_definition, test_tools, unchanged
from tests.storage.conftest import SERVER, empty_database

DAY = 86400.0
PLAN = PlanSettings(closes="deadline", goal=3, unused_pay="0.50")
ROUNDS, CROWD = 5, 6
PAYER = ReaderKey.fresh()
FATES = ("straight",) * 6 + ("lost", "unheard", "twice")


class Game:
    """One task, and everyone who has a say about its money."""

    def __init__(self, seed: int, disk: Disk, *, sps: int = 1, kills: float = 0.0) -> None:
        self.rng = random.Random(seed)  # noqa: S311 -- which order is played is no secret
        self.kills, self.is_rough = kills, False
        self.handed, self.mood = Counter[str](), "yes"
        tools = test_tools()
        options = SpOptions(
            tools,
            checker=tools.backend,
            on_paid=self._bank,
            min_claim_window=0.0,
            payer=PAYER.public,
            lease_seconds=5.0,
        )
        self.clock = ManualClock(1000.0)
        self.host = Host(
            tools, disk=disk, clock=self.clock, options=options, wire=self._wire, faults=self._die, sps=sps
        )
        self.host.requester.payer = PAYER.public
        own = {
            "rounds": ROUNDS,
            "budget": "9.00",
            "lanes": 128,
            "pay": "equal",
            "max_participants": CROWD,
            "window": 300.0,
        }
        definition = replace(small_definition(TaskSettings.of(**SMALL_TASK | own)), plan=PLAN)
        self.task = self.host.create(definition, INITIAL_MODEL)
        self.cost, self.deposits = PLAN.round_cost(definition.settings), 0
        for number in range(CROWD):
            self.host.join(self.task, str(number))

    # What may go wrong.

    def _wire(self, call: Call, deliver: Deliver) -> Any:
        is_theirs = call.receiver == SP and (call.sender.startswith(PEOPLE) or call.sender == ASKER)
        fate = self.rng.choice(FATES) if self.is_rough and is_theirs else "straight"
        to = (
            self.rng.choice([*filter(self.host.is_running, self.host.names(SP))] or [SP])
            if call.receiver == SP
            else None
        )
        if fate == "lost":
            raise ServiceUnavailable("the request was lost")
        if fate == "twice":
            with contextlib.suppress(CrowdFLError):
                deliver(to)
        try:
            answer = deliver(to)
        except RoundNotOpen as said:
            if fate != "unheard" and call.name == "send" and "you are paid" in str(said):  # in the place of a receipt
                person, number = self.host.people[call.sender.removeprefix(PEOPLE)], call.arguments[1]
                person.blobs.put(f"rounds/{number}/unused", b"")
            if fate != "unheard":
                raise
        if fate == "unheard":
            raise ServiceUnavailable("the reply was lost")
        return answer

    def _die(self, point: Point) -> None:
        if self.is_rough and point.process in self.host.names(SP) and self.rng.random() < self.kills:
            raise Crash

    def _bank(self, payment: StoredPayment) -> None:
        if self.mood == "no":
            raise PaymentFailed("closed")
        if self.mood != "lost":
            self.handed[payment.key] += payment.amount
        if self.mood != "yes":
            raise PaymentUnknown("nobody knows")

    # What is done.

    def sp(self, what: Callable[[Sp], object]) -> None:
        """By a process of SP; one that dies of it is started again."""
        with contextlib.suppress(CrowdFLError):
            self.host.act(self.rng.choice(list(self.host.names(SP))), what)
        self._revive()

    def _revive(self) -> None:
        for process in self.host.dead():
            self.host.start(process)

    def person(self, what: Callable[[Participant], object]) -> None:
        with contextlib.suppress(CrowdFLError, ConnectionError):
            what(self.rng.choice(list(self.host.people.values())))
        self._revive()

    def fund(self) -> None:
        self.deposits += 1
        name, amount = (
            f"deposit {self.rng.randrange(1 + self.deposits)}",
            self.rng.choice([1, self.cost, 5 * self.cost]),
        )
        self.sp(lambda sp: sp.deposits.announce(self.task, name, amount))
        decide = self.rng.choice([self.confirm, self.confirm, self.reject])
        decide(name, amount)

    def confirm_first(self) -> None:
        """Most begin with money for a few rounds."""
        amount = self.rng.choice([0, 2, 3, 5]) * self.cost
        self.sp(lambda sp: sp.deposits.announce(self.task, "first", amount))
        self.confirm("first", amount)

    def confirm(self, name: str, amount: int) -> None:
        for _ in range(self.rng.choice([1, 2])):
            self.sp(lambda sp: sp.deposits.confirm(self.task, name, amount, "EUR"))

    def reject(self, name: str, _amount: int) -> None:
        self.sp(lambda sp: sp.deposits.reject(self.task, name))

    def upload(self) -> None:
        for person in self.rng.sample(list(self.host.people.values()), k=self.rng.randint(3, CROWD)):
            with contextlib.suppress(CrowdFLError, ConnectionError):
                person.step(unchanged)
        self._revive()

    def sneak(self) -> None:
        """Somebody sends to any round what it can make for it, or a byte: a newer device too, or after the round has closed."""
        person, number = self.rng.choice(list(self.host.people.values())), self.rng.randint(1, ROUNDS)
        with contextlib.suppress(CrowdFLError, ConnectionError):
            made = b"x" if self.rng.random() < 0.2 else person.side.encrypt_update(np.zeros(8), 5, number)
            arrival = PendingUpload.of(person.keys.who, made)
            heard: list[Any] = []
            self.sp(lambda sp: heard.extend(sp.uploads.receive(self.task, number, [arrival])))
            if heard and isinstance(heard[0], tuple) and heard[0][1] == "unused":
                person.blobs.put(f"rounds/{number}/unused", b"")
        self._revive()

    def claim(self) -> None:
        self.person(Participant.claim)

    def say_where(self) -> None:
        self.person(lambda one: one.pay_to("email", f"{self.rng.randrange(100)}@example.org"))

    def withdraw(self) -> None:
        self.person(lambda one: one.leave(withdraw=True))

    def replace(self) -> None:
        old = self.rng.choice(list(self.host.people.values()))
        with contextlib.suppress(CrowdFLError, ConnectionError):
            (invitation,) = self.host.requester.invite(self.task, 1, FOREVER, replaces=old.keys.who)
            name = str(len(self.host.people))
            self.host.people[name] = new = self.host.new_participant(self.task, name)
            new.join(invitation)
        self._revive()

    def order(self) -> None:
        with contextlib.suppress(CrowdFLError, ConnectionError):
            self.host.requester.order(self.task, self.rng.choice(["pause", "resume", "resume"]))
        self._revive()

    def cancel(self) -> None:
        with contextlib.suppress(CrowdFLError, ConnectionError):
            self.host.requester.order(self.task, "cancel")
        self._revive()

    def tick(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.sp(lambda sp: sp.tick())

    def wait(self) -> None:
        self.clock.time += self.rng.choice([5.0, 20.0, 60.0, 400.0])

    def pay(self) -> None:
        self.mood = self.rng.choice(["yes", "yes", "no", "paid, unheard", "lost"])
        self.sp(lambda sp: sp.payments.run_one())
        self.mood = "yes"

    def decide(self) -> None:
        """The operator looks up what the bank knows, and what is disputed."""
        for payment in self.store.payments(self.task, [PaymentState.UNKNOWN, PaymentState.RUNNING]):
            if payment.state_at(self.clock.now()) is PaymentState.UNKNOWN:
                how = "paid" if payment.key in self.handed else "again"
                self.sp(
                    lambda sp, named=payment.key, how=how: resolve_payment(sp.ports, self.task, named, how, "by hand")
                )
        for one in self.store.disputes(self.task):
            how = self.rng.choice(["pay", "refuse"])
            self.sp(lambda sp, one=one, how=how: resolve_dispute(sp.ports, self.task, one.who, one.number, how))

    def restart(self) -> None:
        self.host.restart()

    def play(self, steps: int) -> None:
        often = [self.upload, self.upload, self.tick, self.tick, self.claim]
        seldom = [self.fund, self.wait, self.pay, self.sneak, self.sneak]
        rare = [self.withdraw, self.replace, self.replace, self.order, self.decide, self.restart, self.say_where]
        self.confirm_first()
        self.is_rough = True
        for _ in range(steps):
            self.rng.choice(often * 10 + seldom * 3 + rare)()
            self.holds()
        if self.rng.random() < 0.5:
            self.cancel()
        self.is_rough = False

    # What must hold.

    @property
    def store(self) -> Any:
        return self.host.sp.store

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store.movements(self.task))

    def holds(self) -> None:
        """After every step."""
        ledger = self.ledger
        balances = ledger.balances()
        assert all(amount >= 0 for account, amount in balances.items() if account != REQUESTER), balances
        deposits = [one for one in self.store.deposits(self.task) if one.state is DepositState.CONFIRMED]
        assert sum(balances.values()) == 0
        assert sum(one.amount for one in deposits) == ledger.returned() - balances.get(REQUESTER, 0)
        places = {one.identity.who: one.identity.place for one in self.store.participants(self.task)}
        paid = [
            (places[who], number) for how in (ledger.paid(), ledger.paid_unused()) for who in how for number in how[who]
        ]
        assert [one for one, count in Counter(paid).items() if count > 1] == [], "a person was paid twice for a round"
        counted = {(who, one.number) for one in self.rounds() for who in self.accepted(one.number)}
        assert not counted & {(who, number) for who, found in ledger.paid_unused().items() for number in found}
        for payment in self.store.payments(self.task):
            assert self.handed[payment.key] in (0, payment.amount), "a payment was made twice"

    def rounds(self) -> list[Any]:
        return [one for one in self.store.rounds(self.task) if one.state is RoundState.REWARDED]

    def accepted(self, number: int) -> set[str]:
        return {one.who for one in self.store.uploads(self.task, number)} - self.host.sp.rejected(
            self.task, number
        ).keys()

    def finish(self) -> dict[str, int]:
        """Nothing goes wrong any more: everyone reads, says where to be paid and claims, in time."""
        self._revive()
        with contextlib.suppress(CrowdFLError):
            self.host.requester.order(self.task, "resume")
        for _ in range(4):
            self.host.run()
            self.clock.time += DAY
        self.cancel()
        self.host.run()
        for person in self.host.people.values():
            for act in (
                lambda one: one.pay_to("email", "last@example.org"),
                _looks,
                Participant.claim,
                Participant.claim,
            ):
                with contextlib.suppress(CrowdFLError, ConnectionError):
                    act(person)
        self.holds()
        self.everyone_is_paid()
        self.clock.time = self.store.task(self.task).attests_until
        self.host.run()
        for _ in range(20):
            self.decide()
            self.clock.time += DAY
            while self.host.sp.payments.run_one():
                pass
        self.holds()
        return self.left()

    def everyone_is_paid(self) -> None:
        ledger = self.ledger
        for one in self.rounds():
            accepted, budget = self.accepted(one.number), ledger.budgets()[one.number]
            got = {who: found[one.number] for who, found in ledger.paid().items() if one.number in found}
            assert got == dict.fromkeys(accepted, budget // len(accepted)), f"round {one.number}"
        disputed = {(one.who, one.number) for one in self.store.disputes(self.task)}
        for person in self.host.people.values():
            if not person.blobs.has("certificate"):
                continue
            who, unused = person.keys.who, ledger.paid_unused().get(person.keys.who, {})
            for number in person.unused_rounds():
                assert number in unused or (who, number) in disputed, f"{who} is owed for round {number}"

    def left(self) -> dict[str, int]:
        """What the platform holds in the end; and whatever is booked was handed over once."""
        assert self.store.task(self.task).state == TaskState.SETTLED
        balances = self.ledger.balances()
        people = {participant_account(one.identity.who) for one in self.store.participants(self.task)}
        assert {
            account: held for account, held in balances.items() if held and account not in {REQUESTER, *people}
        } == {}
        assert all(one.state is not DisputeState.OPEN for one in self.store.disputes(self.task))
        handed = Counter[str]()
        for payment in self.store.payments(self.task):
            handed[participant_account(payment.who)] += self.handed[payment.key]
        assert +handed == Counter({account: balances.get(account, 0) for account in people if balances.get(account, 0)})
        return {account: held for account, held in balances.items() if held and account not in {REQUESTER, *people}}


def _looks(person: Participant) -> None:
    for _ in range(3):
        person.step(unchanged)


@pytest.mark.parametrize("seed", range(6))
def test_every_order_pays_everyone_once(seed: int) -> None:
    game = Game(seed, MemoryDisk())
    game.play(60)
    assert game.finish() == {}


@pytest.mark.parametrize("seed", range(2))
def test_on_sqlite_too(seed: int, tmp_path: Path) -> None:
    disk = FileDisk(tmp_path, durable=False)
    game = Game(100 + seed, disk)
    game.play(50)
    assert game.finish() == {}
    disk.close()


@pytest.mark.second
@pytest.mark.parametrize("seed", range(200, 224))
def test_many_orders_pay_everyone_once(seed: int) -> None:
    game = Game(seed, MemoryDisk(), sps=1 + seed % 2, kills=0.002 * (seed % 3))
    game.play(120)
    assert game.finish() == {}


class OnPostgres(FileDisk):
    """SP's books are in PostgreSQL."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, durable=False)
        self.url = url
        with contextlib.closing(SqlStore(url)) as first:
            first.create_tables()

    def store(self, role: str) -> SqlStore:
        if role != SP:
            return super().store(role)
        self._opened.append(SqlStore(self.url))
        return self._opened[-1]


@pytest.mark.second
@pytest.mark.skipif(SERVER is None, reason="CROWDFL_TEST_POSTGRES names no server")
@pytest.mark.parametrize("seed", range(300, 304))
def test_two_processes_on_postgresql_that_die_pay_everyone_once(seed: int, tmp_path: Path) -> None:
    with empty_database("postgresql", tmp_path) as url:
        disk = OnPostgres(tmp_path, url)
        game = Game(seed, disk, sps=2, kills=0.003)
        game.play(60)
        assert game.finish() == {}
        disk.close()
