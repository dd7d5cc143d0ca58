// The picture of what leaves the phone, drawn as elements; its description says the same in words.

import { t } from "../../web/common/text.js";

const SPACE = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag @param {Record<string, string | number>} [attributes] @param {...(Node | string)} children
 * @returns {SVGElement}
 */
function draw(tag, attributes = {}, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SPACE, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** @param {number} x @param {number} y @param {string} words @param {string} [kind] */
const write = (x, y, words, kind = "") => draw("text", { x, y, "text-anchor": "middle", class: kind }, words);

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {string} kind */
const box = (x, y, width, height, kind) => draw("rect", { x, y, width, height, rx: 10, class: kind });

/** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
function arrow(x1, y1, x2, y2) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const corner = (/** @type {number} */ turn) => `${x2 - 11 * Math.cos(angle + turn)},${y2 - 11 * Math.sin(angle + turn)}`;
  return draw("g", {},
    draw("line", { x1, y1, x2: x2 - 6 * Math.cos(angle), y2: y2 - 6 * Math.sin(angle), class: "line" }),
    draw("polygon", { points: `${x2},${y2} ${corner(0.45)} ${corner(-0.45)}`, class: "tip" }));
}

/** A curve as of a sensor. @param {number} x @param {number} y */
const wave = (x, y) =>
  draw("path", { d: `M ${x} ${y} q 8 -22 16 0 t 16 0 t 16 0 t 16 0 t 16 0`, class: "wave" });

/** Dots without a pattern, the same each time. @param {number} x @param {number} y */
function noise(x, y) {
  let state = 7 + x;
  const next = (/** @type {number} */ end) => {
    state = (state * 48271) % 2147483647;
    return state % end;
  };
  const dots = Array.from({ length: 60 }, () => draw("circle", { cx: x + next(85), cy: y + next(26), r: 1.6, class: "noise" }));
  return draw("g", {}, ...dots);
}

/** @param {number} fewest The least number of people in an average. */
export function picture(fewest) {
  const described = draw("desc", { id: "picture-words" }, t("picture.words", { count: fewest }));
  const named = draw("title", { id: "picture-title" }, t("picture.title"));
  return draw("svg",
    { viewBox: "0 0 320 440", class: "picture", role: "img", "aria-labelledby": "picture-title picture-words" },
    named, described, phone(), servers(), result(fewest));
}

function phone() {
  return draw("g", {},
    box(40, 6, 240, 128, "own"), write(160, 28, t("picture.phone"), "name"),
    wave(58, 58), write(212, 62, t("picture.recordings")),
    write(160, 90, t("picture.never")),
    write(160, 116, t("picture.training")));
}

function servers() {
  return draw("g", {},
    arrow(120, 136, 74, 186), arrow(200, 136, 246, 186), write(52, 160, t("picture.oneHalf")), write(266, 160, t("picture.otherHalf")),
    box(6, 188, 144, 92, "box"), write(78, 208, t("picture.server", { number: 1 }), "name"), noise(36, 220), write(78, 268, t("picture.noise")),
    box(170, 188, 144, 92, "box"), write(242, 208, t("picture.server", { number: 2 }), "name"), noise(200, 220), write(242, 268, t("picture.noise")));
}

/** @param {number} fewest */
function result(fewest) {
  return draw("g", {},
    arrow(78, 282, 128, 332), arrow(242, 282, 192, 332), write(160, 306, t("picture.sums")),
    box(50, 334, 220, 96, "own"), write(160, 358, t("picture.model"), "name"),
    write(160, 384, t("picture.madeOf", { count: fewest })), write(160, 408, t("picture.everyone")));
}
