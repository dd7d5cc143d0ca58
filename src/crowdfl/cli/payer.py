"""`crowdfl payer`: whoever pays people out, on a machine of its own, makes a key and opens where people want to be paid."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.output import Json, show, write_rows
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.destination import open_destination
from crowdfl.errors import CrowdFLError, FormatError, KeyFileExists, WrongAmount
from crowdfl.settings import in_cents
from crowdfl.storage.atomic import read_private_key, write_private

app = typer.Typer(help="Whoever pays people out: make a key, open where to pay.", no_args_is_help=True)
_KeyFile = Annotated[Path, typer.Argument(metavar="KEY", help="The payer's private key. It never leaves this machine.")]
_COLUMNS = ("key", "amount", "currency", "kind", "to", "task", "participant")


@app.command()
def key(file: _KeyFile, as_json: Json = False) -> None:
    """Make a key, if there is none, and show its public half: for `payer_key` of SP and of its requesters."""
    try:
        write_private(file, ReaderKey.fresh().private)
    except FileExistsError:
        if not file.is_file():
            raise KeyFileExists(f"{file} is there, and is not a file") from None
    public = ReaderKey(read_private_key(file)).public.hex()
    show({"payer_key": public}, public, as_json=as_json)


@app.command("open")
def open_payouts(
    file: _KeyFile,
    payouts: Annotated[Path, typer.Argument(help="What `crowdfl sp payouts` wrote: CSV or JSON.")],
    as_json: Json = False,
) -> None:
    """Show how much goes where, of payments that are due. What was not sealed for its very claim is refused, not shown."""
    own, refused, found = ReaderKey(read_private_key(file)), 0, []
    due, rows = _rows(payouts.read_text(encoding="utf-8"))
    for row in rows:
        try:
            if row["state"] == due and row["destination"]:
                found.append(_opened(own, row))
        except (CrowdFLError, KeyError, ValueError) as wrong:
            refused += 1
            typer.echo(f"not paid: {row.get('participant')} of task {row.get('task')}: {wrong}", err=True)
    write_rows(found, _COLUMNS, None, as_json=as_json)
    if refused:
        raise typer.Exit(1)


def _opened(own: ReaderKey, row: Mapping[str, Any]) -> dict[str, str]:
    millionths, claimed = int(row["millionths"]), int(row["claimed"])
    to = open_destination(own, bytes.fromhex(row["destination"]), row["task"], row["participant"], claimed)
    if not 0 <= millionths <= claimed:
        raise WrongAmount("SP asks for more than the participant has claimed")
    amount = {"key": row["key"], "amount": f"{in_cents(millionths):f}", "currency": row["currency"]}
    return amount | {"kind": to.way, "to": to.to, "task": to.task, "participant": to.who}


def _rows(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Payments, and the state of those to make: in a list, what nobody has begun; or the one that a payout program is given."""
    if not text.lstrip().startswith(("[", "{")):
        return "pending", list(csv.DictReader(io.StringIO(text)))
    try:
        found = json.loads(text)
    except ValueError:
        raise FormatError("this is neither CSV nor JSON as `crowdfl sp payouts` writes it") from None
    return ("pending", found) if isinstance(found, list) else ("running", [found])
