// The frame around the views: navigation, selection, theme, keys, and one or two reports.

import { choice, h, hint, icon, replace } from "./dom.js";
import { isExported, load, loadIndex } from "./data.js";
import { change, current, link, listen } from "./state.js";
import { forgetColours } from "./colours.js";
import { setQuantities } from "./quantities.js";
import { counted, short, tileName } from "./format.js";
import { startTextures, switchTextures, TEXTURE_ICON } from "./textures.js";
import { startTheme, switchTheme, THEME_ICON } from "./theme.js";
import { Banner } from "./parts/banner.js";
import { exportButton, openButton } from "./parts/files.js";
import { showHelp } from "./parts/help.js";
import { Palette } from "./parts/palette.js";
import { offerPictures, pictureOfFocus } from "./parts/picture.js";
import { PinBoard } from "./parts/pins.js";
import { summaryView } from "./views/summary.js";
import { memoryView } from "./views/memory.js";
import { livenessView } from "./views/liveness.js";
import { treeView } from "./views/tree.js";
import { operationsView } from "./views/operations.js";
import { executionView } from "./views/execution.js";
import { stagesView } from "./views/stages.js";
import { hostView } from "./views/host.js";
import { chipView } from "./views/chip.js";
import { whatifView } from "./views/whatif.js";
import { compareView } from "./views/compare.js";
import { sqlView } from "./views/sql.js";
import { graphView } from "./views/graph.js";
import { tensorsView } from "./views/tensors.js";
import { trafficView } from "./views/traffic.js";

const VIEWS = {
  summary: ["Summary", summaryView, "M4 5h16M4 12h10M4 19h7"],
  memory: ["Memory", memoryView, "M4 20V9m5 11V4m5 16v-8m5 8V7"],
  liveness: ["Liveness", livenessView, "M3 18c4 0 5-12 9-12s5 12 9 12"],
  tree: ["Program", treeView, "M5 4v13a2 2 0 0 0 2 2h4M5 9h6m4-2h5v4h-5zm0 10h5v4h-5z"],
  operations: ["Operations", operationsView, "M4 4h7v7H4zm9 0h7v7h-7zM4 13h7v7H4zm9 3.500h7m-3.500-3.500v7"],
  execution: ["Execution", executionView, "M3 6h9m-5 6h12M5 18h8"],
  stages: ["Stages", stagesView, "M3 5h6v4H3zm5 5h6v4H8zm5 5h6v4h-6z"],
  chip: ["Chip", chipView, "M7 7h10v10H7zM10 3v4m4-4v4m-4 10v4m4-4v4M3 10h4m-4 4h4m10-4h4m-4 4h4"],
  host: ["Host", hostView, "M3 5h18v11H3zm5 15h8m-4-4v4"],
  whatif: ["What if", whatifView, "M4 19c5 0 6-12 16-13M4 4v16h16"],
  compare: ["Compare", compareView, "M8 4 4 8l4 4M4 8h16m-4 4 4 4-4 4m4-4H4"],
  graph: ["Graph", graphView, "M9 3h6v5H9zM3 16h6v5H3zm12 0h6v5h-6zM12 8v4m-6 4v-4h12v4"],
  tensors: ["Tensors", tensorsView, "M4 6h7M4 12h13M9 18h11"],
  traffic: ["Traffic", trafficView, "M4 8h13m-4-4 4 4-4 4M20 16H7m4-4-4 4 4 4"],
  sql: ["SQL", sqlView, "M5 6c0-1.700 3.100-3 7-3s7 1.300 7 3-3.100 3-7 3-7-1.300-7-3zm0 0v12c0 1.700 3.100 3 7 3s7-1.300 7-3V6M5 12c0 1.700 3.100 3 7 3s7-1.300 7-3"],
};
// The first view is the default. A file with only sweep points has only the What-if view.
function viewNames() {
  const isThere = { compare: () => index.reports.length > 1, stages: () => index.reports.some((report) => report.n_stages > 0) };
  return Object.keys(VIEWS).filter((name) => (index.views ?? [name]).includes(name) && (isThere[name]?.() ?? true));
}
const SELECTIONS = { tile: "tile", tiles: "tiles", step: "step", op: "op", variable: "variable", source: "line", stage: "stage" };

let index, shown = [], stage, rail, chips, board, serial = 0;

async function start() {
  startTheme();
  startTextures();
  try {
    index = await loadIndex();
    setQuantities(index.quantities);
  } catch (error) {
    document.body.append(h("p.failure", {}, `The page could not start: ${error.message}`));
    return;
  }
  document.title = `${index.reports.map((r) => r.title).join(" ↔ ")} · Tremula`;
  rail = h("nav.rail", { "aria-label": "Views" });
  chips = h("div.selection", { "aria-live": "polite" });
  stage = h("main.stage", { tabIndex: -1 });
  board = new PinBoard(viewNames().map((name) => [name, VIEWS[name][0]]));
  document.body.append(h("button.skip", { type: "button", onclick: () => stage.focus() }, "To the view"), h("div.frame", {}, rail, h("div.column", {}, topBar(), !isExported && new Banner(index.problem).element, stage)));
  offerPictures();
  listen(onState);
  document.addEventListener("keydown", onKey);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  rebuild();
}

function topBar() {
  return h("header.bar", {}, h("div.names", {}, reportNames()), chips, h("div.spring"),
    index.reports.length > 1 && h("div.modes"),
    !index.views && [board.button, exportButton(() => pair(current())[0]), openButton()],
    !index.views && h("button.ghost", { type: "button", title: "Go to… (g)", "aria-label": "Go to a tile, step or name", onclick: openPalette }, icon("M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zm4.700-1.800L21 21")),
    h("button.ghost", { type: "button", title: "Keys (?)", "aria-label": "Keys", onclick: showHelp }, icon("M9.200 9a2.900 2.900 0 1 1 4.100 2.700c-.9.400-1.300 1-1.300 1.900v.4m0 3.200v.2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z")),
    h("button.ghost.textures", { type: "button", title: "Textures besides colours (t)", "aria-label": "Textures besides colours", onclick: toggleTextures }, icon(TEXTURE_ICON)),
    h("button.ghost", { type: "button", title: "Light or dark (d)", "aria-label": "Light or dark", onclick: toggleTheme },
      icon(THEME_ICON)));
}

// One or two reports are buttons; of many, A and B are chosen from lists.
function reportNames() {
  if (index.reports.length > 2) return [reportPicker(0), reportPicker(1)];
  return index.reports.map((report, i) => h("button.report", {
    type: "button", title: `${report.chip}, ${counted(report.n_ipus, "chip")}, ${counted(report.n_steps, "step")}`,
    onclick: () => change({ report: i || undefined, with: undefined, mode: undefined }),
  }, index.reports.length > 1 && badge(i), h("span", {}, report.title), h("small", {}, ranText(report))));
}

function badge(place) {
  return h(`b.badge.badge${place}`, {}, "AB"[place]);
}

function ranText(report) {
  return report.has_run ? `${short(report.total_cycles)} cycles` : "not run";
}

function reportPicker(place) {
  const pick = (number) => {
    const [a, b] = pair(current());
    // Choosing the other one's report swaps them: a report is never compared with itself.
    const next = place === 0 ? [number, number === b ? a : b] : [number === a ? b : a, number];
    change({ report: next[0] || undefined, with: next[1] });
  };
  return h("label.report.picker", {}, badge(place), h("select", { "aria-label": `Report ${"AB"[place]}`, onchange: (event) => pick(Number(event.target.value)) },
    index.reports.map((report, i) => h("option", { value: i }, `${report.title} · ${ranText(report)}`))));
}

// The numbers of reports A and B.
function pair({ report, with: other }) {
  const n = index.reports.length, a = report < n ? report : 0;
  return [a, other < n && other !== a ? other : a === 0 ? Math.min(1, n - 1) : 0];
}

// Views follow selections by themselves; for another zoom from outside they are built again.
const REBUILDING = ["view", "report", "with", "mode", "by", "show", "layer", "phase", "zone", "order", "span", "pace", "rows", "flows"];
const MOVING = [...REBUILDING, "from", "to", "entry"];

function onState(state, before, isMove) {
  const isSame = (isMove ? MOVING : REBUILDING).every((key) => state[key] === before[key]);
  paintRail();
  paintChips();
  board.paint();
  if (isSame) for (const view of shown) view.select?.(state, before);
  else rebuild();
}

async function rebuild() {
  const state = current(), mine = ++serial;
  const [, make] = VIEWS[viewNames().includes(state.view) ? state.view : viewNames()[0]];
  delete stage.dataset.ready;
  paintRail();
  paintChips();
  hint();
  const focused = document.activeElement?.closest?.(".choice")?.getAttribute("aria-label");
  for (const view of shown) view.close?.();
  shown = [];
  const slow = setTimeout(() => replace(stage, h("p.empty", { role: "status" }, "Loading…")), 500);
  try {
    const contexts = contextsOf(state, mine);
    const built = await Promise.all(contexts.map((context) => make(context)));
    if (mine !== serial) return;
    shown = built;
    stage.classList.toggle("beside", built.length > 1);
    replace(stage, built.map((view, i) => h("div.view", {},
      built.length > 1 && h("h1.side", {}, badge(i), index.reports[pair(state)[i]].title), view.element)));
    for (const view of shown) view.select?.(state, {});
    if (focused) stage.querySelector(`.choice[aria-label="${CSS.escape(focused)}"] [tabindex="0"]`)?.focus();
  } catch (error) {
    if (mine !== serial) return;
    console.error(error);
    replace(stage, h("div.view", {}, h("p.failure", {}, `This view cannot be shown: ${error.message}`)));
  } finally {
    clearTimeout(slow);
  }
  stage.dataset.ready = `${state.view}:${mine}`;
}

// One context, two side by side, or one that has the other report for differences.
function contextsOf(state, mine) {
  const [a, b] = pair(state), isPair = index.reports.length > 1;
  const of = (report) => ({ report, info: index.reports[report], load: (name) => load(`${report}/${name}`) });
  const shown = state.mode === "beside" && state.view !== "compare" && isPair ? [a, b] : [a];
  return shown.map((report) => ({
    ...of(report),
    other: state.mode === "difference" && isPair ? of(b) : null,
    compare: () => load(`compare/${a}/${b}`),
    pair: [index.reports[a], index.reports[b]],
    reports: index.reports,
    // What a view that is gone still says, after a pause in zooming, is no longer heard.
    select: (patch) => mine === serial && change(patch),
    isExported,
  }));
}

// What one view means only: a zoom in time, a query.
const LEFT_BEHIND = { from: undefined, to: undefined, q: undefined, mark: undefined, focus: undefined, back: undefined, card: undefined };

function go(view) {
  change({ view, ...LEFT_BEHIND });
}

function paintRail() {
  const { view } = current();
  const items = viewNames().map((name, i) => h("a", {
    href: link({ view: name, ...LEFT_BEHIND }), "aria-current": name === view ? "page" : undefined,
    title: i < 10 ? `${VIEWS[name][0]} (${(i + 1) % 10})` : VIEWS[name][0],
    onclick: (event) => {
      event.preventDefault();
      go(name);
    },
  }, icon(VIEWS[name][2]), h("span", {}, VIEWS[name][0])));
  replace(rail, h("div.logo", {}, h("i"), h("span", {}, "Tremula")), items, h("div.spring"),
    h("p.about", {}, `${index.version}${isExported ? " · exported" : ""}`));
  const modes = document.querySelector(".modes");
  if (modes) {
    replace(modes, choice("Reports", [["one", "One", "one report"], ["beside", "Side by side"], ["difference", "Difference", "B minus A"]],
      current().mode ?? "one", (mode) => change({ mode: mode === "one" ? undefined : mode, ...index.reports.length === 2 && { report: undefined } })));
  }
  const isPair = Boolean(current().mode) || view === "compare";
  document.querySelectorAll(".picker").forEach((picker, place) => {
    picker.hidden = place === 1 && !isPair;
    picker.querySelector(".badge").hidden = !isPair;
    picker.querySelector("select").value = pair(current())[place];
  });
  document.querySelectorAll(".report:not(.picker)").forEach((button, i) => {
    button.classList.toggle("chosen", index.reports.length === 1 || Boolean(current().mode) || i === (current().report ?? 0));
  });
}

function paintChips() {
  const state = current();
  replace(chips, state.back && state.back !== state.view && VIEWS[state.back] && h("a.chip.back", { href: link({ view: state.back, ...LEFT_BEHIND }), title: `Back to ${VIEWS[state.back][0]}` }, `← ${VIEWS[state.back][0]}`), Object.entries(SELECTIONS).filter(([key]) => state[key] !== undefined).map(([key, name]) =>
    h("button.chip", {
      type: "button", title: `No longer select this ${name}`, onclick: () => change({ [key]: undefined }),
    }, h("small", {}, name), h("span", {}, chipText(key, state)), "×")));
}

// What a selection is called: a tile as everywhere, a line by its file.
function chipText(key, state) {
  const info = index.reports[pair(state)[0]], perIpu = info.n_tiles / info.n_ipus;
  if (key === "source") return String(state[key]).split("/").at(-1);
  if (key === "tile" && info.n_ipus > 1) return tileName(state.tile, perIpu, info.n_ipus).replace("tile ", "");
  return String(state[key]);
}

function openPalette() {
  if (index.views) return; // a file with only sweep points has nowhere to go
  const [report] = pair(current());
  new Palette({
    info: index.reports[report], load: (name) => load(`${report}/${name}`), views: viewNames().map((name) => [name, VIEWS[name][0]]),
    view: () => current().view, go: (patch) => change({ ...patch.view !== current().view && LEFT_BEHIND, ...patch }),
  }).open();
}

function onKey(event) {
  if (document.querySelector("dialog[open], .menu:popover-open")) return;
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  const names = viewNames();
  const number = /^[0-9]$/.test(event.key) ? (Number(event.key) + 9) % 10 : -1; // 0 is the tenth
  if (names[number]) go(names[number]);
  else if (event.key === "d") toggleTheme();
  else if (event.key === "t") toggleTextures();
  else if (event.key === "/" || event.key === "g") {
    openPalette();
    event.preventDefault();
  } else if (event.key === "+" || event.key === "=") for (const view of shown) view.closer?.();
  else if (event.key === "s") pictureOfFocus();
  else if (event.key === "p" && !index.views) {
    board.add();
    event.preventDefault();
  }
  else if (event.key === "?") showHelp();
  else if (event.key === "Escape") {
    change(Object.fromEntries(Object.keys(SELECTIONS).map((key) => [key, undefined])));
  }
}

function toggleTextures() {
  switchTextures();
  rebuild();
}

function toggleTheme() {
  switchTheme();
  forgetColours();
  rebuild();
}

start();
