"""`crowdfl bench`: parses options and prints; the measuring is in `crowdfl.lab.bench`."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crowdfl.crypto.backends import backend_named
from crowdfl.lab.bench import tables
from crowdfl.lab.bench.crypto.run import bench_crypto
from crowdfl.lab.bench.crypto.setting import PAPER, QUICK
from crowdfl.lab.bench.protocols.run import bench_protocols
from crowdfl.lab.bench.protocols.setting import PAPER_PROTOCOLS, QUICK_PROTOCOLS
from crowdfl.lab.bench.rows import Grid, Report, Row
from crowdfl.lab.bench.tables import Run

__all__ = ["app", "compare", "crypto", "gpu", "load", "protocols", "scale"]

_DEFAULT_PEERS = Path(".venv-peers/bin/python")
_VERDICTS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "-"}

_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_Out = Annotated[Path | None, typer.Option(help="A folder for JSON, Markdown and, with Matplotlib, PNG and SVG.")]
_Markdown = Annotated[Path | None, typer.Option("--markdown", help="A file for the tables as Markdown.")]

app = typer.Typer(help="Measure CrowdFL on this machine.", no_args_is_help=True)


@app.command()
def crypto(
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on a small model; judges no target.")] = False,
    peers: Annotated[
        Path, typer.Option(envvar="CROWDFL_PEERS", help="The Python that has phe and TenSEAL (`make peers`).")
    ] = _DEFAULT_PEERS,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Leave the other libraries out.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a target is missed or a peer fails.")] = False,
) -> None:
    """Encryption, sums and decryption beside phe, TenSEAL and bare GMP, in one run."""
    _require_judged(quick=quick, check=check)
    report = bench_crypto(QUICK if quick else PAPER, python=None if no_peers else peers, say=_teller())
    _print(report, as_json=as_json)
    # Asked for, a peer that did not answer leaves a target unproven; left out on purpose, it does not.
    if check and (report.missed or (report.unjudged and not no_peers)):
        raise typer.Exit(1)


@app.command()
def protocols(
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on a small model; judges no target.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a target is missed.")] = False,
) -> None:
    """Averaging, reading, rewards and the two profiles side by side, in ratios of one run."""
    _require_judged(quick=quick, check=check)
    report = bench_protocols(QUICK_PROTOCOLS if quick else PAPER_PROTOCOLS, say=_teller())
    _conclude(report, as_json=as_json, check=check)


@app.command()
def load(
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run with a few people; judges no target.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a target is missed.")] = False,
) -> None:
    """A thousand participants' uploads against one SP, beside a route that only writes and fsyncs."""
    _require_judged(quick=quick, check=check)
    from crowdfl.lab.bench.load.run import FULL, SMOKE, bench_load

    report = bench_load(SMOKE if quick else FULL, say=_teller())
    _conclude(report, as_json=as_json, check=check)


@app.command()
def gpu(
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on a small model; judges no target.")] = False,
    exact: Annotated[bool, typer.Option(help="Also a round with exact distances, some minutes.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a target is missed.")] = False,
    compute: Annotated[str, typer.Option(help="Where to compute: cuda, or threads to compare.")] = "cuda",
) -> None:
    """Partial decryptions a second and whole rounds of `hardened` on one GPU."""
    _require_judged(quick=quick, check=check)
    from crowdfl.lab.bench.gpu.run import PAPER_GPU, QUICK_GPU, bench_gpu

    report = bench_gpu(QUICK_GPU if quick else PAPER_GPU, backend_named(compute), exact=exact, say=_teller())
    _conclude(report, as_json=as_json, check=check)


@app.command()
def compare(
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on a small model.")] = False,
    peers: Annotated[
        Path, typer.Option(envvar="CROWDFL_PEERS", help="The Python that has phe, TenSEAL and Flower (`make peers`).")
    ] = _DEFAULT_PEERS,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Leave the other libraries out.")] = False,
    compute: Annotated[str, typer.Option(help="cuda: measure the servers there too, whole.")] = "threads",
    out: _Out = None,
    markdown: _Markdown = None,
) -> None:
    """One round of CrowdFL beside what one would pick instead: time, bytes, drop-outs, who reads what."""
    from crowdfl.lab.bench.compare.run import bench_compare
    from crowdfl.lab.bench.compare.setting import PAPER_COMPARE, QUICK_COMPARE

    fast = None if compute == "threads" else backend_named(compute)
    setting = QUICK_COMPARE if quick else PAPER_COMPARE
    run = bench_compare(setting, python=None if no_peers else peers, fast=fast, say=_teller())
    _deliver(run, as_json=as_json, out=out, page=markdown)


@app.command()
def scale(
    as_json: _AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run of small sizes.")] = False,
    out: _Out = None,
    markdown: _Markdown = None,
) -> None:
    """Time and memory of each role against parameters, participants and key size."""
    from crowdfl.lab.bench.scale.run import PAPER_SCALE, QUICK_SCALE, bench_scale

    run = bench_scale(QUICK_SCALE if quick else PAPER_SCALE, say=_teller())
    _deliver(run, as_json=as_json, out=out, page=markdown)


def _deliver(run: Run, *, as_json: bool, out: Path | None, page: Path | None) -> None:
    """To the terminal, and to the files that were asked for."""
    if page is not None:
        page.write_text(tables.markdown(run), encoding="utf-8")
    written = tables.write(run, out) if out is not None else ()
    if as_json:
        sys.stdout.write(tables.as_json(run))
        return
    console = Console(highlight=False)
    for table in run.tables():
        shown = Table(*table.header, title=table.title)
        for row in table.rows:
            shown.add_row(*map(escape, row), end_section=True)
        console.print(shown)
    for line in (*run.lines, *(f"written: {path}" for path in written)):
        console.print(line, markup=False)


def _require_judged(*, quick: bool, check: bool) -> None:
    if check and quick:
        raise typer.BadParameter("a smoke run judges no target: drop --quick or --check")


def _conclude(report: Report, *, as_json: bool, check: bool) -> None:
    """Print it; a target that was missed, or could not be judged, fails a check."""
    _print(report, as_json=as_json)
    if check and (report.missed or report.unjudged):
        raise typer.Exit(1)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    else:
        _show(report)


def _teller() -> Callable[[str], None]:
    """Says on stderr what is being measured, so that stdout holds the result alone."""
    console, start = Console(stderr=True, highlight=False), time.monotonic()
    return lambda what: console.print(f"[dim]{time.monotonic() - start:6.1f} s[/dim]  {what}")


def _show(report: Report) -> None:
    console = Console(highlight=False)
    table = Table("", "quantity", "CrowdFL", "compared with", "ratio", "target", "met", title=report.title)
    for number, row in enumerate(report.rows, start=1):
        table.add_row(str(number), *_cells(row), end_section=True)
    console.print(table)
    for grid in report.grids:
        _show_grid(console, grid)
    for number, row in enumerate(report.rows, start=1):
        console.print(f"{number:2}  {_how(row)}", markup=False)
    for name, facts in (("machine", report.machine), ("peers", report.peers)):
        console.print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in facts.items()), markup=False)
    console.print("* extrapolated from a sample, or a mean over one; see the line of the row's number", markup=False)


def _show_grid(console: Console, grid: Grid) -> None:
    table = Table("", title=grid.title)
    for column in grid.columns:
        table.add_column(column, justify="right")
    for name, figures in grid.rows:
        table.add_row(name, *map(str, figures))
    console.print(table)


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "-" if row.ratio is None else f"{row.ratio:.3g} ({row.ratio_of})"
    target = row.target.text if row.target else "-"
    compared = "\n".join(str(peer) for peer in row.peers)
    return row.quantity, str(row.crowdfl), escape(compared), ratio, target, _VERDICTS[row.met]


def _how(row: Row) -> str:
    """How the row's figures were taken, and what the starred ones stand on."""
    figures = [("CrowdFL", row.crowdfl), *((peer.name, peer.figure) for peer in row.peers if peer.figure)]
    samples = [f"{who}: from {figure.sample}" for who, figure in figures if figure.sample]
    return "; ".join([row.note, *samples])
