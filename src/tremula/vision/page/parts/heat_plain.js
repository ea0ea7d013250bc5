// Draws heat blocks on a plain canvas, pixel by pixel: for machines without a GPU.

import { PHASES, SHADES, colour, difference, heat, rgb, shades } from "../colours.js";
import { LEAST, NARROW, chipShares, groundOf, lanesOf } from "./heat_gl.js";

const FULL = 63, MIDDLE = 31;

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
    this.full = PHASES.map((phase) => pixel(rgb(colour(phase.tone))));
    for (const block of blocks) this.paintBlock(block, view, width, height);
    pen.putImageData(this.image, 0, 0);
  }

  // Every pixel looks up its source: a column for each x, a row for each y.
  paintBlock(block, view, width, height) {
    const key = `${view.mode} ${colour("idle")}`;
    if (block.key !== key) Object.assign(block, { key, source: picture(block, view.mode) });
    const perTile = height / (view.bottom - view.top), isExact = block.level === 0 && view.mode === "phases";
    for (const lane of lanesOf(block)) {
      const places = columnsOf(block, lane, view, width);
      if (places.last <= places.first) continue;
      const top = (lane.firstTile - view.top) * perTile, perRow = lane.tilesPerRow * perTile;
      const bottom = Math.min(height, Math.round(top + lane.nRows * perRow));
      for (let y = Math.max(0, Math.round(top)); y < bottom; y++) {
        const row = lane.row + Math.min(lane.nRows - 1, Math.max(0, Math.floor((y + 0.5 - top) / perRow)));
        if (isExact) this.paintExact(block, places, row, y * width);
        else this.paintRow(block, places, row, y * width);
      }
    }
  }

  paintRow(block, { first, last, columnAt }, row, to) {
    const from = row * block.nColumns;
    for (let x = first; x < last; x++) {
      if (columnAt[x] >= 0) this.pixels[to + x] = block.source[from + columnAt[x]];
    }
  }

  // A single entry, if it is wide enough, is drawn with its phases one after the other.
  paintExact(block, { first, last, columnAt, shareAt, chipOf }, row, to) {
    const { nColumns, nRows, columns } = block, { full } = this;
    for (let x = first; x < last; x++) {
      const column = columnAt[x];
      if (column < 0) continue;
      const cell = column * nRows + row;
      this.pixels[to + x] = shareAt[x] < 0 ? block.source[row * nColumns + column]
        : full[phaseAt(shareAt[x], columns.compute[cell] / FULL, columns.exchange[cell] / FULL, chipOf[column])];
    }
  }

  drop(block) {
    block.source = block.key = null;
  }
}

// Of every x: its column or -1, and where in the column it is, or -1 in one too narrow for that;
// of every column, what the chip does. A column is never narrower than a pixel.
function columnsOf(block, lane, view, width) {
  const columnAt = new Int32Array(width).fill(-1), shareAt = new Float32Array(width), scale = width / (view.to - view.from);
  const chipOf = Array.from({ length: block.nColumns });
  let first = width, last = 0;
  for (let column = 0; column < block.nColumns; column++) {
    const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip);
    const left = (block.begin[i] - view.from) * scale, right = Math.max(left + 1, (block.end[i] - view.from) * scale);
    const from = Math.max(0, Math.round(left)), to = Math.min(width, Math.round(right));
    if (to <= from) continue;
    columnAt.fill(column, from, to);
    for (let x = from; x < to; x++) shareAt[x] = right - left > NARROW ? (x + 0.5 - left) / (right - left) : -1;
    chipOf[column] = chipShares(block, column, lane.chip);
    [first, last] = [Math.min(first, from), Math.max(last, to)];
  }
  return { first, last, columnAt, shareAt, chipOf };
}

// The pixels of a block, rows of columns.
function picture(block, mode) {
  const { nColumns, nRows, columns } = block, pooled = paintOf(mode);
  const pixels = new Uint32Array(nColumns * nRows), share = [0, 0, 0, 0, 0];
  for (const lane of lanesOf(block)) {
    for (let column = 0; column < nColumns; column++) {
      const chip = chipShares(block, column, lane.chip);
      [share[2], share[3], share[4]] = [chip.links, chip.host, chip.sync];
      for (let row = lane.row; row < lane.row + lane.nRows; row++) {
        share[0] = columns.compute[column * nRows + row] / FULL;
        share[1] = (columns.exchange?.[column * nRows + row] ?? 0) / FULL;
        pixels[row * nColumns + column] = pooled(share);
      }
    }
  }
  return pixels;
}

// The pixel of a cell with shares of each phase.
function paintOf(mode) {
  const waiting = pixel(rgb(colour("idle"))), empty = pixel(rgb(colour("cell-empty")));
  const ramp = Array.from({ length: FULL + 1 }, (_, i) => pixel(heat(i / FULL)));
  const at = (share) => ramp[Math.max(0, Math.min(FULL, Math.round(share * FULL)))];
  if (mode.startsWith("difference")) return differencePaint(mode.split(" ")[1]);
  if (mode === "compute") return (share) => at(share[0]);
  if (mode === "exchange") return (share) => at(share[1]);
  if (mode === "idle") return (share) => at(1 - share.reduce((sum, v) => sum + v, 0));
  if (mode === "live") return (share) => (share[0] > 0 ? at(share[0]) : empty);
  const table = PHASES.slice(0, -1).map((phase) => shades(phase.tone).map(pixel));
  return (share) => mostOf(share, table, waiting);
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

// The phase of a tile at a fraction of a step: waiting for other chips, sync, transfers, exchange,
// compute, and waiting for slower tiles.
function phaseAt(at, compute, exchange, chip) {
  let left = at - chip.waiting;
  if (left < 0) return 5;
  if (left < chip.sync) return 4;
  left -= chip.sync;
  if (left < chip.links) return 2;
  left -= chip.links;
  if (left < chip.host) return 3;
  left -= chip.host;
  if (left < chip.exchange) return left < exchange ? 1 : 5;
  return left - chip.exchange < compute ? 0 : 5;
}
