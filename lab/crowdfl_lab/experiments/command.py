"""`crowdfl reproduce`: parses options and shows progress; the experiments are in `crowdfl_lab.experiments`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crowdfl.crypto.backends import BACKENDS, backend_named
from crowdfl.errors import SettingsError
from crowdfl_lab.experiments.accuracy import FIG_3, TABLE_3
from crowdfl_lab.experiments.counted import TABLE_4, TABLE_5, TABLE_6
from crowdfl_lab.experiments.experiment import Bench, Experiment, Size
from crowdfl_lab.experiments.experiment import reproduce as run_experiments
from crowdfl_lab.experiments.federated import PROFILES, named_data
from crowdfl_lab.experiments.figure7 import FIG_7
from crowdfl_lab.experiments.private import MEMBERSHIP, PRIVACY
from crowdfl_lab.experiments.rewards import FIG_4
from crowdfl_lab.experiments.times import FIG_5, FIG_6
from crowdfl_lab.report.output import print_result
from crowdfl_lab.report.results import Result

CATALOG: dict[str, Experiment[Any]] = {
    each.name: each
    for each in (TABLE_3, TABLE_4, TABLE_5, TABLE_6, FIG_3, FIG_4, FIG_5, FIG_6, FIG_7, PRIVACY, MEMBERSHIP)
}
_NAMES = ", ".join([*CATALOG, "all"])


def _users(option: str) -> str:
    return ", ".join(name for name, each in CATALOG.items() if option in each.options)


def reproduce(  # noqa: PLR0913, PLR0917 -- one for each option
    names: Annotated[list[str], typer.Argument(help=f"What to make again: {_NAMES}.", metavar="NAME...")],
    quick: Annotated[bool, typer.Option("--quick", help="The quick size everywhere.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The full size everywhere, however long it takes.")] = False,
    out: Annotated[
        Path, typer.Option(help="Where results go; a second run there resumes where the first stopped.")
    ] = Path("crowdfl-experiments"),
    data: Annotated[
        str,
        typer.Option(
            envvar="CROWDFL_DATA",
            help="The folder of the set that `crowdfl wisdm build` makes, an .npz file, or data of several people: "
            f"watch:, synthetic:, npz:FILE, motionsense:FILE. For {_users('data')}.",
        ),
    ] = "data",
    rounds: Annotated[int | None, typer.Option(min=1, help=f"Rounds of training. For {_users('rounds')}.")] = None,
    hidden: Annotated[
        int | None, typer.Option(min=1, help=f"Hidden units, of encrypted runs too. For {_users('hidden')}.")
    ] = None,
    dropout: Annotated[
        list[float] | None,
        typer.Option(help=f"A dropout rate; repeatable, the first also encrypted. For {_users('dropout')}."),
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(min=1, help=f"Lanes of the sketch behind rewards. For {_users('lanes')}.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help=f"Of encrypted runs: {', '.join(PROFILES)}, all; repeatable. For {_users('profile')}."),
    ] = None,
    compute: Annotated[str, typer.Option(help=f"Where encrypted batches run: {', '.join(BACKENDS)}.")] = "threads",
) -> None:
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other")
    _require_known(names, [*CATALOG, "all"], "an experiment")
    _require_known([compute], BACKENDS, "a backend")
    _require_known(profile or (), [*PROFILES, "all"], "a profile")
    size: Size | None = "quick" if quick else "full" if full else None
    given = {"rounds": rounds, "hidden": hidden, "dropout": dropout, "lanes": lanes}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value}
    if profile:
        chosen["profile"] = tuple(name for name in PROFILES if name in profile or "all" in profile)
    try:
        experiments = changed(names, chosen)
    except SettingsError as wrong:
        raise typer.BadParameter(str(wrong)) from None
    found = named_data(data) if any("data" in each.options for each in experiments) else None
    experiments = [each.changed({"data": found}) if "data" in each.options else each for each in experiments]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    results: list[Result] = []
    watched = Console(stderr=True)  # elsewhere a line for each step is written, and no bar
    with Progress(*columns, console=watched, disable=not watched.is_terminal) as progress:
        page = run_experiments(
            experiments,
            out,
            Bench(backend_named(compute), None if found is None else found.source),
            progress,
            size=size,
            catalog=list(CATALOG.values()),
            command=f"crowdfl reproduce {{name}}{_written(size, chosen, compute)}",
            on_result=results.append,
        )
    console = Console(highlight=False)
    for result in results:
        print_result(result, console)
    console.print(f"tables, pictures and how they were made: {page}", markup=False, soft_wrap=True)


def _require_known(names: Sequence[str], known: Sequence[str], what: str) -> None:
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"{', '.join(unknown)}: not {what}; choose from {', '.join(known)}")


def changed(names: Sequence[str], given: Mapping[str, Any]) -> list[Experiment[Any]]:
    """Those named, with the options; of `all`, each takes what it uses."""
    if "all" not in names:
        return [CATALOG[name].changed(given) for name in dict.fromkeys(names)]
    return [
        each.changed({name: value for name, value in given.items() if name in each.options})
        for each in CATALOG.values()
    ]


def _written(size: Size | None, given: Mapping[str, Any], compute: str) -> str:
    """The options as they were typed, but for paths, which are this machine's."""
    words = [] if size is None else [f"--{size}"]
    for name, value in given.items():
        words += [f"--{name} {each}" for each in (value if isinstance(value, list | tuple) else [value])]
    words += [] if compute == "threads" else [f"--compute {compute}"]
    return "".join(f" {word}" for word in words)
