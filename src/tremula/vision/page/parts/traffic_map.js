// A heat map of senders × receivers: a cell for each pair of tiles, or of groups of tiles.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour, css, heat } from "../colours.js";
import { bytes } from "../format.js";

const LEFT = 112, TOP = 26, MOST = 620;

// options: pack, nTiles, name(tile), describe({from, to, pool, nBytes}), onpick({from, to})
export class TrafficMap {
  constructor(options) {
    this.options = options;
    const { facts, columns } = options.pack, n = facts.n_bins;
    Object.assign(this, { n, pool: facts.pool, cells: new Float64Array(n * n), at: null });
    for (let i = 0; i < columns.cell_bytes.length; i++) this.cells[columns.cell_from[i] * n + columns.cell_to[i]] = columns.cell_bytes[i];
    this.most = columns.cell_bytes.reduce((high, v) => Math.max(high, v), 1);
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": this.ariaLabel() });
    this.element = h("div.chart.traffic-map", { style: { height: `${MOST / 1.6}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width, height) => {
      Object.assign(this, { width, height, side: Math.min(width - LEFT - 8, height - TOP - 8) });
      this.paint();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const cell = this.cellAt(event.offsetX, event.offsetY);
      hint(event, cell && options.describe(cell));
    });
    this.canvas.addEventListener("pointerleave", () => hint());
    this.canvas.addEventListener("click", (event) => {
      const cell = this.cellAt(event.offsetX, event.offsetY);
      if (cell) options.onpick(cell);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => hint());
  }

  ariaLabel() {
    const { pack, name } = this.options, { route_from: from, route_to: to, route_bytes: n } = pack.columns;
    return `Bytes from tile to tile; the busiest route: ${n.length ? `${name(from[0])} to ${name(to[0])}, ${bytes(n[0])}` : "none"}. Arrow keys walk from cell to cell`;
  }

  // Few large cells must not hide many small ones: the shade is that of the logarithm.
  shade(n) {
    return n > 0 ? css(heat(0.15 + 0.85 * (Math.log1p(n) / Math.log1p(this.most)))) : colour("cell-empty");
  }

  paint() {
    if (!this.side || this.side < 8) return;
    const pen = sharpen(this.canvas, this.width, this.height), { n, side } = this, size = side / n;
    pen.fillStyle = colour("cell-empty");
    pen.fillRect(LEFT, TOP, side, side);
    for (let from = 0; from < n; from++) {
      for (let to = 0; to < n; to++) {
        const value = this.cells[from * n + to];
        if (!value) continue;
        pen.fillStyle = this.shade(value);
        pen.fillRect(LEFT + to * size, TOP + from * size, Math.max(1, size - (size > 6 ? 1 : 0)), Math.max(1, size - (size > 6 ? 1 : 0)));
      }
    }
    this.paintAxes(pen, size);
    if (this.chosen !== undefined) {
      const bin = Math.floor(this.chosen / this.pool) * size;
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 1.5;
      pen.strokeRect(LEFT, TOP + bin, side, size);
      pen.strokeRect(LEFT + bin, TOP, size, side);
    }
    if (this.at) {
      pen.lineWidth = 2;
      pen.strokeStyle = colour("accent");
      pen.strokeRect(LEFT + this.at.to * size - 1, TOP + this.at.from * size - 1, size + 2, size + 2);
    }
  }

  paintAxes(pen, size) {
    pen.font = "11px " + colour("font");
    pen.fillStyle = colour("muted");
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(this.n / 8));
    for (let bin = 0; bin < this.n; bin += every) {
      const name = this.options.name(bin * this.pool), middle = (bin + 0.5) * size;
      pen.textAlign = "right";
      pen.fillText(name, LEFT - 8, TOP + middle);
      pen.textAlign = "left";
      if (bin % (2 * every) === 0) pen.fillText(name, LEFT + bin * size, 14);
    }
  }

  cellAt(x, y) {
    const to = Math.floor((x - LEFT) / this.side * this.n), from = Math.floor((y - TOP) / this.side * this.n);
    return from >= 0 && to >= 0 && from < this.n && to < this.n ? this.cell(from, to) : null;
  }

  cell(from, to) {
    return { from: from * this.pool, to: to * this.pool, pool: this.pool, nBytes: this.cells[from * this.n + to] };
  }

  key(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter" && this.at) this.options.onpick(this.cell(this.at.from, this.at.to));
    else if (by) {
      const inside = (v) => Math.max(0, Math.min(this.n - 1, v));
      this.at = this.at ? { from: inside(this.at.from + by[0]), to: inside(this.at.to + by[1]) } : { from: 0, to: 0 };
      const box = this.canvas.getBoundingClientRect(), size = this.side / this.n;
      hint({ clientX: box.left + LEFT + this.at.to * size, clientY: box.top + TOP + this.at.from * size }, this.options.describe(this.cell(this.at.from, this.at.to)));
      this.draw();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  mark(tile) {
    this.chosen = tile;
    this.draw();
  }

  legend() {
    const n = 24;
    return h("div.legend", {}, h("span", {}, "1 B"), h("span.shades", {}, Array.from({ length: n }, (_, i) => h("i", { style: { background: css(heat(0.15 + (0.85 * i) / (n - 1))) } }))), h("span", {}, `${bytes(this.most)}, logarithmic`));
  }
}
