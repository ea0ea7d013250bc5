// Go to a tile, a step, an operation, a variable or a view by typing what it is called.

import { h, replace } from "../dom.js";
import { text } from "../data.js";
import { tileName, whole } from "../format.js";

const MOST_FOUND = 14;
// Views that show a selected tile or step themselves; from others one goes to the first.
const TILE_VIEWS = ["memory", "chip", "execution", "liveness"];
const STEP_VIEWS = ["execution", "liveness", "chip", "tree", "memory", "operations", "graph"];

// options: info (of the report), load(name), views [[name, title]], view(), go(patch)
export class Palette {
  constructor(options) {
    this.options = options;
    this.at = 0;
    this.list = h("ul.found", { role: "listbox", id: "palette-list", "aria-label": "Places" });
    this.input = h("input", {
      type: "text", placeholder: "tile 17 · chip 1, tile 0 · tiles 3, 5-8 · step 42 · part of a name", "aria-label": "Go to",
      role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", autocomplete: "off", spellcheck: false,
      oninput: () => this.look(0), onkeydown: (event) => this.key(event),
    });
    this.element = h("dialog.palette", {
      "aria-label": "Go to", onclose: () => this.element.remove(), onclick: (event) => event.target === this.element && this.element.close(),
    }, this.input, this.list);
  }

  async open() {
    document.body.append(this.element);
    this.element.showModal();
    this.input.focus();
    this.look(0);
    const [steps, variables] = await Promise.all(["steps", "variables"].map(this.options.load));
    this.names = [
      ...steps.facts.texts.operation.map((name) => ({ kind: "operation", name: name || "(unnamed)", patch: { view: "operations", layer: undefined, op: name || "(unnamed)" } })),
      ...Array.from(variables.columns.id, (id, row) => ({ kind: "variable", name: text(variables, "name", row), patch: { view: "memory", variable: id } })),
      ...Array.from(steps.columns.cycles, (_, step) => ({ kind: `step ${step}`, name: text(steps, "path", step), patch: this.stepPatch(step) })),
    ];
    this.steps = steps;
    if (this.element.isConnected) this.look(this.at);
  }

  look(at) {
    this.result = this.search(this.input.value.trim()).slice(0, MOST_FOUND);
    this.at = Math.max(0, Math.min(this.result.length - 1, at));
    replace(this.list, this.result.length ? this.result.map((one, i) => h("li", {
      role: "option", id: `palette-${i}`, "aria-selected": String(i === this.at), onclick: () => this.take(one), onpointermove: () => i !== this.at && this.look(i),
    }, h("small", {}, one.kind), h("span", {}, one.name))) : h("li.none", { role: "status" }, this.names ? "Nothing has this name." : "Loading names…"));
    this.input.setAttribute("aria-activedescendant", this.result.length ? `palette-${this.at}` : "");
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (event.key === "Enter" && this.result[this.at]) this.take(this.result[this.at]);
    else if (step) this.look(this.at + step);
    else return;
    event.preventDefault();
  }

  take({ patch }) {
    this.element.close();
    this.options.go(patch);
  }

  search(words) {
    const numbered = this.numbered(words.toLowerCase());
    if (!words) return this.options.views.map(([name, title]) => ({ kind: "view", name: title, patch: { view: name } }));
    const views = this.options.views.filter(([, title]) => title.toLowerCase().startsWith(words.toLowerCase())).map(([name, title]) => ({ kind: "view", name: title, patch: { view: name } }));
    return [...numbered, ...views, ...this.named(words.toLowerCase())];
  }

  // "tile 17", "chip 1, tile 0", "tiles 3, 5-8", "step 42", or just a number.
  numbered(words) {
    const { n_tiles: nTiles, n_ipus: nIpus, n_steps: nSteps } = this.options.info, perIpu = nTiles / nIpus;
    const result = [], tile = (n) => n < nTiles && result.push({ kind: "tile", name: tileName(n, perIpu, nIpus), patch: this.tilePatch({ tile: n, tiles: undefined }) });
    const step = (n) => n < nSteps && result.push({ kind: "step", name: this.steps ? `step ${n}: ${text(this.steps, "path", n)}` : `step ${n}`, patch: this.stepPatch(n) });
    const chip = /^(?:chip|ipu)\s*(\d+)[\s,]*tile\s*(\d+)$/.exec(words), many = /^tiles?\s+([\d\s,-]+)$/.exec(words), one = /^step\s*(\d+)$/.exec(words);
    if (chip && Number(chip[2]) < perIpu && Number(chip[1]) < nIpus) tile(Number(chip[1]) * perIpu + Number(chip[2]));
    else if (many) {
      const tiles = tilesOf(many[1], nTiles);
      if (tiles.length === 1) tile(tiles[0]);
      else if (tiles.length) result.push({ kind: "tiles", name: `${whole(tiles.length)} tiles: ${tiles.slice(0, 12).join(", ")}${tiles.length > 12 ? ", …" : ""}`, patch: { view: "memory", tile: tiles[0], tiles: tiles.join(",") } });
    } else if (one) step(Number(one[1]));
    else if (/^\d+$/.test(words)) {
      tile(Number(words));
      step(Number(words));
    }
    return result;
  }

  tilePatch(patch) {
    return { ...patch, view: TILE_VIEWS.includes(this.options.view()) ? this.options.view() : TILE_VIEWS[0] };
  }

  stepPatch(step) {
    return { step, entry: undefined, view: STEP_VIEWS.includes(this.options.view()) ? this.options.view() : STEP_VIEWS[0] };
  }

  // Names with all words in them; those that begin or end with them first, then the shorter.
  named(words) {
    const parts = words.split(/\s+/), rank = (name) => (name === words ? 0 : name.endsWith(words) ? 1 : name.startsWith(words) ? 2 : 3);
    const result = [];
    for (const one of this.names ?? []) {
      const name = one.name.toLowerCase();
      if (parts.every((part) => name.includes(part))) result.push([rank(name), one.name.length, one]);
    }
    return result.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , one]) => one);
  }
}

// "3, 5-8" as sorted numbers below n, at most as many as a table has columns for.
export function tilesOf(words, n) {
  const result = new Set();
  for (const part of words.split(/[\s,]+/)) {
    const [first, last = first] = part.split("-").map(Number);
    for (let tile = first; tile <= last && result.size < 64; tile++) if (Number.isInteger(tile) && tile < n && part) result.add(tile);
  }
  return [...result].sort((a, b) => a - b);
}
