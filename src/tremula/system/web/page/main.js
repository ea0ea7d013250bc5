// The fleet, live: a rack picture, plots of the last minutes, partitions, programs and faults.

import { plot } from "./plot.js";
import { rackPicture } from "./racks.js";
import { h, replace } from "./dom.js";

const PERIOD_MS = 2000, N_KEPT = 150; // five minutes
const COLOURS = { partition: "Partition", utilisation: "Use", watts: "Power", die_celsius: "Temperature" };
const PLOTS = [
  ["Power", "W", (c) => sum(c.watts)],
  ["Use", "%", (c) => (100 * sum(c.utilisation)) / c.utilisation.length],
  ["Hottest die", "°C", (c) => Math.max(...c.die_celsius)],
];

let colourBy = "partition", chosen = null, state = null;
const history = new Map(); // of cluster and plot: [ms, value], oldest first
const parts = Object.fromEntries(["figures", "racks", "plots", "partitions", "programs", "faults", "note", "signin"].map((name) => [name, h(`div.${name}`)]));

function sum(column) {
  return column.reduce((a, b) => a + b, 0);
}

function build() {
  const choice = h("select", { id: "colour", onchange: (event) => { colourBy = event.target.value; draw(); } },
    ...Object.entries(COLOURS).map(([value, text]) => h("option", { value }, text)));
  document.body.append(
    h("header", {}, h("h1", {}, "Fleet"), h("label", { htmlFor: "colour" }, "Colour by "), choice, parts.note),
    h("main.stage", {}, parts.signin, parts.figures, h("section.card", {}, h("h2", {}, "Racks"), parts.racks),
      h("section.card", {}, h("h2", {}, "Last five minutes"), parts.plots),
      h("section.card", {}, h("h2", {}, "Partitions"), parts.partitions),
      h("section.card", {}, h("h2", {}, "Programs"), parts.programs),
      h("section.card", {}, h("h2", {}, "Faults"), parts.faults)));
}

async function load() {
  const answer = await fetch("api/v1/state");
  const table = await answer.json();
  if (answer.status === 401) askForKey();
  if (!answer.ok) throw new Error(table.error);
  replace(parts.signin);
  return table;
}

// The way in: the key goes to the controller once, and comes back as a cookie that scripts cannot read.
function askForKey() {
  if (parts.signin.firstChild) return;
  const key = h("input", { id: "key", type: "password", autocomplete: "current-password", required: true });
  const answer = h("span.lost");
  const send = async (event) => {
    event.preventDefault();
    const sent = await fetch("api/v1/session", { method: "POST", headers: { Authorization: `Bearer ${key.value}` } });
    if (sent.ok) location.reload();
    else replace(answer, (await sent.json()).error);
  };
  replace(parts.signin, h("form.card", { onsubmit: send }, h("h2", {}, "Sign in"),
    h("p", {}, "The administrator's key is in the file that `tremula vipu-server` named when it started (admin.hcl); ",
      "`tremula system view --config FILE.hcl` opens this page with it."),
    h("label", { htmlFor: "key" }, "Access key "), key, h("button", { type: "submit" }, "Sign in"), answer));
}

function remember() {
  const now = Date.now();
  for (const cluster of state.clusters) {
    for (const [title, , value] of PLOTS) {
      const key = `${cluster.name} ${title}`, points = history.get(key) ?? [];
      points.push([now, value(cluster)]);
      history.set(key, points.slice(-N_KEPT));
    }
  }
}

function draw() {
  const n = state.clusters.reduce((a, c) => a + c.n_ipus, 0), used = state.clusters.reduce((a, c) => a + c.n_ipus_used, 0);
  const watts = state.clusters.reduce((a, c) => a + sum(c.watts), 0);
  replace(parts.figures, figure(`${used} of ${n}`, "IPUs in partitions"), figure(state.leases.length, "programs"),
    figure(`${(watts / 1000).toFixed(2)} kW`, "drawn"), figure(state.faults.length, "faults", state.faults.length ? "bad" : ""));
  replace(parts.racks, ...state.clusters.map((c) => rackPicture(c, colourBy, chosen, choose)));
  replace(parts.plots, ...state.clusters.flatMap((c) => PLOTS.map(([title, unit]) => plot(`${title}, ${c.name}`, unit, history.get(`${c.name} ${title}`)))));
  replace(parts.partitions, rows(["Name", "User", "IPUs", "First", "Routing", "State"],
    state.partitions.map((p) => [p.name, p.owner, p.size, p.first, p.routing, p.state]), (row) => choose(row[0]), chosen));
  replace(parts.programs, rows(["PID", "User", "Partition", "IPUs", "Command"], state.leases.map((l) => [l.pid, l.user, l.partition, l.ipus.length, l.command])));
  replace(parts.faults, rows(["Kind", "Cluster", "What"], state.faults.map((f) => [f.kind, f.cluster, f.what])));
  document.querySelector(".stage").dataset.ready = "true";
}

function choose(name) {
  chosen = chosen === name ? null : name;
  draw();
}

function figure(value, text, kind = "") {
  return h(`div.figure${kind && `.${kind}`}`, {}, h("b", {}, String(value)), h("span", {}, text));
}

function rows(heads, cells, onclick, mark) {
  if (!cells.length) return h("p.none", {}, "None.");
  return h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", {}, text)))),
    h("tbody", {}, ...cells.map((row) => h(`tr${onclick && row[0] === mark ? ".chosen" : ""}`, onclick ? { onclick: () => onclick(row) } : {}, ...row.map((cell) => h("td", {}, String(cell)))))));
}

async function turn() {
  try {
    state = await load();
    if (!state.partitions.some((partition) => partition.name === chosen)) chosen = null;
    remember();
    draw();
    replace(parts.note, h("span.live", {}, "live"));
  } catch (error) {
    replace(parts.note, h("span.lost", {}, `not live: ${error.message}`));
    document.querySelector(".stage").dataset.ready = "true";
  }
  setTimeout(turn, PERIOD_MS);
}

build();
turn();
