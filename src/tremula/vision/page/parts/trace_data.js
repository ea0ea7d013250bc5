// The trace: what ran when. The overview is always there; parts of 16,384 entries come when needed.

import { PHASES } from "../colours.js";
import { text } from "../data.js";

const MOST_PARTS = 3;
const WORK = PHASES.slice(0, -1).map((phase) => phase.key);

export class TraceData {
  constructor(context, overview, steps) {
    Object.assign(this, { context, overview, steps });
    const { facts, columns } = overview;
    this.n = facts.n_entries;
    this.nIpus = facts.n_ipus;
    this.per = facts.n_per_part;
    this.nBuckets = columns.entry?.length ?? 0;
    this.begin = this.n ? Math.min(...columns.begin.subarray(0, this.nIpus)) : 0;
    this.end = this.n ? columns.end.reduce((most, end) => Math.max(most, end), 1) : 1;
    this.parts = new Map();
    this.onload = null;
  }

  // [first, last) entries that may fall between two times on any chip: whole buckets, or exactly
  // those where the parts that hold them are loaded.
  entriesOf(from, to) {
    const { entry, begin, end } = this.overview.columns, k = this.nIpus;
    if (!this.nBuckets) return [0, 0];
    let first = 0, last = this.nBuckets - 1;
    while (first < last && most(end, first * k, k) <= from) first++;
    while (last > first && least(begin, last * k, k) >= to) last--;
    const ends = [entry[first], last + 1 < this.nBuckets ? entry[last + 1] : this.n];
    const loaded = this.loadedParts(...ends);
    if (!loaded) return ends;
    const a = loaded[0], b = loaded.at(-1);
    return [Math.max(ends[0], a.first + a.firstAfter(from)), Math.min(ends[1], b.first + Math.max(1, b.lastBefore(to)))];
  }

  partNumbers(first, last) {
    const a = Math.floor(first / this.per), b = Math.floor(Math.max(first, last - 1) / this.per);
    return b - a >= MOST_PARTS ? null : Array.from({ length: b - a + 1 }, (_, i) => a + i);
  }

  loadedParts(first, last) {
    const parts = this.partNumbers(first, last)?.map((part) => this.parts.get(part));
    return parts?.every(Boolean) ? parts : null;
  }

  // Loaded parts that cover some entries; null if there are too many, or they are still loading.
  partsOf(first, last) {
    for (const part of this.partNumbers(first, last) ?? []) if (!this.parts.has(part)) this.fetch(part);
    return this.loadedParts(first, last);
  }

  // A part, loaded if need be, for sums over more than is in sight.
  async part(number) {
    return this.parts.get(number) ?? new TracePart(this, await this.context.load(`trace/${number}`));
  }

  async fetch(part) {
    this.parts.set(part, null);
    try {
      this.parts.set(part, new TracePart(this, await this.context.load(`trace/${part}`)));
      this.onload?.();
    } catch (error) {
      this.failed = error;
    }
  }

  namesOf(step) {
    this.split ??= new Map();
    const code = this.steps.columns.path[step];
    if (!this.split.has(code)) this.split.set(code, (this.steps.facts.texts.path[code] || "(unnamed)").split("/"));
    return this.split.get(code);
  }

  // The names down to the first pipeline, for parts that begin inside one.
  pipeline() {
    this.within ??= this.steps.facts.texts.path.map((path) => path.split("/")).find((names) => names.includes("pipeline")) ?? [];
    return this.within.slice(0, this.within.indexOf("pipeline") + 1);
  }

  runOf(entry) {
    const { runs } = this.overview.facts;
    let low = 0, high = runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (runs[middle].first_entry <= entry) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  // Cycles of each phase of one execution of a step on a chip, in the order of PHASES.
  phases(step, chip) {
    const { columns } = this.steps, i = step * this.nIpus + chip; // on one chip the step itself
    this.work ??= WORK.map((key) => columns[`ipu_${key}`] ?? (this.nIpus === 1 ? columns[key] : undefined));
    return this.work.map((column) => column?.[i] ?? 0);
  }

  // Cycles of each phase between two times, all chips together: from entries where they are loaded,
  // from the overview's buckets elsewhere. What is left of the time is waiting.
  sums(from, to) {
    const sums = WORK.map(() => 0), isAll = from <= this.begin && to >= this.end;
    const parts = isAll ? null : this.loadedParts(...this.entriesOf(from, to));
    for (const part of parts ?? [this.buckets()]) part.addTo(sums, from, to);
    const all = (to - from) * this.nIpus, busy = sums.reduce((sum, v) => sum + v, 0);
    return Object.fromEntries([...WORK.map((key, p) => [key, sums[p]]), ["waiting", Math.max(0, all - busy)]]);
  }

  buckets() {
    const { columns } = this.overview, n = this.nBuckets * this.nIpus;
    return {
      addTo: (sums, from, to) => {
        for (let i = 0; i < n; i++) {
          const share = shareOf(columns.begin[i], columns.end[i], from, to);
          if (share > 0) WORK.forEach((key, p) => { sums[p] += (columns[key]?.[i] ?? 0) * share; });
        }
      },
    };
  }

  stepOf(entry) {
    const part = this.parts.get(Math.floor(entry / this.per));
    return part ? part.step[entry - part.first] : null;
  }

  // Spans of all loaded executions of a step on the first chip that takes part in it.
  spansOfStep(step) {
    const result = [];
    for (const part of this.parts.values()) {
      if (!part) continue;
      for (let i = 0; i < part.n && result.length < 2000; i++) {
        if (part.step[i] === step) result.push(part.spanOf(i));
      }
    }
    return result;
  }

  // [entry, [start, end]] of the first execution of a step after a time, or of the first at all, wherever it
  // is: parts are loaded one by one until one has it. null if it never ran.
  async find(step, after = -Infinity) {
    let first = null;
    for (let number = 0; number * this.per < this.n; number++) {
      const part = await this.part(number);
      for (let i = 0; i < part.n; i++) {
        if (part.step[i] !== step) continue;
        const span = part.spanOf(i);
        first ??= [part.first + i, span];
        if (span[0] > after) return [part.first + i, span];
      }
    }
    return first;
  }

  // The span of an execution, if its part is loaded.
  spanOfEntry(entry) {
    const part = this.parts.get(Math.floor(entry / this.per));
    return part && entry - part.first < part.n ? part.spanOf(entry - part.first) : null;
  }

  path(step) {
    return text(this.steps, "path", step) || "(unnamed)";
  }
}

// 16,384 entries, with their times on each chip.
class TracePart {
  constructor(trace, { facts, columns }) {
    const k = trace.nIpus, n = columns.step.length;
    Object.assign(this, { trace, k, n, first: facts.first, step: columns.step, times: columns.times, stage: columns.stage, microBatch: columns.micro_batch });
    this.start = new Float64Array(n * k);
    this.end = new Float64Array(n * k);
    const now = facts.begin.slice();
    for (let i = 0; i < n * k; i++) {
      const chip = i % k;
      this.start[i] = now[chip] + columns.gap[i];
      this.end[i] = now[chip] = this.start[i] + columns.duration[i];
    }
    this.frames = [];
    this.depths = [];
  }

  // Cycles of each phase of an entry on a chip; of a step whose cost depends on data, compute is the rest.
  phasesOf(i, chip) {
    const step = this.step[i], at = i * this.k + chip, phases = this.trace.phases(step, chip).map((cycles) => cycles * this.times[i]);
    if (this.trace.steps.columns.is_counted[step]) phases[0] = Math.max(0, this.end[at] - this.start[at] - phases.slice(1).reduce((sum, v) => sum + v, 0));
    return phases;
  }

  // The row of an entry's frame among the nested names of a chip.
  depthOf(i, chip) {
    this.framesOf(chip);
    return this.depths[chip][i];
  }

  // [start, end] of an entry, on all chips that take part in it.
  spanOf(i) {
    let start = Infinity, end = -Infinity;
    for (let at = i * this.k; at < (i + 1) * this.k; at++) {
      if (this.end[at] <= this.start[at]) continue;
      start = Math.min(start, this.start[at]);
      end = Math.max(end, this.end[at]);
    }
    return end < start ? [this.start[i * this.k], this.end[i * this.k]] : [start, end];
  }

  // Adds the cycles of each phase between two times.
  addTo(sums, from, to) {
    const { k } = this, last = Math.min(this.n, this.lastBefore(to));
    for (let i = this.firstAfter(from); i < last; i++) {
      for (let chip = 0; chip < k; chip++) {
        const start = this.start[i * k + chip], end = this.end[i * k + chip], share = shareOf(start, end, from, to);
        if (share <= 0) continue;
        const phases = this.trace.phases(this.step[i], chip), total = Math.max(1, phases.reduce((sum, v) => sum + v, 0));
        for (let p = 0; p < phases.length; p++) sums[p] += ((phases[p] * (end - start)) / total) * share;
      }
    }
  }

  // The first entry that any chip ends after a time: ends only grow.
  firstAfter(time) {
    return firstOf(this.n, (i) => most(this.end, i * this.k, this.k) > time);
  }

  // One past the last entry that begins before a time on a chip that takes part in it.
  lastBefore(time) {
    if (!this.earliest) {
      this.earliest = new Float64Array(this.n);
      for (let i = this.n - 1, soonest = Infinity; i >= 0; i--) this.earliest[i] = soonest = Math.min(soonest, this.spanOf(i)[0]);
    }
    return firstOf(this.n, (i) => this.earliest[i] >= time);
  }

  // The first entry that ends after a time on a chip.
  firstOn(chip, time) {
    return firstOf(this.n, (i) => this.end[i * this.k + chip] > time);
  }

  // Nested spans by name: frames[depth] = [{start, end, name, step or -1, stage, times}]; leaves are entries.
  framesOf(chip) {
    this.frames[chip] ??= this.makeFrames(chip);
    return this.frames[chip];
  }

  makeFrames(chip) {
    const rows = [], open = [], { k, trace } = this, depths = this.depths[chip] = new Uint16Array(this.n);
    let last = this.start[chip], pipeline = trace.pipeline();
    const close = (depth) => {
      while (open.length > depth) open.pop().end = last;
    };
    for (let i = 0; i < this.n; i++) {
      const at = this.start[i * k + chip], end = this.end[i * k + chip], own = trace.namesOf(this.step[i]);
      const within = own.indexOf("pipeline");
      if (within >= 0) pipeline = own.slice(0, within + 1);
      if (end <= at) continue; // the chip takes no part
      const names = this.stage[i] < 0 ? own : this.stageNames(i, own, pipeline), run = trace.runOf(this.first + i), leaf = names.length - 1;
      let depth = 0;
      while (depth < leaf && open[depth]?.name === names[depth] && open[depth].run === run) depth++;
      close(depth);
      for (; depth < leaf; depth++) {
        const frame = { start: at, end: at, name: names[depth], step: -1, stage: names[depth].startsWith("stage ") ? this.stage[i] : -1, times: this.times[i], run };
        open.push(frame);
        (rows[depth] ??= []).push(frame);
      }
      for (const frame of open) frame.times = Math.min(frame.times, this.times[i]);
      last = end;
      depths[i] = depth;
      (rows[depth] ??= []).push({ start: at, end, name: names[depth], step: this.step[i], stage: -1, times: this.times[i] });
    }
    close(0);
    return rows;
  }

  // A visit of a stage is a separate frame, named after its micro-batch, inside the pipeline.
  stageNames(i, own, pipeline) {
    const stage = this.stage[i], inside = own.slice(own.indexOf(`stage${stage}`) + 1);
    const batch = this.microBatch[i] >= 0 ? ` · micro-batch ${this.microBatch[i]}` : "";
    return [...pipeline, `stage ${stage}${batch}`, ...(inside.length ? inside : own.slice(-1))];
  }

  // Stretches in which entries stand for several executions: [{from, to, times}].
  foldedSpans() {
    if (this.folded) return this.folded;
    this.folded = [];
    for (let i = 0; i < this.n; i++) {
      if (this.times[i] <= 1) continue;
      const [from, to] = this.spanOf(i), before = this.folded.at(-1);
      if (before && before.times === this.times[i] && before.next === i) Object.assign(before, { to: Math.max(before.to, to), next: i + 1 });
      else this.folded.push({ from, to, times: this.times[i], next: i + 1 });
    }
    return this.folded;
  }
}

// The part of a stretch between two times.
function shareOf(begin, end, from, to) {
  return end > begin ? Math.max(0, Math.min(to, end) - Math.max(from, begin)) / (end - begin) : 0;
}

function firstOf(n, isIt) {
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isIt(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

function most(values, from, n) {
  let result = values[from];
  for (let i = from + 1; i < from + n; i++) if (values[i] > result) result = values[i];
  return result;
}

function least(values, from, n) {
  let result = values[from];
  for (let i = from + 1; i < from + n; i++) if (values[i] < result) result = values[i];
  return result;
}
