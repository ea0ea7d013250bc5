// Saves charts as pictures, PNG or SVG, with their title and legend: any chart, in any view.

import { h, icon, menu, redrawn } from "../dom.js";
import { colour } from "../colours.js";
import { SAVE_ICON, saveFile } from "../save.js";
import { SvgPen, escaped } from "./svg_pen.js";

const EDGE = 16, TITLE = 26, LEGEND_ROW = 18;
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "text-anchor", "opacity"];

let button, chart;

// A button at the corner of the chart under the pointer; the key "s" does the same for one that has the focus.
export function offerPictures() {
  button = h("button.save-picture", { type: "button", title: "Save picture (s)", "aria-label": "Save picture", hidden: true, onclick: () => choose(chart, button) }, icon(SAVE_ICON));
  document.body.append(button);
  document.addEventListener("pointerover", (event) => {
    if (button.contains(event.target)) return;
    chart = event.target.closest?.(".chart") ?? null;
    button.hidden = !chart;
    if (chart) place(chart.getBoundingClientRect());
  });
  document.addEventListener("scroll", () => { button.hidden = true; }, true);
}

function place(box) {
  button.style.left = `${box.right - 34}px`;
  button.style.top = `${Math.max(box.top, 0) + 4}px`;
}

export function pictureOfFocus() {
  const focused = document.activeElement?.closest?.(".chart");
  if (focused) choose(focused, focused);
  return Boolean(focused);
}

function choose(of, anchor) {
  if (!of) return;
  const name = titleOf(of).toLowerCase().replace(/\W+/g, "-").replace(/^-|-$/g, "") || "chart";
  menu(anchor, (close) => [["PNG", savePng], ["SVG", saveSvg]].map(([kind, save]) => h("button.item", {
    type: "button",
    onclick: () => {
      close();
      save(of, name);
    },
  }, `Save as ${kind}`)));
}

async function saveSvg(of, name) {
  saveFile(`${name}.svg`, new Blob([svgOf(of).text], { type: "image/svg+xml" }));
}

async function savePng(of, name) {
  const { text, width, height } = svgOf(of), scale = 2;
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: width * scale, height: height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  canvas.toBlob((blob) => saveFile(`${name}.png`, blob));
}

function titleOf(of) {
  return of.closest(".card")?.querySelector("h2")?.textContent ?? "";
}

// The chart, its title above and its legend below.
export function svgOf(of) {
  const { clientWidth: wide, clientHeight: tall } = of, legend = legendOf(of), width = wide + 2 * EDGE;
  const height = EDGE + TITLE + tall + legend.length * LEGEND_ROW + EDGE + (legend.length ? 10 : 0);
  const font = escaped(colour("font"));
  const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">
<rect width="100%" height="100%" fill="${colour("surface")}"/>
<text x="${EDGE}" y="${EDGE + 12}" fill="${colour("ink")}" style="font: 600 14px ${font}">${escaped(titleOf(of))}</text>
<g transform="translate(${EDGE} ${EDGE + TITLE})">${contentOf(of)}</g>
${legend.map((row, i) => row.map(([x, tone, name]) => `<rect x="${EDGE + x}" y="${EDGE + TITLE + tall + 10 + i * LEGEND_ROW}" width="9" height="9" rx="2" fill="${tone}"/><text x="${EDGE + x + 15}" y="${EDGE + TITLE + tall + 18 + i * LEGEND_ROW}" fill="${colour("muted")}" style="font: 12px ${font}">${escaped(name)}</text>`).join("")).join("\n")}
</svg>`;
  return { text, width, height };
}

// Canvases are drawn again with a pen that writes SVG; what other pens drew becomes an image.
function contentOf(of) {
  const canvases = [...of.querySelectorAll("canvas")], pens = redrawn(of, canvases, () => new SvgPen());
  const drawings = canvases.map((canvas, i) => {
    const { offsetLeft: x, offsetTop: y, clientWidth: width, clientHeight: height } = canvas;
    const inside = pens[i].lines.length ? pens[i].text() : `<image width="${width}" height="${height}" preserveAspectRatio="none" style="image-rendering: pixelated" href="${canvas.toDataURL()}"/>`;
    return `<g transform="translate(${x} ${y})">${inside}</g>`;
  });
  return [...drawings, ...[...of.querySelectorAll("svg:not(.icon)")].map(styled)].join("\n");
}

// A drawing that has its looks from the style sheet, with them written into it.
function styled(drawing) {
  const copy = drawing.cloneNode(true), from = drawing.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const look = getComputedStyle(from[i]);
    element.setAttribute("style", `${STYLES.map((name) => `${name}: ${look.getPropertyValue(name)}`).join("; ")}; font-family: ${colour("font")}`);
  });
  return new XMLSerializer().serializeToString(copy);
}

// Rows of [x, colour, name].
function legendOf(of) {
  const rows = [[]];
  let x = 0;
  for (const item of of.closest(".card")?.querySelectorAll(".legend li") ?? []) {
    const { backgroundColor, background } = item.querySelector("i")?.style ?? {}, tone = backgroundColor || background, name = item.textContent.trim();
    if (!tone || !name) continue;
    const wide = 30 + name.length * 7;
    if (x && x + wide > of.clientWidth) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push([x, tone, name]);
    x += wide;
  }
  return rows.filter((row) => row.length);
}
