// One application as a card: picture or curve, what it is, what it reached and costs, its command.

import { drawn, h } from "../dom.js";
import { bytes, short, whole } from "../format.js";

const WIDTH = 300, HEIGHT = 64;

export function cardOf(one, techniques, onTechnique) {
  const curves = Object.entries(one.curves).filter(([, values]) => values.length > 1);
  return h("li.card.app", { "data-name": one.name },
    one.picture ? h("img.shot", { src: `data:image/png;base64,${one.picture}`, alt: "", loading: "lazy" }) : h("div.shot.none", { "aria-hidden": "true" }),
    h("h2", {}, h("a", { href: `#${new URLSearchParams({ q: one.name })}` }, one.title)),
    h("p.kind", {}, `${one.domain} · ${one.framework}`),
    h("p.note", {}, one.summary),
    h("p.tags", {}, one.techniques.map((technique) => h("button.chip", {
      type: "button", title: techniques[technique], onclick: () => onTechnique(technique),
    }, technique))),
    curves.slice(0, 1).map(([name, values]) => curveOf(name, values)),
    factsOf(one),
    one.published.map(({ claim, source }) => h("p.claim", {}, h("b", {}, "published: "), claim, h("small", {}, ` (${source})`))),
    commandOf(one));
}

function factsOf(one) {
  const rows = Object.entries(one.results).map(([name, value]) => [name.replaceAll("_", " "), number(value)]);
  const { modelled } = one;
  if (modelled) {
    rows.push([`on ${modelled.machine}`, `${whole(modelled.cycles)} cycles`]);
    rows.push(["modelled", `${short(modelled.rate)} ${modelled.unit}`]);
    rows.push(["fullest tile", bytes(modelled.bytes)]);
  }
  if (!rows.length) return h("p.empty", {}, "No figures yet: `tremula garden figures` makes them.");
  return h("dl.facts", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function number(value) {
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function curveOf(name, values) {
  const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  const points = values.map((value, i) => `${(i / (values.length - 1)) * WIDTH},${4 + (HEIGHT - 8) * (1 - (value - low) / span)}`);
  const words = `${name.replaceAll("_", " ")}: from ${number(values[0])} to ${number(values.at(-1))}`;
  return h("figure.curve-of", {},
    drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
      drawn("polyline", { points: points.join(" ") })),
    h("figcaption", {}, words));
}

function commandOf(one) {
  const button = h("button.plain", { type: "button", title: "Copy", onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(one.command);
      button.textContent = "Copied";
    } catch {
      // A page from a file may not write to the clipboard: the text is selected instead.
      getSelection().selectAllChildren(code);
    }
  }
  const code = h("code", {}, one.command.split(" ").map((word, i) => [i > 0 && " ", h("span", {}, word)]));
  return h("footer.command", {}, code, h("small", {}, `at most ${whole(one.tiny_seconds)} s of CPU`), button);
}
