"""`crowdfl payer`: whoever pays people out, on a machine of its own, makes a key, says whom to believe, and opens what to pay.

Beside the key lies its record: whom it believes, and what it has handed over. It is written before anything is shown.
"""

import csv
import fcntl
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl.cli.output import Json, show, write_rows
from crowdfl.errors import (
    FormatError,
    KeyFileDamaged,
    KeyFileExists,
    KeyFileMissing,
    KeyFilePermissions,
    PayoutRefused,
    SettingsError,
)

if TYPE_CHECKING:
    from crowdfl.roles.payer import Payer, PayerRecord, Row


app = typer.Typer(no_args_is_help=True)
_KeyFile = Annotated[Path, typer.Argument(metavar="KEY", help="The payer's private key. It never leaves this machine.")]
_LONGEST_CELL = 1_500_000  # characters: a task's definition


@app.command()
def key(file: _KeyFile, as_json: Json = False) -> None:
    """Make a key, if there is none, and show its public half: for `payer_key` of SP and of its requesters."""
    from crowdfl.crypto.sealing import ReaderKey
    from crowdfl.roles.payer import PayerRecord
    from crowdfl.storage.atomic import read_private_key, write_private

    if not file.exists():
        try:
            write_private(_record_of(file), _text(PayerRecord()))  # first: a key without its record could pay twice
        except FileExistsError:
            raise KeyFileExists(f"{_record_of(file)} is there without its key: restore {file} from a backup") from None
        write_private(file, ReaderKey.fresh().private)
    elif not file.is_file():
        raise KeyFileExists(f"{file} is there, and is not a file")
    public = ReaderKey(read_private_key(file)).public.hex()
    show({"payer_key": public}, public, as_json=as_json)


@app.command()
def know(
    file: _KeyFile,
    part: Annotated[Path, typer.Argument(help="KGC's public part, kgc.public.json.")],
    fingerprint: Annotated[
        str | None, typer.Option(help="The digits that KGC's operator told you. Without it you are asked.")
    ] = None,
) -> None:
    """Believe this KGC who takes part in a task, and which key its CSP signs with. Safe to repeat."""
    from crowdfl.cli.exchange import require_compared
    from crowdfl.services.folders.public_part import read_part

    found = read_part(part)
    if found.role != "kgc" or found.key is None:
        raise SettingsError(
            f"{part} is the public part of {found.name}: give KGC's, who certifies people and names CSP's keys"
        )
    require_compared(found, fingerprint)
    with _opened(file) as payer:
        payer.record.kgc += [] if found.key in payer.record.kgc else [found.key]
    typer.echo(f"KGC is known by its key {found.key}")


@app.command()
def task(
    file: _KeyFile, tasks: Annotated[list[str], typer.Argument(help="Ids of tasks, as their requester told you.")]
) -> None:
    """Pay for these tasks: their ids stand for all that their requester has signed. Safe to repeat."""
    for one in tasks:
        if not re.fullmatch("[0-9a-f]{64}", one):
            raise SettingsError(
                f"{one[:80]!r} is no task's id: it has 64 hexadecimal digits, as `crowdfl task list` shows them"
            )
    with _opened(file) as payer:
        payer.record.tasks += [one for one in tasks if one not in payer.record.tasks]


@app.command("open")
def open_payouts(
    file: _KeyFile,
    payouts: Annotated[
        str, typer.Argument(help="What `crowdfl sp payouts` wrote, CSV or JSON; - reads it from standard input.")
    ],
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Show, too, what was shown before, under its old keys: for a bank that pays a key once."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how much goes where, once, as CSP and people have signed it. What does not fit is refused, not shown."""
    from crowdfl.roles.payer import COLUMNS

    given = sys.stdin.read() if payouts == "-" else Path(payouts).read_text(encoding="utf-8")
    due, rows = _rows(given)
    with _opened(file) as payer:
        found, refused = payer.take(filter(due, rows), rows, again=again)
    for one in refused:
        who, of = one.row.get("participant"), one.row.get("task")
        typer.echo(f"not paid: {who} of task {of}: {one.why}", err=True)
    write_rows([one.row() for one in found], COLUMNS, None, as_json=as_json)
    if refused:
        raise typer.Exit(1)


@contextmanager
def _opened(file: Path) -> "Iterator[Payer]":
    """The payer, alone; what its record has become is on disk when this ends."""
    from crowdfl.crypto.sealing import ReaderKey
    from crowdfl.roles.payer import Payer, PayerRecord
    from crowdfl.storage.atomic import read_private_key, require_owner_only, write_private

    with open(file, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # several programs may pay at once
        own = ReaderKey(read_private_key(file))
        place = _record_of(file)
        try:
            with open(place, "rb") as kept:
                require_owner_only(kept.fileno(), place, KeyFilePermissions)
                record = PayerRecord.read(json.load(kept))
        except FileNotFoundError:
            raise KeyFileMissing(
                f"there is no {place}, the record of what was paid with this key: restore it from a backup, or people could be "
                "paid twice"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise KeyFileDamaged(f"{place} is no record of a payer's: restore it from a backup") from None
        before = _text(record)
        yield Payer(own, record)
        if (after := _text(record)) != before:
            write_private(place, after, overwrite=True)


def _record_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.record.json")


def _text(record: "PayerRecord") -> bytes:
    return (json.dumps(record.body(), indent=1) + "\n").encode()


def _rows(text: str) -> "tuple[Callable[[Row], bool], list[Row]]":
    """Payments, and which of them to make: of a list those that nobody has begun and whose owners said where to pay; or the one
    that a payout program is given."""
    if not text.lstrip().startswith(("[", "{")):
        csv.field_size_limit(_LONGEST_CELL)
        return _is_due, [
            {name: value or "" for name, value in row.items()} for row in csv.DictReader(io.StringIO(text))
        ]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError("this is neither CSV nor JSON as `crowdfl sp payouts` writes it") from None
    is_list = isinstance(found, list)
    rows = found if is_list else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise FormatError("this is no list of payments as `crowdfl sp payouts` writes it")
    return _is_due if is_list else _is_begun, [{name: str(value) for name, value in row.items()} for row in rows]


def _is_due(row: "Row") -> bool:
    return row.get("state") == "pending" and bool(row.get("destination"))


def _is_begun(row: "Row") -> bool:
    if row.get("state") != "running":
        raise PayoutRefused("this payment is not the one that a program is given to make: give a list of payments")
    return True
