"""Blobs under a passphrase: the same port, nothing to read without it, nothing altered unnoticed."""

from pathlib import Path

import pytest

from crowdfl.errors import Conflict, KeyFileDamaged, NotReady, PassphraseError
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sealed_blobs import SealedBlobs, require_open

FAST = 8
PHRASE = "correct horse"
SECRET = b"the share of a server" * 20


def sealed(folder: Path, passphrase: str = PHRASE) -> SealedBlobs:
    return SealedBlobs(FileBlobs(folder), passphrase, FAST)


def test_what_is_put_is_got_by_whoever_knows_the_passphrase(tmp_path: Path):
    """By another process too, however it types an accent."""
    sealed(tmp_path, "café").put("task.sp", SECRET)
    again = sealed(tmp_path, "cafe\u0301")
    assert again.has("task.sp")
    assert again.get("task.sp") == SECRET
    again.put_all({"task.sp": SECRET, "b/c": b""})
    assert again.get("b/c") == b""
    again.delete("task.sp")
    again.clear("b")
    assert not again.has("task.sp")
    with pytest.raises(NotReady):
        again.get("b/c")


def test_a_name_is_taken_once(tmp_path: Path):
    """The same bytes again are fine, although they would be sealed in another way."""
    blobs = sealed(tmp_path)
    blobs.put("a", SECRET)
    blobs.put("a", SECRET)
    with pytest.raises(Conflict):
        blobs.put("a", SECRET[1:])


def test_who_is_slower_takes_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two processes at once: the same bytes are one blob, others are refused."""
    first, second = sealed(tmp_path), sealed(tmp_path)
    monkeypatch.setattr(second, "has", lambda _name: False)  # as it was before the other came
    first.put("a", SECRET)
    second.put("a", SECRET)
    with pytest.raises(Conflict):
        second.put("a", b"other")


def test_two_that_begin_at_once_seal_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    late = FileBlobs(tmp_path)
    sealed(tmp_path).put("a", SECRET)
    real = late.has
    monkeypatch.setattr(late, "has", lambda name: name != "sealing" and real(name))
    monkeypatch.setattr(late, "listing", dict)
    assert SealedBlobs(late, PHRASE, FAST).get("a") == SECRET


def test_nothing_is_readable_without_the_passphrase(tmp_path: Path):
    """Neither by eye nor with a wrong one."""
    sealed(tmp_path).put("a", SECRET)
    assert not any(SECRET[:8] in path.read_bytes() for path in tmp_path.iterdir())
    for wrong in ("Correct horse", "", "half a character: \ud800"):
        with pytest.raises(PassphraseError):
            sealed(tmp_path, wrong)
    with pytest.raises(PassphraseError, match="is sealed"):
        require_open(FileBlobs(tmp_path))


@pytest.mark.parametrize("place", [0, 11, 12, 40, -1])
def test_an_altered_blob_does_not_open(tmp_path: Path, place: int):
    sealed(tmp_path).put("a", SECRET)
    data = bytearray((tmp_path / "a").read_bytes())
    data[place] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(PassphraseError, match="altered"):
        sealed(tmp_path).get("a")


def test_blobs_do_not_change_places(tmp_path: Path):
    """A share under another's name is no share."""
    blobs = sealed(tmp_path)
    blobs.put("a", SECRET)
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(PassphraseError):
        blobs.get("b")


@pytest.mark.parametrize(
    "damage", [b"", b"CFLS\x02", b"CFLS\x01\x40" + bytes(44), b"CFLS\x01\x00" + bytes(44), b"CFLS\x01\x08" + bytes(3)]
)
def test_a_damaged_beginning_is_named(tmp_path: Path, damage: bytes):
    (tmp_path / "sealing").write_bytes(damage)
    with pytest.raises(KeyFileDamaged):
        sealed(tmp_path)


def test_plain_keys_are_not_mixed_with_sealed_ones(tmp_path: Path):
    """A folder is sealed from the beginning, or not at all."""
    FileBlobs(tmp_path).put("a", SECRET)
    with pytest.raises(PassphraseError, match="not sealed"):
        sealed(tmp_path)
    assert require_open(FileBlobs(tmp_path)).get("a") == SECRET


def test_an_open_blob_is_the_plain_one(tmp_path: Path):
    """All of it was opened, and so checked, before any of it is read."""
    blobs = sealed(tmp_path)
    blobs.put("a", SECRET)
    with blobs.open("a") as file:
        assert file.read(4) + file.read() == SECRET
    data = bytearray((tmp_path / "a").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(PassphraseError):
        blobs.open("a")
