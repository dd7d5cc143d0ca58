"""A campaign in one process: two SPs on one store, a CSP behind a bad wire, people who do as they like, and what must hold."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.invitations import Invitation, Ticket
from crowdfl.documents.signed import Definition, Order, participant_name
from crowdfl.errors import ChainBroken, CrowdFLError, NotReady
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.profile import SharesParticipant, SharesProfile
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.protocols.shares.round.upload import make_upload
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.participant.enrolment import enrol
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import DepositState, PaymentState, RoundState, StoredPayment, TaskState
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, Ledger, earned_account, participant_account, round_account
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.roles.sp.platform import Sp
from crowdfl.settings import TaskSettings, to_millionths
from crowdfl.simulation.faults import Crash, Point
from crowdfl.simulation.host import Call, Deliver, Host
from tests.campaigns.faults import Countdown, Wire
from tests.campaigns.passed import Passed
from tests.hosts import SMALL_TASK, FileDisk, small_definition, test_tools

__all__ = ["World", "closing", "meanwhile"]

CLAIMS = 5000.0
SETTINGS = SMALL_TASK | {"clip": 8.0, "lanes": 128, "budget": "9.00"}
_PROFILE, _UNIT = SharesProfile(), 1000
_SPS = ("sp", "sp2")
_UNPAID = (PaymentState.PENDING, PaymentState.RUNNING, PaymentState.UNKNOWN)
INITIAL = to_safetensors(ModelShape(("w",), ((1,),)), [np.zeros(1)])
_ORDER = list(RoundState)  # a round's state only moves on in this order


@dataclass(frozen=True)
class Made:
    """What somebody has put into an upload. Nobody has trained on no sample: who says so has altered its device."""

    units: int  # of the model's one weight
    samples: int


@cache
def _keys(number: int) -> ParticipantKeys:
    fresh = ParticipantKeys.fresh("")
    return ParticipantKeys(participant_name(fresh.signing.public), fresh.signing, fresh.reader)


@cache
def _signing(name: str) -> SigningKey:
    return SigningKey.fresh()


class World:
    """`check` may be called at any moment; `finish` mends what can be mended and brings the campaign to its end."""

    def __init__(self, folder: Path, people: int = 4, *, deposit: int = 10**9, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.clock = folder, ManualClock(1000.0)
        self.settings = TaskSettings.of(**SETTINGS | settings)
        self.disk = FileDisk(folder, durable=False)  # what dies here are objects
        self.truth, self.blobs = self.disk.store("sp"), self.disk.blobs("sp/blobs")
        self.csp_life, self.sp_lives = Countdown(), [Countdown(), Countdown()]
        self._plans = dict(zip(("csp", *_SPS), (self.csp_life, *self.sp_lives), strict=True))
        self.hooked: list[StoredPayment] = []
        self.passed, self.wire = Passed(), Wire(self.clock)
        self.host = Host(
            test_tools(),
            disk=self.disk,
            clock=self.clock,
            wire=self._carry,
            faults=self._meet,
            options=SpOptions(test_tools(), on_paid=self._hand_over, min_claim_window=0.0),
            signing=_signing("kgc"),
            sps=len(_SPS),
        )
        self.kgc = self.host.kgc
        self.uploads: dict[tuple[int, int], list[bytes]] = {}
        self.acknowledged: dict[tuple[int, str], str] = {}
        self._made: dict[str, Made] = {}  # uploads by digest
        self._states: dict[int, RoundState] = {}
        self._published: dict[int, bytes] = {}
        self.averages: dict[int, int] = {}  # of the rounds that were rewarded, in units
        self._accepted: dict[int, Mapping[str, Made]] = {}
        self.people: dict[int, SharesParticipant] = {}
        self._create()
        self._reader = _PROFILE.requester(self.about, self.created.bundle, test_tools())
        self._reader.resume(None, np.zeros(1))
        for number in range(people):
            self.join(number)
        if deposit:
            self.sps[0].deposits.announce(self.task, "first", deposit)
            self.sps[0].deposits.confirm(self.task, "first", deposit, "EUR")

    # Servers and their lives.

    def close(self) -> None:
        self.disk.close()

    @property
    def sps(self) -> list[Sp]:
        return [self.host.role(name) for name in _SPS]

    def _meet(self, point: Point) -> None:
        if point.process in self._plans:
            self._plans[point.process](point)

    def _carry(self, call: Call, deliver: Deliver) -> Any:
        return self.wire(call, lambda: self.passed.watch(call, partial(self._to_living, call, deliver)))

    def _to_living(self, call: Call, deliver: Deliver) -> Any:
        """Whoever runs CSP starts it again."""
        if call.receiver == "csp" and not self.host.is_running("csp"):
            self.host.start("csp")
        return deliver()

    def _hand_over(self, payment: StoredPayment) -> None:
        self.hooked.append(payment)

    def on_sp(self, which: int, act: Callable[[Sp], Any]) -> Any:
        """Something done by one of the SPs; None if it was refused, got no answer, or died."""
        try:
            return act(self.host.role(_SPS[which]))
        except (CrowdFLError, OSError):
            return None
        except Crash:
            self.host.start(_SPS[which])
            self.clock.time += 61  # whoever took the dead one's place waits for its lease to run out
            return None

    # What people do.

    def _create(self) -> None:
        key, digest = _signing("requester"), hashlib.sha256(INITIAL).hexdigest()
        definition = small_definition(self.settings, claim_window=CLAIMS, parameters=1)
        text = replace(definition, initial=digest, requester=key.public).dated(self.clock.now()).sign(key)
        self.defined = Definition.open(text)
        self.about = self.defined.spec
        self.created = self.kgc.create_task(text)
        self.task = self.sps[0].tasks.create(text, self.created.appointment, INITIAL)

    def join(self, number: int, which: int = 0) -> None:
        keys = _keys(number)
        key = _signing(f"invitation {number}")
        invitation = Invitation(self.task, f"{number:032x}", 1, key.public, 1e9).sign(_signing("requester"))
        enrolled = enrol(self.kgc, self.defined, Ticket(invitation, key).text, keys, self.host.signing.public)
        participant = _PROFILE.participant(self.about, enrolled.bundle, keys, test_tools())
        participant.resume(None, np.zeros(1))
        self.people.setdefault(number, participant)
        self.on_sp(which, lambda sp: sp.people.enrol(self.task, enrolled.certificate))

    def leave(self, number: int) -> None:
        self.on_sp(0, lambda sp: sp.people.leave(self.task, _keys(number).who))

    def upload(self, number: int, *, other: bool = False, samples: int = 3, which: int = 0, back: int = 0) -> None:
        """Upload to the newest round, or to one before: the bytes of last time, or others."""
        rounds = self.truth.rounds(self.task)
        if number not in self.people or len(rounds) <= back:
            return
        round_number = rounds[-1 - back].number
        tried = self.uploads.setdefault((number, round_number), [])
        if other or not tried:
            person, weight = self.people[number], float(number + 1)
            self._catch_up(person, round_number)
            honest = person.encrypt_update
            tried.append(
                honest(np.array([weight]), samples, round_number) if samples else self._empty(person, round_number)
            )
            self._made[upload_digest(tried[-1])] = Made(round(weight * _UNIT), samples)
        who = _keys(number).who
        receipt = self.on_sp(which, lambda sp: sp.uploads.one(self.task, round_number, who, tried[-1]))
        if receipt is not None:
            assert receipt.digest == upload_digest(tried[-1])
            assert self.acknowledged.setdefault((round_number, who), receipt.digest) == receipt.digest

    def _empty(self, person: SharesParticipant, round_number: int) -> bytes:
        """An upload that says no sample, and moves the model all the same."""
        base = ModelChain.from_bytes(person.chain() or b"", 1).base
        shape, sealing = SharesShape(self.about), person.bundle.csp_sealing
        place, update = shape.place(round_number, base), np.array([_UNIT], dtype=np.int64)
        return make_upload(shape, place, person.who, person.signing, sealing, update, 0).to_bytes()

    def _catch_up(self, person: SharesParticipant, round_number: int) -> None:
        """The averages before this round, each once."""
        for round_ in self.truth.rounds(self.task):
            if round_.number < round_number and round_.state is RoundState.REWARDED:
                with contextlib.suppress(ChainBroken):  # read before
                    person.read(self.host.sp.publication(self.task, round_.number, person.who), round_.number)

    def come_late(self, number: int, which: int = 0) -> None:
        """Everyone else is on time; this one comes when the window of the newest round has passed."""
        for other in list(self.people):
            if other != number:
                self.upload(other)
        if self._rounds():
            self.clock.time = max(self.clock.time, self._rounds()[-1].deadline(self.settings) + 1)
        self.upload(number, which=which)

    def order(self, action: str, which: int = 0) -> None:
        order = Order(self.task, action, self.clock.now()).sign(_signing("requester"))
        self.on_sp(which, lambda sp: sp.tasks.order(self.task, order))

    def deposit(self, name: str, amount: int) -> None:
        """The requester's; until it is confirmed it is nobody's money."""
        self.on_sp(0, lambda sp: sp.deposits.announce(self.task, name, amount))

    def confirm(self, name: str, amount: int, which: int = 0) -> None:
        self.on_sp(which, lambda sp: sp.deposits.confirm(self.task, name, amount, "EUR"))

    def reject(self, name: str, which: int = 0) -> None:
        self.on_sp(which, lambda sp: sp.deposits.reject(self.task, name))

    def resolve(self) -> None:
        """The operator asks the bank about every payment of which nobody knows how it went."""
        for payment in self.truth.payments(self.task, [PaymentState.UNKNOWN]):
            known = payment.key in {one.key for one in self.hooked}
            resolve_payment(self.host.sp.ports, self.task, payment.key, "paid" if known else "again", "by hand")

    def claim(self, number: int, which: int = 0) -> None:
        if number not in self.people:
            return
        claim, who = self.claim_of(number), _keys(number).who
        for _ in range(2):  # a claim that comes twice is paid once
            paid = self.on_sp(which, lambda sp: sp.claims.pay(self.task, claim))
            if paid is not None:
                assert paid.amount == self.ledger().balance(participant_account(who))
                earned = Claim.from_bytes(claim, Limits.plain(len(claim)))
                assert paid.paid == dict(zip(earned.rounds, earned.amounts, strict=True)), (
                    "a round owed more than its budget"
                )

    def claim_of(self, number: int) -> bytes:
        """Of all rewards that can be read now."""
        person = self.people[number]
        for round_ in self.truth.rounds(self.task):
            with contextlib.suppress(CrowdFLError):
                person.open_reward(self._envelope(round_.number, person.who), round_.number)
        return person.claim()

    def _envelope(self, number: int, who: str) -> bytes:
        return self.host.sp.envelope(self.task, number, who)

    def tick(self, which: int = 0) -> bool:
        """One SP takes a step, and makes a payment."""
        moved = bool(self.on_sp(which, lambda sp: sp.tick()))
        return bool(self.on_sp(which, lambda sp: sp.payments.run_one())) or moved

    def run(self, which: int = 0) -> None:
        for _ in range(100):
            if not self.tick(which):
                return
            self.check()
        raise AssertionError("SP never comes to rest")

    # What must hold.

    def ledger(self) -> Ledger:
        """The books as they are on disk."""
        return Ledger(self.truth.movements(self.task))

    def check(self) -> None:
        truth = self.truth
        with truth.transaction():
            self._check_money(self.ledger(), truth.task(self.task).state)
            for round_ in truth.rounds(self.task):
                before = self._states.setdefault(round_.number, round_.state)
                ended = (RoundState.REWARDED, RoundState.ABORTED)
                assert before == round_.state or before not in ended, "a round that has ended came back"
                assert _ORDER.index(before) <= _ORDER.index(round_.state), "a round went back"
                self._states[round_.number] = round_.state
                cancelled = truth.task(self.task).state == TaskState.CANCELLED
                assert not (cancelled and round_.state is RoundState.OPEN), "a cancelled task takes uploads"
                self._check_uploads(round_.number)
        known = {one.key: (one.who, one.amount) for one in truth.payments(self.task)}
        assert all(known[one.key] == (one.who, one.amount) for one in self.hooked), "handed over what was not booked"
        assert len({one.key for one in self.hooked}) == len(self.hooked), "an instalment was handed over twice"
        self.passed.check()

    def _check_money(self, ledger: Ledger, state: str) -> None:
        balances, ended = ledger.balances(), state not in (TaskState.RUNNING, TaskState.PAUSED)
        assert ended or not any(m.name.startswith("refund") for m in ledger.movements), "refunded before the end"
        assert sum(balances.values()) == 0
        assert all(amount >= 0 for account, amount in balances.items() if account != REQUESTER)
        for number, budget in ledger.budgets().items():
            assert sum(rounds.get(number, 0) for rounds in ledger.paid().values()) <= budget, "a round overspent"
        confirmed = [one for one in self.truth.deposits(self.task) if one.state is DepositState.CONFIRMED]
        paid_in = sum(m.amount for m in ledger.movements if m.source == REQUESTER)
        assert paid_in == sum(one.amount for one in confirmed), "credited what was not confirmed"
        owed = by_person(self.truth.payments(self.task))
        paid = {who: sum(rounds.values()) for who, rounds in ledger.paid().items()}
        assert owed == {who: amount for who, amount in paid.items() if amount}, "a payment without its movements"

    def _check_uploads(self, number: int) -> None:
        uploads = self.truth.uploads(self.task, number)
        digests = {upload.who: upload.digest for upload in uploads}
        assert len(digests) == len(uploads), "someone was counted twice"
        for (round_number, who), digest in self.acknowledged.items():
            assert round_number != number or digests.get(who) == digest, "an acknowledged upload was lost"
        with contextlib.suppress(NotReady):
            publication = self.host.sp.publication(self.task, number, None)
            if self._published.setdefault(number, publication) != publication:
                raise AssertionError("published twice with different bytes")
            if number not in self.averages:
                self._check_average(number, publication, {who: self._made[found] for who, found in digests.items()})

    def _check_average(self, number: int, publication: bytes, counted: Mapping[str, Made]) -> None:
        """What the requester reads is what plain numbers give, of those who uploaded and have not cheated."""
        (base,) = map(int, ModelChain.from_bytes(self._reader.chain() or b"", 1).weights)
        average = self._reader.read(publication, number)
        record = RoundRecord.from_bytes(average.record, Limits.plain(len(average.record)))
        honest = {who: made for who, made in counted.items() if made.samples}
        assert set(record.accepted) == set(honest), "the average is not of those who uploaded"
        assert set(record.rejected) == counted.keys() - honest.keys(), "who was left out is not who cheated"
        assert len(honest) >= self.settings.min_participants, "an average of too few"
        total = sum(made.samples for made in honest.values())
        moved = round(Fraction(sum(made.samples * (made.units - base) for made in honest.values()), total))
        self.averages[number], self._accepted[number] = round(average.weights[0] * _UNIT), honest
        assert (self.averages[number], average.total) == (base + moved, total), "not their average"

    # The end.

    def finish(self, *, csp_is_gone: bool = False) -> None:
        """Faults end, except a CSP that is gone for good; everyone claims; time passes until the books are closed."""
        self.wire.fates, self.wire.away, self.csp_life.left = [], csp_is_gone, None
        for life in self.sp_lives:
            life.left = None
        self.order("resume")
        ended = 0
        for _ in range(60):
            self.run()
            state = self.task_state()
            if state == TaskState.PAUSED:  # by an order that came only now
                self.order("resume")
            self.resolve()
            if state == TaskState.SETTLED and not self.truth.payments(self.task, _UNPAID):
                break
            if state in (TaskState.FINISHED, TaskState.CANCELLED):
                for number in list(self.people):
                    self.claim(number)
                ended += 1
                if ended > 2:  # on the last day, and then after it
                    stored = self.truth.task(self.task)
                    self.clock.time = stored.claims_until - 1.0 if ended == 3 else stored.attests_until + CLAIMS
                    continue
            elif all(round_.state in (RoundState.REWARDED, RoundState.ABORTED) for round_ in self._rounds()):
                self.order("cancel")  # nobody left, or no money: no further round opens
            self.clock.time += 25 * 3600.0 if csp_is_gone else self.settings.window + self.settings.late
        self.check()
        self._check_end(csp_is_gone)

    def _rounds(self) -> list[Any]:
        return self.truth.rounds(self.task)

    def _check_end(self, csp_is_gone: bool) -> None:
        assert self.task_state() == TaskState.SETTLED, "the campaign hangs"
        ledger, earned = self.ledger(), {_keys(n).who: dict[int, int]() for n in self.people}
        for round_ in self._rounds():
            self._explain(round_.number, round_.state, ledger, earned)
            assert not self.uploads_on_disk(round_.number), "uploads were not scrubbed"
        for account in (ESCROW, *map(earned_account, ledger.budgets())):
            assert ledger.balance(account) == 0
        owed = by_person(self.truth.payments(self.task))
        assert by_person(self.hooked) == owed, "someone was not handed what is theirs"
        paid = ledger.paid()
        for who, amounts in earned.items():
            got = {number: amount for number, amount in paid.get(who, {}).items() if amount}
            due = {number: amount for number, amount in amounts.items() if amount}
            assert got == due or (csp_is_gone and got.items() <= due.items()), f"{who} earned {due} and was paid {got}"

    def uploads_on_disk(self, number: int) -> list[str]:
        folder = self.blobs.folder / self.task / f"rounds/{number}/uploads"
        return sorted(path.name for path in folder.glob("*")) if folder.exists() else []

    def states(self) -> list[str]:
        return [str(round_.state) for round_ in self._rounds()]

    def task_state(self) -> str:
        return self.truth.task(self.task).state

    def _explain(self, number: int, state: RoundState, ledger: Ledger, earned: dict[str, dict[int, int]]) -> None:
        """Rewarded: everyone in it has an envelope. Aborted: its whole budget went back."""
        moved = {movement.name: movement.amount for movement in ledger.movements}
        assert ledger.balance(round_account(number)) == 0
        if state is RoundState.ABORTED:
            assert moved[f"abort round {number}"] == moved[f"fund round {number}"]
            return
        assert state is RoundState.REWARDED
        assert moved[f"reward round {number}"] == to_millionths(self.settings.budget or 0)
        accepted, budget = self._accepted[number], to_millionths(self.settings.budget or 0)
        sides = {person.who: person for person in self.people.values()}
        amounts = {who: sides[who].open_reward(self._envelope(number, who), number) for who in accepted}
        assert sum(amounts.values()) <= budget
        parts = {who: made.samples if self.settings.pay == "samples" else 1 for who, made in accepted.items()}
        for who, amount in amounts.items():
            due = Fraction(budget * parts[who], sum(parts.values()))
            assert due - 2 < amount <= due + 1, f"{who} is paid {amount}, and {float(due)} is its part"
            earned[who][number] = amount


def by_person(payments: Iterable[StoredPayment]) -> dict[str, int]:
    """What instalments come to; nobody who has none of any amount."""
    found = Counter[str]()
    for payment in payments:
        found[payment.who] += payment.amount
    return {who: amount for who, amount in found.items() if amount}


def meanwhile(world: World, what: str, person: int) -> None:
    """Something that another caller, or the other SP, does while the first SP waits."""
    world.wire.fates.clear()  # one thing at a time
    if what == "take over":
        world.clock.time += 61  # the lease has run out
        for _ in range(4):
            world.tick(1)
    elif what == "claim":
        for anyone in world.people:
            world.claim(anyone, which=1)
    elif what in ("upload", "leave", "join"):
        getattr(world, what)(person)
    else:
        world.order(what, which=1)


@contextlib.contextmanager
def closing(world: World) -> Iterator[World]:
    """A world whose files are let go."""
    try:
        yield world
    finally:
        world.close()
