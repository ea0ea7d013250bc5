// Tensors: every variable with who writes it, who reads it, and the steps in which it lives, as bars.

import { card, h, replace } from "../dom.js";
import { Dataflow } from "../parts/dataflow.js";
import { Chart } from "../parts/chart.js";
import { Table } from "../parts/table.js";
import { SERIES } from "../colours.js";
import { text } from "../data.js";
import { byteTicks, bytes, counted, place, shape, tileName, whole } from "../format.js";
import { link } from "../state.js";
import { column } from "../quantities.js";

const MOST_LISTED = 12;

export async function tensorsView(context) {
  const [flow, steps, variables, tiles] = await Promise.all(["dataflow", "steps", "variables", "tiles"].map(context.load));
  const view = new TensorsView(context, { flow: new Dataflow(flow, steps, variables), steps, variables, tiles, whyNot: flow.facts.why_not });
  return { element: view.element, select: (state) => view.select(state) };
}

class TensorsView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.nSteps = this.steps.columns.cycles.length;
    this.users = this.whyNot ? new Map() : this.flow.users();
    this.ranges = this.lifetimes();
    this.details = h("section.card", {});
    this.table = this.makeTable();
    this.element = h("div", {}, card("Tensors", [h("div.spring"), this.table.tools], this.table.element,
      this.whyNot && h("p.note", {}, `Who reads and writes them follows from the tile program: ${this.whyNot}`),
      this.variables.facts.n_left_out > 0 && h("p.note", {}, `${whole(this.variables.facts.n_left_out)} smaller ones, together ${bytes(this.variables.facts.bytes_left_out)}, are not listed.`)), this.details);
  }

  // Of each row of variables: [first, last, …] of the ranges of steps in which it lives.
  lifetimes() {
    const { id, life_row: row, life_first: first, life_last: last } = this.variables.columns;
    const result = Array.from({ length: id.length }, () => []);
    for (let i = 0; i < row.length; i++) result[row[i]].push([first[i], last[i]]);
    return result;
  }

  operations(id, way) {
    return [...new Set((this.users.get(id)?.[way] ?? []).map((step) => text(this.steps, "operation", step) || "(unnamed)"))];
  }

  makeTable() {
    const { columns } = this.variables, most = columns.n_bytes.reduce((high, v) => Math.max(high, v), 1);
    const count = (way) => (row) => this.users.get(columns.id[row])?.[way].length ?? 0;
    const first = (way) => (row) => this.operations(columns.id[row], way)[0] ?? "";
    const length = (row) => (columns.always_live[row] ? this.nSteps + 1 : this.ranges[row].reduce((sum, [a, b]) => sum + b - a + 1, 0));
    const users = this.whyNot ? [] : [
      column("made_by", first("writes"), { show: (v, row) => more(v, this.operations(columns.id[row], "writes").length) }),
      column("n_writes", count("writes"), { isExtra: true }),
      column("used_by", first("reads"), { show: (v, row) => more(v, this.operations(columns.id[row], "reads").length) }),
      column("n_reads", count("reads")),
    ];
    return new Table({
      count: columns.id.length, noun: "tensors", label: "Tensors", sort: [1, true], height: 520,
      filter: (row) => `${text(this.variables, "name", row)} ${text(this.variables, "source", row)}`, onpick: (row) => this.context.select({ variable: columns.id[row] }),
      columns: [
        column("tensor", (row) => text(this.variables, "name", row)), column("n_bytes", (row) => columns.n_bytes[row], { bar: (v) => v / most }),
        column("type", (row) => text(this.variables, "type", row).toLowerCase()), column("shape", (row) => shape(text(this.variables, "shape", row))),
        ...users,
        column("lives", length, { title: `Lives, steps 0 to ${whole(Math.max(0, this.nSteps - 1))}`, room: 260, show: (_, row) => this.bars(row) }),
        column("line", (row) => place(text(this.variables, "source", row)), { isExtra: true }),
      ],
    });
  }

  // Bars over all steps; a range shorter than a pixel is still seen.
  bars(row) {
    const isAlways = this.variables.columns.always_live[row], n = Math.max(1, this.nSteps);
    const ranges = isAlways ? [[0, n - 1]] : this.ranges[row];
    const words = isAlways ? "always" : ranges.length ? ranges.map(([a, b]) => `${whole(a)} to ${whole(b)}`).join(", ") : "never";
    return h("span.life", { title: words, "aria-label": words, role: "img" }, ranges.map(([a, b]) => h(`i${isAlways ? ".always" : ""}`, { style: { left: `${(100 * a) / n}%`, width: `${(100 * (b - a + 1)) / n}%` } })));
  }

  select({ variable }) {
    const row = this.flow.rowOf.get(variable);
    if (row !== undefined) this.table.reveal(row);
    this.show(row, variable);
  }

  async show(row, id) {
    this.shown = id;
    if (row === undefined) {
      replace(this.details, h("p.note", {}, "Choose a tensor to see the steps that write and read it, and its bytes on every tile."));
      return;
    }
    const per = this.variables.facts.n_per_part, part = await this.context.load(`variable-tiles/${Math.floor(row / per)}`).catch(() => null);
    if (this.shown !== id) return;
    replace(this.details, h("header", {}, h("h2", {}, text(this.variables, "name", row)), h("div.spring"), h("a.plain", { href: link({ view: "memory", variable: id }) }, "In memory →")),
      h("div.grid", {}, h("div.half", {}, this.whyNot ? null : [this.list(id, "writes", "Written by"), this.list(id, "reads", "Read by")]),
        h("div.half", {}, h("h3", {}, "Bytes on each tile"), part ? this.chart(row, part.columns, row % per) : h("p.note", {}, "Not in the exported file."))));
  }

  list(id, way, title) {
    const steps = this.users.get(id)?.[way] ?? [];
    return [h("h3", {}, `${title} ${counted(steps.length, "step")}`), h("ul.causes", {}, steps.slice(0, MOST_LISTED).map((step) => h("li", {}, h("a.go", { href: link({ view: "execution", step, variable: id }) }, `${whole(step)}: ${text(this.steps, "path", step) || "unnamed"}`))),
      steps.length > MOST_LISTED && h("li", {}, `and ${whole(steps.length - MOST_LISTED)} more`))];
  }

  chart(row, { start, tile, n_bytes: size }, at) {
    const values = new Float64Array(this.tiles.facts.n_tiles);
    for (let i = start[at]; i < start[at + 1]; i++) values[tile[i]] = size[i];
    return new Chart({
      series: [{ name: text(this.variables, "name", row), colour: SERIES[2], values, isArea: true }], label: "Bytes on each tile", xName: "tile", yFormat: bytes, yTicks: byteTicks, height: 190,
      describe: (i) => [tileName(i, this.tiles.facts.tiles_per_ipu, this.tiles.facts.n_ipus), ["bytes", bytes(values[i])]], onpick: (i) => this.context.select({ tile: i }),
    }).element;
  }
}

function more(name, n) {
  return n > 1 ? `${name} + ${n - 1}` : name || "–";
}
