// The whole trace in a thin strip, with the visible part marked: drag it to move.

import { h, onSize, perFrame, sharpen } from "../dom.js";
import { colour } from "../colours.js";

const LEFT = 64, HEIGHT = 34;

export class Strip {
  constructor(trace, range) {
    Object.assign(this, { trace, range });
    this.canvas = h("canvas", { "aria-label": "Overview", role: "img" });
    this.element = h("div.chart", { style: { height: `${HEIGHT}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    range.listen(() => this.draw());
    const move = (event) => {
      const at = range.low + ((event.offsetX - LEFT) / (this.width - LEFT)) * (range.high - range.low);
      range.show(at - range.span / 2, at + range.span / 2);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.isHeld = true;
      move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => this.isHeld && move(event));
    this.canvas.addEventListener("pointerup", () => { this.isHeld = false; });
  }

  x(time) {
    return LEFT + ((time - this.range.low) / (this.range.high - this.range.low)) * (this.width - LEFT);
  }

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, HEIGHT);
    const key = `${this.width} ${colour("compute")}`;
    if (this.key !== key) Object.assign(this, { key, picture: this.whole() });
    pen.drawImage(this.picture, 0, 0, this.width, HEIGHT);
    const from = this.x(this.range.from), to = Math.max(this.x(this.range.to), from + 3);
    pen.fillStyle = colour("surface");
    pen.globalAlpha = 0.66;
    pen.fillRect(LEFT, 0, from - LEFT, HEIGHT);
    pen.fillRect(to, 0, this.width - to, HEIGHT);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, to - from - 1.5, HEIGHT - 1.5);
  }

  // Everything but the mark, drawn once per width and theme.
  whole() {
    const canvas = document.createElement("canvas");
    const pen = sharpen(canvas, this.width, HEIGHT);
    const { columns } = this.trace.overview, k = this.trace.nIpus;
    for (let i = 0; i < (columns.entry?.length ?? 0) * k; i += k) {
      const left = this.x(columns.begin[i]), wide = Math.max(0.7, this.x(columns.end[i]) - left + 0.3);
      const total = Math.max(1, columns.end[i] - columns.begin[i]);
      let y = HEIGHT;
      for (const name of ["sync", "exchange", "compute"]) {
        const tall = (HEIGHT * columns[name][i]) / total;
        pen.fillStyle = colour(name);
        pen.fillRect(left, y - tall, wide, tall);
        y -= tall;
      }
    }
    return canvas;
  }
}
