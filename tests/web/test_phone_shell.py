"""What the phone keeps to open without a network: the list in its service worker, and what the worker does with it."""

import base64
import json
import re
import time
from functools import cache
from pathlib import Path
from urllib.parse import urljoin

import pytest
from fastapi import FastAPI
from playwright.sync_api import expect

from crowdfl.services.server import running
from crowdfl.settings import KgcSettings
from crowdfl.web.pages import Asset, add_static, page_assets, page_version, phone_assets, phone_headers, with_list
from tests.web import browsers

WORKER = "service-worker.js"
_IMPORT = re.compile(r"""(?:\bfrom|(?:await|=>) import\(|new URL\()\s*["'](\.{1,2}/[^"']+)["'](?!, location)""")
_LINK = re.compile(r"""(?:href|src)="([^"#]+)\"""")


@cache
def served() -> dict[str, Asset]:
    return {f"{place}/{name}": asset for place, files in phone_assets().items() for name, asset in files.items()}


@cache
def listed() -> dict[str, str]:
    """The paths that the service worker keeps, and the hashes."""
    found = re.search(r"const \[VERSION, FILES\] = (.*);", served()[f"/join/{WORKER}"].body.decode())
    return {urljoin("/join/", name): digest for name, digest in json.loads(found[1])[1]}


def test_everything_that_is_served_for_the_page_is_kept():
    """With its hash; but for the worker itself, notes about libraries, and modules that the page loads in few files."""
    unused = {path for path in served() if Path(path).suffix in ("", ".json")} | {f"/join/{WORKER}"}
    unused |= {path for path in served() if path.endswith(".js") and path.count("/") > 2 and "/text/" not in path}
    files = {path: asset for path, asset in served().items() if path not in unused}
    files["/join/"] = files["/join/index.html"]
    hashes = {path: base64.b64encode(bytes.fromhex(asset.digest)).decode() for path, asset in files.items()}
    assert listed() == {path: f"sha256-{digest}" for path, digest in hashes.items()}


def test_nothing_that_the_page_loads_is_missing_from_the_list():
    """Imports, workers, icons and styles all lead to files that are kept, so that nobody else is asked."""
    wanted = {
        urljoin(path, name)
        for path, asset in served().items()
        if path.endswith(".js") and path in listed()
        for name in _IMPORT.findall(asset.body.decode())
    }
    wanted |= {urljoin("/join/", name) for name in _LINK.findall(served()["/join/index.html"].body.decode())}
    assert {path for path in wanted if path not in listed()} == set()
    assert {"/join/page.js", "/join/model.js", "/join/training.js", "/join/phone.css"} <= wanted


def test_no_script_of_the_page_makes_markup_from_text():
    """Nor runs any: a strict policy is the second line, not the first."""
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
    own = {
        path: asset.body.decode() for path, asset in served().items() if path.endswith(".js") and "/vendor/" not in path
    }
    assert [path for path, text in own.items() if forbidden.search(text)] == []
    page = served()["/join/index.html"].body.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page)


@pytest.fixture
def site(tmp_path):
    """The page alone, whose files a test can change: the address, and the files."""
    app, files = FastAPI(), {place: dict(assets) for place, assets in phone_assets().items()}
    for place, assets in files.items():
        add_static(app, place, assets, lambda: phone_headers(()))
    settings = KgcSettings(data=tmp_path, host="127.0.0.1", port=0, plain_http=True)
    with running(app, settings) as address:
        yield f"{address}/join/", files


def change(files, name, old, new):
    """One file of the page, as after an update."""
    asset = files["/join"][name]
    assert old in asset.body
    files["/join"][name] = Asset(asset.body.replace(old, new), asset.media_type)


def caches(page):
    script = """async () => { const found = {};
      for (const name of (await caches.keys()).filter(one => one.startsWith("crowdfl page "))) {
        const kept = await (await caches.open(name)).keys();
        found[name] = kept.map(({ url }) => new URL(url).pathname);
      }
      return found; }"""
    return page.evaluate(script)


def until_kept(page, count=1):
    end = time.monotonic() + browsers.PATIENCE / 1000
    while sorted(len(paths) for paths in caches(page).values()) != [len(listed())] * count:
        assert time.monotonic() < end, caches(page)
        page.wait_for_timeout(100)
    assert all(set(paths) == listed().keys() for paths in caches(page).values())


def test_the_page_opens_without_a_network_after_its_first_visit(phone_context, site):
    """Under the same strict policy, and from the files that were kept."""
    address, _ = site
    page = phone_context.new_page()
    page.goto(address)
    expect(page.get_by_text("No invitation yet")).to_be_visible()
    until_kept(page)
    page.evaluate("navigator.serviceWorker.ready")
    phone_context.set_offline(True)
    page = phone_context.new_page()
    complaints = browsers.complaints(page)
    answer = page.goto(f"{address}#/device")
    expect(page.get_by_role("heading", level=1)).to_have_text("This phone")
    expect(page.get_by_text("No connection. You can record")).to_be_visible()
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert [one for one in complaints if "ERR_INTERNET_DISCONNECTED" not in one] == []


def test_a_new_version_is_offered_and_then_replaces_the_old_one_whole(phone_context, site):
    address, files = site
    page = phone_context.new_page()
    page.goto(address)
    until_kept(page)
    page.evaluate("navigator.serviceWorker.ready")
    (before,) = caches(page)
    change(files, "index.html", b"<title>CrowdFL</title>", b"<title>CrowdFL</title><!-- new -->")
    files["/join"][WORKER] = page_assets("phone", "/join")["/join"][WORKER]
    files["/join"][WORKER] = with_list(files)["/join"][WORKER]
    page.reload()  # still the old version
    until_kept(page, 2)
    assert "<!-- new -->" not in page.content()
    expect(page.get_by_text("A new version of this page is here.")).to_be_visible()
    with page.expect_navigation():
        page.get_by_role("button", name="Use it").click()
    expect(page.get_by_text("No invitation yet")).to_be_visible()
    assert "<!-- new -->" in page.content()
    until_kept(page)
    assert before not in caches(page)


VERSIONS = """() => new Promise((done) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }) => done([data.running, data.newest]);
  navigator.serviceWorker.controller.postMessage("which", [port2]); })"""


def test_a_version_that_nobody_has_accepted_is_not_opened_when_the_last_tab_was_closed(phone_context, site):
    """The browser starts the new worker then: it serves the version that its owner has, and says both."""
    address, files = site
    page = phone_context.new_page()
    page.goto(address)
    until_kept(page)
    page.evaluate("navigator.serviceWorker.ready")
    change(files, "index.html", b"<title>CrowdFL</title>", b"<title>CrowdFL</title><!-- new -->")
    files["/join"][WORKER] = page_assets("phone", "/join")["/join"][WORKER]
    files["/join"][WORKER] = with_list(files)["/join"][WORKER]
    page.reload()
    until_kept(page, 2)
    beside = phone_context.new_page()
    beside.goto(f"{address.removesuffix('join/')}web/common/style.css")  # no page of the worker's
    page.close()
    browsers.until(beside, "async () => !(await navigator.serviceWorker.getRegistration('/join/')).waiting")
    page = phone_context.new_page()
    for _ in range(2):
        page.goto(f"{address}#/device")
        expect(page.get_by_text("A new version of this page is here.")).to_be_visible()
        assert "<!-- new -->" not in page.content()
        assert page.evaluate(VERSIONS) == [page_version(phone_assets()), page_version(files)]
    expect(page.locator(".facts code").nth(0)).to_have_text(grouped(page_version(phone_assets())))
    expect(page.locator(".facts code").nth(1)).to_have_text(grouped(page_version(files)))
    assert len(caches(page)) == 2
    with page.expect_navigation():
        page.get_by_role("button", name="Use it").click()
    browsers.until(page, "document.documentElement.outerHTML.includes('<!-- new -->')")
    expect(page.locator(".facts code")).to_have_text([grouped(page_version(files))])
    until_kept(page)
    assert page.evaluate(VERSIONS) == [page_version(files)] * 2


def grouped(version):
    return " ".join(re.findall("....", version))


def test_a_file_that_is_not_the_listed_one_is_not_kept(phone_context, site):
    """As behind a hotel's login page. The page itself works, and tries again next time."""
    address, files = site
    change(files, "phone.css", b"main {", b"main  {")
    page = phone_context.new_page()
    page.goto(address)
    expect(page.get_by_text("No invitation yet")).to_be_visible()
    install = """async () => {
      const { installing, active } = await navigator.serviceWorker.register("service-worker.js");
      const worker = installing ?? active;
      const ended = () => ["activated", "redundant"].includes(worker.state);
      while (!ended()) await new Promise((done) => worker.addEventListener("statechange", done, { once: true }));
      return worker.state; }"""
    assert page.evaluate(install) == "redundant"


def test_a_reminder_is_shown_in_the_words_that_the_page_has_kept(phone_context, site):
    """As Chromium's own test interface delivers it: no vendor's push service is asked."""
    address, _ = site
    origin = address.removesuffix("/join/")
    phone_context.grant_permissions(["notifications"], origin=origin)
    page = phone_context.new_page()
    page.goto(address)
    page.evaluate("navigator.serviceWorker.ready")
    session, registrations = phone_context.new_cdp_session(page), []
    session.on("ServiceWorker.workerRegistrationUpdated", lambda found: registrations.extend(found["registrations"]))
    session.send("ServiceWorker.enable")
    browsers.until(page, "() => true")
    words = {"opened": {"title": "Eine Runde ist offen", "body": "Bis 18 Uhr"}}
    page.evaluate("async (words) => (await import('/join/agent/reminders.js')).keepWords(words)", words)
    (identity,) = {one["registrationId"] for one in registrations if not one["isDeleted"]}
    push = {"origin": origin, "registrationId": identity}
    shown = "async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(n => [n.title, n.body])"
    for data, expected in (("opened", ["Eine Runde ist offen", "Bis 18 Uhr"]), ("from elsewhere", ["CrowdFL", ""])):
        session.send("ServiceWorker.deliverPushMessage", push | {"data": data})
        browsers.until(
            page, f"async () => JSON.stringify(await ({shown})()) === '{json.dumps([expected])}'.replaceAll(', ', ',')"
        )
    phone_context.service_workers[0].evaluate(
        """async () => {
          const [notification] = await self.registration.getNotifications();
          self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
        }"""
    )
    browsers.until(page, f"async () => (await ({shown})()).length === 0")
    assert page.evaluate(shown) == []
