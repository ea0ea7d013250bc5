// Draws heat blocks on a plain canvas: an image per block, stretched column by column.

import { sharpen } from "./dom.js";
import { colour, heat, rgb } from "./colours.js";
import { lanesOf } from "./heat_gl.js";

const FULL = 63;

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
    if (block.imageKey !== key) Object.assign(block, { imageKey: key, image: picture(block, view.mode) });
    const x = (value) => ((value - view.from) / (view.to - view.from)) * view.width;
    const y = (tile) => ((tile - view.top) / (view.bottom - view.top)) * view.height;
    for (const lane of lanesOf(block)) {
      const top = y(lane.firstTile), tall = y(lane.firstTile + lane.nRows * lane.tilesPerRow) - top;
      for (let column = 0; column < block.nColumns; column++) {
        const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip);
        const left = x(block.begin[i]), right = x(block.end[i]);
        if (right < 0 || left > view.width) continue;
        pen.drawImage(block.image, column, lane.row, 1, lane.nRows, left, top, Math.max(1, right - left), tall);
      }
    }
  }

  drop(block) {
    block.image = block.imageKey = null;
  }
}

function picture(block, mode) {
  const { nColumns, nRows, columns } = block;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: nColumns, height: nRows });
  const pen = canvas.getContext("2d"), image = pen.createImageData(nColumns, nRows);
  const tones = ["compute", "exchange", "sync", "idle", "cell-empty"].map((name) => rgb(colour(name)));
  const lanes = lanesOf(block);
  for (let column = 0; column < nColumns; column++) {
    for (const lane of lanes) {
      const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip);
      const sync = columns.chip_sync ? columns.chip_sync[i] / Math.max(1, columns.total[i]) : 0;
      for (let row = lane.row; row < lane.row + lane.nRows; row++) {
        const cell = column * nRows + row;
        const tone = shade(mode, columns.compute[cell] / FULL, (columns.exchange?.[cell] ?? 0) / FULL, sync, tones);
        image.data.set([...tone, 255], 4 * (row * nColumns + column));
      }
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

function shade(mode, compute, exchange, sync, tones) {
  const idle = Math.max(0, 1 - compute - exchange - sync);
  if (mode === "compute") return heat(compute);
  if (mode === "exchange") return heat(exchange);
  if (mode === "idle") return heat(idle);
  if (mode === "live") return compute > 0 ? heat(compute) : tones[4];
  return [0, 1, 2].map((k) => compute * tones[0][k] + exchange * tones[1][k] + sync * tones[2][k] + idle * tones[3][k]);
}
