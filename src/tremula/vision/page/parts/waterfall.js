// How a total becomes another, cause by cause: rows whose bars begin where the one above ended.

import { h } from "../dom.js";
import { signed } from "../format.js";

const MOST_ROWS = 10;

// options: before, after, causes [{name, difference, onpick}], format, rest: the name of what no cause explains
export function waterfall({ before, after, causes, format, rest }) {
  const rows = rowsOf(causes, after - before, rest);
  const ends = rows.reduce((all, row) => [...all, all.at(-1) + row.difference], [before]);
  // The axis begins near the totals, unless one of them is small.
  const low = Math.min(...ends, after), high = Math.max(...ends, after), floor = low > 0.6 * high ? low - 0.35 * (high - low || high) : Math.min(0, low);
  const share = (value) => `${(100 * (value - floor)) / (high - floor || 1)}%`;
  const bar = (from, to, tone) => h("div.lane", {}, h(`i${tone}`, { style: { left: share(Math.min(from, to)), width: `calc(${share(Math.max(from, to))} - ${share(Math.min(from, to))})` } }));
  const end = (name, value) => [h("span.end", {}, name), h("b.end", {}, format(value)), bar(floor, value, "")];
  return h("div.fall", { role: "group", "aria-label": `From ${format(before)} to ${format(after)}` }, end("A", before), rows.map((row, i) => {
    const tone = row.difference > 0 ? ".more" : ".less";
    return [row.onpick ? h("span", {}, h("button.go", { type: "button", title: row.name, onclick: row.onpick }, row.name)) : h("span", { title: row.name }, row.name),
      h(`b${tone}`, {}, signed(row.difference, format)), bar(ends[i], ends[i + 1], tone)];
  }), end("B", after));
}

// The largest causes, the smaller ones together, and what they leave unexplained: they add up to the difference.
function rowsOf(causes, difference, rest) {
  const sorted = causes.filter((one) => one.difference).toSorted((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
  const rows = sorted.slice(0, MOST_ROWS), others = sorted.slice(MOST_ROWS);
  const sum = (list) => list.reduce((total, one) => total + one.difference, 0);
  if (others.length) rows.push({ name: `${others.length} smaller ones together`, difference: sum(others) });
  const left = difference - sum(rows);
  return Math.abs(left) >= 1 ? [...rows, { name: rest, difference: left }] : rows.filter((row) => row.difference);
}
