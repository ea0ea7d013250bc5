// Operations: steps grouped as the model's author thinks of them, with cycles, flops and memory.

import { card, choice, h, replace } from "../dom.js";
import { Chart } from "../parts/chart.js";
import { Roofline, rate } from "../parts/roofline.js";
import { Table } from "../parts/table.js";
import { colour } from "../colours.js";
import { text } from "../data.js";
import { bytes, counted, percent, place, short, signed, whole } from "../format.js";
import { current, link } from "../state.js";
import { column, term, timeColumns } from "../quantities.js";

const LAYERS = [
  ["operation", "Operation", "what one call of an operation made"], ["module", "Module", "the first part of each name"],
  ["line", "Source line"], ["step", "Step"],
];
const PHASES = ["compute", "exchange", "links", "host", "sync"];
const FIELDS = ["busy_cycles", "path_cycles", ...PHASES.flatMap((name) => [`busy_${name}`, `path_${name}`]), "flops", "peak", "ideal", "bytesMoved", "nVertices", "nSteps", "executed"];

export async function operationsView(context) {
  const [steps, variables, vertices] = await Promise.all(["steps", "variables", "vertices"].map(context.load));
  const layer = current().layer ?? "operation";
  const others = context.other && (await Promise.all(["steps", "variables"].map(context.other.load)));
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

// The group that made a variable: with the variable's name, or the nearest name above it.
function makerOf(result, name, source, layer) {
  if (layer === "line") return result.get(source);
  for (let path = name; path; path = path.slice(0, Math.max(0, path.lastIndexOf("/")))) {
    if (result.has(path)) return result.get(path);
  }
  return undefined;
}

function groups(steps, variables, layer) {
  const result = new Map(), { columns } = steps;
  for (let i = 0; i < columns.cycles.length; i++) {
    const name = groupOf(steps, i, layer);
    let group = result.get(name);
    if (!group) {
      group = Object.assign({ name, steps: [], balance: 0, weight: 0, temporary: 0, variableBytes: 0, source: text(steps, "source", i) }, Object.fromEntries(FIELDS.map((f) => [f, 0])));
      result.set(name, group);
    }
    addStep(group, steps, i);
  }
  for (let row = 0; row < variables.columns.id.length; row++) {
    const maker = variables.columns.maker[row];
    const group = maker >= 0 && layer !== "line" ? result.get(groupOf(steps, maker, layer))
      : makerOf(result, text(variables, "name", row), text(variables, "source", row), layer);
    if (group) group.variableBytes += variables.columns.n_bytes[row];
  }
  return result;
}

// `path_…` is on the critical path, `busy_…` what chips spend on it, all together.
function addStep(group, { columns }, i) {
  const n = columns.executed[i];
  group.steps.push(i);
  group.path_cycles += columns.total_cycles[i];
  group.busy_cycles += columns.busy_cycles[i];
  for (const key of PHASES.flatMap((name) => [`busy_${name}`, `path_${name}`])) group[key] += columns[key][i];
  group.ideal += columns.ideal[i] * n;
  group.flops += columns.n_flops[i] * n;
  group.peak += columns.peak_cycles[i] * n;
  group.bytesMoved += columns.bytes_in[i] * n;
  group.nVertices += columns.n_vertices[i];
  group.nSteps += 1;
  group.executed += n;
  group.temporary = Math.max(group.temporary, columns.temporary_bytes[i]);
  const weight = columns.compute[i] * Math.max(1, n);
  group.weight += weight;
  group.balance += weight * columns.balance[i];
}

// What most of its chips' cycles go into.
function boundBy(group) {
  const name = PHASES.reduce((most, one) => (group[`busy_${one}`] > group[`busy_${most}`] ? one : most));
  return group[`busy_${name}`] ? name : "–";
}

class OperationsView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.rows = [...groups(this.steps, this.variables, this.layer).values()];
    this.total = Math.max(1, this.rows.reduce((sum, row) => sum + row.path_cycles, 0));
    this.nIpus = this.steps.facts.n_ipus;
    this.details = h("section.card", {});
    this.table = this.makeTable();
    this.plotted = this.rows.filter((row) => row.flops > 0 && row.busy_cycles > 0);
    this.roofline = this.makeRoofline();
    this.element = h("div", {}, card("Operations", [this.table.tools, h("div.spring"),
      choice("Layer", LAYERS, this.layer, (layer) => context.select({ layer, op: undefined }))], this.table.element), this.rooflineCard(), this.details);
  }

  makeTable() {
    const { rows } = this, most = Math.max(1, ...rows.map((row) => row.busy_cycles)), known = (show) => (value) => (value > 0 ? show(value) : "–");
    const name = { line: "line", step: "step", module: "module" }[this.layer] ?? "operation";
    const list = [
      column(name, (i) => rows[i].name, { show: (v) => (this.layer === "line" ? place(v) : v) }),
      ...timeColumns((key) => (i) => rows[i][key], { nIpus: this.nIpus, total: this.total, most }).map((one) => (["links", "host", "sync"].includes(one.key) ? { ...one, isExtra: true } : one)),
      column("n_flops", (i) => rows[i].flops, { show: known(short) }),
      column("of_peak", (i) => this.ofPeak(rows[i]), { show: known(percent) }),
      column("of_roofline", (i) => (rows[i].busy_cycles ? rows[i].ideal / rows[i].busy_cycles : 0), { show: known(percent), isExtra: true }),
      column("bound", (i) => boundBy(rows[i])),
      column("balance", (i) => (rows[i].weight ? rows[i].balance / rows[i].weight : 1), { isExtra: true }),
      column("made_bytes", (i) => rows[i].variableBytes),
      column("n_vertices", (i) => rows[i].nVertices, { isExtra: true }),
      ...this.layer === "line" ? [] : [column("line", (i) => place(rows[i].source))],
    ];
    if (this.theirs) list.splice(2, 0, this.differenceColumn());
    return new Table({
      count: rows.length, noun: "operations", label: "Operations", sort: [1, true], height: 480, columns: list,
      filter: (i) => `${rows[i].name} ${rows[i].source}`, onpick: (i) => this.context.select({ op: rows[i].name }),
    });
  }

  // All tiles of its chips at the peak of their units, over the cycles it takes of them.
  ofPeak(row) {
    return row.busy_cycles ? row.peak / this.steps.facts.tiles_per_ipu / row.busy_cycles : 0;
  }

  makeRoofline() {
    const { plotted } = this, { peaks, exchange_bytes_per_cycle: bytesPerCycle } = this.steps.facts;
    return new Roofline({
      peaks, bytesPerCycle, label: "Roofline: arrow keys choose an operation",
      points: plotted.map((row) => ({ name: row.name, intensity: row.flops / row.bytesMoved, rate: row.flops / row.busy_cycles, share: row.busy_cycles / (this.total * this.nIpus) })),
      describe: (i) => [plotted[i].name, ["flops per cycle", rate(plotted[i].flops / plotted[i].busy_cycles)], ["flops per byte", rate(plotted[i].flops / plotted[i].bytesMoved)], ["of peak", percent(this.ofPeak(plotted[i]))], ["bound by", boundBy(plotted[i])]],
      onpick: (i) => this.context.select({ op: plotted[i].name }),
    });
  }

  rooflineCard() {
    if (!this.plotted.length) return null;
    return card("Roofline", null, h("p.note", {}, "Every operation that has flops: a point's area is its share of all chips' cycles. Operations that move nothing are at the right edge."), this.roofline.element);
  }

  differenceColumn() {
    const change = (i) => (this.theirs.get(this.rows[i].name)?.busy_cycles ?? 0) - this.rows[i].busy_cycles;
    return column("difference", change, { show: (v, i) => (this.theirs.has(this.rows[i].name) ? signed(v, whole) : "only A"), tone: (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint") });
  }

  select(state) {
    const at = this.rows.findIndex((row) => row.name === state.op || (state.op === undefined && row.steps.includes(state.step)));
    if (at >= 0) this.table.reveal(at);
    const point = this.plotted.indexOf(this.rows[at]);
    this.roofline.select(point < 0 ? null : point);
    this.show(this.rows[at]);
  }

  show(row) {
    if (!row) {
      const sum = (name) => this.rows.reduce((total, one) => total + one[name], 0);
      replace(this.details, h("header", {}, h("h2", {}, "All operations")), h("dl.facts", {}, [
        [h("dt", {}, "Operations"), whole(this.rows.length)], ...this.timeFacts(sum), [term("dt", "n_flops"), whole(sum("flops"))], [term("dt", "n_vertices"), whole(sum("nVertices"))], [term("dt", "moved_bytes"), bytes(sum("bytesMoved"))],
      ].map(([name, value]) => [name, h("dd", {}, value)])));
      return;
    }
    const { columns } = this.steps;
    const chart = new Chart({
      series: PHASES.map((name) => ({
        name, colour: colour(name), values: Float64Array.from(row.steps, (i) => columns[name][i]),
      })),
      isStacked: true, label: "Cycles of one execution of its steps", xName: "its steps", yFormat: short, height: 170,
      describe: (i) => [text(this.steps, "path", row.steps[i]), ...PHASES.map((name) => [name, whole(columns[name][row.steps[i]])])],
      onpick: (i) => this.context.select({ view: "execution", step: row.steps[i] }),
    });
    replace(this.details, h("header", {}, h("h2", {}, row.name), h("div.spring"),
      h("a.plain", { href: link({ view: "execution", step: row.steps[0] }) }, "In the trace →"), h("a.plain", { href: link({ view: "tree", step: row.steps[0] }) }, "Program →")),
    h("div.grid", {},
      h("dl.facts.half", {}, [
        ...this.timeFacts((key) => row[key]), [h("dt", {}, "Steps"), `${whole(row.nSteps)}, run ${counted(row.executed, "time")}`],
        [term("dt", "moved_bytes"), bytes(row.bytesMoved)], [term("dt", "n_flops"), this.flopsText(row)], [term("dt", "bound"), boundBy(row)], [term("dt", "n_vertices"), this.vertexText(row)], [term("dt", "line"), row.source || "–"],
      ].map(([name, value]) => [name, h("dd", {}, value)])),
      h("div.half", {}, chart.element)));
  }

  // What it takes: on one chip its cycles, on several what all chips spend and what is on the critical path.
  timeFacts(of) {
    const phases = (prefix) => PHASES.filter((name) => of(`${prefix}${name}`)).map((name) => `${name} ${whole(of(`${prefix}${name}`))}`).join(", ");
    const text = (key, prefix, all) => `${whole(of(key))}, ${percent(of(key) / all)} of ${all > this.total ? "all chips" : "the total"}${phases(prefix) && `: ${phases(prefix)}`}`;
    if (this.nIpus === 1) return [[term("dt", "cycles"), text("busy_cycles", "busy_", this.total)]];
    return [[term("dt", "busy_cycles"), text("busy_cycles", "busy_", this.total * this.nIpus)], [term("dt", "path_cycles"), text("path_cycles", "path_", this.total)]];
  }

  flopsText(row) {
    if (!row.flops) return "none declared by its vertices";
    const moved = row.bytesMoved ? `, ${rate(row.flops / row.bytesMoved)} per byte moved` : "";
    return `${whole(row.flops)}, ${rate(row.flops / Math.max(1, row.busy_cycles))} per cycle, ${percent(this.ofPeak(row))} of the peak${moved}`;
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
