// The whole trace in a thin strip, a row for each chip, with the visible part marked: drag it to move.

import { h, onSize, perFrame, sharpen } from "../dom.js";
import { PHASES, colour } from "../colours.js";
import { toneFill } from "../textures.js";

const LEFT = 64, ONE = 34, MOST = 96, ROW = 13;
const THIN = 3; // pixels: five phases on top of each other could not be told apart

export class Strip {
  constructor(trace, range) {
    Object.assign(this, { trace, range });
    const k = trace.nIpus;
    this.height = k === 1 ? ONE : Math.min(MOST, k * ROW);
    const label = k === 1 ? "The whole trace" : `The whole trace, a row for each of ${k} chips`;
    this.canvas = h("canvas", { "aria-label": `${label}; drag to move`, role: "img" });
    this.element = h("div.chart.strip", { style: { height: `${this.height}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    range.listen(() => this.draw());
    const move = (event) => {
      const at = range.low + ((event.offsetX - LEFT) / (this.width - LEFT)) * (range.high - range.low);
      range.show(at - range.span / 2, at + range.span / 2);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.isHeld = true;
      move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => this.isHeld && move(event));
    this.canvas.addEventListener("pointerup", () => { this.isHeld = false; });
  }

  x(time) {
    return LEFT + ((time - this.range.low) / (this.range.high - this.range.low)) * (this.width - LEFT);
  }

  paint() {
    if (!this.width) return;
    const { height } = this, pen = sharpen(this.canvas, this.width, height);
    const key = `${this.width} ${colour("compute")} ${document.documentElement.hasAttribute("data-textures")}`;
    if (this.key !== key) Object.assign(this, { key, picture: this.whole() });
    pen.drawImage(this.picture, 0, 0, this.width, height);
    const from = this.x(this.range.from), to = Math.max(this.x(this.range.to), from + 3);
    pen.fillStyle = colour("surface");
    pen.globalAlpha = 0.66;
    pen.fillRect(LEFT, 0, from - LEFT, height);
    pen.fillRect(to, 0, this.width - to, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, to - from - 1.5, height - 1.5);
  }

  // Everything but the mark, drawn once per width and theme.
  whole() {
    const canvas = document.createElement("canvas");
    const pen = sharpen(canvas, this.width, this.height), k = this.trace.nIpus, tall = this.height / k;
    for (let chip = 0; chip < k; chip++) {
      paintPhases(pen, this.trace.overview, { chip, x: (time) => this.x(time), top: chip * tall, tall: tall - (tall > 4 ? 1 : 0) });
    }
    return canvas;
  }
}

// A chip's phases in every bucket of the trace, stacked; what is left is waiting.
export function paintPhases(pen, { columns, facts }, { chip, x, top, tall, from = -Infinity, to = Infinity }) {
  const k = facts.n_ipus, n = columns.entry?.length ?? 0;
  if (!n) return;
  const [first, last] = extent(columns), begin = Math.max(from, first), end = Math.min(to, last);
  pen.fillStyle = colour("idle");
  pen.fillRect(x(begin), top, x(end) - x(begin), tall);
  if (tall < THIN) return paintLargest(pen, columns, { chip, k, x, top, tall, from, to });
  for (let i = chip; i < n * k; i += k) {
    if (columns.end[i] <= from || columns.begin[i] >= to) continue;
    const left = x(Math.max(from, columns.begin[i])), right = x(Math.min(to, columns.end[i]));
    stack(pen, left, right, top, tall, (key) => columns[key]?.[i] ?? 0, columns.end[i] - columns.begin[i]);
  }
}

// The first beginning and the last end of all buckets, looked up once.
const extents = new WeakMap();
function extent(columns) {
  if (!extents.has(columns)) {
    let first = Infinity, last = -Infinity;
    for (const time of columns.begin) if (time < first) first = time;
    for (const time of columns.end) if (time > last) last = time;
    extents.set(columns, [first, last]);
  }
  return extents.get(columns);
}

// A lane too thin for a stack has the colour of what takes most time; equal neighbours are one stretch.
function paintLargest(pen, columns, { chip, k, x, top, tall, from, to }) {
  const phases = PHASES.slice(0, -1).filter(({ key }) => columns[key]);
  let drawn, left = 0, right = 0;
  const flush = () => {
    if (!drawn) return;
    pen.fillStyle = toneFill(pen, drawn);
    pen.fillRect(left, top, Math.max(1, right - left), tall);
  };
  for (let i = chip; i < columns.end.length; i += k) {
    if (columns.end[i] <= from || columns.begin[i] >= to) continue;
    let rest = columns.end[i] - columns.begin[i], most = 0, tone;
    for (const phase of phases) {
      const cycles = columns[phase.key][i];
      rest -= cycles;
      if (cycles > most) [most, tone] = [cycles, phase.tone];
    }
    if (rest > most) tone = undefined; // waiting, which is there already
    const begin = Math.round(x(Math.max(from, columns.begin[i])));
    if (tone !== drawn || begin > right) {
      flush();
      [drawn, left] = [tone, begin];
    }
    right = Math.round(x(Math.min(to, columns.end[i])));
  }
  flush();
}

// Phases of a stretch on top of each other, as shares of its cycles, in whole pixels.
export function stack(pen, left, right, top, tall, cyclesOf, total) {
  const x = Math.round(left), wide = Math.max(1, Math.round(right) - x);
  let y = top + tall;
  for (const { key, tone } of PHASES.slice(0, -1)) {
    const size = (tall * cyclesOf(key)) / Math.max(1, total);
    if (size <= 0) continue;
    pen.fillStyle = toneFill(pen, tone);
    pen.fillRect(x, y - size, wide, size);
    y -= size;
  }
}
