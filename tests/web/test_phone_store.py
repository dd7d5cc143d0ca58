"""What only a real browser shows of the phone's agent: keys in IndexedDB that survive a kill, and one tab at a time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web import browsers
from tests.web.pages import WEB, served

PAGE = """<!doctype html><html lang="en"><head><title>Test</title><script type="module" src="/join/test.js"></script></head>
<body><main><h1>Test</h1></main></body></html>"""
SCRIPT = """
import { openStore } from "./agent/store.js";
import { OneTab } from "./agent/tabs.js";
import { newKeys } from "./protocol/keys.js";
import { sign, verify } from "./protocol/signing.js";
const store = await openStore();
const task = "0".repeat(64);
window.invite = () => store.open(task, { task });
window.keep = async () => {
  await store.add(task, "keys", await newKeys(), { "rounds/1/upload": new Uint8Array(300_000).fill(7) });
  return (await store.get(task, "keys")).who;
};
window.kept = async () => {
  const [keys, upload] = [await store.get(task, "keys"), await store.get(task, "rounds/1/upload")];
  const message = new Uint8Array([1, 2, 3]);
  await verify(keys.signingPublic, message, await sign(keys, message));
  const secret = keys.signing.privateKey.extractable || keys.reading.privateKey.extractable;
  return [keys.who, secret, upload.length, upload.every((one) => one === 7)];
};
window.record = () => store.addRecording(task, {
  id: "a", label: "walking", times: Float64Array.of(0, 1), signal: new Float64Array(6), channels: 3 });
window.held = async () => [(await store.keys(task)).length, (await store.listRecordings(task)).length];
window.forget = () => store.forget(task);
window.refused = (act) => act().then(() => null, (error) => error.name);
const tab = new OneTab("crowdfl test", navigator.locks);
window.states = [];
window.run = () => {
  const stop = new AbortController();
  window.stop = () => stop.abort();
  const hold = () => new Promise((resolve) => { states.push("runs"); window.finish = resolve; });
  tab.whenFree(hold, stop.signal, () => states.push("waits")).then(() => states.push("done"), () => states.push("stopped"));
};
window.alone = () => tab.now(async () => "alone").catch((error) => error.name);
window.ready = true;
"""


def _modules() -> dict[str, str]:
    found = [path for name in ("agent", "protocol") for path in (WEB / "phone" / name).glob("*.js")]
    return {f"/join/{path.parent.name}/{path.name}": path.read_text() for path in found}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A page that has the agent's modules where SP serves them."""
    (tmp_path / "pages").mkdir()
    with served(tmp_path / "pages", {"/": PAGE, "/join/test.js": SCRIPT} | _modules()) as address:
        yield address


def _open(page, address):
    page.goto(address)
    browsers.until(page, "window.ready")
    return page


def test_keys_and_uploads_survive_a_killed_browser_and_cannot_be_read(open_profile, address, tmp_path):
    page = _open(open_profile(tmp_path / "phone").new_page(), address)
    page.evaluate("invite()")
    who = page.evaluate("keep()")
    assert browsers.kill_profile(tmp_path / "phone") > 0  # at once after the write: it is on the disk
    page = _open(open_profile(tmp_path / "phone").new_page(), address)
    assert page.evaluate("kept()") == [who, False, 300_000, True]
    assert page.evaluate("keep()") == who  # the first keys stay


def test_what_one_tab_forgets_another_cannot_bring_back(phone_context, address):
    first, second = (_open(phone_context.new_page(), address) for _ in range(2))
    first.evaluate("invite()")
    second.evaluate("keep()")
    second.evaluate("record()")
    assert second.evaluate("held()") == [4, 1]
    first.evaluate("forget()")
    assert [second.evaluate(f"refused({act})") for act in ("keep", "record")] == ["Forgotten", "Forgotten"]
    assert second.evaluate("held()") == [0, 0]


def test_a_closed_tab_makes_way_for_the_next(phone_context, address):
    first, second, third = (_open(phone_context.new_page(), address) for _ in range(3))
    first.evaluate("run()")
    browsers.until(first, "states.length")
    second.evaluate("run()")
    browsers.until(second, "states.length")
    third.evaluate("run()")
    browsers.until(third, "states.length")
    assert [page.evaluate("states") for page in (first, second, third)] == [["runs"], ["waits"], ["waits"]]
    third.evaluate("stop()")
    browsers.until(third, "states.at(-1) === 'stopped'")
    assert third.evaluate("alone()") == "Conflict"
    first.close()
    browsers.until(second, "states.at(-1) === 'runs'")
    second.evaluate("finish()")
    browsers.until(second, "states.at(-1) === 'done'")
    assert third.evaluate("alone()") == "alone"
