// Parts of a view that are drawn again when their data changes, without taking anything out of the reader's hands.

/** @typedef {{ id: string, needs: readonly string[], draw: () => Node[] }} Panel `needs`: the sections that it shows. */

/** Draw a panel into its place; focus, open details and sideways scrolling stay. @param {Panel} panel */
export function redraw(panel) {
  const place = document.getElementById(panel.id);
  if (!place) return;
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const keep = { focus: focused && pathTo(place, focused), open: opened(place), left: regions(place).map((one) => one.scrollLeft) };
  place.replaceChildren(...panel.draw());
  for (const id of keep.open) document.getElementById(id)?.setAttribute("open", "");
  regions(place).forEach((one, number) => { one.scrollLeft = keep.left[number] ?? 0; });
  if (keep.focus) found(place, keep.focus)?.focus({ preventScroll: true });
}

/** @param {Element} place @returns {HTMLElement[]} */
const regions = (place) => [...place.querySelectorAll(".scroll")].map((one) => /** @type {HTMLElement} */ (one));

/** @param {Element} place */
const opened = (place) => [...place.querySelectorAll("details[open][id]")].map((one) => one.id);

/** By its id, else by its label: what is drawn anew is another element. @param {Element} place @param {Element} element */
function pathTo(place, element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  const label = element.getAttribute("aria-label");
  if (label) return `[aria-label="${CSS.escape(label)}"]`;
  return element.tagName === "SUMMARY" && element.parentElement?.id && place.contains(element)
    ? `#${CSS.escape(element.parentElement.id)} > summary` : null;
}

/** @param {Element} place @param {string} path */
const found = (place, path) => /** @type {HTMLElement | null} */ (place.querySelector(path));
