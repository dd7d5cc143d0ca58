"""Browsers for the tests of pages. Tests that use one belong to the second tier, and are skipped where none is installed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.web import browsers

_HERE = Path(__file__).parent
expect.set_options(timeout=browsers.PATIENCE)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE) and "playwright" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.second)


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    """Its driver, for this folder's tests only: while it runs, `asyncio.run` fails in this thread."""
    if browsers.chromium() is None:
        pytest.skip(browsers.MISSING)
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """One Chromium for all tests of a worker; each test opens contexts of its own, which share nothing."""
    started = playwright.chromium.launch(**browsers.options())
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def phone_context(browser: Browser) -> Iterator[BrowserContext]:
    """A phone's screen: 360 by 740, touch, a fresh profile."""
    with browsers.opened(browser, browsers.PHONE) as context:
        yield context


@pytest.fixture
def desk_context(browser: Browser) -> Iterator[BrowserContext]:
    with browsers.opened(browser, browsers.DESK) as context:
        yield context


@pytest.fixture
def phone(phone_context: BrowserContext) -> Page:
    return phone_context.new_page()


@pytest.fixture
def open_profile(playwright: Playwright) -> Iterator[Callable[[Path], BrowserContext]]:
    """Phones whose data stays in a folder: `open_profile(folder)`, `browsers.kill_profile(folder)`, and again."""
    folders: list[Path] = []

    def open_one(folder: Path) -> BrowserContext:
        folders.append(folder)
        return browsers.open_profile(playwright, folder, browsers.PHONE)

    yield open_one
    for folder in folders:
        browsers.kill_profile(folder)


@pytest.fixture
def shoot() -> browsers.Shoot:
    return browsers.shooter()
