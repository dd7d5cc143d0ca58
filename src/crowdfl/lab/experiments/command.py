"""`crowdfl reproduce`: parses options and shows progress; the experiments are in `crowdfl.lab.experiments`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crowdfl.crypto.backends import BACKENDS, backend_named
from crowdfl.lab.experiments.accuracy import FIG_3, TABLE_3
from crowdfl.lab.experiments.counted import TABLE_4, TABLE_5
from crowdfl.lab.experiments.experiment import Bench, Experiment, Size
from crowdfl.lab.experiments.experiment import reproduce as run_experiments
from crowdfl.lab.experiments.rewards import FIG_4
from crowdfl.lab.experiments.table6 import TABLE_6
from crowdfl.lab.experiments.times import FIG_5, FIG_6, FIG_7
from crowdfl.lab.report.output import print_result
from crowdfl.lab.report.results import Result

CATALOG: dict[str, Experiment[Any]] = {
    each.name: each for each in (TABLE_3, TABLE_4, TABLE_5, TABLE_6, FIG_3, FIG_4, FIG_5, FIG_6, FIG_7)
}
_NAMES = ", ".join([*CATALOG, "all"])
_DATA = Path("../shared/data")


def reproduce(
    names: Annotated[list[str], typer.Argument(help=f"What to make again: {_NAMES}.", metavar="NAME...")],
    quick: Annotated[bool, typer.Option("--quick", help="The quick size everywhere.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The full size everywhere, however long it takes.")] = False,
    out: Annotated[
        Path, typer.Option(help="Where results go; a second run there resumes where the first stopped.")
    ] = Path("crowdfl-experiments"),
    data: Annotated[Path, typer.Option(envvar="CROWDFL_DATA", help="The folder of the WISDM NumPy sets.")] = _DATA,
    compute: Annotated[str, typer.Option(help=f"Where encrypted batches run: {', '.join(BACKENDS)}.")] = "threads",
) -> None:
    """Make tables and figures of the paper's section 8 again, with the paper's numbers beside ours."""
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other")
    unknown = [name for name in names if name not in CATALOG and name != "all"]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not an experiment; choose from {_NAMES}")
    if compute not in BACKENDS:
        raise typer.BadParameter(f"{compute!r} is not a backend; choose from {', '.join(BACKENDS)}")
    chosen = list(CATALOG) if "all" in names else list(dict.fromkeys(names))
    size: Size | None = "quick" if quick else "full" if full else None
    options = ("" if size is None else f" --{size}") + ("" if compute == "threads" else f" --compute {compute}")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    found: list[Result] = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        page = run_experiments(
            [CATALOG[name] for name in chosen],
            out,
            Bench(backend_named(compute), data),
            progress,
            size=size,
            catalog=list(CATALOG.values()),
            command=f"crowdfl reproduce {{name}}{options}",
            on_result=found.append,
        )
    _show(found, page)


def _show(found: Sequence[Result], page: Path) -> None:
    """The tables, what must be said with them, and where all of it is, pictures too."""
    console = Console(highlight=False)
    for result in found:
        print_result(result, console)
    console.print(f"tables, pictures and how they were made: {page}", markup=False, soft_wrap=True)
