"""`crowdfl doctor`: what is wrong on this machine or with a role, and what to do about it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl.cli.output import Json, show
from crowdfl.cli.waiting import waiting

if TYPE_CHECKING:
    from crowdfl.cli.doctor.check import DoctorCheck

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _may_cause_the_rest(check: "DoctorCheck") -> bool:
    """A full disk: databases and files beside it fail in ways that name something else."""
    return check.verdict == "fail" and check.what.endswith("disk")


def doctor(
    settings: Annotated[
        list[Path] | None,
        typer.Argument(help="Settings files of roles, as `crowdfl init` makes them; without, the machine alone."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where state would be kept: its disk is checked.")] = Path(),
    as_json: Json = False,
) -> None:
    from rich.markup import escape
    from rich.table import Table

    from crowdfl.cli.doctor.machine import machine_checks

    with waiting("checking", quiet=as_json):
        found = list(machine_checks(folder))
        for path in settings or []:
            from crowdfl.cli.doctor.role import role_checks  # the services' packages may be what is missing

            found += role_checks(path)
    found.sort(key=_may_cause_the_rest, reverse=True)
    failed = any(check.verdict == "fail" for check in found)
    table = Table("", "what", "found", "what to do", show_lines=False)
    for check in found:
        colour = _COLOURS[check.verdict]
        mark = f"[{colour}]{check.verdict}[/{colour}]"
        table.add_row(mark, escape(check.what), escape(check.found), escape(check.advice))
    show({"ok": not failed, "findings": [asdict(check) for check in found]}, table, as_json=as_json)
    if failed:
        raise typer.Exit(1)
