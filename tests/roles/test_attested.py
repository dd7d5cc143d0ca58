"""How much CSP has attested in all: signed for the requester once claims have ended, and compared with what SP says."""

from dataclasses import replace

import pytest

from crowdfl.campaigns.report import TaskReport
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Appointment, AttestedSum, TaskEnd
from crowdfl.errors import BadSignature, DocumentError, NotReady
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.ports import replace_blob
from crowdfl.settings import DAY
from tests.hosts import BUDGET, HARDENED, Desk

SP_KEY = SigningKey.fresh()
ONE_ROUND = {"budget": "36.00", "pay": "equal", "rounds": 1}


def played(folder, **settings):
    desk = Desk.funded(folder, 3, **(ONE_ROUND | settings))
    desk.play()
    desk.upload()
    return desk


def retention(desk) -> CspRetention:
    own = desk.csp.store, desk.csp.bundles, desk.clock, desk.csp.blobs, desk.csp.guard
    return CspRetention(*own, sp_key=SP_KEY.public, forget=desk.csp.drop)


def say_over(desk) -> None:
    """SP, who may say so at any time."""
    retention(desk).end(desk.task, TaskEnd(desk.task, "settled", desk.clock.now()).sign(SP_KEY))


def until_claims_end(desk) -> None:
    desk.clock.time = float(desk.sp.core.definition(desk.task).claims_until) + DAY + 1
    for _ in range(4):
        desk.run()
    say_over(desk)


@pytest.mark.parametrize("settings", [{}, HARDENED | {"pay": None}], ids=["shares", "hardened"])
def test_the_requester_compares_csps_sum_with_sps_books(tmp_path, settings):
    desk = played(tmp_path, **settings)
    paid = sum(person.claim() for person in desk.crowd[:2])
    assert desk.requester.report(desk.task)["attested"] is None
    until_claims_end(desk)
    report = desk.requester.report(desk.task)
    found = {name: report[name] for name in ("attested", "attested_complete", "difference", "sp_word", "earned")}
    assert found == {"attested": paid, "attested_complete": True, "difference": 0, "sp_word": 0, "earned": paid}
    assert "is the one that the second server has signed" in TaskReport.of(desk.requester, desk.task).text()
    assert desk.csp.store.task(desk.task).attested == desk.sp.store.task(desk.task).attested


def test_sp_cannot_have_it_signed_while_somebody_can_claim(tmp_path):
    """Whatever SP says of the task's end: a sum that grows would say what single people earned."""
    desk = played(tmp_path)
    desk.crowd[0].claim()
    for _ in range(2):
        say_over(desk)
        with pytest.raises(NotReady, match="once claims have ended"):
            desk.csp.attested(desk.task)
        with pytest.raises(NotReady):
            desk.sp.attested(desk.task)
    assert desk.crowd[1].claim() > 0, "claims go on"
    last = desk.csp.store.task(desk.task).attests_until
    desk.clock.time = last
    say_over(desk)
    with pytest.raises(NotReady):
        desk.csp.attested(desk.task)
    desk.clock.time = last + 1
    say_over(desk)
    first = desk.csp.attested(desk.task)
    desk.clock.time += 1000
    say_over(desk)
    assert desk.csp.attested(desk.task) == first, "it is signed once"


def test_when_everyone_has_claimed_it_is_signed_at_once(tmp_path):
    desk = played(tmp_path)
    paid = sum(person.claim() for person in desk.crowd)
    say_over(desk)
    assert int(AttestedSum.read(Envelope.parse(desk.csp.attested(desk.task), AttestedSum.kind)).total) == paid == BUDGET


def test_a_difference_is_shown_plainly(tmp_path):
    """SP keeps what it says to have paid, or paid less than was attested."""
    desk = played(tmp_path)
    paid = sum(person.claim() for person in desk.crowd[:2])
    until_claims_end(desk)
    honest = desk.requester.sp.movements

    def claimed_more(task):
        return [
            one | {"amount": one["amount"] + 5_000_000} if one["name"] == "pay participants" else one
            for one in honest(task)
        ]

    desk.requester.sp.movements = claimed_more
    report = desk.requester.report(desk.task)
    assert (report["attested"], report["difference"]) == (paid, 5_000_000)
    text = TaskReport.of(desk.requester, desk.task).text()
    assert "DIFFERENCE: the platform says to have paid 5.00 EUR more than the second server has attested" in text


def test_a_sum_that_this_tasks_csp_has_not_signed_of_it_is_refused(tmp_path):
    """By the key that KGC has named to the requester."""
    desk = played(tmp_path)
    desk.crowd[0].claim()
    until_claims_end(desk)
    true = AttestedSum.read(Envelope.parse(desk.csp.attested(desk.task), AttestedSum.kind))
    key, appointed = SigningKey.fresh(), f"{desk.task}/appointment"
    desk.sp.store.change_task(desk.task, attested=replace(true, total="0").sign(key))
    with pytest.raises(BadSignature):
        desk.requester.report(desk.task)
    named = Appointment(desk.task, "f" * 64, key.public.hex()).sign(desk.kgc.signing)
    replace_blob(desk.requester.blobs, appointed, named.encode())
    assert desk.requester.report(desk.task)["attested"] == 0
    for wrong in (replace(true, task="0" * 64), replace(true, currency="USD")):
        desk.sp.store.change_task(desk.task, attested=wrong.sign(key))
        with pytest.raises(DocumentError, match="another task or currency"):
            desk.requester.report(desk.task)


def test_a_csp_that_was_set_back_says_so(tmp_path):
    desk = played(tmp_path)
    desk.crowd[0].claim()
    desk.csp.store.change_task(desk.task, rolled_back=True)
    until_claims_end(desk)
    report = desk.requester.report(desk.task)
    assert report["attested_complete"] is False
    assert "may have attested more" in TaskReport.of(desk.requester, desk.task).text()
