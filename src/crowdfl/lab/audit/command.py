"""`crowdfl audit`: parses options and prints; the attacks are in `crowdfl.lab.audit`."""

import json
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crowdfl.lab.audit import DEFAULT, QUICK, AuditReport, Finding, Verdict, run_audit

__all__ = ["audit"]

_COLOURS = {Verdict.BROKEN: "red", Verdict.GUESS: "green"}


def audit(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short test keys and fewer rounds.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if an attack does other than it should.")] = False,
) -> None:
    """Attack both profiles: what each attacker recovers from honest transcripts, beside a blind guess."""
    report = run_audit(QUICK if quick else DEFAULT, _teller())
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    else:
        _show(report)
    if check and report.surprises:
        raise typer.Exit(1)


def _teller() -> Callable[[str], None]:
    """Says on stderr what is being attacked, so that stdout holds the result alone."""
    console, start = Console(stderr=True, highlight=False), time.monotonic()
    return lambda what: console.print(f"[dim]{time.monotonic() - start:6.1f} s[/dim]  {what}")


def _show(report: AuditReport) -> None:
    console = Console(highlight=False)
    scale = report.scale
    title = f"crowdfl audit, {scale.name}: |N| = {scale.paper_bits} (paper), {scale.hardened_bits} (hardened)"
    table = Table("", "7.", "what, by whom", "of", "recovered", "error", "blind", "verdict", title=title)
    for number, finding in enumerate(report.findings, start=1):
        table.add_row(str(number), *_cells(finding))
    console.print(table)
    for number, finding in enumerate(report.findings, start=1):
        console.print(f"{number:2}  {finding.measure}; {finding.note}", markup=False)
    said = [f"{finding.attack} of {finding.subject}" for finding in report.surprises]
    console.print(f"unexpected: {', '.join(said) or 'nothing'}", markup=False)


def _cells(finding: Finding) -> tuple[str, ...]:
    colour = _COLOURS[finding.verdict]
    mark = " (!)" if finding.surprising else ""
    return (
        finding.section,
        escape(finding.title),
        escape(finding.subject),
        escape(finding.recovered),
        f"{finding.error:.3g}",
        f"{finding.blind:.3g}",
        f"[{colour}]{finding.verdict}{mark}[/{colour}]",
    )
