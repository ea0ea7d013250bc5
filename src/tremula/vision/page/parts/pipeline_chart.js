// A pipeline as on a slide: stages (or chips) × time, a box for each micro-batch, hatched where chips wait.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour } from "../colours.js";
import { cycleText, stageTone } from "./timeline.js";
import { steer } from "./range.js";
import { counted, short, ticks, whole } from "../format.js";

const LEFT = 116, AXIS = 22, PARTS = 22, GAP = 3, MOST_TALL = 520;

// options: stages (pack), range, rows "stages" or "chips", nIpus, onpick(visit), oncursor
export class PipelineChart {
  constructor(options) {
    this.options = options;
    this.lanes = this.makeLanes();
    this.row = Math.max(8, Math.min(30, Math.floor(MOST_TALL / Math.max(1, this.lanes.length))));
    this.top = AXIS + PARTS;
    this.height = this.top + this.lanes.length * this.row + 4;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": this.ariaLabel() });
    this.element = h("div.chart.pipeline", { style: { height: `${this.height}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    options.range.listen(() => this.draw());
    this.canvas.addEventListener("blur", () => hint());
    steer(this.canvas, options.range, LEFT, {
      onkey: (event) => this.key(event), selected: () => this.selected(),
      onpick: (event, time) => options.onpick?.(this.visitAt(event, time)),
      onhover: (event, time) => hint(event, time === null || event.offsetX < LEFT ? null : this.describe(event, time)),
    });
  }

  ariaLabel() {
    const { columns, facts } = this.options.stages;
    return `${counted(facts.stages.length, "stage")} over time: ${counted(columns.visit_stage.length, "visit")} in ${counted(facts.passes.length, "pass")}`;
  }

  // A lane has a name, the chip it is on, and its visits and waits in order of time.
  makeLanes() {
    const { stages: { columns, facts }, rows, nIpus } = this.options, byChip = rows === "chips";
    const lanes = byChip
      ? Array.from({ length: nIpus }, (_, chip) => ({ name: `chip ${chip}`, chip, visits: [] }))
      : facts.stages.map(({ ipu }, stage) => ({ name: `stage ${stage}`, about: `chip ${ipu}`, chip: ipu, visits: [] }));
    const waits = Array.from({ length: nIpus }, () => []);
    columns.wait_ipu.forEach((chip, i) => waits[chip].push(i));
    for (const lane of lanes) lane.waits = waits[lane.chip];
    columns.visit_stage.forEach((stage, i) => lanes[byChip ? columns.visit_ipu[i] : stage]?.visits.push(i));
    return lanes;
  }

  x(time) {
    const { range } = this.options;
    return LEFT + ((time - range.from) / range.span) * (this.width - LEFT);
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height);
    pen.font = "11px " + colour("font");
    pen.textBaseline = "middle";
    this.paintAxis(pen);
    this.lanes.forEach((lane, i) => this.paintName(pen, lane, this.top + i * this.row));
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width - LEFT, this.height);
    pen.clip();
    this.lanes.forEach((lane, i) => this.paintLane(pen, lane, this.top + i * this.row));
    for (const pass of this.options.stages.facts.passes) this.paintPass(pen, pass);
    pen.restore();
  }

  paintAxis(pen) {
    const { range } = this.options;
    pen.textAlign = "center";
    for (const time of ticks(range.from, range.to, this.width / 140)) {
      const x = Math.round(this.x(time));
      pen.fillStyle = colour("muted");
      if (x > LEFT + 20) pen.fillText(cycleText(time, range.span), x, 9);
    }
  }

  paintName(pen, lane, top) {
    if (this.row < 11) return;
    pen.textAlign = "left";
    pen.fillStyle = colour("ink");
    pen.fillText(lane.name, 0, top + this.row / 2);
    pen.fillStyle = colour("muted");
    pen.textAlign = "right";
    if (lane.about) pen.fillText(lane.about, LEFT - 10, top + this.row / 2);
  }

  paintLane(pen, lane, top) {
    const { columns } = this.options.stages, tall = this.row - GAP;
    pen.fillStyle = colour("sunken");
    pen.fillRect(LEFT, top, this.width - LEFT, tall);
    this.paintWaits(pen, lane, top, tall);
    let drawn = -1;
    for (const i of from(lane.visits, columns.visit_end, this.options.range.from)) {
      const left = this.x(columns.visit_begin[i]), right = Math.max(left + 1, this.x(columns.visit_end[i]));
      if (left > this.width) break;
      if (right <= drawn + 0.7) continue;
      drawn = right;
      this.paintVisit(pen, i, left, right - left, top, tall);
    }
  }

  paintVisit(pen, i, left, wide, top, tall) {
    const { columns } = this.options.stages, batch = columns.visit_micro_batch[i];
    pen.fillStyle = stageTone(Math.max(0, batch));
    pen.fillRect(left, top, Math.max(1, wide - (wide > 4 ? 1 : 0)), tall);
    const isChosen = this.chosen === i;
    if (isChosen) {
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, top + 1, Math.max(1, wide - 3), tall - 2);
    }
    if (columns.visit_times[i] > 1) {
      this.paintFolded(pen, columns.visit_times[i], left, wide, top, tall);
      return;
    }
    const text = this.options.rows === "chips" && wide > 44 ? `${columns.visit_stage[i]}: ${batch}` : String(batch);
    if (wide < 8 * text.length + 4 || tall < 11 || batch < 0) return;
    pen.fillStyle = colour("ink");
    pen.textAlign = "center";
    pen.fillText(text, left + wide / 2, top + tall / 2);
  }

  // A box that stands for all turns of a loop but the first and the last.
  paintFolded(pen, times, left, wide, top, tall) {
    const text = `×${whole(times)} folded`;
    if (wide < 6 * text.length || tall < 11) return;
    pen.fillStyle = colour("warn");
    pen.textAlign = "center";
    pen.fillText(text, left + wide / 2, top + tall / 2);
  }

  // Waiting is hatched: one path for all of a lane's waits.
  paintWaits(pen, lane, top, tall) {
    const { columns } = this.options.stages;
    pen.save();
    pen.beginPath();
    for (const i of from(lane.waits, columns.wait_end, this.options.range.from)) {
      const left = this.x(columns.wait_begin[i]), right = this.x(columns.wait_end[i]);
      if (left > this.width) break;
      if (right - left > 0.5) pen.rect(left, top, right - left, tall);
    }
    pen.clip();
    pen.fillStyle = colour("idle");
    pen.fillRect(LEFT, top, this.width - LEFT, tall);
    pen.strokeStyle = colour("faint");
    pen.lineWidth = 0.5;
    pen.beginPath();
    for (let x = LEFT - tall; x < this.width; x += 6) {
      pen.moveTo(x, top + tall);
      pen.lineTo(x + tall, top);
    }
    pen.stroke();
    pen.restore();
  }

  // Fill, main and flush: named above, divided by lines through all lanes.
  paintPass(pen, pass) {
    const bottom = this.top + this.lanes.length * this.row - GAP, y = AXIS + 10;
    const edges = [pass.begin, pass.fill_end, pass.flush_begin, pass.end];
    if (this.x(pass.end) < LEFT || this.x(pass.begin) > this.width) return;
    ["fill", "main", "flush"].forEach((name, i) => {
      const left = Math.max(LEFT, this.x(edges[i])), right = Math.min(this.width, this.x(edges[i + 1]));
      if (right <= left) return;
      pen.fillStyle = colour(name === "main" ? "accent" : "warn");
      pen.fillRect(left, y + 6, Math.max(1, right - left - 1), 3);
      const text = right - left > 80 ? `${name}, ${short(edges[i + 1] - edges[i])}` : name;
      pen.textAlign = "left";
      if (right - left > 6 * text.length) pen.fillText(text, left + 1, y - 2);
    });
    pen.strokeStyle = colour("faint");
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    for (const edge of edges) {
      const x = Math.round(this.x(edge)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, this.top - 4);
      pen.lineTo(x, bottom);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  // -- pointer ------------------------------------------------------------------------------------

  choose(visit) {
    this.chosen = visit;
    this.draw();
  }

  // [from, to] of the chosen visit.
  selected() {
    const { columns } = this.options.stages;
    return this.chosen === undefined || this.chosen === null ? null : [columns.visit_begin[this.chosen], columns.visit_end[this.chosen]];
  }

  // Comma and full stop walk through a lane's boxes, up and down change the lane.
  key(event) {
    const by = { ",": -1, ".": 1 }[event.key], down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by && !down) return false;
    const { columns } = this.options.stages, n = this.lanes.length;
    const number = Math.max(0, Math.min(n - 1, (this.walked?.lane ?? 0) + (down ?? 0))), lane = this.lanes[number];
    const place = this.walked ? Math.max(0, Math.min(lane.visits.length - 1, this.walked.place + (by ?? 0))) : 0;
    this.walked = { lane: number, place };
    const visit = lane.visits[place], from = columns.visit_begin[visit], to = columns.visit_end[visit];
    this.options.range.reveal(from, to);
    this.options.onpick?.(visit);
    const box = this.canvas.getBoundingClientRect(), y = this.top + (number + 0.5) * this.row;
    hint({ clientX: box.left + this.x((from + to) / 2), clientY: box.top + y }, this.describeVisit(visit));
    return true;
  }

  laneAt(event) {
    return this.lanes[Math.floor((event.offsetY - this.top) / this.row)];
  }

  visitAt(event, time) {
    const { columns } = this.options.stages, lane = this.laneAt(event);
    return lane?.visits.find((i) => time >= columns.visit_begin[i] && time < columns.visit_end[i]) ?? null;
  }

  describe(event, time) {
    const { columns } = this.options.stages, lane = this.laneAt(event);
    if (!lane) return null;
    const visit = this.visitAt(event, time);
    if (visit !== null) return this.describeVisit(visit);
    const wait = lane.waits.find((i) => time >= columns.wait_begin[i] && time < columns.wait_end[i]);
    return wait === undefined ? null : [`chip ${lane.chip} waits for ${waitedFor(columns, wait)}`, ["cycles", whole(columns.wait_end[wait] - columns.wait_begin[wait])]];
  }

  describeVisit(visit) {
    const { columns } = this.options.stages;
    const times = columns.visit_times[visit], folded = times > 1 ? [`×${whole(times)} folded: one visit stands for ${whole(times)}`] : [];
    return [`stage ${columns.visit_stage[visit]}, micro-batch ${columns.visit_micro_batch[visit]}`, ...folded, ["chip", whole(columns.visit_ipu[visit])],
        ["cycles", whole(columns.visit_end[visit] - columns.visit_begin[visit])], ["of it busy", whole(columns.visit_busy[visit])], ["from cycle", whole(columns.visit_begin[visit])]];
  }
}

// What a chip waits for, in words.
export function waitedFor(columns, wait) {
  const stage = columns.wait_for_stage[wait], chip = columns.wait_for_ipu[wait];
  const what = stage >= 0 ? `stage ${stage}` : stage === -1 ? "transfers between stages" : "what runs outside the pipeline";
  return `${what} on chip ${chip}`;
}

// Those of some numbers, sorted by time, that end after a time.
function* from(numbers, ends, time) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[numbers[middle]] <= time) low = middle + 1;
    else high = middle;
  }
  for (let i = low; i < numbers.length; i++) yield numbers[i];
}
