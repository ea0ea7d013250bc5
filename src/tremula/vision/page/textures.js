// Textures for phases and series, for eyes or printers that cannot tell colours apart; off at first.

import { remember, remembered } from "./dom.js";
import { colour, inkOn } from "./colours.js";

const KEY = "tremula-textures", SIZE = 8;
export const TEXTURE_ICON = "M4 4h16v16H4zM4 12l8-8M4 20 20 4M12 20l8-8";
// Phases that are next to each other differ in kind; style.css draws the same ones in legends.
const KIND_OF_TONE = { compute: "plain", exchange: "rising", links: "dots", host: "falling", sync: "lines", idle: "plain" };
const KINDS = ["plain", "rising", "dots", "falling", "lines", "grid"];
const tiles = new Map();
let isOn = false;

export function startTextures() {
  isOn = remembered(KEY) ?? window.matchMedia("(prefers-contrast: more)").matches;
  document.documentElement.toggleAttribute("data-textures", isOn);
}

export function switchTextures() {
  isOn = !isOn;
  document.documentElement.toggleAttribute("data-textures", isOn);
  remember(KEY, isOn);
}

// What to fill a phase with: its colour, or that with its texture.
export function toneFill(pen, tone) {
  return filled(pen, colour(tone), KIND_OF_TONE[tone]);
}

// The same for the n-th of several series.
export function seriesFill(pen, tint, n) {
  return filled(pen, tint, KINDS[n % KINDS.length]);
}

// A pen that writes SVG has plain colours only.
function filled(pen, tint, kind = "plain") {
  if (!isOn || kind === "plain" || !(pen instanceof CanvasRenderingContext2D)) return tint;
  const key = `${tint} ${kind}`;
  if (!tiles.has(key)) tiles.set(key, tile(tint, kind));
  return pen.createPattern(tiles.get(key), "repeat");
}

function tile(tint, kind) {
  const canvas = Object.assign(document.createElement("canvas"), { width: SIZE, height: SIZE }), pen = canvas.getContext("2d");
  pen.fillStyle = tint;
  pen.fillRect(0, 0, SIZE, SIZE);
  pen.strokeStyle = pen.fillStyle = inkOn(tint);
  pen.globalAlpha = 0.55;
  pen.lineWidth = 1.2;
  MARKS[kind](pen);
  return canvas;
}

function line(pen, ...ends) {
  pen.beginPath();
  for (const [x0, y0, x1, y1] of ends) {
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
  }
  pen.stroke();
}

const MARKS = {
  rising: (pen) => line(pen, [-2, 2, 2, -2], [0, SIZE, SIZE, 0], [SIZE - 2, SIZE + 2, SIZE + 2, SIZE - 2]),
  falling: (pen) => line(pen, [-2, SIZE - 2, 2, SIZE + 2], [0, 0, SIZE, SIZE], [SIZE - 2, -2, SIZE + 2, 2]),
  lines: (pen) => line(pen, [0, 2, SIZE, 2], [0, 6, SIZE, 6]),
  grid: (pen) => line(pen, [0, 4, SIZE, 4], [4, 0, 4, SIZE]),
  dots: (pen) => [[2, 2], [6, 6]].forEach(([x, y]) => pen.fillRect(x - 1, y - 1, 2, 2)),
};
