"""`crowdfl phone`: the page as files, and what an SP serves compared with them."""

import hashlib
import json

import pytest
import structlog
from fastapi import FastAPI, Response

from crowdfl.services.server import running
from crowdfl.settings import KgcSettings
from crowdfl.web.pages import Asset, add_static, load_assets, page_version, phone_assets
from tests.cli.program import call, refused
from tests.web.sites import opened_sp, sp_settings

VERSION = {"version": page_version(phone_assets())}
FILES = {
    f"{place[1:]}/{name}": asset.digest for place, found in phone_assets().items() for name, asset in found.items()
}


def served(folder, change) -> tuple[FastAPI, KgcSettings]:
    """A host of the page with one thing changed."""
    app = FastAPI()
    for place, assets in phone_assets().items():
        files = dict(assets)
        change(place, files)
        add_static(app, place, files, dict)
    return app, KgcSettings(data=folder, host="127.0.0.1", port=0, plain_http=True)


def test_the_page_is_exported_as_it_is_served(tmp_path):
    """In the layout that its modules import from; with the headers that another host must send."""
    origins = ["https://sp.example:7102", "https://kgc.example:7101"]
    told = call("phone", "export", tmp_path / "out", "--connect", origins[0], "--connect", origins[1], "--json")
    assert told.code == 0, told
    assert sorted(FILES) == json.loads(told.out)["files"]
    for place, digest in FILES.items():
        assert hashlib.sha256((tmp_path / "out" / place).read_bytes()).hexdigest() == digest
    lines = dict(line.split(": ", 1) for line in (tmp_path / "out" / "headers.txt").read_text().splitlines())
    assert f"connect-src 'self' {' '.join(origins)};" in lines["Content-Security-Policy"]
    assert lines["X-Content-Type-Options"] == "nosniff"
    assert load_assets(tmp_path / "out" / "join").keys() == phone_assets()["/join"].keys()


@pytest.mark.parametrize("origin", ["https://sp.example/", "sp.example", "https://x; script-src *", "*"])
def test_what_is_not_an_origin_does_not_get_into_the_policy(tmp_path, origin):
    """It could allow what nobody meant to allow."""
    refused(call("phone", "export", tmp_path / "out", "--connect", origin), "SettingsError", "--connect")


def test_nothing_is_exported_over_what_is_there(tmp_path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "file"):
        refused(call("phone", "export", place), "SettingsError", "new folder")
    assert (tmp_path / "file").read_text() == "x"


def test_digests_are_those_of_the_files():
    """Before them the version that a phone shows."""
    lines = call("phone", "digest").out.splitlines()
    assert {line.split("  ")[1]: line.split("  ")[0] for line in lines} == FILES | VERSION
    assert json.loads(call("phone", "digest", "--json").out) == FILES | VERSION


def test_an_sp_with_this_page_is_found_to_have_it(tmp_path):
    settings = sp_settings(tmp_path)
    with opened_sp(settings) as app, running(app, settings) as url, structlog.testing.capture_logs():
        for address in (url, f"{url}/join/"):
            told = call("phone", "digest", address)
            assert (told.code, told.out.split(" files")[0]) == (0, f"{len(FILES) + 1} of {len(FILES) + 1}")
            assert VERSION["version"] == told.out.strip()[-19:].replace(" ", "")


def test_an_sp_is_compared_with_another_release(tmp_path):
    """By what the command printed there; a file that says something else is refused."""
    release = tmp_path / "release.txt"
    release.write_text(call("phone", "digest").out.replace(FILES["join/phone.css"], "0" * 64))
    settings = sp_settings(tmp_path)
    with opened_sp(settings) as app, running(app, settings) as url, structlog.testing.capture_logs():
        told = call("phone", "digest", url, "--release", release)
    assert (told.code, told.out.splitlines()[0]) == (1, "DIFFERS  join/phone.css")
    assert f"are those of {release}; a phone shows them as" in told.out
    for text in ("", "x" * 64 + "  join/phone.css", call("phone", "digest", "--json").out):
        release.write_text(text)
        refused(call("phone", "digest", "https://sp.example", "--release", release), "SettingsError", "phone digest")
    refused(call("phone", "digest", "--release", tmp_path / "none"), "SettingsError", "cannot be read")


def test_an_altered_and_a_missing_file_are_named(tmp_path):

    def change(place, files) -> None:
        if place == "/join":
            files["app/main.js"] = Asset(files["app/main.js"].body + b"//", "text/javascript")
            del files["phone.css"]

    app, settings = served(tmp_path, change)
    with running(app, settings) as url:
        told = call("phone", "digest", url)
        rows = {row["file"]: row["verdict"] for row in json.loads(call("phone", "digest", url, "--json").out)}
    assert told.code == 1
    assert told.out.splitlines()[:2] == ["DIFFERS  join/app/main.js", "missing  join/phone.css"]
    assert {file for file, verdict in rows.items() if verdict != "same"} == {"join/app/main.js", "join/phone.css"}


def test_a_page_that_differs_only_at_the_address_people_open_is_found(tmp_path):
    """Nobody's browser asks for index.html by name."""
    app = FastAPI()

    @app.get("/join/")
    def other() -> Response:
        return Response("<!doctype html>")

    _, settings = served(tmp_path, lambda _place, _files: None)
    for place, assets in phone_assets().items():
        add_static(app, place, assets, dict)
    with running(app, settings) as url:
        told = call("phone", "digest", url)
    assert (told.code, told.out.splitlines()[0]) == (1, "DIFFERS  join/")


def test_an_address_that_does_not_answer_is_a_named_error(tmp_path):
    refused(call("phone", "digest", "http://127.0.0.1:1"), "ServiceUnavailable", "cannot be read")
    refused(call("phone", "digest", "sp.example"), "SettingsError", "https://host:7102")
    app = FastAPI()

    @app.get("/{path:path}")
    def busy(path: str) -> Response:
        return Response(status_code=503)

    settings = KgcSettings(data=tmp_path, host="127.0.0.1", port=0, plain_http=True)
    with running(app, settings) as url:
        refused(call("phone", "digest", url), "ServiceUnavailable", "status 503")
