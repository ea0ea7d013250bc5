// Draws heat blocks on a plain canvas, pixel by pixel: for machines without a GPU.

import { PHASES, SHADES, colour, difference, heat, rgb, shades } from "../colours.js";
import { LEAST, chipShares, groundOf, lanesOf } from "./heat_gl.js";

const FULL = 63, MIDDLE = 31;
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
    this.pixels.fill(pixel(groundOf(view.mode)));
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
  const { nColumns, nRows, columns } = block, wide = nColumns * strips, paint = paints(mode);
  const pixels = new Uint32Array(wide * nRows), share = [0, 0, 0, 0, 0];
  for (const lane of lanesOf(block)) {
    for (let column = 0; column < nColumns; column++) {
      const chip = chipShares(block, column, lane.chip);
      share.splice(2, 3, chip.links, chip.host, chip.sync);
      for (let row = lane.row; row < lane.row + lane.nRows; row++) {
        share[0] = columns.compute[column * nRows + row] / FULL;
        share[1] = (columns.exchange?.[column * nRows + row] ?? 0) / FULL;
        const at = row * wide + column * strips;
        if (strips === 1) pixels[at] = paint.pooled(share);
        else for (let k = 0; k < strips; k++) pixels[at + k] = paint.full[phaseAt((k + 0.5) / strips, share, chip.exchange)];
      }
    }
  }
  return pixels;
}

// Pixels of each phase at its fullest, and of a cell that holds several.
function paints(mode) {
  const full = PHASES.map((phase) => pixel(rgb(colour(phase.tone)))), empty = pixel(rgb(colour("cell-empty")));
  const ramp = Array.from({ length: FULL + 1 }, (_, i) => pixel(heat(i / FULL)));
  const at = (share) => ramp[Math.max(0, Math.min(FULL, Math.round(share * FULL)))];
  if (mode.startsWith("difference")) return { full, pooled: differencePaint(mode.split(" ")[1]) };
  if (mode === "compute") return { full, pooled: (share) => at(share[0]) };
  if (mode === "exchange") return { full, pooled: (share) => at(share[1]) };
  if (mode === "idle") return { full, pooled: (share) => at(1 - share.reduce((sum, v) => sum + v, 0)) };
  if (mode === "live") return { full, pooled: (share) => (share[0] > 0 ? at(share[0]) : empty) };
  const table = PHASES.slice(0, -1).map((phase) => shades(phase.tone).map(pixel));
  return { full, pooled: (share) => mostOf(share, table, full.at(-1)) };
}

// Cells of differences count from the middle: compute, exchange, or both together.
function differencePaint(phase) {
  const ramp = Array.from({ length: 2 * MIDDLE + 1 }, (_, i) => pixel(difference((i - MIDDLE) / MIDDLE)));
  const at = (i) => ramp[Math.max(0, Math.min(2 * MIDDLE, Math.round(i)))];
  if (phase === "exchange") return (share) => at(share[1] * FULL);
  return phase === "phases" ? (share) => at((share[0] + share[1]) * FULL - MIDDLE) : (share) => at(share[0] * FULL);
}

// The phase that takes most of a cell, in the shade of its share.
function mostOf(share, table, waiting) {
  let most = 0;
  for (let i = 1; i < share.length; i++) if (share[i] > share[most]) most = i;
  return share[most] < LEAST ? waiting : table[most][Math.min(SHADES - 1, Math.floor(share[most] * SHADES))];
}

function pixel([r, g, b]) {
  return (0xff000000 | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
}

// The phase of a tile at a fraction of a step: sync, transfers, exchange, compute, else waiting.
function phaseAt(at, [compute, exchange, links, host, sync], chipExchange) {
  let left = at;
  for (const [phase, share] of [[4, sync], [2, links], [3, host]]) {
    if (left < share) return phase;
    left -= share;
  }
  if (left < chipExchange) return left < exchange ? 1 : 5;
  return left - chipExchange < compute ? 0 : 5;
}
