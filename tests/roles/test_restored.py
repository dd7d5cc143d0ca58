"""After a restore from a backup: nothing is paid twice, nothing is answered twice, and phones bring back what was lost."""

import contextlib
import random
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.cli.office import results_of
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.payment_batch import read_results
from crowdfl.errors import (
    Conflict,
    EnrolmentOver,
    MasksDoNotFit,
    NotReady,
    RolledBack,
    SettingsError,
    TaskFull,
    TooLate,
)
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.hardened.record import RecordRequest
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import SpRecord
from crowdfl.protocols.shares.round.ends import EndRequest
from crowdfl.roles.csp import Csp
from crowdfl.roles.guard import Guard
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.payer import Payer, PayerRecord
from crowdfl.roles.ports import KgcPeer
from crowdfl.roles.records import Movement, PaymentState, RoundState, StoredPayment, StoredTask, payment_key
from crowdfl.roles.restored import (
    end_doubtful_csp,
    end_doubtful_sp,
    mark_restored_sp,
    reconcile,
)
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.instalments import BANK, book_instalment, forgotten_payments, take_off
from crowdfl.roles.sp.ledger import ESCROW, participant_account
from crowdfl.roles.sp.operator import due_rows
from crowdfl.roles.sp.payments import pay_words, resolve_payment, take_results
from crowdfl.settings import handed_over, whole_cents
from crowdfl.storage.database_copy import copy_database
from tests.attacks.cheating import honest_uploads
from tests.hosts import BUDGET, HARDENED, Desk, FileDisk, heard, raising, test_tools


def train(arrays, _settings, number):
    return [array + number for array in arrays], 5


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Three people in a funded task, whose first round is open."""
    return Desk.funded(tmp_path / "desk", 3)


@pytest.fixture
def keyed(tmp_path: Path) -> Desk:
    """The same where rounds stand alone: a restored SP goes on with the task."""
    return Desk.funded(tmp_path / "desk", 3, **HARDENED)


class Backup:
    """A role's database and files as they are now, put back later."""

    def __init__(self, desk: Desk, role: str) -> None:
        self._desk, self._role, self._folder = desk, role, desk.folder.parent / f"{role}-backup"
        self._folder.mkdir()
        copy_database(f"sqlite:///{desk.folder}/{role}/state.db", self._folder / "state.db")
        for name in ("blobs", "keys"):
            if (desk.folder / role / name).exists():
                shutil.copytree(desk.folder / role / name, self._folder / name)

    def restore(self, *, reconciled: bool = True) -> None:
        """As `crowdfl restore` does; and then its operator, whose bank has returned nothing since."""
        desk, live = self._desk, self._desk.folder / self._role
        assert isinstance(desk.disk, FileDisk)
        desk.disk.close()
        shutil.rmtree(live)
        shutil.copytree(self._folder, live)
        store = desk.disk.store(self._role)
        if self._role == "sp":
            mark_restored_sp(store, desk.clock.now())
        give_up_notes(desk, self._role)
        desk.restart()
        if self._role == "sp" and reconciled:
            reconcile(desk.sp.ports, desk.task, returned=0)


def give_up_notes(desk: Desk, role: str) -> None:
    """A guard in the role's own folder is lost with it."""
    store = desk.disk.store(role)
    end = partial(end_doubtful_sp, store, desk.clock.now()) if role == "sp" else partial(end_doubtful_csp, store)
    Guard(desk.disk.blobs(f"{role}/guard"), store, role).renew(end)


def play(desk: Desk) -> None:
    """Everyone does what is due, and SP its part."""
    for person in desk.crowd:
        person.step(train)
    desk.run()


def test_phones_send_again_what_sp_has_lost(keyed: Desk):
    """The same bytes, by themselves, while the round is open; everyone is averaged and paid once."""
    first, *others = keyed.crowd
    first.step(train)
    backup = Backup(keyed, "sp")
    others[0].step(train)
    sent = others[0].blobs.get("rounds/1/upload")
    backup.restore()
    assert len(keyed.sp.store.uploads(keyed.task, 1)) == 1
    said = heard(others[0])
    assert others[0].step(lambda *_: pytest.fail("what was trained is kept")) is True
    assert [what for what, _ in said] == ["restored", "sending again", "uploaded"]
    assert others[0].blobs.get("rounds/1/upload") == sent
    assert others[0].blobs.has("rounds/1/lost-receipt")
    assert first.step(train) is False  # SP still has this one's
    assert others[0].step(train) is False
    for _ in range(2):
        play(keyed)
    assert keyed.state == "finished"
    paid = [person.claim() for person in keyed.crowd]
    assert 2 * BUDGET - 12 <= sum(paid) <= 2 * BUDGET


def test_where_models_follow_from_each_other_a_restored_sp_ends_the_task(desk: Desk):
    """It cannot know which masks were used since: phones are told, nobody is asked for anything, and the money is back."""
    backup, person = Backup(desk, "sp"), desk.crowd[0]
    person.step(train)
    backup.restore()
    said = heard(person)
    desk.run()  # SP asks CSP what it has shown of the round
    assert person.step(lambda *_: pytest.fail("for no round")) is True
    assert [what for what, _ in said] == ["restored", "given up"]
    desk.later(1000.0)
    assert (desk.states(), desk.state) == (["aborted"], "settled")
    assert desk.ledger.balance("requester") == 0


def test_a_phone_that_was_switched_off_meanwhile_looks_once_when_it_is_back(keyed: Desk):
    """A new process knows no epoch: it asks about the open round, and only once."""
    person, asked = keyed.crowd[0], []
    person.step(train)
    uploaded = type(keyed.sp_link).uploaded
    keyed.sp_link.uploaded = lambda *args: asked.append(1) or uploaded(keyed.sp_link, *args)
    backup = Backup(keyed, "sp")
    again = keyed.new_participant(keyed.task, "0")
    assert [again.step(train) for _ in range(3)] == [False, False, False]
    assert asked == [1]
    backup.restore()
    assert again.step(train) is False
    assert asked == [1, 1]


def test_an_open_round_gives_phones_a_whole_window_after_the_restore(keyed: Desk):
    """However long SP was away: whoever holds a receipt can bring it back."""
    backup = Backup(keyed, "sp")
    keyed.crowd[0].step(train)
    keyed.clock.time += 10 * keyed.settings.window
    backup.restore()
    keyed.run()
    (entry,) = keyed.sp.tasks.status(keyed.task)["rounds"]
    window = keyed.settings.window + keyed.settings.grace
    assert (entry["state"], entry["last_call"]) == ("open", keyed.clock.time + window)
    assert keyed.crowd[0].step(train) is True
    assert len(keyed.sp.store.uploads(keyed.task, 1)) == 1


def test_someone_who_joined_after_the_backup_is_enrolled_again(keyed: Desk):
    """Its certificate is the right to join; nobody has to do anything."""
    backup = Backup(keyed, "sp")
    late = keyed.invite(1)[-1]
    late.step(train)
    backup.restore()
    assert keyed.sp.tasks.status(keyed.task)["enrolled"] == 3
    assert late.step(train) is True
    assert keyed.sp.tasks.status(keyed.task)["enrolled"] == 4
    assert [upload.who for upload in keyed.sp.store.uploads(keyed.task, 1)] == [late.keys.who]


def test_a_round_that_csp_had_answered_before_is_given_up_at_once(keyed: Desk):
    """SP masks with fresh seeds, CSP refuses: no second answer, no day of waiting, and the next round goes on."""
    backup = Backup(keyed, "sp")
    play(keyed)  # round 1 is rewarded, and round 2 open
    assert keyed.states() == ["rewarded", "open"]
    for person in keyed.crowd:
        person.open_reward(1)
    backup.restore()
    play(keyed)
    assert keyed.states() == ["aborted", "open"]
    play(keyed)
    assert keyed.state == "finished"
    for (
        person
    ) in keyed.crowd:  # SP alone says that it has lost the round: CSP attests it, and each keeps what was signed
        said = heard(person)
        claimed, rewards = person.claim(), person.rewards()
        assert claimed == rewards[2] > 0
        assert person.claimed.answer.paid == {1: 0, 2: rewards[2]}
        assert said[-1] == ("claimed", {"millionths": claimed, "currency": "EUR", "missing": {1: rewards[1]}})
        assert person.evidence.has_difference(1)
    balances = keyed.ledger.balances()
    assert -sum(balances.values()) == 0


@pytest.mark.parametrize(
    ("settings", "states"), [({}, ["aborted"]), (HARDENED, ["aborted", "open"])], ids=["shares", "hardened"]
)
def test_a_round_that_csp_was_asked_about_is_never_asked_about_again(
    tmp_path: Path, settings: dict[str, Any], states: list[str]
):
    """Backed up while its rewards were computed: a CSP that deviates would answer otherwise, under the same masks."""
    desk = Desk.funded(tmp_path / "desk", 3, **settings)
    backups: list[Backup] = []
    csp = desk.csp

    def noting(task: str, request: bytes, _longest: int) -> bytes:
        if not backups:
            backups.append(Backup(desk, "sp"))
        return answer(task, request)

    answer, csp.answer = csp.answer, noting  # type: ignore[method-assign]
    play(desk)
    assert desk.states() == ["rewarded", "open"]
    asked: list[bytes] = []
    backups[0].restore()

    def word_alone(task: str, request: bytes, _longest: int) -> bytes:
        """CSP's word on a round that is over is asked for: nothing is computed for that."""
        if Message.kind_of(request) in (EndRequest.kind, RecordRequest.kind):
            return answer(task, request)
        asked.append(request)
        return b""

    desk.csp.answer = word_alone  # type: ignore[method-assign]
    assert desk.sp.store.round(desk.task, 1).state == "aborted"
    assert desk.sp.store.seed_counts() == {}
    desk.run()
    assert asked == []
    assert desk.states() == states
    assert desk.ledger.balance("round 1") == 0


@pytest.mark.parametrize("state", ["closed", "held", "gathered", "published", "weighed"])
def test_a_cancelled_task_gives_up_what_was_under_way_too(tmp_path: Path, state: str):
    desk = Desk.funded(tmp_path / "desk", 3, budget=None)
    store = desk.sp.store
    opened = store.round(desk.task, 1)
    store.set_round(desk.task, opened, replace(opened, state=RoundState(state)))
    store.set_sp_record(desk.task, 1, SpRecord(), SpRecord(round=bytes(64)))
    desk.requester.order(desk.task, "cancel")
    Backup(desk, "sp").restore()
    assert desk.sp.store.round(desk.task, 1).state == "aborted"
    assert desk.sp.store.seed_counts() == {}


def test_whom_csp_has_no_place_for_hears_so_when_it_joins(keyed: Desk):
    """CSP still knows those whom SP has forgotten, and has no place for others: no round is lost by it."""
    backup, alerts = Backup(keyed, "sp"), []
    keyed.invite(2)
    keyed.run()
    for lost in ("3", "4"):
        del keyed.people[lost]
    backup.restore()
    keyed.options.events = lambda event, **fields: alerts.append((event, fields.get("who"), fields.get("error")))
    with pytest.raises(TaskFull):
        keyed.join(keyed.task, "new")
    assert [(event, error) for event, _, error in alerts] == [("participant refused by CSP", "TaskFull")]
    play(keyed)
    assert keyed.states() == ["rewarded", "open"]


def ended(desk: Desk) -> None:
    for _ in range(3):
        play(desk)
    assert desk.state == "finished"


def paying(desk: Desk, bank: list[StoredPayment]) -> None:
    desk.options = SpOptions(
        test_tools(), checker=desk.tools.backend, min_claim_window=0.0, on_paid=bank.append, owner="sp"
    )
    desk.sp = desk.new_sp()


def test_no_payment_of_a_backup_runs_by_itself(desk: Desk):
    """Pending in the backup, paid since: the bank is asked once. The operator resolves it, and may release the task."""
    bank: list[StoredPayment] = []
    ended(desk)
    desk.crowd[0].claim()
    backup = Backup(desk, "sp")
    paying(desk, bank)
    assert desk.sp.payments.run_one() is True
    backup.restore()
    (payment,) = desk.sp.store.payments()
    assert (payment.state, payment.key) == (PaymentState.UNKNOWN, bank[0].key)
    assert "restored from a backup" in str(payment.error)
    assert desk.sp.payments.run_one() is False
    assert len(bank) == 1
    resolve_payment(desk.sp.ports, desk.task, payment.who, "paid", "by hand")
    assert desk.sp.payments.run_one() is False
    assert len(bank) == 1


def test_a_claim_that_sp_has_forgotten_is_made_again_and_paid_once(desk: Desk):
    """Claimed and paid after the backup: the phone sends the same claim, and the operator decides, by the same key."""
    bank: list[StoredPayment] = []
    ended(desk)
    backup = Backup(desk, "sp")
    paying(desk, bank)
    paid = desk.crowd[0].claim()
    desk.sp.payments.run_one()
    backup.restore(reconciled=False)
    assert desk.sp.store.payments() == []
    assert desk.crowd[0].claim() == paid
    (payment,) = desk.sp.store.payments()
    assert (payment.state, payment.amount, payment.key) == (PaymentState.UNKNOWN, paid, bank[0].key)
    assert desk.sp.payments.run_one() is False
    assert len(bank) == 1
    reconcile(desk.sp.ports, desk.task, returned=0)
    desk.crowd[1].claim()
    assert [one.state for one in desk.sp.store.payments()] == [PaymentState.UNKNOWN, PaymentState.PENDING]
    assert desk.sp.payments.run_one() is True
    assert [one.who for one in bank] == [desk.crowd[0].keys.who, desk.crowd[1].keys.who]


def test_a_claim_of_a_round_that_sp_has_lost_is_paid_for_the_rest(desk: Desk):
    """Claimed again, as it was: what SP has lost pays nothing, and the phone names it."""
    play(desk)
    backup, person = Backup(desk, "sp"), desk.crowd[0]
    for _ in range(2):
        play(desk)
    assert person.claim() == sum(person.rewards().values())
    backup.restore()
    play(desk)
    assert desk.states() == ["rewarded", "aborted"]
    said = heard(person)
    assert person.claim() == person.rewards()[1] > 0
    assert said[-1] == (
        "claimed",
        {"millionths": person.rewards()[1], "currency": "EUR", "missing": {2: person.rewards()[2]}},
    )


def test_a_claim_again_after_the_deadline_tells_what_was_paid(desk: Desk):
    ended(desk)
    paid = desk.crowd[0].claim()
    desk.after_claims()
    assert desk.state == "settled"
    assert desk.crowd[0].claim() == paid
    with pytest.raises(TooLate):
        desk.crowd[1].claim()


def test_a_restored_csp_answers_no_step_a_second_time(desk: Desk):
    """Restored to before a round's steps: the very same request, or another one, gets no answer; the round is void."""
    backup = Backup(desk, "csp")
    shown: list[bytes] = []
    answer = desk.csp.answer
    desk.csp.answer = lambda task, request, _longest=0: shown.append(request) or answer(task, request)  # type: ignore[method-assign]
    play(desk)
    assert desk.states()[0] == "rewarded"
    backup.restore()
    for request in shown:
        with pytest.raises(RolledBack, match="answers no step"):
            desk.csp.answer(desk.task, request)
    play(desk)
    assert desk.states() == ["rewarded", "aborted"]
    assert desk.state == "cancelled"


def test_without_the_mark_a_csp_would_answer_again(desk: Desk):
    """What the mark is for: another nonce for the same round would let SP choose."""
    backup = Backup(desk, "csp")
    shown: list[bytes] = []
    answer = desk.csp.answer
    desk.csp.answer = lambda task, request, _longest=0: shown.append(request) or answer(task, request)  # type: ignore[method-assign]
    play(desk)
    first = answer(desk.task, shown[0])
    backup.restore()
    desk.csp.store.change_task(desk.task, rolled_back=False)
    assert desk.csp.answer(desk.task, shown[0]) != first


@pytest.mark.parametrize(
    "settings", [{"pay": "equal"}, {"pay": "samples"}, HARDENED], ids=["equal", "samples", "hardened"]
)
def test_what_a_restored_csp_has_lost_stays_claimable(tmp_path: Path, settings: Any):
    """It lost the second round: the claim shows what CSP has signed, and CSP believes its own signature."""
    desk = Desk.funded(tmp_path / "desk", 3, **settings)
    play(desk)
    backup = Backup(desk, "csp")
    for _ in range(2):
        play(desk)
    assert desk.state == "finished"
    backup.restore()
    for person in desk.crowd:
        rewards = person.rewards()
        assert (sorted(rewards), person.claim()) == ([1, 2], sum(rewards.values()))
        assert desk.sp.claims.pay(desk.task, replace_claim(person)).paid == {2: rewards[2]}  # was paid with the others


def replace_claim(person) -> bytes:
    """Another claim, of the newest round alone."""
    side = person.new_side()
    side.open_reward(person.blobs.get("rounds/2/reward"), 2)
    return side.claim()


def test_a_csp_that_was_set_back_ends_the_task_also_where_it_is_asked_for_an_end(tmp_path: Path):
    """Too few came to the second round: without CSP's word about it no round follows, and what was earned is paid."""
    desk = Desk.funded(tmp_path / "desk", 3, rounds=3)
    play(desk)
    desk.csp.store.change_task(desk.task, rolled_back=True)
    for _ in range(3):
        desk.later(desk.settings.window + desk.settings.late)
    assert (desk.states(), desk.state) == (["rewarded", "aborted"], "cancelled")
    assert "set back" in desk.sp.store.task(desk.task).end.words()
    assert all(person.claim() > 0 for person in desk.crowd)


@pytest.mark.parametrize("is_set_back", [True, False])
def test_a_csp_that_was_set_back_is_told_of_a_claimant_after_enrolment(tmp_path: Path, is_set_back: bool):
    """From before anyone had joined: who came in time is believed by its certificate, and can only claim."""
    desk = Desk(tmp_path / "desk", {"enrol_until": "1970-01-01T00:20:00+00:00"})
    backup = Backup(desk, "csp")
    desk.invite(3)
    desk.requester.fund(desk.task, desk.settings.rounds * BUDGET, "all")
    desk.run()
    ended(desk)
    desk.clock.time = 1300.0
    backup.restore()
    person = desk.crowd[0]
    desk.csp.store.change_task(desk.task, rolled_back=is_set_back)
    if is_set_back:
        assert person.claim() == sum(person.rewards().values()) > 0
    else:
        with pytest.raises(EnrolmentOver):
            desk.csp.enrol(desk.task, desk.sp.store.participant(desk.task, person.keys.who).certificate)


def test_a_task_made_after_the_restore_is_as_any_other(desk: Desk):
    """The marks are of the tasks in the backup."""
    Backup(desk, "csp").restore()
    desk.csp.store.add_task(StoredTask("b" * 64, "definition", "appointment", "open"))
    assert {stored.task for stored in desk.csp.store.tasks() if stored.rolled_back} == {desk.task}


class _KgcAway:
    """KGC's answer to an acknowledgement is lost before it was made."""

    def __init__(self, kgc: KgcPeer, desk: "_UnheardDesk") -> None:
        self._kgc, self._desk = kgc, desk

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self._kgc.bundle(task)

    def dealt(self, task: str, number: int) -> bytes:
        return self._kgc.dealt(task, number)

    def acknowledge(self, task: str) -> bool:
        """Never heard while the desk says so."""
        if self._desk.kgc_is_away:
            raise ConnectionError("KGC is away")
        return self._kgc.acknowledge(task)


class _TolerantCsp(Csp):
    """As an SP sees it that goes on although CSP could not prepare."""

    def prepare(self, task: str) -> None:
        with contextlib.suppress(ConnectionError):
            super().prepare(task)


class _UnheardDesk(Desk):
    """CSP cannot tell KGC that it has its share."""

    kgc_is_away = True

    def kgc_for(self, role: str) -> KgcPeer:
        kgc = super().kgc_for(role)
        return _KgcAway(kgc, self) if role == "csp" else kgc

    def new_csp(self, disk=None) -> Csp:
        csp = super().new_csp(disk)
        return _TolerantCsp(csp.store, csp.blobs, csp.bundles, csp.guard, csp.kgc, csp.kgc_key, csp.clock, csp.tools)


def test_csp_answers_nothing_that_a_copy_of_its_share_could_be_asked_again(tmp_path: Path):
    """Nothing before KGC has destroyed its copy; after that, a CSP from before the task cannot fetch the share."""
    desk = _UnheardDesk(tmp_path / "desk", budget=None)
    desk.invite(4)
    desk.run()
    models = [[i * 0.1 + 0.01 * j for j in range(8)] for i in range(1, 5)]
    honest_uploads(desk, 1, models, [1, 2, 3, 4])
    assert desk.kgc.bundles.has(f"{desk.task}.csp")
    for _ in range(2):
        with pytest.raises(NotReady, match="before CSP has acknowledged"):  # SP asks KGC itself
            desk.run()
        with pytest.raises(ConnectionError, match="KGC is away"):
            desk.csp.answer(desk.task, b"the first request")
        desk.restart()
    desk.kgc_is_away = False
    desk.run()
    assert desk.states()[0] == "rewarded"
    average = desk.crowd[3].read(1).weights
    assert np.max(np.abs(average - np.average(np.array(models), axis=0, weights=[1, 2, 3, 4]))) < 0.01
    assert not desk.kgc.bundles.has(f"{desk.task}.csp")
    assert isinstance(desk.disk, FileDisk)
    share = (desk.folder / f"csp/keys/{desk.task}.csp").read_bytes()
    desk.disk.close()
    shutil.rmtree(desk.folder / "csp")
    end_doubtful_csp(desk.disk.store("csp"))  # an empty backup, restored
    desk.restart()
    with pytest.raises(NotReady, match="handed over and destroyed"):
        desk.csp.prepare(desk.task)
    desk.csp.bundles.put(f"{desk.task}.csp", share)  # of a backup whose database is older than its files
    with pytest.raises(NotReady, match="handed over and destroyed"):
        desk.csp.prepare(desk.task)


def test_what_the_bank_has_paid_is_not_paid_again_when_it_is_claimed_again(desk: Desk):
    """Claimed and paid after the backup, named by participant or key: booked as paid, and no program runs."""
    bank: list[StoredPayment] = []
    ended(desk)
    backup, (first, second, third) = Backup(desk, "sp"), desk.crowd
    paying(desk, bank)
    paid = [first.claim(), second.claim()]
    while desk.sp.payments.run_one():
        pass
    backup.restore(reconciled=False)
    with pytest.raises(SettingsError, match="no payment's key"):
        reconcile(desk.sp.ports, desk.task, returned=0, paid={"somebody": 5})
    assert second.claim() == paid[1]  # before the operator has looked: it waits
    made = {one.key: one.amount for one in bank}
    reconcile(desk.sp.ports, desk.task, returned=0, paid={bank[1].key: 10_000})  # too little, by mistake
    for _ in range(2):
        reconcile(desk.sp.ports, desk.task, returned=0, paid=made)
    assert forgotten_payments(desk.sp.store, desk.task) == {bank[0].key: paid[0]}
    paying(desk, bank)
    assert first.claim() == paid[0]
    third.claim()
    assert forgotten_payments(desk.sp.store, desk.task) == {}
    states = {payment.who: payment.state for payment in desk.sp.store.payments()}
    assert states == {
        first.keys.who: PaymentState.PAID,
        second.keys.who: PaymentState.PAID,
        third.keys.who: PaymentState.PENDING,
    }
    while desk.sp.payments.run_one():
        pass
    assert [payment.who for payment in bank] == [person.keys.who for person in desk.crowd]


@pytest.mark.parametrize("is_whole", [True, False], ids=["millionths", "cents, as a bank has them"])
def test_what_the_bank_has_paid_is_taken_off_however_a_claim_puts_its_rounds_together(
    tmp_path: Path, *, is_whole: bool
):
    """Three rounds were claimed and paid at once; the last of them is lost with SP: the claim that comes again is of two."""
    desk = Desk.funded(tmp_path / "desk", 3, rounds=3, pay="samples")
    bank: list[StoredPayment] = []
    for _ in range(2):
        play(desk)
    backup, person = Backup(desk, "sp"), desk.crowd[0]
    for _ in range(2):
        play(desk)
    paying(desk, bank)
    made = person.claim()
    assert desk.sp.payments.run_one() is True
    assert (sorted(person.rewards()), bank[0].amount, bank[0].sequence) == ([1, 2, 3], made, 3)
    backup.restore(reconciled=False)
    named = {bank[0].key: made if is_whole else made // 10_000 * 10_000}
    reconcile(desk.sp.ports, desk.task, returned=0, paid=named)
    play(desk)
    paying(desk, bank)
    rewards = person.rewards()
    assert person.claim() == rewards[1] + rewards[2]
    assert desk.sp.payments.run_one() is False
    (row,) = desk.sp.store.payments()
    assert (row.state, row.amount, row.sequence, row.owner) == (PaymentState.PAID, rewards[1] + rewards[2], 2, BANK)
    (left,) = forgotten_payments(desk.sp.store, desk.task).values()
    assert abs(left - rewards[3]) < 20_000


def instalment(desk: Desk, person: Participant, sequence: int, owed: int) -> None:
    store = desk.sp.store
    with store.transaction():
        book_instalment(store, store.task(desk.task), person.keys.who, sequence, owed, 0, desk.clock.now())


PAID, PENDING = PaymentState.PAID, PaymentState.PENDING


@pytest.mark.parametrize(
    ("named", "claims", "rows"),
    [
        ({1: 5, 2: 5}, [(2, 10)], [(2, 10, PAID)]),
        ({2: 10}, [(1, 5), (2, 5)], [(1, 5, PAID), (2, 5, PAID)]),
        ({2: 10}, [(1, 5), (3, 9)], [(1, 5, PAID), (3, 5, PAID), (4, 4, PENDING)]),
        ({1: 5}, [(1, 5), (2, 7)], [(1, 5, PAID), (2, 7, PENDING)]),
        ({1: 3}, [(1, 5), (2, 7)], [(1, 3, PAID), (2, 2, PENDING), (3, 7, PENDING)]),
        ({3: 4}, [(2, 6), (3, 5)], [(2, 4, PAID), (4, 2, PENDING), (5, 5, PENDING)]),
        ({}, [(1, 5), (3, 9)], [(1, 5, PENDING), (3, 9, PENDING)]),
    ],
)
def test_no_cent_is_paid_twice_and_none_is_kept(
    desk: Desk, named: dict[int, int], claims: list[tuple[int, int]], rows: list[tuple[int, int, PaymentState]]
):
    """What the bank has paid, by the sequence that it has it under, and claims since. No payment that runs has a key that the
    bank knows, or it would do nothing."""
    person, other = desk.crowd[:2]
    euro, store = 1_000_000, desk.sp.store
    keys = {payment_key(desk.task, person.keys.who, n): amount * euro for n, amount in named.items()}
    reconcile(desk.sp.ports, desk.task, returned=0, paid=keys)
    for sequence, owed in claims:
        instalment(desk, person, sequence, owed * euro)
    instalment(desk, other, 1, 3 * euro)
    found = [(one.sequence, one.amount // euro, one.state) for one in store.instalments(desk.task, person.keys.who)]
    assert found == rows
    assert not [one for one in store.payments() if one.state is PENDING and one.key in keys]
    assert [one.state for one in store.instalments(desk.task, other.keys.who)] == [PENDING]
    paid = sum(amount for _, amount, state in rows if state is PAID)
    assert sum(forgotten_payments(store, desk.task).values()) == (sum(named.values()) - paid) * euro


def test_claims_that_came_before_the_bank_was_asked_are_taken_off_too(desk: Desk):
    """Under another key than the bank's: they wait, and the comparison settles them."""
    person, euro, store = desk.crowd[0], 1_000_000, desk.sp.store
    store.change_task(desk.task, unreconciled=True)
    instalment(desk, person, 1, 4 * euro + 3333)
    instalment(desk, person, 2, 5 * euro)
    assert [one.state for one in store.payments()] == [PaymentState.UNKNOWN] * 2
    paid = {payment_key(desk.task, person.keys.who, 3): 4 * euro}
    for _ in range(2):
        reconcile(desk.sp.ports, desk.task, returned=0, paid=paid)
    assert [one.state for one in store.payments()] == [PAID, PaymentState.UNKNOWN]
    assert forgotten_payments(store, desk.task) == {}


@pytest.mark.parametrize(
    ("named", "rows"),
    [
        ({1: 5, 2: 7}, [(2, 12, PAID)]),
        ({2: 7}, [(2, 7, PAID), (3, 5, PaymentState.UNKNOWN)]),
        ({1: 5}, [(2, 5, PAID), (3, 7, PaymentState.UNKNOWN)]),
        ({3: 13}, [(2, 12, PAID)]),
        ({}, [(2, 12, PaymentState.UNKNOWN)]),
    ],
)
def test_a_claim_of_two_rounds_before_the_bank_was_asked_is_paid_as_far_as_the_bank_has(
    desk: Desk, named: dict[int, int], rows: list[tuple[int, int, PaymentState]]
):
    """The rest waits for its operator, under a key that the bank does not know; a later correction is taken too."""
    person, euro, store = desk.crowd[0], 1_000_000, desk.sp.store
    store.change_task(desk.task, unreconciled=True)
    instalment(desk, person, 2, 12 * euro)
    keys = {n: payment_key(desk.task, person.keys.who, n) for n in (1, 2, 3)}
    for _ in range(2):
        reconcile(desk.sp.ports, desk.task, returned=0, paid={keys[n]: amount * euro for n, amount in named.items()})
        found = store.instalments(desk.task, person.keys.who)
        assert [(one.sequence, one.amount // euro, one.state) for one in found] == rows
    reconcile(desk.sp.ports, desk.task, returned=0, paid={keys[1]: 5 * euro, keys[2]: 7 * euro})
    found = store.instalments(desk.task, person.keys.who)
    assert (sum(one.amount for one in found), {one.state for one in found}) == (12 * euro, {PAID})


@pytest.mark.parametrize("is_named_first", [True, False], ids=["named, then claimed", "claimed, then named"])
def test_too_much_that_was_named_is_corrected_by_naming_it_again(desk: Desk, *, is_named_first: bool):
    """What was taken off beyond it waits for the operator, under a key that the bank does not know."""
    person, euro, store = desk.crowd[0], 1_000_000, desk.sp.store
    keys = {n: payment_key(desk.task, person.keys.who, n) for n in (1, 2)}

    def name(amounts: dict[int, int]) -> None:
        paid = {keys[n]: amount * euro for n, amount in amounts.items()}
        reconcile(desk.sp.ports, desk.task, returned=0, paid=paid)

    if is_named_first:
        name({1: 72})
    instalment(desk, person, 2, 12 * euro)
    name({1: 72})
    (first,) = store.instalments(desk.task, person.keys.who)
    assert (first.amount, first.state) == (12 * euro, PAID)
    for amounts, rows in (
        ({1: 7}, [(2, 7, PAID), (3, 5, PaymentState.UNKNOWN)]),
        ({1: 0}, [(2, 7, PaymentState.UNKNOWN), (3, 5, PaymentState.UNKNOWN)]),
        ({2: 4}, [(2, 4, PAID), (3, 5, PaymentState.UNKNOWN), (4, 3, PaymentState.UNKNOWN)]),
    ):
        desk.clock.time += 10.0
        for _ in range(2):
            name(amounts)
            found = store.instalments(desk.task, person.keys.who)
            assert sorted((one.sequence, one.amount // euro, one.state) for one in found) == rows


def test_a_payment_that_runs_is_not_named_before_it_has_ended(desk: Desk):
    """Else a later claim would be taken off what this one is."""
    person, euro, store = desk.crowd[0], 1_000_000, desk.sp.store
    instalment(desk, person, 1, 5 * euro)
    (waits,) = store.payments()
    now = desk.clock.now()
    store.change_payment(waits, runs := replace(waits, state=PaymentState.RUNNING, owner="sp", until=now + 60.0))
    for key, refused in ((runs.key, True), (payment_key(desk.task, person.keys.who, 2), False)):
        with pytest.raises(Conflict, match="when it has ended") if refused else contextlib.nullcontext():
            reconcile(desk.sp.ports, desk.task, returned=0, paid={key: 5 * euro})
    assert (store.payments(), runs.key in store.paid_before(desk.task)) == ([runs], False)


def test_a_payment_that_begins_while_the_bank_is_compared_changes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    person, euro, store = desk.crowd[0], 1_000_000, desk.sp.store
    store.change_task(desk.task, unreconciled=True)
    instalment(desk, person, 2, 12 * euro)
    before = store.payments()
    monkeypatch.setattr(store, "change_payment", lambda *_: False)
    paid = {payment_key(desk.task, person.keys.who, 1): 5 * euro}
    with pytest.raises(Conflict, match="reconcile once more"):
        reconcile(desk.sp.ports, desk.task, returned=0, paid=paid)
    assert (store.payments(), store.paid_before(desk.task)) == (before, {})


def test_amounts_below_a_cent_make_no_payment_of_nothing(desk: Desk):
    person, store = desk.crowd[0], desk.sp.store
    instalment(desk, person, 1, 1_005_000)
    (first,) = store.payments()
    resolve_payment(desk.sp.ports, desk.task, first.key, "paid", "by hand")
    names = {payment_key(desk.task, person.keys.who, n): amount for n, amount in ((2, 1_001_000), (3, 1_005_000))}
    reconcile(desk.sp.ports, desk.task, returned=0, paid=names)
    for sequence, owed in ((2, 1_001_000), (3, 1_005_000)):
        instalment(desk, person, sequence, owed)
    found = store.instalments(desk.task, person.keys.who)
    assert min(one.amount for one in found) > 0
    assert sum(one.amount for one in found) == 3_011_000
    assert sum(one.amount for one in found if one.state is PENDING) <= 11_000


def test_a_round_is_paid_for_people_once_all_that_pays_it_is(desk: Desk):
    """What the bank has paid is a part of the first round, and a payment of its own the rest."""
    person, store, euro = desk.crowd[0], desk.sp.store, 1_000_000
    who = person.keys.who
    reconcile(desk.sp.ports, desk.task, returned=0, paid={payment_key(desk.task, who, 1): 3 * euro})
    for number, owed in ((1, 5), (2, 7)):
        store.post(desk.task, Movement(f"pay {who} round {number}", ESCROW, participant_account(who), owed * euro))
        instalment(desk, person, number, owed * euro)

    def words() -> dict[int, str]:
        return {number: str(word.state) for number, word in pay_words(store, desk.task, who, 0.0).items()}

    part, rest, second = store.instalments(desk.task, who)
    assert words() == {1: "waiting", 2: "waiting"}
    resolve_payment(desk.sp.ports, desk.task, rest.key, "paid", "by hand")
    store.change_payment(second, replace(second, error="account closed"))
    assert words() == {1: "paid", 2: "failed"}
    assert part.owner == BANK


def test_a_round_that_came_to_nothing_is_paid_with_what_came_before_it(desk: Desk):
    """Others had claimed too much of it: its owner is told of no payment that would still come."""
    person, store = desk.crowd[0], desk.sp.store
    who = person.keys.who
    for number, owed in ((1, 5_000_000), (2, 0)):
        store.post(desk.task, Movement(f"pay {who} round {number}", ESCROW, participant_account(who), owed))
    instalment(desk, person, 2, 5_000_000)
    (row,) = store.payments()
    for state in ("waiting", "paid"):
        assert [str(word.state) for word in pay_words(store, desk.task, who, 0.0).values()] == [state] * 2
        resolve_payment(desk.sp.ports, desk.task, row.key, "paid", "by hand")


def test_of_a_payer_that_knows_what_it_has_paid_nothing_is_named(tmp_path: Path):
    """A key that it has paid under may be of other rounds. It is given all, and pays what that comes to, less what it paid."""
    desk = Desk.funded(tmp_path / "desk", 3, payer=ReaderKey.fresh().public)
    person, store = desk.crowd[0], desk.sp.store
    store.change_task(desk.task, unreconciled=True)
    instalment(desk, person, 1, 5_000_000)
    with pytest.raises(SettingsError, match="without naming payments"):
        reconcile(desk.sp.ports, desk.task, returned=0, paid={payment_key(desk.task, person.keys.who, 1): 5_000_000})
    reconcile(desk.sp.ports, desk.task, returned=0)
    instalment(desk, person, 2, 9_000_000)
    assert [one.state for one in store.payments()] == [PaymentState.UNKNOWN, PENDING]


def test_a_payers_answer_names_payments_as_a_restored_sp_does(tmp_path: Path):
    """CSP has attested a round that SP has lost: by its count the payer's keys are others, for the bank alone."""
    key = ReaderKey.fresh()
    desk = Desk.funded(tmp_path / "desk", 3, rounds=3, pay="equal", payer=key.public)
    person = desk.crowd[0]
    person.pay_to("email", "ann@example.org")
    for _ in range(2):
        play(desk)
    backup = Backup(desk, "sp")
    for _ in range(2):
        play(desk)
    attested = person.claim()
    backup.restore()
    desk.run()
    booked = person.claim()
    assert booked < attested
    rows = due_rows(desk.sp.store, desk.task, desk.clock.now())
    payer = Payer(key, PayerRecord([desk.kgc.signing.public.hex()], [desk.task]))
    (made,), refused = payer.take(rows, rows)
    assert (refused, made.row()["amount"]) == ([], f"{attested // 1_000_000}.00")
    (waits,) = desk.sp.store.payments()
    assert made.instalment.key != waits.key
    take_results(desk.sp.ports, read_results(results_of([made.row()], {})))
    (paid,) = desk.sp.store.payments()
    assert (paid.amount, paid.state) == (booked, PAID)


def test_money_that_was_returned_is_booked_after_each_restore(desk: Desk):
    """A second restore finds the first one's in its backup; the same number again is nothing new."""
    for returned in (5_000_000, 5_000_000, 9_000_000):
        reconcile(desk.sp.ports, desk.task, returned=returned)
        assert desk.ledger.returned() == returned


def test_a_refusal_that_only_sp_tells_of_forfeits_nothing(desk: Desk):
    """SP says that CSP refuses the claim, and then what is left of it: each is kept, the person told, and all claimed again."""
    ended(desk)
    person = desk.crowd[0]
    person.step(train)
    seen: list[bytes] = []

    def lying(_task: str, claim: bytes, _keys: object) -> None:
        seen.append(claim)
        raise MasksDoNotFit("no reward is kept for round 2")

    desk.sp_link.claim, said = lying, heard(person)
    for _ in range(2):
        with pytest.raises(MasksDoNotFit, match="no reward is kept for round 2"):
            person.claim()
    claimed = [Claim.from_bytes(one, Limits(None, 0, max_entries=2, longest=len(one))).rounds for one in seen]
    assert claimed == [(1, 2), (1,), (1, 2), (1,)]
    why = {"why": "no reward is kept for round 2"}
    without = ("claiming without", {"rounds": [2], **why})
    assert said == [("claim refused", why), without, ("claim refused", why), without]
    kept = {path.read_bytes() for path in (desk.folder / "people/0/refused-claims").iterdir()}
    assert set(seen[:2]) <= kept
    assert sorted(person.rewards()) == [1, 2]
    del desk.sp_link.claim
    assert person.claim() == sum(person.rewards().values())


def test_a_receipt_counts_although_sp_says_to_have_lost_the_upload(tmp_path: Path):
    """And then that it is too late: the reward that CSP made is still read, waited for and claimed."""
    desk = Desk.funded(tmp_path / "desk", 3, rounds=1, pay="samples")
    person, *others = desk.crowd
    person.step(train)
    status = desk.sp.tasks.status
    late = raising(TooLate("the round is over"))
    lies = {"status": lambda task: status(task) | {"epoch": "lie"}, "uploaded": lambda *_: None, "send": late}
    vars(desk.sp_link).update(lies)
    said = heard(person)
    person.step(train)
    assert [what for what, _ in said] == ["restored", "sending again", "refused"]
    for name in lies:
        delattr(desk.sp_link, name)
    for other in others:
        other.step(train)
    desk.run()
    desk.sp_link.reward = late
    with pytest.raises(NotReady, match="does not show the reward of round 1"):
        person.claim()
    del desk.sp_link.reward
    assert person.claim() == person.rewards()[1] > 0


def groups(rounds: int, draw: random.Random) -> list[slice]:
    """So many rounds, as claims put them together."""
    found, at = [], 0
    while at < rounds:
        step = draw.randint(1, rounds - at)
        found.append(slice(at, at + step))
        at += step
    return found


@pytest.mark.parametrize("smallest", [10_000, 1], ids=["whole cents", "millionths"])
def test_whatever_was_paid_and_is_claimed_everyone_has_what_they_earned(desk: Desk, smallest: int):
    """Claims before SP was lost, of which the bank knows some; others since, before its operator named them and after, by
    amounts that were wrong at first. Nothing is due under a key that the bank knows, and the bank and SP together pay what was
    earned, to the cent."""
    store, draw, now = desk.sp.store, random.Random(36), desk.clock.now()  # noqa: S311 -- no secret
    for trial in range(150):
        who, owed = f"{trial:020x}", [draw.randint(1, 9_000_000 // smallest) * smallest for _ in range(2)]
        named, before = dict[str, int](), 0
        for group in groups(draw.randint(0, 2), draw):
            amount = sum(owed[group])
            if draw.random() < 0.85:  # else the bank could not make it
                named[payment_key(desk.task, who, group.stop)] = handed_over(before, amount)
            before += amount
        claimed, named_after = groups(draw.randint(0, 2), draw), draw.randint(0, 2)
        for place, group in enumerate([*claimed, None]):
            if place == min(named_after, len(claimed)):
                store.change_task(desk.task, unreconciled=False)
            if place <= named_after and draw.random() < 0.3:
                with store.transaction():
                    wrong = {key: draw.randint(0, 2_000) * 10_000 for key in named}
                    take_off(store, store.task(desk.task), wrong, now)
            if place == min(named_after, len(claimed)):
                with store.transaction():
                    take_off(store, store.task(desk.task), named, now)
            if group is not None:
                with store.transaction():
                    book_instalment(store, store.task(desk.task), who, group.stop, sum(owed[group]), 0, now)
        rows = store.instalments(desk.task, who)
        earned = sum(owed[: claimed[-1].stop] if claimed else [])
        assert sum(one.amount for one in rows) == earned
        due = [one for one in rows if one.owner != BANK]
        assert not {one.key for one in due} & named.keys()
        total = sum(
            handed_over(sum(one.amount for one in rows if one.sequence < row.sequence), row.amount) for row in due
        )
        assert abs(total - max(0, whole_cents(earned) - sum(named.values()))) <= (0 if smallest > 1 else 20_000)
        store.change_task(desk.task, unreconciled=True)
