// The last seconds of what the sensors say, as lines on a canvas: they are at work.

import { h } from "../../web/common/dom.js";
import { t } from "../../web/common/text.js";

const SHOWN = 250; // samples
const LINES = /** @type {const} */ (["--brand", "--warn", "--good"]);
const DASHES = [[], [6, 3], [2, 3]]; // told apart without colour, too
const RANGE = 2.5; // g, up and down
const CALM = 1000; // milliseconds between two pictures for those who asked for little motion

export class Trace {
  constructor() {
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas.trace", { role: "img", "aria-label": t("record.trace") }));
    /** @type {number[][]} */
    this.kept = [];
    this.waiting = false;
    this.calm = matchMedia("(prefers-reduced-motion)").matches;
  }

  /** @param {number[]} sample */
  add(sample) {
    this.kept.push(sample.slice(0, 3));
    if (this.kept.length > SHOWN) this.kept.shift();
    if (this.waiting) return;
    this.waiting = true;
    const draw = () => this.draw();
    if (this.calm) setTimeout(draw, CALM);
    else requestAnimationFrame(draw);
  }

  draw() {
    this.waiting = false;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const pen = this.canvas.getContext("2d");
    if (!pen || !width) return;
    this.canvas.width = width * devicePixelRatio;
    this.canvas.height = height * devicePixelRatio;
    pen.scale(devicePixelRatio, devicePixelRatio);
    LINES.forEach((colour, axis) => this.line(pen, axis, colour, width, height));
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} axis @param {string} colour @param {number} width @param {number} height */
  line(pen, axis, colour, width, height) {
    pen.beginPath();
    pen.strokeStyle = getComputedStyle(this.canvas).getPropertyValue(colour);
    pen.setLineDash(DASHES[axis]);
    pen.lineWidth = 1.8;
    this.kept.forEach((sample, place) => {
      const high = Math.max(-1, Math.min(1, sample[axis] / RANGE));
      pen.lineTo((place / (SHOWN - 1)) * width, height / 2 - (high * height) / 2);
    });
    pen.stroke();
  }
}
