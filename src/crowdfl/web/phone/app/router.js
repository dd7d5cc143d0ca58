// Where the person is, as words in the address bar that hold no secret: `#/record/TASK`.

/** @typedef {{ name: string, task: string }} Place */

const OF_A_CAMPAIGN = ["home", "about", "record", "earnings", "details", "leave"];
const OF_THE_PHONE = ["campaigns", "device"];

/** @param {string} hash @returns {Place} `start` where the words say nothing. */
export function placeOf(hash) {
  const [mark, name = "", task = ""] = hash.split("/");
  if (mark === "#" && OF_A_CAMPAIGN.includes(name) && /^[0-9a-f]{1,64}$/.test(task)) return { name, task };
  return { name: mark === "#" && OF_THE_PHONE.includes(name) && !task ? name : "start", task: "" };
}

/** @param {string} name @param {string} [task] */
export const hashOf = (name, task = "") => (task ? `#/${name}/${task}` : `#/${name}`);

/** @param {string} name @param {string} [task] */
export function go(name, task = "") {
  location.hash = hashOf(name, task);
}
