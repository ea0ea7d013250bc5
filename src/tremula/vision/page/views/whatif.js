// What if the chip were different: constants to vary, curves of time and memory, a table of all points.

import { card, choice, h, replace } from "../dom.js";
import { legend } from "../parts/chart.js";
import { Bars, Curves } from "../parts/curves.js";
import { Table } from "../parts/table.js";
import { SweepForm } from "../parts/sweep_form.js";
import { SERIES, colour } from "../colours.js";
import { news } from "../data.js";
import { byteTicks, bytes, counted, duration, quantity, short, shortDuration, whole } from "../format.js";
import { current } from "../state.js";
import { aboutOf, column } from "../quantities.js";

const PARTS = ["compute", "exchange", "links", "host", "sync", "waiting"];
const WAYS = [["time", "Time"], ["cycles", "Cycles"], ["speed", "Speed", "times as fast as now"]];

export async function whatifView(context) {
  const { facts } = await context.load("whatif");
  const view = new WhatifView(context, facts);
  return { element: view.element, select: (state, before) => view.select(state, before) };
}

// How far the server is, where it takes longer than a blink: a program may have thousands of steps.
class Waiting {
  constructor(element) {
    this.element = element;
    this.bar = h("progress", { max: 1, "aria-label": "Points computed" });
    this.words = h("span", {}, "Loading the tile program…");
    this.begin = performance.now();
    this.timer = setInterval(() => this.look(), 400);
  }

  async look() {
    const sweep = (await news())?.sweep;
    if (this.timer === null) return;
    if (!this.bar.isConnected) replace(this.element, h("section.card", {}, h("div.progress", { role: "status" }, this.words, this.bar)));
    if (!sweep?.n_asked) return;
    const share = sweep.n_done / sweep.n_asked, seconds = (performance.now() - this.begin) / 1000;
    this.bar.value = share;
    this.words.textContent = `Computing ${Math.min(sweep.n_asked, sweep.n_done + 1)} of ${sweep.n_asked} points, ${Math.round(seconds)} s`;
  }

  end() {
    clearInterval(this.timer);
    this.timer = null;
  }
}

class WhatifView {
  constructor(context, facts) {
    Object.assign(this, { context, facts });
    this.constantOf = new Map(facts.constants.map((one) => [one.name, one]));
    if (!facts.sweeps.length) {
      this.element = h("div", {}, card("What if", null, h("p.note", {}, `Nothing can be varied here: ${facts.why_not}`)));
      return;
    }
    this.form = new SweepForm(facts, context.isExported, (sweep) => context.select({ sweep }));
    this.words = h("p.note.answer", { role: "status" });
    this.results = h("div.results", {}, h("p.empty", {}, "Computing…"));
    this.element = h("div", {}, card("What if the chip were different", null, this.form.element, this.words), this.results);
  }

  select(state, before) {
    if (!this.form) return;
    const sweep = state.sweep ?? this.facts.sweeps[0];
    this.form.show(sweep);
    if (sweep !== this.sweep) this.fetch(sweep);
    else if (state.row !== before.row) this.choose(state.row);
  }

  async fetch(sweep) {
    this.sweep = sweep;
    const waiting = new Waiting(this.results);
    try {
      const { facts } = await this.context.load(`whatif/${sweep}`);
      const other = this.context.other && (await this.context.other.load(`whatif/${sweep}`)).facts;
      if (this.sweep === sweep) this.show(facts, other);
    } catch (error) {
      if (this.sweep !== sweep) return;
      replace(this.words);
      replace(this.results, h("section.card", {}, h("p.failure", { role: "alert" }, error.message)));
    } finally {
      waiting.end();
    }
  }

  // The first constant runs along the curves; each value of the second is a separate curve.
  show(facts, other) {
    [this.first, this.second] = Object.keys(facts.sweep).map((name) => this.constantOf.get(name));
    this.base = facts.points.find((p) => !Object.keys(p.changes).length) ?? facts.points[0];
    const swept = facts.points.filter((p) => Object.keys(p.changes).length);
    this.points = this.ordered(swept.length ? swept : facts.points);
    this.others = other?.points.filter((p) => Object.keys(p.changes).length);
    this.build();
    this.choose(current().row);
    replace(this.words, this.answer());
  }

  // All points of a curve, then those of the next.
  ordered(points) {
    const { name } = this.second ?? {};
    return name ? points.toSorted((a, b) => a.changes[name] - b.changes[name]) : points;
  }

  nameOf(point) {
    const parts = [this.first, this.second].filter(Boolean).map((one) => `${one.name} ${quantity(point.changes[one.name], one.unit)}`);
    return parts.join(", ") || point.label;
  }

  xOf(point) {
    return this.first ? point.changes[this.first.name] : this.points.indexOf(point);
  }

  xText(x) {
    return this.first ? quantity(x, this.first.unit) : this.points[x].label;
  }

  groupOf(point) {
    return this.second ? `${this.second.name} ${quantity(point.changes[this.second.name], this.second.unit)}` : "";
  }

  // One curve per value of the second constant.
  series(points, valueOf, shape = {}) {
    const groups = Map.groupBy(points, (p) => this.groupOf(p));
    return [...groups].map(([name, members], i) => ({
      name: [shape.name, name].filter(Boolean).join(": "), colour: SERIES[(i + (shape.shift ?? 0)) % SERIES.length], ...shape.look,
      points: members.map((p) => ({ x: this.xOf(p), y: valueOf(p), isBad: !p.fits, row: this.points.indexOf(p) })),
    }));
  }

  build() {
    const isExact = this.facts.has_run;
    const x = { xName: this.first?.name ?? "", xFormat: (v) => this.xText(v), own: this.first?.value, onpick: (v) => this.pick(v), describe: (v) => this.describe(v) };
    this.time = isExact && new Curves({ ...x, height: 270, ...this.timeOptions() });
    this.memory = new Curves({ ...x, height: 270, ...this.memoryOptions() });
    this.bars = isExact && new Bars({ height: 270, ...this.barOptions() });
    this.table = this.pointTable();
    const way = current().show ?? "time", series = this.time?.options.series ?? [];
    replace(this.results,
      this.time ? card(this.timeTitle(way), [h("div.spring"), choice("Show", WAYS, way, (show) => this.context.select({ show }))],
        this.time.element, series.length > 1 && legend(series)) : card("Time", null, h("p.note", {}, "This program has not run, so only its memory is known.")),
      h("div.grid", {},
        h("section.card.half", {}, h("header", {}, h("h2", {}, "Fullest tile against its memory")), this.memory.element,
          legend([{ name: "needed", colour: SERIES[0] }, { name: "available", colour: colour("bad") }])),
        this.bars && h("section.card.half", {}, h("header", {}, h("h2", {}, "Where time goes")), this.bars.element, legend(this.bars.options.parts))),
      h("div.grid", {}, h("section.card", {}, h("header", {}, h("h2", {}, "All points"), h("div.spring"), this.table.tools), this.table.element)));
  }

  timeTitle(way) {
    return { time: "Time of everything that ran", cycles: "Cycles of everything that ran", speed: "Times as fast as now" }[way];
  }

  timeOptions() {
    const way = current().show ?? "time";
    const valueOf = { time: (p) => p.microseconds / 1e6, cycles: (p) => p.total_cycles, speed: (p) => this.speed(p) }[way] ?? ((p) => p.microseconds / 1e6);
    const yFormat = { time: shortDuration, cycles: short, speed: (v) => `${v.toFixed(2)}×` }[way] ?? shortDuration;
    const others = this.others ? this.series(this.others, valueOf, { name: "B", shift: 3, look: { isDashed: true } }) : [];
    const series = [...this.series(this.points, valueOf, { name: this.others ? "A" : "" }), ...others];
    const ends = series[0].points.map((p) => `${this.xText(p.x)}: ${yFormat(p.y)}`);
    return { series, yFormat, label: `${this.timeTitle(way)} over ${this.first?.name ?? "chips"}. ${ends.join("; ")}` };
  }

  memoryOptions() {
    const one = this.second ? this.points.filter((p) => this.groupOf(p) === this.groupOf(this.points[0]) || this.second.unit === "B") : this.points;
    const needed = this.series(one, (p) => p.largest_tile_bytes, { name: "needed" });
    const available = this.series(one, (p) => p.available_bytes, { name: "available", look: { isDashed: true, colour: colour("bad") } });
    const full = this.points.filter((p) => !p.fits).length;
    return {
      series: [...needed, ...available], yFormat: bytes, yTicks: byteTicks,
      label: `Bytes of the fullest tile over ${this.first?.name ?? "chips"}: ${bytes(one[0].largest_tile_bytes)} needed; ${full ? `${full} points do not fit` : "every point fits"}`,
    };
  }

  barOptions() {
    const clock = (p) => p.total_cycles / Math.max(1e-12, p.microseconds);
    return {
      parts: PARTS.map((name) => ({ name, colour: colour(name === "waiting" ? "idle" : name) })), yFormat: (v) => shortDuration(v / 1e6),
      bars: this.points.map((p, row) => ({ name: this.xText(this.xOf(p)), group: this.second ? quantity(p.changes[this.second.name], this.second.unit) : "", row, values: PARTS.map((part) => p[`${part}_cycles`] / clock(p)) })),
      describe: (bar) => this.describePoint(this.points[bar.row]), onpick: (bar) => this.context.select({ row: bar.row }),
      label: "Time of each point, split into phases and waiting; the table below has the numbers",
    };
  }

  speed(point) {
    return this.base.microseconds / Math.max(1e-12, point.microseconds);
  }

  describe(x) {
    const here = this.points.filter((p) => this.xOf(p) === x);
    if (here.length === 1) return this.describePoint(here[0]);
    return [`${this.first.name} ${this.xText(x)}`, ...here.map((p) => [this.groupOf(p), `${duration(p.microseconds / 1e6)}${p.fits ? "" : ", does not fit"}`])];
  }

  describePoint(p) {
    return [this.nameOf(p), ["time", duration(p.microseconds / 1e6)], ["cycles", whole(p.total_cycles)], ["speed", `${this.speed(p).toFixed(2)}×`],
      ...PARTS.filter((part) => p[`${part}_cycles`]).map((part) => [part, whole(p[`${part}_cycles`])]),
      ["fullest tile", `${bytes(p.largest_tile_bytes)} of ${bytes(p.available_bytes)}`],
      ["fits", p.fits ? "yes" : `no, ${bytes(p.overflowed_bytes)} over`]];
  }

  pointTable() {
    const { points } = this, slowest = Math.max(...points.map((p) => p.microseconds));
    const constants = [this.first, this.second].filter(Boolean);
    return new Table({
      count: points.length, noun: "points", label: "All points", isOrdered: true, height: 360,
      onpick: (row) => this.context.select({ row }),
      columns: [
        ...(constants.length ? constants.map((one) => ({ key: "constant", title: one.name, about: one.meaning ?? aboutOf("constant"), get: (i) => points[i].changes[one.name], show: (v) => quantity(v, one.unit) }))
          : [column("chip", (i) => points[i].label)]),
        column("time", (i) => points[i].microseconds, { bar: (v) => v / slowest }),
        column("speed", (i) => this.speed(points[i]), { show: (v) => `${v.toFixed(2)}×` }), column("total_cycles", (i) => points[i].total_cycles),
        ...PARTS.map((part) => column(`mean_${part}`, (i) => points[i][`${part}_cycles`])),
        column("joules", (i) => points[i].joules, { show: (v) => `${v.toPrecision(4)} J` }),
        column("memory_largest", (i) => points[i].largest_tile_bytes), column("available_bytes", (i) => points[i].available_bytes),
        column("fits", (i) => Number(points[i].fits), { isText: false, show: (v) => (v ? "yes" : "no"), tone: (v) => (v ? "" : "bad") }),
      ],
    });
  }

  // The same in words: what the fastest point is, and what does not fit.
  answer() {
    const best = this.points.reduce((a, b) => (b.fits && (!a.fits || b.microseconds < a.microseconds) ? b : a));
    const full = this.points.filter((p) => !p.fits);
    const now = `Now: ${duration(this.base.microseconds / 1e6)}, ${whole(this.base.total_cycles)} cycles. `;
    const fastest = best.fits ? `Fastest that fits: ${this.nameOf(best)}, ${duration(best.microseconds / 1e6)}, ${this.speed(best).toFixed(2)}× as fast. ` : "";
    const misfits = full.length ? `${full.length} of ${counted(this.points.length, "point")} ${full.length === 1 ? "does" : "do"} not fit: ${full.slice(0, 3).map((p) => this.nameOf(p)).join("; ")}${full.length > 3 ? "; …" : ""}.` : "All points fit.";
    const isRegion = full.some((p) => p.largest_tile_bytes <= p.available_bytes);
    const regions = isRegion ? " Where bytes are left, a region is full: code must lie in region 0, interleaved data that is always live in region 1." : "";
    return (this.facts.has_run ? now + fastest : "") + misfits + regions;
  }

  pick(x) {
    const row = this.points.findIndex((p) => this.xOf(p) === x);
    if (row >= 0) this.context.select({ row });
  }

  choose(row) {
    const point = this.points?.[row];
    if (!this.table) return;
    for (const chart of [this.time, this.memory]) if (chart) chart.update({ chosen: point && this.xOf(point) });
    if (this.bars) this.bars.update({ chosen: row });
    if (point) this.table.reveal(row);
  }
}
