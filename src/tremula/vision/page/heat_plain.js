// Draws heat blocks on a plain canvas: an image per block, stretched column by column.

import { sharpen } from "./dom.js";
import { colour, heat, rgb } from "./colours.js";
import { lanesOf } from "./heat_gl.js";

const FULL = 63;
// A single entry is drawn with its phases one after the other, in so many strips.
const STRIPS = 16;

export class PlainPainter {
  constructor(canvas) {
    this.canvas = canvas;
  }

  paint(blocks, view) {
    const pen = sharpen(this.canvas, view.width, view.height);
    this.canvas.style.left = `${view.left}px`;
    pen.imageSmoothingEnabled = false;
    pen.fillStyle = colour("sunken");
    pen.fillRect(0, 0, view.width, view.height);
    for (const block of blocks) this.paintBlock(pen, block, view);
  }

  paintBlock(pen, block, view) {
    const key = `${view.mode} ${colour("idle")}`;
    const strips = block.level === 0 && view.mode === "phases" ? STRIPS : 1;
    if (block.imageKey !== key) Object.assign(block, { imageKey: key, image: picture(block, view.mode, strips) });
    const x = (value) => ((value - view.from) / (view.to - view.from)) * view.width;
    const y = (tile) => ((tile - view.top) / (view.bottom - view.top)) * view.height;
    for (const lane of lanesOf(block)) {
      const top = y(lane.firstTile), tall = y(lane.firstTile + lane.nRows * lane.tilesPerRow) - top;
      for (let column = 0; column < block.nColumns; column++) {
        const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip);
        const left = x(block.begin[i]), right = x(block.end[i]);
        if (right < 0 || left > view.width) continue;
        pen.drawImage(block.image, column * strips, lane.row, strips, lane.nRows, left, top, Math.max(1, right - left), tall);
      }
    }
  }

  drop(block) {
    block.image = block.imageKey = null;
  }
}

function picture(block, mode, strips) {
  const { nColumns, nRows, columns } = block, wide = nColumns * strips;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: wide, height: nRows });
  const pen = canvas.getContext("2d"), image = pen.createImageData(wide, nRows);
  const pixels = new Uint32Array(image.data.buffer);
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
  pen.putImageData(image, 0, 0);
  return canvas;
}

function pixel([r, g, b]) {
  return (0xff000000 | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
}

// Which phase a tile is in at a share of a step: sync, then exchange, then compute, else idle.
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
