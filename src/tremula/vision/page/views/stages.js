// Stages: a pipeline over time, its fill and flush, its bubbles, and what each stage waits for.

import { card, choice, h, icon, replace } from "../dom.js";
import { PipelineChart, waitedFor } from "../parts/pipeline_chart.js";
import { Range, STEERING } from "../parts/range.js";
import { Table } from "../parts/table.js";
import { colour } from "../colours.js";
import { counted, percent, short, whole } from "../format.js";
import { current, link } from "../state.js";
import { column, term, timeColumns } from "../quantities.js";

const ROWS = [["stages", "Stages", "a row for each stage"], ["chips", "Chips", "a row for each chip, with all of its stages"]];

export async function stagesView(context) {
  const [stages, overview] = await Promise.all(["stages", "overview"].map(context.load));
  if (!stages.facts.stages?.length) {
    const why = "This program has no pipeline: no step belongs to a stage. A PopTorch model has stages if its blocks lie on several chips and poptorch.PipelinedExecution runs them.";
    return { element: h("div", {}, card("Stages", null, h("p.note", {}, why))) };
  }
  const view = new StagesView(context, stages, overview);
  return { element: view.element, select: (state, before) => view.select(state, before), closer: () => view.closer(), close: () => view.close() };
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
    return n ? `${counted(n, "more visit")} not shown` : "";
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
      figure("bubbles", percent((fill + main + flush) / (all * n)), `of the chips' time in ${counted(passes.length, "pass")}: fill ${share(fill)}, main ${share(main)}, flush ${share(flush)}`),
      figure("fill_and_flush", percent(outside / all), `${short(outside)} of ${short(all)} cycles; more micro-batches make it less`),
      figure("slowest_stage", `Stage ${slowest}`, `on chip ${stages[slowest].ipu}: ${whole(visits[slowest])} cycles a visit, ${(visits[slowest] / Math.max(1, mean)).toFixed(1)} × the mean`),
      figure("n_stages", `${stages.length} × ${whole(Math.max(...passes.map((pass) => pass.n_micro_batches)))}`, `on ${counted(n, "chip")}`),
    ];
  }

  stageCard() {
    const { stages } = this.stages.facts, most = (key) => Math.max(1, ...stages.map((stage) => stage[key])), longest = most("cycles_per_visit"), awaited = most("awaited_cycles");
    this.stageTable = new Table({
      count: stages.length, noun: "stages", label: "Stages", sort: [0, false], isOrdered: true, height: 60 + 30 * Math.min(14, stages.length), onpick: (i) => this.context.select({ stage: i }),
      columns: [
        column("stage", (i) => i, { isText: false, show: whole }), column("chip", (i) => stages[i].ipu, { isText: false, show: whole }),
        column("n_visits", (i) => stages[i].n_visits), column("cycles_per_visit", (i) => stages[i].cycles_per_visit, { bar: (v) => v / longest }),
        column("awaited_cycles", (i) => stages[i].awaited_cycles, { bar: (v) => v / awaited, colour: "var(--faint)" }),
        ...timeColumns((key) => (i) => stages[i][key], {
          nIpus: this.overview.facts.n_ipus, total: this.overview.facts.total_cycles, most: most("busy_cycles"), isShown: (name) => stages.some((stage) => stage[`busy_${name}`] > 0),
        }),
      ],
    });
    return card("Each stage", [h("span.status", {}, "the stage that others wait for most sets the pace"), h("div.spring"), this.stageTable.tools], this.stageTable.element, this.restOfWaiting());
  }

  // What no stage is blamed for, so that everything adds up to all waiting.
  restOfWaiting() {
    const { waiting, awaited_between_stages: between, awaited_outside: outside } = this.stages.facts;
    if (!waiting) return null;
    const share = (cycles) => `${short(cycles)} (${percent(cycles / waiting)})`;
    return h("p.note.all-waiting", {}, `Chips wait ${short(waiting)} cycles in all: ${share(waiting - between - outside)} for stages, ${share(between)} for transfers between stages, ${share(outside)} for what runs outside the pipeline. A wait counts for what the awaited chip does meanwhile.`);
  }

  // Waits summed by who waits for what, longest first.
  waitCard() {
    const { columns } = this.stages, result = new Map();
    columns.wait_ipu.forEach((chip, i) => {
      const key = `${chip} ${columns.wait_for_stage[i]} ${columns.wait_for_ipu[i]}`, length = columns.wait_end[i] - columns.wait_begin[i];
      const row = result.get(key) ?? { chip, what: waitedFor(columns, i), n: 0, cycles: 0, longest: 0, at: i };
      row.n += 1;
      row.cycles += length;
      if (length > row.longest) Object.assign(row, { longest: length, at: i });
      result.set(key, row);
    });
    const rows = [...result.values()].sort((a, b) => b.cycles - a.cycles), most = Math.max(1, ...rows.map((row) => row.cycles));
    const table = new Table({
      count: rows.length, noun: "kinds of waits", label: "Waits", sort: [3, true], height: 60 + 30 * Math.min(10, rows.length),
      onpick: (i) => this.show(columns.wait_begin[rows[i].at], columns.wait_end[rows[i].at]),
      columns: [
        column("awaited", (i) => rows[i].what), column("chip", (i) => rows[i].chip, { isText: false, show: (chip) => `chip ${chip}` }),
        column("n_waits", (i) => rows[i].n), column("wait_cycles", (i) => rows[i].cycles, { bar: (v) => v / most, colour: "var(--faint)" }), column("longest_wait", (i) => rows[i].longest),
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

  select({ stage, focus }, before) {
    const { columns } = this.stages, visit = stage >= 0 ? this.longestVisit(stage) : -1;
    if (visit >= 0 && stage !== before.stage) {
      this.stageTable.reveal(stage);
      this.pick(visit);
    }
    if (!focus) return;
    if (visit >= 0) this.show(columns.visit_begin[visit], columns.visit_end[visit]);
    this.context.select({ focus: undefined });
  }

  longestVisit(stage) {
    const { visit_stage: of, visit_begin: begin, visit_end: end } = this.stages.columns;
    return of.reduce((best, one, i) => (one === stage && (best < 0 || end[i] - begin[i] > end[best] - begin[best]) ? i : best), -1);
  }

  closer() {
    this.range.closer(this.chart.selected());
  }

  close() {
    clearTimeout(this.timer);
  }
}

function figure(key, value, about) {
  return h("div.figure", {}, term("small", key), h("b", {}, value), h("span", {}, about));
}
