// Compare: what changed from report A to report B, the largest causes first.

import { card, choice, h } from "../dom.js";
import { Table } from "../parts/table.js";
import { waterfall } from "../parts/waterfall.js";
import { bytes, percent, signed, whole } from "../format.js";
import { current } from "../state.js";
import { changeColumn, column, term, titleOf } from "../quantities.js";

// Totals of compare() and the quantities they are.
const NAMES = {
  total_cycles: "total_cycles", compute: "mean_compute", exchange: "mean_exchange", links: "mean_links", host: "mean_host", sync: "mean_sync", waiting: "mean_waiting",
  memory_total: "memory_total", memory_always_live: "always_live", memory_temporary: "temporary_peaks", memory_largest: "memory_largest", energy_microjoules: "joules",
};

const GROUPS = [["module", "Module", "the first part of each name"], ["operation", "Operation"], ["phase", "Phase", "what the time goes into"]];
const BYTES = new Set(["memory_total", "memory_always_live", "memory_temporary", "memory_largest"]), ENERGY = "energy_microjoules";

export async function compareView(context) {
  const { facts } = await context.compare(), [a, b] = context.pair, isOne = Math.max(a.n_ipus, b.n_ipus) === 1;
  const element = h("div", {},
    h("p.note", {}, "From ", h("b", {}, `A, ${a.title}`), " to ", h("b", {}, `B, ${b.title}`), ": rows are paired by name and place."),
    h("div.grid", {}, ["total_cycles", "exchange", "memory_largest", "memory_total"].filter((key) => facts.totals[key]).map((key) => h("section.card.quarter", {}, total(key, facts.totals[key])))),
    cycleCauses(facts, context), memoryCauses(facts),
    h("div.grid", {},
      h("section.card.half", {}, h("header", {}, h("h2", {}, "In words")), causes(facts.causes)),
      h("section.card.half", {}, h("header", {}, h("h2", {}, "Totals")), totals(facts.totals))),
    pairs("Operations", facts.operations, [[isOne ? "cycles" : "busy_cycles", "busy_cycles"], ...isOne ? [] : [["path_cycles", "cycles"]], ["compute", "compute"], ["exchange", "exchange"], ["n_vertices", "n_vertices"]], context, "operation", "op"),
    pairs("Variables", facts.variables, [["n_bytes", "n_bytes"], ["n_tiles", "n_tiles"], ["largest_on_tile", "largest_on_tile"]], context, "variable"),
    pairs("Steps", facts.steps, [[isOne ? "cycles" : "busy_cycles", "busy_cycles"], ...isOne ? [] : [["path_cycles", "total_cycles"]], ["once_compute", "compute"], ["once_exchange", "exchange"], ["executed", "executed"], ["temporary_at_step", "temporary_bytes"]], context, "step"));
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
    const own = Object.entries(facts.totals).filter(([key]) => key !== "total_cycles" && key !== ENERGY && !BYTES.has(key));
    return own.map(([key, row]) => ({ name: titleOf(NAMES[key]), difference: row.difference }));
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
  return h("div.figure", {}, term("small", NAMES[key]), h(`b${tone && `.${tone}`}`, {}, difference ? signed(difference / Math.max(1, before), percent) : "the same"),
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
    return [term("dt", NAMES[key], key === ENERGY ? "Energy, µJ" : undefined), h("dd", {}, `${format(row.before)} → ${format(row.after)} (${signed(row.difference, format)})`)];
  }));
}

// A, B and their difference in the first measure; differences in the others. measures: [[quantity, field]]
function pairs(title, rows, measures, context, name, key) {
  const [first, field] = measures[0], tone = (v) => (v > 0 ? "bad" : v < 0 ? "good" : "faint");
  const side = (letter, which, id, gone) => {
    const one = column(first, (i) => (rows[i][id] < 0 ? NaN : rows[i][field][which]));
    return { ...one, key: `${letter}${first}`, title: `${one.title} in ${letter}`, show: (v) => (Number.isNaN(v) ? gone : one.show(v)) };
  };
  const table = new Table({
    count: rows.length, noun: "differ", label: title, height: 340, sort: [3, true],
    filter: (i) => rows[i].name, onpick: (i) => key && context.select({ [key]: rows[i].name }),
    columns: [
      column(name, (i) => rows[i].name || "(unnamed)"), side("A", "before", "before_id", "new"), side("B", "after", "after_id", "gone"),
      ...measures.map(([quantity, one]) => changeColumn(quantity, (i) => rows[i][one].difference, { show: (v) => signed(v, column(quantity).show), tone })),
    ],
  });
  return card(title, [h("div.spring"), table.tools], table.element);
}
