// Summary: the machine, the graph, whether it fits, where time goes, and what would help.

import { card, h } from "../dom.js";
import { legend } from "../parts/chart.js";
import { colour, phasesOn } from "../colours.js";
import { bytes, counted, duration, percent, place, short, signed, tileName, whole } from "../format.js";
import { link } from "../state.js";
import { aboutOf, term, titleOf } from "../quantities.js";

const STANDINGS = {
  published: ["accent", "stated by a public source"],
  fitted: ["exchange", "fitted to published measurements"],
  derived: ["host", "computed from published facts"],
  placeholder: ["bad", "a guess"],
  yours: ["sync", "an estimate that you gave"],
};

export async function summaryView(context) {
  const { facts } = await context.load("summary");
  const other = context.other && (await context.other.load("summary")).facts;
  const element = h("div", {},
    h("div.grid", {}, headline(facts, other).map((one) => h("section.card.quarter", {}, one))),
    h("div.grid", {},
      h("section.card.two-thirds", {}, h("header", {}, h("h2", {}, "What would help")), insightList(facts.insights)),
      h("div.third", { style: { display: "grid", gap: "16px", alignContent: "start" } }, timeCard(facts), trustCard(facts), targetCard(facts)),
    ),
    h("div.grid", {}, vertexCard(facts), exchangeCard(facts)),
    detailsCard(facts));
  return { element, select: (state) => reveal(element, state) };
}

// The card or the advice that a link leads to, marked and in sight.
function reveal(element, { card: name, insight }) {
  const wanted = name ? element.querySelector(`[data-card="${CSS.escape(name)}"]`) : insight >= 0 ? element.querySelectorAll(".insight")[insight] : null;
  element.querySelectorAll(".revealed").forEach((one) => one.classList.remove("revealed"));
  wanted?.classList.add("revealed");
  wanted?.scrollIntoView({ block: "nearest" });
}

function headline(facts, other) {
  const { execution: ran, memory, graph, target } = facts;
  const share = memory.largest / memory.available_per_tile;
  const versus = (now, then, format) => other && h("span", {}, `B ${signed(then - now, format)}`);
  return [
    figure("total_cycles", ran ? whole(ran.total_cycles) : "not run",
      ran ? `${duration(ran.microseconds / 1e6)} at ${(facts.target.clock_hz / 1e9).toFixed(2)} GHz${ran.joules ? `, ${ran.joules.toPrecision(3)} J (${ran.joules_interval.map((j) => j.toPrecision(2)).join(" – ")}, not measured)` : ""}` : "costs per step are known",
      [ran?.cycle_interval && intervalBand(ran), ran && other?.execution && versus(ran.total_cycles, other.execution.total_cycles, whole)]),
    figure("memory_largest", percent(share),
      `${tileName(memory.fullest_tile, target.tiles_per_ipu, target.n_ipus)}: ${bytes(memory.largest)} of ${bytes(memory.available_per_tile)}`,
      other && versus(memory.largest, other.memory.largest, bytes), share > 1 ? "bad" : ""),
    figure("fits", memory.fits ? "Yes" : `${counted(memory.n_full_tiles, "tile")} full`,
      `${bytes(memory.total)} in all, ${percent(memory.share)} of memory`,
      other && versus(memory.total, other.memory.total, bytes), memory.fits ? "good" : "bad"),
    figure("parallel_efficiency", ran ? percent(ran.parallel_efficiency) : "–",
      `${counted(graph.vertices, "vertex")}, ${counted(graph.steps, "step")}`,
      other && ran && h("span", {}, `B ${percent(other.execution?.parallel_efficiency ?? NaN)}`)),
  ];
}

// Where real hardware would be nine times in ten, and the prediction in it: a band, not a bare number.
function intervalBand(ran) {
  const [low, high] = ran.cycle_interval, from = Math.min(low, 0.5 * ran.total_cycles), span = Math.max(high, 1.5 * ran.total_cycles) - from;
  const at = (cycles) => `${(100 * (cycles - from) / span).toFixed(2)}%`;
  const text = `${short(low)} – ${short(high)} on hardware, nine times in ten`;
  return [h("div.band", { title: text, role: "img", "aria-label": text },
    h("i", { style: { left: at(low), right: `calc(100% - ${at(high)})` } }), h("em", { style: { left: at(ran.total_cycles) } })), h("div.band-text", {}, text)];
}

function figure(key, value, about, versus, tone = "") {
  return h("div.figure", {}, term("small", key), h(`b${tone && `.${tone}`}`, {}, value), h("span", {}, about), versus);
}

function insightList(insights) {
  if (!insights.length) return h("p.note", {}, "Nothing stands out: no rule found anything expensive.");
  return insights.map((one, i) => h(`div.insight${one.rule === "out_of_memory" ? ".urgent" : ""}`, {},
    h("div.rank", {}, i + 1),
    h("div", {}, h("h3", {}, one.title), h("p.note", {}, one.text), evidence(one, i)),
    h("div.saves", {}, saving(one))));
}

function saving(one) {
  if (one.saves_cycles) return [short(one.saves_cycles), h("small", {}, "cycles to save")];
  if (one.saves_bytes) return [bytes(one.saves_bytes), h("small", {}, "per tile to save")];
  return "";
}

// What an earlier look has selected; advice selects something else.
const CLEAR = Object.fromEntries(["tile", "tiles", "step", "entry", "op", "variable", "stage", "from", "to", "mark", "card"].map((key) => [key, undefined]));

function evidence(one, i) {
  // A line that the text names is not repeated.
  const isNew = ([name, value]) => name !== "source" || !one.text.includes(place(value));
  const facts = Object.entries(one.evidence).filter(([, value]) => ["string", "number"].includes(typeof value)).filter(isNew);
  return h("div.evidence", {},
    facts.map(([name, value]) => h("span", {}, `${name.replace(/^n_/, "").replaceAll("_", " ")} `,
      h("b", {}, typeof value === "number" ? whole(value) : value))),
    h("a.go", { href: link({ ...CLEAR, view: one.view, ...one.select, insight: i, ...one.view !== "summary" && { focus: 1, back: "summary" } }) }, "Show me →"));
}

function timeCard(facts) {
  const ran = facts.execution;
  if (!ran) return card("Where time goes", null, h("p.note", {}, "This program has not run yet. Its steps have costs; see Operations."));
  const total = Math.max(1, ran.total_cycles), chips = facts.ipus ?? [], parts = phaseShares(ran, total, chips.length);
  return card("Where time goes", null, shares(parts),
    legend(parts.map((part) => ({ ...part, value: percent(part.share) }))),
    h("p.note", { style: { marginTop: "8px" } }, chips.length > 1 ? `Of all ${whole(chips.length)} chips' time; each of them:` : "",
      chips.length > 1 ? "" : `The slowest tile of each step sets its pace. A tile computes ${percent(ran.parallel_efficiency)} of the time on average.`),
    chips.length > 1 && h("div.chip-shares", {}, chips.map((chip) => h("div", {}, h("small", {}, `chip ${whole(chip.ipu)}`), shares(phaseShares(chip, total, chips.length))))));
}

// Five phases and waiting, as shares of the total.
function phaseShares(cycles, total, nIpus) {
  return phasesOn(nIpus).map(({ key, name, tone, about }) => ({ name, about, tone, colour: colour(tone), share: cycles[key] / total }));
}

function shares(parts) {
  return h("div.shares", { role: "img", "aria-label": parts.map((part) => `${part.name} ${percent(part.share)}`).join(", ") }, parts.map((part) => h(`i.tone-${part.tone}`, {
    style: { width: `${100 * part.share}%`, backgroundColor: part.colour }, title: `${part.name} ${percent(part.share)}`,
  })));
}

function trustCard(facts) {
  const cycles = facts.standing_cycles ?? {};
  const total = Object.values(cycles).reduce((sum, n) => sum + n, 0);
  const parts = Object.entries(STANDINGS).map(([name, [tone, about]]) => ({
    name, about, tone, colour: colour(tone), share: total ? (cycles[name] ?? 0) / total : 0,
  }));
  const trusted = parts.filter((p) => p.name !== "placeholder").reduce((sum, p) => sum + p.share, 0);
  const made = card("How far costs can be trusted", null,
    h("p.note", {}, `${percent(trusted)} of vertex cycles rest on published facts, fits or derivations.`),
    shares(parts), legend(parts.map((part) => ({ ...part, value: percent(part.share) }))));
  made.dataset.card = "trust";
  return made;
}

function targetCard(facts) {
  const t = facts.target;
  return card("Target", null, factList([
    ["Chip", `${t.chip} (${t.arch})`],
    t.system && ["System", t.system],
    ["Chips × tiles", `${whole(t.n_ipus)} × ${whole(t.tiles_per_ipu)}`],
    t.n_replicas > 1 && ["Replicas", whole(t.n_replicas)],
    ["Memory", `${bytes(t.n_bytes_per_tile)} per tile, ${bytes(t.n_bytes_per_tile * t.n_tiles)} in all`],
    ["Clock", `${(t.clock_hz / 1e9).toFixed(3)} GHz`],
  ]));
}

function vertexCard(facts) {
  const rows = facts.vertex_types.filter((row) => row.n_vertices > 0);
  const most = Math.max(1, ...rows.map((row) => row.cycles));
  return h("section.card.half", {}, h("header", {}, h("h2", {}, "Most expensive vertices")),
    plainTable(["codelet", "n_vertices", "vertex_cycles", "provenance"], rows.map((row) => [
      row.name, whole(row.n_vertices), [short(row.cycles), row.cycles / most], row.standing,
    ])));
}

function exchangeCard(facts) {
  const rows = facts.exchanges.filter((row) => row.bytes_in > 0);
  const most = Math.max(1, ...rows.map((row) => row.bytes_in));
  return h("section.card.half", {}, h("header", {}, h("h2", {}, "Largest exchanges")),
    plainTable(["step", "once_bytes", "once_exchange", "line"], rows.map((row) => [
      h("a", { href: link({ view: "execution", step: row.id }) }, row.path), [bytes(row.bytes_in), row.bytes_in / most],
      whole(row.exchange), place(row.source),
    ])));
}

function plainTable(keys, rows) {
  const columns = { "--columns": "minmax(110px, 3fr) minmax(84px, 1fr) minmax(84px, 1.2fr) minmax(92px, 1.4fr)", "--least": "380px" };
  const element = h("div.scroll", {}, h("div.row.head", {}, keys.map((key, i) => h(`div.cell${i ? "" : ".text"}`, { title: aboutOf(key), "data-quantity": key }, titleOf(key)))),
    rows.map((row) => h("div.row", {}, row.map((value, i) => {
      const [content, share] = Array.isArray(value) ? value : [value];
      return h(`div.cell${i ? "" : ".text"}`, { title: typeof content === "string" ? content : undefined },
        share !== undefined && h("i.bar", { style: { width: `${92 * share}%` } }), h("span", {}, content));
    }))));
  for (const [name, value] of Object.entries(columns)) element.style.setProperty(name, value);
  return element;
}

function detailsCard(facts) {
  const programs = facts.programs ?? [];
  const made = facts.created ? new Date(facts.created * 1000).toISOString().replace("T", " ").slice(0, 16) : "–";
  return card("Report", null, factList([
    ["Written", `${made} UTC`], ["Programs", `${programs.length}: ${programs.map((name) => `“${name}”`).join(", ")}; ${counted(facts.n_program_nodes, "node")} in their trees`],
    ["Graph", Object.entries(facts.graph).map(([name, n]) => counted(n, singular(name.replace("_", " ")))).join(", ")],
    ["Versions", Object.entries(facts.versions).map(([name, v]) => `${name} ${v}`).join(", ")],
  ]), h("details", {}, h("summary", {}, `Options (${Object.keys(facts.options).length})`),
    factList(Object.entries(facts.options))), facts.extra && Object.keys(facts.extra).length > 0 && h("details", {},
    h("summary", {}, "From the program"), factList(Object.entries(facts.extra).map(([k, v]) => [k, JSON.stringify(v)]))));
}

function singular(name) {
  return name.replace(/vertices$/, "vertex").replace(/s$/, "");
}

function factList(rows) {
  return h("dl.facts", {}, rows.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
