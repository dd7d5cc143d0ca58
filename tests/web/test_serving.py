"""The phone's page as SP serves it: which files, under which headers, and nothing else."""

import hashlib
from pathlib import Path
from urllib.parse import unquote

import pytest
from fastapi import FastAPI

from crowdfl.services.http.wire import PROTOCOL_HEADER
from crowdfl.web import pages
from crowdfl.web.pages import add_static, load_assets, page_headers
from tests.web.sites import Loop, browsing, opened_sp, sp_settings

KGC = "https://kgc.example:7101"
TYPED = {
    "index.html": ("<!doctype html><title>x</title>", "text/html; charset=utf-8"),
    "app/main.js": ("export {};", "text/javascript; charset=utf-8"),
    "phone.css": ("p {}", "text/css; charset=utf-8"),
    "manifest.webmanifest": ("{}", "application/manifest+json"),
    "icons/icon.svg": ("<svg/>", "image/svg+xml"),
    "icons/icon.png": ("png", "image/png"),
    "LICENSES": ("MIT", "text/plain; charset=utf-8"),
}
FILES = {name: text for name, (text, _) in TYPED.items()}
UNSERVED = ("notes.md", "tool.py", ".hidden.js", "__pycache__/x.js", ".git/x.js", "data.npz", "module.ts")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A small page under /join."""
    folder = tmp_path_factory.mktemp("files")
    write(folder / "page", FILES | dict.fromkeys(UNSERVED, "secret"))
    (folder / "outside.js").write_text("secret")
    (folder / "page" / "link.js").symlink_to(folder / "outside.js")
    app = FastAPI()
    add_static(app, "/join", load_assets(folder / "page"), lambda: page_headers([KGC]))
    return app


@pytest.fixture(scope="module")
def site(page):
    return browsing(page)


@pytest.fixture(scope="module")
def sp(tmp_path_factory):
    with opened_sp(sp_settings(tmp_path_factory.mktemp("sp"), kgc=f"{KGC}/")) as app:
        yield browsing(app)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_served_with_its_type(site, name):
    plain = {"Accept-Encoding": "identity"}
    answer, head = site.get(f"/join/{name}", headers=plain), site.head(f"/join/{name}", headers=plain)
    assert (answer.status_code, answer.text) == (200, FILES[name])
    assert (head.status_code, head.content) == (200, b"")
    for found in (answer, head):
        assert found.headers["content-type"] == TYPED[name][1]
        assert found.headers["content-length"] == str(len(FILES[name]))
        assert found.headers["cache-control"] == "no-cache"


def test_files_of_other_kinds_are_not_served(site):
    assert {site.get(f"/join/{name}").status_code for name in UNSERVED} == {404}


@pytest.mark.parametrize(
    "path",
    [
        "/join/../outside.js",
        "/join/%2e%2e/outside.js",
        "/join/..%2foutside.js",
        "/join/%2e%2e%2foutside.js",
        "/join/app/../../outside.js",
        "/join//etc/passwd",
        "/join/app//main.js",
        "/join/app%5c..%5c..%5coutside.js",
        "/join/index.html%00.js",
        "/join/./index.html",
        "/join/link.js",
        "/join/app",
        "/join/app/",
        "/join/INDEX.HTML",
    ],
)
def test_no_path_leads_to_anything_else(page, path):
    """Names are looked up as they are. The app is called as a server would, without a client that tidies a path up."""
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "headers": []}
    Loop.call(page, scope | {"query_string": b"", "http_version": "1.1", "scheme": "https"}, receive, send)
    assert sent[0]["status"] == 404


def test_the_place_without_a_slash_leads_to_the_page(site):
    """By a relative address: no header of the request decides where; a browser keeps the fragment."""
    answer = site.get("/join", headers={"Host": "elsewhere.example"})
    assert (answer.status_code, answer.headers["location"]) == (308, "/join/")
    assert site.get("/join/").text == FILES["index.html"]


def test_a_browser_that_has_the_file_is_told_so(site):
    plain = {"Accept-Encoding": "identity"}
    first = site.get("/join/app/main.js", headers=plain)
    etag = first.headers["etag"]
    assert etag.strip('"') == hashlib.sha256(first.content).hexdigest()[:32]
    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        again = site.get("/join/app/main.js", headers={"If-None-Match": known} | plain)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert "content-security-policy" in again.headers
    for other in ('"x"', etag.strip('"'), ""):
        assert site.get("/join/app/main.js", headers={"If-None-Match": other} | plain).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "packed"), [("gzip, br", True), ("br;q=1.0, GZIP;q=0.5", True), ("gzip;q=0", False), ("br", False)]
)
def test_a_browser_that_takes_gzip_gets_it_under_an_etag_of_its_own(sp, accepted, packed):
    """A cache in between must not give one for the other; and what is smaller without stays as it is."""
    plain = sp.get("/web/common/style.css", headers={"Accept-Encoding": "identity"})
    answer = sp.get("/web/common/style.css", headers={"Accept-Encoding": accepted})
    assert (answer.content, "Accept-Encoding" in answer.headers["vary"]) == (plain.content, True)
    assert (answer.headers.get("content-encoding") == "gzip") == packed
    assert (answer.headers["etag"] != plain.headers["etag"]) == packed
    assert (int(answer.headers["content-length"]) < len(plain.content) / 2) == packed
    again = sp.get(
        "/web/common/style.css", headers={"Accept-Encoding": accepted, "If-None-Match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    assert "content-encoding" not in sp.get("/join/icons/icon-192.png", headers={"Accept-Encoding": "gzip"}).headers


def test_a_page_can_load_and_call_nothing_but_itself_and_kgc(sp):
    headers = sp.get("/web/common/dom.js").headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": f"'self' {KGC}",
        "manifest-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-src": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    sensors = ("accelerometer", "gyroscope", "geolocation", "microphone")
    assert f"{', '.join(f'{one}=(self)' for one in sensors)}, camera=()" in headers["permissions-policy"]
    assert ", ".join(f"{one}=()" for one in sensors) in page_headers()["Permissions-Policy"]  # a console needs none


@pytest.mark.parametrize("path", ["/join", "/join/", "/join/nothing.js", "/join/app", "/web/common/nothing.js"])
def test_whatever_is_answered_below_the_page_is_under_its_policy(sp, path):
    """A redirect and a refusal too: no answer of this place can be framed, or taken for a script."""
    headers = sp.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_every_file_of_the_package_is_served_as_it_lies_there(sp):
    places = pages.phone_assets()
    assert set(places) == {"/join", "/web/common", "/web/vendor"}
    assert {"dom.js", "style.css"} <= set(places["/web/common"])
    for place, assets in places.items():
        for name, asset in assets.items():
            assert sp.get(f"{place}/{name}").content == asset.body
    assert sp.get("/web/common/dom.js").content == (Path(pages.__file__).parent / "common" / "dom.js").read_bytes()
    for path in ("/web/pages.py", "/web/common/../pages.py", "/web/", "/web", "/web/console/index.html"):
        assert sp.get(path).status_code == 404
    assert not [path for path in sp.get("/openapi.json").json()["paths"] if path.startswith(("/join", "/web"))]


def test_only_a_page_may_be_kept_and_it_opens_without_any_header(sp):
    """A browser that follows a link speaks no version of the protocol; a program that speaks a wrong one is told."""
    assert sp.get("/v1/key").headers["cache-control"] == "no-store"
    assert sp.get("/join/nothing.js").headers["cache-control"] == "no-store"
    assert sp.get("/web/common/dom.js").headers["cache-control"] == "no-cache"
    assert sp.get("/web/common/style.css", headers={PROTOCOL_HEADER: "1"}).status_code == 426


def test_a_browser_that_came_by_tls_comes_in_no_other_way(sp):
    """Pages, answers and refusals alike. Nothing is said over plain HTTP, nor of a browser's own machine."""
    for path in ("/join/", "/join/nothing.js", "/v1/key", "/console/", "/nothing"):
        assert sp.get(path).headers["strict-transport-security"] == "max-age=31536000"
        for url in (f"http://sp.example{path}", f"https://localhost:7102{path}"):
            assert "strict-transport-security" not in sp.get(url).headers


def test_what_the_phone_may_call_follows_the_settings(tmp_path):
    """Where people reach KGC by another name than SP does; after a reload, too."""
    settings = sp_settings(tmp_path, kgc="https://KGC.internal:443/x", phone_connect=["https://keys.example"])
    with opened_sp(settings) as app:
        phone = browsing(app)
        connect = "connect-src 'self' https://kgc.internal https://keys.example;"
        assert connect in phone.get("/web/common/dom.js").headers["content-security-policy"]
        app.state.reloads.read_settings = lambda: settings.changed(phone_connect=())
        app.state.reloads.reload()
        policy = phone.get("/web/common/dom.js").headers["content-security-policy"]
        assert "connect-src 'self' https://kgc.internal;" in policy


def test_hidden_parts_and_types_are_decided_by_name_alone(tmp_path):
    assert load_assets(tmp_path / "nothing") == {}
    write(tmp_path / "a", {"x.js": "1", "b/.c/y.js": "2", "z": "3", "z.JS": "4"})
    assert set(load_assets(tmp_path / "a")) == {"x.js"}
    assert load_assets(tmp_path / "a")["x.js"].digest == hashlib.sha256(b"1").hexdigest()


@pytest.mark.parametrize("path", ["/", "/jion/", "/join/nothing.js", "/campaigns"])
def test_a_mistyped_address_shows_a_page_to_people_and_a_problem_to_programs(tmp_path, path):
    with opened_sp(sp_settings(tmp_path)) as app, browsing(app) as sp:
        shown = sp.get(path, headers={"Accept": "text/html,application/xhtml+xml"})
        assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "open the whole link" in shown.text
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        for other in (sp.get(path), sp.get("/v1/nothing", headers={"Accept": "text/html"})):
            assert (other.status_code, other.headers["content-type"]) == (404, "application/problem+json")
