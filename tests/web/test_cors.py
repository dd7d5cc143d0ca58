"""Cross-origin calls: the configured pages and no others, for answers, refusals and failures alike."""

import tomllib

import pytest
import structlog

from crowdfl.errors import SettingsError
from crowdfl.services.http.wire import PROTOCOL_HEADER
from crowdfl.settings import KgcSettings, origin_of
from tests.cli.program import call, settings
from tests.web.sites import browsing, kgc_settings, opened_kgc, opened_sp, sp_settings

PAGE = "https://sp.example:7102"
OTHERS = ("https://sp.example", "http://sp.example:7102", "https://evil.example", "null", f"{PAGE}.evil.example", "")
ASK = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture(scope="module")
def kgc(tmp_path_factory):
    with opened_kgc(kgc_settings(tmp_path_factory.mktemp("kgc"), web_origins=[PAGE])) as app:
        yield app


def shared(answer) -> str | None:
    return answer.headers.get("access-control-allow-origin")


def test_a_page_of_the_configured_origin_reads_answers(kgc):
    """With the headers that it needs: the service's time above all; never with cookies."""
    answer = browsing(kgc).get("/v1/key", headers={"Origin": PAGE})
    assert (answer.status_code, shared(answer), answer.headers["vary"]) == (200, PAGE, "Origin")
    readable = {name.strip() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert {"Date", "Retry-After", PROTOCOL_HEADER} <= readable
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", OTHERS)
def test_pages_of_other_origins_read_nothing(kgc, origin):
    """The request itself is answered as ever: it is the browser that keeps the answer back."""
    answer = browsing(kgc).get("/v1/key", headers={"Origin": origin})
    assert (answer.status_code, shared(answer), answer.headers["vary"]) == (200, None, "Origin")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/anything", {}, 404),
        ("/v1/key", {PROTOCOL_HEADER: "1"}, 426),
        ("/metrics", {}, 401),
    ],
)
def test_a_page_reads_refusals_too(kgc, path, headers, status):
    """Also the one of the outermost layer: a page must be able to say what is wrong."""
    answer = browsing(kgc).get(path, headers={"Origin": PAGE, **headers})
    assert (answer.status_code, shared(answer)) == (status, PAGE)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_page_reads_that_the_service_failed(kgc):
    """An error that nobody foresaw ends in the outermost layer."""

    @kgc.get("/fails")
    def fails() -> None:
        raise RuntimeError("not for anyone's eyes")

    answer = browsing(kgc).get("/fails", headers={"Origin": PAGE})
    assert (answer.status_code, shared(answer)) == (500, PAGE)


def test_a_browser_that_asks_first_is_told_what_it_may_send(kgc):
    """Without the app, its routes or its threads; a browser need not ask again for two hours."""
    answer = browsing(kgc).options("/v1/tasks/x/enrolments", headers={"Origin": PAGE, **ASK})
    assert (answer.status_code, shared(answer)) == (200, PAGE)
    assert {"PATCH", "PUT", "POST", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    sent = {name.lower() for name in answer.headers["access-control-allow-headers"].split(", ")}
    assert {"authorization", "content-type", "x-content-sha256", "x-crowdfl-protocol"} <= sent
    assert answer.headers["access-control-max-age"] == "7200"


def test_a_question_of_another_page_is_refused_and_logged_with_what_to_do(kgc):
    """An operator who forgot a setting finds it there; what the page calls itself cannot forge a line."""
    with structlog.testing.capture_logs() as entries:
        answer = browsing(kgc).options("/v1/key", headers={"Origin": "https://evil.example", **ASK})
        browsing(kgc).options("/v1/key", headers={"Origin": "x\x1b[31m" * 100, **ASK})
    assert (answer.status_code, shared(answer)) == (400, None)
    assert [(e["event"], e["route"]) for e in entries] == [("refused", "preflight")] * 2
    assert "`web_origins`" in entries[0]["reason"]
    assert all(e["reason"].isprintable() and len(e["reason"]) < 300 for e in entries)


def test_without_origins_no_page_may_read_anything(tmp_path):
    with opened_kgc(kgc_settings(tmp_path)) as app:
        assert shared(browsing(app).get("/v1/key", headers={"Origin": PAGE})) is None
        assert shared(browsing(app).options("/v1/key", headers={"Origin": PAGE, **ASK})) is None


def test_sp_answers_a_page_that_is_hosted_elsewhere(tmp_path):
    """And its own page without any setting, since a browser asks nothing about the same origin."""
    with opened_sp(sp_settings(tmp_path, web_origins=["https://pages.example"])) as app:
        assert shared(browsing(app).get("/v1/key", headers={"Origin": "https://pages.example"})) is not None
        own = browsing(app).post("/v1/tasks/0/participants", headers={"Origin": PAGE})
        assert (own.status_code, shared(own)) == (422, None)


def test_origins_are_read_again_on_a_reload(tmp_path):
    first = kgc_settings(tmp_path)
    with opened_kgc(first) as app:
        assert shared(browsing(app).get("/v1/key", headers={"Origin": PAGE})) is None
        app.state.reloads.read_settings = lambda: first.changed(web_origins=[PAGE])
        app.state.reloads.reload()
        assert shared(browsing(app).get("/v1/key", headers={"Origin": PAGE})) == PAGE


@pytest.mark.parametrize(
    "wrong",
    ["https://a/", "https://A", "https://a:443", "http://a:80", "a", "*", "null", "https://a/join", "https://u@a", ""],
)
def test_what_no_browser_calls_an_origin_is_refused_as_one(tmp_path, wrong):
    """It would never match, and nobody would see why."""
    with pytest.raises(SettingsError, match=r"`web_origins` is .*; expected a list of origins"):
        KgcSettings(data=tmp_path, host="a", port=1, web_origins=[wrong])


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://A.example:443/x", "https://a.example"),
        ("http://a:80", "http://a"),
        ("https://a:7102", "https://a:7102"),
        ("http://a:443", "http://a:443"),
        ("https://[::1]:7102/", "https://[::1]:7102"),
        ("https://user:secret@a", "https://a"),
    ],
)
def test_an_origin_is_written_as_a_browser_writes_it(url, origin):
    assert origin_of(url) == origin


def test_init_lets_the_page_of_sp_call_kgc(tmp_path):
    made = call("init", tmp_path / "roles", "--host", "keys.example", "--sp-host", "SP.example", "--sp-port", "443")
    assert made.code == 0, made
    found = {role: tomllib.loads(settings(tmp_path / "roles", role).read_text()) for role in ("kgc", "sp", "csp")}
    assert found["kgc"]["web_origins"] == ["https://sp.example"]
    assert "web_origins" not in found["sp"]
    assert "web_origins" not in found["csp"]
