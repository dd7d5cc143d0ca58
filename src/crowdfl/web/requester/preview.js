// The phone's own invitation, of a task that does not exist yet: the page around this one sends its definition.
import { bestLanguage, language, readAs, speak } from "../web/common/text.js";
import { askedSample } from "../phone/app/answers.js";
import { aboutView } from "../phone/app/views/about.js";

/** @typedef {{ definition: any, code: string }} Shown The definition's body, and its reader's language. */

const TASK = "0".repeat(64);

/** Nobody joins here. */
const nothing = async () => { throw new DOMException("", "AbortError"); };

/** @type {Shown | null} */
let latest = null;

/** @param {Shown} shown */
async function show(shown) {
  const { definition, code: read } = (latest = shown);
  const code = bestLanguage([read]);
  readAs([read]);
  if (code !== language() || !document.querySelector("h1")) {
    const texts = await Promise.all(["web/common", "phone"].map((folder) => import(`./${folder}/text/${code}.js`)));
    if (latest !== shown) return; // files may come in another order than they were asked for
    speak(code, ...texts.map((file) => file.default));
  }
  const campaign = { task: TASK, phase: "invited", definition, refusal: null, closed: null, problem: null, expires: null, sp: location.origin, now: {}, stopped: null };
  const model = { get: () => campaign, look: nothing, join: nothing, forget: nothing, agree: nothing };
  const { element } = aboutView(/** @type {any} */ (model), TASK);
  /** @type {HTMLElement} */ (document.getElementById("view")).replaceChildren(element, ...askedSample(definition));
}

addEventListener("message", ({ origin, data }) => {
  if (origin === location.origin && data?.definition) void show(data);
});
parent.postMessage("ready", location.origin);
