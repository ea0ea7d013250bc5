// The roofline: operations by flops per byte moved and flops per cycle, under the chip's limits.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour } from "../colours.js";
import { short } from "../format.js";

const MARGIN = { left: 64, right: 162, top: 14, bottom: 40 }; // roofs are named at the right
const NAME_HEIGHT = 14;
const REACH = 14; // a point is hit within this many pixels

// options: points [{name, intensity, rate, share}], intensity Infinity where nothing moves;
// peaks [[text, flops per cycle]], bytesPerCycle, label, height, describe(i) → lines, onpick(i)
export class Roofline {
  constructor(options) {
    this.options = options;
    this.chosen = this.pointed = null;
    this.order = options.points.map((_, i) => i).sort((a, b) => this.ranked(a) - this.ranked(b) || a - b);
    this.ranges();
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": options.label });
    this.element = h("div.chart.roofline", { style: { height: `${options.height ?? 300}px` }, "data-points": options.points.length }, this.canvas);
    this.draw = perFrame(() => this.paint());
    this.observer = onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.paint();
    });
    this.listen();
  }

  ranked(i) {
    return Math.min(this.options.points[i].intensity, Number.MAX_VALUE);
  }

  select(i) {
    this.chosen = i;
    this.draw();
  }

  // -- where things are ---------------------------------------------------------------------------

  // Whole decades that hold all points, and the corner of the highest roof.
  ranges() {
    const { points, peaks, bytesPerCycle } = this.options;
    const top = Math.max(...peaks.map(([, peak]) => peak), 1), corner = top / bytesPerCycle;
    const xs = points.map((p) => p.intensity).filter(Number.isFinite), ys = points.map((p) => p.rate);
    this.xs = decades([...xs, corner * 10, corner / 10]);
    this.ys = decades([...ys, top, top / 100]);
  }

  x(intensity) {
    const [low, high] = this.xs, share = (Math.log10(intensity) - low) / (high - low);
    return MARGIN.left + Math.min(1, share) * (this.width - MARGIN.left - MARGIN.right);
  }

  y(rate) {
    const [low, high] = this.ys, share = (Math.log10(rate) - low) / (high - low);
    return this.height - MARGIN.bottom - share * (this.height - MARGIN.top - MARGIN.bottom);
  }

  at(x, y) {
    let result = null, least = REACH;
    this.options.points.forEach((point, i) => {
      const away = Math.hypot(this.x(point.intensity) - x, this.y(point.rate) - y);
      if (away < least) [result, least] = [i, away];
    });
    return result;
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height);
    pen.font = "11px " + colour("font");
    this.paintAxes(pen);
    this.paintRoofs(pen);
    this.options.points.forEach((_, i) => this.paintPoint(pen, i));
    for (const i of [this.pointed, this.chosen]) if (i !== null) this.paintPoint(pen, i, true);
  }

  paintAxes(pen) {
    pen.lineWidth = 1;
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("muted");
    const bottom = this.height - MARGIN.bottom, right = this.width - MARGIN.right;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const power of powers(this.ys, 6)) {
      const y = Math.round(this.y(10 ** power)) + 0.5;
      line(pen, MARGIN.left, y, right, y);
      pen.fillText(decimal(power), MARGIN.left - 8, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const power of powers(this.xs, Math.max(2, this.width / 90))) {
      const x = Math.round(this.x(10 ** power)) + 0.5;
      line(pen, x, MARGIN.top, x, bottom);
      pen.fillText(decimal(power), x, bottom + 7);
    }
    pen.textAlign = "right";
    pen.fillText("flops per byte moved", right, this.height - 14);
    pen.textAlign = "left";
    pen.fillText("flops per cycle", 4, this.height - 14);
  }

  // A slope as steep as the exchange rate, and on it a level for each unit and type.
  paintRoofs(pen) {
    const { peaks, bytesPerCycle } = this.options, right = this.width - MARGIN.right;
    pen.lineWidth = 1.4;
    pen.strokeStyle = colour("exchange");
    const top = Math.max(...peaks.map(([, peak]) => peak)), lowest = Math.max(10 ** this.xs[0], 10 ** this.ys[0] / bytesPerCycle);
    line(pen, this.x(lowest), this.y(lowest * bytesPerCycle), this.x(top / bytesPerCycle), this.y(top));
    pen.strokeStyle = colour("compute");
    pen.fillStyle = colour("muted");
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    let free = 0; // names of roofs that are close are listed below each other
    for (const [text, peak] of peaks) {
      const y = Math.round(this.y(peak)) + 0.5, named = Math.max(y, free);
      line(pen, this.x(peak / bytesPerCycle), y, right, y);
      line(pen, right, y, right + 8, named);
      pen.fillText(`${text}: ${short(peak)}`, right + 12, named);
      free = named + NAME_HEIGHT;
    }
  }

  paintPoint(pen, i, isMarked) {
    const { intensity, rate, share } = this.options.points[i];
    pen.beginPath();
    pen.arc(this.x(intensity), this.y(rate), 3 + 8 * Math.sqrt(share), 0, 2 * Math.PI);
    pen.globalAlpha = isMarked ? 1 : 0.55;
    pen.fillStyle = colour("accent");
    pen.fill();
    pen.globalAlpha = 1;
    pen.lineWidth = isMarked ? 2 : 1;
    pen.strokeStyle = colour(isMarked ? "ink" : "surface");
    pen.stroke();
  }

  // -- pointer and keys ---------------------------------------------------------------------------

  listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      const i = this.at(event.offsetX, event.offsetY);
      this.canvas.style.cursor = i === null ? "" : "pointer";
      this.point(i);
      hint(event, i === null ? null : this.options.describe(i));
    });
    this.canvas.addEventListener("pointerleave", () => {
      hint();
      this.point(null);
    });
    this.canvas.addEventListener("click", (event) => this.pick(this.at(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !this.order.length) return;
      event.preventDefault();
      event.stopPropagation();
      const place = this.order.indexOf(this.chosen), last = this.order.length - 1;
      const next = place >= 0 ? place + step : step > 0 ? 0 : last;
      this.pick(this.order[Math.max(0, Math.min(last, next))]);
    });
  }

  point(i) {
    if (this.pointed === i) return;
    this.pointed = i;
    this.draw();
  }

  pick(i) {
    if (i !== null) this.options.onpick(i);
  }
}

// Flops per cycle or byte: small ones with two digits.
export function rate(value) {
  return value > 0 && value < 10 ? String(Number(value.toPrecision(2))) : short(value);
}

function decades(values) {
  const powers = values.filter((v) => v > 0).map(Math.log10);
  return [Math.floor(Math.min(...powers)), Math.ceil(Math.max(...powers))];
}

// Whole powers of ten in a range, about n of them.
function powers([low, high], n) {
  const step = Math.max(1, Math.ceil((high - low) / n)), result = [];
  for (let power = low; power <= high; power += step) result.push(power);
  return result;
}

function decimal(power) {
  return power < 0 ? (10 ** power).toFixed(-power) : short(10 ** power).replace(/\.0+(?= )/, "");
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}
