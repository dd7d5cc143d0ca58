// What the console makes of server-sent events, with an EventSource that the test plays.
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Live } from "#web/console/live.js";
import { speak } from "#web/common/text.js";
import english from "#web/console/text/en.js";
import { eventText } from "#web/console/messages.js";

/** @type {FakeSource[]} */
let sources = [];

class FakeSource extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  /** @param {string} url */
  constructor(url) {
    super();
    this.url = url;
    sources.push(this);
  }
  /** @param {string} event @param {object} data */
  say(event, data = {}) {
    this.dispatchEvent(Object.assign(new Event(event), { data: JSON.stringify(data) }));
  }
  close() {
    this.readyState = FakeSource.CLOSED;
  }
}

/** @type {{ links: string[], names: string[][] }} */
let seen;
let session = true;
const live = () => new Live((names) => seen.names.push(names), (link) => seen.links.push(link), async () => session);
const last = () => sources[sources.length - 1];
const settled = () => new Promise((done) => setImmediate(done));

beforeEach(() => {
  [sources, seen, session] = [[], { links: [], names: [] }, true];
  Object.assign(globalThis, { EventSource: FakeSource });
  mock.timers.enable({ apis: ["setTimeout"] });
});
afterEach(() => mock.timers.reset());

test("a snapshot replaces everything, a change alters rows", () => {
  const found = live();
  last().say("snapshot", { tasks: { a: { x: 1 }, b: { x: 2 } }, news: {} });
  assert.deepEqual(found.rows("tasks"), [{ x: 1 }, { x: 2 }]);
  last().say("change", { tasks: { changed: { a: { x: 3 }, c: { x: 4 } }, gone: ["b"] } });
  assert.deepEqual(found.rows("tasks"), [{ x: 3 }, { x: 4 }]);
  assert.deepEqual(found.row("tasks", "c"), { x: 4 });
  last().say("snapshot", { tasks: {} });
  assert.deepEqual([found.rows("tasks"), found.rows("news")], [[], []]);
  assert.deepEqual(seen.names, [["tasks", "news"], ["tasks"], ["tasks"]]);
});

test("the browser's own attempts are left alone", async () => {
  live();
  last().readyState = 0;
  last().dispatchEvent(new Event("error"));
  await settled();
  mock.timers.tick(60_000);
  assert.equal(sources.length, 1);
  assert.equal(seen.links.at(-1), "connecting");
});

test("after a refusal it tries again while there is a session", async () => {
  live();
  last().readyState = 2;
  last().dispatchEvent(new Event("error"));
  await settled();
  mock.timers.tick(60_000);
  assert.equal(sources.length, 2);
});

test("after a refusal without a session it ends", async () => {
  live();
  session = false;
  last().readyState = 2;
  last().dispatchEvent(new Event("error"));
  await settled();
  mock.timers.tick(60_000);
  assert.deepEqual([sources.length, seen.links.at(-1)], [1, "ended"]);
});

test("a session that ends closes the stream, and a late error of it changes nothing", async () => {
  live();
  const source = last();
  source.say("ended");
  source.dispatchEvent(new Event("error"));
  await settled();
  mock.timers.tick(60_000);
  assert.deepEqual([sources.length, source.readyState, seen.links.at(-1)], [1, 2, "ended"]);
});

test("a store that is away is said, and forgotten with the next snapshot", () => {
  live();
  last().say("trouble");
  assert.equal(seen.links.at(-1), "trouble");
  last().say("snapshot", {});
  assert.equal(seen.links.at(-1), "live");
});

test("events are said in words, those of a newer server by their name", () => {
  speak("en", english);
  assert.equal(eventText({ event: "round closed", number: 3 }), "Round 3 closed");
  assert.equal(eventText({ event: "uploads rejected", number: 2, uploads: 1 }), "Round 2: 1 upload rejected");
  assert.equal(eventText({ event: "something new" }), "something new");
});
