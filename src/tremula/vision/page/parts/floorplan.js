// The tiles at their places on the chips, coloured by any value.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour, css } from "../colours.js";

export const ORDERS = [["place", "Place", "where tiles lie on the chip"], ["number", "Number", "row by row, in the order of their numbers"]];

// options: order (of ORDERS), tiles (pack), value(tile), shade(value) → [r, g, b], describe(tile), onpick(tile), chosen, height
export class FloorPlan {
  constructor(options) {
    this.options = options;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": "Tiles on the chip" });
    this.element = h("div.chart", { style: { height: `${options.height ?? 360}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.arrange();
      this.paint();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const tile = this.tileAt(event.offsetX, event.offsetY);
      this.canvas.style.cursor = tile === null ? "default" : "pointer";
      hint(event, tile === null ? null : this.options.describe?.(tile));
    });
    this.canvas.addEventListener("pointerleave", () => hint());
    this.canvas.addEventListener("click", (event) => {
      const tile = this.tileAt(event.offsetX, event.offsetY);
      if (tile !== null) this.options.onpick?.(tile, event);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  update(options) {
    Object.assign(this.options, options);
    if (options.label) this.canvas.setAttribute("aria-label", options.label);
    this.draw();
  }

  // Chips side by side, as large as fits; a tile's box spans half-way to its neighbours.
  arrange() {
    const { n_ipus: n, tiles_per_ipu: per } = this.options.tiles.facts;
    const { x_mm: x, y_mm: y } = this.options.order === "number" ? inRows(n, per) : this.options.tiles.columns;
    const xs = [...new Set(x.slice(0, per))].sort((a, b) => a - b);
    const ys = [...new Set(y.slice(0, per))].sort((a, b) => a - b);
    const step = (values) => (values.length > 1 ? (values.at(-1) - values[0]) / (values.length - 1) : 1);
    const [dx, dy] = [step(xs), step(ys)];
    const wide = xs.at(-1) - xs[0] + dx, tall = ys.at(-1) - ys[0] + dy;
    let best = { scale: 0 };
    for (let across = 1; across <= n; across++) {
      const down = Math.ceil(n / across);
      // A chip may be stretched by up to half to fill the space.
      const sx = (this.width / across - 14) / wide, sy = (this.height / down - 22) / tall;
      const scale = Math.min(sx, sy);
      if (scale > best.scale) best = { scale, across, down, sx: Math.min(sx, scale * 1.9), sy };
    }
    this.boxes = Array.from({ length: n * per }, (_, tile) => {
      const chip = Math.floor(tile / per);
      const left = (chip % best.across) * (this.width / best.across) + 7;
      const top = Math.floor(chip / best.across) * (this.height / best.down) + 16;
      return {
        x: left + (x[tile] - xs[0]) * best.sx, y: top + (ys.at(-1) - y[tile]) * best.sy,
        w: dx * best.sx, h: dy * best.sy,
      };
    });
    this.per = per;
  }

  paint() {
    if (!this.boxes) return;
    const pen = sharpen(this.canvas, this.width, this.height);
    const { value, shade, chosen } = this.options;
    pen.font = "11px " + colour("font");
    // Tiles of a colour together: of 100,000 tiles most time would go into reading colours.
    const tilesOf = new Map();
    this.boxes.forEach((_, tile) => {
      const [r, g, b] = shade(value(tile), tile), key = (r << 16) | (g << 8) | b;
      if (tilesOf.has(key)) tilesOf.get(key).push(tile);
      else tilesOf.set(key, [tile]);
    });
    for (const [key, tiles] of tilesOf) {
      pen.fillStyle = css([key >> 16, (key >> 8) & 255, key & 255]);
      for (const tile of tiles) {
        const { x, y, w, h } = this.boxes[tile];
        pen.fillRect(x, y, Math.max(1, w - Math.min(1.5, w / 8)), Math.max(0.8, h - Math.min(1, h / 6)));
      }
    }
    pen.fillStyle = colour("muted");
    for (let first = 0; first < this.boxes.length; first += this.per) {
      const top = this.boxes.slice(first, first + this.per).reduce((least, { y }) => Math.min(least, y), Infinity);
      pen.fillText(`chip ${first / this.per}`, this.boxes[first].x, top - 5);
    }
    this.overlay(pen);
    if (chosen === undefined || !this.boxes[chosen]) return;
    const box = this.boxes[chosen];
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 2;
    pen.strokeRect(box.x - 2, box.y - 2, box.w + 3, box.h + 3);
  }

  // What a plan of another kind draws on the tiles.
  overlay() {}

  tileAt(x, y) {
    const tile = this.boxes?.findIndex((b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h);
    return tile === undefined || tile < 0 ? null : tile;
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.max(0, Math.min(this.boxes.length - 1, (this.options.chosen ?? -1) + step));
    this.options.onpick?.(next);
  }
}

// Tiles in rows by number, from the top; about twice as wide as high.
function inRows(n, per) {
  const across = Math.max(1, Math.ceil(Math.sqrt(2 * per)));
  const on = (place) => Float32Array.from({ length: n * per }, (_, tile) => place(tile % per));
  return { x_mm: on((tile) => tile % across), y_mm: on((tile) => -Math.floor(tile / across)) };
}
