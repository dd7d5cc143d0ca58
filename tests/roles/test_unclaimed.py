"""What nobody claims is paid to people who said where, and returned of those who did not: once, whoever asks first."""

from dataclasses import replace

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.destination import destination_name
from crowdfl.errors import BadSignature, ClaimRefused, LengthMismatch, NotReady, OlderDestination, ProtocolError
from crowdfl.protocols.claims import KeptClaim, PayStatement, PlaceNote, Unclaimed, UnclaimedRequest, open_place_kept
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.records import Look
from crowdfl.roles.csp_records import StoredRecords
from crowdfl.roles.sp.claims import Claims
from tests.hosts import BUDGET, Desk
from tests.roles.test_pay_to import ANN, BOB, PAYER

SHARE = BUDGET // 3


@pytest.fixture
def desk(tmp_path):
    """A task of one round that three were in; Ann and Bob have said where to be paid, and nobody has claimed."""
    desk = Desk(tmp_path, payer=PAYER.public, pay="equal", rounds=1)
    desk.invite(3)
    desk.requester.fund(desk.task, BUDGET, "all")
    desk.run()
    desk.crowd[0].pay_to(*ANN)
    desk.crowd[1].pay_to(*BOB)
    desk.play()
    desk.upload()
    yield desk
    assert sum(desk.ledger.balances().values()) == 0
    desk.disk.close()


def early(desk):
    desk.leave_to_claim(0.9 * desk.sp.core.definition(desk.task).claim_window)


def late(desk):
    desk.leave_to_claim(0.1 * desk.sp.core.definition(desk.task).claim_window)


def paid(desk):
    return [sum(desk.ledger.paid().get(one.keys.who, {}).values()) for one in desk.crowd]


def ask(desk, place):
    return desk.csp.answer(desk.task, UnclaimedRequest(desk.task, desk.crowd[place].keys.who).to_bytes())


def note(desk, place, counter, signing=None, destination=b"d" * 32):
    person = desk.crowd[place]
    made = PlaceNote.made(desk.task, person.keys.who, destination, counter, signing or person.keys.signing)
    return desk.csp.answer(desk.task, made.to_bytes())


def test_who_said_where_is_paid_in_the_last_days_and_the_rest_returns(desk):
    early(desk)
    desk.run()
    assert paid(desk) == [0, 0, 0]
    late(desk)
    desk.run()
    assert paid(desk) == [SHARE, SHARE, 0]
    for person in desk.crowd[:2]:
        payee = desk.sp.store.payee(desk.task, person.keys.who)
        said = PayStatement.open(payee.statement, person.side.csp_key)
        assert (said.total, said.destination) == (SHARE, destination_name(payee.destination))
    assert [one.amount for one in desk.sp.store.payments(desk.task)] == [SHARE, SHARE]
    desk.crowd[2].claim()
    assert paid(desk) == [SHARE] * 3
    desk.after_claims()
    desk.run()
    assert desk.state == "settled"


def test_a_claim_before_and_after_is_the_same_payment(desk):
    late(desk)
    desk.crowd[0].claim()
    desk.run()
    desk.crowd[1].claim()
    assert paid(desk) == [SHARE, SHARE, 0]
    assert len(desk.sp.store.payments(desk.task)) == 2


def test_two_platforms_book_it_once(desk):
    late(desk)
    other = Claims(desk.sp.core, desk.sp.aggregators)
    while other.pay_unclaimed(desk.task):
        pass
    while desk.sp.claims.pay_unclaimed(desk.task):
        pass
    assert paid(desk) == [SHARE, SHARE, 0]
    assert len(desk.sp.store.payments(desk.task)) == 2


def test_csp_says_nothing_of_what_is_unclaimed_before_the_last_days(desk):
    early(desk)
    with pytest.raises(NotReady):
        ask(desk, 0)
    late(desk)
    assert ask(desk, 0)
    with pytest.raises(ClaimRefused, match="told CSP"):
        ask(desk, 2)


def test_a_request_for_what_is_unclaimed_of_another_task_attests_nothing_here(desk):
    late(desk)
    request = UnclaimedRequest("0" * 64, desk.crowd[0].keys.who)
    with pytest.raises(ProtocolError, match="another task"):
        desk.csp.answer(desk.task, request.to_bytes())
    assert (
        Look(StoredRecords(desk.csp.store, desk.csp.blobs, desk.task)).get(KeptClaim, who=request.participant) is None
    )


def test_csp_keeps_the_newest_place_that_its_owner_has_signed_and_says_so(desk):
    ann = desk.crowd[0]
    made = PlaceNote.made(desk.task, ann.keys.who, b"d" * 32, 2, ann.keys.signing)
    kept = desk.csp.answer(desk.task, made.to_bytes())
    assert open_place_kept(kept, made, ann.side.csp_key).counter == 2
    with pytest.raises(BadSignature):
        open_place_kept(kept, made, SigningKey.fresh().public)
    for other in ((b"e" * 32, 2), (b"d" * 32, 3)):  # an SP that shows CSP's word about an earlier one
        with pytest.raises(ClaimRefused, match="another destination"):
            open_place_kept(kept, PlaceNote.made(desk.task, ann.keys.who, *other, ann.keys.signing), ann.side.csp_key)
    with pytest.raises(OlderDestination):
        note(desk, 0, 1)
    with pytest.raises(OlderDestination):
        note(desk, 0, 2, destination=b"e" * 32)
    with pytest.raises(BadSignature):
        note(desk, 0, 3, signing=SigningKey.fresh())
    for counter, destination, refusal in (
        (0, b"d" * 32, ClaimRefused),
        (2**32, b"d" * 32, LengthMismatch),
        (3, b"d" * 31, LengthMismatch),
    ):
        with pytest.raises(refusal):
            note(desk, 0, counter, destination=destination)
    with pytest.raises(OlderDestination):
        ann.claim()  # by a device that was set back, or an SP that holds the newest back
    assert ann.blobs.has("place-kept")


def test_an_sp_that_alters_what_csp_attests_is_not_believed(desk):
    late(desk)
    reply = bytearray(ask(desk, 0))
    sp = desk.sp.aggregators.checking(desk.task)
    who = desk.crowd[0].keys.who
    assert sp.unclaimed(who, bytes(reply))[0] == {1: SHARE}
    with pytest.raises(ClaimRefused):
        sp.unclaimed(desk.crowd[1].keys.who, bytes(reply))
    reply[-1] ^= 1
    with pytest.raises(BadSignature):
        sp.unclaimed(who, bytes(reply))


@pytest.mark.parametrize(
    "change",
    [{"total": SHARE + 1}, {"participant": "0" * 20}, {"currency": "USD"}, {"task": "0" * 64}],
    ids=["more", "another person", "another currency", "another task"],
)
def test_a_csp_that_says_to_the_payer_what_it_does_not_attest_is_not_believed(desk, change):
    """Both rightly signed: SP hands the statement over as it is, and the payer pays by it."""
    late(desk)
    reply, who = ask(desk, 0), desk.crowd[0].keys.who
    signing, sp = desk.csp._sides[desk.task].task_key, desk.sp.aggregators.checking(desk.task)
    attested = Unclaimed.from_bytes(reply, Limits.plain(len(reply)))
    said = replace(PayStatement.open(attested.statement, signing.public), **change)
    statement = replace(said, signature=signing.sign(said.statement)).to_bytes()
    other = replace(attested, statement=statement)
    with pytest.raises(ClaimRefused):
        sp.unclaimed(who, replace(other, signature=signing.sign(other.attested)).to_bytes())
    with pytest.raises(BadSignature):
        sp.unclaimed(who, other.to_bytes())
