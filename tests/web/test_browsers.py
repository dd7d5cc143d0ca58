"""What tests of pages rely on: sensors that move, a policy that blocks, profiles that survive a kill."""

import math

import pytest

from tests.web import axe, browsers, motion
from tests.web.pages import served

PAGE = """<!doctype html><html lang="en"><head><title>Test</title><script type="module" src="/test.js"></script></head>
<body><main><h1>Test</h1></main></body></html>"""
LISTEN = """window.seen = [];
addEventListener("devicemotion", ({timeStamp, accelerationIncludingGravity: a, rotationRate: r}) =>
  seen.push([timeStamp, a.x, a.y, a.z, r.alpha, r.beta, r.gamma]));"""
NUMBER = """export const opened = new Promise(done => {
  const asked = indexedDB.open("test", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("numbers");
  asked.onsuccess = () => done(asked.result);
});
const within = async (work) => {
  const transaction = (await opened).transaction("numbers", "readwrite");
  const asked = work(transaction.objectStore("numbers"));
  return new Promise(done => { transaction.oncomplete = () => done(asked.result); });
};
window.keep = (value) => within(store => store.put(value, "it"));
window.kept = () => within(store => store.get("it"));
window.ready = true;"""
WORKER = """navigator.serviceWorker.register("/service-worker.js").then(() => { window.ready = "registered"; },
  error => { window.ready = String(error); });"""


@pytest.fixture
def page_with(tmp_path_factory):
    """Serve a page with a script."""

    def serve(script, **others):
        return served(tmp_path_factory.mktemp("pages"), {"/": PAGE, "/test.js": script} | others)

    return serve


def test_sensors_replay_samples_in_order(phone, page_with):
    with page_with(LISTEN) as address:
        sensors = motion.Motion(phone)
        phone.goto(address)
        motion.replay({sensors: [(0.1 * step, 0.0, 1.0, 0.0, 0.0, 0.1 * step) for step in range(10)]}, hertz=20)
        browsers.until(phone, "seen.length && seen.at(-1)[1] > 8.7 && seen.at(-1)[6] > 51")
        seen = phone.evaluate("seen")
    times = [one[0] for one in seen]
    pulls = [one[1] for one in seen]
    assert times == sorted(times)
    assert pulls == sorted(pulls)
    last = (0.9 * motion.STANDARD_GRAVITY, 0.0, motion.STANDARD_GRAVITY, 0.0, 0.0, math.degrees(0.9))
    assert seen[-1][1:] == pytest.approx(last, abs=motion.RESOLUTION)


def test_the_policy_blocks_what_it_should_and_the_test_sees_it(phone, page_with):
    with page_with(
        "const s = document.createElement('style'); s.textContent = 'p {}'; document.head.append(s);"
    ) as address:
        found = browsers.complaints(phone)
        phone.goto(address)
        phone.wait_for_selector("h1")
        browsers.until(phone, "document.querySelector('style') !== null")
    assert any("Content Security Policy" in one for one in found)


def test_a_killed_browser_keeps_what_it_had_stored(open_profile, page_with, tmp_path):
    with page_with(NUMBER) as address:
        page = open_profile(tmp_path).new_page()
        page.goto(address)
        browsers.until(page, "window.ready")
        page.evaluate("keep(42)")
        assert browsers.kill_profile(tmp_path) > 0
        page = open_profile(tmp_path).new_page()
        page.goto(address)
        browsers.until(page, "window.ready")
        assert page.evaluate("kept()") == 42


def test_a_service_worker_may_be_registered_with_a_certificate_of_the_tests(phone, page_with):
    with page_with(WORKER, **{"/service-worker.js": "// nothing"}) as address:
        phone.goto(address)
        browsers.until(phone, "window.ready")
        assert phone.evaluate("ready") == "registered"


def test_axe_finds_what_keeps_people_out(phone, page_with):
    with page_with("document.querySelector('main').append(document.createElement('button'));") as address:
        phone.goto(address)
        phone.wait_for_selector("button")
        assert [one["id"] for one in axe.findings(phone)] == ["button-name"]
        phone.evaluate("document.querySelector('button').textContent = 'Join'")
        axe.assert_usable_by_all(phone)


def test_pictures_are_taken_whole_in_light_and_dark(phone, page_with, shoot):
    with page_with("document.querySelector('main').append(document.createElement('hr'));") as address:
        phone.goto(address)
        phone.wait_for_selector("hr")
        taken = [shoot(phone, f"test-{scheme}", scheme).read_bytes() for scheme in ("light", "dark")]
    assert all(one.startswith(b"\x89PNG") for one in taken)
