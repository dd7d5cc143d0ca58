"""Backups: of one moment, while the role writes on; nothing is believed that was altered, and nothing is half restored."""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, Table, make_url, text
from tests.storage.conftest import SERVER, empty_database
from tests.storage.test_migrations import differences

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import BackupDamaged, BackupError, BackupRefused, NotReady, StoreTooNew
from crowdfl.roles.records import PaymentState, Round, StoredPayment, StoredTask, Upload
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.storage import database_copy, migrations
from crowdfl.storage.archive import Manifest
from crowdfl.storage.backup import BackupSource, restoring, write_backup
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.database import open_engine, reading, writing
from crowdfl.storage.database_copy import copy_database, put_database
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.tables import metadata

TASK = "a" * 64


@pytest.fixture
def source(tmp_path: Path, url: str) -> BackupSource:
    """SP's folder with a task, on either database."""
    folder = tmp_path / "sp"
    folder.mkdir(mode=0o700)
    url = f"sqlite:///{folder}/state.db" if url.startswith("sqlite") else url
    migrations.upgrade(url)
    store = SqlStore(url)
    store.add_task(StoredTask(TASK, "definition", "appointment", "running"))
    store.set_round(TASK, None, Round(1, 0.0))
    store.close()
    FileBlobs(folder / "keys").put(f"{TASK}.sp", b"a share")
    (folder / "settings.toml").write_text('host = "127.0.0.1"\n')
    (folder / "signing.key").write_bytes(SigningKey.fresh().private)
    return BackupSource("sp", folder, "settings.toml", url)


def emptied(url: str) -> str:
    """The same database after all was lost."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return url
    engine = open_engine(url)
    with engine.begin() as connection:
        schema = connection.execute(text("SELECT current_schema()")).scalar()
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    engine.dispose()
    return url


def restored(archive: Path, folder: Path, url: Callable[[Path], str]) -> str:
    """Everything, without questions; the URL of the database."""
    with restoring(archive, folder) as (_, place, put):
        put(url(place))
    return url(folder)


def into(source: BackupSource) -> Callable[[Path], str]:
    """Where the database goes: into the folder, or to where it was."""
    if source.database.startswith("sqlite"):
        return lambda folder: f"sqlite:///{folder}/state.db"
    return lambda _folder: source.database


def test_what_is_backed_up_comes_back(source: BackupSource, tmp_path: Path):
    """Rows, files, permissions; and the archive is its owner's alone."""
    archive = tmp_path / "backup.tar"
    write_backup(source, archive)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    emptied(source.database)
    url = restored(archive, tmp_path / "again", into(source))
    store = SqlStore(url)
    assert store.task(TASK).definition == "definition"
    store.close()
    again = tmp_path / "again"
    assert (again / "signing.key").read_bytes() == (source.folder / "signing.key").read_bytes()
    assert FileBlobs(again / "keys").get(f"{TASK}.sp") == b"a share"
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (again, *again.rglob("*"))}
    assert modes == {0o700, 0o600}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


OTHER_KIND = [
    pytest.param("sqlite", "postgresql", marks=pytest.mark.second),
    pytest.param("postgresql", "sqlite", marks=pytest.mark.second),
    pytest.param("postgresql", "postgresql", marks=pytest.mark.second),
]


@pytest.mark.parametrize(("before", "after"), [("sqlite", "sqlite"), *(OTHER_KIND if SERVER else [])])
def test_a_database_comes_back_in_another_place_and_of_another_kind(before: str, after: str, tmp_path: Path):
    """Every table as the program makes it, every value, and rows that come later go on with the numbers."""
    with empty_database(before, tmp_path) as url, empty_database(after, tmp_path / "there") as there:
        (tmp_path / "there").mkdir()
        migrations.upgrade(url)
        with closing(SqlStore(url)) as store:
            fill(store)
            told = everything(store)
        assert len(told) == len(metadata.tables) + 1
        copy_database(url, tmp_path / "copy")
        put_database(there, tmp_path / "copy")
        migrations.check(there)
        assert differences(there, metadata) == []
        with closing(SqlStore(there)) as store:
            assert everything(store) == told
            store.acknowledge(TASK, 1, [Upload("d" * 20, "2" * 64, late=True)])
            assert [upload.who for upload in store.uploads(TASK, 1)] == ["c" * 20, "d" * 20]
        assert not list(tmp_path.glob("copy-*"))
        with pytest.raises(BackupRefused, match="already"):
            put_database(there, tmp_path / "copy")


def fill(store: SqlStore) -> None:
    """Text beyond ASCII, bytes, truth, nothing, and the largest amount."""
    store.add_task(StoredTask(TASK, "definition \u00fc\u4f60 '\\\n", "appointment", "running", unreconciled=True))
    store.set_round(TASK, None, Round(1, 1e9 / 3))
    store.acknowledge(TASK, 1, [Upload("c" * 20, "1" * 64, late=False)])
    store.add_payment(StoredPayment(TASK, "c" * 20, 1, 2**63 - 1, 0, PaymentState.PENDING, 0.1))
    with writing(store.engine) as connection:
        row = {"task": TASK, "number": 0, "record": bytes(range(256))}
        connection.execute(metadata.tables["sp_records"].insert(), row)


def everything(store: SqlStore) -> dict[str, list[object]]:
    with reading(store.engine) as connection:
        found = {name: list(connection.execute(table.select()).all()) for name, table in metadata.tables.items()}
        return {**found, "alembic_version": list(connection.execute(text("SELECT * FROM alembic_version")).all())}


@pytest.mark.second
@pytest.mark.skipif(SERVER is None, reason="no PostgreSQL server: CROWDFL_TEST_POSTGRES")
def test_what_is_committed_while_postgresql_is_copied_is_not_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One moment for all tables: an upload's row that comes between two of them is in none."""
    with empty_database("postgresql", tmp_path) as url:
        migrations.upgrade(url)
        with closing(SqlStore(url)) as store:
            fill(store)
            later, real = [Upload("d" * 20, "2" * 64, late=True)], database_copy._count_on

            def commit(table: Table, connection: Connection) -> None:
                if later:
                    store.acknowledge(TASK, 1, [later.pop()])
                real(table, connection)

            monkeypatch.setattr(database_copy, "_count_on", commit)
            copy_database(url, tmp_path / "copy")
            assert (len(store.uploads(TASK, 1)), later) == (2, [])
        with closing(SqlStore(f"sqlite:///{tmp_path}/copy")) as copy:
            assert [upload.who for upload in copy.uploads(TASK, 1)] == ["c" * 20]


def test_uploads_that_come_at_every_moment_of_a_backup_are_in_it_whole_or_not_at_all(
    source: BackupSource, tmp_path: Path
):
    """One between any two pieces that are read: a row without its file would stop the round."""
    blobs, store, count = FileBlobs(source.folder / "blobs"), SqlStore(source.database), iter(range(1000))

    def receive(_size: int = 0) -> None:
        number = next(count)
        data = b"upload %d" % number
        digest = hashlib.sha256(data).hexdigest()
        blobs.put(upload_name(TASK, 1, digest), data)
        store.acknowledge(TASK, 1, [Upload(f"{number:020x}", digest, late=False)])

    for _ in range(3):
        receive()
    write_backup(source, tmp_path / "backup.tar", receive)
    assert len(store.uploads(TASK, 1)) > 6
    store.close()
    emptied(source.database)
    url = restored(tmp_path / "backup.tar", tmp_path / "again", into(source))
    again, found = SqlStore(url), FileBlobs(tmp_path / "again/blobs")
    rows = again.uploads(TASK, 1)
    again.close()
    assert len(rows) >= 3
    assert all(found.has(upload_name(TASK, 1, upload.digest)) for upload in rows)


def test_what_must_not_come_back_stays_out(source: BackupSource, tmp_path: Path):
    """Pools of randomizers whatever their name, unfinished uploads, the passphrase, and the live database's own files."""
    (source.folder / "randomizers.pool").write_bytes(b"CFLP\x01 and randomizers")
    (source.folder / "renamed").write_bytes(b"CFLP\x01 and randomizers")
    (source.folder / "incoming").mkdir()
    (source.folder / "incoming/x.1.part").write_bytes(b"half")
    (source.folder / ".tokens.json.lock").touch()
    (source.folder / "passphrase").write_text("a secret")
    (source.folder / "link").symlink_to("/etc/hostname")
    chosen = replace(source, without=(source.folder / "passphrase",))
    manifest = write_backup(chosen, tmp_path / "backup.tar")
    assert set(manifest.files) == {
        "database",
        f"files/keys/{TASK}.sp",
        "files/settings.toml",
        "files/signing.key",
    }
    assert chosen.left_out() == [str(source.folder / "link"), str(source.folder / "passphrase")]


def test_shares_that_kgc_has_not_handed_over_stay_out(source: BackupSource, tmp_path: Path):
    """Both in one archive would be the key. What participants are dealt, and the mark that keys were made, are kept."""
    keys = FileBlobs(source.folder / "keys")
    for name in ("csp", "requester", "participant", "dealt", "appointment"):
        keys.put(f"{TASK}.{name}", name.encode())
    manifest = write_backup(replace(source, role="kgc"), tmp_path / "backup.tar")
    kept = {name.rpartition(".")[2] for name in manifest.files if "/keys/" in name}
    assert kept == {"participant", "dealt", "appointment"}


def test_a_taken_name_is_refused_and_stays_as_it_is(source: BackupSource, tmp_path: Path):
    archive = tmp_path / "backup.tar"
    archive.write_bytes(b"precious")
    with pytest.raises(BackupRefused, match="exists already"):
        write_backup(source, archive)
    assert archive.read_bytes() == b"precious"
    archive.unlink()
    write_backup(source, archive)
    with pytest.raises(BackupRefused, match="not an empty folder"):
        restored(archive, source.folder, into(source))
    assert (source.folder / "settings.toml").exists()


def test_a_database_that_is_in_use_is_refused(source: BackupSource, tmp_path: Path):
    """Nothing of it is changed, and no folder is made."""
    archive = tmp_path / "backup.tar"
    write_backup(source, archive)
    with pytest.raises(BackupRefused, match="already"):
        restored(archive, tmp_path / "again", lambda _folder: source.database)
    assert not (tmp_path / "again").exists()
    store = SqlStore(source.database)
    assert store.task(TASK).state == "running"
    store.close()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "sp"
    folder.mkdir(mode=0o700)
    url = f"sqlite:///{folder}/state.db"
    migrations.upgrade(url)
    (folder / "settings.toml").write_text('host = "127.0.0.1"\n')
    write_backup(BackupSource("sp", folder, "settings.toml", url), tmp_path / "backup.tar")
    return tmp_path / "backup.tar"


def refuse(archive: Path, folder: Path) -> None:
    """Nothing is left of a refused archive."""
    before = sorted(path.name for path in folder.parent.iterdir())
    with pytest.raises(BackupDamaged):
        restored(archive, folder, lambda place: f"sqlite:///{place}/state.db")
    assert sorted(path.name for path in folder.parent.iterdir()) == before


def test_an_archive_that_was_cut_off_is_refused_wherever(archive: Path, tmp_path: Path):
    """At the borders of its blocks, amid them, and in its last bytes of data."""
    whole = archive.read_bytes()
    manifest_at = whole.rindex(b'"form"')
    for length in (0, 100, 512, 1024, 5000, len(whole) // 2, manifest_at - 600, manifest_at):
        archive.write_bytes(whole[:length])
        refuse(archive, tmp_path / "again")


def test_an_archive_in_which_any_byte_of_a_file_was_altered_is_refused(archive: Path, tmp_path: Path):
    whole = archive.read_bytes()
    for place in (whole.index(b"127.0.0.1"), whole.index(b"SQLite format 3") + 5000, whole.rindex(b'"role"') + 10):
        changed = bytearray(whole)
        changed[place] ^= 1
        archive.write_bytes(bytes(changed))
        refuse(archive, tmp_path / "again")


@pytest.mark.parametrize("name", ["../outside", "files/../../outside", "/crowdfl-outside", "files/.."])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_an_archive_made_by_somebody_else_writes_nothing_outside(name: str, kind: bytes, tmp_path: Path):
    archive = tmp_path / "evil.tar"
    files = {name: hashlib.sha256(b"evil").hexdigest()}
    data = Manifest("sp", "1", 0.0, "settings.toml", None, files).to_bytes()
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        member.size = 4 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"evil"))
        last = tarfile.TarInfo("manifest")
        last.size = len(data)
        tar.addfile(last, io.BytesIO(data))
    refuse(archive, tmp_path / "again")
    assert not Path("/crowdfl-outside").exists()
    assert not (tmp_path / "outside").exists()


def test_a_file_behind_a_link_of_the_archive_is_not_written(tmp_path: Path):
    """A link first, then a file through it."""
    archive, outside = tmp_path / "evil.tar", tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("files")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(link)
        member = tarfile.TarInfo("files/settings.toml")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    refuse(archive, tmp_path / "again")
    assert list(outside.iterdir()) == []


def test_a_backup_of_a_newer_program_is_refused_by_name():
    with pytest.raises(StoreTooNew):
        migrations.require_known("9999")


def test_a_damaged_database_is_not_backed_up(archive: Path, tmp_path: Path):
    """Its operator learns of it now, not at the restore."""
    archive.unlink()
    with open(tmp_path / "sp/state.db", "r+b") as database:
        database.seek(4096)
        database.write(os.urandom(3 * 4096))
    source = BackupSource("sp", tmp_path / "sp", "settings.toml", f"sqlite:///{tmp_path}/sp/state.db")
    with pytest.raises(BackupError, match=r"state\.db"):
        write_backup(source, archive)
    assert [path.name for path in tmp_path.iterdir()] == ["sp"]


def test_a_folder_without_a_database_is_named(tmp_path: Path):
    (tmp_path / "sp").mkdir()
    source = BackupSource("sp", tmp_path / "sp", "settings.toml", f"sqlite:///{tmp_path}/sp/state.db")
    with pytest.raises(BackupError, match="there is no database"):
        write_backup(source, tmp_path / "backup.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["sp"]


def test_what_was_never_backed_up_is_not_ready(source: BackupSource, tmp_path: Path):
    """A file that the role deletes while the archive is written is left out; the others are there, and the database is of a
    moment at which it was gone."""
    blobs, store = FileBlobs(source.folder / "blobs"), SqlStore(source.database)
    blobs.put("one", b"1")
    blobs.put("two", b"2")

    def vanish(_size: int) -> None:
        if blobs.has("two"):
            store.change_task(TASK, unreconciled=True)
            blobs.delete("two")

    write_backup(source, tmp_path / "backup.tar", vanish)
    store.close()
    emptied(source.database)
    url = restored(tmp_path / "backup.tar", tmp_path / "again", into(source))
    again = FileBlobs(tmp_path / "again/blobs")
    assert again.get("one") == b"1"
    with pytest.raises(NotReady):
        again.get("two")
    with closing(SqlStore(url)) as found:
        assert found.task(TASK).unreconciled


def test_a_role_that_goes_on_deleting_is_backed_up_all_the_same(source: BackupSource, tmp_path: Path):
    blobs, count = FileBlobs(source.folder / "blobs"), iter(range(1000))
    blobs.put("0", b"")

    def move_on(_size: int) -> None:
        number = next(count)
        blobs.put(f"{number + 1}", b"")
        blobs.delete(f"{number}")

    manifest = write_backup(source, tmp_path / "backup.tar", move_on)
    assert "files/settings.toml" in manifest.files
