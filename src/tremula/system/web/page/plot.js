// A line over the last minutes, with its last value.

import { drawn, h } from "./dom.js";

const WIDTH = 300, HEIGHT = 70, MINUTES = 5;

export function plot(title, unit, points) {
  const values = points.map(([, value]) => value), now = points.at(-1)[0];
  const low = Math.min(0, ...values), high = Math.max(1e-9, ...values) * 1.1;
  const x = (at) => WIDTH * (1 - (now - at) / (MINUTES * 60_000)), y = (value) => HEIGHT - (HEIGHT * (value - low)) / (high - low);
  const line = points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const last = values.at(-1);
  return h("figure.plot", {}, h("figcaption", {}, title, " ", h("b", {}, `${last < 10 ? last.toFixed(1) : last.toFixed(0)} ${unit}`)),
    drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${last.toFixed(1)} ${unit}` },
      drawn("path", { class: "area", d: `${line}L${x(now)} ${HEIGHT}L${x(points[0][0]).toFixed(1)} ${HEIGHT}Z` }), drawn("path", { class: "line", d: line })));
}
