// What is at which address of one tile: rows of memory from the bottom up, blocks, gaps, regions.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { SERIES, colour } from "../colours.js";
import { whole } from "../format.js";

const LEFT = 78, ROW = 17, GAP = 3, MOST_ROWS = 26;

export const KINDS = {
  code: ["code", SERIES[4]], state: ["vertex state, stacks, tables", SERIES[9]], always: ["always live", SERIES[0]],
  temporary: ["temporary", SERIES[1]], buffer: ["exchange buffers", SERIES[2]],
};

// options: blocks [{address, size, kind, name, id}] by address, isUsedOnly, available, region0, base, label, onpick(id), chosen
export class MemoryMap {
  constructor(options) {
    this.options = options;
    this.at = -1;
    this.canvas = h("canvas", { tabIndex: 0, role: "img" });
    this.element = h("div.chart.memory-map", {}, this.canvas);
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.paint();
    });
    this.canvas.addEventListener("pointermove", (event) => this.point(this.blockAt(event.offsetX, event.offsetY), event));
    this.canvas.addEventListener("pointerleave", () => hint());
    this.canvas.addEventListener("click", (event) => this.pick(this.blockAt(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => hint());
    this.update({});
  }

  update(options) {
    Object.assign(this.options, options);
    const { blocks, available, label } = this.options;
    const used = Math.max(1, ...blocks.map((b) => b.address + b.size));
    const top = this.options.isUsedOnly ? used : Math.max(available, used);
    this.perRow = Math.max(256, 2 ** Math.ceil(Math.log2(top / MOST_ROWS)));
    this.nRows = Math.ceil(top / this.perRow);
    this.element.style.height = `${this.nRows * (ROW + GAP) + 4}px`;
    this.canvas.setAttribute("aria-label", label);
    this.draw();
  }

  x(byte) {
    return LEFT + (byte / this.perRow) * (this.width - LEFT - 2);
  }

  y(row) {
    return row * (ROW + GAP) + 2;
  }

  // The rows that a range of addresses covers: [row, left, right].
  stretches(address, size) {
    const result = [];
    for (let row = Math.floor(address / this.perRow); row * this.perRow < address + size; row++) {
      const low = Math.max(address, row * this.perRow), high = Math.min(address + size, (row + 1) * this.perRow);
      result.push([row, this.x(low - row * this.perRow), this.x(high - row * this.perRow)]);
    }
    return result;
  }

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height);
    const { blocks, available, base, chosen } = this.options;
    pen.font = "11px " + colour("mono");
    pen.textBaseline = "middle";
    for (let row = 0; row < this.nRows; row++) {
      pen.fillStyle = colour("muted");
      pen.fillText(hex(base + row * this.perRow), 0, this.y(row) + ROW / 2);
    }
    this.fill(pen, 0, Math.min(available, this.nRows * this.perRow), colour("cell-empty"));
    for (const block of blocks) this.fill(pen, block.address, block.size, KINDS[block.kind][1], block.kind === "buffer" ? 0.45 : 1);
    this.paintRegions(pen);
    for (const block of blocks) if (block.id !== undefined && block.id === chosen) this.frame(pen, block);
    if (blocks[this.at] && document.activeElement === this.canvas) this.frame(pen, blocks[this.at]);
  }

  fill(pen, address, size, paint, alpha = 1) {
    pen.fillStyle = paint;
    pen.globalAlpha = alpha;
    for (const [row, left, right] of this.stretches(address, size)) {
      const edge = Math.min(1, (right - left) / 4); // a gap between neighbours where there is room
      pen.fillRect(left, this.y(row), Math.max(0.6, right - left - edge), ROW);
    }
    pen.globalAlpha = 1;
  }

  // Where the second region begins, and where memory ends.
  paintRegions(pen) {
    const { region0, available } = this.options;
    for (const [at, text, tone] of [[region0, "region 1", "ink"], [available, "end", "bad"]]) {
      const row = Math.floor((at - 1) / this.perRow), x = this.x(at - row * this.perRow);
      if (row >= this.nRows) continue;
      pen.fillStyle = colour(tone);
      pen.fillRect(x - 1, this.y(row) - 2, 2, ROW + 4);
      pen.textAlign = x > this.width - 70 ? "right" : "left";
      pen.fillText(text, x + (pen.textAlign === "left" ? 5 : -5), this.y(row) + ROW / 2);
      pen.textAlign = "left";
    }
  }

  frame(pen, block) {
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 2;
    for (const [row, left, right] of this.stretches(block.address, block.size)) pen.strokeRect(left, this.y(row) - 1, Math.max(2, right - left), ROW + 2);
  }

  blockAt(x, y) {
    const row = Math.floor((y - 2) / (ROW + GAP)), byte = ((x - LEFT) / (this.width - LEFT - 2)) * this.perRow;
    if (byte < 0 || byte >= this.perRow || row < 0) return -1;
    const at = row * this.perRow + byte, near = this.perRow / (this.width - LEFT);
    const inside = this.options.blocks.findIndex((b) => at >= b.address && at < b.address + b.size);
    // Blocks thinner than a pixel can still be hit.
    return inside >= 0 ? inside : this.options.blocks.findIndex((b) => Math.abs(b.address - at) < near);
  }

  point(index, event) {
    const block = this.options.blocks[index];
    this.canvas.style.cursor = block?.id === undefined ? "default" : "pointer";
    hint(event, block && this.describe(block));
  }

  describe(block) {
    const { base, region0 } = this.options;
    return [block.name, ["from", hex(base + block.address)], ["to", hex(base + block.address + block.size)], ["bytes", whole(block.size)],
      ["is", KINDS[block.kind][0]], ["region", block.address >= region0 ? "1, interleaved" : block.address + block.size > region0 ? "0 and 1" : "0"]];
  }

  pick(index) {
    const block = this.options.blocks[index];
    if (block?.id !== undefined) this.options.onpick?.(block.id);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") this.pick(this.at);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.at = Math.max(0, Math.min(this.options.blocks.length - 1, this.at + step));
    const block = this.options.blocks[this.at], box = this.canvas.getBoundingClientRect();
    if (!block) return;
    const [[row, left]] = this.stretches(block.address, Math.max(1, block.size));
    hint({ clientX: box.left + left, clientY: box.top + this.y(row) + ROW }, this.describe(block));
    this.draw();
  }
}

function hex(address) {
  return `0x${Math.round(address).toString(16).padStart(5, "0")}`;
}
