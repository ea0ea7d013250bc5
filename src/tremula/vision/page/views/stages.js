// Stages: a pipeline over time, its fill and flush, its bubbles, and what each stage waits for.

import { card, choice, h, icon, replace } from "../dom.js";
import { PipelineChart, waitedFor } from "../parts/pipeline_chart.js";
import { Range, STEERING } from "../parts/range.js";
import { Table } from "../parts/table.js";
import { PHASES, colour } from "../colours.js";
import { percent, short, whole } from "../format.js";
import { current, link } from "../state.js";

const ROWS = [["stages", "Stages", "a row for each stage"], ["chips", "Chips", "a row for each chip, with all of its stages"]];

export async function stagesView(context) {
  const [stages, overview] = await Promise.all(["stages", "overview"].map(context.load));
  if (!stages.facts.stages?.length) {
    const why = "This program has no pipeline: no step belongs to a stage. A PopTorch model has stages if its blocks lie on several chips and poptorch.PipelinedExecution runs them.";
    return { element: h("div", {}, card("Stages", null, h("p.note", {}, why))) };
  }
  const view = new StagesView(context, stages, overview);
  return { element: view.element, select: (state) => view.select(state), close: () => view.close() };
}

class StagesView {
  constructor(context, stages, overview) {
    Object.assign(this, { context, stages, overview });
    const { passes } = stages.facts;
    this.begin = Math.min(...passes.map((pass) => pass.begin));
    this.end = Math.max(...passes.map((pass) => pass.end));
    this.range = new Range(this.begin, this.end, 20);
    const state = current();
    if (state.to > state.from) this.range.show(state.from, state.to);
    else if (passes.length > 1) this.range.show(passes[0].begin, passes[0].end);
    this.rows = state.rows === "chips" ? "chips" : "stages";
    this.chart = new PipelineChart({
      stages, range: this.range, rows: this.rows, nIpus: overview.facts.n_ipus, onpick: (visit) => this.pick(visit),
    });
    this.chosen = h("p.note.visit-note", {});
    this.range.listen(() => this.onRange());
    this.passText = h("span.status", {});
    this.paintPass();
    this.element = h("div", {}, h("div.grid", {}, this.figures().map((one) => h("section.card.quarter", {}, one))),
      card("Stages over time", [this.passButtons(), h("span.status", {}, this.leftOut()), h("div.spring"), h("span.status", {}, STEERING),
        choice("Rows", ROWS, this.rows, (rows) => context.select({ rows }))], this.chart.element, this.key(), this.chosen),
      this.stageCard(), this.waitCard());
    this.pick(null);
  }

  // The first pass is shown; the others are a click away.
  passButtons() {
    const { passes } = this.stages.facts;
    if (passes.length < 2) return null;
    const button = (path, by, title) => h("button.plain", { type: "button", title, "aria-label": title, onclick: () => this.goPass(this.passAt() + by) }, icon(path));
    return h("span.tools", {}, button("M15 5l-7 7 7 7", -1, "Previous pass"), this.passText, button("M9 5l7 7-7 7", 1, "Next pass"));
  }

  passAt() {
    const middle = (this.range.from + this.range.to) / 2, { passes } = this.stages.facts;
    return Math.max(0, passes.findLastIndex((pass) => pass.begin <= middle));
  }

  goPass(number) {
    const { passes } = this.stages.facts, pass = passes[Math.max(0, Math.min(passes.length - 1, number))];
    this.range.show(pass.begin, pass.end);
  }

  paintPass() {
    this.passText.textContent = `pass ${whole(this.passAt() + 1)} of ${whole(this.stages.facts.passes.length)}`;
  }

  leftOut() {
    const { n_left_out: n } = this.stages.facts;
    return n ? `${whole(n)} visits more are not shown` : "";
  }

  key() {
    const hatch = `repeating-linear-gradient(135deg, ${colour("idle")} 0 3px, ${colour("faint")} 3px 3.7px)`;
    return h("ul.legend", {}, h("li", {}, "the number in a box is its micro-batch"), h("li", {}, h("i", { style: { background: hatch } }), "the chip waits: a bubble"),
      [["fill and flush", "warn"], ["main: all stages have work", "accent"]].map(([name, tone]) => h("li", {}, h("i", { style: { background: colour(tone) } }), name)));
  }

  // -- what it comes to ---------------------------------------------------------------------------

  figures() {
    const { passes, stages } = this.stages.facts, n = this.overview.facts.n_ipus;
    const sum = (of) => passes.reduce((total, pass) => total + of(pass), 0);
    const all = Math.max(1, sum((pass) => pass.end - pass.begin));
    const [fill, main, flush] = ["fill", "main", "flush"].map((part) => sum((pass) => pass.bubbles[part]));
    const outside = sum((pass) => pass.fill_end - pass.begin + pass.end - pass.flush_begin);
    const visits = stages.map((stage) => stage.cycles_per_visit), slowest = visits.indexOf(Math.max(...visits));
    const mean = visits.reduce((a, b) => a + b, 0) / visits.length, share = (part) => percent(part / (all * n)).replace(" ", "\u00a0");
    return [
      figure("Bubbles", percent((fill + main + flush) / (all * n)), `of the chips' time in ${whole(passes.length)} pass(es): fill ${share(fill)}, main ${share(main)}, flush ${share(flush)}`),
      figure("Fill and flush", percent(outside / all), `${short(outside)} of ${short(all)} cycles; more micro-batches make it less`),
      figure("Slowest stage", `Stage ${slowest}`, `on chip ${stages[slowest].ipu}: ${whole(visits[slowest])} cycles a visit, ${(visits[slowest] / Math.max(1, mean)).toFixed(1)} × the mean`),
      figure("Stages × micro-batches", `${stages.length} × ${whole(Math.max(...passes.map((pass) => pass.n_micro_batches)))}`, `on ${whole(n)} chip(s)`),
    ];
  }

  stageCard() {
    const { stages } = this.stages.facts, most = Math.max(1, ...stages.map((stage) => stage.cycles_per_visit));
    const total = Math.max(1, this.overview.facts.total_cycles), longest = Math.max(1, ...stages.map((stage) => stage.cycles));
    const awaited = Math.max(1, ...stages.map((stage) => stage.awaited_cycles));
    const phases = PHASES.slice(0, -1).filter(({ key }) => stages.some((stage) => stage[key] > 0));
    const table = new Table({
      count: stages.length, noun: "stages", label: "Stages", sort: [0, false], isOrdered: true, height: 60 + 30 * Math.min(14, stages.length), onpick: (i) => this.pickStage(i),
      columns: [
        { title: "Stage", get: (i) => i, show: whole },
        { title: "Chip", get: (i) => stages[i].ipu, show: whole },
        { title: "Visits", get: (i) => stages[i].n_visits, show: whole },
        { title: "A visit", get: (i) => stages[i].cycles_per_visit, show: whole, bar: (v) => v / most, about: "cycles from its first step to its last, the median of all visits" },
        { title: "On the critical path", get: (i) => stages[i].cycles, show: whole, bar: (v) => v / longest, about: "cycles of the total in which everything else waits for this stage" },
        { title: "Of total", get: (i) => stages[i].cycles / total, show: percent },
        ...phases.map(({ key, name, tone, about }) => ({
          title: `${name[0].toUpperCase()}${name.slice(1)}`, get: (i) => stages[i][key], show: whole, about: `on the critical path: ${about}`, colour: `var(--${tone})`, bar: (v, i) => v / Math.max(1, stages[i].cycles),
        })),
        { title: "Others wait for it", get: (i) => stages[i].awaited_cycles, show: whole, bar: (v) => v / awaited, colour: "var(--faint)", about: "chip-cycles" },
      ],
    });
    return card("Each stage", [h("span.status", {}, "the stage that is most on the critical path sets the pace"), h("div.spring"), table.tools], table.element);
  }

  // Waits summed by who waits for what, longest first.
  waitCard() {
    const { columns } = this.stages, found = new Map();
    columns.wait_ipu.forEach((chip, i) => {
      const key = `${chip} ${columns.wait_for_stage[i]} ${columns.wait_for_ipu[i]}`, length = columns.wait_end[i] - columns.wait_begin[i];
      const row = found.get(key) ?? { chip, what: waitedFor(columns, i), n: 0, cycles: 0, longest: 0, at: i };
      row.n += 1;
      row.cycles += length;
      if (length > row.longest) Object.assign(row, { longest: length, at: i });
      found.set(key, row);
    });
    const rows = [...found.values()].sort((a, b) => b.cycles - a.cycles), most = Math.max(1, ...rows.map((row) => row.cycles));
    const table = new Table({
      count: rows.length, noun: "kinds of waits", label: "Waits", sort: [3, true], height: 60 + 30 * Math.min(10, rows.length),
      onpick: (i) => this.show(columns.wait_begin[rows[i].at], columns.wait_end[rows[i].at]),
      columns: [
        { title: "For", isText: true, get: (i) => rows[i].what },
        { title: "Waits", get: (i) => rows[i].chip, show: (chip) => `chip ${chip}` },
        { title: "Times", get: (i) => rows[i].n, show: whole },
        { title: "Cycles", get: (i) => rows[i].cycles, show: whole, bar: (v) => v / most, colour: "var(--faint)" },
        { title: "Longest", get: (i) => rows[i].longest, show: whole },
      ],
    });
    return card("What chips wait for", [h("span.status", {}, "inside passes; a click goes to the longest"), h("div.spring"), table.tools], table.element);
  }

  // -- choosing -----------------------------------------------------------------------------------

  pick(visit) {
    const { columns } = this.stages;
    this.chart.choose(visit);
    if (visit === null) {
      replace(this.chosen, "Choose a box to see what ran in it.");
      return;
    }
    const from = columns.visit_begin[visit], to = columns.visit_end[visit];
    replace(this.chosen, `Stage ${columns.visit_stage[visit]}, micro-batch ${columns.visit_micro_batch[visit]} on chip ${columns.visit_ipu[visit]}: ${whole(to - from)} cycles from ${whole(from)}. `,
      h("a.go", { href: link({ view: "execution", from: Math.floor(from), to: Math.ceil(to), rows: undefined }) }, "In the trace →"));
  }

  pickStage(stage) {
    const { columns } = this.stages, visit = columns.visit_stage.indexOf(stage);
    if (visit >= 0) this.pick(visit);
  }

  show(from, to) {
    const span = to - from;
    this.range.show(from - 2 * span, to + 2 * span);
    this.chart.canvas.scrollIntoView({ block: "nearest" });
  }

  onRange() {
    this.paintPass();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const { from, to, low, high } = this.range, isAll = from <= low && to >= high;
      this.context.select({ from: isAll ? undefined : Math.round(from), to: isAll ? undefined : Math.round(to) });
    }, 220);
  }

  select() {}

  close() {
    clearTimeout(this.timer);
  }
}

function figure(title, value, about) {
  return h("div.figure", {}, h("small", {}, title), h("b", {}, value), h("span", {}, about));
}
