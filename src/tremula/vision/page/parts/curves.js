// Curves over a constant of the chip, and bars of each point's parts: few points, so SVG.

import { drawn, h, hint, onSize, perFrame, replace } from "../dom.js";
import { ticks, whole } from "../format.js";

const MARGIN = { left: 72, right: 30, top: 16, bottom: 38 };
const LABEL_WIDTH = 74;

// options: label, xName, xFormat, yFormat, yTicks, height,
// series [{name, colour, isDashed, points: [{x, y, isBad, row}]}], describe(x) → lines, onpick(x), chosen
export class Curves {
  constructor(options) {
    this.options = options;
    this.cursor = null;
    this.element = h("div.chart.curves", {
      tabIndex: 0, role: "img", "aria-label": options.label, style: { height: `${options.height ?? 250}px` },
      onkeydown: (event) => this.key(event), onblur: () => this.leave(),
    });
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.paint();
    });
    this.element.addEventListener("pointermove", (event) => this.point(this.nearest(event), event));
    this.element.addEventListener("pointerleave", () => this.leave());
    this.element.addEventListener("click", (event) => this.options.onpick?.(this.nearest(event)));
  }

  update(options) {
    Object.assign(this.options, options);
    this.cursor = null;
    this.element.setAttribute("aria-label", this.options.label);
    this.draw();
  }

  arrange() {
    const all = this.options.series.flatMap((one) => one.points);
    this.xs = [...new Set(all.map((p) => p.x))].sort((a, b) => a - b);
    const [low, high] = [this.xs[0], this.xs.at(-1)];
    const isLog = low > 0 && high / low > 5;
    const place = (x) => (isLog ? Math.log(x / low) / Math.log(high / low) : high > low ? (x - low) / (high - low) : 0.5);
    this.x = (x) => MARGIN.left + 14 + place(x) * (this.width - MARGIN.left - MARGIN.right - 28);
    this.top = Math.max(...all.map((p) => p.y), 1e-12) * 1.08;
    this.y = (y) => this.height - MARGIN.bottom - (y / this.top) * (this.height - MARGIN.top - MARGIN.bottom);
  }

  paint() {
    if (!this.width || !this.options.series.some((one) => one.points.length)) return;
    this.arrange();
    const { width, height } = this;
    replace(this.element, drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
      axis(this, this.options), this.labels(), this.marks(), this.options.series.map((one) => this.curve(one))));
  }

  labels() {
    let free = -Infinity;
    const result = this.xs.map((x) => {
      const at = this.x(x);
      if (at < free) return null;
      free = at + LABEL_WIDTH;
      return drawn("text", { x: at, y: this.height - MARGIN.bottom + 16, class: "tick middle" }, this.options.xFormat(x));
    });
    return [...result, drawn("text", { x: this.width - MARGIN.right, y: this.height - 5, class: "tick end" }, this.options.xName)];
  }

  marks() {
    const lines = [[this.options.own, "own"], [this.options.chosen, "chosen"], [this.cursor, "cursor"]];
    return lines.filter(([x]) => this.xs.includes(x)).map(([x, name]) => drawn("line", {
      x1: this.x(x), x2: this.x(x), y1: MARGIN.top, y2: this.height - MARGIN.bottom, class: `mark ${name}`,
    }));
  }

  curve({ points, colour, isDashed }) {
    const sorted = points.toSorted((a, b) => a.x - b.x);
    const path = sorted.map((p, i) => `${i ? "L" : "M"}${this.x(p.x).toFixed(1)} ${this.y(p.y).toFixed(1)}`).join("");
    return [drawn("path", { d: path, stroke: colour, class: isDashed ? "curve dashed" : "curve" }),
      isDashed ? null : sorted.map((p) => drawn("circle", {
        cx: this.x(p.x), cy: this.y(p.y), r: p.isBad ? 5 : 3.5, fill: p.isBad ? "none" : colour, stroke: p.isBad ? "" : colour, class: p.isBad ? "bad" : "",
      }))];
  }

  nearest(event) {
    const at = event.clientX - this.element.getBoundingClientRect().left;
    return this.xs?.reduce((best, x) => (Math.abs(this.x(x) - at) < Math.abs(this.x(best) - at) ? x : best), this.xs[0]);
  }

  point(x, event) {
    if (x === undefined) return;
    this.cursor = x;
    hint(event, this.options.describe?.(x));
    this.draw();
  }

  leave() {
    this.cursor = null;
    hint();
    this.draw();
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" && this.cursor !== null) this.options.onpick?.(this.cursor);
    if (!step || !this.xs) return;
    event.preventDefault();
    event.stopPropagation();
    const now = this.cursor === null ? (step > 0 ? -1 : this.xs.length) : this.xs.indexOf(this.cursor);
    const next = this.xs[Math.max(0, Math.min(this.xs.length - 1, now + step))];
    const box = this.element.getBoundingClientRect();
    this.point(next, { clientX: box.left + this.x(next), clientY: box.top + box.height / 2 });
  }
}

// options: label, parts [{name, colour}], bars [{name, group, values, row}], yFormat, describe(bar), onpick(bar), chosen
export class Bars {
  constructor(options) {
    this.options = options;
    this.element = h("div.chart.curves", { role: "img", "aria-label": options.label, style: { height: `${options.height ?? 250}px` } });
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.paint();
    });
  }

  update(options) {
    Object.assign(this.options, options);
    this.element.setAttribute("aria-label", this.options.label);
    this.draw();
  }

  paint() {
    const { bars, parts } = this.options;
    if (!this.width || !bars.length) return;
    this.top = Math.max(...bars.map((bar) => bar.values.reduce((a, b) => a + b, 0)), 1e-12) * 1.08;
    this.y = (y) => this.height - MARGIN.bottom - (y / this.top) * (this.height - MARGIN.top - MARGIN.bottom);
    const groups = [...new Set(bars.map((bar) => bar.group))];
    const step = (this.width - MARGIN.left - MARGIN.right) / (bars.length + 0.6 * (groups.length - 1));
    const { width, height } = this;
    let at = MARGIN.left, free = -Infinity, group = bars[0].group;
    const drawing = bars.map((bar) => {
      if (bar.group !== group) at += 0.6 * step;
      const left = at, isNew = bar.group !== group || bar === bars[0];
      group = bar.group;
      at += step;
      const isLabelled = left + step / 2 >= free;
      if (isLabelled) free = left + step / 2 + LABEL_WIDTH;
      return [this.bar(bar, left + Math.min(6, step * 0.14), step - 2 * Math.min(6, step * 0.14), parts),
        isLabelled && drawn("text", { x: left + step / 2, y: height - MARGIN.bottom + 15, class: "tick middle" }, bar.name),
        isNew && bar.group && drawn("text", { x: left + 2, y: height - 6, class: "tick" }, bar.group)];
    });
    replace(this.element, drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, axis(this, this.options), drawing));
  }

  bar(bar, left, width, parts) {
    let below = 0;
    const isChosen = bar.row === this.options.chosen;
    return drawn("g", {
      class: isChosen ? "bar chosen" : "bar", onpointermove: (event) => hint(event, this.options.describe?.(bar)), onpointerleave: () => hint(),
      onclick: () => this.options.onpick?.(bar),
    }, bar.values.map((value, i) => {
      const top = this.y(below + value), tall = this.y(below) - top;
      below += value;
      return drawn("rect", { x: left, y: top, width, height: Math.max(0, tall), fill: parts[i].colour });
    }));
  }
}

function axis(chart, { yTicks = ticks, yFormat = whole }) {
  return yTicks(0, chart.top, 4).map((value) => [
    drawn("line", { x1: MARGIN.left, x2: chart.width - MARGIN.right, y1: chart.y(value), y2: chart.y(value), class: "grid-line" }),
    drawn("text", { x: MARGIN.left - 8, y: chart.y(value) + 4, class: "tick end" }, yFormat(value))]);
}
