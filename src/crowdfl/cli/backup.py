"""`crowdfl backup | restore | drill`: a role's whole state in one file, taken while the role runs, put back, and tried."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from crowdfl.cli.output import Json, SettingsPath, marked, show
from crowdfl.errors import SettingsError
from crowdfl.settings import PeerSettings

_SHOWN_FROM = 10_000_000  # bytes: less is done before a bar is read
_AFTER = {
    "kgc": (
        "invitations used since the backup can be used once more, and enrolments closed since are open: close them again",
        "a task whose keys were not handed over when the backup was made must be created again",
    ),
    "sp": (
        "tasks that pay stand still: compare `crowdfl sp payouts` with your bank, resolve each, then `crowdfl sp reconcile`, "
        "with `--returned AMOUNT` for what went back to the requester, and `--paid KEY=AMOUNT` for each payment that it lacks",
        "deposits confirmed since the backup must be confirmed again; phones send again what the platform has lost",
        "tasks of the profile `shares` are cancelled, unless `guard` names another disk, whose notes say what was sent since; "
        "what was earned stays claimable",
    ),
    "csp": (
        "no step of any task in the backup is answered any more, unless `guard` names another disk, whose notes say what was "
        "answered since; rewards stay claimable",
    ),
}
_ALWAYS = "tokens revoked since the backup are valid again: `token list`, and revoke them"


def backup(
    settings: SettingsPath,
    target: Annotated[Path, typer.Argument(help="The archive to write; it must not exist.")],
    as_json: Json = False,
) -> None:
    from crowdfl.services.folders.backups import source_of
    from crowdfl.storage.backup import write_backup

    source, elsewhere = source_of(settings)
    with _progress(source.size(), "backing up", quiet=as_json) as on_bytes:
        manifest = write_backup(source, target.absolute(), on_bytes)
    size = target.stat().st_size
    files = len(manifest.files)
    out = [f"not in the archive, keep it elsewhere: {path}" for path in elsewhere]
    text = f"{target}: {source.role}, {files} files, {size:,} bytes. Keep it as secret as the role's folder."
    value = {"archive": str(target), "role": source.role, "files": files, "bytes": size, "notes": out}
    show(value, text, *marked(out), as_json=as_json)


def restore(
    archive: Annotated[Path, typer.Argument(help="What `crowdfl backup` wrote.")],
    folder: Annotated[Path, typer.Argument(help="The role's folder; it must be empty, or not exist.")],
    unchanged: Annotated[
        bool,
        typer.Option(
            "--unchanged", help="The role has not run since the backup was made, as when it moves: nothing is in doubt."
        ),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(
            help="The settings to run with here, in place of the archive's: another database, bucket, guard or address. "
            "Paths in it count from the role's folder."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            help="The database that is written, where the archive's settings name another than SQLite in the folder. "
            "Without its password."
        ),
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(help="The bucket that is written, where the archive's settings name one: s3://NAME/PREFIX."),
    ] = None,
    as_json: Json = False,
) -> None:
    from crowdfl.services.folders.backups import bucket_words, place_of, put_back, require_named, restoring_role
    from crowdfl.services.http.auth import Tokens

    if not archive.is_file():
        raise SettingsError(f"there is no archive at {archive}")
    target = folder.absolute()
    with (
        _progress(archive.stat().st_size, "restoring", quiet=as_json) as on_bytes,
        restoring_role(archive, target, settings, on_bytes) as (manifest, found, put),
    ):
        if settings is None:
            named = place_of(found) if database == found.database_url else database
            require_named("database", None if found.database is None else place_of(found), named)
            require_named("bucket", bucket_words(found), bucket)
        put_back(found, put, unchanged=unchanged)
    taken = datetime.fromtimestamp(manifest.taken_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    start = f"crowdfl {manifest.role} serve {folder / manifest.settings}"
    written = place_of(found) if found.database else str(folder / "state.db")
    into = ", the objects in ".join(filter(None, (written, bucket_words(found))))
    peers = {name: peer.url for name, peer in found if isinstance(peer, PeerSettings)}
    holders = [f"{entry.name} ({entry.role})" for entry in Tokens(target / "tokens.json").entries()]
    text = (
        f"{folder}: {manifest.role} as of {taken}, the database at {into}.\n"
        f"Peers: {', '.join(f'{name} at {url_}' for name, url_ in peers.items()) or 'none'}. "
        f"Tokens are valid of: {', '.join(holders) or 'nobody'}.\n"
        f"If that is as it should be, start it with `{start}`"
    )
    notes = [] if unchanged else [*_AFTER[manifest.role], _ALWAYS]
    value = {"folder": str(folder), "role": manifest.role, "taken_at": manifest.taken_at, "notes": notes}
    value |= {"database": written, "bucket": bucket_words(found), "files": sorted(manifest.files)}
    show(value | {"peers": peers, "tokens": holders}, text, *marked(notes), as_json=as_json)


def drill(
    settings: SettingsPath,
    backups: Annotated[Path, typer.Argument(help="The folder with the role's backups, whose newest is tried, or one.")],
    hours: Annotated[float, typer.Option(min=0.0, help="How old the newest backup may be.")] = 26.0,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Where the copy is made, which holds keys and is deleted; the system's place for such files."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    from crowdfl.cli.waiting import waiting
    from crowdfl.services.drill import drill as tried

    with waiting("restoring in a scratch place", quiet=as_json), _ended_by_signals():
        found = tried(settings, backups, hours * 3600, scratch)
    wrong = [Text.assemble(("Wrong:", "red"), f" {one}") for one in found.wrong]
    show(found.shown(), "\n".join(found.words()), *wrong, as_json=as_json)
    if found.wrong:
        raise typer.Exit(1)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """What a supervisor stops cleans up as well."""

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(total: int, what: str, *, quiet: bool) -> Iterator[Callable[[int], object]]:
    """A bar on stderr for what takes a while; nothing in a pipe, a log, or beside JSON."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = Console(stderr=True)
    if quiet or total < _SHOWN_FROM or not console.is_terminal:
        yield lambda _bytes: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda size: progress.advance(bar, size)
