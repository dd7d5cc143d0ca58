import json
from decimal import Decimal

import numpy as np
import pytest

from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Order
from crowdfl.errors import (
    CrowdFLError,
    DocumentError,
    Forbidden,
    InvitationRefused,
    NotReady,
    ServiceUnavailable,
    TaskNotRunning,
    TooLate,
    UnknownParticipant,
)
from crowdfl.learning.models.forms import from_safetensors
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.participant.enrolment import enrol
from crowdfl.roles.records import TaskState
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, earned_account
from crowdfl.settings import TaskSettings
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sealed_blobs import SealedBlobs
from tests.hosts import BUDGET, HARDENED, Desk, raising


def trainer(number: int, samples: int = 5):
    """A made-up training: the model moved by this person's own amount."""
    return lambda arrays, _settings, _round=0: ([array + 0.1 * (number + 1) for array in arrays], samples + number)


def take_part(desk: Desk, people=None) -> None:
    """Everyone (or these) does what is due once."""
    for number, person in enumerate(desk.crowd):
        if people is None or number in people:
            person.step(trainer(number))


@pytest.fixture
def desk(tmp_path):
    return Desk.funded(tmp_path, 4)


def state_of(desk: Desk, number: int) -> str:
    return {entry["number"]: entry["state"] for entry in desk.sp.tasks.status(desk.task)["rounds"]}[number]


def test_a_campaign_delivers_the_model_and_pays_everyone(desk):
    """Two rounds: the model is the plain average of the plain training, rewards are paid, and the books close."""
    expected = [array.copy() for array in desk.initial]
    for _ in range(2):
        take_part(desk)
        trained = [trainer(number)(expected, {}) for number in range(4)]
        flat = [np.concatenate([array.reshape(-1) for array in arrays]) for arrays, _ in trained]
        average = fedavg(flat, [samples for _, samples in trained])
        expected = [average[:6].reshape(2, 3), average[6:]]
        desk.run()
    take_part(desk)
    for ours, plain in zip(desk.requester.model(desk.task), expected, strict=True):
        assert np.max(np.abs(ours - plain)) <= 2e-3
    paid = [person.claim() for person in desk.crowd]
    assert all(amount > 0 for amount in paid)
    assert 2 * BUDGET - 2 * 2 * 4 <= sum(paid) <= 2 * BUDGET
    desk.later(1000)
    report = desk.requester.report(desk.task)
    assert report["paid_in"] == 2 * BUDGET
    assert report["earned"] + report["returned"] == 2 * BUDGET
    assert desk.state == TaskState.SETTLED


def test_a_campaign_with_sealed_keys_survives_restarts(tmp_path, monkeypatch):
    """Every role's key folder under a passphrase: nothing else changes."""

    def opened(folder, **how):
        blobs = FileBlobs(folder, **how)
        return SealedBlobs(blobs, "a phrase", 8) if folder.name == "keys" else blobs

    monkeypatch.setattr("crowdfl.simulation.disks.FileBlobs", opened)
    desk = Desk(tmp_path)
    desk.invite(3)
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    for _ in range(3):
        desk.restart()
        desk.run()
        take_part(desk)
    desk.run()
    assert desk.state == TaskState.FINISHED
    assert all(person.claim() > 0 for person in desk.crowd)
    assert b"CFLM" not in b"".join(path.read_bytes() for path in tmp_path.glob("*/keys/*"))


def test_the_requester_never_sees_what_one_participant_earned(tmp_path):
    """Not while claims come in, one after the other, and not in the end: payments are one sum."""
    desk = Desk.funded(tmp_path, 4, pay="samples")
    for _ in range(3):
        take_part(desk)
        desk.run()
    before = desk.requester.report(desk.task)
    claimed = [person.claim() for person in desk.crowd[:3]]
    assert desk.requester.report(desk.task) == before
    assert (before["offered"], before["earned"]) == (2 * BUDGET, None)
    desk.after_claims()
    after = desk.requester.report(desk.task)
    assert after["earned"] == sum(claimed) == 2 * BUDGET - after["returned"]
    assert [m["amount"] for m in after["movements"] if m["name"].startswith("pay")] == [sum(claimed)]
    assert not set(claimed) & {movement["amount"] for movement in after["movements"]}
    assert set(desk.sp.tasks.statement(desk.task).balances().values()) <= {0, sum(claimed), -sum(claimed)}


def test_a_short_key_is_shown_with_a_warning(tmp_path):
    desk = Desk(tmp_path, **HARDENED)
    status = desk.sp.tasks.status(desk.task)
    assert (status["key"], status["insecure"]) == ("960 bits, INSECURE TEST KEY", True)
    assert TaskSettings(profile="hardened").key == "2048 bits"


def test_a_round_opens_only_with_its_budget_in_escrow(tmp_path):
    desk = Desk(tmp_path)
    desk.invite(3)
    desk.requester.fund(desk.task, BUDGET - 1, "first")
    desk.run()
    assert desk.sp.tasks.status(desk.task)["rounds"] == []
    desk.requester.fund(desk.task, 1, "second")
    desk.run()
    assert state_of(desk, 1) == "open"
    assert desk.ledger.balance(ESCROW) == 0


def test_retransmit_takes_a_late_upload_until_late_is_over(tmp_path):
    """The late one is averaged and marked late; after `late` the round is closed."""
    desk = Desk.funded(tmp_path, 4, late=50.0)
    take_part(desk, {0, 1, 2})
    desk.later(120)
    assert state_of(desk, 1) == "open"
    take_part(desk, {3})
    assert [upload.late for upload in desk.sp.store.uploads(desk.task, 1)] == [False, False, False, True]
    desk.run()
    assert state_of(desk, 1) == "rewarded"


def test_too_few_extends_once_then_aborts_and_refunds(desk):
    """The aborted round's budget is back in escrow, its participants earn nothing, and the next round opens."""
    take_part(desk, {0, 1})
    desk.later(100)
    assert state_of(desk, 1) == "open"
    desk.later(100)
    assert state_of(desk, 1) == "aborted"
    assert state_of(desk, 2) == "open"
    balances = desk.ledger.balances()
    assert (balances["round 1"], balances["round 2"], balances[ESCROW]) == (0, BUDGET, BUDGET)


def test_the_requester_gets_the_last_average_even_if_the_last_round_is_aborted(desk):
    take_part(desk)
    desk.run()
    desk.later(200)
    desk.later(200)
    assert state_of(desk, 2) == "aborted"
    assert desk.state == TaskState.FINISHED
    with_read = desk.crowd[0]
    with_read.step(trainer(0))
    for ours, read in zip(desk.requester.model(desk.task), with_read.model(), strict=True):
        assert np.array_equal(ours, read)


def test_an_invitation_serves_one_person(tmp_path):
    """Its second holder is refused; its first may come again."""
    desk = Desk(tmp_path)
    (invitation,) = desk.requester.invite(desk.task, 1, 100)
    desk.invite(1)
    for _ in range(2):
        enrol(desk.kgc, desk.sp.core.definition(desk.task), invitation, desk.crowd[0].keys, desk.signing.public)
    with pytest.raises(InvitationRefused, match="someone else"):
        enrol(
            desk.kgc,
            desk.sp.core.definition(desk.task),
            invitation,
            ParticipantKeys.fresh("another"),
            desk.signing.public,
        )


def test_an_expired_or_forged_invitation_is_refused(tmp_path):
    desk = Desk(tmp_path)
    (invitation,) = desk.requester.invite(desk.task, 1, 100)
    desk.clock.time += 101
    with pytest.raises(InvitationRefused, match="expired"):
        enrol(desk.kgc, desk.sp.core.definition(desk.task), invitation, ParticipantKeys.fresh(""), desk.signing.public)
    forged = invitation.replace('"expires":', '"expires":9')
    with pytest.raises(Exception, match="signature"):
        enrol(desk.kgc, desk.sp.core.definition(desk.task), forged, ParticipantKeys.fresh(""), desk.signing.public)


def test_cancelling_aborts_the_open_round_and_refunds(desk):
    """The open round's money and the rest come back; what was earned before stays claimable."""
    take_part(desk)
    desk.run()
    take_part(desk, {0, 1})
    desk.requester.order(desk.task, "cancel")
    desk.run()
    balances = desk.ledger.balances()
    assert (balances[ESCROW], balances[earned_account(1)], balances[REQUESTER]) == (0, BUDGET, -BUDGET)
    assert desk.crowd[0].claim() > 0
    with pytest.raises(TaskNotRunning):
        desk.invite(1)


def test_a_pause_takes_nothing_from_a_round(desk):
    """However long it lasts: uploads are welcome meanwhile, the window goes on afterwards, and nobody was too late."""
    desk.clock.time += 60
    take_part(desk, {0, 1})
    desk.requester.order(desk.task, "pause")
    desk.clock.time += 5000
    take_part(desk, {2})
    desk.run()
    assert state_of(desk, 1) == "open"
    desk.requester.order(desk.task, "pause")  # again changes nothing
    desk.clock.time += 5000
    desk.requester.order(desk.task, "resume")
    desk.run()
    assert state_of(desk, 1) == "open"
    desk.later(39)
    assert state_of(desk, 1) == "open"
    desk.later(2)
    assert (state_of(desk, 1), desk.sp.tasks.status(desk.task)["rounds"][0]["uploads"]) == ("rewarded", 3)


def test_a_pause_that_ends_in_a_cancel_costs_a_closed_round_nothing(desk, monkeypatch):
    """CSP is waited for as long as if there had been none."""
    take_part(desk)
    desk.sp.tick()
    assert state_of(desk, 1) == "closed"
    desk.requester.order(desk.task, "pause")
    desk.clock.time += 10 * desk.sp.options.csp_patience
    desk.requester.order(desk.task, "cancel")
    with monkeypatch.context() as away:
        away.setattr(desk.csp, "answer", raising(ServiceUnavailable("gone")))
        with pytest.raises(ServiceUnavailable):
            desk.run()
    desk.run()
    assert state_of(desk, 1) == "rewarded"


def test_after_a_cancel_the_requester_gets_what_was_paid_for(desk):
    """The average of the last rewarded round; of none, it is told that there is none."""
    take_part(desk)
    desk.run()
    take_part(desk, {0, 1})
    desk.requester.order(desk.task, "cancel")
    desk.run()
    average = from_safetensors(desk.requester.definition(desk.task).shape, desk.crowd[0].blobs.get("rounds/1/average"))
    assert all(np.allclose(ours, theirs) for ours, theirs in zip(desk.requester.model(desk.task), average, strict=True))
    assert not desk.kgc.bundles.has(f"{desk.task}.participant")


def test_an_upload_whose_round_was_given_up_is_explained(desk):
    """Once, to whoever has a receipt for it."""
    heard = []
    desk.crowd[0].on_event = lambda what, details: heard.append((what, details.get("round")))
    take_part(desk, {0, 1})
    desk.requester.order(desk.task, "cancel")
    desk.run()
    take_part(desk)
    take_part(desk)
    assert heard.count(("given up", 1)) == 1


def test_money_is_not_paid_in_or_out_once_all_is_settled(desk, monkeypatch):
    """Not even by a claim that CSP was looking at when the deadline passed."""
    for _ in range(3):
        take_part(desk)
        desk.run()
    answer = desk.csp.answer

    def slowly(task, request, _longest):
        found = answer(task, request)
        desk.after_claims()
        return found

    monkeypatch.setattr(desk.csp, "answer", slowly)
    with pytest.raises(TooLate, match="books of this task are closed"):
        desk.crowd[0].claim()
    assert desk.requester.report(desk.task)["returned"] == 2 * BUDGET
    with pytest.raises(TaskNotRunning):
        desk.requester.fund(desk.task, 5, "more")


def test_an_order_of_someone_else_is_refused(desk):
    """Only the requester's signature moves a task, and only by known actions."""
    with pytest.raises(Exception, match="signature"):
        desk.sp.tasks.order(desk.task, Order(desk.task, "cancel", 1.0).sign(desk.crowd[0].keys.signing))
    with pytest.raises(DocumentError, match="pause"):
        desk.requester.order(desk.task, "explode")


def test_an_order_that_was_overtaken_is_out_of_date(desk):
    """A delayed "pause" does not undo the "resume" that was signed after it; the same order again is fine."""

    def order(action, at):
        desk.sp.tasks.order(desk.task, Order(desk.task, action, at).sign(desk.requester.signing))

    order("pause", 1.0)
    order("resume", 2.0)
    with pytest.raises(DocumentError, match="out of date"):
        order("pause", 1.0)
    order("resume", 2.0)
    assert desk.state == "running"
    later = json.dumps({"form": 1, "task": desk.task, "action": "pause", "at": "later"})
    with pytest.raises(DocumentError, match="wrong field: at"):
        desk.sp.tasks.order(desk.task, Envelope.sign(Order.kind, later, desk.requester.signing).text)


def test_rounds_are_claimed_as_they_are_rewarded_and_paid_once(desk):
    """Before the first one: not there yet. The same claim again is the same payment, and a forged one is refused."""
    take_part(desk)
    with pytest.raises(NotReady):
        desk.crowd[0].claim()
    desk.run()
    take_part(desk)
    assert desk.crowd[0].claim() == desk.crowd[0].rewards()[1]
    desk.run()
    take_part(desk)
    paid = desk.crowd[0].claim()
    assert desk.crowd[0].claim() == paid
    assert desk.sp.claims.pay(desk.task, desk.crowd[0].blobs.get("claim")).amount == paid
    with pytest.raises(CrowdFLError):
        desk.sp.claims.pay(desk.task, desk.crowd[0].side.claim()[:-64] + bytes(64))
    assert Decimal(paid) == desk.ledger.balance(f"participant {desk.crowd[0].keys.who}")


def test_who_left_is_not_waited_for(desk):
    desk.crowd[3].leave()
    take_part(desk, {0, 1, 2})
    desk.run()
    assert state_of(desk, 1) == "rewarded"


def test_who_left_uploads_nothing_until_it_joins_again(desk):
    """Neither by itself nor past its own software; its place is kept."""
    person = desk.crowd[3]
    upload = person.side.encrypt_update(np.zeros(8), 5, 1)
    person.leave()
    assert not person.step(trainer(3))
    assert person.state == "left"
    with pytest.raises(Forbidden, match="has left"):
        desk.sp.uploads.one(desk.task, 1, person.keys.who, upload)
    take_part(desk, {0, 1})
    person.join("")
    take_part(desk)
    desk.run()
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4
    assert desk.sp.tasks.status(desk.task)["rounds"][0]["uploads"] == 4


def test_who_left_with_an_unsent_upload_still_gets_its_money(desk):
    """The upload waits for a return; when the task has ended it is refused like any other, and claims go on."""
    person = desk.crowd[3]

    def leaving(arrays, settings, number):
        person.leave()
        return trainer(3)(arrays, settings)

    take_part(desk, {0, 1, 2})
    assert not person.step(leaving)  # left while it trained
    assert person.blobs.has("rounds/1/upload")
    desk.run()
    person.join("")
    take_part(desk)
    person.leave()
    desk.run()
    take_part(desk)
    assert desk.state == TaskState.FINISHED
    assert person.claim() > 0


def test_leaving_survives_a_crash(desk):
    """It is noted before SP is told, and SP is told again until it knows."""
    person = desk.crowd[0]
    told = desk.sp.people.leave
    desk.sp.people.leave = raising(ServiceUnavailable("gone"))
    with pytest.raises(ServiceUnavailable):
        person.leave()
    desk.sp.people.leave = told
    assert not person.step(trainer(0))
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 3


def test_a_repeat_is_welcome_from_one_who_has_left(desk):
    """Its upload is in, and its receipt may have been lost."""
    take_part(desk, {0})
    desk.crowd[0].leave()
    sent = desk.crowd[0].blobs.get("rounds/1/upload")
    assert desk.sp.uploads.one(desk.task, 1, desk.crowd[0].keys.who, sent).who == desk.crowd[0].keys.who


def test_strangers_get_nothing(desk):
    take_part(desk)
    desk.run()
    with pytest.raises(UnknownParticipant):
        desk.sp.publication(desk.task, 1, "stranger")
    with pytest.raises(UnknownParticipant):
        desk.sp.envelope(desk.task, 1, "stranger")
