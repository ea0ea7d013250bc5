// Draws heat blocks on a plain canvas, pixel by pixel: for machines without a GPU.

import { colour, heat, rgb } from "../colours.js";
import { lanesOf } from "./heat_gl.js";

const FULL = 63;
// A single entry is drawn as this many strips, its phases one after the other.
const STRIPS = 16;

export class PlainPainter {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d", { willReadFrequently: true });
  }

  paint(blocks, view) {
    const { canvas, pen } = this, width = Math.max(1, Math.round(view.width)), height = Math.round(view.height);
    if (canvas.width !== width || canvas.height !== height || !this.image) {
      Object.assign(canvas, { width, height });
      canvas.style.cssText = `left: ${view.left}px; width: ${view.width}px; height: ${view.height}px`;
      this.image = pen.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(pixel(rgb(colour("sunken"))));
    for (const block of blocks) this.paintBlock(block, view, width, height);
    pen.putImageData(this.image, 0, 0);
  }

  // Every pixel looks up its source: a column for each x, a row for each y.
  paintBlock(block, view, width, height) {
    const strips = block.level === 0 && view.mode === "phases" ? STRIPS : 1, wide = block.nColumns * strips;
    const key = `${view.mode} ${colour("idle")}`;
    if (block.key !== key) Object.assign(block, { key, source: picture(block, view.mode, strips) });
    const perTile = height / (view.bottom - view.top);
    for (const lane of lanesOf(block)) {
      const [first, last, columnAt] = columnsOf(block, lane, view, width, strips);
      if (last <= first) continue;
      const top = (lane.firstTile - view.top) * perTile, perRow = lane.tilesPerRow * perTile;
      const bottom = Math.min(height, Math.round(top + lane.nRows * perRow));
      for (let y = Math.max(0, Math.round(top)); y < bottom; y++) {
        const row = lane.row + Math.min(lane.nRows - 1, Math.max(0, Math.floor((y + 0.5 - top) / perRow)));
        const from = row * wide, to = y * width;
        for (let x = first; x < last; x++) {
          if (columnAt[x] >= 0) this.pixels[to + x] = block.source[from + columnAt[x]];
        }
      }
    }
  }

  drop(block) {
    block.source = block.key = null;
  }
}

// [first x, last x, the source column of each x or -1]: a column is never narrower than a pixel.
function columnsOf(block, lane, view, width, strips) {
  const columnAt = new Int32Array(width).fill(-1), scale = width / (view.to - view.from);
  let first = width, last = 0;
  for (let column = 0; column < block.nColumns; column++) {
    const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip);
    const left = (block.begin[i] - view.from) * scale, right = Math.max(left + 1, (block.end[i] - view.from) * scale);
    const from = Math.max(0, Math.round(left)), to = Math.min(width, Math.round(right));
    for (let x = from; x < to; x++) {
      const strip = Math.floor(((x + 0.5 - left) / (right - left)) * strips);
      columnAt[x] = column * strips + Math.max(0, Math.min(strips - 1, strip));
    }
    if (to > from) [first, last] = [Math.min(first, from), Math.max(last, to)];
  }
  return [first, last, columnAt];
}

// The pixels of a block, rows of columns of strips.
function picture(block, mode, strips) {
  const { nColumns, nRows, columns } = block, wide = nColumns * strips;
  const pixels = new Uint32Array(wide * nRows);
  const tones = ["compute", "exchange", "sync", "idle", "cell-empty"].map((name) => rgb(colour(name)));
  const packed = tones.map(pixel);
  for (const lane of lanesOf(block)) {
    for (let column = 0; column < nColumns; column++) {
      const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip), total = Math.max(1, columns.total?.[i] ?? 1);
      const sync = (columns.chip_sync?.[i] ?? 0) / total, chipExchange = (columns.chip_exchange?.[i] ?? 0) / total;
      for (let row = lane.row; row < lane.row + lane.nRows; row++) {
        const compute = columns.compute[column * nRows + row] / FULL, exchange = (columns.exchange?.[column * nRows + row] ?? 0) / FULL;
        const at = row * wide + column * strips;
        if (strips === 1) pixels[at] = pixel(shade(mode, compute, exchange, sync, tones));
        else for (let k = 0; k < strips; k++) pixels[at + k] = packed[phaseAt((k + 0.5) / strips, sync, chipExchange, exchange, compute)];
      }
    }
  }
  return pixels;
}

function pixel([r, g, b]) {
  return (0xff000000 | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
}

// The phase of a tile at a fraction of a step: sync, then exchange, then compute, else idle.
function phaseAt(at, sync, chipExchange, exchange, compute) {
  if (at < sync) return 2;
  if (at < sync + chipExchange) return at - sync < exchange ? 1 : 3;
  return at - sync - chipExchange < compute ? 0 : 3;
}

function shade(mode, compute, exchange, sync, tones) {
  const idle = Math.max(0, 1 - compute - exchange - sync);
  if (mode === "compute") return heat(compute);
  if (mode === "exchange") return heat(exchange);
  if (mode === "idle") return heat(idle);
  if (mode === "live") return compute > 0 ? heat(compute) : tones[4];
  return [0, 1, 2].map((k) => compute * tones[0][k] + exchange * tones[1][k] + sync * tones[2][k] + idle * tones[3][k]);
}
