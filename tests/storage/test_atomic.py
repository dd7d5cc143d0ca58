"""Private files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest
from tests.hosts import raising

from crowdfl.errors import KeyFilePermissions
from crowdfl.storage.atomic import require_owner_only, write_private


def test_the_bytes_arrive_in_a_file_of_the_owner_alone(tmp_path: Path):
    """Mode 0600 whatever the umask says, and nothing else left in the folder."""
    before = os.umask(0)
    try:
        write_private(tmp_path / "a", b"secret")
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == b"secret"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_an_existing_file_stays_without_overwrite(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_overwrite_replaces_the_file_and_its_mode(tmp_path: Path):
    """A file that others could read becomes one that they cannot."""
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o644)
    write_private(tmp_path / "a", b"new", overwrite=True)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_file_made_during_the_write_is_not_clobbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever gets the name first keeps it, even between our check and our write."""
    link = os.link

    def lose_the_race(source: str, target: str) -> None:
        Path(target).write_bytes(b"theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", lose_the_race)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "a", b"ours")
    assert (tmp_path / "a").read_bytes() == b"theirs"


@pytest.mark.parametrize("call", ["fchmod", "write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str):
    """A full or broken disk at any step costs the new bytes alone."""
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, call, raising(OSError(28, "no space left")))
    with pytest.raises(OSError, match="no space left"):
        write_private(tmp_path / "a", b"new", overwrite=True)
    monkeypatch.undo()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_bytes_are_durable_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The order of the calls is write, fsync, replace, fsync of the folder."""
    calls: list[str] = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))[1])
    write_private(tmp_path / "a", b"bytes", overwrite=True)
    assert calls == ["write", "fsync", "replace", "fsync"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The system may take fewer bytes than it was given."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:3])))
    write_private(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_folder_is_not_an_owner_only_file(tmp_path: Path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(KeyFilePermissions, match="regular file"):
            require_owner_only(descriptor, tmp_path, KeyFilePermissions)
    finally:
        os.close(descriptor)
