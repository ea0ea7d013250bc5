// Lanes of time: each chip's steps, flat with their phases or as flames of nested names.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour } from "../colours.js";
import { steer } from "./range.js";
import { short, ticks, whole } from "../format.js";

const LEFT = 64, AXIS = 22, LANE = 40, FLAME = 20, GAP = 12;
const MOST_DEPTH = 12;

// options: trace, range, kind "flame" or "flat", onpick(step, entry), oncursor(time), clock
export class Timeline {
  constructor(options) {
    this.options = options;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": "Steps over time" });
    this.element = h("div.chart.timeline", {}, this.canvas);
    this.draw = perFrame(() => this.paint());
    this.setHeight();
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    options.range.listen(() => this.draw());
    steer(this.canvas, options.range, LEFT, {
      onpick: (event, time) => this.pick(event, time), onhover: (event, time) => this.hover(event, time),
    });
  }

  setHeight() {
    const { trace, kind } = this.options;
    this.depth = kind === "flat" ? 1 : Math.min(MOST_DEPTH, this.deepest());
    this.laneHeight = kind === "flat" ? LANE + GAP : this.depth * FLAME + GAP;
    this.height = AXIS + trace.nIpus * this.laneHeight;
    this.element.style.height = `${this.height}px`;
  }

  deepest() {
    const paths = this.options.trace.steps.facts.texts.path;
    return Math.max(1, ...paths.slice(0, 20_000).map((path) => path.split("/").length));
  }

  setKind(kind) {
    this.options.kind = kind;
    this.setHeight();
    this.draw();
  }

  x(time) {
    const { range } = this.options;
    return LEFT + ((time - range.from) / range.span) * (this.width - LEFT);
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height), { trace, range, kind } = this.options;
    const [first, last] = trace.entriesOf(range.from, range.to);
    const parts = trace.partsOf(first, last);
    pen.font = "11px " + colour("font");
    pen.textBaseline = "middle";
    this.paintAxis(pen);
    for (let chip = 0; chip < trace.nIpus; chip++) {
      const top = AXIS + chip * this.laneHeight;
      pen.fillStyle = colour("muted");
      pen.textAlign = "right";
      pen.fillText(`chip ${chip}`, LEFT - 8, top + 10);
      pen.save();
      pen.beginPath();
      pen.rect(LEFT, top, this.width - LEFT, this.laneHeight);
      pen.clip();
      if (!parts) this.paintBuckets(pen, chip, top);
      else if (kind === "flat") for (const part of parts) this.paintFlat(pen, part, chip, top);
      else for (const part of parts) this.paintFlame(pen, part, chip, top);
      pen.restore();
    }
    this.paintCursor(pen);
  }

  paintAxis(pen) {
    const { range } = this.options;
    pen.textAlign = "center";
    for (const time of ticks(range.from, range.to, this.width / 140)) {
      const x = Math.round(this.x(time)) + 0.5;
      pen.strokeStyle = colour("line");
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.fillStyle = colour("muted");
      if (x > LEFT + 20) pen.fillText(range.span < 1e5 ? whole(time) : short(time), x, 9);
    }
  }

  // Stacked shares of each bucket, for a trace too long to draw entry by entry.
  paintBuckets(pen, chip, top) {
    const { columns } = this.options.trace.overview, k = this.options.trace.nIpus;
    const tall = this.laneHeight - GAP;
    for (let i = 0; i < columns.entry.length; i++) {
      const at = i * k + chip, left = this.x(columns.begin[at]), right = this.x(columns.end[at]);
      if (right < LEFT || left > this.width) continue;
      const total = Math.max(1, columns.end[at] - columns.begin[at]);
      this.stack(pen, left, Math.max(1, right - left + 0.5), top, tall, [columns.sync[at], columns.exchange[at], columns.compute[at]], total);
    }
  }

  stack(pen, x, wide, top, tall, phases, total) {
    pen.fillStyle = colour("idle");
    pen.fillRect(x, top, wide, tall);
    let y = top + tall;
    ["sync", "exchange", "compute"].forEach((name, i) => {
      const size = (tall * phases[i]) / total;
      pen.fillStyle = colour(name);
      pen.fillRect(x, y - size, wide, size);
      y -= size;
    });
  }

  paintFlat(pen, part, chip, top) {
    const { trace } = this.options, k = trace.nIpus;
    let i = this.firstIn(part, chip);
    while (i < part.n) {
      const left = this.x(part.start[i * k + chip]);
      if (left > this.width) break;
      const right = this.x(part.end[i * k + chip]);
      if (right - left >= 3) {
        this.paintEntry(pen, trace.phases(part.step[i], chip), left, right, top, trace.path(part.step[i]), part.step[i] === this.chosen);
        i++;
      } else i = this.paintCrowd(pen, part, chip, i, left, top);
    }
  }

  firstIn(part, chip) {
    const k = this.options.trace.nIpus, { from } = this.options.range;
    let low = 0, high = part.n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (part.end[middle * k + chip] < from) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  paintEntry(pen, phases, left, right, top, name, isChosen) {
    const total = Math.max(1, phases[0] + phases[1] + phases[2]), wide = right - left - (right - left > 6 ? 1 : 0);
    let x = left;
    ["sync", "exchange", "compute"].forEach((phase, i) => {
      const size = (wide * phases[i]) / total;
      pen.fillStyle = colour(phase);
      pen.fillRect(x, top, size, LANE);
      x += size;
    });
    if (isChosen) this.outline(pen, left, top, wide, LANE);
    if (wide > 44) this.label(pen, name.split("/").at(-1), left + 5, top + LANE / 2, wide - 8, "#fff");
  }

  // Entries narrower than a few pixels share a bar of their summed phases.
  paintCrowd(pen, part, chip, i, left, top) {
    const { trace } = this.options, k = trace.nIpus, sums = [0, 0, 0];
    let right = left, total = 0, isChosen = false;
    for (; i < part.n && right - left < 3; i++) {
      right = this.x(part.end[i * k + chip]);
      if (this.x(part.start[i * k + chip]) - left > 3) break;
      const phases = trace.phases(part.step[i], chip), n = part.times[i];
      for (let p = 0; p < 3; p++) sums[p] += phases[p] * n;
      total += part.end[i * k + chip] - part.start[i * k + chip];
      isChosen ||= part.step[i] === this.chosen;
    }
    this.stack(pen, left, Math.max(1, right - left), top, LANE, sums, Math.max(1, total, sums[0] + sums[1] + sums[2]));
    if (isChosen) this.outline(pen, left, top, Math.max(2, right - left), LANE);
    return i;
  }

  paintFlame(pen, part, chip, top) {
    const { trace } = this.options;
    part.frames[chip].forEach((row, depth) => {
      if (depth >= this.depth) return;
      const y = top + depth * FLAME;
      let drawn = -1;
      for (let i = startOf(row, this.options.range.from); i < row.length; i++) {
        const frame = row[i], left = this.x(frame.start);
        if (left > this.width) break;
        const right = Math.max(this.x(frame.end), left + 1);
        if (right <= drawn + 0.7) continue;
        drawn = right;
        const wide = right - left - (right - left > 4 ? 1 : 0);
        pen.fillStyle = frame.step < 0 ? colour("line") : this.tone(frame.step, chip);
        pen.fillRect(left, y, wide, FLAME - 2);
        if (frame.step >= 0 && frame.step === this.chosen) this.outline(pen, left, y, wide, FLAME - 2);
        if (wide > 34) this.label(pen, frame.name, Math.max(left, LEFT) + 5, y + FLAME / 2 - 1, wide - 8 - Math.max(0, LEFT - left), frame.step < 0 ? colour("ink") : "#fff");
      }
    });
    return trace;
  }

  // A step has the colour of its longest phase.
  tone(step, chip) {
    const [sync, exchange, compute] = this.options.trace.phases(step, chip);
    return colour(compute >= exchange && compute >= sync ? "compute" : exchange >= sync ? "exchange" : "sync");
  }

  label(pen, text, x, y, wide, fill) {
    let shown = text;
    const most = Math.floor(wide / 5.6);
    if (shown.length > most) shown = most > 3 ? `${shown.slice(0, most - 1)}…` : "";
    pen.fillStyle = fill;
    pen.textAlign = "left";
    pen.fillText(shown, x, y);
  }

  outline(pen, x, y, wide, tall) {
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 2;
    pen.strokeRect(x, y + 1, wide, tall - 2);
  }

  paintCursor(pen) {
    if (this.cursorAt === null || this.cursorAt === undefined) return;
    pen.strokeStyle = colour("muted");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(this.x(this.cursorAt), AXIS);
    pen.lineTo(this.x(this.cursorAt), this.height);
    pen.stroke();
  }

  // -- selection ----------------------------------------------------------------------------------

  choose(step) {
    this.chosen = step;
    this.draw();
  }

  cursor(time) {
    this.cursorAt = time;
    this.draw();
  }

  entryAt(event, time) {
    const { trace, range } = this.options;
    const chip = Math.min(trace.nIpus - 1, Math.max(0, Math.floor((event.offsetY - AXIS) / this.laneHeight)));
    const parts = trace.partsOf(...trace.entriesOf(range.from, range.to));
    for (const part of parts ?? []) {
      const k = trace.nIpus;
      let low = 0, high = part.n - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (part.end[middle * k + chip] <= time) low = middle + 1;
        else high = middle;
      }
      if (time >= part.start[low * k + chip] && time < part.end[low * k + chip]) return { part, i: low, chip };
    }
    return null;
  }

  pick(event, time) {
    const found = this.entryAt(event, time);
    if (found) this.options.onpick?.(found.part.step[found.i], found.part.first + found.i);
  }

  hover(event, time) {
    this.options.oncursor?.(time);
    const found = time === null ? null : this.entryAt(event, time);
    if (!found) {
      hint();
      return;
    }
    const { trace } = this.options, { part, i, chip } = found, step = part.step[i];
    const [sync, exchange, compute] = trace.phases(step, chip);
    const lines = [trace.path(step), ["step", whole(step)], ["compute", whole(compute)], ["exchange", whole(exchange)], ["sync", whole(sync)]];
    if (part.times[i] > 1) lines.push(["executions", whole(part.times[i])]);
    hint(event, [...lines, ["from cycle", whole(part.start[i * trace.nIpus + chip])]]);
  }
}

function startOf(row, time) {
  let low = 0, high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle].end < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
