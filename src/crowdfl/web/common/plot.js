// Lines over numbers: a picture for those who see it, and the same numbers as a table for everyone.
// A page that draws links common/style.css and common/plot.css.

import uPlot from "../vendor/uplot.js";
import { h, table } from "./dom.js";
import { locale, t } from "./text.js";

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
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 8]]; // lines that differ without colour too: as in plot.css
const plain = (/** @type {number} */ value) => new Intl.NumberFormat(locale(), { maximumSignificantDigits: 6 }).format(value);
const FONT = "13px system-ui, sans-serif";
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];

/**
 * A figure that fits its width and follows light and dark. It lets go of everything when it leaves the page.
 * @param {string} title @param {readonly number[]} x Rising. @param {readonly Series[]} series
 * @param {PlotOptions} [options]
 */
export function plot(title, x, series, options = {}) {
  const picture = h("div.plot", { "aria-hidden": "true" });
  const figure = h("figure", null, h("figcaption", null, h("strong", null, title)));
  if (x.length) {
    const words = h("details", null, h("summary", null, t("shell.table")), numbers(title, x, series, options));
    figure.append(...legend(series), picture, words);
    keepDrawn(picture, x, series, options);
  } else {
    figure.append(h("p.soft", null, t("common.nothing")));
  }
  return figure;
}

/** Which line is which; the table says it to those who do not see it. @param {readonly Series[]} series */
function legend(series) {
  const names = series.map(({ name }, place) => h(`li.line-${place % COLOURS.length}`, null, name));
  return series.length > 1 ? [h("ul.plot-lines", { "aria-hidden": "true" }, ...names)] : [];
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
export function tableRows(x, series, { xFormat = plain, yFormat = plain } = {}) {
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
  const remove = () => {
    dark.removeEventListener("change", redraw);
    chart?.destroy();
    chart = null;
  };
  const draw = () => {
    chart = new uPlot({ ...optionsOf(picture, x, series, options), ...sizeOf(picture) }, aligned(x, series), picture);
    dark.addEventListener("change", redraw);
  };
  const redraw = () => {
    remove();
    draw();
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
  return { width, height: Math.round(Math.min(Math.max(width * 0.6, 200), 320)) };
}

/** Room for the longest number beside the axis. @param {uPlot} _ @param {string[] | null} values */
const widest = (_, values) => 20 + 8 * Math.max(2, ...(values ?? []).map((text) => text.length));

/**
 * @param {HTMLElement} picture @param {readonly number[]} x @param {readonly Series[]} series @param {PlotOptions} options
 * @returns {Omit<uPlot.Options, "width" | "height">}
 */
function optionsOf(picture, x, series, { xLabel, yLabel, yRange, xFormat = plain, yFormat = plain }) {
  const colour = (/** @type {string} */ name) => () => getComputedStyle(picture).getPropertyValue(name).trim();
  const line = (/** @type {Series} */ { name }, /** @type {number} */ place) => ({
    label: name,
    stroke: colour(COLOURS[place % COLOURS.length]),
    dash: DASHES[place % DASHES.length],
    width: 2,
    points: { size: 6, fill: colour(COLOURS[place % COLOURS.length]) },
  });
  const lines = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--soft"), grid: lines, ticks: lines, font: FONT, labelFont: FONT, labelSize: 20 };
  const steps = x.every(Number.isInteger) ? { incrs: STEPS } : {};
  return {
    cursor: { show: false },
    legend: { show: false },
    scales: { x: { time: false }, y: yRange ? { range: [yRange[0], yRange[1]] } : {} },
    axes: [
      { ...axis, label: xLabel, size: 36, ...steps, values: (_, splits) => splits.map(xFormat) },
      { ...axis, label: yLabel, size: widest, values: (_, splits) => splits.map(yFormat) },
    ],
    series: [{}, ...series.map(line)],
  };
}
