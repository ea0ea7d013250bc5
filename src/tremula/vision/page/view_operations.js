// Operations: steps grouped as the model's author thinks of them, with cycles, flops and memory.

import { card, choice, h, replace } from "./dom.js";
import { Chart } from "./chart.js";
import { Table } from "./table.js";
import { colour } from "./colours.js";
import { text } from "./data.js";
import { bytes, percent, place, short, signed, whole } from "./format.js";
import { current, link } from "./state.js";

const LAYERS = [
  ["operation", "Operation", "what one call of an operation made"], ["module", "Module", "the first part of each name"],
  ["line", "Source line"], ["step", "Step"],
];
const FIELDS = ["cycles", "compute", "exchange", "sync", "flops", "bytesMoved", "nVertices", "nSteps", "executed"];

export async function operationsView(context) {
  const [steps, variables, vertices] = await Promise.all(["steps", "variables", "vertices"].map(context.load));
  const layer = current().layer ?? "operation";
  const others = context.other && (await Promise.all(["steps", "variables", "vertices"].map(context.other.load)));
  const view = new OperationsView(context, { steps, variables, vertices, layer, theirs: others && groups(...others, layer) });
  return { element: view.element, select: (state) => view.select(state) };
}

// The name of the group a step belongs to.
function groupOf(steps, i, layer) {
  if (layer === "operation") return text(steps, "operation", i) || "(unnamed)";
  if (layer === "line") return text(steps, "source", i) || "(no line)";
  const path = text(steps, "path", i);
  return (layer === "module" ? path.split("/")[0] : path) || "(unnamed)";
}

// The group that made a variable: of its own name, or of the nearest name above it.
function makerOf(found, name, source, layer) {
  if (layer === "line") return found.get(source);
  for (let path = name; path; path = path.slice(0, Math.max(0, path.lastIndexOf("/")))) {
    if (found.has(path)) return found.get(path);
  }
  return undefined;
}

function groups(steps, variables, vertices, layer) {
  const found = new Map(), { columns } = steps;
  const half = halfSets(vertices);
  for (let i = 0; i < columns.cycles.length; i++) {
    const name = groupOf(steps, i, layer);
    let group = found.get(name);
    if (!group) {
      group = Object.assign({ name, steps: [], balance: 0, weight: 0, ideal: 0, temporary: 0, variableBytes: 0, source: text(steps, "source", i) }, Object.fromEntries(FIELDS.map((f) => [f, 0])));
      found.set(name, group);
    }
    addStep(group, steps, i, half);
  }
  for (let row = 0; row < variables.columns.id.length; row++) {
    const group = makerOf(found, text(variables, "name", row), text(variables, "source", row), layer);
    if (group) group.variableBytes += variables.columns.n_bytes[row];
  }
  return found;
}

function addStep(group, steps, i, half) {
  const { columns, facts } = steps, n = columns.executed[i];
  group.steps.push(i);
  group.cycles += columns.total_cycles[i];
  for (const name of ["compute", "exchange", "sync"]) group[name] += columns[name][i] * n;
  group.flops += columns.n_flops[i] * n;
  group.bytesMoved += columns.bytes_in[i] * n;
  group.nVertices += columns.n_vertices[i];
  group.nSteps += 1;
  group.executed += n;
  group.temporary = Math.max(group.temporary, columns.temporary_bytes[i]);
  const weight = columns.compute[i] * Math.max(1, n);
  group.weight += weight;
  group.balance += weight * columns.balance[i];
  // The roofline: the longer of computing at the chips' peak and of moving bytes at their rate.
  const peak = facts.peak_flops[half.has(columns.compute_set[i]) ? "half" : "float"] || 1;
  group.ideal += n * Math.max(columns.n_flops[i] / peak, columns.bytes_in[i] / (facts.exchange_bytes_per_cycle || 1));
}

// Compute sets with vertices that compute in halves, whose peak is higher.
function halfSets(vertices) {
  const { columns, facts } = vertices, found = new Set();
  columns.compute_set.forEach((set, i) => {
    if (/half/i.test(facts.texts.name[columns.vertex_type[i]])) found.add(set);
  });
  return found;
}

class OperationsView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.rows = [...groups(this.steps, this.variables, this.vertices, this.layer).values()];
    this.total = Math.max(1, this.rows.reduce((sum, row) => sum + row.cycles, 0));
    this.details = h("section.card", {});
    this.table = this.makeTable();
    this.element = h("div", {}, card("Operations", [this.table.tools, h("div.spring"),
      choice("Layer", LAYERS, this.layer, (layer) => context.select({ layer, op: undefined }))], this.table.element), this.details);
  }

  makeTable() {
    const { rows } = this, most = Math.max(1, ...rows.map((row) => row.cycles));
    const list = [
      { title: this.layer === "line" ? "Line" : "Operation", isText: true, get: (i) => rows[i].name, show: (v) => (this.layer === "line" ? place(v) : v) },
      { title: "Cycles", get: (i) => rows[i].cycles, show: whole, bar: (v) => v / most },
      { title: "Share", get: (i) => rows[i].cycles / this.total, show: percent },
      { title: "Compute", get: (i) => rows[i].compute, show: short },
      { title: "Exchange", get: (i) => rows[i].exchange, show: short },
      { title: "Flops", get: (i) => rows[i].flops, show: (v) => (v ? short(v) : "–"), about: "where the operation knows them" },
      { title: "Of roofline", get: (i) => (rows[i].cycles ? rows[i].ideal / rows[i].cycles : 0), show: (v) => (v > 0 ? percent(v) : "–"), about: "the best the chip could do, over what it takes" },
      { title: "Tile balance", get: (i) => (rows[i].weight ? rows[i].balance / rows[i].weight : 1), show: percent },
      { title: "Memory", get: (i) => rows[i].variableBytes, show: bytes, about: "variables it made" },
      { title: "Vertices", get: (i) => rows[i].nVertices, show: whole },
      { title: "Line", isText: true, width: "minmax(110px, 1fr)", get: (i) => place(rows[i].source) },
    ];
    if (this.theirs) list.splice(2, 0, this.differenceColumn());
    return new Table({
      count: rows.length, noun: "operations", label: "Operations", sort: [1, true], height: 480, columns: list,
      filter: (i) => `${rows[i].name} ${rows[i].source}`, onpick: (i) => this.context.select({ op: rows[i].name }),
    });
  }

  differenceColumn() {
    const change = (i) => (this.theirs.get(this.rows[i].name)?.cycles ?? 0) - this.rows[i].cycles;
    return { title: "B − A", get: change, show: (v, i) => (this.theirs.has(this.rows[i].name) ? signed(v, whole) : "only A"), tone: (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint") };
  }

  select(state) {
    const at = this.rows.findIndex((row) => row.name === state.op || (state.op === undefined && row.steps.includes(state.step)));
    if (at >= 0) this.table.reveal(at);
    this.show(this.rows[at]);
  }

  show(row) {
    if (!row) {
      const sum = (name) => this.rows.reduce((total, one) => total + one[name], 0);
      replace(this.details, h("header", {}, h("h2", {}, "All operations")), h("dl.facts", {}, [
        ["Operations", whole(this.rows.length)], ["Cycles", whole(sum("cycles"))], ["Vertices", whole(sum("nVertices"))], ["Moved", bytes(sum("bytesMoved"))],
      ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
      return;
    }
    const { columns } = this.steps;
    const chart = new Chart({
      series: [["compute", "compute"], ["exchange", "exchange"], ["sync", "sync"]].map(([name]) => ({
        name, colour: colour(name), values: Float64Array.from(row.steps, (i) => columns[name][i]),
      })),
      isStacked: true, label: "Cycles of its steps", xName: "its steps", yFormat: short, height: 170,
      describe: (i) => [text(this.steps, "path", row.steps[i]), ["compute", whole(columns.compute[row.steps[i]])], ["exchange", whole(columns.exchange[row.steps[i]])], ["sync", whole(columns.sync[row.steps[i]])]],
      onpick: (i) => this.context.select({ view: "execution", step: row.steps[i] }),
    });
    replace(this.details, h("header", {}, h("h2", {}, row.name), h("div.spring"),
      h("a.plain", { href: link({ view: "execution", step: row.steps[0] }) }, "In the trace →"), h("a.plain", { href: link({ view: "tree", step: row.steps[0] }) }, "Program →")),
    h("div.grid", {},
      h("dl.facts.half", {}, [
        ["Cycles", `${whole(row.cycles)}, ${percent(row.cycles / this.total)} of all`], ["Steps", `${whole(row.nSteps)}, run ${whole(row.executed)} times`],
        ["Compute, exchange, sync", `${whole(row.compute)}, ${whole(row.exchange)}, ${whole(row.sync)}`], ["Data moved", bytes(row.bytesMoved)],
        ["Flops", row.flops ? short(row.flops) : "not known"], ["Vertices", this.vertexText(row)], ["Line", row.source || "–"],
      ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      h("div.half", {}, chart.element)));
  }

  vertexText(row) {
    const sets = new Set(row.steps.map((i) => this.steps.columns.compute_set[i])), { columns, facts } = this.vertices, counts = new Map();
    columns.compute_set.forEach((set, i) => {
      if (!sets.has(set)) return;
      const name = facts.texts.name[columns.vertex_type[i]];
      counts.set(name, (counts.get(name) ?? 0) + columns.n_vertices[i]);
    });
    return [...counts].map(([name, n]) => `${whole(n)} × ${name}`).join(", ") || "none";
  }
}
