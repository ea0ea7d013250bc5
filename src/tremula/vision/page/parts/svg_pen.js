// A pen with the canvas's methods that the page's charts use, which writes SVG instead of pixels.

const ANCHORS = { left: "start", start: "start", right: "end", end: "end", center: "middle" };
const BASELINES = { top: "hanging", middle: "central", bottom: "text-after-edge", alphabetic: "alphabetic" };
const SAVED_FIELDS = ["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "textBaseline", "dash"];

let nClips = 0;

export class SvgPen {
  constructor() {
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic", dash: [] });
    this.lines = [];
    this.stack = [];
    this.nGroups = 0;
    this.path = "";
  }

  // What a new drawing begins with; the page calls it on every canvas.
  setTransform() {}

  clearRect() {
    this.lines = [];
  }

  save() {
    this.stack.push([Object.fromEntries(SAVED_FIELDS.map((key) => [key, this[key]])), this.nGroups]);
  }

  restore() {
    const [saved, nGroups] = this.stack.pop() ?? [{}, 0];
    Object.assign(this, saved);
    for (; this.nGroups > nGroups; this.nGroups--) this.lines.push("</g>");
  }

  clip() {
    const id = `clip${nClips++}`;
    this.lines.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath><g clip-path="url(#${id})">`);
    this.nGroups += 1;
  }

  beginPath() {
    this.path = "";
  }

  closePath() {
    this.path += "Z";
  }

  moveTo(x, y) {
    this.path += `M${n(x)} ${n(y)}`;
  }

  lineTo(x, y) {
    this.path += `${this.path ? "L" : "M"}${n(x)} ${n(y)}`;
  }

  rect(x, y, width, height) {
    this.path += `M${n(x)} ${n(y)}h${n(width)}v${n(height)}h${n(-width)}Z`;
  }

  // Whole circles, which is all that charts draw.
  arc(x, y, r) {
    this.path += `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0Z`;
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  fill() {
    this.lines.push(`<path d="${this.path}" fill="${this.fillStyle}"${this.alpha()}/>`);
  }

  stroke() {
    this.lines.push(`<path d="${this.path}" fill="none"${this.line()}/>`);
  }

  fillRect(x, y, width, height) {
    this.lines.push(`<rect ${box(x, y, width, height)} fill="${this.fillStyle}"${this.alpha()}/>`);
  }

  strokeRect(x, y, width, height) {
    this.lines.push(`<rect ${box(x, y, width, height)} fill="none"${this.line()}/>`);
  }

  fillText(text, x, y) {
    this.lines.push(`<text x="${n(x)}" y="${n(y)}" fill="${this.fillStyle}" style="font: ${escaped(this.font)}" text-anchor="${ANCHORS[this.textAlign]}" dominant-baseline="${BASELINES[this.textBaseline]}"${this.alpha()}>${escaped(text)}</text>`);
  }

  measureText(text) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = this.font;
    return pen.measureText(text);
  }

  // (image, x, y, width, height), or with the part of the image before them.
  drawImage(image, ...args) {
    const [x, y, width, height] = args.slice(-4), [sx, sy, sw, sh] = args.length > 4 ? args : [0, 0, image.width, image.height];
    const part = Object.assign(document.createElement("canvas"), { width: Math.max(1, sw), height: Math.max(1, sh) });
    part.getContext("2d").drawImage(image, sx, sy, sw, sh, 0, 0, sw, sh);
    this.lines.push(`<image ${box(x, y, width, height)} preserveAspectRatio="none" style="image-rendering: pixelated" href="${part.toDataURL()}"/>`);
  }

  alpha() {
    return this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
  }

  line() {
    return ` stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : ""}${this.alpha()}`;
  }

  // Everything drawn so far.
  text() {
    return this.lines.join("\n") + "</g>".repeat(this.nGroups);
  }
}

function n(value) {
  return Number(value.toFixed(2));
}

function box(x, y, width, height) {
  return `x="${n(width < 0 ? x + width : x)}" y="${n(height < 0 ? y + height : y)}" width="${n(Math.abs(width))}" height="${n(Math.abs(height))}"`;
}

export function escaped(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
