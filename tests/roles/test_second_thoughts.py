"""What one server says after a disaster, real or invented: it buys no second answer, no second payment and no smaller claim."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import MasksDoNotFit, NotReady, SettingsError, TooLate
from crowdfl.roles.csp import Csp
from crowdfl.roles.ports import KgcPeer
from crowdfl.roles.records import PaymentState, StoredPayment, payment_key
from crowdfl.roles.restored import forgotten_payments, mark_restored_csp, reconcile
from tests.attacks.cheating import honest_uploads
from tests.hosts import Desk, FileDisk, heard
from tests.roles.test_restored import Backup, ended, paying, train


class _KgcAway:
    """KGC's answer to an acknowledgement is lost before it was made."""

    def __init__(self, kgc: KgcPeer, desk: "_UnheardDesk") -> None:
        self._kgc, self._desk = kgc, desk

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self._kgc.bundle(task)

    def acknowledge(self, task: str) -> None:
        """Never heard while the desk says so."""
        if self._desk.kgc_is_away:
            raise ConnectionError("KGC is away")
        self._kgc.acknowledge(task)


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
        return _TolerantCsp(csp.store, csp.blobs, csp.bundles, csp.kgc, csp.kgc_key, csp.tools)


def test_csp_answers_nothing_that_a_copy_of_its_share_could_be_asked_again(tmp_path: Path):
    """Nothing before KGC has destroyed its copy; after that, a CSP from before the task cannot fetch the share."""
    desk = _UnheardDesk(tmp_path / "desk", profile="hardened", budget=None, lanes=0, key_bits=512)
    desk.invite(4)
    desk.run()
    models = [[i * 0.1 + 0.01 * j for j in range(8)] for i in range(1, 5)]
    honest_uploads(desk, 1, models, [1, 2, 3, 4])
    assert desk.kgc.bundles.has(f"{desk.task}.csp")
    with pytest.raises(ConnectionError, match="KGC is away"):
        desk.run()
    desk.restart()
    with pytest.raises(ConnectionError, match="KGC is away"):
        desk.run()
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
    mark_restored_csp(desk.disk.store("csp"))  # an empty backup, restored
    desk.restart()
    with pytest.raises(NotReady, match="handed over and destroyed"):
        desk.csp.prepare(desk.task)
    desk.csp.bundles.put(f"{desk.task}.csp", share)  # of a backup whose database is older than its files
    with pytest.raises(NotReady, match="handed over and destroyed"):
        desk.csp.prepare(desk.task)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Three people in a funded task, whose first round is open."""
    return Desk.funded(tmp_path / "desk", 3)


def test_what_the_bank_has_paid_is_not_paid_again_when_it_is_claimed_again(desk: Desk):
    """Claimed and paid after the backup, named by participant or key: booked as paid, and no program runs."""
    bank: list[StoredPayment] = []
    ended(desk)
    backup, (first, second, third) = Backup(desk, "sp"), desk.crowd
    paying(desk, bank)
    paid = [first.claim(), second.claim()]
    while desk.sp.payments.run_one():
        pass
    backup.restore()
    with pytest.raises(SettingsError, match="neither a participant"):
        reconcile(desk.sp.ports, desk.task, ["somebody"])
    assert second.claim_again() == paid[1]  # before the operator has looked: it waits
    key = payment_key(desk.task, first.keys.who)
    reconcile(desk.sp.ports, desk.task, [key, second.keys.who])
    reconcile(desk.sp.ports, desk.task, [key, second.keys.who])
    assert forgotten_payments(desk.sp.store, desk.task) == {key: first.keys.who}
    paying(desk, bank)
    assert first.claim_again() == paid[0]
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


def test_a_claim_is_not_made_smaller_on_sp_s_word(desk: Desk):
    """SP says that CSP refuses it: the whole claim is kept, the person told, and the same claim sent again."""
    ended(desk)
    person = desk.crowd[0]
    person.step(train)
    seen: list[bytes] = []

    def lying(_task: str, claim: bytes, _keys: object) -> None:
        seen.append(claim)
        raise MasksDoNotFit("no reward is kept for round 2")

    desk.sp_link.claim, said = lying, heard(person)
    for _ in range(2):
        with pytest.raises(NotReady, match="no reward is kept for round 2"):
            person.claim()
    assert (len(seen), len(set(seen))) == (2, 1)
    assert said == [("claim refused", {"why": "no reward is kept for round 2"})]
    desk.clock.time += 400  # of 500 to claim: what is left is better than nothing
    with pytest.raises(MasksDoNotFit):
        person.claim()
    assert "claiming without" in [what for what, _ in said]
    kept = [path.read_bytes() for path in (desk.folder / "people/0/refused-claims").iterdir()]
    assert seen[0] in kept
    assert sorted(person.rewards()) == [1, 2]


def test_a_receipt_counts_although_sp_says_to_have_lost_the_upload(tmp_path: Path):
    """And then that it is too late: the reward that CSP made is still read, waited for and claimed."""
    desk = Desk.funded(tmp_path / "desk", 3, rounds=1)
    person, *others = desk.crowd
    person.step(train)
    status = desk.sp.status

    def late(*_args: object) -> str:
        raise TooLate("the round is over")

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
