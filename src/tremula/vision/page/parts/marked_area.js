// Sums over a marked area of the timeline: a stretch of time on some chips.

import { PHASES } from "../colours.js";

const MOST_PARTS = 64; // of the trace: a million executions
const WORK = PHASES.slice(0, -1).map((phase) => phase.key);

// "from-to" or "from-to.first-last" of chips, as the link has it; null if it says nothing.
export function parseArea(written, nIpus) {
  const [, from, to, first, last] = /^(\d+)-(\d+)(?:\.(\d+)-(\d+))?$/.exec(written ?? "") ?? [];
  if (from === undefined || Number(to) <= Number(from)) return null;
  const chips = first === undefined ? [0, nIpus - 1] : [Math.min(Number(first), nIpus - 1), Math.min(Number(last), nIpus - 1)];
  return chips[1] < chips[0] ? null : { from: Number(from), to: Number(to), first: chips[0], last: chips[1] };
}

export function writeArea({ from, to, first, last }, nIpus) {
  const time = `${Math.round(from)}-${Math.round(to)}`;
  return first === 0 && last === nIpus - 1 ? time : `${time}.${first}-${last}`;
}

// What happens in an area: cycles of each phase on its chips, executions, different steps, bytes that
// tiles receive. What an execution has only partly inside counts by its share of time.
// Of an area with too many executions: the phases, from the overview.
export async function areaSums(trace, area) {
  const numbers = partNumbers(trace, area);
  const sums = { phases: Object.fromEntries(WORK.map((key) => [key, 0])), nExecutions: 0, steps: new Set(), nBytes: 0 };
  if (numbers.length > MOST_PARTS) return withWaiting(fromOverview(trace, area, sums), area);
  for (const number of numbers) addPart(trace, await trace.part(number), area, sums);
  return withWaiting({ ...sums, nSteps: sums.steps.size }, area);
}

function partNumbers(trace, { from, to }) {
  const [first, last] = trace.entriesOf(from, to);
  const a = Math.floor(first / trace.per), b = Math.floor(Math.max(first, last - 1) / trace.per);
  return Array.from({ length: b - a + 1 }, (_, i) => a + i);
}

function withWaiting(sums, { from, to, first, last }) {
  const all = (to - from) * (last - first + 1), busy = Object.values(sums.phases).reduce((sum, v) => sum + v, 0);
  return { ...sums, phases: { ...sums.phases, waiting: Math.max(0, all - busy) }, all };
}

function addPart(trace, part, area, sums) {
  const { columns } = trace.steps, k = trace.nIpus, end = part.lastBefore(area.to);
  for (let i = part.firstAfter(area.from); i < end; i++) {
    const step = part.step[i];
    let isInside = false;
    for (let chip = area.first; chip <= area.last; chip++) {
      const from = part.start[i * k + chip], to = part.end[i * k + chip];
      const share = to > from ? Math.max(0, Math.min(to, area.to) - Math.max(from, area.from)) / (to - from) : 0;
      if (share <= 0) continue;
      isInside = true;
      part.phasesOf(i, chip).forEach((cycles, p) => { sums.phases[WORK[p]] += cycles * share; });
      sums.nBytes += columns.ipu_bytes_in[step * k + chip] * part.times[i] * share;
    }
    if (!isInside) continue;
    sums.nExecutions += part.times[i];
    sums.steps.add(step);
  }
}

function fromOverview(trace, area, sums) {
  const { columns } = trace.overview, k = trace.nIpus;
  for (let at = 0; at < trace.nBuckets * k; at++) {
    const chip = at % k, from = columns.begin[at], to = columns.end[at];
    if (chip < area.first || chip > area.last || to <= from) continue;
    const share = Math.max(0, Math.min(to, area.to) - Math.max(from, area.from)) / (to - from);
    for (const key of WORK) sums.phases[key] += (columns[key]?.[at] ?? 0) * share;
  }
  return { phases: sums.phases };
}
