"""`crowdfl sp deposit | payouts | resolve`: what the operator of SP says about the money, and sees of it."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.output import Json, show
from crowdfl.roles.restored import forgotten_payments
from crowdfl.roles.restored import reconcile as reconcile_payments
from crowdfl.roles.sp.deposits import Deposits
from crowdfl.roles.sp.operator_actions import PAYMENT_COLUMNS, forgotten_rows, payment_row
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.services.run import open_books
from crowdfl.settings import SpSettings, from_millionths, to_millionths
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import read_service

deposit_app = typer.Typer(help="What requesters say to have paid in: confirm or reject it.", no_args_is_help=True)
_Settings = Annotated[Path, typer.Argument(help="The role's settings.toml.")]
_Task = Annotated[str, typer.Argument(help="The task's id.")]
_AnyTask = Annotated[str | None, typer.Argument(help="The task's id; by default, all tasks.")]
_Name = Annotated[str, typer.Argument(help="The deposit's name, as `list` shows it.")]
_Amount = Annotated[str, typer.Argument(help="How much came in, such as 36.00; it must be what was announced.")]


class Resolution(StrEnum):
    """What the operator found out about a payment."""

    PAID = "paid"
    AGAIN = "again"


@deposit_app.command("list")
def list_deposits(settings: _Settings, task: _AnyTask = None, as_json: Json = False) -> None:
    """Show every deposit: pending, confirmed or rejected."""
    with open_books(read_service(SpSettings, settings), task) as books:
        found = books.store.deposits(task)
    rows = [(one.task, one.name, f"{from_millionths(one.amount):f}", str(one.state)) for one in found]
    values = [dict(zip(("task", "name", "amount", "state"), row, strict=True)) for row in rows]
    if as_json or rows:
        show(values, "\n".join("\t".join(row) for row in rows), as_json=as_json)


@deposit_app.command("confirm")
def confirm_deposit(settings: _Settings, task: _Task, name: _Name, amount: _Amount) -> None:
    """Say that the money is there; from then on it can fund rounds. Safe to repeat."""
    with open_books(read_service(SpSettings, settings), task) as books:
        Deposits(books).confirm(task, name, to_millionths(amount))
        typer.echo(f"deposit {name} is confirmed: {amount}")


@deposit_app.command("reject")
def reject_deposit(settings: _Settings, task: _Task, name: _Name) -> None:
    """Say that no such money came in. Safe to repeat."""
    with open_books(read_service(SpSettings, settings), task) as books:
        Deposits(books).reject(task, name)
        typer.echo(f"deposit {name} is rejected")


def payouts(
    settings: _Settings,
    task: _AnyTask = None,
    file: Annotated[Path | None, typer.Argument(help="Where to write it; by default, it is printed.")] = None,
    as_json: Json = False,
) -> None:
    """Show who is owed how much, and whether it is pending, running, paid or unknown: CSV, or JSON."""
    with open_books(read_service(SpSettings, settings), task) as books:
        found, now = books.store.payments(task), books.clock.now()
        tasks = [task] if task else [stored.task for stored in books.store.tasks()]
        forgotten = {one: forgotten_payments(books.store, one) for one in tasks}
    rows = [payment_row(payment, now) for payment in found]
    rows += [row for one, keys in forgotten.items() for row in forgotten_rows(one, keys)]
    text = _text(rows, as_json=as_json)
    if file is None:
        typer.echo(text, nl=False)
    else:
        write_private(file, text.encode(), overwrite=True)


def resolve(
    settings: _Settings,
    task: _Task,
    who: Annotated[str, typer.Argument(help="The participant, as `payouts` shows it.")],
    how: Annotated[Resolution, typer.Argument(help="paid: the money was handed over; again: it was not, pay it.")],
) -> None:
    """Say what became of a payment that is unknown, or that you made yourself."""
    with open_books(read_service(SpSettings, settings), task) as books:
        resolve_payment(books, task, who, how)
        typer.echo("the payment is paid" if how is Resolution.PAID else "the payment will be made again")


def reconcile(
    settings: _Settings,
    task: _Task,
    paid: Annotated[
        list[str] | None,
        typer.Option(
            help="A payment that your bank has made and `payouts` lacks: its key, or the participant. Repeat it."
        ),
    ] = None,
) -> None:
    """After a restore: say that this task's payments are compared with the bank; later claims are paid by themselves again."""
    with open_books(read_service(SpSettings, settings), task) as books:
        reconcile_payments(books, task, paid or ())


def _text(rows: Sequence[Mapping[str, str | int]], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(rows) + "\n"
    text = io.StringIO()
    writer = csv.DictWriter(text, PAYMENT_COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
