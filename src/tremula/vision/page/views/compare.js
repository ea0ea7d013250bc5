// Compare: what changed from report A to report B, the largest causes first.

import { card, choice, h } from "../dom.js";
import { Table } from "../parts/table.js";
import { waterfall } from "../parts/waterfall.js";
import { bytes, percent, signed, whole } from "../format.js";
import { current } from "../state.js";

const NAMES = {
  total_cycles: "Total cycles", compute: "Compute", exchange: "Exchange", sync: "Sync", waiting: "Waiting",
  memory_total: "Memory, all tiles", memory_always_live: "Always live", memory_temporary: "Temporary", memory_largest: "Fullest tile",
};

const GROUPS = [["module", "Module", "the first part of each name"], ["operation", "Operation"], ["phase", "Phase", "what the time goes into"]];
const BYTES = new Set(["memory_total", "memory_always_live", "memory_temporary", "memory_largest"]);

export async function compareView(context) {
  const { facts } = await context.compare(), [a, b] = context.pair;
  const element = h("div", {},
    h("p.note", {}, "From ", h("b", {}, `A, ${a.title}`), " to ", h("b", {}, `B, ${b.title}`), ": rows are paired by name and place."),
    h("div.grid", {}, ["total_cycles", "exchange", "memory_largest", "memory_total"].filter((key) => facts.totals[key]).map((key) => h("section.card.quarter", {}, total(key, facts.totals[key])))),
    cycleCauses(facts, context), memoryCauses(facts),
    h("div.grid", {},
      h("section.card.half", {}, h("header", {}, h("h2", {}, "In words")), causes(facts.causes)),
      h("section.card.half", {}, h("header", {}, h("h2", {}, "Totals")), totals(facts.totals))),
    pairs("Operations", facts.operations, [["Cycles", "cycles", whole], ["Compute", "compute", whole], ["Exchange", "exchange", whole], ["Vertices", "n_vertices", whole]], context, "op"),
    pairs("Variables", facts.variables, [["Bytes", "n_bytes", bytes], ["Tiles", "n_tiles", whole], ["Most on a tile", "largest_on_tile", bytes]], context),
    pairs("Steps", facts.steps, [["Cycles", "total_cycles", whole], ["Compute", "compute", whole], ["Exchange", "exchange", whole], ["Runs", "executed", whole], ["Temporary", "temporary_bytes", bytes]], context));
  return { element };
}

// What the difference of the total is made of: its causes add up to it.
function cycleCauses(facts, context) {
  const { total_cycles: all } = facts.totals, by = GROUPS.some(([name]) => name === current().by) ? current().by : "module";
  if (!all) return null;
  return card("Where the difference in cycles comes from", [h("div.spring"), choice("Group by", GROUPS, by, (next) => context.select({ by: next }))],
    waterfall({ before: all.before, after: all.after, format: whole, causes: groupsOf(facts, by, context), rest: "waiting, and work that overlaps" }));
}

function groupsOf(facts, by, context) {
  if (by === "phase") {
    const own = Object.entries(facts.totals).filter(([key]) => key !== "total_cycles" && !BYTES.has(key));
    return own.map(([key, row]) => ({ name: NAMES[key] ?? key, difference: row.difference }));
  }
  const rows = by === "module" && facts.groups ? facts.groups : facts.operations;
  return rows.map((row) => ({
    name: row.name || "(unnamed)", difference: row.cycles.difference,
    onpick: () => context.select({ view: "operations", mode: "difference", layer: undefined, op: row.operations?.[0] ?? row.name }),
  }));
}

function memoryCauses(facts) {
  const { memory_total: all } = facts.totals;
  return card("Where the difference in memory comes from", null, waterfall({
    before: all.before, after: all.after, format: bytes, rest: "gaps between them",
    causes: facts.categories.map((row) => ({ name: row.name, difference: row.always_live.difference + row.temporary.difference })),
  }));
}

function total(key, { before, after, difference }) {
  const format = key.startsWith("memory") ? bytes : whole;
  const tone = difference > 0 ? "bad" : difference < 0 ? "good" : "";
  return h("div.figure", {}, h("small", {}, NAMES[key]), h(`b${tone && `.${tone}`}`, {}, difference ? signed(difference / Math.max(1, before), percent) : "the same"),
    h("span", {}, `${format(before)} → ${format(after)}`));
}

function causes(texts) {
  if (!texts.length) return h("p.note", {}, "The reports do not differ in cost.");
  return h("ul.causes", {}, texts.map((one) => {
    const [amount, ...rest] = one.split(": ");
    return h("li", {}, h(`b.${amount.startsWith("-") ? "less" : "more"}`, {}, amount.replace("-", "−")), ` ${rest.join(": ")}`);
  }));
}

function totals(rows) {
  return h("dl.facts", {}, Object.entries(rows).map(([key, row]) => {
    const format = key.startsWith("memory") ? bytes : whole;
    return [h("dt", {}, NAMES[key] ?? key), h("dd", {}, `${format(row.before)} → ${format(row.after)} (${signed(row.difference, format)})`)];
  }));
}

// A, B and their difference in the first measure; differences in the others.
function pairs(title, rows, measures, context, key) {
  const [, first, show] = measures[0];
  const tone = (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint");
  const table = new Table({
    count: rows.length, noun: "differ", label: title, height: 340, sort: [3, true],
    filter: (i) => rows[i].name, onpick: (i) => key && context.select({ [key]: rows[i].name }),
    columns: [
      { title: title.slice(0, -1), isText: true, get: (i) => rows[i].name || "(unnamed)" },
      { title: `${measures[0][0]} in A`, get: (i) => (rows[i].before_id < 0 ? NaN : rows[i][first].before), show: (v) => (Number.isNaN(v) ? "new" : show(v)) },
      { title: "in B", get: (i) => (rows[i].after_id < 0 ? NaN : rows[i][first].after), show: (v) => (Number.isNaN(v) ? "gone" : show(v)) },
      ...measures.map(([name, field, format]) => ({ title: `Δ ${name}`, get: (i) => rows[i][field].difference, show: (v) => signed(v, format), tone })),
    ],
  });
  return card(title, [h("div.spring"), table.tools], table.element);
}
