"""Payments: each program runs once, whoever else works on the same store, and whoever dies."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.hosts import SMALL_TASK, small_definition
from tests.subprocesses import until

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import Conflict, NoDestination, PaymentFailed, PaymentUnknown, SettingsError, UnknownPayment
from crowdfl.roles.ports import ManualClock, SpStore
from crowdfl.roles.records import PaymentState, StoredPayment, StoredTask, TaskState
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.payments import Payments, resolve_payment
from crowdfl.services.background.workers import PayoutCommand
from crowdfl.settings import TaskSettings

PATIENCE = 600.0
NEVER = 10_000.0  # seconds of a lease that no test waits for


@dataclass
class Bank:
    """What payments need, and what was handed over."""

    store: SpStore
    clock: ManualClock

    def __post_init__(self) -> None:
        self.told: list[str] = []
        key = SigningKey.fresh()
        draft = small_definition(TaskSettings.of(**SMALL_TASK)).dated(1000.0)
        definition = replace(draft, requester=key.public).sign(key)
        self.task = Definition.open(definition).task
        self.store.add_task(StoredTask(self.task, definition, "", TaskState.RUNNING))

    def owes(self, *people: str, sequence: int = 1) -> None:
        for who in people:
            now = self.clock.now()
            self.store.add_payment(StoredPayment(self.task, who, sequence, 5, 0, PaymentState.PENDING, now))

    def payments(
        self, pay: Callable[[StoredPayment], None] | None = None, lease: float = NEVER, **more: str
    ) -> Payments:
        return Payments(self, SpOptions(on_paid=pay or self.pay, lease_seconds=lease, **more))

    def pay(self, payment: StoredPayment) -> None:
        self.told.append(payment.who)

    def state(self, who: str) -> PaymentState:
        return self.found(who).state

    def found(self, who: str, sequence: int = 1) -> StoredPayment:
        payment = self.store.payment(self.task, who, sequence)
        assert payment is not None
        return payment


@pytest.fixture
def bank(store: SpStore) -> Bank:
    bank = Bank(store, ManualClock(1000.0))
    bank.owes("ada", "bob")
    return bank


@contextmanager
def hooks_under_way(bank: Bank, lease: float) -> Iterator[threading.Event]:
    """A process whose program has begun and ends when the event is set."""
    begun, release = threading.Event(), threading.Event()

    def slowly(payment: StoredPayment) -> None:
        begun.set()
        assert release.wait(PATIENCE)
        bank.pay(payment)

    runner = threading.Thread(target=bank.payments(slowly, lease).run_one)
    runner.start()
    assert begun.wait(PATIENCE)
    try:
        yield release
    finally:
        release.set()
        runner.join()


def test_a_payment_is_made_once(bank: Bank):
    """And then there is nothing left to do."""
    payments = bank.payments()
    assert [payments.run_one() for _ in range(3)] == [True, True, False]
    assert bank.told == ["ada", "bob"]
    assert {bank.state(who) for who in bank.told} == {PaymentState.PAID}


def test_a_process_takes_what_no_other_has_taken(bank: Bank):
    """While one program runs, the other process runs the next, and then none."""
    with hooks_under_way(bank, NEVER):
        other = bank.payments()
        assert [other.run_one(), other.run_one()] == [True, False]
        assert bank.told == ["bob"]
        assert bank.state("ada") is PaymentState.RUNNING
    assert bank.told == ["bob", "ada"]
    assert bank.state("ada") is PaymentState.PAID


def test_a_lease_is_renewed_while_its_program_runs(bank: Bank):
    """However long that takes: to the others it stays running."""
    lease, other = 0.03, bank.payments()
    with hooks_under_way(bank, lease):
        other.run_one()
        for _ in range(5):
            bank.clock.time += 0.9 * lease
            until(lambda: (bank.found("ada").until or 0.0) >= bank.clock.now() + lease)
            assert other.run_one() is False
            assert bank.state("ada") is PaymentState.RUNNING
    assert sorted(bank.told) == ["ada", "bob"]


def test_what_became_of_a_slow_program_is_recorded_after_all(bank: Bank):
    """Its process was away so long that it was given up; it was not run again, and in the end everyone knows."""
    with hooks_under_way(bank, NEVER):
        bank.clock.time += 2 * NEVER
        other = bank.payments()
        assert [other.run_one(), other.run_one()] == [True, False]
        assert bank.state("ada") is PaymentState.UNKNOWN
        assert bank.told == ["bob"]
    assert bank.state("ada") is PaymentState.PAID


def test_the_operators_word_counts_more_than_a_late_program(bank: Bank):
    """Once somebody has dealt with it, a process that comes back changes nothing."""
    with hooks_under_way(bank, NEVER):
        bank.clock.time += 2 * NEVER
        resolve_payment(bank, bank.task, "ada", "again")
        assert bank.payments().run_one() is True
        assert bank.told == ["ada"]
        attempts = bank.found("ada").attempts
    assert (bank.state("ada"), bank.found("ada").attempts, attempts) == (PaymentState.PAID, 2, 2)


@pytest.mark.parametrize("ends", [PaymentFailed("no"), PaymentUnknown("too slow"), None])
def test_a_late_answer_of_an_earlier_attempt_changes_nothing(bank: Bank, ends: Exception | None):
    """While the second one runs: else it would be set back, and a third program would run."""
    late, slow = threading.Event(), threading.Event()

    def first(payment: StoredPayment) -> None:
        assert late.wait(PATIENCE)
        if ends is not None:
            raise ends

    def second(payment: StoredPayment) -> None:
        assert slow.wait(PATIENCE)
        bank.pay(payment)

    resolve_payment(bank, bank.task, "bob", "paid", "cash")
    runners = [threading.Thread(target=bank.payments(pay, owner="a process").run_one) for pay in (first, second)]
    runners[0].start()
    until(lambda: bank.state("ada") is PaymentState.RUNNING)
    bank.clock.time += 2 * NEVER
    resolve_payment(bank, bank.task, "ada", "again")
    runners[1].start()
    until(lambda: bank.found("ada").attempts == 2)
    late.set()
    runners[0].join()
    assert bank.state("ada") is PaymentState.RUNNING, "the second attempt's"
    assert bank.payments().run_one() is False
    slow.set()
    runners[1].join()
    assert (bank.told, bank.state("ada"), bank.found("ada").attempts) == (["ada"], PaymentState.PAID, 2)


def test_a_late_answer_of_another_process_changes_nothing(bank: Bank):
    """Whose attempt it is, is told by its owner too: a store that was set back counts attempts from where it was."""
    late = threading.Event()

    def first(payment: StoredPayment) -> None:
        assert late.wait(PATIENCE)
        raise PaymentFailed("no")

    runner = threading.Thread(target=bank.payments(first).run_one)
    runner.start()
    until(lambda: bank.state("ada") is PaymentState.RUNNING)
    mine = bank.found("ada")
    theirs = replace(mine, owner="another")
    assert bank.store.change_payment(mine, theirs)
    late.set()
    runner.join()
    assert bank.found("ada") == theirs


def test_instalments_of_one_person_are_paid_each(bank: Bank):
    bank.owes("ada", sequence=4)
    payments = bank.payments()
    assert [payments.run_one() for _ in range(4)] == [True, True, True, False]
    assert bank.told == ["ada", "bob", "ada"]
    assert bank.found("ada").key != bank.found("ada", 4).key


def test_a_payment_is_named_by_its_key_where_its_participant_has_several(bank: Bank):
    bank.owes("ada", sequence=4)
    with pytest.raises(Conflict, match=bank.found("ada", 4).key):
        resolve_payment(bank, bank.task, "ada", "paid")
    resolve_payment(bank, bank.task, bank.found("ada", 4).key, "paid", "cash")
    assert bank.state("ada") is PaymentState.PENDING, "nobody but a payer pays all that came before with one"
    resolve_payment(bank, bank.task, "ada", "paid", "cash")
    assert bank.state("ada") is PaymentState.PAID
    resolve_payment(bank, bank.task, "ada", "paid")


def test_a_program_that_says_no_is_run_again_later(bank: Bank):
    """The others do not wait for it; the rest grows; in the end it is paid."""
    answers = [PaymentFailed("closed"), PaymentFailed("still closed"), None]

    def pay(payment: StoredPayment) -> None:
        answer = answers.pop(0) if payment.who == "ada" else None
        if answer is not None:
            raise answer
        bank.pay(payment)

    payments = bank.payments(pay)
    assert [payments.run_one() for _ in range(3)] == [True, True, False]
    assert (bank.told, bank.state("ada"), bank.found("ada").error) == (["bob"], PaymentState.PENDING, "closed")
    rests = []
    while bank.state("ada") is PaymentState.PENDING:
        rest = bank.found("ada").until
        assert rest is not None
        rests.append(rest - bank.clock.now())
        assert payments.run_one() is False
        bank.clock.time = rest
        assert payments.run_one() is True
    assert (bank.told, rests) == (["bob", "ada"], [60.0, 120.0])
    assert (bank.found("ada").attempts, bank.found("ada").error) == (3, None)


@pytest.mark.parametrize("failure", [PaymentUnknown("too slow"), OSError("pipe"), ValueError("its own fault")])
def test_where_nobody_knows_the_program_is_not_run_again(bank: Bank, failure: Exception):
    def pay(payment: StoredPayment) -> None:
        bank.pay(payment)
        raise failure

    payments = bank.payments(pay)
    assert payments.run_one() is True
    bank.clock.time += 10 * NEVER
    assert payments.run_one() is True  # the other one's
    assert payments.run_one() is False
    assert bank.told == ["ada", "bob"]
    assert bank.state("ada") is PaymentState.UNKNOWN
    assert bank.found("ada").error


def test_the_operator_decides_what_is_unknown(bank: Bank):
    """Paid is paid; again is run once more; nothing else can be said, nor of anyone else."""
    payments = bank.payments(lambda _payment: (_ for _ in ()).throw(PaymentUnknown("too slow")))
    assert [payments.run_one() for _ in range(3)] == [True, True, False]
    resolve_payment(bank, bank.task, "ada", "paid")
    resolve_payment(bank, bank.task, "ada", "paid")
    resolve_payment(bank, bank.task, "bob", "again")
    willing = bank.payments()
    assert [willing.run_one(), willing.run_one()] == [True, False]
    assert bank.told == ["bob"]
    with pytest.raises(Conflict, match="paid"):
        resolve_payment(bank, bank.task, "bob", "again")
    with pytest.raises(UnknownPayment):
        resolve_payment(bank, bank.task, "eve", "paid")
    with pytest.raises(SettingsError, match="perhaps"):
        resolve_payment(bank, bank.task, "bob", "perhaps")


def test_an_operator_who_pays_by_hand_says_how(bank: Bank):
    """Without a program payments wait; one that is under way is not the operator's to end. Nobody said where."""
    none = Payments(bank, SpOptions(lease_seconds=NEVER))
    assert none.run_one() is False
    with pytest.raises(NoDestination, match="cash"):
        resolve_payment(bank, bank.task, "bob", "paid")
    with pytest.raises(SettingsError, match="line"):
        resolve_payment(bank, bank.task, "bob", "paid", "a\x07b")
    assert bank.state("bob") is PaymentState.PENDING
    resolve_payment(bank, bank.task, "bob", "paid", "cash")
    with hooks_under_way(bank, NEVER), pytest.raises(Conflict, match="running"):
        resolve_payment(bank, bank.task, "ada", "paid")
    assert bank.told == ["ada"]
    assert bank.found("bob").note == "cash"


def test_the_key_of_a_payment_is_its_own_and_stays(bank: Bank):
    """By it a bank can tell a repeat, whichever process asks."""
    keys = {who: bank.found(who).key for who in ("ada", "bob")}
    bank.payments().run_one()
    assert {who: bank.found(who).key for who in keys} == keys
    assert len(set(keys.values())) == 2


# Real programs.


def script(folder: Path, text: str) -> tuple[str, ...]:
    """A program that is given the folder first."""
    path = folder / "pay.py"
    path.write_text("import os, pathlib, signal, sys, time\nfolder = pathlib.Path(sys.argv[1])\n" + text)
    return (sys.executable, str(path), str(folder))


def payment() -> StoredPayment:
    return StoredPayment("task", "who", 1, 12, 0, PaymentState.RUNNING, 0.0)


def test_a_program_gets_the_payment_and_its_key(tmp_path: Path):
    PayoutCommand(script(tmp_path, "(folder / 'paid').write_text(' '.join(sys.argv[2:]))"))(payment())
    assert (tmp_path / "paid").read_text() == f"task who 12 {payment().key}"


@pytest.mark.parametrize(
    ("text", "seconds", "error"),
    [
        ("raise SystemExit(3)", PATIENCE, PaymentFailed),
        ("os.kill(os.getpid(), signal.SIGKILL)", PATIENCE, PaymentUnknown),
        ("time.sleep(300)", 0.2, PaymentUnknown),
    ],
)
def test_what_a_program_says_is_yes_no_or_unknown(tmp_path: Path, text: str, seconds: float, error: type[Exception]):
    """A status is an answer; a program that was ended gave none."""
    with pytest.raises(error):
        PayoutCommand(script(tmp_path, text), seconds)(payment())


def test_a_program_that_cannot_be_started_has_not_paid(tmp_path: Path):
    with pytest.raises(PaymentFailed, match="could not be started"):
        PayoutCommand((str(tmp_path / "nowhere"),))(payment())
