// Chip: every tile at its place, step by step, as a film: bytes in use, or cycles of each kind.

import { card, choice, h, icon } from "../dom.js";
import { Chart } from "../parts/chart.js";
import { FloorPlan, ORDERS } from "../parts/floorplan.js";
import { SERIES, css, difference, empty, heat } from "../colours.js";
import { partners, text } from "../data.js";
import { byteTicks, bytes, duration, short, signed, tileName, whole } from "../format.js";
import { current, link } from "../state.js";

const STEPS_PER_PART = 16, AHEAD = 6;
const SHOWN = [
  ["memory", "Memory", "bytes in use"], ["temporary", "Temporary", "bytes of temporary variables and buffers"],
  ["compute", "Compute", "cycles of one execution"], ["exchange", "Exchange", "cycles of one execution"],
  ["links", "Between chips", "cycles of one execution"], ["host", "Host", "cycles of one execution"], ["idle", "Waiting", "cycles without work"],
];
const SPEEDS = [["2", "2/s"], ["8", "8/s"], ["24", "24/s"]];
const PLAY = "M7 4v16l13-8z", PAUSE = "M8 4v16M16 4v16", BACK = "M15 5l-7 7 7 7", FORWARD = "M9 5l7 7-7 7";

export async function chipView(context) {
  const [tiles, steps, live, summary] = await Promise.all(["tiles", "steps", "liveness", "summary"].map(context.load));
  const other = context.other && (await theirs(context.other, steps, tiles));
  const view = new ChipView(context, { tiles, steps, live, summary, other });
  return { element: view.element, select: (state) => view.select(state), close: () => view.close() };
}

// The report to compare with, if its chips have as many tiles.
async function theirs(context, mySteps, myTiles) {
  const [tiles, steps] = await Promise.all(["tiles", "steps"].map(context.load));
  return tiles.facts.n_tiles === myTiles.facts.n_tiles ? { context, tiles, places: partners(mySteps, steps) } : null;
}

class ChipView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.n = this.live.columns.temporary.length;
    this.nTiles = this.tiles.facts.n_tiles;
    if (!this.n) {
      this.element = h("div", {}, card("The chip, step by step", null, h("p.note", {}, "The program has no steps.")));
      return;
    }
    this.what = SHOWN.some(([name]) => name === current().show) ? current().show : "memory";
    this.isBytes = this.what === "memory" || this.what === "temporary";
    this.pace = Number(current().pace ?? 8);
    this.values = new Float64Array(this.nTiles);
    this.plan = new FloorPlan({
      tiles: this.tiles, value: (tile) => this.values[tile], shade: (value) => this.shade(value),
      describe: (tile) => this.describe(tile), onpick: (tile) => context.select({ tile }), order: current().order, height: 460,
    });
    this.chart = this.curve();
    this.build();
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
  }

  build() {
    this.play = h("button.plain.play", { type: "button", onclick: () => this.toggle() });
    this.slider = h("input.scrub", {
      type: "range", min: 0, max: this.n - 1, step: 1, "aria-label": "Step",
      oninput: () => this.go(Number(this.slider.value)), onchange: () => this.keep(),
    });
    this.title = h("b", {});
    this.about = h("p.note.step-note", {});
    this.scaleText = h("span", {});
    const button = (path, by, title) => h("button.plain", { type: "button", title, "aria-label": title, onclick: () => this.move(by) }, icon(path));
    this.paintPlay();
    const note = this.context.other && h("p.note", {}, this.other ? "B − A, for steps of the same name. Dark blue: less, light orange: more." : "The chips differ in their number of tiles, so this shows A only; use Side by side for both.");
    this.element = h("div", {},
      card("The chip, step by step", [h("div.spring"), choice("Colour", SHOWN.filter(([name]) => name !== "links" || this.tiles.facts.n_ipus > 1), this.what, (show) => this.context.select({ show })),
        choice("Order of tiles", ORDERS, current().order ?? "place", (order) => this.context.select({ order }))],
      h("div.player", {}, button(BACK, -1, "One step back (,)"), this.play, button(FORWARD, 1, "One step on (.)"), this.slider,
        choice("Steps per second", SPEEDS, String(this.pace), (pace) => this.context.select({ pace }))),
      note, h("p", {}, this.title), this.about, this.plan.element, this.scale()),
      card(this.isBytes ? "Temporary bytes over steps" : "Cycles over steps", null, this.chart.element),
      this.links());
  }

  // The busiest links between chips, the bottleneck first.
  links() {
    const links = this.summary.facts.execution?.busiest_links ?? [];
    if (!links.length) return null;
    const most = links[0].busy_seconds;
    const row = (one) => h("div", {}, h("small", {}, `${one.name}: ${bytes(one.n_bytes)}, busy for ${duration(one.busy_seconds)}`),
      h("div.shares", {}, h("i", { style: { width: `${100 * one.busy_seconds / most}%`, background: SERIES[1] } })));
    return card("Links between chips", null, h("p.note", {}, `The bottleneck is ${links[0].name}.`), h("div.chip-shares", {}, links.map(row)));
  }

  curve() {
    const values = this.isBytes ? this.live.columns.temporary : this.steps.columns.cycles;
    return new Chart({
      series: [{ name: this.what, colour: SERIES[1], values, isArea: true }], height: 150, xName: "step",
      label: this.isBytes ? "Temporary bytes of all tiles over steps" : "Cycles of each step", yFormat: this.isBytes ? bytes : short, yTicks: this.isBytes ? byteTicks : undefined,
      describe: (step) => [text(this.steps, "path", step) || `step ${step}`, ["step", whole(step)], [this.isBytes ? "temporary" : "cycles", this.isBytes ? bytes(values[step]) : whole(values[step])]],
      onpick: (step) => {
        this.go(step);
        this.keep();
      },
    });
  }

  scale() {
    const [low, shares, of] = this.other ? ["less", [-1, -.5, 0, .5, 1], difference] : ["0", [0, .2, .4, .6, .8, 1], heat];
    const bar = h("i.ramp", { style: { background: `linear-gradient(90deg, ${shares.map((s) => css(of(s))).join(", ")})` } });
    return h("p.status.tools", {}, low, bar, this.scaleText);
  }

  shade(value) {
    if (this.other) return difference(value / this.most);
    return value ? heat(value / this.most) : empty();
  }

  // -- steps --------------------------------------------------------------------------------------

  select(state) {
    if (!this.n) return;
    this.plan.update({ chosen: state.tile });
    const step = state.step >= 0 && state.step < this.n ? state.step : this.live.facts.peak_step;
    if (step !== this.step && !this.timer) this.go(step);
  }

  move(by) {
    this.go(Math.max(0, Math.min(this.n - 1, (this.step ?? 0) + by)));
    this.keep();
  }

  // Shows a step; the address follows after a pause, since browsers limit how often it may change.
  async go(step) {
    this.step = step;
    this.slider.value = step;
    this.slider.setAttribute("aria-valuetext", `step ${step}: ${text(this.steps, "path", step)}`);
    this.chart.update({ marks: [step] });
    try {
      const values = await this.valuesAt(step);
      if (this.step !== step) return;
      this.show(step, values);
    } catch (error) {
      if (this.step !== step) return;
      this.stop();
      this.about.textContent = error.message;
    }
  }

  show(step, values) {
    this.values = values;
    const { facts } = this.tiles, largest = values.reduce((at, v, i) => (Math.abs(v) > Math.abs(values[at]) ? i : at), 0);
    this.most = Math.max(1, this.other ? Math.abs(values[largest]) : this.scaleOf(values[largest]));
    const sum = values.reduce((total, v) => total + v, 0), nBusy = values.reduce((count, v) => count + (v !== 0), 0);
    this.title.textContent = `Step ${whole(step)} of ${whole(this.n)}: ${text(this.steps, "path", step) || "unnamed"}`;
    const absent = this.other && this.other.places[step] < 0 ? "B does not have this step. " : "";
    this.about.replaceChildren(`${text(this.steps, "type", step)}. ${absent}${whole(nBusy)} of ${whole(facts.n_tiles)} tiles${this.other ? " differ" : ""}, most ${this.valueText(values[largest])} (${this.nameOf(largest)}), mean ${this.valueText(sum / facts.n_tiles)}. `,
      h("a.go", { href: link({ view: "execution", step }) }, "In the trace →"));
    this.scaleText.textContent = this.valueText(this.most);
    this.plan.update({ label: `${this.title.textContent}, ${this.what} of every tile: ${this.about.textContent}` });
    this.element.querySelector(".card").dataset.step = step;
    for (let next = step + 1; next <= Math.min(this.n - 1, step + AHEAD) && this.timer; next++) this.valuesAt(next).catch(() => {});
  }

  // Bytes keep one scale for all steps, so that a film can be followed; cycles have each step's own.
  scaleOf(largest) {
    const { columns } = this.tiles, most = (column) => column.reduce((a, b) => Math.max(a, b));
    return this.what === "memory" ? most(columns.including_gaps) : this.what === "temporary" ? most(columns.temporary) : largest;
  }

  valueText(value) {
    const show = this.isBytes ? bytes : (v) => `${whole(v)} cycles`;
    return this.other ? signed(value, show) : show(value);
  }

  // Float64Array[n_tiles] of what is shown, at a step; B − A where two reports are compared.
  async valuesAt(step) {
    const mine = this.valuesOf(this.context, this.tiles, step);
    if (!this.other) return mine;
    const place = this.other.places[step], zeros = new Float64Array(this.nTiles);
    const [now, then] = await Promise.all([mine, place < 0 ? zeros : this.valuesOf(this.other.context, this.other.tiles, place)]);
    return Float64Array.from(now, (v, tile) => then[tile] - v);
  }

  async valuesOf(context, tiles, step) {
    if (!this.isBytes) return (await context.load(`step-tiles/${step}`)).columns[this.what];
    const part = await context.load(`step-live/${Math.floor(step / STEPS_PER_PART)}`);
    const first = (step % STEPS_PER_PART) * this.nTiles, live = part.columns.live.subarray(first, first + this.nTiles);
    if (this.what === "temporary") return live;
    return Float64Array.from(live, (n, tile) => n + tiles.columns.always_live[tile]);
  }

  describe(tile) {
    const { facts } = this.tiles, value = this.values[tile];
    return [this.nameOf(tile), [this.other ? `${this.what}, B − A` : this.what, this.valueText(value)],
      ...(this.isBytes && !this.other ? [["of", bytes(facts.available)]] : [])];
  }

  nameOf(tile) {
    const { facts } = this.tiles;
    return tileName(tile, facts.tiles_per_ipu, facts.n_ipus);
  }

  // -- playing ------------------------------------------------------------------------------------

  toggle() {
    if (this.timer) {
      this.stop();
      this.keep();
      return;
    }
    if (this.step >= this.n - 1) this.go(0);
    this.timer = setInterval(() => (this.step >= this.n - 1 ? this.toggle() : this.go(this.step + 1)), 1000 / this.pace);
    this.paintPlay();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.paintPlay();
  }

  paintPlay() {
    const title = this.timer ? "Pause (space)" : "Play (space)";
    this.play.replaceChildren(icon(this.timer ? PAUSE : PLAY), this.timer ? "Pause" : "Play");
    this.play.setAttribute("aria-label", title);
    this.play.title = title;
  }

  keep() {
    if (!this.timer) this.context.select({ step: this.step });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /SELECT|TEXTAREA/.test(event.target.tagName)) return;
    if (event.key === " " && !event.target.closest("button, a")) this.toggle();
    else if (event.key === ",") this.move(-1);
    else if (event.key === ".") this.move(1);
    else return;
    event.preventDefault();
  }

  close() {
    clearInterval(this.timer);
    document.removeEventListener("keydown", this.keys);
  }
}
