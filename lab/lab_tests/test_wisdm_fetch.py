"""`crowdfl wisdm fetch`: over a real socket, and one file out of an archive."""

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.errors import DataAltered, DataMissing, SettingsError
from crowdfl_lab.wisdm_command import fetch, unpack_one
from crowdfl_lab.wisdm_set import WISDM_FILE, WISDM_URL

BODY = b"WISDM" * 100_000
ARCHIVE: dict[str, bytes] = {}  # what else is served
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Sends the body, less than it promised, or nothing."""

    def do_GET(self):
        body = ARCHIVE.get(self.path, BODY)
        self.send_response(404 if self.path == "/gone" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000] if self.path == "/short" else body)

    def log_message(self, *_):
        """Silence."""


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_what_came_is_counted_and_hashed(server, tmp_path):
    """And told on the way."""
    seen = []
    path = tmp_path / "new" / "file"
    found = fetch(f"{server}/", path, SHA256.upper(), lambda done, of: seen.append((done, of)))
    assert found == (len(BODY), SHA256)
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("place", "sha256", "error", "said"),
    [
        ("/", "0" * 64, DataAltered, SHA256),
        ("/short", SHA256, DataAltered, "1,000 of 500,000"),
        ("/gone", SHA256, DataMissing, "404"),
    ],
)
def test_nothing_is_kept_of_what_is_wrong(server, tmp_path, place, sha256, error, said):
    """No file, whole or part."""
    with pytest.raises(error, match=said):
        fetch(f"{server}{place}", tmp_path / "file", sha256)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "file:///etc/passwd", "ftp://host/file"])
def test_only_https_is_trusted_without_a_hash(tmp_path, url):
    """Refused before anything is asked."""
    with pytest.raises(SettingsError, match="https://"):
        fetch(url, tmp_path / "file")
    assert WISDM_URL.startswith("https://")


def test_a_file_is_not_overwritten(server, tmp_path):
    """It may be someone's only copy."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingsError, match="exists already"):
        fetch(f"{server}/", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_text() == "mine"


def archive(path, names: list[str]) -> None:
    """Each member holds its name."""
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            file.addfile(member, io.BytesIO(name.encode()))


def test_one_file_is_taken_out_and_no_other(tmp_path):
    """Not even one that would like to go elsewhere."""
    archive(tmp_path / "a.tar.gz", ["../escaped", f"WISDM_ar_v1.1/{WISDM_FILE}", "readme.txt"])
    inner = tmp_path / "inner"
    inner.mkdir()
    unpack_one(tmp_path / "a.tar.gz", WISDM_FILE, inner / "raw.txt")
    assert (inner / "raw.txt").read_text() == f"WISDM_ar_v1.1/{WISDM_FILE}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "inner"]
    with pytest.raises(SettingsError, match="exists already"):
        unpack_one(tmp_path / "a.tar.gz", WISDM_FILE, inner / "raw.txt")


def test_another_archive_is_refused(tmp_path):
    archive(tmp_path / "a.tar.gz", ["readme.txt"])
    (tmp_path / "b.tar.gz").write_bytes(b"<html>moved</html>")
    for name, said in (("a", "does not contain"), ("b", "not a readable tar")):
        with pytest.raises(DataAltered, match=said):
            unpack_one(tmp_path / f"{name}.tar.gz", WISDM_FILE, tmp_path / "raw.txt")


def test_the_command_shows_the_checksum_of_what_it_fetched(server, tmp_path):
    """Another checksum is refused and leaves nothing."""
    archive(tmp_path / "w.tar.gz", ["readme.txt", f"WISDM_ar_v1.1/{WISDM_FILE}"])
    body = ARCHIVE["/w.tar.gz"] = (tmp_path / "w.tar.gz").read_bytes()
    kept, sha256 = tmp_path / "kept", hashlib.sha256(body).hexdigest()
    words = ["wisdm", "fetch", str(kept), "--url", f"{server}/w.tar.gz", "--sha256"]
    assert isinstance(CliRunner().invoke(app, [*words, "0" * 64]).exception, DataAltered)
    assert not kept.exists()
    shown = CliRunner().invoke(app, [*words, sha256]).stdout
    assert f"SHA-256 {sha256}" in shown
    assert f"{len(body):,} bytes" in shown
    assert (kept / WISDM_FILE).exists()
