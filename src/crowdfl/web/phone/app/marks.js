// Which campaigns this phone has joined, noted outside of the database that holds them: a browser may delete that one alone, and
// the page can then say that something is gone.

const KEPT = "crowdfl.campaigns"; // in localStorage

/** @returns {string[]} */
export function marked() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found.filter((task) => typeof task === "string") : [];
  } catch {
    return []; // a browser may refuse it, and anything may have been written
  }
}

/** @param {readonly string[]} tasks */
export function mark(tasks) {
  try {
    if (tasks.length) localStorage.setItem(KEPT, JSON.stringify(tasks));
    else localStorage.removeItem(KEPT);
  } catch {
    // without it a loss is not noticed
  }
}
