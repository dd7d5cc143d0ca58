"""`crowdfl doctor`: what is amiss on this machine or with a role, and what to do about it."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.doctor.finding import Finding, Verdict
from crowdfl.cli.doctor.machine import machine_checks
from crowdfl.cli.waiting import waiting

__all__ = ["doctor"]

_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def doctor(
    settings: Annotated[
        list[Path] | None,
        typer.Argument(help="Settings files of roles, as `crowdfl init` makes them; none: the machine alone."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where state would be kept: its disk is tried.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Check this machine, and each role whose settings are given. Exits with 1 if something fails."""
    with waiting("looking", quiet=as_json):
        found = list(machine_checks(folder))
        for path in settings or []:
            from crowdfl.cli.doctor.role import role_checks  # the services' packages may be what is missing

            found += role_checks(path)
    failed = any(finding.verdict is Verdict.FAIL for finding in found)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "findings": [asdict(finding) for finding in found]}))
    else:
        _show(found)
    if failed:
        raise typer.Exit(1)


def _show(found: Iterable[Finding]) -> None:
    table = Table("", "what", "found", "what to do", show_lines=False)
    for finding in found:
        colour = _COLOURS[finding.verdict]
        mark = f"[{colour}]{finding.verdict}[/{colour}]"
        table.add_row(mark, escape(finding.what), escape(finding.found), escape(finding.advice))
    Console(highlight=False).print(table)
