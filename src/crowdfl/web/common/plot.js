// Lines over numbers: a picture for those who see it, and the same numbers as a table for everyone.
// A page that draws links vendor/uplot.css and common/style.css.

import uPlot from "../vendor/uplot.js";
import { h, table } from "./dom.js";

/** @typedef {{ name: string, values: readonly (number | null)[] }} Series null: nothing was measured there. */
/**
 * @typedef {object} PlotOptions
 * @property {string} [xLabel]
 * @property {string} [yLabel]
 * @property {readonly [number, number]} [yRange] Fixed ends, such as [0, 1]; by default those of the numbers.
 * @property {(value: number) => string} [xFormat]
 * @property {(value: number) => string} [yFormat]
 */

const COLOURS = ["--brand", "--warn", "--good", "--bad", "--soft"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 8]]; // lines that differ without colour too
const PLAIN = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];

/**
 * A figure that fits its width and follows light and dark. It lets go of everything when it leaves the page.
 * @param {string} title
 * @param {readonly number[]} x Rising.
 * @param {readonly Series[]} series
 * @param {PlotOptions} [options]
 */
export function plot(title, x, series, options = {}) {
  const picture = h("div.plot", { "aria-hidden": "true" });
  const figure = h("figure", null, h("figcaption", null, h("strong", null, title)));
  if (x.length) {
    figure.append(picture, h("details", null, h("summary", null, "The same as a table"), numbers(title, x, series, options)));
    keepDrawn(picture, x, series, options);
  } else {
    figure.append(h("p.soft", null, "nothing yet"));
  }
  return figure;
}

/** @param {string} title @param {readonly number[]} x @param {readonly Series[]} series @param {PlotOptions} options */
function numbers(title, x, series, options) {
  const columns = [options.xLabel ?? "x", ...series.map(({ name }) => name)];
  return table(title, columns, tableRows(x, series, options), { numbers: columns.map((_, place) => place) });
}

/**
 * @param {readonly number[]} x @param {readonly Series[]} series @param {PlotOptions} [options]
 * @returns {string[][]} What the table says, row by row.
 */
export function tableRows(x, series, { xFormat = PLAIN.format, yFormat = PLAIN.format } = {}) {
  const shown = (/** @type {number | null | undefined} */ value) => isNumber(value) ? yFormat(value) : "–";
  return x.map((one, place) => [xFormat(one), ...series.map(({ values }) => shown(values[place]))]);
}

/** @param {readonly number[]} x @param {readonly Series[]} series @returns {uPlot.AlignedData} */
export function aligned(x, series) {
  const column = (/** @type {Series} */ { values }) => x.map((_, place) => isNumber(values[place]) ? values[place] : null);
  return [[...x], ...series.map(column)];
}

/** @param {unknown} value @returns {value is number} */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/**
 * Draw while `picture` is on the page: its size says when it comes, changes and goes.
 * @param {HTMLElement} picture @param {readonly number[]} x @param {readonly Series[]} series @param {PlotOptions} options
 */
function keepDrawn(picture, x, series, options) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  /** @type {uPlot | null} */
  let chart = null;
  const recolour = () => chart?.redraw(false, true);
  const remove = () => {
    dark.removeEventListener("change", recolour);
    chart?.destroy();
    chart = null;
  };
  const draw = () => {
    chart = new uPlot({ ...looks(picture, x, series, options), ...sizeOf(picture) }, aligned(x, series), picture);
    dark.addEventListener("change", recolour);
  };
  new ResizeObserver(() => {
    if (!picture.isConnected) remove();
    else if (chart) chart.setSize(sizeOf(picture));
    else draw();
  }).observe(picture);
}

/** @param {HTMLElement} picture */
function sizeOf(picture) {
  const width = Math.max(picture.clientWidth, 200);
  return { width, height: Math.round(Math.min(Math.max(width * 0.5, 180), 320)) };
}

/**
 * @param {HTMLElement} picture @param {readonly number[]} x @param {readonly Series[]} series @param {PlotOptions} options
 * @returns {Omit<uPlot.Options, "width" | "height">}
 */
function looks(picture, x, series, { xLabel, yLabel, yRange, xFormat = PLAIN.format, yFormat = PLAIN.format }) {
  const colour = (/** @type {string} */ name) => () => getComputedStyle(picture).getPropertyValue(name).trim();
  const line = (/** @type {Series} */ { name }, /** @type {number} */ place) => ({
    label: name,
    stroke: colour(COLOURS[place % COLOURS.length]),
    dash: DASHES[place % DASHES.length],
    width: 2,
    points: { size: 6 },
    value: (/** @type {uPlot} */ _, /** @type {number | null} */ value) => isNumber(value) ? yFormat(value) : "–",
  });
  const lines = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--soft"), grid: lines, ticks: lines, font: "13px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif" };
  return {
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, y: yRange ? { range: [yRange[0], yRange[1]] } : {} },
    axes: [
      { ...axis, label: xLabel, ...(x.every(Number.isInteger) ? { incrs: STEPS } : {}), values: (_, splits) => splits.map(xFormat) },
      { ...axis, label: yLabel, size: 60, values: (_, splits) => splits.map(yFormat) },
    ],
    series: [{ label: xLabel ?? "x", value: (_, value) => isNumber(value) ? xFormat(value) : "–" }, ...series.map(line)],
  };
}
