"""`crowdfl upgrade`: a role's database comes to this version, after a backup, if this version can read all of it."""

import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.output import Json, SettingsPath, marked, show
from crowdfl.errors import SettingsError


def upgrade(
    settings: SettingsPath,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Read everything and say what would be done. Nothing is changed. Stop the service before."
        ),
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--backup", help="The archive to write first; beside the role's folder if not given.")
    ] = None,
    leave_unread: Annotated[
        bool,
        typer.Option(
            "--leave-unread", help="Go on though a task cannot be read here: it stands still, with its money."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    from crowdfl.cli.backup import backup
    from crowdfl.storage import upgrading
    from crowdfl.storage.settings_file import SERVICES, read_service, read_settings, role_in

    role = role_in(read_settings(settings))
    if role not in SERVICES:
        raise SettingsError(
            f"{settings} is of the role {role!r}: it has no database, and what is in its folder stays as it is"
        )
    found = read_service(SERVICES[role], settings)
    reading = upgrading.look(found.database_url)
    value: dict[str, object] = {
        "role": role,
        "from": reading.revision,
        "to": reading.newest,
        "tasks": reading.tasks,
        "rows": reading.rows,
    }
    value |= {"unreadable": dict(reading.unreadable), "backup": None}
    rows = f"{reading.tasks} tasks and {reading.rows} rows"
    read = f"{role}: the settings, {rows} are read"
    if reading.unreadable:
        read = f"{role}: the settings are read, and of {rows} all but what is named below"
    if check or not reading.is_outdated:
        show(value, f"{read}; {upgrading.plan(reading)}", *marked(reading.lines()), as_json=as_json)
        raise typer.Exit(1 if reading.unreadable else 0)
    if reading.unreadable and not leave_unread:
        upgrading.refuse(reading.unreadable)
    day = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    archive = (to or settings.resolve().parent.parent / f"{role}-before-{reading.newest}-{day}.backup").absolute()
    with redirect_stdout(sys.stderr):
        backup(settings, archive)
    upgrading.upgrade(found.database_url, leave_unread=leave_unread)
    back = (
        f"to go back: stop the service, move its folder away, and with the earlier version `crowdfl restore {archive} "
        f"{settings.resolve().parent}`, with --unchanged if nothing has run since"
    )
    text = f"{read}; the database is at {reading.newest}. Start the service"
    show(value | {"backup": str(archive)}, text, *marked([*reading.lines(), back]), as_json=as_json)
