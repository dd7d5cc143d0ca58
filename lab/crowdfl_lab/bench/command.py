"""`crowdfl bench`: parses options and prints; the measuring is in `crowdfl_lab.bench`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.crypto.backends import backend_named
from crowdfl.errors import SettingsError
from crowdfl_lab.report.output import deliver, progress_to_stderr
from crowdfl_lab.report.results import Result

_AGAIN = 75  # sysexits' "try again": not an error
_DEFAULT_PEERS = Path(".venv-peers/bin/python")
_DEFAULT_PFL = Path(".venv-pfl/bin/python")

_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_Quick = Annotated[bool, typer.Option("--quick", help="A smoke run at small sizes; judges no target.")]
_Check = Annotated[bool, typer.Option("--check", help="Exit with 1 if a target is missed.")]
_PEERS_HELP = "The Python that has phe, TenSEAL and Flower (`make peers`)."
_Peers = Annotated[Path, typer.Option(envvar="CROWDFL_PEERS", help=_PEERS_HELP)]
_OUT_HELP = "A folder for JSON, Markdown, CSV, PNG, SVG and HTML."
_Out = Annotated[Path | None, typer.Option(help=_OUT_HELP)]
_Profile = Annotated[str, typer.Option(help="hardened or shares.")]

app = typer.Typer(no_args_is_help=True)


@app.command()
def crypto(as_json: _AsJson = False, quick: _Quick = False, check: _Check = False, out: _Out = None) -> None:
    """Single operations: encryption, sums, decryption, averaging, SDIV and SMUL, beside bare GMP and the paper's forms."""
    _require_judged(quick=quick, check=check)
    from crowdfl_lab.bench import crypto as bench

    settings = bench.CryptoSettings.quick() if quick else bench.CryptoSettings()
    _conclude(bench.bench_crypto(settings, say=progress_to_stderr()), as_json=as_json, check=check, out=out)


@app.command()
def load(
    as_json: _AsJson = False,
    quick: _Quick = False,
    profile: _Profile = "hardened",
    check: _Check = False,
    database: Annotated[str, typer.Option(help="An empty PostgreSQL database here: one SP beside three.")] = "",
    out: _Out = None,
) -> None:
    """A thousand participants' uploads against one SP, beside a route that only writes and fsyncs."""
    _require_judged(quick=quick, check=check)
    from crowdfl_lab.bench import load as bench

    settings = bench.LoadSettings.quick() if quick else bench.LoadSettings()
    settings = replace(settings, profile="shares" if _is_shares(profile) else "hardened", database=database)
    measure = bench.bench_machines if database else bench.bench_load
    _conclude(measure(settings, say=progress_to_stderr()), as_json=as_json, check=check, out=out)


@app.command()
def gpu(
    as_json: _AsJson = False,
    quick: _Quick = False,
    check: _Check = False,
    compute: Annotated[str, typer.Option(help="Where to compute: cuda, or threads to compare.")] = "cuda",
    profile: Annotated[str, typer.Option(help="hardened, or paper: one round as printed, in parts.")] = "hardened",
    state: Annotated[
        Path, typer.Option(help="Of paper: where its parts are kept; 10 GB at full size, with a benchmark's keys.")
    ] = Path("crowdfl-gpu-paper"),
    seconds: Annotated[float, typer.Option(help="Of paper: no part begins that may end later than this.")] = 540.0,
    at_a_time: Annotated[int, typer.Option(min=1, help="Of paper: people's parts at a time, each a process.")] = 1,
    out: _Out = None,
) -> None:
    """Partial decryptions a second and whole rounds of `hardened` on one GPU; or one round of `paper`, in calls that go on
    where the last one stopped, until the exit code is no longer 75."""
    _require_judged(quick=quick, check=check)
    if profile == "paper":
        _paper_round(state, compute, (seconds, at_a_time), (as_json, quick, check, out))
        return
    if profile != "hardened":
        raise typer.BadParameter(f"'{profile}' is not measured here: hardened or paper", param_hint="--profile")
    from crowdfl_lab.bench import gpu as bench

    settings = bench.GpuSettings.quick() if quick else bench.GpuSettings()
    result = bench.bench_gpu(settings, backend_named(compute), say=progress_to_stderr())
    _conclude(result, as_json=as_json, check=check, out=out)


def _paper_round(state: Path, compute: str, pace: tuple[float, int], how: tuple[bool, bool, bool, Path | None]) -> None:
    from crowdfl_lab.bench import paper_round as bench

    as_json, quick, check, out = how
    settings = bench.PaperRoundSettings.quick() if quick else bench.PaperRoundSettings()
    try:
        found = bench.bench_paper_round(
            settings, backend_named(compute), state, seconds=pace[0], at_a_time=pace[1], say=progress_to_stderr()
        )
    except SettingsError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--state") from None
    if isinstance(found, int):
        typer.echo(f"{found} parts are missing: run the same command again", err=True)
        raise typer.Exit(_AGAIN)
    _conclude(found, as_json=as_json, check=check, out=out)


@app.command()
def compare(
    as_json: _AsJson = False,
    quick: _Quick = False,
    peers: _Peers = _DEFAULT_PEERS,
    pfl: Annotated[
        Path, typer.Option(envvar="CROWDFL_PFL", help="The Python that has pfl (`make pfl`).")
    ] = _DEFAULT_PFL,
    compute: Annotated[str, typer.Option(help="cuda: measure the servers there too, whole.")] = "threads",
    paper_round: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="The JSON of `bench gpu --profile paper`: its times, in place of extrapolated ones.",
        ),
    ] = None,
    out: _Out = None,
) -> None:
    """One round of CrowdFL beside what one would pick instead: time, bytes, drop-outs, who reads what."""
    from crowdfl_lab.bench.compare import run, systems

    fast = None if compute == "threads" else backend_named(compute)
    settings = systems.CompareSettings.quick() if quick else systems.CompareSettings()
    try:
        result = run.bench_compare(
            settings, python=peers, pfl=pfl, fast=fast, paper=paper_round, say=progress_to_stderr()
        )
    except SettingsError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--paper-round") from None
    deliver(result, as_json=as_json, out=out)


@app.command()
def scale(as_json: _AsJson = False, quick: _Quick = False, profile: _Profile = "hardened", out: _Out = None) -> None:
    """Time and memory of each role against parameters, participants and, of `hardened`, key size."""
    from crowdfl_lab.bench.scale import run

    made = run.SharesScaleSettings if _is_shares(profile) else run.ScaleSettings
    result = run.bench_scale(made.quick() if quick else made(), say=progress_to_stderr())
    deliver(result, as_json=as_json, out=out)


def _is_shares(profile: str) -> bool:
    if profile not in ("hardened", "shares"):
        raise typer.BadParameter(f"'{profile}' is not measured here: hardened or shares", param_hint="--profile")
    return profile == "shares"


def _require_judged(*, quick: bool, check: bool) -> None:
    if check and quick:
        raise typer.BadParameter("a smoke run judges no target: drop --quick or --check")


def _conclude(result: Result, *, as_json: bool, check: bool, out: Path | None) -> None:
    deliver(result, as_json=as_json, out=out)
    if check and (result.missed or result.unjudged):
        raise typer.Exit(1)
