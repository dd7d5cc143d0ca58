"""Where people want to be paid: for the payer alone, whatever SP does with the bytes that it keeps."""

import json
from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import ReaderKey, SigningKey, seal_to
from crowdfl.documents.destination import SEALED_BYTES, Destination, open_destination
from crowdfl.documents.signed import participant_name
from crowdfl.errors import BadSignature, Conflict, DocumentError, FormatError, NotReady, SealBroken, SettingsError
from crowdfl.roles.records import ASKED, PaymentState
from crowdfl.roles.sp.money import resolve_payment
from crowdfl.roles.sp.operator import payment_row
from tests.cli.program import call
from tests.hosts import BUDGET, Desk

PAYER, OTHER = ReaderKey.fresh(), ReaderKey.fresh()
ANN, BOB = ("email", "ann@example.org"), ("iban", "DE89 3704 0044 0532 0130 00")


@pytest.fixture
def desk(tmp_path):
    """A round is rewarded, and the task over; the first two have claimed and said where to be paid."""
    desk = Desk(tmp_path, payer=PAYER.public)
    desk.invite(3)
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.run()
    desk.play()
    desk.requester.order(desk.task, "cancel")
    desk.run()
    for person, where in zip(desk.crowd, (ANN, BOB), strict=False):
        with pytest.raises(NotReady, match="claim first"):
            person.pay_to(*where)
        person.claim()
        person.pay_to(*where)
    yield desk
    desk.disk.close()


def payments(desk):
    return [desk.sp.store.payment(desk.task, person.keys.who) for person in desk.crowd]


def claimed(payment) -> int:
    return sum(json.loads(payment.claimed).values())


def opened(payment, sealed=None, key=PAYER):
    return open_destination(key, sealed or payment.destination, payment.task, payment.who, claimed(payment))


def test_the_payer_reads_it_and_hands_out_the_claim(desk, tmp_path):
    key_file, rows_file = tmp_path / "payer.key", tmp_path / "payouts.json"
    key_file.write_bytes(PAYER.private)
    key_file.chmod(0o600)
    assert call("payer", "key", key_file).out.strip() == PAYER.public.hex()
    rows = [payment_row(desk.sp.store, payment) for payment in payments(desk)[:2]]
    rows_file.write_text(json.dumps(rows))
    found = json.loads(call("payer", "open", key_file, rows_file, "--json").out)
    assert [(row["kind"], row["to"], row["currency"]) for row in found] == [
        (*ANN, "EUR"),
        ("iban", "DE89370400440532013000", "EUR"),
    ]
    assert [row["amount"] for row in found] == [row["amount"] for row in rows] != ["0.00", "0.00"]
    text = json.dumps(rows)
    assert "ann@" not in text
    assert "DE89" not in text
    begun = rows[0] | {
        "state": "running"
    }  # as the program that makes this payment is given it; nobody else makes it too
    for given, count in ((begun, 1), ([begun], 0)):
        rows_file.write_text(json.dumps(given))
        assert len(json.loads(call("payer", "open", key_file, rows_file, "--json").out)) == count
    # SP asks for more than was claimed, or shows one person's bytes with another's payment: neither is paid.
    cheat = [rows[0] | {"millionths": int(rows[0]["claimed"]) + 1}, rows[1] | {"destination": rows[0]["destination"]}]
    rows_file.write_text(json.dumps(cheat))
    refused = call("payer", "open", key_file, rows_file)
    assert refused.code == 1
    assert refused.out.splitlines() == ["key,amount,currency,kind,to,task,participant"]
    assert refused.err.count("not paid") == 2


def test_an_sp_that_moves_forges_or_reads_a_destination_is_noticed(desk):
    first, second, _ = payments(desk)
    assert opened(first).to == ANN[1]
    with pytest.raises(SealBroken):  # to another person
        opened(second, first.destination)
    with pytest.raises(SealBroken):  # to another claim
        open_destination(PAYER, first.destination, desk.task, first.who, claimed(first) + 1)
    with pytest.raises(SealBroken):  # to another task
        open_destination(PAYER, first.destination, "0" * 64, first.who, claimed(first))
    with pytest.raises(SealBroken):
        opened(first, key=OTHER)
    person, context = desk.crowd[0], f"crowdfl destination 1 {desk.task} {first.who} {claimed(first)}".encode()
    own = SigningKey.fresh()
    true = Destination(desk.task, first.who, person.keys.signing.public, PAYER.public, str(claimed(first)), *ANN)

    def resealed(text: str) -> bytes:
        return seal_to(PAYER.public, text.encode().ljust(1536), context)

    with pytest.raises(DocumentError, match="another task, participant"):  # SP's own key under her name
        opened(first, resealed(replace(true, signing=own.public, to="sp@example.org").sign(own)))
    with pytest.raises(BadSignature):  # her key, SP's words
        opened(first, resealed(replace(true, to="sp@example.org").sign(own)))
    # An SP that had her page seal to a key of its own reads it, and cannot hide that from the payer.
    swapped = replace(true, payer=OTHER.public)
    stolen = OTHER.open(swapped.seal(person.keys.signing), context).decode().rstrip()
    with pytest.raises(DocumentError, match="somebody has read it"):
        opened(first, resealed(stolen))
    bad = replace(true, way="iban", to="DE00370400440532013000").sign(person.keys.signing)
    with pytest.raises(SettingsError):
        opened(first, resealed(bad))
    assert participant_name(own.public) != first.who
    assert "ann" not in repr(true)


def test_it_is_awaited_corrected_until_it_is_paid_and_then_erased(desk):
    paid, options = [], desk.sp.options
    options.on_paid = paid.append
    first, second, third = desk.crowd
    third.claim()
    assert payments(desk)[2].destination == ASKED
    for _ in range(5):
        desk.sp.payments.run_one()
    assert [payment.who for payment in paid] == [first.keys.who, second.keys.who]
    assert [opened(payment).way for payment in paid] == ["email", "iban"], "the program gets them sealed"
    assert [one.state for one in payments(desk)] == [PaymentState.PAID, PaymentState.PAID, PaymentState.PENDING]
    assert [one.destination for one in payments(desk)] == [None, None, ASKED]
    with pytest.raises(Conflict, match="is paid"):
        first.pay_to(*BOB)
    third.pay_to("text", "wrong")
    third.pay_to("email", "cleo@example.org")
    assert opened(payments(desk)[2]).to == "cleo@example.org"
    with pytest.raises(SettingsError):
        third.pay_to("email", "cleo")
    resolve_payment(desk.sp.ports, desk.task, third.keys.who, "paid")
    assert payments(desk)[2].destination is None


def test_bytes_of_another_length_are_refused(desk):
    who = desk.crowd[0].keys.who
    for sealed in (b"", bytes(SEALED_BYTES - 1), bytes(SEALED_BYTES + 1)):
        with pytest.raises(FormatError):
            desk.sp.pay_to(desk.task, who, sealed)


def test_a_platform_takes_no_task_that_names_another_payer(tmp_path):
    desk = Desk(tmp_path, payer=PAYER.public)
    definition = replace(desk.requester.definition(desk.task), purpose="another")
    for other in (OTHER.public, b""):
        desk.requester.payer = other
        with pytest.raises(SettingsError, match=PAYER.public.hex()):
            desk.requester.create(definition, desk.initial)
    desk.disk.close()
