// Colours for canvases: the style sheet's where they follow the theme, and scales for values.

import { whole } from "./format.js";

let known = {};

export function colour(name) {
  known[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return known[name];
}

export function forgetColours() {
  known = {};
}

// What a chip's time goes into, in the order in which bars stack them; `tone` names the colour.
export const PHASES = [
  { key: "compute", name: "compute", tone: "compute", about: "the slowest tile of each step computes" },
  { key: "exchange", name: "exchange", tone: "exchange", about: "data between tiles of a chip" },
  { key: "links", name: "between chips", tone: "links", about: "data between chips" },
  { key: "host", name: "host", tone: "host", about: "data from and to the host" },
  { key: "sync", name: "sync", tone: "sync", about: "tiles meet before a step" },
  { key: "waiting", name: "waiting", tone: "idle", about: "for other chips, or without work" },
];

// Those that a machine can have: a single chip has nothing between chips.
export function phasesOn(nIpus) {
  return PHASES.filter(({ key }) => key !== "links" || nIpus > 1);
}

// Phases that take cycles, in words: "compute 120, sync 30".
export function phasesText(cyclesOf) {
  const result = PHASES.slice(0, -1).map(({ key, name }) => [name, cyclesOf(key)]).filter(([, cycles]) => cycles > 0);
  return result.map(([name, cycles]) => `${name} ${whole(cycles)}`).join(", ") || "no phase";
}

// Colours of series, in steps of lightness, so that colour-blind readers and grey prints tell them
// apart, too; neighbours differ most. tests/vision/page/test_colour_vision.py says how much.
export const SERIES = [
  "#36a3eb", "#e24e6a", "#e9cf60", "#597426", "#c7acd1", "#7a527b", "#6dcdfe", "#345d40", "#98b16e",
  "#508256", "#7ef59f", "#464d02", "#699e1b",
];

// From nothing to full: dark blue, teal, yellow. Even steps of lightness, like viridis.
const STOPS = [
  [13, 27, 62], [27, 66, 115], [24, 110, 133], [37, 151, 127], [111, 187, 92], [203, 210, 64],
  [255, 231, 112],
];

export function heat(share) {
  const at = Math.max(0, Math.min(1, share)) * (STOPS.length - 1);
  const i = Math.min(STOPS.length - 2, Math.floor(at)), f = at - i;
  return STOPS[i].map((from, k) => Math.round(from + f * (STOPS[i + 1][k] - from)));
}

// A place without a value.
export function empty() {
  return rgb(colour("cell-empty"));
}

// Less, equal, more: dark blue, grey, light orange, for differences. Lightness grows all the way, so
// that less and more differ in a grey print, too.
const LESS = [16, 48, 140], EQUAL = [124, 130, 140], MORE = [255, 190, 92];

export function difference(share) {
  const t = Math.max(-1, Math.min(1, share)), end = t < 0 ? LESS : MORE;
  return EQUAL.map((from, k) => Math.round(from + Math.abs(t) * (end[k] - from)));
}

// The share of a phase as one of a few shades of its colour, so that a legend can show them all.
export const SHADES = 4;
export function shades(tone) {
  const from = rgb(colour("idle")), to = rgb(colour(tone));
  return Array.from({ length: SHADES }, (_, i) => {
    const share = 0.28 + (0.72 * i) / (SHADES - 1);
    return from.map((v, k) => Math.round(v + share * (to[k] - v)));
  });
}

// Black or white, whichever is easier to read on a colour.
export function inkOn(text) {
  const [r, g, b] = rgb(text).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

export function rgb(text) {
  const hex = text.replace("#", "");
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

export function css([r, g, b]) {
  return `rgb(${r}, ${g}, ${b})`;
}
