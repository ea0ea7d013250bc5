// A graph on a canvas: boxes and curves that can be moved, zoomed and walked through with the arrow keys.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { colour, inkOn } from "../colours.js";
import { layered } from "./layered.js";

const TALL = 40, PADDING = 14, FARTHEST = 0.04, NEAREST = 2, ROOM = 16;
// Sizes of text in pixels; a graph opens so that no label is smaller than the least.
const TITLE = 13, NOTE = 12, LEAST_TEXT = 11, READABLE = LEAST_TEXT / NOTE;

// options: nodes [{title, note, fill, rank, isFolded}], edges [{from, to, width, isMarked}], label, height,
// describe(i), describeEdge(i), onpick(i), onopen(i), onfirst(width, height): once, when the size is known
export class GraphMap {
  constructor(options) {
    this.canvas = h("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "graph" });
    this.element = h("div.chart.graph-map", { style: { height: `${options.height}px` } }, this.canvas);
    this.draw = perFrame(() => this.paint());
    this.view = { x: 0, y: 0, scale: 1 };
    this.update(options);
    onSize(this.element, (width, height) => {
      const isFirst = !this.sized();
      Object.assign(this, { width, height });
      if (isFirst) this.options.onfirst?.(width, height);
      if (!this.isPlaced) this.fit();
      this.paint();
    });
    this.listen();
  }

  // New nodes are laid out again; what was in the middle stays there if it can.
  update(options) {
    this.options = { ...this.options, ...options };
    if (options.nodes) this.arrange();
    this.canvas.setAttribute("aria-label", this.options.label);
    this.draw?.();
  }

  arrange() {
    const { nodes, edges } = this.options;
    Object.assign(this, laidOut(nodes, edges), { isPlaced: false });
    if (this.sized()) this.fit();
  }

  sized() {
    return this.width > 0;
  }

  // All of it, but never so small that its labels cannot be read: then its beginning.
  fit() {
    const { wide, tall } = sizeOf(this.options, this), box = { width: this.width, height: this.height };
    const whole = Math.min((box.width - 2 * ROOM) / wide, (box.height - 2 * ROOM) / tall), scale = Math.max(READABLE, Math.min(1, whole));
    Object.assign(this.element.dataset, { fits: String(whole >= READABLE), text: (NOTE * scale).toFixed(1) });
    const first = this.places.length ? this.places[this.firstNode()] : { x: 0, y: 0 };
    const x = wide * scale <= box.width ? (box.width - wide * scale) / 2 : box.width / 2 - first.x * scale;
    this.view = { scale, x, y: tall * scale <= box.height ? (box.height - tall * scale) / 2 : 20 };
    this.isPlaced = true;
  }

  firstNode() {
    const { nodes } = this.options;
    return nodes.reduce((best, node, i) => (node.rank < nodes[best].rank ? i : best), 0);
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height), { nodes, edges } = this.options;
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, this.width, this.height);
    pen.clip();
    edges.forEach((edge, i) => this.paintEdge(pen, edge, this.paths[i]));
    nodes.forEach((node, i) => this.paintNode(pen, node, i));
    pen.restore();
  }

  at({ x, y }) {
    return [this.view.x + x * this.view.scale, this.view.y + y * this.view.scale];
  }

  // Points of an edge: bottom of one box, its bends, top of the other.
  points(edge, path) {
    const from = this.places[edge.from], to = this.places[edge.to];
    if (path.isBack) return [{ x: from.x + this.options.nodes[edge.from].width / 2, y: from.y + TALL / 2 }, { x: to.x + this.options.nodes[edge.to].width / 2, y: to.y + TALL / 2 }];
    return [{ x: from.x, y: from.y + TALL }, ...path.bends.map(({ x, y }) => ({ x, y: y + TALL / 2 })), { x: to.x, y: to.y }];
  }

  paintEdge(pen, edge, path) {
    const points = this.points(edge, path).map((point) => this.at(point)), [from, to] = [points[0], points.at(-1)];
    if (Math.max(from[1], to[1]) < 0 || Math.min(from[1], to[1]) > this.height) return;
    const isNear = this.options.chosen !== undefined && (edge.from === this.options.chosen || edge.to === this.options.chosen);
    pen.strokeStyle = isNear ? colour("accent") : colour("faint");
    pen.globalAlpha = isNear ? 1 : this.options.chosen === undefined ? 0.55 : 0.22;
    pen.lineWidth = Math.max(0.6, edge.width * Math.max(0.5, this.view.scale)) * (isNear ? 1.4 : 1);
    pen.setLineDash(path.isBack ? [5, 4] : []);
    pen.beginPath();
    curve(points, path.isBack).forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  paintNode(pen, node, i) {
    const [x, y] = this.at(this.places[i]), { scale } = this.view, wide = node.width * scale, tall = TALL * scale, left = x - wide / 2;
    if (left > this.width || left + wide < 0 || y > this.height || y + tall < 0) return;
    pen.fillStyle = node.fill;
    pen.fillRect(left, y, wide, tall);
    pen.strokeStyle = i === this.options.chosen ? colour("ink") : colour("line");
    pen.lineWidth = i === this.options.chosen ? 2.5 : 1;
    pen.strokeRect(left, y, wide, tall);
    if (node.isFolded) pen.strokeRect(left + 2.5, y + 2.5, wide - 5, tall - 5);
    if (scale < 0.3) return;
    pen.fillStyle = inkOn(hexOf(node.fill));
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.font = `600 ${TITLE * scale}px ${colour("font")}`;
    pen.fillText(shortened(node.title, Math.floor((node.width - 2 * PADDING) / 6.6)), x, y + tall * 0.36);
    pen.font = `${NOTE * scale}px ${colour("font")}`;
    pen.fillText(node.note, x, y + tall * 0.72);
  }

  // -- pointer and keys ---------------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return; // the page scrolls
      event.preventDefault();
      this.zoom(2 ** (-event.deltaY / 300), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.grabbed = { x: event.offsetX, y: event.offsetY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => {
      const hit = this.nodeAt(event.offsetX, event.offsetY);
      if (this.grabbed && !this.grabbed.moved && hit >= 0) this.options.onpick(hit);
      this.grabbed = null;
    });
    canvas.addEventListener("dblclick", (event) => {
      const hit = this.nodeAt(event.offsetX, event.offsetY);
      if (hit >= 0) this.options.onopen(hit);
    });
    canvas.addEventListener("pointerleave", () => hint());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  move(event) {
    if (!this.grabbed) {
      const hit = this.nodeAt(event.offsetX, event.offsetY);
      this.canvas.style.cursor = hit < 0 ? "grab" : "pointer";
      hint(event, hit < 0 ? null : this.options.describe(hit));
      return;
    }
    const dx = event.offsetX - this.grabbed.x, dy = event.offsetY - this.grabbed.y;
    if (!this.grabbed.moved && Math.hypot(dx, dy) < 4) return;
    this.view.x += dx;
    this.view.y += dy;
    this.grabbed = { x: event.offsetX, y: event.offsetY, moved: true };
    hint();
    this.draw();
  }

  // Closer, to the chosen node if there is one: it moves to the middle.
  closer() {
    const { chosen } = this.options;
    if (chosen !== undefined) {
      const [x, y] = this.at(this.places[chosen]);
      this.view.x += this.width / 2 - x;
      this.view.y += this.height / 2 - y;
    }
    this.zoom(1.4);
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.max(FARTHEST, Math.min(NEAREST, this.view.scale * factor)), real = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * real, y: y - (y - this.view.y) * real };
    this.draw();
  }

  nodeAt(x, y) {
    return this.options.nodes.findIndex((node, i) => {
      const [at, top] = this.at(this.places[i]);
      return Math.abs(x - at) <= (node.width * this.view.scale) / 2 && y >= top && y <= top + TALL * this.view.scale;
    });
  }

  // Up and down follow edges, left and right go along a layer.
  key(event) {
    const { chosen, edges, nodes } = this.options, actions = {
      "+": () => this.closer(), "=": () => this.closer(), "-": () => this.zoom(1 / 1.4),
      0: () => {
        this.fit();
        this.draw();
      },
      Enter: () => chosen !== undefined && this.options.onopen(chosen),
      ArrowDown: () => this.pick(edges.find((edge) => edge.from === chosen && this.places[edge.to].y > this.places[chosen].y)?.to),
      ArrowUp: () => this.pick(edges.find((edge) => edge.to === chosen && this.places[edge.from].y < this.places[chosen].y)?.from),
      ArrowRight: () => this.pick(this.beside(1)), ArrowLeft: () => this.pick(this.beside(-1)),
    };
    if (!actions[event.key] || !nodes.length) return;
    event.preventDefault();
    event.stopPropagation();
    if (chosen === undefined && event.key.startsWith("Arrow")) this.pick(this.firstNode());
    else actions[event.key]();
  }

  beside(way) {
    const { chosen } = this.options, { x, y } = this.places[chosen];
    const row = this.places.map((place, i) => [place, i]).filter(([place]) => place.y === y && (place.x - x) * way > 0);
    return row.length ? row.reduce((a, b) => (Math.abs(b[0].x - x) < Math.abs(a[0].x - x) ? b : a))[1] : undefined;
  }

  pick(i) {
    if (i !== undefined) this.options.onpick(i);
  }

  // Chooses a node and moves it into sight.
  choose(chosen) {
    this.options.chosen = chosen;
    if (chosen !== undefined && this.sized()) {
      const [x, y] = this.at(this.places[chosen]);
      if (x < 60 || x > this.width - 60 || y < 20 || y > this.height - 60) {
        this.view.x += this.width / 2 - x;
        this.view.y += this.height / 3 - y;
      }
    }
    this.draw();
  }
}

// Places of nodes and paths of edges; nodes get the width of their titles.
function laidOut(nodes, edges) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `600 ${TITLE}px ${colour("font")}`;
  for (const node of nodes) node.width = Math.max(90, Math.min(260, pen.measureText(node.title).width + 2 * PADDING + (node.isFolded ? 16 : 0)));
  return layered(nodes, edges, TALL);
}

// Pixels that a layout takes at full size, lines back around its right side included.
function sizeOf({ nodes, edges }, { places, paths }) {
  const right = (i) => places[i].x + nodes[i].width / 2;
  const around = edges.map(({ from, to }, i) => (paths[i].isBack ? Math.max(right(from), right(to)) + bulge(places[to].y - places[from].y) : 0));
  const bends = paths.flatMap((path) => path.bends.map(({ x }) => x));
  return { wide: Math.max(1, ...nodes.map((_, i) => right(i)), ...around, ...bends.length < 10_000 ? bends : []), tall: Math.max(1, ...places.map(({ y }) => y + TALL)) };
}

// How far a line back goes to the right of the boxes it joins.
function bulge(dy) {
  return 30 + Math.abs(dy) / 12;
}

// Whether a graph can be read as a whole on a canvas of a size.
export function isReadable(nodes, edges, width, height) {
  const { wide, tall } = sizeOf({ nodes, edges }, laidOut(nodes, edges));
  return wide * READABLE <= width - 2 * ROOM && tall * READABLE <= height - 2 * ROOM;
}

// Points along smooth pieces through all points; an edge back goes around the right side.
function curve(points, isBack) {
  const result = [];
  for (let k = 1; k < points.length; k++) {
    const [x0, y0] = points[k - 1], [x1, y1] = points[k], out = isBack ? bulge(y1 - y0) : 0;
    for (let step = k === 1 ? 0 : 1; step <= 12; step++) {
      const t = step / 12, s = t * t * (3 - 2 * t);
      result.push([x0 + (x1 - x0) * s + out * Math.sin(Math.PI * t), y0 + (y1 - y0) * t]);
    }
  }
  return result;
}

function shortened(text, n) {
  return text.length > n ? `…${text.slice(-(n - 1))}` : text;
}

function hexOf(paint) {
  if (paint.startsWith("#")) return paint;
  return `#${paint.match(/\d+/g).slice(0, 3).map((v) => Number(v).toString(16).padStart(2, "0")).join("")}`;
}
