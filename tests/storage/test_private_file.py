"""A database on disk is its owner's alone: it holds mask seeds."""

import os
import stat

import pytest

from crowdfl.errors import StoreExposed, StoreUnavailable
from crowdfl.roles.records import StoredTask
from crowdfl.storage import migrations
from crowdfl.storage.sql import SqlStore

SUFFIXES = ["", "-wal", "-shm"]


@pytest.fixture
def open_umask():
    """Whoever starts a service may have left everything open."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_it_and_its_companions_are_made_for_the_owner_alone(tmp_path, open_umask):
    """Whatever the umask, while it is written and after."""
    url = f"sqlite:///{tmp_path}/state.db"
    migrations.upgrade(url)
    store = SqlStore(url)
    store.add_task(StoredTask("t", "definition", "appointment", "running"))
    assert modes(tmp_path) == {f"state.db{suffix}": 0o600 for suffix in SUFFIXES}
    store.close()
    assert set(modes(tmp_path).values()) == {0o600}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_one_that_others_can_read_or_write_is_refused_with_what_to_do(tmp_path, suffix, mode):
    """A copy from a backup may have lost its permissions."""
    url, path = f"sqlite:///{tmp_path}/state.db", tmp_path / f"state.db{suffix}"
    migrations.upgrade(url)
    path.touch()
    path.chmod(mode)
    with pytest.raises(StoreExposed, match=f"chmod 600 {path}"):
        migrations.upgrade(url)
    path.chmod(0o600)
    migrations.upgrade(url)


@pytest.mark.parametrize("url", ["sqlite:///file:{}/state.db?uri=true", "sqlite:///{}/state.db?uri=true"])
def test_a_uri_that_would_name_another_file_than_the_one_made_private_is_refused(tmp_path, url):
    """SQLite would create that file as open as the umask lets it."""
    with pytest.raises(StoreUnavailable, match="use sqlite:///FILE"):
        migrations.upgrade(url.format(tmp_path))
    assert list(tmp_path.iterdir()) == []
