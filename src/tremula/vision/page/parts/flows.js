// Producers and consumers of an execution of a step: who wrote what it reads, who reads what it writes.

import { text } from "../data.js";

const MOST_ARROWS = 24; // of each kind; nearer ones first

export class Flows {
  // `pack` says which variables each step reads and writes.
  constructor(trace, pack, variables) {
    Object.assign(this, { trace, pack, whyNot: pack.facts.why_not });
    this.names = new Map(Array.from(variables.columns.id, (id, row) => [id, text(variables, "name", row)]));
  }

  of(step, way) {
    const { [`${way}_start`]: start, [`${way}_variable`]: variable } = this.pack.columns;
    return variable.subarray(start[step], start[step + 1]);
  }

  nameOf(variable) {
    return this.names.get(variable) ?? `variable ${variable}`;
  }

  // { producers, consumers }: [{entry, step, variables}] among loaded entries; null if the entry is not.
  find(entry) {
    const step = this.trace.stepOf(entry);
    if (this.whyNot || step === null) return null;
    return { step, producers: this.producers(entry, step), consumers: this.consumers(entry, step) };
  }

  // The last execution before this one that writes each variable it reads.
  producers(entry, step) {
    const open = new Set(this.of(step, "read")), result = [];
    for (let at = entry - 1; at >= 0 && open.size && result.length < MOST_ARROWS; at--) {
      const other = this.trace.stepOf(at);
      if (other === null) break;
      const variables = this.of(other, "write").filter((variable) => open.has(variable));
      if (!variables.length) continue;
      result.push({ entry: at, step: other, variables: [...variables] });
      for (const variable of variables) open.delete(variable);
    }
    return result;
  }

  // Executions after this one that read what it writes, until something else writes it again.
  consumers(entry, step) {
    const open = new Set(this.of(step, "write")), result = [];
    for (let at = entry + 1; at < this.trace.n && open.size && result.length < MOST_ARROWS; at++) {
      const other = this.trace.stepOf(at);
      if (other === null) break;
      const variables = this.of(other, "read").filter((variable) => open.has(variable));
      if (variables.length) result.push({ entry: at, step: other, variables: [...variables] });
      for (const variable of this.of(other, "write")) open.delete(variable);
    }
    return result;
  }
}
