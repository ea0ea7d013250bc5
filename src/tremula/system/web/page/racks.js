// Racks of machines, machines of chips: one square each, coloured by a chosen measure.

import { drawn, h } from "./dom.js";

const CHIP = 24, GAP = 4, PER_ROW = 4;
const RANGES = { utilisation: () => [0, 1], watts: (c) => [0, c.tdp_watts], die_celsius: () => [25, 95] };

export function rackPicture(cluster, colourBy, chosen, choose) {
  const per = cluster.n_ipus_per_machine, perRack = cluster.n_machines_per_rack, n = Math.ceil(cluster.n_ipus / per);
  const racks = [];
  for (let first = 0; first < n; first += perRack) racks.push(rack(cluster, first, Math.min(first + perRack, n), per, { colourBy, chosen, choose }));
  return h("figure.cluster", {}, h("figcaption", {}, `${cluster.name}: ${cluster.system}, ${cluster.n_ipus} IPUs, ${cluster.topology}`), h("div.rack-row", {}, ...racks));
}

function rack(cluster, first, end, per, view) {
  const perRow = Math.min(per, PER_ROW), width = perRow * (CHIP + GAP) + 3 * GAP, rowHeight = Math.ceil(per / perRow) * (CHIP + GAP) + 2 * GAP;
  const parts = [];
  for (let machine = end - 1; machine >= first; machine -= 1) { // the lowest is at the bottom
    const y = (end - 1 - machine) * (rowHeight + GAP);
    parts.push(drawn("rect", { class: "machine", x: 0, y, width, height: rowHeight, rx: 2 }));
    for (let place = 0; place < per && machine * per + place < cluster.n_ipus; place += 1) {
      parts.push(chip(cluster, machine * per + place, 2 * GAP + (place % perRow) * (CHIP + GAP), y + 2 * GAP + Math.floor(place / perRow) * (CHIP + GAP), view));
    }
  }
  return drawn("svg", { class: "rack", width, height: (end - first) * (rowHeight + GAP), role: "img", "aria-label": `machines ${first} to ${end - 1}` }, ...parts);
}

function chip(cluster, ipu, x, y, { colourBy, chosen, choose }) {
  const partition = cluster.partition[ipu], fault = cluster.fault[ipu];
  const classes = ["chip", partition === null && "free", fault && "faulty", cluster.is_held[ipu] && "held", chosen !== null && partition !== chosen && "dim"];
  const square = drawn("rect", { class: classes.filter(Boolean).join(" "), x, y, width: CHIP, height: CHIP, rx: 2, "data-ipu": ipu, "data-partition": partition ?? "", fill: colour(cluster, ipu, colourBy), onclick: () => partition !== null && choose(partition) },
    drawn("title", {}, title(cluster, ipu)));
  return square;
}

function title(cluster, ipu) {
  const facts = [`IPU ${ipu}`, cluster.partition[ipu] ?? "free", `${(100 * cluster.utilisation[ipu]).toFixed(0)} % in use`, `${cluster.watts[ipu].toFixed(0)} W`, `${cluster.die_celsius[ipu].toFixed(0)} °C`];
  if (cluster.fault[ipu]) facts.push(`fault: ${cluster.fault[ipu]}`);
  return facts.join(", ");
}

function colour(cluster, ipu, by) {
  if (by === "partition") {
    const name = cluster.partition[ipu];
    return name === null ? "var(--free)" : `hsl(${hue(name)} 55% 52%)`;
  }
  const [low, high] = RANGES[by](cluster), part = Math.min(1, Math.max(0, (cluster[by][ipu] - low) / (high - low)));
  return `hsl(${210 - 190 * part} ${40 + 35 * part}% ${62 - 12 * part}%)`;
}

// Names that resemble each other get hues that do not: the golden angle, by a hash.
function hue(name) {
  let hash = 7;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 65521;
  return Math.round((hash * 137.508) % 360);
}
