// The trace: what ran when. The overview is always there; parts of 16,384 entries come when needed.

import { text } from "../data.js";

const MOST_PARTS = 3;

export class TraceData {
  constructor(context, overview, steps) {
    Object.assign(this, { context, overview, steps });
    const { facts, columns } = overview;
    this.n = facts.n_entries;
    this.nIpus = facts.n_ipus;
    this.per = facts.n_per_part;
    this.nBuckets = columns.entry?.length ?? 0;
    this.begin = this.n ? Math.min(...columns.begin.subarray(0, this.nIpus)) : 0;
    this.end = this.n ? Math.max(...columns.end) : 1;
    this.parts = new Map();
    this.onload = null;
  }

  // [first, last) entries that may fall between two times on any chip, in whole buckets.
  entriesOf(from, to) {
    const { entry, begin, end } = this.overview.columns, k = this.nIpus;
    if (!this.nBuckets) return [0, 0];
    let first = 0, last = this.nBuckets - 1;
    while (first < last && Math.max(...end.subarray(first * k, first * k + k)) <= from) first++;
    while (last > first && Math.min(...begin.subarray(last * k, last * k + k)) >= to) last--;
    // Inside one bucket, guess by time: a bucket may hold many entries.
    const ends = [entry[first], last + 1 < this.nBuckets ? entry[last + 1] : this.n];
    if (first === last && ends[1] - ends[0] > 64) {
      const b = begin[first * k], span = Math.max(1, end[first * k] - b), n = ends[1] - ends[0];
      const share = (time) => Math.max(0, Math.min(1, (time - b) / span));
      return [Math.max(ends[0], Math.floor(ends[0] + n * share(from)) - 48), Math.min(ends[1], Math.ceil(ends[0] + n * share(to)) + 48)];
    }
    return ends;
  }

  // Loaded parts that cover some entries; null if there are too many, or they are still loading.
  partsOf(first, last) {
    const a = Math.floor(first / this.per), b = Math.floor(Math.max(first, last - 1) / this.per);
    if (b - a >= MOST_PARTS) return null;
    const found = [];
    for (let part = a; part <= b; part++) {
      if (!this.parts.has(part)) this.fetch(part);
      const loaded = this.parts.get(part);
      if (!loaded) return null;
      found.push(loaded);
    }
    return found;
  }

  async fetch(part) {
    this.parts.set(part, null);
    try {
      const pack = await this.context.load(`trace/${part}`);
      this.parts.set(part, this.unfold(pack));
      this.onload?.();
    } catch (error) {
      this.failed = error;
    }
  }

  unfold({ facts, columns }) {
    const k = this.nIpus, n = columns.step.length;
    const start = new Float64Array(n * k), end = new Float64Array(n * k);
    const now = facts.begin.slice();
    for (let i = 0; i < n; i++) {
      for (let chip = 0; chip < k; chip++) {
        start[i * k + chip] = now[chip] + columns.gap[i * k + chip];
        end[i * k + chip] = now[chip] = start[i * k + chip] + columns.duration[i * k + chip];
      }
    }
    const part = { first: facts.first, n, step: columns.step, times: columns.times, start, end };
    part.frames = Array.from({ length: k }, (_, chip) => this.frames(part, chip));
    return part;
  }

  // Nested spans by name: frames[depth] = {start, end, name, step or -1, entry}; leaves are entries.
  frames(part, chip) {
    const rows = [], open = [], k = this.nIpus;
    const close = (depth, end) => {
      while (open.length > depth) open.pop().end = end;
    };
    let last = part.start[chip];
    for (let i = 0; i < part.n; i++) {
      const names = this.namesOf(part.step[i]), at = part.start[i * k + chip];
      const run = this.runOf(part.first + i);
      let depth = 0;
      while (depth < names.length - 1 && open[depth]?.name === names[depth] && open[depth].run === run) depth++;
      close(depth, last);
      for (; depth < names.length - 1; depth++) {
        const frame = { start: at, end: at, name: names[depth], step: -1, entry: part.first + i, run, depth };
        open.push(frame);
        (rows[depth] ??= []).push(frame);
      }
      last = part.end[i * k + chip];
      (rows[depth] ??= []).push({ start: at, end: last, name: names[depth], step: part.step[i], entry: part.first + i });
    }
    close(0, last);
    return rows;
  }

  namesOf(step) {
    this.split ??= new Map();
    const code = this.steps.columns.path[step];
    if (!this.split.has(code)) this.split.set(code, (this.steps.facts.texts.path[code] || "(unnamed)").split("/"));
    return this.split.get(code);
  }

  runOf(entry) {
    const { runs } = this.overview.facts;
    let found = -1;
    for (const run of runs) if (run.first_entry <= entry) found = run.id;
    return found;
  }

  // Sync, exchange and compute of one execution of a step on a chip.
  phases(step, chip) {
    const { columns } = this.steps, i = step * this.nIpus + chip;
    return this.nIpus > 1
      ? [columns.ipu_sync[i], columns.ipu_exchange[i], columns.ipu_compute[i]]
      : [columns.sync[step], columns.exchange[step], columns.compute[step]];
  }

  // [start, end] of an entry on a chip, if its part is loaded.
  spanOf(entry, chip = 0) {
    const part = this.parts.get(Math.floor(entry / this.per));
    if (!part) return null;
    const i = (entry - part.first) * this.nIpus + chip;
    return [part.start[i], part.end[i]];
  }

  stepOf(entry) {
    const part = this.parts.get(Math.floor(entry / this.per));
    return part ? part.step[entry - part.first] : null;
  }

  // Spans of all loaded executions of a step.
  spansOfStep(step) {
    const found = [];
    for (const part of this.parts.values()) {
      if (!part) continue;
      for (let i = 0; i < part.n && found.length < 2000; i++) {
        if (part.step[i] === step) found.push([part.start[i * this.nIpus], part.end[i * this.nIpus]]);
      }
    }
    return found;
  }

  path(step) {
    return text(this.steps, "path", step) || "(unnamed)";
  }
}
