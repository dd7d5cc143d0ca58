"""What a demo asks of a phone is enough: one installed authority, and the page and KGC are reached without a warning."""

import contextlib

import pytest
import structlog
from playwright.sync_api import Error

from crowdfl.services.run import open_kgc, open_sp
from crowdfl.services.server import running
from crowdfl.settings import KgcSettings, SpSettings
from crowdfl.storage.settings_file import read_service
from crowdfl.web.console_app import add_pages
from crowdfl_lab.demo.phone import share_authority
from crowdfl_lab.demo.processes import port_options
from tests.cli.program import call
from tests.web import trusting

ASK = """(url) => fetch(url, { credentials: "omit", headers: { "X-CrowdFL-Protocol": "3" } }).then(
  (answer) => `${answer.status} ${answer.headers.has("date")}`, (failure) => failure.name)"""


@pytest.fixture
def site(tmp_path):
    """KGC and SP of a new folder, on loopback, over TLS; their addresses."""
    roles = tmp_path / "roles"
    assert call("init", roles, "--host", "127.0.0.1", *port_options()).code == 0
    share_authority(roles, "127.0.0.1")
    kgc = read_service(KgcSettings, roles / "kgc/settings.toml")
    sp = read_service(SpSettings, roles / "sp/settings.toml")
    app = open_sp(sp)
    add_pages(app, sp)
    with structlog.testing.capture_logs(), contextlib.ExitStack() as stack:
        yield stack.enter_context(running(open_kgc(kgc), kgc)), stack.enter_context(running(app, sp))


@pytest.fixture
def home(tmp_path):
    """A home folder, where the libraries to fill it are installed."""
    if trusting.libraries() is None:
        pytest.skip(f"{' and '.join(trusting.LIBRARIES)} are not installed: no authority can be given to Chromium")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_phone_that_trusts_the_authority_reaches_the_page_and_kgc(playwright, site, home, tmp_path):
    """As a secure context, which keys and sensors need; nothing else can be called from there, and the page says so."""
    kgc, sp = site
    trusting.trust(home, tmp_path / "roles/sp/authority/ca.pem")
    browser = trusting.launch(playwright, home)
    try:
        page = browser.new_page()
        answer = page.goto(f"{sp}/join", timeout=60_000)
        assert answer is not None
        assert (answer.status, page.url.partition("#")[0]) == (200, f"{sp}/join/")
        assert page.evaluate("isSecureContext")
        assert page.evaluate(ASK, f"{kgc}/v1/key") == "200 true"
        assert page.evaluate(ASK, f"{sp}/v1/key") == "200 true"
        assert page.evaluate(ASK, "https://127.0.0.1:1/v1/key") == "TypeError"
        page.get_by_text("This page may not call https://127.0.0.1:1").wait_for()
    finally:
        browser.close()


def test_a_phone_that_does_not_trust_it_is_warned(playwright, site, home):
    """So the test above shows trust, and not a browser that takes anything."""
    browser = trusting.launch(playwright, home)
    try:
        with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
            browser.new_page().goto(f"{site[1]}/join/", timeout=60_000)
    finally:
        browser.close()
