// What every number on the page is: titles and tooltips come from one table, analysis/quantities.py.

import { h } from "./dom.js";
import { bytes, duration, percent, whole } from "./format.js";

let table = {};

export function setQuantities(result) {
  table = result ?? {};
}

export function quantityOf(key) {
  const result = table[key];
  if (!result) throw new Error(`No quantity is called ${key}: add it to analysis/quantities.py.`);
  return result;
}

export function titleOf(key) {
  return quantityOf(key).title;
}

// A tooltip: what the number is of, and its definition.
export function aboutOf(key) {
  const { of, definition } = quantityOf(key);
  return of ? `${definition} (${of})` : definition;
}

const SHOWN = { cycles: whole, bytes, count: whole, share: percent, seconds: (v) => duration(v / 1e6) };

// A column of a table: its title, tooltip and format follow from its key; `more` changes what differs here.
export function column(key, get, more) {
  const { title, unit } = quantityOf(key);
  return { key, title, about: aboutOf(key), isText: unit === "name", show: SHOWN[unit], get, ...more };
}

// A column of differences B − A of a quantity.
export function changeColumn(key, get, more) {
  const { title, of } = quantityOf(key);
  return column(key, get, { title: `Δ ${title}`, about: `B − A: ${title.toLowerCase()}${of ? ` (${of})` : ""}`, key: `Δ${key}`, ...more });
}

// A term of a list of facts, or the caption of a figure, with its tooltip.
export function term(tag, key, title) {
  return h(tag, { title: aboutOf(key), "data-quantity": key }, title ?? titleOf(key));
}

// What the numbers of some columns are of, where they differ: [[of, [titles]]].
export function scopesOf(columns) {
  const result = new Map();
  for (const { key, title } of columns) {
    const { of, unit } = table[key?.replace("Δ", "")] ?? {};
    if (of && ["cycles", "bytes", "share"].includes(unit)) result.set(of, [...result.get(of) ?? [], title]);
  }
  return [...result];
}

const PHASES = ["compute", "exchange", "links", "host", "sync"];

// Columns of time of everything that ran: on one chip its cycles; on several what all chips spend, then the
// critical path. `of` maps a key (busy_cycles, path_compute, …) to the value of a row.
export function timeColumns(of, { nIpus, total, most, hasBusy = true, isShown = () => true }) {
  const all = Math.max(1, total), bar = (value) => value / Math.max(1, most);
  const named = (prefix) => PHASES.filter((name) => (name !== "links" || nIpus > 1) && isShown(name)).map((name) => [`${prefix}${name}`, name]);
  if (!hasBusy) return onPath();
  if (nIpus === 1) {
    return [column("cycles", of("busy_cycles"), { bar }), column("share", (i) => of("busy_cycles")(i) / all),
      ...named("busy_").map(([key, name]) => column(name, of(key), phaseLook(name, most)))];
  }
  return [column("busy_cycles", of("busy_cycles"), { bar }), column("busy_share", (i) => of("busy_cycles")(i) / (all * nIpus)),
    ...onPath().slice(0, 2), ...named("busy_").map(([key, name]) => column(name, of(key), phaseLook(name, most))), ...onPath().slice(2).map((one) => ({ ...one, isExtra: true }))];
  function onPath() {
    return [column("path_cycles", of("path_cycles"), { bar }), column("path_share", (i) => of("path_cycles")(i) / all),
      ...named("path_").map(([key, name]) => column(key, of(key), phaseLook(name, most)))];
  }
}

function phaseLook(name, most) {
  return { colour: `var(--${name})`, bar: (value) => value / Math.max(1, most) };
}
