// The graph of operations: who makes what and who uses it, folded by names, coloured by what it costs.

import { card, choice, h, replace } from "../dom.js";
import { Dataflow, gathered, groupsOf, opened, treeOf } from "../parts/dataflow.js";
import { GraphMap, isReadable } from "../parts/graph_map.js";
import { legend } from "../parts/chart.js";
import { Table } from "../parts/table.js";
import { text } from "../data.js";
import { PHASES, colour, css, rgb } from "../colours.js";
import { bytes, counted, percent, short, whole } from "../format.js";
import { current, link } from "../state.js";
import { aboutOf, column, titleOf } from "../quantities.js";

// Groups at first, if they fit; groups at the top where names have too many; as many as are enough to begin with.
const LEVELS = [36, 24, 16, 12, 9, 6, 4], TOPS = [12, 8, 5, 3, 2], ENOUGH = 10;
const MEASURES = (nIpus) => [["busy", titleOf(nIpus > 1 ? "busy_cycles" : "cycles"), aboutOf("busy_cycles")], ...nIpus > 1 ? [["path", titleOf("path_cycles"), aboutOf("path_cycles")]] : [], ["made", "Bytes it writes", "of variables it writes, on all tiles"]];
const openOf = new Map(); // by report: which groups are open, for coming back

export async function graphView(context) {
  const [flow, steps, variables] = await Promise.all(["dataflow", "steps", "variables"].map(context.load));
  if (flow.facts.why_not) return { element: h("div", {}, card("Graph", null, h("p.note", {}, `The graph follows from the tile program: ${flow.facts.why_not}`))) };
  const view = new GraphView(context, new Dataflow(flow, steps, variables));
  return { element: view.element, select: (state) => view.select(state), closer: () => view.map.closer() };
}

class GraphView {
  constructor(context, flow) {
    Object.assign(this, { context, flow, steps: flow.steps });
    this.tree = treeOf(this.steps);
    this.uses = flow.uses();
    const key = `${context.info.title} ${context.report}`;
    this.key = key;
    [this.tree, this.open] = openOf.get(key) ?? [this.tree, new Set()];
    this.measures = MEASURES(this.steps.facts.n_ipus);
    this.by = this.measures.some(([name]) => name === current().by) ? current().by : "busy";
    this.status = h("span.status");
    this.details = h("section.card", {});
    this.map = new GraphMap({ ...this.graph(), height: 560, describe: (i) => this.describe(i), onpick: (i) => this.pick(i), onopen: (i) => this.toggle(i), onfirst: (width, height) => this.firstLevel(width, height) });
    this.element = h("div", {}, card("Operations and what flows between them", [this.status, h("div.spring"),
      h("button.plain", { type: "button", onclick: () => this.fold(true) }, "Fold all"), h("button.plain", { type: "button", onclick: () => this.fold(false) }, "Unfold all"),
      choice("Colour by", this.measures, this.by, (by) => context.select({ by }))], this.map.element,
    legend(PHASES.filter(({ key: name }) => name !== "waiting").map(({ name, tone }) => ({ name: `mostly ${name}`, tone, colour: colour(tone) }))),
    h("p.note", {}, "Stronger colours take more. A double frame holds others: double-click or Enter opens it. Dashed lines lead back, to the next turn of a loop.")), this.details);
  }

  // The finest level that can be read as a whole on the canvas: modules, the largest of them opened while there is room.
  firstLevel(width, height) {
    if (!openOf.has(this.key)) {
      const cycles = this.steps.columns.busy_cycles, fits = () => {
        const { nodes, edges } = this.graph();
        return isReadable(nodes, edges, width, height);
      };
      let best = null;
      const attempt = (tree, most) => {
        Object.assign(this, { tree, open: opened(tree, cycles, most) });
        if (!fits()) return false;
        if (!best || this.groups.length > best[2]) best = [tree, this.open, this.groups.length];
        return this.groups.length >= ENOUGH;
      };
      const whole = this.tree, tops = [whole, ...TOPS.filter((n) => n < whole.children.size).map((n) => gathered(treeOf(this.steps), n))];
      tops.some((tree) => LEVELS.some((most) => attempt(tree, most)));
      if (best) [this.tree, this.open] = best;
      openOf.set(this.key, [this.tree, this.open]);
    }
    this.map.update(this.graph());
    this.select(current());
  }

  // Nodes and edges of the groups in sight.
  graph() {
    this.groups = groupsOf(this.tree, (node) => this.open.has(node.path));
    const of = new Int32Array(this.flow.nSteps).fill(-1);
    this.groups.forEach((group, i) => group.steps.forEach((step) => { of[step] = i; }));
    this.groupOf = of;
    this.costs = this.groups.map((group) => this.cost(group));
    this.edges = this.edgesOf(of);
    const most = Math.max(1, ...this.costs.map((cost) => cost[this.by])), { n_ipus: nIpus } = this.steps.facts, total = Math.max(1, this.steps.facts.total_cycles);
    this.status.textContent = `${whole(this.groups.length)} of ${counted(this.steps.facts.texts.operation.length, "operation")}, ${counted(this.edges.length, "connection")}`;
    const titles = titlesOf(this.groups);
    const widest = Math.max(1, ...this.edges.map((edge) => edge.bytes));
    return {
      nodes: this.groups.map((group, i) => ({
        title: titles[i], rank: group.steps[0], isFolded: group.children.size > 0, fill: this.fill(this.costs[i], most),
        note: this.by === "made" ? bytes(this.costs[i].made) : `${short(this.costs[i][this.by])} · ${percent(this.costs[i][this.by] / (this.by === "busy" ? total * nIpus : total))}`,
      })),
      edges: this.edges.map((edge) => ({ ...edge, width: 0.8 + 3 * Math.sqrt(edge.bytes / widest) })),
      label: `${this.groups.length} operations and groups of them, ${this.edges.length} connections; arrow keys follow them`,
    };
  }

  cost(group) {
    const { columns, facts } = this.steps, result = { path: 0, busy: 0, made: 0, phases: {} }, seen = new Set();
    for (const step of group.steps) {
      result.path += columns.total_cycles[step];
      result.busy += columns.busy_cycles[step];
      for (const name of facts.phases) result.phases[name] = (result.phases[name] ?? 0) + columns[`busy_${name}`][step];
      for (const id of this.flow.list("write", step)) {
        if (!seen.has(id)) result.made += this.flow.bytesOf(id);
        seen.add(id);
      }
    }
    return result;
  }

  // The colour of what it mostly does, the stronger the more it takes.
  fill(cost, most) {
    const [name, cycles] = Object.entries(cost.phases).reduce((a, b) => (b[1] > a[1] ? b : a), ["", 0]);
    const phase = PHASES.find(({ key }) => key === name), from = rgb(colour("sunken"));
    if (!cycles || !phase) return colour("sunken");
    const share = 0.12 + 0.78 * Math.sqrt(cost[this.by] / most);
    return css(rgb(colour(phase.tone)).map((v, k) => Math.round(from[k] + share * (v - from[k]))));
  }

  edgesOf(of) {
    const result = new Map();
    for (const { from, to, variable } of this.uses) {
      const a = of[from], b = of[to];
      if (a === b || a < 0 || b < 0) continue;
      const key = a * this.groups.length + b, edge = result.get(key) ?? result.set(key, { from: a, to: b, bytes: 0, variables: new Set() }).get(key);
      if (!edge.variables.has(variable)) edge.bytes += this.flow.bytesOf(variable);
      edge.variables.add(variable);
    }
    return [...result.values()];
  }

  describe(i) {
    const group = this.groups[i], cost = this.costs[i], total = Math.max(1, this.steps.facts.total_cycles);
    return [nameOf(group), ...this.timeFacts(cost, total), ["writes", bytes(cost.made)], ["steps", whole(group.steps.length)],
      ...group.children.size ? [["holds", counted(group.children.size, "part")]] : []];
  }

  timeFacts(cost, total) {
    const { n_ipus: nIpus } = this.steps.facts, busy = `${whole(cost.busy)}, ${percent(cost.busy / (total * nIpus))}`;
    if (nIpus === 1) return [[titleOf("cycles"), `${busy} of the total`]];
    return [[titleOf("busy_cycles"), `${busy} of all chips`], [titleOf("path_cycles"), `${whole(cost.path)}, ${percent(cost.path / total)} of the total`]];
  }

  // -- folding and selecting ----------------------------------------------------------------------

  toggle(i) {
    const group = this.groups[i], around = this.around(group);
    if (group.children.size) this.open.add(group.path);
    else if (around) this.open.delete(around.path);
    this.rebuild(group.children.size ? group : around);
  }

  // The nearest open group that holds another.
  around(group) {
    for (let at = group.parent; at; at = at.parent) if (this.open.has(at.path)) return at;
    return null;
  }

  fold(isFolded) {
    this.open.clear();
    const visit = (node) => {
      this.open.add(node.path);
      node.children.forEach(visit);
    };
    if (!isFolded) this.tree.children.forEach(visit);
    this.rebuild();
  }

  rebuild(group) {
    this.map.update(this.graph());
    const chosen = group ? this.groupOf[group.steps[0]] : -1;
    this.map.choose(chosen < 0 ? undefined : chosen);
    this.show(chosen);
  }

  pick(i) {
    const { steps } = this.groups[i];
    this.context.select({ op: text(this.steps, "operation", steps[0]) || "(unnamed)", step: steps[0] });
  }

  select({ op, step }) {
    let at = op === undefined ? -1 : this.find(op);
    if (at < 0 && step >= 0) at = this.groupOf[step] ?? -1;
    this.map.choose(at < 0 ? undefined : at);
    this.show(at);
  }

  // The group of a name: itself, or the one that holds its steps.
  find(op) {
    const exact = this.groups.findIndex((group) => group.path === op);
    if (exact >= 0) return exact;
    const number = this.steps.facts.texts.operation.indexOf(op);
    return number < 0 ? -1 : this.groupOf[this.steps.columns.operation.indexOf(number)];
  }

  show(at) {
    if (at < 0) {
      replace(this.details, h("p.note", {}, "Choose an operation to see what it uses and what it makes."));
      return;
    }
    const group = this.groups[at], rows = this.neighbours(at);
    const table = new Table({
      count: rows.length, noun: "tensors", label: "Tensors", height: 320, sort: [2, true], filter: (i) => `${rows[i].name} ${rows[i].other}`,
      onpick: (i) => this.context.select({ variable: rows[i].variable }),
      columns: [
        column("tensor", (i) => rows[i].name), column("way", (i) => rows[i].way), column("n_bytes", (i) => this.flow.bytesOf(rows[i].variable)), column("neighbour", (i) => rows[i].other),
      ],
    });
    replace(this.details, h("header", {}, h("h2", {}, nameOf(group)), table.tools, h("div.spring"),
      group.children.size > 0 && h("button.plain", { type: "button", onclick: () => this.toggle(at) }, "Unfold"),
      !group.children.size && this.around(group) && h("button.plain", { type: "button", onclick: () => this.toggle(at) }, "Fold"),
      h("a.plain", { href: link({ view: "operations", op: group.path }) }, "In the table →"), h("a.plain", { href: link({ view: "execution", step: group.steps[0] }) }, "In the trace →")),
    h("dl.facts", {}, this.describe(at).slice(1).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), table.element);
  }

  // Tensors that come from other groups or go to them, and those that the program has not written before.
  neighbours(at) {
    const result = [], add = (way, variable, other) => result.push({ way, variable, name: this.flow.nameOf(variable), other });
    const seen = new Set();
    for (const edge of this.edges) {
      if (edge.to !== at && edge.from !== at) continue;
      for (const variable of edge.variables) {
        add(edge.to === at ? "used" : "made", variable, nameOf(this.groups[edge.to === at ? edge.from : edge.to]));
        if (edge.to === at) seen.add(variable);
      }
    }
    for (const step of this.groups[at].steps) {
      for (const variable of this.flow.list("read", step)) {
        if (seen.has(variable) || this.flow.users().get(variable).writes.length) continue;
        seen.add(variable);
        add("used", variable, "(a constant, or from the host)");
      }
    }
    return result;
  }
}

function nameOf({ name, path }) {
  return path.includes("*") ? name : path;
}

// What boxes are called: their own name, with as many names before it as make it distinct; a bare number says nothing.
export function titlesOf(groups) {
  const parts = groups.map((group) => group.path.split(/(?<=[/.])/));
  const ending = (i, n) => (n === 1 ? groups[i].name : parts[i].slice(-n).join(""));
  return groups.map((_, i) => {
    for (let n = 1; n < parts[i].length; n++) {
      const title = ending(i, n);
      if (!/^\d+$/.test(title) && groups.every((_, j) => j === i || ending(j, n) !== title)) return title;
    }
    return parts[i].length > 1 ? parts[i].join("") : groups[i].name;
  });
}
