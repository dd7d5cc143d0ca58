// Where the person is, as words in the address bar that hold no secret: `#/record/TASK`.

/** @typedef {{ name: string, task: string }} Place */

/** Views of one campaign, in the order of the navigation, and what they are called there. */
export const CAMPAIGN_VIEWS = /** @type {const} */ ({
  about: "About",
  record: "Record",
  rounds: "Rounds",
  rewards: "Rewards",
  settings: "Leave",
});

/** @param {string} hash @returns {Place} The list of campaigns where the words say nothing else. */
export function placeOf(hash) {
  const [mark, name = "", task = ""] = hash.split("/");
  const known = mark === "#" && Object.hasOwn(CAMPAIGN_VIEWS, name) && /^[0-9a-f]{1,64}$/.test(task);
  if (known) return { name, task };
  return { name: hash === "#/device" ? "device" : "campaigns", task: "" };
}

/** @param {string} name @param {string} [task] */
export const hashOf = (name, task = "") => (task ? `#/${name}/${task}` : `#/${name}`);

/** @param {string} name @param {string} [task] */
export function go(name, task = "") {
  location.hash = hashOf(name, task);
}
