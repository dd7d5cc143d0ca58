"""`crowdfl audit`: parses options; the attacks are in `crowdfl.lab.audit`, what is shown in `crowdfl.lab.report`."""

from typing import Annotated

import typer

from crowdfl.lab.audit.report import DEFAULT, QUICK, run_audit
from crowdfl.lab.report.output import deliver, progress_to_stderr

__all__ = ["audit"]


def audit(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short test keys and fewer rounds.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if an attack's result is not the expected one.")
    ] = False,
) -> None:
    """Attack both profiles: what each attacker recovers from honest transcripts, beside a blind guess."""
    report = run_audit(QUICK if quick else DEFAULT, progress_to_stderr())
    deliver(report.result(), as_json=as_json)
    if check and report.surprises:
        raise typer.Exit(1)
