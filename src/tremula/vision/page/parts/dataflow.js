// Who makes and who uses each variable, and the graph of operations that follows from it.

import { text } from "../data.js";

export class Dataflow {
  constructor(flow, steps, variables) {
    Object.assign(this, { flow, steps, variables });
    this.rowOf = new Map([...variables.columns.id].map((id, row) => [id, row]));
  }

  get nSteps() {
    return this.steps.columns.cycles.length;
  }

  list(name, step) {
    const { [`${name}_start`]: start, [`${name}_variable`]: variable } = this.flow.columns;
    return variable.subarray(start[step], start[step + 1]);
  }

  // Map: id of a variable → { writes: [step], reads: [step] }.
  users() {
    if (this.known) return this.known;
    const result = new Map(), of = (id) => result.get(id) ?? result.set(id, { writes: [], reads: [] }).get(id);
    for (let step = 0; step < this.nSteps; step++) {
      for (const id of this.list("read", step)) of(id).reads.push(step);
      for (const id of this.list("write", step)) of(id).writes.push(step);
    }
    this.known = result;
    return result;
  }

  nameOf(id) {
    return this.rowOf.has(id) ? text(this.variables, "name", this.rowOf.get(id)) : `variable ${id}`;
  }

  bytesOf(id) {
    return this.rowOf.has(id) ? this.variables.columns.n_bytes[this.rowOf.get(id)] : 0;
  }

  // [{from, to, variable}] of steps: a read uses what was last written before it.
  uses() {
    const result = [];
    for (const [variable, { writes, reads }] of this.users()) {
      let k = -1;
      for (const to of reads) {
        while (k + 1 < writes.length && writes[k + 1] < to) k += 1;
        if (k >= 0) result.push({ from: writes[k], to, variable });
        else if (writes.length && writes.at(-1) !== to) result.push({ from: writes.at(-1), to, variable }); // of the last turn
      }
    }
    return result;
  }
}

const MOST_ALIKE = 12; // siblings that differ only in numbers are one group if there are more

// The tree of names: a node has children by the next part of the name, and the steps below it. Parts end at "/" or ".".
export function treeOf(steps) {
  const root = node("", "", null);
  for (let step = 0; step < steps.columns.cycles.length; step++) {
    const operation = text(steps, "operation", step) || "(unnamed)";
    let at = root, end = 0;
    at.steps.push(step);
    for (const part of operation.split(/[/.]/)) {
      end += part.length + 1;
      const path = operation.slice(0, end - 1);
      if (!at.children.has(part)) at.children.set(part, node(part, path, at));
      at = at.children.get(part);
      at.steps.push(step);
    }
    at.isOwn = true; // an operation itself, in addition to those below it
  }
  gatherAlike(root);
  return root;
}

function node(name, path, parent) {
  return { name, path, parent, children: new Map(), steps: [], isOwn: false };
}

// add_tensor_1, add_tensor_2, …: a graph of hundreds of them says less than one box.
function gatherAlike(at) {
  const families = new Map();
  for (const child of at.children.values()) {
    gatherAlike(child);
    const family = child.name.replace(/[_-]*\d+([_-]\d+)*/g, "");
    if (!child.children.size) families.set(family, [...families.get(family) ?? [], child]);
  }
  for (const [family, members] of families) {
    if (members.length <= MOST_ALIKE) continue;
    const gathered = node(`${family || "…"} × ${members.length}`, `${at.path}*${family}`, at);
    for (const member of members) {
      at.children.delete(member.name);
      gathered.children.set(member.name, Object.assign(member, { parent: gathered }));
      gathered.steps.push(...member.steps);
    }
    gathered.steps.sort((a, b) => a - b);
    at.children.set(gathered.name, gathered);
  }
}

// The groups to show: from the top, those that are open give way to what is in them. A chain of single children is one.
export function groupsOf(root, isOpen) {
  const result = [], visit = (top) => {
    let at = top;
    while (at.children.size === 1 && !at.isOwn) at = at.children.values().next().value;
    if (!at.children.size || !isOpen(at)) {
      result.push(at);
      return;
    }
    if (at.isOwn) {
      const below = new Set([...at.children.values()].flatMap((child) => child.steps));
      const steps = at.steps.filter((step) => !below.has(step));
      if (steps.length) result.push({ ...at, parent: at, children: new Map(), steps });
    }
    for (const child of at.children.values()) visit(child);
  };
  for (const child of root.children.values()) visit(child);
  return result;
}

// Puts neighbours at the top of the tree together, in the order in which they run, so that at most n are left.
export function gathered(root, n) {
  const children = [...root.children.values()].sort((a, b) => a.steps[0] - b.steps[0]), per = Math.ceil(children.length / n);
  const top = node("", "", null);
  top.steps = root.steps;
  for (let first = 0; first < children.length; first += per) {
    const members = children.slice(first, first + per);
    const one = members.length === 1 ? members[0] : node(`${members[0].name} … ${members.at(-1).name}`, `*${members[0].path}…${members.at(-1).path}`, top);
    if (members.length > 1) {
      for (const member of members) one.children.set(member.name, Object.assign(member, { parent: one }));
      one.steps = members.flatMap((member) => member.steps).sort((a, b) => a - b);
    }
    top.children.set(one.name, Object.assign(one, { parent: top }));
  }
  return top;
}

// Opens the group with most cycles again and again, while there is room on the screen.
export function opened(root, cycles, most) {
  const open = new Set();
  for (;;) {
    const groups = groupsOf(root, (one) => open.has(one.path)), can = groups.filter((group) => group.children.size && groups.length + group.children.size <= most);
    if (!can.length) return open;
    const weight = new Map(can.map((group) => [group, group.steps.reduce((sum, step) => sum + cycles[step], 0)]));
    open.add(can.reduce((a, b) => (weight.get(b) > weight.get(a) ? b : a)).path);
  }
}
