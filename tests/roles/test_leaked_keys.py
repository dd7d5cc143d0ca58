"""A key that leaked and was replaced in the middle of a task: what ends, what goes on. docs/leaked-keys.md names them."""

from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.destination import open_destination
from crowdfl.documents.invitations import Certificate, EnrolmentRequest, Ticket
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import BadSignature, SettingsError, TaskFull, TaskNotRunning
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.records import EndedBy, Tombstone
from crowdfl.roles.sp.core import LedgerPorts
from crowdfl.roles.sp.tasks import cancel_task
from crowdfl.settings import DAY
from tests.hosts import BUDGET, Desk, small_definition
from tests.roles.test_enrolment import new_keys
from tests.roles.test_participant import Signing, train

pytestmark = pytest.mark.second
PAID: dict[str, Any] = {"budget": "36.00", "pay": "equal", "rounds": 2}
SHARE = BUDGET // 3


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Three people, after the first of two rounds."""
    desk = Desk.funded(tmp_path, 3, **PAID)
    desk.play()
    return desk


def require_paid(desk: Desk, rounds: int) -> None:
    assert [person.claim() for person in desk.crowd] == [rounds * SHARE] * 3


def cancel(desk: Desk) -> None:
    """As `crowdfl sp task cancel`."""
    books = LedgerPorts(desk.sp.store, desk.clock)
    cancel_task(books, desk.task, Tombstone("cancelled", EndedBy.SP_OPERATOR, "a key has leaked"))
    desk.run()


def test_kgcs_new_signing_key_lets_a_task_go_on_with_who_is_in_it(desk: Desk):
    """Rounds and claims need no KGC. Nobody else joins: neither by the new key, nor by the old one."""
    leaked, (invitation,) = desk.signing, desk.requester.invite(desk.task, 1, 1e9)
    desk.signing = SigningKey.fresh()
    desk.restart()
    with pytest.raises(BadSignature):
        desk.new_participant(desk.task, "late").join(invitation)
    ticket, keys = Ticket.make(desk.task, "7" * 32, 1, 1e9, desk.requester.signing), new_keys()
    request = EnrolmentRequest.make(ticket, keys).sign(ticket.key)
    for enrol in (desk.sp.people.enrol, desk.csp.enrol):
        with pytest.raises(BadSignature):
            enrol(desk.task, Certificate(desk.task, keys.who, ticket.invitation, request).sign(leaked))
    desk.play()
    assert desk.states() == ["rewarded", "rewarded"]
    require_paid(desk, 2)
    with pytest.raises(BadSignature):  # a requester who has not accepted the new key notices
        desk.create(small_definition(desk.settings, claim_window=DAY), desk.initial)
    desk.requester.kgc_key = desk.signing.public
    again = desk.create(small_definition(desk.settings, claim_window=DAY), desk.initial)
    assert again != desk.task  # the next task is under the new key


def test_sps_new_signing_key_ends_rounds_and_no_claim(desk: Desk):
    """Phones know the old one from their invitations: they keep no receipt of another, and send nothing more. What was earned
    is paid. KGC and CSP believe the new key about the task's end, and the old one no more."""
    leaked, new = SigningKey.fresh(), SigningKey.fresh()
    for person in desk.crowd:
        person.sp, person.sp_key = Signing(desk, new), leaked.public
        with pytest.raises(BadSignature):
            person.step(train)
        assert not person.blobs.has("rounds/2/receipt")
        person.sp = desk.sp_link
    cancel(desk)
    require_paid(desk, 1)
    csp = CspRetention(
        desk.csp.store,
        desk.csp.bundles,
        desk.clock,
        desk.csp.blobs,
        desk.csp.guard,
        sp_key=new.public,
        forget=desk.csp.drop,
    )
    for peer in (csp, KgcRetention(desk.kgc.store, desk.kgc.bundles, desk.clock, sp_key=new.public)):
        said = TaskEnd(desk.task, "cancelled", desk.clock.now())
        with pytest.raises(BadSignature):
            peer.end(desk.task, said.sign(leaked))
        peer.end(desk.task, said.sign(new))


def test_who_has_a_requesters_key_invites_nobody_once_enrolment_is_closed(desk: Desk):
    """KGC takes an invitation without a token: the key alone makes one. Closing enrolment ends that; so does a full task."""
    ticket = Ticket.make(desk.task, "7" * 32, 1, 1e9, desk.requester.signing)
    desk.requester.close_enrolment(desk.task)
    with pytest.raises(TaskNotRunning, match="enrolment is closed"):
        desk.new_participant(desk.task, "mallory").join(ticket.text)
    desk.play()
    require_paid(desk, 2)


def test_a_full_task_takes_nobody_more_whoever_invites(tmp_path: Path):
    desk = Desk.funded(tmp_path, 3, **PAID, max_participants=3)
    ticket = Ticket.make(desk.task, "7" * 32, 1, 1e9, desk.requester.signing)
    with pytest.raises(TaskFull):
        desk.new_participant(desk.task, "mallory").join(ticket.text)


def test_csps_key_of_a_task_ends_with_the_task_and_claims_go_on(desk: Desk):
    """KGC deals it, and the appointment names it: no other can take its place. Rounds end; CSP attests what was earned."""
    cancel(desk)
    desk.upload()
    assert (desk.state, desk.states()) == ("cancelled", ["rewarded", "aborted"])
    require_paid(desk, 1)


def test_a_payers_new_key_is_of_new_tasks_and_running_ones_are_paid_by_the_old(tmp_path: Path):
    leaked, new = ReaderKey.fresh(), ReaderKey.fresh()
    desk = Desk(tmp_path, payer=leaked.public, **PAID)
    desk.invite(3)
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.run()
    desk.options.payer = new.public
    desk.restart()
    for person in desk.crowd:
        person.pay_to("email", "ann@example.org")
    desk.play(2)
    require_paid(desk, 2)
    who = desk.crowd[0].keys.who
    sealed = desk.sp.store.payee(desk.task, who).destination
    assert open_destination(leaked, sealed, desk.task, who, 1).to == "ann@example.org"
    with pytest.raises(SettingsError, match="pays people out by"):
        desk.requester.create(small_definition(desk.settings, claim_window=DAY), desk.initial)
    desk.requester.payer = new.public
    desk.requester.create(small_definition(desk.settings, claim_window=DAY), desk.initial)
