// A chart on a canvas: lines, areas or stacks over a whole-number axis, with zoom and a cursor.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour } from "../colours.js";
import { ticks, tileName, whole } from "../format.js";
import { seriesFill } from "../textures.js";
import { wheelAsks } from "./range.js";

const MARGIN = { left: 64, right: 14, top: 14, bottom: 30 };
const MOST_AIR = 5; // a line this many times above everything else is named at the top, not drawn

// options: series [{name, colour, values, isArea}], isStacked, lines [{y, text}], marks [x, …],
// xName, yFormat, yTicks, height, label, describe(i) → lines, onpick(i), isStepped, minimum,
// perChip: where the axis is tiles of several chips, how many a chip has
const NEIGHBOURS = 16; // on both sides of a mark that is zoomed to

export class Chart {
  constructor(options) {
    this.options = options;
    this.view = [0, this.count()];
    this.cursor = null;
    this.canvas = h("canvas", { tabIndex: 0, role: "img" });
    this.setAriaLabel();
    this.element = h("div.chart", { style: { height: `${options.height ?? 260}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    this.observer = onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.paint();
    });
    this.listen();
  }

  count() {
    return Math.max(1, ...this.options.series.map((s) => s.values.length));
  }

  // New series or marks; the zoom stays.
  update(options) {
    Object.assign(this.options, options);
    if (options.series) this.setAriaLabel();
    this.draw();
  }

  // For screen readers: the largest value of each series, and where it is.
  setAriaLabel() {
    const { label, series, xName = "", yFormat = whole, perChip } = this.options;
    const peaks = series.map(({ name, values }) => {
      const most = values.reduce((high, value) => Math.max(high, value), -Infinity), at = values.indexOf(most);
      return `${name} at most ${yFormat(most)}, ${perChip ? tileName(at, perChip, 2) : `${xName} ${whole(at)}`}`;
    });
    this.canvas.setAttribute("aria-label", `${label}: ${peaks.join("; ")}`);
  }

  // -- where things are ---------------------------------------------------------------------------

  x(index) {
    const [from, to] = this.view;
    return MARGIN.left + ((index - from) / (to - from)) * (this.width - MARGIN.left - MARGIN.right);
  }

  index(x) {
    const [from, to] = this.view;
    const share = (x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    return from + share * (to - from);
  }

  y(value) {
    const [low, high] = this.range;
    const span = this.height - MARGIN.top - MARGIN.bottom;
    return this.height - MARGIN.bottom - ((value - low) / (high - low || 1)) * span;
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height);
    const layers = this.layers();
    this.range = this.valueRange(layers);
    this.paintAxes(pen);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, 0, this.width - MARGIN.left - MARGIN.right, this.height);
    pen.clip();
    layers.forEach((layer, i) => this.paintLayer(pen, layer, i));
    this.paintMarks(pen);
    pen.restore();
    this.paintLines(pen);
  }

  // The smallest and largest value of each series in every pixel column, stacked on those below.
  layers() {
    const { series, isStacked } = this.options;
    const n = Math.max(1, Math.floor(this.width - MARGIN.left - MARGIN.right));
    const below = new Float64Array(n);
    return series.map((one) => {
      const low = new Float64Array(n), high = new Float64Array(n), base = below.slice();
      for (let k = 0; k < n; k++) {
        const [a, b] = this.rowsOf(k, n, one.values.length);
        let least = Infinity, most = -Infinity;
        for (let i = a; i < b; i++) {
          const value = one.values[i];
          if (value < least) least = value;
          if (value > most) most = value;
        }
        const isEmpty = most < least;
        low[k] = isEmpty ? NaN : isStacked ? base[k] : least;
        high[k] = isEmpty ? NaN : isStacked ? base[k] + most : most;
        if (isStacked && !isEmpty) below[k] += most;
      }
      return { ...one, low, high, base };
    });
  }

  rowsOf(k, n, count) {
    const [from, to] = this.view, span = (to - from) / n;
    const a = Math.max(0, Math.floor(from + k * span + 1e-9));
    return [a, Math.min(count, Math.max(a + 1, Math.ceil(from + (k + 1) * span - 1e-9)))];
  }

  valueRange(layers) {
    const { lines = [], minimum = 0 } = this.options;
    let low = minimum, high = 0;
    for (const layer of layers) {
      for (let k = 0; k < layer.high.length; k++) {
        if (layer.high[k] > high) high = layer.high[k];
        if (layer.low[k] < low) low = layer.low[k];
      }
    }
    for (const line of lines) if (line.y < high * MOST_AIR) high = Math.max(high, line.y);
    return [low, high * 1.06 || 1];
  }

  paintAxes(pen) {
    const { yTicks = ticks, yFormat = whole, xName } = this.options;
    pen.font = "11px " + colour("font");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of yTicks(...this.range, 5)) {
      const y = Math.round(this.y(value)) + 0.5;
      pen.strokeStyle = colour("line");
      pen.beginPath();
      pen.moveTo(MARGIN.left, y);
      pen.lineTo(this.width - MARGIN.right, y);
      pen.stroke();
      pen.fillStyle = colour("muted");
      pen.fillText(yFormat(value), MARGIN.left - 8, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    if (this.options.perChip) this.paintChips(pen);
    else {
      for (const value of ticks(...this.view, Math.max(2, this.width / 130))) {
        if (value % 1 === 0) pen.fillText(whole(value), this.x(value), this.height - MARGIN.bottom + 7);
      }
    }
    pen.textAlign = "right";
    pen.fillText(this.options.perChip ? `${xName} of each chip` : xName ?? "", this.width - MARGIN.right, this.height - 12);
  }

  // Chips side by side: a line between two, the name of each, and tiles numbered on their chip.
  paintChips(pen) {
    const per = this.options.perChip, [from, to] = this.view, n = Math.ceil(this.count() / per);
    const nTicks = Math.max(1, (this.width / 110) * (per / (to - from)));
    for (let chip = Math.max(0, Math.floor(from / per)); chip < n && chip * per < to; chip++) {
      const left = Math.max(MARGIN.left, this.x(chip * per)), right = Math.min(this.width - MARGIN.right, this.x((chip + 1) * per));
      if (chip * per > from) rule(pen, Math.round(left) + 0.5, MARGIN.top - 12, this.height - MARGIN.bottom + 5, colour("faint"));
      if (right - left > 44) pen.fillText(`chip ${chip}`, (left + right) / 2, 1);
      for (const tile of ticks(0, per - 1, nTicks)) {
        const x = this.x(chip * per + tile);
        if (tile % 1 === 0 && x >= MARGIN.left - 1 && x < right - (tile ? 16 : 0)) pen.fillText(whole(tile), x + (tile ? 0 : 5), this.height - MARGIN.bottom + 7);
      }
    }
  }

  paintLayer(pen, layer, number) {
    const { isStacked } = this.options;
    const n = layer.high.length;
    pen.strokeStyle = layer.colour;
    pen.fillStyle = isStacked ? seriesFill(pen, layer.colour, number) : layer.colour;
    if (isStacked || layer.isArea) {
      pen.globalAlpha = isStacked ? 0.92 : 0.16;
      pen.beginPath();
      for (let k = 0; k < n; k++) this.lineTo(pen, k, layer.high[k], k === 0);
      for (let k = n - 1; k >= 0; k--) pen.lineTo(MARGIN.left + k + 0.5, this.y(isStacked ? layer.base[k] : 0));
      pen.fill();
      pen.globalAlpha = 1;
    }
    if (isStacked) return;
    pen.lineWidth = 1.4;
    pen.beginPath();
    for (let k = 0; k < n; k++) {
      if (Number.isNaN(layer.high[k])) continue;
      this.lineTo(pen, k, layer.high[k], k === 0);
      if (layer.low[k] < layer.high[k]) pen.lineTo(MARGIN.left + k + 0.5, this.y(layer.low[k]));
    }
    pen.stroke();
  }

  lineTo(pen, k, value, isFirst) {
    const x = MARGIN.left + k + 0.5, y = this.y(value);
    if (isFirst) pen.moveTo(x, y);
    else pen.lineTo(x, y);
  }

  paintMarks(pen) {
    const all = [...(this.options.marks ?? []).map((m) => [m, colour("accent"), 2])];
    if (this.cursor !== null) all.push([this.cursor, colour("muted"), 1]);
    for (const [index, stroke, width] of all) {
      pen.strokeStyle = stroke;
      pen.lineWidth = width;
      pen.beginPath();
      pen.moveTo(this.x(index + 0.5), MARGIN.top - 6);
      pen.lineTo(this.x(index + 0.5), this.height - MARGIN.bottom);
      pen.stroke();
    }
  }

  paintLines(pen) {
    for (const { y: value, text, tone = "bad" } of this.options.lines ?? []) {
      pen.strokeStyle = pen.fillStyle = colour(tone);
      if (value > this.range[1]) {
        pen.textAlign = "right";
        pen.textBaseline = "top";
        pen.fillText(`↑ ${text}`, this.width - MARGIN.right - 4, 1);
        continue;
      }
      const y = Math.round(this.y(value)) + 0.5;
      pen.setLineDash([5, 4]);
      pen.lineWidth = 1.2;
      pen.beginPath();
      pen.moveTo(MARGIN.left, y);
      pen.lineTo(this.width - MARGIN.right, y);
      pen.stroke();
      pen.setLineDash([]);
      pen.textAlign = "right";
      pen.textBaseline = y < 22 ? "top" : "bottom";
      pen.fillText(text, this.width - MARGIN.right - 4, y + (y < 22 ? 3 : -3));
    }
  }

  // -- pointer and keys ---------------------------------------------------------------------------

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      const action = wheelAsks(event, canvas);
      if (action !== "pan" && action !== "zoom") return;
      event.preventDefault();
      if (action === "pan") this.pan(((event.deltaX || event.deltaY) / this.width) * (this.view[1] - this.view[0]));
      else this.zoom(2 ** (event.deltaY / 240), this.index(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("dblclick", () => this.show(0, this.count()));
    canvas.addEventListener("pointerdown", (event) => {
      this.grabbed = { x: event.offsetX, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => {
      if (this.grabbed && !this.grabbed.moved) this.pick(this.rowAt(event.offsetX), event);
      this.grabbed = null;
    });
    canvas.addEventListener("pointerleave", () => {
      this.cursor = null;
      hint();
      this.draw();
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  move(event) {
    if (this.grabbed) {
      const moved = event.offsetX - this.grabbed.x;
      if (Math.abs(moved) > 3 || this.grabbed.moved) {
        this.pan((-moved / (this.width - MARGIN.left - MARGIN.right)) * (this.view[1] - this.view[0]));
        this.grabbed = { x: event.offsetX, moved: true };
      }
      return;
    }
    const row = this.rowAt(event.offsetX);
    this.cursor = row;
    hint(event, row === null ? null : this.options.describe?.(row));
    this.draw();
  }

  key(event) {
    const span = this.view[1] - this.view[0], middle = (this.view[0] + this.view[1]) / 2;
    const first = this.options.marks?.[0];
    const actions = {
      ArrowLeft: () => (event.shiftKey ? this.pan(-span / 4) : this.pick(Math.max(0, (first ?? 1) - 1))),
      ArrowRight: () => (event.shiftKey ? this.pan(span / 4) : this.pick(Math.min(this.count() - 1, (first ?? -1) + 1))),
      "+": () => this.closer(),
      "=": () => this.closer(),
      "-": () => this.zoom(2, middle),
      0: () => this.show(0, this.count()),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  rowAt(x) {
    const row = Math.floor(this.index(x));
    return row >= 0 && row < this.count() && x >= MARGIN.left ? row : null;
  }

  pick(row, event) {
    if (row !== null) this.options.onpick?.(row, event);
  }

  zoom(factor, around) {
    const [from, to] = this.view;
    this.show(around - (around - from) * factor, around + (to - around) * factor);
  }

  // Closer: to the first mark, with its neighbours, if there is one; else to the middle.
  closer() {
    const mark = this.options.marks?.[0], [from, to] = this.view;
    if (mark !== undefined && (to - from > 4 * NEIGHBOURS || mark < from || mark >= to)) this.show(mark - NEIGHBOURS, mark + NEIGHBOURS + 1);
    else this.zoom(0.5, mark === undefined ? (from + to) / 2 : mark + 0.5);
  }

  pan(by) {
    const [from, to] = this.view, n = this.count();
    const shift = Math.max(-from, Math.min(n - to, by));
    this.show(from + shift, to + shift);
  }

  show(from, to) {
    const n = this.count(), least = Math.min(n, 8);
    if (to - from < least) [from, to] = [(from + to - least) / 2, (from + to + least) / 2];
    this.view = [Math.max(0, from), Math.min(n, Math.max(to, least))];
    this.options.onview?.(this.view);
    this.draw();
  }
}

function rule(pen, x, top, bottom, stroke) {
  pen.strokeStyle = stroke;
  pen.beginPath();
  pen.moveTo(x, top);
  pen.lineTo(x, bottom);
  pen.stroke();
}

// Colour and name of each series, as a list below or beside a chart.
export function legend(series, onpick) {
  return h("ul.legend", {}, series.map((one) => h("li", {
    title: one.about, onclick: onpick && (() => onpick(one)),
  }, h(`i${one.tone ? `.tone-${one.tone}` : ""}`, { style: { backgroundColor: one.colour } }), one.name, one.value && h("b", {}, one.value))));
}
