// Execution: what ran when on every chip and tile, and what each step waited for.

import { card, choice, h, hint, replace } from "../dom.js";
import { AreaCard } from "../parts/area_card.js";
import { Chart, legend } from "../parts/chart.js";
import { FlowList } from "../parts/flow_list.js";
import { HeatMap } from "../parts/heat.js";
import { heatDifference } from "../parts/heat_difference.js";
import { parseArea, writeArea } from "../parts/marked_area.js";
import { parsePins } from "../parts/pins.js";
import { Range, STEERING } from "../parts/range.js";
import { Strip } from "../parts/strip.js";
import { Table } from "../parts/table.js";
import { Timeline } from "../parts/timeline.js";
import { TraceData } from "../parts/trace_data.js";
import { PHASES, colour, phasesOn, phasesText } from "../colours.js";
import { partners, text } from "../data.js";
import { bytes, counted, duration, percent, place, short, signed, tileName, whole } from "../format.js";
import { current, link } from "../state.js";
import { column, term, timeColumns } from "../quantities.js";

const WORK = PHASES.slice(0, -1).map(({ key }) => key);
const MODES = [["phases", "Phases"], ["compute", "Compute"], ["exchange", "Exchange"], ["idle", "Waiting"]];

export async function executionView(context) {
  const [overview, steps, tiles, vertices] = await Promise.all(["overview", "steps", "tiles", "vertices"].map(context.load));
  const other = context.other && (await context.other.load("steps"));
  const versus = await heatDifference(context, "phases");
  const view = new ExecutionView(context, { overview, steps, tiles, vertices, other, versus });
  return { element: view.element, select: (state, before) => view.select(state, before), closer: () => view.closer() };
}

class ExecutionView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    const { facts } = this.overview;
    this.details = h("section.card.two-thirds", {});
    this.summary = h("section.card.third", {});
    this.table = this.stepTable();
    this.trace = new TraceData(context, this.overview, this.steps);
    this.element = h("div", {}, facts.n_entries ? this.timeCards() : card("Execution", null,
      h("p.note", {}, "This program has not run, so there is no trace. Below is what one execution of each step costs.")),
    h("div.grid", {}, this.summary, this.details),
    card("Steps", [h("div.spring"), this.table.tools], this.table.element));
    if (!facts.n_entries) this.summary.hidden = true;
  }

  timeCards() {
    const { facts } = this.overview, { context, trace } = this;
    this.range = new Range(trace.begin, trace.end, 20);
    const state = current();
    if (state.from !== undefined && state.to > state.from) this.range.show(state.from, state.to);
    const kind = state.show ?? "flame", phase = state.phase ?? "phases";
    const oncursor = (time) => {
      this.timeline.cursor(time);
      this.heat.cursor(time);
    };
    this.timeline = new Timeline({
      trace, range: this.range, kind, oncursor, blocks: () => this.heat?.columnsInSight() ?? [], onpick: (step, entry) => context.select({ step, entry }),
      onmark: (area, isDone) => this.mark(area, isDone), pins: () => this.pinnedTimes(), selected: () => this.selected(), change: this.changes(),
    });
    this.area = new AreaCard({ trace, onclear: () => context.select({ mark: undefined }), onzoom: ({ from, to }) => this.range.show(from, to) });
    this.flows = new FlowList({ context, trace, timeline: this.timeline, range: this.range, select: context.select });
    this.heat = new HeatMap({
      kind: "phases", shape: facts.heat.phases, nIpus: facts.n_ipus, perIpu: facts.tiles_per_ipu, range: this.range, mode: phase,
      load: context.load, entriesOf: (from, to) => trace.entriesOf(from, to), height: 430, label: "Tiles over time",
      describe: (cell) => this.describe(cell), onpick: (cell) => this.pickCell(cell), oncursor, selected: () => this.selected(), ...this.versus?.options(phase),
    });
    trace.onload = () => {
      this.timeline.draw();
      this.heat.moved();
      this.select(current(), {});
    };
    this.strip = new Strip(trace, this.range);
    this.range.listen(() => this.onRange());
    const tools = [h("div.spring"), h("span.status", {}, STEERING),
      choice("Producers and consumers", [["on", "Arrows", "from the producers of the chosen step, and to its consumers"], ["off", "No arrows"]], state.flows ?? "on", (flows) => context.select({ flows: flows === "on" ? undefined : flows })),
      choice("Timeline", [["flame", "Flame", "nested by name"], ["flat", "Flat", "phases of each step"]], kind, (show) => context.select({ show }))];
    const note = context.other && this.comparison();
    const key = this.changes() ? this.versus.scale("100 % of A's time") : legend(phasesOn(facts.n_ipus).map(({ name, tone, about }) => ({ name, about, tone, colour: colour(tone) })));
    return [card(this.changes() ? "Timeline, B − A" : "Timeline", [this.foldedText(), ...tools], note, this.strip.element, h("div", { style: { height: "8px" } }), this.timeline.element,
      key, this.flows.element), this.area.element,
    card(this.versus?.title("Every tile") ?? "Every tile", [this.heat.status, h("div.spring"), h("span.status", {}, "Alt + wheel zooms tiles"),
      choice("Heat map", this.versus ? MODES.slice(0, 3) : MODES, phase, (next) => context.select({ phase: next }))], this.heat.element, this.versus?.legend() ?? this.heat.legend())];
  }

  // How much of what ran is in the trace, one by one or folded.
  foldedText() {
    const { facts } = this.overview;
    const n = facts.n_executions ?? facts.n_entries;
    return h("span.status.folded", {}, facts.is_folded
      ? `${whole(n)} executions, folded into ${whole(facts.n_entries)}; ×n: a turn of a loop stands for n`
      : `${whole(n)} executions, one by one`);
  }

  // A marked area is part of the address once the drag has ended.
  mark(area, isDone) {
    this.timeline.mark(area);
    if (isDone && area.to > area.from) this.context.select({ mark: writeArea(area, this.trace.nIpus) });
  }

  // Moments of pins on this report: of an execution that is loaded, a marked area or a zoom.
  pinnedTimes() {
    const report = current().report ?? 0;
    return parsePins(current().pins).filter((pin) => (pin.report ?? 0) === report).map((pin) => {
      const part = pin.entry === undefined ? null : this.trace.parts.get(Math.floor(pin.entry / this.trace.per));
      const span = part && pin.entry - part.first < part.n ? part.spanOf(pin.entry - part.first) : null;
      return { at: span?.[0] ?? parseArea(pin.mark, this.trace.nIpus)?.from ?? pin.from, note: pin.note };
    }).filter(({ at }) => at !== undefined);
  }

  showMarks({ mark, step, entry, flows, pins }, before) {
    if (!this.timeline) return;
    if (mark !== before.mark) {
      const area = parseArea(mark, this.trace.nIpus);
      this.timeline.mark(area);
      this.area.show(area);
    }
    if (pins !== before.pins) this.timeline.draw();
    this.flows.show(flows === "off" ? undefined : step, entry);
  }

  onRange() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const { from, to, low, high } = this.range, isAll = from <= low && to >= high;
      this.context.select({ from: isAll ? undefined : Math.round(from), to: isAll ? undefined : Math.round(to) });
      this.paintSummary();
    }, 220);
  }

  describe(cell) {
    const shares = PHASES.slice(0, -1).map(({ key, name }) => [name, cell[key]]);
    const waiting = Math.max(0, 1 - shares.reduce((sum, [, share]) => sum + share, 0));
    const step = cell.nEntries === 1 ? this.trace.stepOf(cell.firstEntry) : null;
    const isDifference = this.versus && !this.versus.whyNot;
    return [step === null ? `${whole(cell.nEntries)} entries from ${whole(cell.firstEntry)}` : this.trace.path(step),
      this.nameOf(cell.tile), ["cycles", whole(cell.end - cell.begin)],
      ...isDifference ? this.versus.describe(cell) : [...shares, ["waiting", waiting]].filter(([, share]) => share > 0).map(([name, share]) => [name, percent(share)])];
  }

  pickCell(cell) {
    const step = this.trace.stepOf(cell.firstEntry);
    this.context.select({ tile: cell.tile, ...(step !== null && cell.nEntries <= 4 ? { step, entry: cell.firstEntry } : {}) });
    hint();
  }

  // -- what is in sight ---------------------------------------------------------------------------

  paintSummary() {
    if (!this.overview.facts.n_entries) return;
    const { facts } = this.overview, k = facts.n_ipus, { from, to } = this.range;
    const sums = this.trace.sums(from, to), all = Math.max(1, (to - from) * k);
    const parts = phasesOn(k).map(({ key, name, tone, about }) => ({ name, about, tone, colour: colour(tone), share: sums[key] / all }));
    const tiles = this.tiles.columns, n = tiles.compute.length;
    const mean = tiles.compute.reduce((s, v) => s + v, 0) / n, most = tiles.compute.reduce((high, v) => Math.max(high, v), 1);
    replace(this.summary, h("header", {}, h("h2", {}, "In sight")),
      h("div.figure", {}, h("b", {}, whole(Math.round(to - from))), h("span", {}, `cycles, ${duration((to - from) / facts.clock_hz)}${k > 1 ? `, ${k} chips` : ""}`)),
      h("div.shares", {}, parts.map((p) => h(`i.tone-${p.tone}`, { style: { width: `${100 * p.share}%`, backgroundColor: p.colour } }))),
      legend(parts.map((p) => ({ ...p, value: percent(p.share) }))),
      h("h3", {}, "Tile balance, everything that ran"),
      h("p", { className: "tile-balance" }, h("b", {}, percent(mean / most)), h("span.note", {}, ` a tile computes ${short(mean)} cycles on average, the busiest ${short(most)}`)));
  }

  // -- one step -----------------------------------------------------------------------------------

  select(state, before) {
    const { step, tile } = state;
    this.timeline?.choose(step);
    this.showMarks(state, before);
    const spans = step !== undefined && this.trace ? this.trace.spansOfStep(step) : [];
    this.heat?.mark({ tile, span: spans.length <= 400 ? spans : [] });
    this.paintSummary();
    if (step !== before.step || !this.details.firstChild) this.showStep(step);
    else this.chart?.update({ marks: tile === undefined ? [] : [tile] });
    if (step !== undefined) this.table.reveal(step);
    if (state.focus && step !== undefined && this.range && !this.isGoing) {
      this.isGoing = true;
      this.goTo(step).finally(() => { this.isGoing = false; });
    }
  }

  async showStep(step) {
    const { columns } = this.steps;
    if (step === undefined || step >= columns.cycles.length) {
      this.chart = null;
      this.showTiles();
      return;
    }
    const part = await this.context.load(`step-tiles/${step}`).catch(() => null);
    if (current().step !== step) return;
    const tile = columns.critical_tile[step];
    const facts = [
      ["type", text(this.steps, "type", step)], ["executed", counted(columns.executed[step], "time")],
      ["once_cycles", `${whole(columns.cycles[step])}: ${phasesText((key) => columns[key][step])}`], ...this.timeFacts(step),
      columns.stage[step] >= 0 && ["stage", whole(columns.stage[step])], ["n_active_tiles", whole(columns.n_active_tiles[step])],
      ["balance", `${percent(columns.balance[step])}, of active tiles ${percent(columns.active_balance[step])}`],
      tile >= 0 && ["critical_tile", h("button.plain.critical", { type: "button", onclick: () => this.context.select({ tile }) }, this.nameOf(tile))],
      ["once_bytes", bytes(columns.bytes_in[step])],
      columns.n_flops[step] > 0 && ["n_flops", whole(columns.n_flops[step] * columns.executed[step])],
      ["line", text(this.steps, "source", step)],
    ].filter(Boolean);
    const codelets = this.vertexText(columns.compute_set[step]);
    if (codelets) facts.push(["n_vertices", codelets]);
    replace(this.details, h("header", {}, h("h2", {}, this.trace.path(step)), h("div.spring"),
      this.range && h("button.plain", { type: "button", title: "Zoom to its next execution", onclick: () => this.goTo(step) }, "Go to it"), h("a.plain", { href: link({ view: "liveness" }) }, "Liveness"), h("a.plain", { href: link({ view: "tree" }) }, "Program")),
    h("dl.facts", {}, facts.map(([key, value]) => [term("dt", key), h("dd", {}, value)])),
    part ? this.tileChart([
      { name: "compute", colour: colour("compute"), values: part.columns.compute },
      { name: "exchange", colour: colour("exchange"), values: part.columns.exchange },
    ], "Cycles of each tile in one execution") : h("p.note", {}, "Cycles of single tiles are not in this file."));
  }

  // What everything that ran of a step takes.
  timeFacts(step) {
    const { columns, facts } = this.steps, all = Math.max(1, facts.total_cycles), k = facts.n_ipus;
    const one = (key, cycles, whole_, of) => [key, `${whole(cycles)}, ${percent(cycles / whole_)} of ${of}`];
    if (k === 1) return [one("cycles", columns.busy_cycles[step], all, "the total")];
    return [one("busy_cycles", columns.busy_cycles[step], all * k, "all chips"), one("path_cycles", columns.total_cycles[step], all, "the total")];
  }

  // Zooms to the next execution of a step after what is in sight, or to the first.
  async goTo(step) {
    const middle = (this.range.from + this.range.to) / 2, isWide = this.range.span > 0.9 * (this.range.high - this.range.low);
    const hit = await this.trace.find(step, isWide ? -Infinity : middle).catch(() => null);
    if (!hit) return;
    const [entry, [from, to]] = hit;
    this.range.show(from - 3 * (to - from), to + 3 * (to - from));
    this.context.select({ step, entry, focus: undefined });
    this.timeline.canvas.scrollIntoView({ block: "nearest" });
  }

  // [from, to] of the selected execution, or of the selected step's nearest to the middle of the view.
  selected() {
    const { step, entry } = current(), span = entry === undefined ? null : this.trace.spanOfEntry(entry);
    if (span || step === undefined) return span;
    const middle = (this.range.from + this.range.to) / 2, far = ([from, to]) => Math.abs((from + to) / 2 - middle);
    return this.trace.spansOfStep(step).reduce((best, one) => (!best || far(one) < far(best) ? one : best), null);
  }

  // The key + without a chart that has the focus.
  closer() {
    this.range?.closer(this.selected());
  }

  // -- two reports --------------------------------------------------------------------------------

  // Cycles B − A of an execution of A on a chip: what B's executions of the step take, spread over A's.
  changes() {
    if (!this.other || this.versus?.whyNot) return undefined;
    if (this.known) return this.known;
    const mine = this.steps.columns, theirs = this.other.columns, k = this.overview.facts.n_ipus, places = partners(this.steps, this.other);
    const once = (columns, step, chip) => WORK.reduce((sum, key) => sum + columns[`ipu_${key}`][step * k + chip], 0);
    const of = (step, chip) => (places[step] < 0 ? 0 : (once(theirs, places[step], chip) * theirs.executed[places[step]]) / Math.max(1, mine.executed[step])) - once(mine, step, chip);
    this.known = { of, buckets: this.versus.changes };
    return this.known;
  }

  // What is compared, and the sums that the colours show.
  comparison() {
    if (!this.changes()) return h("p.note.compared", {}, "A only: chips or tiles of B differ, so executions cannot be paired. Side by side shows both over time.");
    const sum = ({ columns }, isMine = () => true) => columns.busy_cycles.reduce((total, cycles, i) => total + (isMine(i) ? cycles : 0), 0);
    const places = partners(this.steps, this.other), taken = new Set(places), onlyA = sum(this.steps, (i) => places[i] < 0), onlyB = sum(this.other, (i) => !taken.has(i));
    const paired = sum(this.other) - onlyB - (sum(this.steps) - onlyA), say = (cycles) => signed(cycles, short);
    return h("p.note.compared", {}, "Compared per item of work, not per execution: both runs count as the same work, and what B takes for a step in all its executions is spread over A's. ",
      `Busy cycles, B − A: ${say(paired)} in steps that both have, ${say(-onlyA)} in steps of A alone, ${say(onlyB)} in steps of B alone (not in this timeline): ${say(paired - onlyA + onlyB)} in all.`);
  }

  showTiles() {
    const { columns } = this.tiles;
    replace(this.details, h("header", {}, h("h2", {}, "Tile balance"), h("span.status", {}, "cycles of each tile, everything that ran; choose a step above to see its own")),
      this.tileChart([
        { name: "compute", colour: colour("compute"), values: columns.compute },
        { name: "exchange", colour: colour("exchange"), values: columns.exchange },
      ], "Cycles of each tile"));
  }

  nameOf(tile) {
    const { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.overview.facts;
    return tileName(tile, perIpu, nIpus);
  }

  tileChart(series, label) {
    const { tile } = current(), { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.overview.facts;
    this.chart = new Chart({
      series, isStacked: true, label, xName: "tile", yFormat: short, height: 210, marks: tile === undefined ? [] : [tile],
      perChip: nIpus > 1 ? perIpu : undefined, describe: (i) => [this.nameOf(i), ...series.map((s) => [s.name, whole(s.values[i])])],
      onpick: (i) => this.context.select({ tile: i }),
    });
    return this.chart.element;
  }

  vertexText(set) {
    if (set < 0) return "";
    const { columns, facts } = this.vertices, result = [];
    for (let i = 0; i < columns.compute_set.length; i++) {
      if (columns.compute_set[i] === set) result.push(`${whole(columns.n_vertices[i])} × ${facts.texts.name[columns.vertex_type[i]]}`);
    }
    return result.join(", ");
  }

  stepTable() {
    const { columns } = this.steps, { select } = this.context;
    const { n_ipus: nIpus } = this.overview.facts, ran = timeColumns((key) => (i) => columns[key === "path_cycles" ? "total_cycles" : key][i], {
      nIpus, total: this.steps.facts.total_cycles, most: columns.busy_cycles.reduce((high, v) => Math.max(high, v), 1),
    }).filter(({ key }) => ["cycles", "share", "busy_cycles", "busy_share", "path_cycles", "path_share"].includes(key));
    const list = [
      column("number", (i) => i, { show: whole, isText: false }),
      column("step", (i) => text(this.steps, "path", i)),
      column("type", (i) => text(this.steps, "type", i), { isExtra: true }),
      column("executed", (i) => columns.executed[i]),
      ...ran,
      ...phasesOn(nIpus).slice(0, -1).map(({ key }) => column(`once_${key}`, (i) => columns[key][i])),
      column("balance", (i) => columns.balance[i], { tone: (v) => (v < 0.4 ? "bad" : "") }),
      column("critical_tile", (i) => columns.critical_tile[i], { isText: false, show: (v) => (v < 0 ? "–" : this.nameOf(v)) }),
      column("line", (i) => place(text(this.steps, "source", i))),
    ];
    if (this.other) list.splice(5, 0, this.differenceColumn());
    return new Table({
      count: columns.cycles.length, noun: "steps", label: "Steps", sort: [0, false], isOrdered: true, columns: list, height: 420,
      filter: (i) => `${text(this.steps, "path", i)} ${text(this.steps, "type", i)} ${text(this.steps, "source", i)}`,
      onpick: (i) => select({ step: i }),
    });
  }

  // B's cycles beside A's.
  differenceColumn() {
    const then = this.other.columns.busy_cycles, places = partners(this.steps, this.other);
    const change = Array.from(this.steps.columns.busy_cycles, (v, i) => (places[i] < 0 ? 0 : then[places[i]]) - v);
    return column("difference", (i) => change[i], { show: (v) => signed(v, whole), tone: (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint") });
  }
}
