// One run of the program on the device's own clock: what each chip does, over time.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour } from "../colours.js";
import { paintPhases } from "./strip.js";
import { counted, duration, shortDuration, ticks, whole } from "../format.js";

const LEFT = 64, AXIS = 22, MOST = 260, GAP = 3;

// options: overview (pack), from and to in cycles, oncursor
export class DeviceRun {
  constructor(options) {
    this.options = options;
    const { n_ipus: k, clock_hz: clock } = options.overview.facts;
    this.row = Math.max(4, Math.min(34, Math.floor((MOST - AXIS) / k)));
    this.height = AXIS + k * this.row;
    const description = `One run on the device, ${duration((options.to - options.from) / clock)}, a row for each of ${counted(k, "chip")}`;
    this.canvas = h("canvas", { role: "img", "aria-label": description });
    this.element = h("div.chart.device-run", { style: { height: `${this.height}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => hint());
  }

  x(cycle) {
    const { from, to } = this.options;
    return LEFT + ((cycle - from) / Math.max(1, to - from)) * (this.width - LEFT);
  }

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height), { overview, from, to } = this.options;
    const { n_ipus: k, clock_hz: clock } = overview.facts;
    pen.font = "11px " + colour("font");
    pen.textBaseline = "middle";
    pen.fillStyle = colour("muted");
    for (const seconds of ticks(0, (to - from) / clock, this.width / 130)) {
      const x = this.x(from + seconds * clock);
      pen.textAlign = seconds === 0 ? "left" : x > this.width - 24 ? "right" : "center";
      pen.fillText(seconds === 0 ? "0" : shortDuration(seconds), x, 9);
      pen.fillRect(Math.round(x), AXIS - 5, 1, 4);
    }
    pen.textAlign = "right";
    for (let chip = 0; chip < k; chip++) {
      const top = AXIS + chip * this.row;
      pen.fillStyle = colour("muted");
      if (this.row >= 12) pen.fillText(`chip ${chip}`, LEFT - 8, top + this.row / 2);
      paintPhases(pen, overview, { chip, x: (cycle) => this.x(cycle), top, tall: this.row - (this.row > 8 ? GAP : 1), from, to });
    }
  }

  hover(event) {
    const { overview, from, to } = this.options, { n_ipus: k, clock_hz: clock } = overview.facts;
    const chip = Math.floor((event.offsetY - AXIS) / this.row);
    const cycle = from + ((event.offsetX - LEFT) / (this.width - LEFT)) * (to - from);
    if (chip < 0 || chip >= k || event.offsetX < LEFT) hint();
    else hint(event, [`chip ${chip}`, ["after", duration((cycle - from) / clock)], ["cycle", whole(Math.round(cycle))]]);
  }
}
