// In place of join/app/model.js: campaigns that a test has put into `window.given`, and a note of what the page asked for.

/** @type {any} */
const page = globalThis;

/** @param {any} value Texts that end with n are whole numbers of any size, as JSON has none. @returns {any} */
function revived(value) {
  if (typeof value === "string" && /^\d+n$/.test(value)) return BigInt(value.slice(0, -1));
  if (Array.isArray(value)) return value.map(revived);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, revived(one)]));
  return value;
}

/** @returns {Promise<import("#web/phone/app/types.js").Model>} */
export async function openModel() {
  const given = revived(page.given ?? { campaigns: [], recordings: [] });
  /** @type {Set<() => void>} */
  const listeners = new Set();
  const tell = () => listeners.forEach((listener) => listener());
  /** @type {unknown[][]} */
  const asked = (page.asked = []);
  const note = (/** @type {string} */ name) => async (/** @type {unknown[]} */ ...details) => {
    asked.push([name, ...details]);
    if (given.fails?.[name]) throw Object.assign(new Error(given.fails[name]), { name: "Refused" });
  };
  const find = (/** @type {string} */ task) => given.campaigns.find((/** @type {any} */ one) => one.task === task);
  page.change = (/** @type {string} */ task, /** @type {object} */ changes) => {
    Object.assign(find(task), revived(changes));
    tell();
  };
  page.kept = given.recordings;
  return {
    campaigns: () => given.campaigns,
    lost: () => given.lost ?? [],
    forgetLost: () => {
      given.lost = [];
      tell();
    },
    get: find,
    accept: async (fragment) => {
      await note("accept")(fragment);
      return given.campaigns[0].task;
    },
    look: note("look"),
    join: async (task, least, agreed) => {
      await note("join")(task, least, agreed);
      page.change(task, { phase: "joined" });
    },
    leave: async (task) => {
      await note("leave")(task);
      page.change(task, { phase: "left" });
    },
    withdraw: async (task) => {
      await note("withdraw")(task);
      page.change(task, { phase: "left", withdrawn: { at: 0, deleted: [3], standing: [1, 2] } });
      return { told: true };
    },
    consentCopy: async () => ({ name: "consent-0123.json", text: "{}" }),
    ownData: async () => ({ name: "my-data-0123.json", text: "{}" }),
    evidence: async () => ({ name: "evidence-0123.json", text: "{}" }),
    payKinds: note("payKinds"),
    payTo: async (task, kind, to) => {
      (await import(/** @type {string} */ ("./agent/pay_to.js"))).checkDestination(kind, to);
      await note("payTo")(task, kind, to);
      page.change(task, { payTo: { ...find(task).payTo, kind, to, state: "sent" } });
    },
    reminderState: async () => given.reminders ?? "unsupported",
    remind: async (task, words) => {
      await note("remind")(task, words.opened.title);
      given.reminders = "on";
      page.change(task, { reminders: true });
      return "on";
    },
    stopReminding: async (task) => {
      await note("stopReminding")(task);
      page.change(task, { reminders: false });
    },
    forget: async (task) => {
      await note("forget")(task);
      given.campaigns = given.campaigns.filter((/** @type {any} */ one) => one.task !== task);
      tell();
    },
    forgetAll: async () => {
      await note("forgetAll")();
      given.campaigns = [];
      tell();
    },
    claim: note("claim"),
    retry: note("retry"),
    windows: async () => given.windows ?? null,
    contribute: async (task) => {
      await note("contribute")(task);
      page.kept = page.kept.map((/** @type {any} */ one) => ({ ...one, said: true }));
      page.change(task, { contributed: page.kept.length });
    },
    recordings: async () => page.kept.map((/** @type {any} */ { signal: _, times: __, ...shown }) => shown),
    keep: async (task, { times, signal, ...rest }, whole) => {
      const seconds = times[times.length - 1] - times[0];
      const made = { ...rest, seconds, samples: times.length, at: Date.parse(rest.id.split(" ")[0]), said: false, times: [...times], signal: [...signal], whole };
      page.kept = [...page.kept.filter((/** @type {any} */ one) => one.id !== rest.id), made];
    },
    changeRecording: async (task, id, about) => {
      await note("changeRecording")(task, id, about);
      page.kept = page.kept.map((/** @type {any} */ one) => (one.id === id ? { ...one, ...about } : one));
    },
    importCsv: async (task, name, text) => {
      await note("importCsv")(task, name, text);
      return `${name}: 1 recording.`;
    },
    deleteRecording: async (task, id) => {
      await note("deleteRecording")(task, id);
      page.kept = page.kept.filter((/** @type {any} */ one) => one.id !== id);
    },
    persisted: async () => true,
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
