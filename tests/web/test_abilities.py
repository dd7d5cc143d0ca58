"""What the phone's page needs of a browser is there in both that we test: keys, workers, storage, a plot under our policy."""

from pathlib import Path

import pytest

from tests.web import browsers
from tests.web.firefox import in_firefox, need_firefox
from tests.web.pages import served

HERE = Path(__file__).parent
PAGE = """<!doctype html><html lang="en"><head><title>Abilities</title>
<link rel="stylesheet" href="/web/common/style.css"><link rel="stylesheet" href="/web/common/plot.css">
<script type="module" src="abilities.js"></script></head><body><main><h1>Abilities</h1></main></body></html>"""
FILES = {
    "/join/": PAGE,
    "/join/abilities.js": (HERE / "abilities.js").read_text(),
    "/join/worker.js": "self.onmessage = ({data}) => self.postMessage(data + 1);",
    "/join/service-worker.js": "// nothing",
}


@pytest.fixture
def address(tmp_path):
    """Where the page is."""
    with served(tmp_path, FILES) as found:
        yield f"{found}/join/"


def failed(found):
    """What did not work."""
    return {name: outcome for name, outcome in found.items() if outcome is not True}


def test_chromium_has_what_the_page_needs(phone, address):
    said = browsers.complaints(phone)
    phone.goto(address)
    browsers.until(phone, "window.ready === true")
    found = phone.evaluate("tried()")
    phone.reload()
    browsers.until(phone, "window.ready === true")
    assert failed(found | {"keys after a reload": phone.evaluate("keysStillWork()")}) == {}
    assert said == []


@pytest.mark.second
def test_firefox_has_what_the_page_needs(address):
    need_firefox()
    found = in_firefox(HERE / "firefox_abilities.mjs", address)
    assert found.pop("said") == []
    assert failed(found) == {}
