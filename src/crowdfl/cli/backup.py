"""`crowdfl backup | restore`: a role's whole state in one file, taken while the role runs, and put back."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.output import Json, SettingsPath, marked, show
from crowdfl.errors import BackupRefused, SettingsError
from crowdfl.settings import ComputingSettings, PeerSettings, ServiceSettings, SpSettings

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
    from crowdfl.storage.backup import BackupSource, write_backup

    role, found = _service(settings)
    secret = found.passphrase_file  # wherever it is, by whatever name: no archive has it
    left_out = () if secret is None else (secret.resolve(),)
    source = BackupSource(role, found.data, settings.resolve().name, found.database_url, left_out)
    with _progress(source.size(), "backing up", quiet=as_json) as on_bytes:
        manifest = write_backup(source, target.absolute(), on_bytes)
    size = target.stat().st_size
    files = len(manifest.files)
    out = [f"not in the archive, keep it elsewhere: {path}" for path in (*source.left_out(), *_elsewhere(found))]
    text = f"{target}: {role}, {files} files, {size:,} bytes. Keep it as secret as the role's folder."
    value = {"archive": str(target), "role": role, "files": files, "bytes": size, "notes": out}
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
    database: Annotated[
        str | None,
        typer.Option(
            help="The database that is written, where the archive's settings name another than SQLite in the folder. "
            "Without its password."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    from crowdfl.services.http.auth import Tokens
    from crowdfl.storage import migrations
    from crowdfl.storage.backup import restoring
    from crowdfl.storage.database_copy import url_words
    from crowdfl.storage.settings_file import SERVICES, read_service

    if not archive.is_file():
        raise SettingsError(f"there is no archive at {archive}")
    target = folder.absolute()
    with (
        _progress(archive.stat().st_size, "restoring", quiet=as_json) as on_bytes,
        restoring(archive, target, on_bytes) as (manifest, place, put),
    ):
        if manifest.role not in SERVICES:
            raise SettingsError(f"the archive is of {manifest.role!r}, which is not a role of this program")
        found = read_service(SERVICES[manifest.role], place / manifest.settings)
        url = found.database_url
        _require_database(url, found, database)
        migrations.require_known(manifest.revision)
        put(url)
        migrations.upgrade(url)
        if not unchanged:
            _mark_restored(found)
    taken = datetime.fromtimestamp(manifest.taken_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    start = f"crowdfl {manifest.role} serve {folder / manifest.settings}"
    written = url_words(url) if found.database else str(folder / "state.db")
    peers = {name: peer.url for name, peer in found if isinstance(peer, PeerSettings)}
    holders = [f"{entry.name} ({entry.role})" for entry in Tokens(target / "tokens.json").entries()]
    text = (
        f"{folder}: {manifest.role} as of {taken}, the database at {written}.\n"
        f"Peers: {', '.join(f'{name} at {url_}' for name, url_ in peers.items()) or 'none'}. "
        f"Tokens are valid of: {', '.join(holders) or 'nobody'}.\n"
        f"If that is as it should be, start it with `{start}`"
    )
    notes = [] if unchanged else [*_AFTER[manifest.role], _ALWAYS]
    value = {"folder": str(folder), "role": manifest.role, "taken_at": manifest.taken_at, "notes": notes}
    value |= {"database": written, "files": sorted(manifest.files), "peers": peers, "tokens": holders}
    show(value, text, *marked(notes), as_json=as_json)


def _require_database(url: str, settings: ServiceSettings, named: str | None) -> None:
    """Settings in an archive may name any database, so that the operator must: whoever could alter the archive is not asked."""
    from crowdfl.storage.database_copy import url_words

    if settings.database is None and named is None:
        return
    if named not in (url, url_words(url)):
        raise BackupRefused(
            f"the archive's settings name the database {url_words(url)}: if that is the one to write, say so with "
            f"--database {url_words(url)}. Nothing is changed"
        )


def _service(path: Path) -> tuple[str, ServiceSettings]:
    from crowdfl.storage.settings_file import SERVICES, read_service, read_settings, role_in

    found = read_settings(path)
    if "host" not in found:
        raise SettingsError(f"{path} is not the settings of KGC, SP or CSP: copy other folders as they are")
    role = role_in(found)
    if role not in SERVICES:
        raise SettingsError(f"{path} is of the role {role!r}: backups are of {', '.join(SERVICES)}")
    return role, read_service(SERVICES[role], path)


def _elsewhere(settings: ServiceSettings) -> list[str]:
    """Files that the settings name outside of the role's folder."""
    peers = [peer.token for _, peer in settings if isinstance(peer, PeerSettings)]
    bucket, guard = (settings.s3, settings.guard) if isinstance(settings, ComputingSettings) else (None, None)
    named = [settings.certificate, settings.key, settings.ca, guard, *peers]
    folder = settings.data.resolve()
    outside = [str(path) for path in named if path is not None and not path.resolve().is_relative_to(folder)]
    return outside + ([] if bucket is None else [f"s3://{bucket.bucket}/{bucket.prefix}"])


def _mark_restored(settings: ServiceSettings) -> None:
    """Whatever may have happened since the backup is in doubt; a guard that lies elsewhere says what has."""
    from crowdfl.roles.restored import mark_restored_sp
    from crowdfl.services.run import give_guard_up
    from crowdfl.storage.sql import SqlStore

    if isinstance(settings, SpSettings):
        with closing(SqlStore(settings.database_url)) as store:
            mark_restored_sp(store, time.time())
    if isinstance(settings, ComputingSettings) and _is_guard_archived(settings):
        give_guard_up(settings)


def _is_guard_archived(settings: ComputingSettings) -> bool:
    """A guard inside the role's folder was set back with it, whatever names it and whichever disk it is on."""
    if settings.guard is None:
        return settings.s3 is None
    return settings.guard.resolve().is_relative_to(settings.data.resolve())


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
