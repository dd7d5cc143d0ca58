"""`crowdfl sp clock`: what the operator of SP says about a clock that is in doubt."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.output import Json, show
from crowdfl.roles.sp.time import confirm_clock
from crowdfl.services.run import open_books
from crowdfl.settings import SpSettings
from crowdfl.storage.settings_file import read_service

clock_app = typer.Typer(help="The machine's clock, when SP does not believe it.", no_args_is_help=True)


@clock_app.command("confirm")
def confirm(
    settings: Annotated[Path, typer.Argument(help="The role's settings.toml.")],
    as_json: Json = False,
) -> None:
    """Say that this machine's clock is right as it is now. Compare it with another clock first."""
    with open_books(read_service(SpSettings, settings)) as books:
        now = confirm_clock(books.store, books.clock)
    said = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds")
    show({"confirmed": said}, f"confirmed: it is {said}", as_json=as_json)
