// Chip: every tile where it lies, step after step, as a film: bytes in use, or cycles of each kind.

import { card, choice, h, icon } from "./dom.js";
import { Chart } from "./chart.js";
import { FloorPlan, ORDERS } from "./floorplan.js";
import { SERIES, css, difference, heat } from "./colours.js";
import { text } from "./data.js";
import { byteTicks, bytes, short, whole } from "./format.js";
import { current, link } from "./state.js";

const STEPS_PER_PART = 16, AHEAD = 6;
const SHOWN = [
  ["memory", "Memory", "bytes in use"], ["temporary", "Temporary", "bytes of temporary variables and buffers"],
  ["compute", "Compute", "cycles of one execution"], ["exchange", "Exchange", "cycles of one execution"], ["idle", "Idle", "cycles without work"],
];
const SPEEDS = [["2", "2/s"], ["8", "8/s"], ["24", "24/s"]];
const PLAY = "M7 4v16l13-8z", PAUSE = "M8 4v16M16 4v16", BACK = "M15 5l-7 7 7 7", FORWARD = "M9 5l7 7-7 7";

export async function chipView(context) {
  const [tiles, steps, live] = await Promise.all(["tiles", "steps", "liveness"].map(context.load));
  const view = new ChipView(context, { tiles, steps, live });
  return { element: view.element, select: (state) => view.select(state), close: () => view.close() };
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
      tiles: this.tiles, value: (tile) => this.values[tile], shade: (value) => (value ? heat(value / this.most) : difference(0)),
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
    const isHalf = this.context.other && h("p.note", {}, "Steps of two programs need not match, so this is A alone; Side by side shows both.");
    this.element = h("div", {},
      card("The chip, step by step", [h("div.spring"), choice("Colour", SHOWN, this.what, (show) => this.context.select({ show })),
        choice("Order of tiles", ORDERS, current().order ?? "place", (order) => this.context.select({ order }))],
      h("div.player", {}, button(BACK, -1, "One step back (,)"), this.play, button(FORWARD, 1, "One step on (.)"), this.slider,
        choice("Steps per second", SPEEDS, String(this.pace), (pace) => this.context.select({ pace }))),
      isHalf, h("p", {}, this.title), this.about, this.plan.element, this.scale()),
      card(this.isBytes ? "Temporary bytes over steps" : "Cycles over steps", null, this.chart.element));
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
    const bar = h("i.ramp", { style: { background: `linear-gradient(90deg, ${[0, .2, .4, .6, .8, 1].map((s) => css(heat(s))).join(", ")})` } });
    return h("p.status.tools", {}, "0", bar, this.scaleText);
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

  // Shows a step; the address follows when the hand rests, since browsers limit how often it may change.
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
    // Bytes keep one scale for all steps, so that a film can be followed; cycles have each step's own.
    const most = values.reduce((high, v) => Math.max(high, v), 0);
    const { facts, columns } = this.tiles;
    this.most = Math.max(1, this.what === "memory" ? columns.including_gaps.reduce((a, b) => Math.max(a, b)) : this.what === "temporary" ? columns.temporary.reduce((a, b) => Math.max(a, b)) : most);
    const show = this.isBytes ? bytes : (v) => `${whole(v)} cycles`;
    const sum = values.reduce((total, v) => total + v, 0), nBusy = values.reduce((count, v) => count + (v > 0), 0);
    this.title.textContent = `Step ${whole(step)} of ${whole(this.n)}: ${text(this.steps, "path", step) || "unnamed"}`;
    this.about.replaceChildren(`${text(this.steps, "type", step)}. ${whole(nBusy)} of ${whole(facts.n_tiles)} tiles, most ${show(most)} (tile ${whole(values.indexOf(most))}), mean ${show(sum / facts.n_tiles)}. `,
      h("a.go", { href: link({ view: "execution", step }) }, "In the trace →"));
    this.scaleText.textContent = show(this.most);
    this.plan.update({ label: `${this.title.textContent}, ${this.what} of every tile: ${this.about.textContent}` });
    this.element.querySelector(".card").dataset.step = step;
    for (let next = step + 1; next <= Math.min(this.n - 1, step + AHEAD) && this.timer; next++) this.valuesAt(next).catch(() => {});
  }

  // Float64Array[n_tiles] of what is shown, at a step.
  async valuesAt(step) {
    if (!this.isBytes) return (await this.context.load(`step-tiles/${step}`)).columns[this.what];
    const part = await this.context.load(`step-live/${Math.floor(step / STEPS_PER_PART)}`);
    const first = (step % STEPS_PER_PART) * this.nTiles, live = part.columns.live.subarray(first, first + this.nTiles);
    if (this.what === "temporary") return live;
    return Float64Array.from(live, (n, tile) => n + this.tiles.columns.always_live[tile]);
  }

  describe(tile) {
    const { columns, facts } = this.tiles, value = this.values[tile];
    return [`Tile ${tile}${facts.n_ipus > 1 ? ` on chip ${columns.ipu[tile]}` : ""}`, [this.what, this.isBytes ? bytes(value) : `${whole(value)} cycles`],
      ...(this.isBytes ? [["of", bytes(facts.available)]] : [])];
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
