// Lanes of time: each chip's phases, and its steps as flames of nested names or flat.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { PHASES, SERIES, colour, css, difference, inkOn, rgb } from "../colours.js";
import { paintPhases, stack } from "./strip.js";
import { arrow } from "./arrows.js";
import { steer } from "./range.js";
import { counted, short, signed, ticks, whole } from "../format.js";
import { toneFill } from "../textures.js";

const LEFT = 64, AXIS = 22, LANE = 40, FLAME = 20, RIBBON = 8, GAP = 12, FOLDS = 16;
const MOST_DEPTH = 12, MOST_TALL = 1100, MOST_DENSE = 720;
const WORK = PHASES.slice(0, -1);
// In the order of a step: sync first, compute last.
const IN_TIME = [4, 2, 3, 1, 0];

// options: trace, range, kind "flame" or "flat", blocks() → coarse columns of the heat map,
// onpick(step, entry), oncursor(time), onmark(area, isDone), pins() → [{at, note}], selected() → [from, to],
// change (of two reports): of(step, chip) cycles B − A per execution, buckets [bucket × chip]
export class Timeline {
  constructor(options) {
    this.options = options;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": this.ariaLabel() });
    this.element = h("div.chart.timeline", {}, this.canvas);
    this.draw = perFrame(() => this.paint());
    this.setHeight();
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    options.range.listen(() => this.draw());
    steer(this.canvas, options.range, LEFT, {
      onpick: (event, time) => this.pick(event, time), onhover: (event, time) => this.hover(event, time), onkey: (event) => this.key(event),
      selected: () => options.selected?.(), isMarking: (event) => event.shiftKey || event.offsetY < AXIS, onmark: (marked, isDone) => options.onmark?.(this.areaOf(marked), isDone),
    });
    this.canvas.addEventListener("blur", () => hint());
  }

  ariaLabel() {
    const { trace } = this.options, { facts } = trace.overview;
    const folded = facts.is_folded ? `, folded into ${whole(trace.n)} entries` : "";
    return `Steps over time on ${counted(trace.nIpus, "chip")}: ${counted(facts.n_executions ?? trace.n, "execution")}${folded}, ${whole(trace.end - trace.begin)} cycles`;
  }

  // Many chips get thin lanes of phases alone.
  setHeight() {
    const { trace, kind } = this.options, k = trace.nIpus;
    this.top = AXIS + (trace.overview.facts.is_folded ? FOLDS : 0);
    const deepest = Math.min(MOST_DEPTH, this.deepest(), Math.floor((MOST_TALL / k - GAP - RIBBON) / FLAME));
    this.isFlat = kind === "flat" || deepest < 1;
    this.depth = this.isFlat ? 1 : deepest;
    this.flat = Math.min(LANE, Math.max(4, Math.floor(MOST_DENSE / k) - 2));
    this.gap = this.isFlat && this.flat < LANE ? 2 : GAP;
    this.laneHeight = (this.isFlat ? this.flat : RIBBON + 2 + this.depth * FLAME) + this.gap;
    this.height = this.top + k * this.laneHeight;
    this.element.style.height = `${this.height}px`;
  }

  deepest() {
    const { columns, facts } = this.options.trace.steps, inPipeline = columns.stage.some((stage) => stage >= 0) ? 2 : 0;
    return inPipeline + Math.max(1, ...facts.texts.path.slice(0, 20_000).map((path) => path.split("/").length));
  }

  x(time) {
    const { range } = this.options;
    return LEFT + ((time - range.from) / range.span) * (this.width - LEFT);
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height), { trace, range } = this.options;
    const parts = trace.partsOf(...trace.entriesOf(range.from, range.to));
    pen.font = "11px " + colour("font");
    pen.textBaseline = "middle";
    this.paintAxis(pen);
    for (let chip = 0; chip < trace.nIpus; chip++) this.paintLane(pen, chip, parts);
    for (const part of parts ?? []) this.paintFolds(pen, part);
    this.paintArea(pen);
    if (parts) this.paintFlows(pen);
    this.paintPins(pen);
    this.paintCursor(pen);
    this.element.dataset.detail = parts ? "entries" : "buckets";
  }

  paintLane(pen, chip, parts) {
    const top = this.top + chip * this.laneHeight, tall = this.laneHeight - this.gap;
    pen.fillStyle = colour("muted");
    pen.textAlign = "right";
    const every = Math.ceil(13 / this.laneHeight);
    if (chip % every === 0) pen.fillText(`chip ${chip}`, LEFT - 8, top + Math.min(10, this.laneHeight / 2));
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, top, this.width - LEFT, this.laneHeight);
    pen.clip();
    const ribbon = this.isFlat ? tall : RIBBON;
    this.paintWaiting(pen, top, parts ? ribbon : tall);
    if (!parts) this.paintBuckets(pen, chip, top, tall);
    for (const part of parts ?? []) {
      this.paintFlat(pen, part, chip, top, ribbon);
      if (!this.isFlat) this.paintFlame(pen, part, chip, top + RIBBON + 2);
    }
    pen.restore();
  }

  paintAxis(pen) {
    const { range } = this.options;
    for (const time of ticks(range.from, range.to, this.width / 140)) {
      const x = Math.round(this.x(time)) + 0.5;
      pen.strokeStyle = colour("line");
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.fillStyle = colour("muted");
      pen.textAlign = x > this.width - 36 ? "right" : "center";
      if (x > LEFT + 20) pen.fillText(cycleText(time, range.span), Math.min(x, this.width - 1), 9);
    }
  }

  // A chip waits whenever it does nothing else, until the program is done.
  paintWaiting(pen, top, tall) {
    const { trace } = this.options, left = Math.max(LEFT, this.x(trace.begin)), right = Math.min(this.width, this.x(trace.end));
    pen.fillStyle = colour("idle");
    pen.fillRect(left, top, right - left, tall);
  }

  // Stacked shares, for a stretch too long to draw entry by entry: the heat map's columns, or the
  // buckets of the overview until they are there.
  paintBuckets(pen, chip, top, tall) {
    const blocks = this.options.blocks?.() ?? [], k = this.options.trace.nIpus;
    if (this.options.change) {
      this.paintChanges(pen, chip, top, tall);
      return;
    }
    if (!blocks.length) {
      paintPhases(pen, this.options.trace.overview, { chip, x: (time) => this.x(time), top, tall });
      return;
    }
    for (const { begin, end, nColumns, columns } of blocks) {
      for (let i = chip; i < nColumns * k; i += k) {
        const left = this.x(begin[i]), right = this.x(end[i]);
        if (right < LEFT || left > this.width) continue;
        stack(pen, left, right, top, tall, (key) => columns[`chip_${key}`][i], end[i] - begin[i]);
      }
    }
  }

  // Buckets of the overview, coloured by how B differs in what runs there.
  paintChanges(pen, chip, top, tall) {
    const { begin, end } = this.options.trace.overview.columns, { buckets } = this.options.change, k = this.options.trace.nIpus;
    for (let i = chip; i < begin.length; i += k) {
      const left = Math.max(LEFT, this.x(begin[i])), right = Math.min(this.width, this.x(end[i]));
      if (right < LEFT || left > this.width) continue;
      pen.fillStyle = this.changeFill(buckets?.[i] ?? 0, end[i] - begin[i]);
      pen.fillRect(left, top, Math.max(1, right - left), tall);
    }
  }

  // Dark blue where B takes less, light orange where it takes more, as a share of A's time.
  changeFill(change, cycles) {
    return css(difference(cycles > 0 ? change / cycles : 0));
  }

  paintFlat(pen, part, chip, top, tall) {
    const { trace } = this.options, k = trace.nIpus;
    let i = part.firstOn(chip, this.options.range.from);
    while (i < part.n) {
      const left = this.x(part.start[i * k + chip]);
      if (left > this.width) break;
      const right = this.x(part.end[i * k + chip]);
      if (right <= left) i++;
      else if (right - left >= 3) {
        this.paintEntry(pen, part, i, chip, left, right, top, tall);
        i++;
      } else i = this.paintCrowd(pen, part, chip, i, left, top, tall);
    }
  }

  // A step's phases, one after the other.
  paintEntry(pen, part, i, chip, left, right, top, tall) {
    const { trace } = this.options, step = part.step[i], phases = trace.phases(step, chip);
    const total = Math.max(1, phases.reduce((sum, v) => sum + v, 0)), wide = right - left - (right - left > 6 ? 1 : 0);
    let x = left, longest = 4;
    if (this.options.change) {
      pen.fillStyle = this.changeFill(this.options.change.of(step, chip) * part.times[i], part.end[i * trace.nIpus + chip] - part.start[i * trace.nIpus + chip]);
      pen.fillRect(left, top, wide, tall);
    } else for (const p of IN_TIME) {
      const size = (wide * phases[p]) / total;
      pen.fillStyle = toneFill(pen, WORK[p].tone);
      pen.fillRect(x, top, size, tall);
      x += size;
      if (phases[p] > phases[longest]) longest = p;
    }
    if (step === this.chosen) this.outline(pen, left, top, wide, tall);
    if (wide > 44 && tall > 14) this.label(pen, trace.namesOf(step).at(-1), left + 5, top + tall / 2, wide - 8, this.options.change ? colour("ink") : inkOn(colour(WORK[longest].tone)));
  }

  // Entries narrower than a few pixels share a bar of their summed phases.
  paintCrowd(pen, part, chip, i, left, top, tall) {
    const { trace } = this.options, k = trace.nIpus, sums = WORK.map(() => 0), first = part.start[i * k + chip];
    let right = left, end = first, isChosen = false, change = 0;
    for (; i < part.n && right - left < 3; i++) {
      const from = part.start[i * k + chip], to = part.end[i * k + chip];
      if (to <= from) continue;
      if (this.x(from) - left > 3) break;
      right = this.x(to);
      end = to;
      const phases = trace.phases(part.step[i], chip), n = part.times[i];
      for (let p = 0; p < sums.length; p++) sums[p] += phases[p] * n;
      if (this.options.change) change += this.options.change.of(part.step[i], chip) * n;
      isChosen ||= part.step[i] === this.chosen;
    }
    const place = Object.fromEntries(WORK.map(({ key }, p) => [key, sums[p]]));
    if (this.options.change) {
      pen.fillStyle = this.changeFill(change, Math.max(1, end - first));
      pen.fillRect(left, top, Math.max(1, right - left), tall);
    } else stack(pen, left, right, top, tall, (key) => place[key], Math.max(1, end - first, sums.reduce((sum, v) => sum + v, 0)));
    if (isChosen) this.outline(pen, left, top, Math.max(2, right - left), tall);
    return i;
  }

  paintFlame(pen, part, chip, top) {
    part.framesOf(chip).forEach((row, depth) => {
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
        const tone = frame.step < 0 || this.options.change ? null : this.toneOf(frame, chip), fill = tone ? colour(tone) : this.fillOf(frame, chip);
        pen.fillStyle = tone ? toneFill(pen, tone) : fill;
        pen.fillRect(left, y, wide, FLAME - 2);
        if (frame.step >= 0 && frame.step === this.chosen) this.outline(pen, left, y, wide, FLAME - 2);
        const name = frame.times > 1 ? `${frame.name} ×${whole(frame.times)}` : frame.name;
        if (wide > 34) this.label(pen, name, Math.max(left, LEFT) + 5, y + FLAME / 2 - 1, wide - 8 - Math.max(0, LEFT - left), frame.step < 0 || this.options.change ? colour("ink") : inkOn(fill));
      }
    });
  }

  // Names have no colour, a stage a pale one; a difference that of its size.
  fillOf(frame, chip) {
    if (frame.step < 0) return frame.stage < 0 ? colour("line") : stageTone(frame.stage);
    return this.changeFill(this.options.change.of(frame.step, chip) * frame.times, frame.end - frame.start);
  }

  // A step has the colour of its longest phase.
  toneOf(frame, chip) {
    const phases = this.options.trace.phases(frame.step, chip);
    let longest = 0;
    for (let p = 1; p < phases.length; p++) if (phases[p] > phases[longest]) longest = p;
    return WORK[longest].tone;
  }

  // A bracket over entries that stand for several executions.
  paintFolds(pen, part) {
    const y = AXIS + FOLDS - 5;
    for (const { from, to, times } of part.foldedSpans()) {
      const left = Math.max(LEFT, this.x(from)), right = Math.min(this.width, this.x(to));
      if (right - left < 2) continue;
      pen.strokeStyle = colour("warn");
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(left + 1, y + 4);
      pen.lineTo(left + 1, y);
      pen.lineTo(right - 1, y);
      pen.lineTo(right - 1, y + 4);
      pen.stroke();
      this.label(pen, `×${whole(times)} folded`, left + 4, y - 7, right - left, colour("warn"));
    }
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

  // -- what is marked on it -----------------------------------------------------------------------

  // The stretch and the chips of a drag; along the axis, or beyond the lanes, all chips.
  areaOf({ from, to, y0, y1 }) {
    const n = this.options.trace.nIpus, lane = (y) => Math.max(0, Math.min(n - 1, Math.floor((y - this.top) / this.laneHeight)));
    const isAll = y0 < this.top;
    return { from: Math.round(from), to: Math.round(to), first: isAll ? 0 : lane(y0), last: isAll ? n - 1 : lane(y1) };
  }

  mark(area) {
    this.area = area;
    this.draw();
  }

  paintArea(pen) {
    if (!this.area) return;
    const { from, to, first, last } = this.area, left = Math.max(LEFT, this.x(from)), right = Math.min(this.width, this.x(to));
    if (right <= left) return;
    const top = this.top + first * this.laneHeight - 3, tall = (last - first + 1) * this.laneHeight - this.gap + 6;
    pen.fillStyle = pen.strokeStyle = colour("accent");
    pen.globalAlpha = 0.16;
    pen.fillRect(left, top, right - left, tall);
    pen.globalAlpha = 1;
    pen.lineWidth = 1.5;
    pen.setLineDash([4, 3]);
    pen.strokeRect(left, top, right - left, tall);
    pen.setLineDash([]);
  }

  // Pins of a moment: a flag on the axis with the beginning of the note.
  paintPins(pen) {
    for (const { at, note } of this.options.pins?.() ?? []) {
      const x = this.x(at);
      if (x < LEFT || x > this.width) continue;
      pen.strokeStyle = pen.fillStyle = colour("accent");
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x, 2);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(x, 2);
      pen.lineTo(x + 9, 6);
      pen.lineTo(x, 10);
      pen.closePath();
      pen.fill();
      if (note) this.label(pen, note, x + 11, 7, Math.min(220, this.width - x - 12), colour("accent"));
    }
  }

  // Arrows from producers of the chosen execution, and from it to its consumers.
  flow(flows) {
    this.flows = flows;
    this.draw();
  }

  paintFlows(pen) {
    if (!this.flows) return;
    const { entry, producers, consumers } = this.flows;
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, AXIS, this.width - LEFT, this.height - AXIS);
    pen.clip();
    const lines = [...producers.map((one) => [one.entry, entry, "warn"]), ...consumers.map((one) => [entry, one.entry, "accent"])];
    for (const [from, to, tone] of lines) this.paintFlow(pen, from, to, tone);
    pen.restore();
  }

  paintFlow(pen, from, to, tone) {
    const begin = this.placeOf(from), end = begin && this.placeOf(to, begin.chip);
    if (!begin || !end) return;
    for (const [name, width] of [["surface", 3.6], [tone, 1.6]]) {
      pen.strokeStyle = pen.fillStyle = colour(name);
      arrow(pen, [begin.right, begin.y], [end.left, end.y], width, begin.y === end.y ? 12 : undefined);
    }
  }

  // Where an execution is drawn: on a chip if it takes part there, else on the first that does.
  placeOf(entry, chip = this.walkedChip ?? 0) {
    const { trace } = this.options, part = trace.parts.get(Math.floor(entry / trace.per)), k = trace.nIpus;
    if (!part) return null;
    const i = entry - part.first, takesPart = (c) => part.end[i * k + c] > part.start[i * k + c];
    const on = takesPart(chip) ? chip : Array.from({ length: k }, (_, c) => c).find(takesPart);
    if (on === undefined) return null;
    const top = this.top + on * this.laneHeight, row = this.isFlat ? 0 : Math.min(this.depth - 1, part.depthOf(i, on));
    const y = this.isFlat ? top + this.flat / 2 : top + RIBBON + 2 + row * FLAME + FLAME / 2 - 1;
    return { chip: on, y, left: this.x(part.start[i * k + on]), right: this.x(part.end[i * k + on]) };
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

  chipAt(event) {
    return Math.min(this.options.trace.nIpus - 1, Math.max(0, Math.floor((event.offsetY - this.top) / this.laneHeight)));
  }

  entryAt(event, time) {
    const { trace, range } = this.options, k = trace.nIpus, chip = this.chipAt(event);
    const parts = trace.partsOf(...trace.entriesOf(range.from, range.to));
    for (const part of parts ?? []) {
      const i = part.firstOn(chip, time);
      if (i < part.n && time >= part.start[i * k + chip]) return { part, i, chip };
    }
    return null;
  }

  pick(event, time) {
    const hit = this.entryAt(event, time);
    if (hit) this.options.onpick?.(hit.part.step[hit.i], hit.part.first + hit.i);
  }

  // Comma and full stop walk through a chip's steps, up and down change the chip, Enter selects.
  key(event) {
    const { trace, range } = this.options, by = { ",": -1, ".": 1 }[event.key], down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Enter" && this.walked) this.options.onpick?.(this.walked.part.step[this.walked.i], this.walked.part.first + this.walked.i);
    if (!by && !down) return event.key === "Enter";
    const chip = Math.max(0, Math.min(trace.nIpus - 1, (this.walked?.chip ?? 0) + (down ?? 0)));
    const parts = trace.partsOf(...trace.entriesOf(range.from, range.to)) ?? [];
    this.walked = next(parts, chip, this.walked, range, by ?? 0) ?? this.walked;
    if (this.walked) this.showWalked();
    return true;
  }

  showWalked() {
    const { part, i, chip } = this.walked, k = this.options.trace.nIpus, start = part.start[i * k + chip], end = part.end[i * k + chip];
    this.options.range.reveal(start, end);
    const box = this.canvas.getBoundingClientRect(), x = Math.max(LEFT, Math.min(this.width - 4, this.x((start + end) / 2)));
    this.options.oncursor?.((start + end) / 2);
    hint({ clientX: box.left + x, clientY: box.top + this.top + chip * this.laneHeight + 12 }, this.describe(this.walked));
  }

  hover(event, time) {
    this.options.oncursor?.(time);
    const hit = time === null ? null : this.entryAt(event, time);
    if (time !== null && this.options.trace.n && !hit && event.offsetX > LEFT && this.element.dataset.detail === "entries") {
      hint(event, [`chip ${this.chipAt(event)} waits`, ["at cycle", whole(Math.round(time))]]);
      return;
    }
    hint(event, hit && this.describe(hit));
  }

  describe({ part, i, chip }) {
    const { trace } = this.options, step = part.step[i], at = i * trace.nIpus + chip, times = part.times[i];
    const lines = [trace.path(step)];
    if (part.stage[i] >= 0) lines.push(`stage ${part.stage[i]}${part.microBatch[i] >= 0 ? `, micro-batch ${part.microBatch[i]}` : ""}`);
    if (times > 1) lines.push(`×${whole(times)} folded: one turn of a loop stands for ${whole(times)}`);
    const phases = trace.phases(step, chip).map((cycles, p) => [WORK[p].name, cycles]);
    const change = this.options.change && [["B − A", signed(Math.round(this.options.change.of(step, chip) * times), whole)]];
    return [...lines, ["chip", whole(chip)], ["step", whole(step)], ["cycles", whole(part.end[at] - part.start[at])], ...change ?? [],
      ...phases.filter(([, cycles]) => cycles > 0).map(([name, cycles]) => [name, whole(cycles)]), ["from cycle", whole(part.start[at])]];
  }
}

// The entry of a chip beside another one, or where that is on another chip; none yet: the first in sight.
function next(parts, chip, walked, range, by) {
  const part = walked && parts.includes(walked.part) ? walked.part : parts[0];
  if (!part) return null;
  const middle = walked && (part.start[walked.i * part.k + walked.chip] + part.end[walked.i * part.k + walked.chip]) / 2;
  let i = walked && walked.chip === chip && part === walked.part ? walked.i + by : part.firstOn(chip, middle || range.from);
  while (i >= 0 && i < part.n && part.end[i * part.k + chip] <= part.start[i * part.k + chip]) i += by || 1;
  return i >= 0 && i < part.n ? { part, i, chip } : null;
}

// A cycle on an axis: in few digits, unless neighbours would look the same.
export function cycleText(cycle, span) {
  return span < 1e5 || cycle > 50 * span ? whole(cycle) : short(cycle);
}

// A stage's colour, pale enough for text.
export function stageTone(stage) {
  const from = rgb(colour("surface")), to = rgb(SERIES[stage % SERIES.length]);
  return css(from.map((v, k) => Math.round(v + 0.32 * (to[k] - v))));
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
