"""Money is conserved: whatever a requester, cheating participants, a lavish CSP, the operator and the bank do, in any order."""

import contextlib
import hashlib
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from crowdfl.errors import CrowdFLError, PaymentFailed, PaymentUnknown
from crowdfl.protocols.claims import Attestation, Claim, ClaimsCsp, PayStatement, RewardEnvelope, make_claim
from crowdfl.protocols.messages import Limits
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import DepositState, PaymentState, RoundState, StoredPayment, TaskState
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.ledger import REQUESTER, Ledger, participant_account
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.settings import TaskSettings
from crowdfl.simulation.disks import Disk, MemoryDisk
from crowdfl.simulation.host import Host
from tests.campaigns.world import by_person
from tests.hosts import INITIAL_MODEL, SMALL_TASK, FileDisk, small_definition, test_tools, unchanged

PEOPLE = 4
BUDGET = 9_000_000
CLAIMS = 5000.0
NAMES = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.sampled_from([0, 1, BUDGET - 1, BUDGET, 3 * BUDGET])
PERSON = st.integers(0, PEOPLE - 1)
# A cheat's claim: more than its share of each round, and perhaps a round that is not there, or an amount that cannot be.
# (None is below zero: a claim has no form for it.)
SHARES = st.lists(st.sampled_from([0, 1, BUDGET // 2, BUDGET]), min_size=3, max_size=3)
BOGUS = st.one_of(
    st.just({}), st.just({}), st.dictionaries(st.integers(1, 4), st.sampled_from([1, BUDGET + 1, 2**127]))
)


def attest(csp: ClaimsCsp, _records: object, request: bytes) -> Attestation:
    """A lavish CSP attests whatever is claimed, as if every participant had cheated it, or it them."""
    claim, name = Claim.from_bytes(request, Limits.plain(len(request))), hashlib.sha256(request).digest()
    earned = len(claim.rounds) + claim.counter, sum(claim.amounts), csp.spec.settings.currency
    said = PayStatement(claim.task, claim.participant, *earned, claim.destination, claim.counter, b"")
    found = Attestation(name, replace(said, signature=csp.signing.sign(said.statement)).to_bytes(), b"")
    return replace(found, signature=csp.signing.sign(found.attested))


@pytest.fixture(autouse=True, scope="module")
def lavish():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimsCsp, "answer", attest)
        yield


class Money(RuleBasedStateMachine):
    """One task, everyone who has a say about its money, and what must hold after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.handed: Counter[str] = Counter()
        self.mood: str = "yes"

    def new_disk(self) -> Disk:
        return MemoryDisk()

    @initialize(late=st.sampled_from([0.0, 50.0]))
    def begin(self, late: float) -> None:
        """People have joined, and nothing is paid in."""
        tools, disk = test_tools(), self.new_disk()
        options = SpOptions(tools, checker=tools.backend, on_paid=self._bank, min_claim_window=0.0)
        self.host = Host(tools, disk=disk, clock=ManualClock(1000.0), options=options)
        own = {"rounds": 3, "budget": "9.00", "lanes": 128, "late": late}
        task_settings = TaskSettings.of(**SMALL_TASK | own)
        self.task = self.host.create(small_definition(task_settings, claim_window=CLAIMS), INITIAL_MODEL)
        for number in range(PEOPLE):
            self.host.join(self.task, str(number))
        self.clock: ManualClock = self.host.clock  # type: ignore[assignment]

    def _bank(self, payment: StoredPayment) -> None:
        if self.mood == "no":
            raise PaymentFailed("closed")
        if self.mood != "lost":
            self.handed[payment.key] += payment.amount
        if self.mood != "yes":
            raise PaymentUnknown("nobody knows")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.host.sp.store.movements(self.task))

    def attempt(self, act: Any, *arguments: Any) -> None:
        with contextlib.suppress(CrowdFLError):
            act(self.task, *arguments)

    # The requester and the operator.

    @rule(name=NAMES, amount=AMOUNTS)
    def announce(self, name: str, amount: int) -> None:
        """A deposit, or the same again, or another under its name."""
        self.attempt(self.host.sp.deposits.announce, name, amount)

    @rule(name=NAMES, amount=AMOUNTS)
    def confirm(self, name: str, amount: int) -> None:
        self.attempt(self.host.sp.deposits.confirm, name, amount, "EUR")

    @rule(name=NAMES)
    def confirm_as_announced(self, name: str) -> None:
        for deposit in self.host.sp.store.deposits(self.task):
            if deposit.name == name:
                self.attempt(self.host.sp.deposits.confirm, name, deposit.amount, "EUR")

    @rule(name=NAMES)
    def reject(self, name: str) -> None:
        self.attempt(self.host.sp.deposits.reject, name)

    @rule(action=st.sampled_from(["pause", "resume", "resume", "cancel"]))
    def order(self, action: str) -> None:
        with contextlib.suppress(CrowdFLError):
            self.host.requester.order(self.task, action)

    # People.

    @rule(people=st.integers(0, PEOPLE))
    def upload(self, people: int) -> None:
        """So many of them, to the round that is open."""
        for person in [*self.host.people.values()][:people]:
            with contextlib.suppress(CrowdFLError):
                person.step(unchanged)

    @rule(person=PERSON, shares=SHARES, bogus=BOGUS)
    def cheat(self, person: int, shares: list[int], bogus: dict[int, int]) -> None:
        """A claim that CSP attests, whatever it says."""
        keys = self.host.people[str(person)].keys
        claimed = dict(zip(self.ledger.budgets(), shares, strict=False)) | bogus
        unmasked = dict.fromkeys(claimed, RewardEnvelope(0, b"", b""))
        self._claim(make_claim(self.task, keys.who, claimed, unmasked, {}, keys.signing).to_bytes(), claimed)

    def _claim(self, claim: bytes, claimed: dict[int, int]) -> None:
        """It is paid within the rounds' budgets, or refused; the same claim again is the same payment."""
        budgets = self.ledger.budgets()
        try:
            first = self.host.sp.claims.pay(self.task, claim)
        except CrowdFLError:
            return
        assert self.host.sp.claims.pay(self.task, claim) == first
        assert first.paid.keys() == claimed.keys()
        assert all(0 <= first.paid[n] <= budgets.get(n, 0) for n in claimed)

    @rule(rounds=st.integers(1, 3), then=st.sampled_from(["", "cancel"]))
    def play(self, rounds: int, then: str) -> None:
        """Rounds as they should be, so that there is something to cheat about; perhaps the last ones."""
        for _ in range(rounds):
            name = f"round {len(self.host.sp.store.rounds(self.task))}"
            self.attempt(self.host.sp.deposits.announce, name, BUDGET)
            self.attempt(self.host.sp.deposits.confirm, name, BUDGET, "EUR")
            self.tick(1)
            self.upload(PEOPLE)
            self.tick(4)
        if then:
            self.order(then)
            self.tick(2)

    # Time, SP and the bank.

    @rule(times=st.integers(1, 4))
    def tick(self, times: int) -> None:
        for _ in range(times):
            self.host.sp.tick()

    @rule(seconds=st.sampled_from([60.0, 200.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule(mood=st.sampled_from(["yes", "no", "paid, unheard", "lost"]))
    def pay(self, mood: str) -> None:
        """The payout program is run, and ends in one way or the other."""
        self.mood = mood
        self.host.sp.payments.run_one()
        self.mood = "yes"

    @rule()
    def ask_the_bank(self) -> None:
        """The operator looks up what is unknown."""
        for payment in self.host.sp.store.payments(self.task, [PaymentState.UNKNOWN]):
            how = "paid" if payment.key in self.handed else "again"
            resolve_payment(self.host.sp.ports, self.task, payment.key, how, "by hand")

    @rule()
    def restart(self) -> None:
        """Servers know what is on their disks, and nothing else."""
        self.host.restart()

    # What must hold.

    @invariant()
    def no_account_is_negative_and_all_money_is_somewhere(self) -> None:
        """Paid + refunded + held = deposited; deposited is what the operator has confirmed."""
        if not hasattr(self, "task"):
            return
        ledger, deposits = self.ledger, self.host.sp.store.deposits(self.task)
        balances = ledger.balances()
        people = {participant_account(person.keys.who) for person in self.host.people.values()}
        assert all(amount >= 0 for account, amount in balances.items() if account != REQUESTER)
        deposited = sum(one.amount for one in deposits if one.state is DepositState.CONFIRMED)
        refunded = sum(m.amount for m in ledger.movements if m.target == REQUESTER)
        paid = sum(balances.get(account, 0) for account in people)
        held = sum(amount for account, amount in balances.items() if account not in people | {REQUESTER})
        assert paid + refunded + held == deposited
        ended = self.host.sp.store.task(self.task).state not in (TaskState.RUNNING, TaskState.PAUSED)
        assert ended or refunded == 0

    @invariant()
    def no_round_pays_more_than_its_budget(self) -> None:
        """Nor before it is rewarded, nor after it was given up."""
        if not hasattr(self, "task"):
            return
        spent: Counter[int] = Counter()
        for rounds in self.ledger.paid().values():
            spent.update(rounds)
        states = {round_.number: round_.state for round_ in self.host.sp.store.rounds(self.task)}
        assert all(amount <= BUDGET for amount in spent.values())
        assert all(states[number] is RoundState.REWARDED for number in spent)

    @invariant()
    def nobody_is_handed_more_than_the_books_say(self) -> None:
        """Instalments are their movements' sum, and each is handed over at most once."""
        if not hasattr(self, "task"):
            return
        booked = {who: sum(rounds.values()) for who, rounds in self.ledger.paid().items()}
        payments = self.host.sp.store.payments(self.task)
        assert by_person(payments) == {w: a for w, a in booked.items() if a}
        amounts = {payment.key: payment.amount for payment in payments}
        assert len(amounts) == len(payments)
        assert all(amount == amounts[key] for key, amount in self.handed.items() if amount)

    def teardown(self) -> None:
        """The end: everything is paid or returned, and the platform keeps nothing."""
        if hasattr(self, "task"):
            self._finish()
        self.stack.close()

    def _finish(self) -> None:
        with contextlib.suppress(CrowdFLError):
            self.host.requester.order(self.task, "resume")
        for _ in range(3):
            with contextlib.suppress(CrowdFLError):
                self.host.requester.order(self.task, "cancel")
            self.host.run()
            self.clock.time = max(self.clock.time + 90_000.0, self.host.sp.store.task(self.task).attests_until)
        self.ask_the_bank()
        while self.host.sp.payments.run_one():
            pass
        self.no_account_is_negative_and_all_money_is_somewhere()
        self.nobody_is_handed_more_than_the_books_say()
        assert self.host.sp.store.task(self.task).state == TaskState.SETTLED
        outside = {REQUESTER, *(participant_account(person.keys.who) for person in self.host.people.values())}
        assert all(amount == 0 for account, amount in self.ledger.balances().items() if account not in outside)
        owed = {one.key: one.amount for one in self.host.sp.store.payments(self.task) if one.amount}
        assert dict(self.handed) == owed


class MoneyInSql(Money):
    def new_disk(self) -> Disk:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        disk = FileDisk(Path(folder), durable=False)
        self.stack.callback(disk.close)
        return disk


_STEPS = {"stateful_step_count": 40, "deadline": None, "suppress_health_check": list(HealthCheck)}
TestMoneyInMemory = Money.TestCase
TestMoneyInMemory.settings = settings(max_examples=min(settings.default.max_examples, 400), **_STEPS)  # type: ignore[union-attr]
TestMoneyInSql = pytest.mark.second(MoneyInSql.TestCase)
TestMoneyInSql.settings = settings(max_examples=min(settings.default.max_examples, 40) // 4 + 1, **_STEPS)  # type: ignore[union-attr]
