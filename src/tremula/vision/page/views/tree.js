// The program as a tree: what runs what, how often, and what it costs.

import { card, choice, h, replace } from "../dom.js";
import { Table } from "../parts/table.js";
import { PHASES, colour, phasesText } from "../colours.js";
import { text } from "../data.js";
import { percent, place, signed, whole } from "../format.js";
import { link } from "../state.js";

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
    this.total = this.roots.reduce((most, root) => Math.max(most, tree.columns.cycles[root]), 1);
    this.theirs = other && keyed(other);
    this.ours = other && keyed(tree);
    this.details = h("section.card", { hidden: true });
    this.table = this.makeTable();
    const search = h("input.search", { type: "search", placeholder: "Find a program…", "aria-label": "Find", oninput: (event) => this.find(event.target.value) });
    this.element = h("div", {}, card("Program", [search, this.table.status, h("div.spring"), choice("Depth", [["1", "1"], ["2", "2"], ["3", "3"], ["99", "All"]], "", (depth) => {
      this.openTo(Number(depth));
      this.refresh();
    })], this.table.element), this.details);
  }

  openTo(depth) {
    this.open.clear();
    for (let node = 0; node < this.n; node++) if (this.depth[node] < depth) this.open.add(node);
  }

  // Visible nodes: open branches, or all matches and their parents.
  visible() {
    const found = [], needed = this.words ? this.matching() : null;
    const walk = (node) => {
      if (needed && !needed.has(node)) return;
      found.push(node);
      if (needed || this.open.has(node)) this.children[node].forEach(walk);
    };
    this.roots.forEach(walk);
    return found;
  }

  matching() {
    const found = new Set(), { parent } = this.tree.columns;
    for (let node = 0; node < this.n; node++) {
      const content = `${this.name(node)} ${text(this.tree, "kind", node)} ${text(this.tree, "source", node)}`.toLowerCase();
      if (!content.includes(this.words)) continue;
      for (let at = node; at >= 0 && !found.has(at); at = parent[at]) found.add(at);
    }
    return found;
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
      { title: "Program", isText: true, width: "minmax(320px, 4fr)", get: (i) => i, show: (i) => this.label(at(i)) },
      { title: "Steps", get: (i) => columns.n_steps[at(i)], show: whole },
      { title: "Cycles", get: (i) => columns.cycles[at(i)], show: whole, bar: (v) => v / this.total, about: "of the total: on the critical path, everything that ran in it" },
      { title: "Share", get: (i) => columns.cycles[at(i)] / this.total, show: percent },
      ...PHASES.slice(0, -1).filter(({ key }) => columns[key].some((v) => v > 0)).map(({ key, name, tone, about }) => ({
        title: `${name[0].toUpperCase()}${name.slice(1)}`, get: (i) => columns[key][at(i)], show: whole, colour: `var(--${tone})`, bar: (v) => v / this.total, about,
      })),
      { title: "Line", isText: true, width: "minmax(130px, 1.2fr)", get: (i) => place(text(this.tree, "source", at(i))) },
    ];
    if (this.other) list.splice(3, 0, { title: "B − A", get: (i) => this.change(at(i)), show: (v) => (Number.isNaN(v) ? "only A" : signed(v, whole)), tone: (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint") });
    const table = new Table({
      count: this.nodes.length, noun: "programs", label: "Program tree", columns: list, sort: [0, false], isOrdered: true, height: 640,
      onpick: (i) => this.pick(at(i)),
    });
    table.scroll.addEventListener("keydown", (event) => this.key(event));
    return table;
  }

  change(node) {
    const key = this.ours.keyOf[node];
    return this.theirs.cycles.has(key) ? this.theirs.cycles.get(key) - this.tree.columns.cycles[node] : NaN;
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
      ["Kind", text(this.tree, "kind", node)], ["Program", text(this.tree, "root", node)], ["Steps in it", whole(columns.n_steps[node])],
      ["Cycles", `${whole(columns.cycles[node])} (${percent(columns.cycles[node] / this.total)}): ${phasesText((key) => columns[key][node])}`],
      step >= 0 && ["Step", whole(step)], ["Line", text(this.tree, "source", node) || "–"],
    ].filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
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
  const { parent, cycles } = tree.columns, keyOf = [], seen = new Map(), found = new Map();
  for (let node = 0; node < parent.length; node++) {
    const above = parent[node] < 0 ? text(tree, "root", node) : keyOf[parent[node]];
    const base = `${above}/${text(tree, "kind", node)} ${text(tree, "name", node)}`;
    const nth = seen.get(base) ?? 0;
    seen.set(base, nth + 1);
    keyOf[node] = `${base}#${nth}`;
    found.set(keyOf[node], cycles[node]);
  }
  return { keyOf, cycles: found };
}
