// Colours for canvases: the style sheet's where they follow the theme, and scales for values.

let known = {};

export function colour(name) {
  known[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return known[name];
}

export function forgetColours() {
  known = {};
}

// Colours of neighbouring series, in an order that colour-blind readers can tell apart too.
export const SERIES = [
  "#3b82f6", "#f5a524", "#12a594", "#e5604d", "#8e7cf0", "#84a32b", "#d6409f", "#0ea5b7", "#a16a3c",
  "#6b7b93", "#b4530a", "#5b8def", "#3f7d58",
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

// Less to more: blue, nothing, red; for differences.
export function difference(share) {
  const t = Math.max(-1, Math.min(1, share)), base = rgb(colour("cell-empty"));
  const end = t < 0 ? [59, 130, 246] : [229, 72, 77];
  return base.map((from, k) => Math.round(from + Math.abs(t) * (end[k] - from)));
}

export function rgb(text) {
  const hex = text.replace("#", "");
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

export function css([r, g, b]) {
  return `rgb(${r}, ${g}, ${b})`;
}
