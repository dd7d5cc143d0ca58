"""Chromium as tests use it: the one that is installed, with the screen of a phone, or with a profile that survives a kill."""

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 200_000.0  # milliseconds that a page is waited for: long, because a busy machine is slow

PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 740},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
    "locale": "en-GB",
    "timezone_id": "UTC",
    "ignore_https_errors": True,
}
DESK: dict[str, Any] = {
    "viewport": {"width": 1200, "height": 900},
    "locale": "en-GB",
    "timezone_id": "UTC",
    "ignore_https_errors": True,
}
Shoot = Callable[..., Path | None]
_SCRIPT = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
_WORST = ("serious", "critical")
# Its preload of style sheets writes a <style>, which our policy blocks: that would look like a fault of the page.
_RUN = """async () => (await axe.run(document, {resultTypes: ["violations"], preload: false})).violations.map(
  ({id, impact, help, nodes}) => ({id, impact, help, where: nodes.map(node => node.target.join(" "))}))"""
MISSING = "no Chromium was found: install the package `chromium`, or name the program in CROWDFL_CHROMIUM"


def chromium() -> str | None:
    return os.environ.get("CROWDFL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def options() -> dict[str, Any]:
    """How to start it. The flag about certificates is for service workers too, which a context's own option forgets."""
    alone = [] if os.geteuid() else ["--no-sandbox"]  # the sandbox refuses root
    return {"executable_path": chromium(), "args": ["--ignore-certificate-errors", *alone]}


def patient(context: BrowserContext) -> BrowserContext:
    context.set_default_timeout(PATIENCE)
    context.set_default_navigation_timeout(PATIENCE)
    return context


@contextlib.contextmanager
def opened(browser: Browser, look: dict[str, Any], **changes: Any) -> Iterator[BrowserContext]:
    """A fresh profile in a browser that already runs."""
    context = patient(browser.new_context(**(look | changes)))
    try:
        yield context
    finally:
        context.close()


def open_profile(playwright: Playwright, folder: Path, look: dict[str, Any], **changes: Any) -> BrowserContext:
    """A browser of its own, whose data stays in `folder`; close it or `kill_profile` it, then it can be opened again."""
    return patient(playwright.chromium.launch_persistent_context(folder, **(options() | look | changes)))


def processes_of(folder: Path) -> list[int]:
    """The processes of the browser whose data lies in `folder`."""
    wanted = f"--user-data-dir={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if wanted in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def kill_profile(folder: Path) -> int:
    """End that browser as a phone ends when its battery is taken out. How many processes were killed."""
    killed = 0
    while alive := processes_of(folder):
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed += 1
    for lock in ("SingletonLock", "SingletonCookie", "SingletonSocket"):
        (folder / lock).unlink(missing_ok=True)
    return killed


def _in_words(said: ConsoleMessage) -> str:
    return f"console: {said.text} ({said.location['url']})"


def complaints(page: Page) -> list[str]:
    """What goes wrong on a page from now on, as it does: errors of its scripts, what its policy blocked, failed requests."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on("console", lambda said: found.append(_in_words(said)) if said.type == "error" else None)
    return found


def sideways(page: Page) -> int:
    """By how many pixels a page is wider than its window, where people must scroll sideways. Plots follow a new width soon."""
    end = time.monotonic() + PATIENCE / 1000
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    while (found := int(page.evaluate(wider))) and time.monotonic() < end:
        page.wait_for_timeout(20)
    return found


def until(page: Page, expression: str, arg: object = None) -> Any:
    """Wait until it is true. `page.wait_for_function` cannot: the policy of our pages blocks its second try."""
    end = time.monotonic() + PATIENCE / 1000
    while not (value := page.evaluate(expression, arg)):
        assert time.monotonic() < end, f"never became true: {expression}"
        page.wait_for_timeout(20)
    return value


@cache
def _source() -> str:
    if not _SCRIPT.exists():
        pytest.skip("axe-core is missing: run `npm ci`")
    return _SCRIPT.read_text(encoding="utf-8")


def findings(page: Page) -> list[dict[str, Any]]:
    """The serious and critical ones: rule, help, and where. DevTools load axe-core, which no Content-Security-Policy stops."""
    page.evaluate(_source())
    return [one for one in page.evaluate(_RUN) if one["impact"] in _WORST]


def assert_usable_by_all(page: Page) -> None:
    """In words: an element that axe-core names, and the rule that it breaks."""
    found = [f"{one['id']}: {one['help']} ({', '.join(one['where'][:3])})" for one in findings(page)]
    assert found == []


LANGUAGES = ("en", "de", "zh")


def in_language(page: Page, code: str) -> None:
    """As its reader chose it, by the menu or the list above a console."""
    page.evaluate("code => localStorage.setItem('crowdfl language', code)", code)
    page.reload()
    until(page, "code => document.documentElement.lang === code", code)


def assert_spoken(place: Locator, code: str) -> None:
    """What a service says is there in its reader's language."""
    place.wait_for()
    english = re.search(r"\b(the|of|with|at most|which)\b", place.inner_text())
    assert bool(english) is (code == "en"), (code, place.inner_text())


def shoot_console(page: Page, shoot: Shoot, views: dict[str, tuple[str, str]]) -> None:
    """Each view, by its address and what must be there, in every language: wide and light, narrow and dark."""
    for code in LANGUAGES:
        for name, (place, wanted) in views.items():
            page.goto(place)
            in_language(page, code)
            page.locator(wanted).first.wait_for()
            for button in page.locator("#show-learnt").all():
                button.click()
                assert_spoken(page.locator(".learnt tbody"), code)
            for width, scheme in ((1200, "light"), (420, "dark")):
                page.set_viewport_size({"width": width, "height": 900})
                assert sideways(page) == 0, (name, code, width)
                shoot(page, f"{name}-{code}-{scheme}", scheme)
    in_language(page, "en")
    page.set_viewport_size(DESK["viewport"])


def shooter() -> Shoot:
    """Takes pictures where CROWDFL_SCREENSHOTS names a folder for them; hundreds of them would take minutes of each run."""
    named = os.environ.get("CROWDFL_SCREENSHOTS")

    def shoot(page: Page, name: str, scheme: Literal["light", "dark"] = "light", *, whole: bool = True) -> Path | None:
        """The whole page, or the part in the window: `name`.png."""
        if not named:
            return None
        path = Path(named) / f"{name}.png"
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=path, full_page=whole, animations="disabled")
        page.emulate_media(color_scheme="null")
        return path

    return shoot
