"""The files of a payer's office: what a batch pays, for the bank, for programs and for eyes; and what became of it."""

import csv
import datetime
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from crowdfl.cli.output import csv_text
from crowdfl.documents.pain001 import Debtor, Transfer, pain001
from crowdfl.documents.payment_batch import Result, checked_why, results_text
from crowdfl.errors import SettingsError
from crowdfl.roles.payer import COLUMNS, Payout, Row
from crowdfl.storage.atomic import write_private

_EXACT, _SHEET, _BANK = "payments.csv", "payments-for-a-spreadsheet.csv", "bank.pain.001.xml"


def write_office(folder: Path, found: Sequence[Payout], debtor: Debtor | None) -> None:
    """Each for its owner's eyes alone. The bank's file has the IBANs; the others have everything, exact, and for eyes."""
    rows = [one.row() for one in found]
    write_private(folder / _EXACT, csv_text(rows, COLUMNS, exact=True).encode())
    write_private(folder / _SHEET, csv_text(rows, COLUMNS, exact=False).encode())
    transfers = transfers_of(found)
    if transfers and debtor is not None:
        now = datetime.datetime.now(datetime.UTC)
        write_private(folder / _BANK, pain001(debtor, transfers, f"crowdfl-{now:%Y%m%d%H%M%S}", now))


def transfers_of(found: Iterable[Payout]) -> list[Transfer]:
    """What a bank pays."""
    return [_transfer(one, one.row()) for one in found if one.to.way == "iban"]


def _transfer(payout: Payout, row: Row) -> Transfer:
    words = f"{row['task'][:8]} {row['participant']}"
    return Transfer(row["key"], Decimal(row["amount"]), row["currency"], payout.to.to, row["participant"], words)


def payments_in(folder: Path) -> list[dict[str, str]]:
    """What `write_office` wrote."""
    with open(folder / _EXACT, encoding="utf-8", newline="") as kept:
        return list(csv.DictReader(kept))


def failures(said: Iterable[str]) -> dict[str, str]:
    """KEY=WHY, by key."""
    return dict(map(_failure, said))


def _failure(text: str) -> tuple[str, str]:
    key, mark, why = text.partition("=")
    if not mark:
        raise SettingsError(f"--failed takes KEY=WHY, not {text[:80]!r}")
    return key.strip(), checked_why(why)


def results_of(rows: Iterable[Row], failed: Mapping[str, str]) -> str:
    """For the platform's operator, by SP's own keys: after a restore SP may count rounds otherwise than CSP does."""
    return results_text([_result(row["task"], row["sp_key"], failed.get(row["key"])) for row in rows])


def _result(task: str, key: str, why: str | None) -> Result:
    return Result(task, key, "paid") if why is None else Result(task, key, "failed", why)
