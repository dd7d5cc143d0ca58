"""A batch of payments: sealed to the payer, made once, in files for the bank and the office, and its result read back whole."""

import csv
import json
import xml.etree.ElementTree as ET

import pytest

from crowdfl.documents.pain001 import NAMESPACE
from crowdfl.documents.payment_batch import Result, open_batch, read_results, results_text, seal_batch
from crowdfl.errors import Conflict, FormatError, NoDestination, SealBroken
from crowdfl.roles.records import PayState
from crowdfl.roles.sp.operator import due_rows
from crowdfl.roles.sp.payments import take_results
from tests.cli.program import call
from tests.roles.test_pay_to import ANN, BOB, OTHER, PAYER, desk, office  # noqa: F401 -- fixtures

PHONE = ("text", "+49 170 1234567")
DEBTOR = ("--debtor", "Universität X", "--iban", "DE02 1203 0000 0000 2020 51")


def sealed(desk, file, payer=PAYER):  # noqa: F811
    file.write_bytes(seal_batch(payer.public, desk.task, due_rows(desk.sp.store, desk.task, desk.clock.now())))
    return file


def states(desk):  # noqa: F811
    return [[one.state for one in desk.sp.claims.pay_words(desk.task, who.keys.who).values()] for who in desk.crowd]


@pytest.fixture
def three(desk):  # noqa: F811
    """All have claimed: by e-mail, to an IBAN, and by telephone."""
    desk.crowd[2].pay_to(*PHONE)
    desk.crowd[2].claim()
    return desk


def test_a_batch_is_paid_in_files_for_the_bank_and_the_office_and_read_back(three, office, tmp_path):  # noqa: F811
    batch, folder, out = sealed(three, tmp_path / "batch"), tmp_path / "office", tmp_path / "results"
    assert b"ann" not in batch.read_bytes()
    done = call("payer", "batch", office, batch, folder, *DEBTOR)
    assert done.code == 0, done.err
    rows = list(csv.DictReader((folder / "payments.csv").read_text().splitlines()))
    assert [(row["kind"], row["to"], row["amount"]) for row in rows] == [
        (ANN[0], ANN[1], "12.00"),
        (BOB[0], "DE89370400440532013000", "12.00"),
        (PHONE[0], PHONE[1], "12.00"),
    ], "exact, as people wrote it"
    assert "'+49 170" in (folder / "payments-for-a-spreadsheet.csv").read_text()
    assert {one.stat().st_mode & 0o077 for one in folder.iterdir()} == {0}
    check_bank(ET.parse(folder / "bank.pain.001.xml").getroot(), rows[1])  # noqa: S314 -- written here
    failed = rows[1]["key"]
    done = call("payer", "result", office, folder, out, "--failed", f"{failed}=account closed")
    assert done.code == 0, done.err
    assert not any(word in out.read_text() for word in (ANN[1], "DE89", "+49"))
    counts = take_results(three.sp.ports, read_results(out.read_text()))
    assert counts == {"paid": 2, "failed": 1}
    assert states(three) == [[PayState.PAID], [PayState.FAILED], [PayState.PAID]]
    take_results(three.sp.ports, read_results(out.read_text()))
    assert call("payer", "result", office, folder, out, "--failed", f"{failed}=account closed").code == 0, "again"
    again = call("payer", "batch", office, sealed(three, tmp_path / "next"), tmp_path / "second", *DEBTOR)
    assert again.code == 0, again.err
    left = list(csv.DictReader((tmp_path / "second" / "payments.csv").read_text().splitlines()))
    assert [row["to"] for row in left] == ["DE89370400440532013000"], "what failed alone is paid anew"


def check_bank(root, row):
    """The elements of pain.001.001.09 in its schema's order."""
    space = f"{{{NAMESPACE}}}"
    head, block = root.find(f"{space}CstmrCdtTrfInitn")
    names = lambda place: [one.tag.removeprefix(space) for one in place]  # noqa: E731
    assert names(head) == ["MsgId", "CreDtTm", "NbOfTxs", "CtrlSum", "InitgPty"]
    account = ["ReqdExctnDt", "Dbtr", "DbtrAcct", "DbtrAgt", "ChrgBr"]
    assert names(block) == ["PmtInfId", "PmtMtd", "BtchBookg", "NbOfTxs", "CtrlSum", *account, "CdtTrfTxInf"]
    transfer = block[-1]
    assert names(transfer) == ["PmtId", "Amt", "Cdtr", "CdtrAcct", "RmtInf"]
    text = lambda path, place=block: place.find("/".join(space + one for one in path.split("/"))).text  # noqa: E731
    assert text("PmtId/EndToEndId", transfer) == row["key"]
    assert len(row["key"]) <= 35
    amount = transfer.find(f"{space}Amt/{space}InstdAmt")
    assert (amount.text, amount.attrib) == ("12.00", {"Ccy": "EUR"})
    assert text("CdtrAcct/Id/IBAN", transfer) == "DE89370400440532013000"
    assert (text("NbOfTxs"), text("CtrlSum"), text("DbtrAcct/Id/IBAN")) == ("1", "12.00", "DE02120300000000202051")
    assert text("Dbtr/Nm") == "Universit t X", "letters that every bank takes"


def test_the_same_batch_again_pays_nothing(three, office, tmp_path):  # noqa: F811
    batch = sealed(three, tmp_path / "batch")
    assert call("payer", "batch", office, batch, tmp_path / "one", *DEBTOR).code == 0
    assert call("payer", "batch", office, batch, tmp_path / "one", *DEBTOR).code != 0, "nothing is written over"
    assert call("payer", "batch", office, batch, tmp_path / "two", *DEBTOR).code == 0
    assert len((tmp_path / "two" / "payments.csv").read_text().splitlines()) == 1


def test_without_an_account_to_pay_from_nothing_is_noted_as_paid(three, office, tmp_path):  # noqa: F811
    batch = sealed(three, tmp_path / "batch")
    refused = call("payer", "batch", office, batch, tmp_path / "one")
    assert (refused.code != 0, "--debtor" in refused.err) == (True, True)
    assert call("payer", "batch", office, batch, tmp_path / "one", *DEBTOR).code == 0
    assert len((tmp_path / "one" / "payments.csv").read_text().splitlines()) == 4


def test_a_batch_that_was_altered_or_is_for_another_payer_is_not_opened(three, office, tmp_path):  # noqa: F811
    batch = sealed(three, tmp_path / "batch").read_bytes()
    for place in (len(batch) - 1, len(batch) // 2, batch.index(three.task.encode()[:8])):
        altered = bytearray(batch)
        altered[place] ^= 1
        with pytest.raises(SealBroken):
            open_batch(PAYER, bytes(altered))
    with pytest.raises(SealBroken):
        open_batch(OTHER, batch)
    with pytest.raises(FormatError):
        open_batch(PAYER, b"key,amount\n")
    assert call("payer", "batch", office, sealed(three, tmp_path / "other", OTHER), tmp_path / "x", *DEBTOR).code != 0


def test_rows_that_somebody_made_up_pay_nobody(three, office, tmp_path):  # noqa: F811
    """Anyone can seal to the payer's public key: what people and CSP have not signed is refused."""
    rows = due_rows(three.sp.store, three.task, three.clock.now())
    forged = [rows[0] | {"destination": rows[1]["destination"]}]
    file = tmp_path / "forged"
    file.write_bytes(seal_batch(PAYER.public, three.task, forged))
    done = call("payer", "batch", office, file, tmp_path / "x", *DEBTOR)
    assert (done.code, "not paid" in done.err) == (1, True)
    assert len((tmp_path / "x" / "payments.csv").read_text().splitlines()) == 1


def test_results_are_taken_whole_or_not_at_all(desk):  # noqa: F811
    ann, bob = desk.sp.store.payments(desk.task)
    desk.crowd[2].claim()
    cleo = desk.sp.store.payments(desk.task)[2]
    said = [Result(desk.task, ann.key, "paid"), Result(desk.task, cleo.key, "paid")]
    with pytest.raises(NoDestination):
        take_results(desk.sp.ports, said)
    assert states(desk)[0] == [PayState.WAITING], "not even the first"
    take_results(desk.sp.ports, said[:1])
    with pytest.raises(Conflict, match="cannot have failed"):
        take_results(desk.sp.ports, [Result(desk.task, ann.key, "failed", "no")])
    assert bob.key not in results_text(said)


@pytest.mark.parametrize(
    "change", [{"state": "perhaps"}, {"key": 3}, {"why": "x" * 201}, {"task": None}], ids=lambda one: next(iter(one))
)
def test_a_file_of_results_that_is_none_is_refused(change):
    fine = json.loads(results_text([Result("t", "k", "paid")]))
    assert read_results(json.dumps(fine)) == [Result("t", "k", "paid")]
    with pytest.raises(FormatError):
        read_results(json.dumps(fine | {"results": [fine["results"][0] | change]}))
    with pytest.raises(FormatError, match="twice"):
        read_results(json.dumps(fine | {"results": fine["results"] * 2}))
    for text in ("", "[]", json.dumps(fine | {"kind": "other"})):
        with pytest.raises(FormatError):
            read_results(text)
