"""The payer: pays what CSP attests where people have said, once, whatever SP shows and however often."""

import json
from dataclasses import dataclass, field, replace

import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.destination import Destination, destination_name
from crowdfl.documents.invitations import Certificate, EnrolmentRequest, Ticket
from crowdfl.documents.signed import Appointment, Definition, participant_name
from crowdfl.protocols.claims import PayStatement
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.payer import Payer, PayerRecord
from crowdfl.roles.records import payment_key
from crowdfl.settings import PlanSettings, TaskSettings
from tests.hosts import SMALL_TASK, small_definition

MILLION = 1_000_000
PLAN = PlanSettings(closes="deadline", goal=3, unused_pay="5.00")


@dataclass
class Signers:
    """Whoever signs what the payer is shown. SP is the test."""

    kgc: SigningKey = field(default_factory=SigningKey.fresh)
    requester: SigningKey = field(default_factory=SigningKey.fresh)
    csp: SigningKey = field(default_factory=SigningKey.fresh)
    payer: ReaderKey = field(default_factory=ReaderKey.fresh)
    ann: ParticipantKeys = field(default_factory=lambda: keys())  # noqa: PLW0108 -- it is defined below

    def definition(self, **changes):
        settings = TaskSettings.of(**(SMALL_TASK | {"currency": "INR"} | changes.pop("settings", {})))
        draft = replace(small_definition(settings), plan=PLAN, payer=self.payer.public, requester=self.requester.public)
        return replace(draft.dated(1000.0), **changes).sign(self.requester)

    def certificate(self, task, inviter=None, who=None):
        own = who or self.ann
        ticket = Ticket.make(task, "a" * 32, 1, 1e9, inviter or self.requester)
        request = EnrolmentRequest.make(ticket, own).sign(ticket.key)
        return Certificate(task, own.who, ticket.invitation, request).sign(self.kgc)

    def destination(self, task, counter, to="ann@example.org", payer=None):
        own, public = self.ann.signing, payer or self.payer.public
        return Destination(task, self.ann.who, own.public, public, str(counter), "email", to).seal(own)

    def statement(self, task, rounds, total, sealed, counter, currency="INR", signer=None):
        named = destination_name(sealed) if counter else b""
        said = PayStatement(task, self.ann.who, rounds + counter, total, currency, named, counter, b"")
        return replace(said, signature=(signer or self.csp).sign(said.statement)).to_bytes()


def keys() -> ParticipantKeys:
    signing = SigningKey.fresh()
    return ParticipantKeys(participant_name(signing.public), signing, ReaderKey.fresh())


class Shown(Signers):
    """What an honest SP shows, and its payer."""

    def __init__(self) -> None:
        super().__init__()
        self.text = self.definition()
        self.task = Definition.open(self.text).task
        self.sealed = self.destination(self.task, 1)
        self.signed = self.certificate(self.task)
        self.record = PayerRecord([self.kgc.public.hex()], [self.task])

    def row(self, rounds=1, total=7_205_000, counter=1, sealed=None, unused=0, **changes):
        sealed = sealed or self.sealed
        return {
            "task": self.task,
            "participant": self.ann.who,
            "currency": "INR",
            "state": "pending",
            "unused": str(unused),
            "unused_millionths": str(5 * MILLION * unused),
            "statement": self.statement(self.task, rounds, total, sealed, counter).hex(),
            "destination": sealed.hex(),
            "certificate": self.signed,
            "appointment": Appointment(self.task, "f" * 64, self.csp.public.hex()).sign(self.kgc),
            "definition": self.text,
        } | changes

    def pays(self, *rows, again=False):
        """What is paid, and why the rest is not. Its record survives as it is written."""
        self.record = PayerRecord.read(json.loads(json.dumps(self.record.body())))
        payouts, refused = Payer(self.payer, self.record).take(rows, rows, again=again)
        return [one.row() for one in payouts], [str(one.why) for one in refused]

    def refusal(self, row):
        paid, (why,) = self.pays(row)
        assert paid == []
        return why


@pytest.fixture
def sp() -> Shown:
    return Shown()


def amounts(paid):
    return [(one["amount"], one["on_sp_word"], one["to"]) for one in paid]


def test_it_pays_what_csp_attests_where_its_owner_said(sp):
    named = "7" * 32  # by SP, which may say anything: for its own books alone
    ((paid,), refused) = sp.pays(sp.row(key=named))
    assert refused == []
    key = payment_key(sp.task, sp.ann.who, 1)
    money = {"key": key, "amount": "7.20", "currency": "INR", "on_sp_word": "0.00"}
    of = {"task": sp.task, "participant": sp.ann.who, "sp_key": named}
    assert paid == money | {"kind": "email", "to": "ann@example.org"} | of


def test_one_claim_three_times_is_one_payment(sp):
    """In one list, under other keys, in another state of the books, and in the next list."""
    row = sp.row()
    paid, refused = sp.pays(row, row | {"key": "0" * 32}, row | {"key": "1" * 32, "amount": "99.00", "attempts": "3"})
    assert (amounts(paid), refused) == ([("7.20", "0.00", "ann@example.org")], [])
    assert paid[0]["sp_key"] == "1" * 32, "the last, with which SP's books take all that came before it as paid"
    assert sp.pays(row | {"key": "2" * 32}) == ([], [])


def test_instalments_are_the_difference_and_lose_no_part_of_a_cent(sp):
    """Each has its own key, and SP's list may hold two of one person."""
    assert amounts(sp.pays(sp.row())[0]) == [("7.20", "0.00", "ann@example.org")]
    both = sp.row(1, 7_205_000), sp.row(2, 7_210_000)
    (paid,), _ = sp.pays(*both)
    assert (paid["amount"], paid["key"]) == ("0.01", payment_key(sp.task, sp.ann.who, 2))
    assert sp.pays(*reversed(both)) == ([], [])


def test_less_than_a_cent_is_paid_with_the_next(sp):
    assert sp.pays(sp.row(1, 9_999)) == ([], [])
    assert amounts(sp.pays(sp.row(2, 19_998))[0]) == [("0.01", "0.00", "ann@example.org")]


def test_an_older_statement_pays_nothing(sp):
    """Nor does one whose total has shrunk, or another of the same number."""
    assert len(sp.pays(sp.row(3, 5 * MILLION))[0]) == 1
    assert "older statement" in sp.refusal(sp.row(2, 4 * MILLION))
    assert "two totals" in sp.refusal(sp.row(3, 6 * MILLION))
    assert "two totals" in sp.refusal(sp.row(4, 4 * MILLION))


def test_nothing_goes_to_an_older_destination(sp):
    newer = sp.destination(sp.task, 2, "new@example.org")
    assert "not the newest" in sp.refusal(sp.row(1, MILLION, 2, newer, destination=sp.sealed.hex()))
    assert amounts(sp.pays(sp.row(1, MILLION, 2, newer))[0]) == [("1.00", "0.00", "new@example.org")]
    assert "older statement" in sp.refusal(sp.row(4, 2 * MILLION, 1, sp.sealed)), "of an older counter, signed by CSP"
    other = sp.destination(sp.task, 2, "other@example.org")
    assert "two destinations" in sp.refusal(sp.row(4, 2 * MILLION, 2, other))


def test_a_list_of_old_and_new_pays_by_the_new_one_alone(sp):
    newer = sp.destination(sp.task, 2, "new@example.org")
    rows = sp.row(1, MILLION), sp.row(2, 2 * MILLION, 2, newer)
    for order in (rows, rows[::-1]):
        sp.record.paid.clear()
        assert amounts(sp.pays(*order)[0]) == [("2.00", "0.00", "new@example.org")]


def test_unused_uploads_are_paid_on_sps_word_and_marked(sp):
    """Once, as many as the task has rounds at most, and no more for each than the signed plan says."""
    assert amounts(sp.pays(sp.row(unused=1))[0]) == [("12.20", "5.00", "ann@example.org")]
    assert sp.pays(sp.row(unused=1)) == ([], [])
    (paid,), _ = sp.pays(sp.row(unused=2))
    assert (paid["amount"], paid["on_sp_word"]) == ("5.00", "5.00")
    assert paid["key"] == payment_key(sp.task, sp.ann.who, 3)
    for most in (3, -1):
        assert "more unused uploads" in sp.refusal(sp.row(unused=most))
    assert "more for one than" in sp.refusal(sp.row(unused=1, unused_millionths="5000001"))
    assert sp.pays(sp.row(unused=0)) == ([], []), "an SP that was restored has forgotten them: nothing is paid again"
    (paid,), _ = sp.pays(sp.row(2, 8_205_000, unused=0))
    assert (paid["amount"], paid["on_sp_word"]) == ("1.00", "0.00")
    assert sp.pays(sp.row(2, 8_205_000, unused=2)) == ([], [])


def test_what_was_shown_before_is_shown_again_under_its_old_keys_if_asked(sp):
    """For a bank that pays each key once: a list was lost, or a program failed after it was told."""
    first, _ = sp.pays(sp.row())
    again, _ = sp.pays(sp.row(2, 10 * MILLION), again=True)
    assert again[0] == first[0]
    assert (again[1]["amount"], len(again)) == ("2.80", 2)
    assert sp.pays(sp.row(2, 10 * MILLION), again=True)[0] == again
    assert sp.pays(sp.row(2, 10 * MILLION)) == ([], [])


def test_another_currency_is_refused_whoever_says_it(sp):
    assert "paid in INR" in sp.refusal(sp.row(currency="GBP"))
    gbp = sp.statement(sp.task, 1, MILLION, sp.sealed, 1, currency="GBP").hex()
    assert "paid in INR" in sp.refusal(sp.row(statement=gbp))
    assert "paid in INR" in sp.refusal(sp.row(statement=gbp, currency="GBP"))


def test_a_task_must_be_one_that_its_requester_has_told(sp):
    """A task of somebody else's, with people and money of its own, is refused by its id."""
    sp.record.tasks.clear()
    assert "has not told you" in sp.refusal(sp.row())


def test_papers_of_another_task_or_payer_are_refused(sp):
    other = Shown()
    assert "papers of another task" in sp.refusal(sp.row(definition=other.text))
    assert "not in this list" in sp.refusal(sp.row(definition=""))
    sp.payer = ReaderKey.fresh()
    assert "another payer" in sp.refusal(sp.row())


def test_csps_key_is_the_one_that_a_known_kgc_has_named(sp):
    own = SigningKey.fresh()
    forged = Appointment(sp.task, "f" * 64, own.public.hex())
    said = sp.statement(sp.task, 9, 90 * MILLION, sp.sealed, 1, signer=own).hex()
    assert "no KGC that you know" in sp.refusal(sp.row(appointment=forged.sign(own), statement=said))
    assert "of another task" in sp.refusal(
        sp.row(appointment=replace(forged, task="0" * 64).sign(sp.kgc), statement=said)
    )
    assert "names no key" in sp.refusal(sp.row(appointment=replace(forged, csp="").sign(sp.kgc), statement=said))
    assert sp.refusal(sp.row(statement=said)), "signed by SP's own key"
    sp.record.kgc.insert(0, own.public.hex())
    assert len(sp.pays(sp.row())[0]) == 1, "one of those that are known"


def test_a_person_whom_nobody_invited_is_not_paid(sp):
    """Whatever KGC certifies: the requester's invitation is in the certificate."""
    assert sp.refusal(sp.row(certificate=sp.certificate(sp.task, inviter=SigningKey.fresh())))
    assert sp.refusal(sp.row(certificate=sp.certificate("0" * 64)))
    stranger = sp.certificate(sp.task, who=keys())
    assert "another task or participant" in sp.refusal(sp.row(certificate=stranger))
    assert "another task or participant" in sp.refusal(sp.row(participant="0" * 20))
    forged, sp.kgc = sp.kgc, SigningKey.fresh()
    certificate, sp.kgc = sp.certificate(sp.task), forged
    assert sp.refusal(sp.row(certificate=certificate))


def test_a_statement_or_destination_of_anyone_else_is_refused(sp):
    other = "0" * 64
    assert "another task or participant" in sp.refusal(sp.row(statement=sp.statement(other, 1, 5, sp.sealed, 1).hex()))
    elsewhere = sp.destination(other, 1)
    assert sp.refusal(sp.row(sealed=elsewhere))
    assert sp.refusal(sp.row(sealed=sp.destination(sp.task, 2))), "sealed under another counter than is named"
    stolen = sp.destination(sp.task, 1, payer=ReaderKey.fresh().public)
    assert sp.refusal(sp.row(sealed=stolen))


@pytest.mark.parametrize("name", ["statement", "destination", "unused", "certificate", "appointment"])
def test_what_is_missing_or_garbled_is_refused_and_the_rest_is_paid(sp, name):
    for wrong in ("", "zz", "1.5"):
        paid, refused = sp.pays(sp.row(), sp.row() | {name: wrong, "definition": ""})
        assert len(paid) == 1
        assert len(refused) == (0 if name == "appointment" else 1), "papers are read in one row of a task"
        sp.record.paid.clear()
    assert sp.refusal({one: value for one, value in sp.row().items() if one != name})


def test_repro_more_than_the_whole_task_pays_anybody_is_refused(sp):
    """A CSP that deviates, with somebody who is paid, could else have whatever the payer has."""
    most = 2 * 36 * MILLION
    assert "more than anybody can earn" in sp.refusal(sp.row(2, most + 1))
    assert amounts(sp.pays(sp.row(2, most))[0]) == [("72.00", "0.00", "ann@example.org")]
