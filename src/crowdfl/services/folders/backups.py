"""A role's backup made and put back: what belongs to it follows from its settings, and so does where it goes."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from crowdfl.errors import BackupRefused, GuardMissing, SettingsError
from crowdfl.roles.restored import mark_restored_sp
from crowdfl.services.run import give_guard_up, open_guard
from crowdfl.settings import ComputingSettings, PeerSettings, ServiceSettings, SpSettings
from crowdfl.storage import migrations
from crowdfl.storage.archive import Manifest, OnBytes
from crowdfl.storage.atomic import write_private
from crowdfl.storage.backup import KEPT, BackupSource, fill_bucket, restoring
from crowdfl.storage.database_copy import url_words
from crowdfl.storage.s3 import S3Blobs
from crowdfl.storage.settings_file import SERVICES, read_service, read_settings, role_in
from crowdfl.storage.sql import SqlStore


def source_of(path: Path) -> tuple[BackupSource, list[str]]:
    """What is backed up of the role whose settings these are, and what must be kept elsewhere."""
    role, found = read_role(path)
    secret = found.passphrase_file  # wherever it is, by whatever name: no archive has it
    left_out = () if secret is None else (secret.resolve(),)
    source = BackupSource(role, found.data, path.resolve().name, found.database_url, left_out, objects_of(found))
    return source, [*source.left_out(), *_elsewhere(found)]


def read_role(path: Path) -> tuple[str, ServiceSettings]:
    """Of KGC, SP or CSP."""
    found = read_settings(path)
    if "host" not in found:
        raise SettingsError(f"{path} is not the settings of KGC, SP or CSP: copy other folders as they are")
    role = role_in(found)
    if role not in SERVICES:
        raise SettingsError(f"{path} is of the role {role!r}: backups are of {', '.join(SERVICES)}")
    return role, read_service(SERVICES[role], path)


def objects_of(settings: ServiceSettings) -> dict[str, S3Blobs]:
    """What the role keeps in a bucket; nothing, of one that has none."""
    bucket = settings.s3 if isinstance(settings, ComputingSettings) else None
    return {} if bucket is None else {part: S3Blobs(bucket, part) for part in KEPT}


def place_of(settings: ServiceSettings) -> str:
    return url_words(settings.database_url)


def bucket_words(settings: ServiceSettings) -> str | None:
    bucket = settings.s3 if isinstance(settings, ComputingSettings) else None
    return None if bucket is None else f"s3://{bucket.bucket}/{bucket.prefix}"


def require_named(what: str, place: str | None, named: str | None) -> None:
    """Settings in an archive may name any place, so that the operator must: whoever could alter the archive is not asked."""
    if place not in (None, named):
        raise BackupRefused(
            f"the archive's settings name the {what} {place}: if that is the one to write, say so with --{what} {place}; to "
            "write another, name its settings with --settings. Nothing is changed"
        )


@contextmanager
def restoring_role(
    archive: Path, folder: Path, chosen: Path | None = None, on_bytes: OnBytes = lambda _: None
) -> Iterator[tuple[Manifest, ServiceSettings, Callable[[str], None]]]:
    """The manifest, the settings that the role will run with, and what puts its database back. `chosen`: a settings file that
    takes the place of the archive's."""
    with restoring(archive, folder, on_bytes) as (manifest, place, put):
        if manifest.role not in SERVICES:
            raise SettingsError(f"the archive is of {manifest.role!r}, which is not a role of this program")
        migrations.require_known(manifest.revision)
        if chosen is not None:
            if role_in(read_settings(chosen)) != manifest.role:
                raise SettingsError(f"{chosen} is not the settings of {manifest.role}, whose backup this is")
            write_private(place / manifest.settings, chosen.read_bytes(), overwrite=True)
        yield manifest, read_service(SERVICES[manifest.role], place / manifest.settings), put


def put_back(settings: ServiceSettings, put: Callable[[str], None], *, unchanged: bool) -> None:
    """The bucket, then the database; and then whatever may have happened since the backup is in doubt."""
    fill_bucket(objects_of(settings), settings.data)
    put(settings.database_url)
    migrations.upgrade(settings.database_url)
    if isinstance(settings, SpSettings) and not unchanged:
        with closing(SqlStore(settings.database_url)) as store:
            mark_restored_sp(store, time.time())
    if isinstance(settings, ComputingSettings):
        _settle_guard(settings, unchanged=unchanged)


def _settle_guard(settings: ComputingSettings, *, unchanged: bool) -> None:
    """One that lies elsewhere says what has left since. One inside the folder was set back with it, and a place that is new has
    none; a named one that is not there may be mounted yet."""
    archived = is_guard_archived(settings)
    if (archived and not unchanged) or ((archived or settings.guard is None) and _lacks_guard(settings)):
        give_guard_up(settings, unchanged=unchanged)


def is_guard_archived(settings: ComputingSettings) -> bool:
    """Whatever names it, and whichever disk it is on."""
    if settings.guard is None:
        return settings.s3 is None
    return settings.guard.resolve().is_relative_to(settings.data.resolve())


def _lacks_guard(settings: ComputingSettings) -> bool:
    with closing(SqlStore(settings.database_url)) as store:
        try:
            open_guard(store, settings, tell=False).require_own()
        except GuardMissing:
            return True
    return False


def _elsewhere(settings: ServiceSettings) -> list[str]:
    """What the settings name outside of the role's folder, and is in no archive."""
    peers = [peer.token for _, peer in settings if isinstance(peer, PeerSettings)]
    guard, bucket = (settings.guard, settings.s3) if isinstance(settings, ComputingSettings) else (None, None)
    named = [settings.certificate, settings.key, settings.ca, guard, *peers]
    folder = settings.data.resolve()
    outside = [str(path) for path in named if path is not None and not path.resolve().is_relative_to(folder)]
    return outside + ([f"{bucket_words(settings)}/guard"] if bucket is not None and guard is None else [])
