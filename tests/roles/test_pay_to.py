"""Where people want to be paid: for the payer alone, whatever SP does with the bytes that it keeps; and what SP lists of it."""

import json
import sys
from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.destination import SEALED_BYTES, Destination, destination_name, open_destination
from crowdfl.documents.signed import participant_name
from crowdfl.errors import (
    BadSignature,
    Conflict,
    DocumentError,
    FormatError,
    NoDestination,
    NotReady,
    PaymentFailed,
    PaymentUnknown,
    SealBroken,
    SettingsError,
)
from crowdfl.protocols.claims import PayStatement
from crowdfl.protocols.messages import Limits
from crowdfl.roles.payer import PayerRecord
from crowdfl.roles.records import PaymentState, PayState
from crowdfl.roles.sp.operator import payment_rows
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.services.background.workers import PayoutCommand
from crowdfl.settings import DAY
from tests.cli.program import call
from tests.hosts import BUDGET, Desk

PAYER, OTHER = ReaderKey.fresh(), ReaderKey.fresh()
ANN, BOB = ("email", "ann@example.org"), ("iban", "DE89 3704 0044 0532 0130 00")
SHARE = BUDGET // 3


@pytest.fixture
def desk(tmp_path):
    """A task of two rounds, the first of which is rewarded; two of three have said where to be paid, and claimed."""
    desk = Desk(tmp_path, payer=PAYER.public, pay="equal", rounds=2)
    desk.invite(3)
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.run()
    desk.crowd[0].pay_to(*ANN)  # as soon as she has joined
    desk.play()
    desk.upload()
    desk.crowd[1].pay_to(*BOB)
    for person in desk.crowd[:2]:
        person.claim()
    yield desk
    desk.disk.close()


@pytest.fixture
def office(desk, tmp_path):
    """The payer's key, with a record that knows this KGC and task."""
    file, record = tmp_path / "payer.key", tmp_path / "payer.key.record.json"
    file.write_bytes(PAYER.private)
    record.write_text(json.dumps(PayerRecord([desk.kgc.signing.public.hex()], [desk.task]).body()))
    for one in (file, record):
        one.chmod(0o600)
    return file


def payee(desk, place):
    return desk.sp.store.payee(desk.task, desk.crowd[place].keys.who)


def rows(desk):
    return payment_rows(desk.sp.store, desk.sp.store.payments(desk.task))


def pays(desk, office, listed=None, *options):
    """What `crowdfl payer open` prints of what SP lists."""
    shown = office.with_name("payouts.json")
    shown.write_text(json.dumps(rows(desk) if listed is None else listed))
    done = call("payer", "open", office, shown, "--json", *options)
    return [(one["amount"], one["to"]) for one in json.loads(done.out or "[]")], done


def opened(desk, place, sealed=None, key=PAYER, counter=1):
    who = desk.crowd[place].keys.who
    return open_destination(key, sealed or payee(desk, place).destination, desk.task, who, counter)


def test_people_are_paid_while_the_task_runs_and_the_payer_pays_each_instalment_once(desk, office):
    paid, done = pays(desk, office)
    assert (done.code, paid) == (0, [("12.00", ANN[1]), ("12.00", "DE89370400440532013000")])
    assert pays(desk, office)[0] == []
    text = json.dumps(rows(desk))
    assert "ann@" not in text
    assert "DE89" not in text
    desk.run()
    desk.play()
    desk.upload()
    for person in desk.crowd[:2]:
        person.claim()
    first, *_, last = rows(desk)
    assert [one["attempts"] for one in rows(desk)] == [0] * 4
    assert (bool(first["definition"]), last["definition"]) == (True, ""), "the papers of a task are in one row"
    assert pays(desk, office)[0] == paid, "the second instalments, to the same places"
    assert pays(desk, office, None, "--again")[0] == [*paid[:1] * 2, *paid[1:] * 2]


def test_another_currency_and_one_claim_three_times_are_not_paid(desk, office):
    """What SP lists otherwise than it was signed is refused, and nothing is paid twice, whatever its key says."""
    row = rows(desk)[0]
    paid, done = pays(desk, office, [row | {"currency": "GBP"}])
    assert (done.code, paid) == (1, [])
    assert "paid in EUR" in done.err
    paid, done = pays(desk, office, [row, row | {"key": "0" * 32}, row | {"key": "1" * 32}])
    assert (done.code, paid) == (0, [("12.00", ANN[1])])
    assert pays(desk, office, [row | {"key": "2" * 32}])[0] == []


def test_another_persons_destination_or_statement_is_refused(desk, office):
    ann, bob = rows(desk)
    papers = {name: ann[name] for name in ("definition", "appointment")}
    swapped = [ann | {"destination": bob["destination"]}, bob | papers | {"statement": ann["statement"]}]
    paid, done = pays(desk, office, swapped)
    assert (done.code, paid) == (1, [])
    assert done.err.count("not paid") == 2


def test_the_list_and_the_one_row_of_a_program_pay_the_same(desk, office, tmp_path):
    """A program that SP runs opens what it is given on its standard input; what it has opened no list pays again."""
    script = tmp_path / "pay.py"
    script.write_text(
        "import subprocess, sys\n"
        f"done = subprocess.run([sys.executable, '-m', 'crowdfl', 'payer', 'open', {str(office)!r}, '-', '--json'],"
        " stdin=sys.stdin, stdout=subprocess.PIPE)\n"
        f"open({str(tmp_path / 'paid')!r}, 'ab').write(done.stdout)\n"
        "sys.exit(done.returncode)\n"
    )
    described = lambda payment: payment_rows(desk.sp.store, [payment])[0]  # noqa: E731
    desk.sp.options.on_paid = PayoutCommand((sys.executable, str(script)), 60.0, described)
    for _ in range(3):
        desk.sp.payments.run_one()
    assert [one.state for one in desk.sp.store.payments(desk.task)] == [PaymentState.PAID, PaymentState.PAID]
    lines = [json.loads(line) for line in (tmp_path / "paid").read_text().splitlines()]
    assert [one["amount"] for (one,) in lines] == ["12.00", "12.00"]
    row = rows(desk)[0] | {"state": "waiting"}
    assert pays(desk, office, [row])[0] == []
    assert pays(desk, office, row | {"destination": ""})[1].code == 1, (
        "a program must not hear that nothing is to be paid"
    )
    assert pays(desk, office, row | {"state": "paid"})[1].code == 3


def test_an_sp_that_moves_forges_or_reads_a_destination_is_noticed(desk):
    assert opened(desk, 0).to == ANN[1]
    who, sealed = desk.crowd[0].keys.who, payee(desk, 0).destination
    with pytest.raises(SealBroken):  # to another person
        opened(desk, 1, sealed)
    with pytest.raises(SealBroken):  # under another counter
        opened(desk, 0, counter=2)
    with pytest.raises(SealBroken):  # to another task
        open_destination(PAYER, sealed, "0" * 64, who, 1)
    with pytest.raises(SealBroken):
        opened(desk, 0, key=OTHER)
    person, context = desk.crowd[0], f"crowdfl destination 2 {desk.task} {who} 1".encode()
    own = SigningKey.fresh()
    true = Destination(desk.task, who, person.keys.signing.public, PAYER.public, "1", *ANN)

    def resealed(text: str) -> bytes:
        return seal_to(PAYER.public, text.encode().ljust(1536), context)

    with pytest.raises(DocumentError, match="another task, participant"):  # SP's own key under her name
        opened(desk, 0, resealed(replace(true, signing=own.public, to="sp@example.org").sign(own)))
    with pytest.raises(DocumentError, match="another task, participant"):  # an older one under a newer counter
        opened(desk, 0, resealed(replace(true, counter="2").sign(person.keys.signing)))
    with pytest.raises(BadSignature):  # her key, SP's words
        opened(desk, 0, resealed(replace(true, to="sp@example.org").sign(own)))
    # An SP that had her page seal to a key of its own reads it, and cannot hide that from the payer.
    swapped = replace(true, payer=OTHER.public)
    stolen = OTHER.open(swapped.seal(person.keys.signing), context).decode().rstrip()
    with pytest.raises(DocumentError, match="somebody has read it"):
        opened(desk, 0, resealed(stolen))
    bad = replace(true, way="iban", to="DE00370400440532013000").sign(person.keys.signing)
    with pytest.raises(SettingsError):
        opened(desk, 0, resealed(bad))
    assert participant_name(own.public) != who
    assert "ann" not in repr(true)


def test_a_payment_waits_for_a_destination_and_goes_to_the_newest_that_a_claim_names(desk):
    paid, third = [], desk.crowd[2]
    desk.sp.options.on_paid = paid.append
    third.claim()
    for _ in range(5):
        desk.sp.payments.run_one()
    assert [one.who for one in paid] == [person.keys.who for person in desk.crowd[:2]]
    third.pay_to("text", "wrong")
    third.pay_to("email", "cleo@example.org")
    assert desk.sp.payments.run_one() is False, "no claim names it yet"
    third.claim()
    assert opened(desk, 2, counter=2).to == "cleo@example.org"
    assert desk.sp.payments.run_one() is True
    with pytest.raises(SettingsError):
        third.pay_to("email", "cleo")


def test_until_a_claim_names_the_next_one_payments_go_where_the_last_has_said(desk):
    """Nothing is lost when a phone gives another destination and never comes back."""
    ann, before = desk.crowd[0], payee(desk, 0)
    desk.clock.time += 1
    ann.pay_to("email", "new@example.org")
    now = payee(desk, 0)
    assert (now.destination, now.statement) == (before.destination, before.statement)
    ann.claim()
    said = PayStatement.from_bytes(payee(desk, 0).statement, Limits.plain())
    assert (said.counter, said.total, said.sequence) == (2, SHARE, 3)
    assert said.destination == destination_name(payee(desk, 0).destination)
    ann.send_destination(again=True)
    assert opened(desk, 0, counter=2).to == "new@example.org"


def test_it_is_erased_once_its_owner_is_paid_out_and_not_before(desk):
    desk.requester.order(desk.task, "cancel")
    desk.clock.time = float(desk.sp.core.definition(desk.task).claims_until) + DAY + 1
    for _ in range(4):
        desk.run()
    assert desk.state == "settled"
    ann, bob = (one.keys.who for one in desk.crowd[:2])
    assert payee(desk, 0).destination
    resolve_payment(desk.sp.ports, desk.task, ann, "paid")
    assert (payee(desk, 0).destination, payee(desk, 0).offered) == (b"", b"")
    assert payee(desk, 1).destination, "bob is not paid yet"
    with pytest.raises(Conflict, match="claims have ended"):
        desk.crowd[0].pay_to(*BOB)
    with pytest.raises(Conflict, match="claims have ended"):
        desk.crowd[1].pay_to("text", "no claim can name this one")
    desk.sp.claims.pay_to(desk.task, bob, desk.crowd[1].blobs.get("destinations/1"))


def test_whoever_has_not_joined_says_nowhere(tmp_path):
    desk = Desk(tmp_path, payer=PAYER.public)
    (ann,) = desk.invite(1)
    ann.blobs.delete("certificate")
    with pytest.raises(NotReady, match="join first"):
        ann.pay_to(*ANN)
    desk.disk.close()


def test_a_payer_pays_with_one_instalment_all_that_came_before(desk):
    desk.run()
    desk.play()
    desk.upload()
    desk.crowd[0].claim()
    ann = desk.crowd[0].keys.who
    first, second = desk.sp.store.instalments(desk.task, ann)
    assert (first.sequence, second.sequence, first.amount) == (1, 2, SHARE)
    with pytest.raises(Conflict, match=second.key):
        resolve_payment(desk.sp.ports, desk.task, ann, "paid")
    resolve_payment(desk.sp.ports, desk.task, second.key, "paid")
    assert [one.state for one in desk.sp.store.instalments(desk.task, ann)] == [PaymentState.PAID] * 2


def words(desk, place):
    """What a phone, the operator's list and the console say of somebody's money."""
    person = desk.crowd[place]
    said = {number: (one.state, one.note) for number, one in person.sp.pay_words(desk.task, person.keys).items()}
    listed = [PayState(one["state"]) for one in rows(desk) if one["participant"] == person.keys.who]
    assert listed == [state for state, _ in said.values()]
    return said


def test_everyone_says_the_same_of_money_and_paid_means_paid(desk):
    cleo = desk.crowd[2]
    assert [one.state for one in cleo.claimed.pay_words.values()] == [PayState.EARNED]
    cleo.claim()
    assert words(desk, 2) == {1: (PayState.NO_DESTINATION, "")}
    assert [one.state for one in cleo.claimed.pay_words.values()] == [PayState.NO_DESTINATION]
    who = cleo.keys.who
    with pytest.raises(NoDestination, match=who):
        resolve_payment(desk.sp.ports, desk.task, who, "paid")
    assert words(desk, 2) == {1: (PayState.NO_DESTINATION, "")}
    resolve_payment(desk.sp.ports, desk.task, who, "paid", "voucher at the desk")
    assert words(desk, 2) == {1: (PayState.PAID, "voucher at the desk")}
    assert words(desk, 0) == {1: (PayState.WAITING, "")}
    desk.sp.options.on_paid = lambda _payment: (_ for _ in ()).throw(PaymentFailed("account closed"))
    desk.sp.payments.run_one()
    assert words(desk, 0) == {1: (PayState.FAILED, "account closed")}
    desk.sp.options.on_paid = lambda _payment: (_ for _ in ()).throw(PaymentUnknown("too slow"))
    desk.sp.payments.run_one()
    assert words(desk, 1) == {1: (PayState.FAILED, "too slow")}
    resolve_payment(desk.sp.ports, desk.task, desk.crowd[1].keys.who, "paid")
    assert words(desk, 1) == {1: (PayState.PAID, "")}


def test_bytes_of_another_length_are_refused(desk):
    who = desk.crowd[0].keys.who
    for sealed in (b"", bytes(SEALED_BYTES - 1), bytes(SEALED_BYTES + 1)):
        with pytest.raises(FormatError):
            desk.sp.claims.pay_to(desk.task, who, sealed)


def test_a_platform_takes_no_task_that_names_another_payer(tmp_path):
    desk = Desk(tmp_path, payer=PAYER.public)
    definition = replace(desk.requester.definition(desk.task), purpose="another")
    for other in (OTHER.public, b""):
        desk.requester.payer = other
        with pytest.raises(SettingsError, match=PAYER.public.hex()):
            desk.requester.create(definition, desk.initial)
    desk.disk.close()
