// The program as a tree: what runs what, how often, and what it costs.

import { card, choice, h, replace } from "../dom.js";
import { Table } from "../parts/table.js";
import { colour, phasesText } from "../colours.js";
import { text } from "../data.js";
import { counted, percent, place, signed, whole } from "../format.js";
import { link } from "../state.js";
import { column, term, timeColumns } from "../quantities.js";

const TONES = {
  OnTileExecute: "compute", DoExchange: "exchange", GlobalExchange: "links", CrossReplicaCopy: "links", Sync: "sync",
  StreamCopyIn: "host", StreamCopyOut: "host", RemoteRead: "host", RemoteWrite: "host",
};

export async function treeView(context) {
  const tree = await context.load("tree");
  const other = context.other && (await context.other.load("tree"));
  const view = new TreeView(context, tree, other);
  return { element: view.element, select: (state) => view.select(state) };
}

class TreeView {
  constructor(context, tree, other) {
    Object.assign(this, { context, tree, other });
    const { parent } = tree.columns;
    this.n = parent.length;
    this.children = Array.from({ length: this.n }, () => []);
    this.depth = new Uint16Array(this.n);
    this.roots = [];
    for (let node = 0; node < this.n; node++) {
      if (parent[node] < 0) this.roots.push(node);
      else {
        this.children[parent[node]].push(node);
        this.depth[node] = this.depth[parent[node]] + 1;
      }
    }
    this.nodeOfStep = new Map();
    tree.columns.step.forEach((step, node) => step >= 0 && this.nodeOfStep.set(step, node));
    this.open = new Set();
    this.openTo(this.n < 4000 ? 3 : 2);
    this.words = "";
    this.total = Math.max(1, tree.facts.total_cycles);
    this.hasBusy = Boolean(tree.columns.busy_cycles);
    this.measure = this.hasBusy ? "busy_cycles" : "path_cycles";
    this.theirs = other && keyed(other);
    this.ours = other && keyed(tree);
    this.details = h("section.card", { hidden: true });
    this.table = this.makeTable();
    const search = h("input.search", { type: "search", placeholder: "Find a program…", "aria-label": "Find", oninput: (event) => this.find(event.target.value) });
    this.element = h("div", {}, card("Program", [search, h("span.status", {}, counted(this.programs(), "program")), h("span.status", {}, counted(this.n, "node")), this.table.status, h("div.spring"), choice("Depth", [["1", "1"], ["2", "2"], ["3", "3"], ["99", "All"]], "", (depth) => {
      this.openTo(Number(depth));
      this.refresh();
    })], this.table.element), this.details);
  }

  // Programs that can be run; functions that many calls share have separate trees.
  programs() {
    return this.roots.filter((root) => text(this.tree, "root", root).startsWith("program:")).length;
  }

  openTo(depth) {
    this.open.clear();
    for (let node = 0; node < this.n; node++) if (this.depth[node] < depth) this.open.add(node);
  }

  // Visible nodes: open branches, or all matches and their parents.
  visible() {
    const result = [], needed = this.words ? this.matching() : null;
    const walk = (node) => {
      if (needed && !needed.has(node)) return;
      result.push(node);
      if (needed || this.open.has(node)) this.children[node].forEach(walk);
    };
    this.roots.forEach(walk);
    return result;
  }

  matching() {
    const result = new Set(), { parent } = this.tree.columns;
    for (let node = 0; node < this.n; node++) {
      const content = `${this.name(node)} ${text(this.tree, "kind", node)} ${text(this.tree, "source", node)}`.toLowerCase();
      if (!content.includes(this.words)) continue;
      for (let at = node; at >= 0 && !result.has(at); at = parent[at]) result.add(at);
    }
    return result;
  }

  name(node) {
    return text(this.tree, "name", node);
  }

  find(words) {
    this.words = words.toLowerCase();
    this.refresh();
  }

  refresh() {
    this.nodes = this.visible();
    this.table.update({ count: this.nodes.length });
  }

  makeTable() {
    this.nodes = this.visible();
    const { columns } = this.tree, at = (i) => this.nodes[i];
    const list = [
      column("program", (i) => i, { show: (i) => this.label(at(i)) }),
      column("n_steps", (i) => columns.n_steps[at(i)]),
      ...timeColumns((key) => (i) => columns[key][at(i)], {
        nIpus: this.tree.facts.n_ipus, total: this.total, most: Math.max(1, ...this.roots.map((root) => columns[this.measure][root])), hasBusy: this.hasBusy,
        isShown: (name) => (columns[`busy_${name}`] ?? columns[`path_${name}`]).some((v) => v > 0),
      }),
      column("line", (i) => place(text(this.tree, "source", at(i)))),
    ];
    if (this.other) list.splice(3, 0, column("difference", (i) => this.change(at(i)), { show: (v) => (Number.isNaN(v) ? "only A" : signed(v, whole)), tone: (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint") }));
    const table = new Table({
      count: this.nodes.length, noun: "shown", label: "Program tree", columns: list, sort: [0, false], isOrdered: true, height: 640,
      onpick: (i) => this.pick(at(i)),
    });
    table.scroll.addEventListener("keydown", (event) => this.key(event));
    return table;
  }

  change(node) {
    const key = this.ours.keyOf[node];
    return this.theirs.cycles.has(key) ? this.theirs.cycles.get(key) - this.ours.cycles.get(key) : NaN;
  }

  label(node) {
    const kind = text(this.tree, "kind", node), name = this.name(node), n = this.tree.columns.n_times[node];
    const hasChildren = this.children[node].length > 0;
    return h("span.tree-name", { title: `${name || kind} (${kind})`, style: { paddingLeft: `${this.depth[node] * 18}px` } },
      h("button.twist", {
        type: "button", tabIndex: -1, "aria-label": this.open.has(node) ? "Close" : "Open",
        onclick: (event) => {
          event.stopPropagation();
          this.toggle(node);
        },
      }, hasChildren ? (this.open.has(node) || this.words ? "▾" : "▸") : ""),
      h("i", { style: { background: colour(TONES[kind] ?? "faint") } }),
      h("span", {}, name || kind, name && name !== kind && h("small", { style: { color: "var(--faint)" } }, ` ${kind}`), kind === "Repeat" && h("b", {}, ` × ${whole(n)}`)));
  }

  toggle(node) {
    if (this.open.has(node)) this.open.delete(node);
    else this.open.add(node);
    this.refresh();
  }

  key(event) {
    const node = this.nodes[this.table.options.chosen];
    if (node === undefined) return;
    if (event.key === "ArrowRight" && !this.open.has(node)) this.toggle(node);
    else if (event.key === "ArrowLeft" && this.open.has(node)) this.toggle(node);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  pick(node) {
    const step = this.tree.columns.step[node];
    if (step >= 0) this.context.select({ step });
    this.showNode(node);
  }

  showNode(node) {
    const { columns } = this.tree, step = columns.step[node];
    this.details.hidden = false;
    replace(this.details, h("header", {}, h("h2", {}, this.name(node) || text(this.tree, "kind", node)), h("div.spring"),
      step >= 0 && h("a.plain", { href: link({ view: "execution", step }) }, "In the trace →"),
      step >= 0 && h("a.plain", { href: link({ view: "liveness", step }) }, "Liveness →")),
    h("dl.facts", {}, [
      [h("dt", {}, "Kind"), text(this.tree, "kind", node)], [h("dt", {}, "Program"), text(this.tree, "root", node)], [term("dt", "n_steps", "Steps in it"), whole(columns.n_steps[node])],
      ...this.timeFacts(node), step >= 0 && [term("dt", "step"), whole(step)], [term("dt", "line"), text(this.tree, "source", node) || "–"],
    ].filter(Boolean).map(([name, value]) => [name, h("dd", {}, value)])));
  }

  timeFacts(node) {
    const { columns, facts } = this.tree, phases = (prefix) => phasesText((key) => columns[`${prefix}${key}`][node]);
    const one = (key, title, prefix, all, of) => [term("dt", title), `${whole(columns[key][node])} (${percent(columns[key][node] / all)} ${of}): ${phases(prefix)}`];
    if (!this.hasBusy) return [one("path_cycles", "path_cycles", "path_", this.total, "of the total")];
    if (facts.n_ipus === 1) return [one("busy_cycles", "cycles", "busy_", this.total, "of the total")];
    return [one("busy_cycles", "busy_cycles", "busy_", this.total * facts.n_ipus, "of all chips"), one("path_cycles", "path_cycles", "path_", this.total, "of the total")];
  }

  select(state) {
    const node = this.nodeOfStep.get(state.step);
    if (node === undefined) return;
    for (let at = this.tree.columns.parent[node]; at >= 0; at = this.tree.columns.parent[at]) this.open.add(at);
    this.refresh();
    this.table.reveal(this.nodes.indexOf(node));
    this.showNode(node);
  }
}

// A node's key: its path of names, kinds and positions among equals, which two reports share.
function keyed(tree) {
  const { parent, busy_cycles: busy, path_cycles: path } = tree.columns, cycles = busy ?? path, keyOf = [], seen = new Map(), result = new Map();
  for (let node = 0; node < parent.length; node++) {
    const above = parent[node] < 0 ? text(tree, "root", node) : keyOf[parent[node]];
    const base = `${above}/${text(tree, "kind", node)} ${text(tree, "name", node)}`;
    const nth = seen.get(base) ?? 0;
    seen.set(base, nth + 1);
    keyOf[node] = `${base}#${nth}`;
    result.set(keyOf[node], cycles[node]);
  }
  return { keyOf, cycles: result };
}
