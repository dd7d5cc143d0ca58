"""A role restored elsewhere: into another database, out of a bucket, into one, and into another one."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crowdfl.roles.guard import Guard
from crowdfl.services.folders.backups import objects_of, source_of
from crowdfl.services.run import open_guard
from crowdfl.settings import ComputingSettings, CspSettings, S3Settings
from crowdfl.storage import migrations
from crowdfl.storage.backup import write_backup
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.database_copy import url_words
from crowdfl.storage.s3 import S3Blobs, kept, open_keys
from crowdfl.storage.settings_file import read_service
from crowdfl.storage.sql import SqlStore
from tests.cli.conftest import TASK
from tests.cli.program import call
from tests.storage.conftest import SERVER, empty_database
from tests.storage.swift import CREDENTIALS, require_swift, serving_s3

pytestmark = pytest.mark.second
ANSWER = b"answer" * 400_000  # longer than what is kept in memory
NAME = f"{TASK}/answers/1/{hashlib.sha256(ANSWER).hexdigest()}"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Settings]:
    require_swift()
    with pytest.MonkeyPatch.context() as patch, serving_s3(tmp_path_factory.mktemp("swift")) as found:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield found


def in_bucket(folder: Path, bucket: S3Settings, prefix: str, database: str | None = None) -> Path:
    """CSP's settings with a bucket, and another database."""
    settings = folder / "settings.toml"
    lines = settings.read_text().splitlines()
    lines = [f'database = "{database}"' if database and "database =" in line else line for line in lines]
    lines = ['passphrase_file = "passphrase"' if "# passphrase_file =" in line else line for line in lines]
    table = f'\n[s3]\nbucket = "{bucket.bucket}"\nprefix = "{prefix}"\nendpoint = "{bucket.endpoint}"\n'
    settings.write_text("\n".join(lines) + table)
    (folder / "passphrase").write_text("a passphrase of csp")
    (folder / "passphrase").chmod(0o600)
    return settings


@pytest.fixture
def live(busy: Path, bucket: S3Settings, tmp_path: Path) -> Path:
    """CSP's folder with a task; an answer, a sealed share and the guard are in the bucket."""
    folder = tmp_path / "live"
    shutil.copytree(busy / "csp", folder)
    settings = read_service(CspSettings, in_bucket(folder, bucket, tmp_path.name))
    with closing(SqlStore(settings.database_url)) as store:
        blobs = kept(settings, "blobs")
        blobs.bind(store.identity(blobs.name))
        blobs.put_file(NAME, write(tmp_path / "answer", ANSWER))
        open_keys(settings).put(f"{TASK}.csp", b"a share")
        noting(settings, store).note(TASK, 1, "0" * 64)
    return folder


def noting(settings: ComputingSettings, store: SqlStore) -> Guard:
    return open_guard(store, settings, tell=False)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def require_whole(settings: CspSettings, *, rolled_back: bool) -> None:
    """Everything is where the settings say, and of its own database."""
    with closing(SqlStore(settings.database_url)) as store:
        assert store.task(TASK).rolled_back is rolled_back
        blobs = kept(settings, "blobs")
        blobs.bind(store.identity(blobs.name))
        with blobs.open(NAME) as found:
            assert found.read() == ANSWER
        assert open_keys(settings).get(f"{TASK}.csp") == b"a share"
        noting(settings, store).require_own()


def restored(archive: Path, folder: Path, *options: object) -> CspSettings:
    """With the passphrase, which no archive has."""
    result = call("restore", archive, folder, *options)
    assert result.code == 0, result
    write(folder / "passphrase", b"a passphrase of csp").chmod(0o600)
    return read_service(CspSettings, folder / "settings.toml")


def test_a_role_with_a_bucket_comes_back_in_its_bucket_in_another_and_in_a_folder(
    live: Path, bucket: S3Settings, tmp_path: Path
):
    """Whole each time. In its own bucket the guard says what has left; elsewhere there is none, and the task ends."""
    archive = tmp_path / "csp.backup"
    told = json.loads(call("backup", live / "settings.toml", archive, "--json").out)
    place = f"s3://crowd/{tmp_path.name}"
    assert f"not in the archive, keep it elsewhere: {place}/guard" in told["notes"]
    refused = call("restore", archive, tmp_path / "again")
    assert (refused.code, f"--bucket {place}" in refused.err.replace("\n", " ")) == (3, True)
    before = objects(read_service(CspSettings, live / "settings.toml"))
    assert len(before) == 4  # the store's name, the answer, the share, how shares are sealed
    same = restored(archive, tmp_path / "again", "--bucket", place)
    assert objects(same) == before
    require_whole(same, rolled_back=False)
    assert not (tmp_path / "again/blobs").exists()

    new = tmp_path / "new"
    shutil.copytree(live, new)
    text = (live / "settings.toml").read_text()
    write(new / "settings.toml", text.replace(f'prefix = "{tmp_path.name}"', f'prefix = "new{tmp_path.name}"').encode())
    other = restored(archive, tmp_path / "other", "--settings", new / "settings.toml")
    require_whole(other, rolled_back=True)
    assert objects(other) == before
    moved = write(tmp_path / "moved.toml", text.partition("[s3]")[0].encode())
    require_whole(restored(archive, tmp_path / "folder", "--settings", moved), rolled_back=True)
    require_whole(restored(archive, tmp_path / "kept", "--settings", moved, "--unchanged"), rolled_back=False)


def objects(settings: CspSettings) -> dict[tuple[str, str], bytes]:
    found = objects_of(settings)
    names = [(part, name) for part, blobs in found.items() for name in (*blobs.listing(), "store-id")]
    return {(part, name): found[part].get(name) for part, name in names if found[part].has(name)}


def test_a_bucket_of_another_role_and_keys_that_are_not_sealed_are_refused(
    live: Path,
    busy: Path,
    bucket: S3Settings,
    tmp_path: Path,
):
    """And nothing is changed: no database, no folder, no object."""
    archive, plain = tmp_path / "csp.backup", tmp_path / "plain.backup"
    call("backup", live / "settings.toml", archive)
    taken = S3Blobs(bucket.changed(prefix=f"taken{tmp_path.name}"), "blobs")
    taken.put("a", b"another's")
    text = (live / "settings.toml").read_text()
    elsewhere = text.replace(f'prefix = "{tmp_path.name}"', f'prefix = "taken{tmp_path.name}"')
    chosen = write(tmp_path / "taken.toml", elsewhere.encode())
    refused = call("restore", archive, tmp_path / "again", "--settings", chosen)
    assert (refused.code, "another role's" in refused.err) == (3, True)

    unsealed = tmp_path / "unsealed"
    shutil.copytree(busy / "csp", unsealed)
    FileBlobs(unsealed / "keys").put(f"{TASK}.csp", b"a share")
    call("backup", unsealed / "settings.toml", plain)
    chosen = write(tmp_path / "new.toml", text.replace(f'prefix = "{tmp_path.name}"', 'prefix = "nobody"').encode())
    refused = call("restore", plain, tmp_path / "again", "--settings", chosen)
    assert (refused.code, "not sealed" in refused.err) == (3, True)
    assert not (tmp_path / "again").exists()
    assert (set(taken.listing()), S3Blobs(bucket.changed(prefix="nobody"), "blobs").listing()) == ({"a"}, {})


def test_an_object_that_goes_while_a_backup_is_taken_starts_it_anew(live: Path, tmp_path: Path):
    """The database in the archive is then of a moment at which the object was gone."""
    settings = read_service(CspSettings, live / "settings.toml")
    kept(settings, "blobs").put("going", b"x" * 100)

    def delete(_size: int) -> None:
        with closing(SqlStore(settings.database_url)) as store:
            if kept(settings, "blobs").has("going"):
                store.change_task(TASK, unreconciled=True)
                kept(settings, "blobs").delete("going")

    manifest = write_backup(source_of(live / "settings.toml")[0], tmp_path / "csp.backup", delete)
    assert "files/blobs/going" not in manifest.files
    place = f"s3://crowd/{tmp_path.name}"
    assert call("restore", tmp_path / "csp.backup", tmp_path / "again", "--bucket", place).code == 0
    with closing(SqlStore(f"sqlite:///{tmp_path}/again/state.db")) as store:
        assert store.task(TASK).unreconciled


@pytest.mark.skipif(SERVER is None, reason="NO POSTGRESQL: CROWDFL_TEST_POSTGRES names a server")
def test_a_role_moves_to_another_database_of_either_kind(busy: Path, tmp_path: Path):
    """SQLite, PostgreSQL, another PostgreSQL, and back: the settings that are given are those of the folder afterwards."""
    archive, folder = tmp_path / "0.backup", busy / "sp"
    with empty_database("postgresql", tmp_path) as first, empty_database("postgresql", tmp_path) as second:
        for step, url in enumerate((first, second, f"sqlite:///{tmp_path}/last.db")):
            call("backup", folder / "settings.toml", archive)
            lines = (busy / "sp/settings.toml").read_text().splitlines()
            text = "\n".join(f'database = "{url}"' if line.startswith("# database") else line for line in lines)
            chosen = write(tmp_path / "chosen.toml", text.encode())
            folder, archive = tmp_path / f"sp{step}", archive.with_name(f"{step + 1}.backup")
            before = archive.with_name(f"{step}.backup")
            told = json.loads(call("restore", before, folder, "--settings", chosen, "--json").out)
            assert told["database"] == url_words(url)
            assert (folder / "settings.toml").read_text() == text
            migrations.check(url)
            with closing(SqlStore(url)) as store:
                assert store.task(TASK).unreconciled
            assert not (folder / "state.db").exists()
            assert call("restore", before, tmp_path / "x", "--settings", chosen).code == 3  # it is taken now
