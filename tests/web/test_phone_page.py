"""The phone's page in a browser: each view with invented campaigns, by eye, keyboard and screen reader; sensors; no network."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from crowdfl.services.server import running
from tests.web import axe, browsers, motion, phone_states
from tests.web.phone_states import JOINED, RECORDINGS, STATES, TASK, campaign, definition
from tests.web.sites import opened_sp, sp_settings

FAKE = (Path(__file__).parent / "fake_model.js").read_text(encoding="utf-8")
SECRET = "Q0ZMTQJG" + "s3cr3t" * 20
PATIENCE = browsers.PATIENCE


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """SP with its pages, on loopback."""
    settings = sp_settings(tmp_path_factory.mktemp("site"))
    with opened_sp(settings) as app, running(app, settings) as address:
        yield address


@pytest.fixture
def show(browser, site):
    """`show(campaigns, hash)`: a phone with a page whose campaigns are these, and what it complains about."""
    contexts = []

    def show_one(campaigns, place="", recordings=(), fails=None, **look):
        context = browsers.patient(browser.new_context(**(browsers.PHONE | {"service_workers": "block"} | look)))
        contexts.append(context)
        page = context.new_page()
        page.complaints = browsers.complaints(page)
        page.requests = []
        page.on("request", lambda request: page.requests.append(request.url))
        given = json.dumps({"campaigns": campaigns, "recordings": list(recordings), "fails": fails or {}})
        page.add_init_script(f"globalThis.given = {given};")
        page.route("**/join/app/model.js", lambda route: route.fulfill(body=FAKE, content_type="text/javascript"))
        page.goto(f"{site}/join/{place}")
        page.wait_for_selector("h1")
        return page

    yield show_one
    for context in contexts:
        context.close()


def shown(show, name, **look):
    place, campaigns = STATES[name]
    return show(campaigns, place, RECORDINGS if name == "record" else (), **look)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", STATES)
def test_a_view_is_usable_by_all_at_360_pixels(show, shoot, name, scheme):
    """No sideways scrolling, nothing that axe-core calls serious, nothing blocked, nobody else asked."""
    page = shown(show, name, color_scheme=scheme)
    axe.assert_usable_by_all(page)
    assert browsers.sideways(page) == 0
    assert page.complaints == []
    assert {urlsplit(url).netloc for url in page.requests} == {urlsplit(page.url).netloc}
    if scheme == "light":
        shoot(page, f"phone-{name}")
