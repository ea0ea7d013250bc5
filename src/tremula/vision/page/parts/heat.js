// Tiles × time as a heat map. It fetches only pre-aggregated blocks, a few per screen, and draws
// them with WebGL2, or on a plain canvas where there is none.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { PHASES, colour, css, heat, phasesOn, rgb, shades } from "../colours.js";
import { Range, steer } from "./range.js";
import { GlPainter, chipShares } from "./heat_gl.js";
import { PlainPainter } from "./heat_plain.js";
import { ticks, whole } from "../format.js";

export const COLUMNS = 128, ROWS = 512, FULL = 63;
const MOST_COLUMNS = 512;
const MOST_BLOCKS = 160;
const LEFT = 64;

// options: kind, shape {n_entries, n_levels, rows}, nIpus, perIpu, range, load(name), entriesOf(from, to) → [a, b],
// boundsOf(block) for axes other than time, describe(cell, tile), onpick(cell, tile), height, mode
export class HeatMap {
  constructor(options) {
    this.options = options;
    this.nTiles = options.nIpus * options.perIpu;
    this.rows = new Range(0, this.nTiles, Math.min(8, this.nTiles));
    this.blocks = new Map();
    this.mode = options.mode ?? "phases";
    this.canvas = h("canvas");
    this.overlay = h("canvas", { tabIndex: 0, role: "img", "aria-label": options.label });
    this.status = h("span.status");
    this.element = h("div.chart.heat", { style: { height: `${options.height ?? 420}px` } }, this.canvas, this.overlay);
    this.painter = this.makePainter();
    this.draw = perFrame(() => this.paint());
    onSize(this.element, (width, height) => {
      Object.assign(this, { width, height });
      this.fetch();
      this.paint();
    });
    options.range.listen(() => this.moved());
    this.rows.listen(() => this.moved());
    this.steer();
  }

  makePainter() {
    // Without a GPU, WebGL is emulated and slower than a plain canvas.
    const wanted = new URLSearchParams(location.search).get("painter");
    const isPlain = wanted === "canvas" || this.mode.startsWith("difference");
    const painter = isPlain ? null : GlPainter.make(this.canvas, wanted !== "webgl2");
    this.element.dataset.painter = painter ? "webgl2" : "canvas";
    return painter ?? new PlainPainter(this.canvas);
  }

  moved() {
    this.fetch();
    this.draw();
  }

  setMode(mode) {
    this.mode = mode;
    this.draw();
  }

  // -- blocks -------------------------------------------------------------------------------------

  // The levels that suit the zoom: about 2 pixels per column, about 1 per row.
  levels() {
    const { shape, range } = this.options;
    const [first, last] = this.options.entriesOf(range.from, range.to);
    const most = Math.min(MOST_COLUMNS, Math.max(64, this.width / 2));
    const level = Math.ceil(Math.log2(Math.max(1, (last - first) / most)));
    const perPixel = this.rows.span / Math.max(1, this.height);
    const tileLevel = Math.round(Math.log(Math.max(1, perPixel * 1.3)) / Math.log(4));
    return {
      first, last, level: Math.max(0, Math.min(shape.n_levels - 1, level)),
      tileLevel: Math.max(0, Math.min(shape.rows.length - 1, tileLevel)),
    };
  }

  names(level, tileLevel, first, last) {
    const { shape, perIpu, nIpus } = this.options;
    const perColumn = 2 ** level, result = [];
    const nColumns = Math.ceil(shape.n_entries / perColumn);
    const rowsPerIpu = shape.rows[tileLevel] / nIpus;
    const rowOf = (tile) => Math.floor(tile / perIpu) * rowsPerIpu + Math.floor((tile % perIpu) / 4 ** tileLevel);
    const top = Math.floor(rowOf(Math.max(0, Math.floor(this.rows.from))) / ROWS);
    const bottom = Math.floor(rowOf(Math.min(this.nTiles - 1, Math.ceil(this.rows.to) - 1)) / ROWS);
    const right = Math.min(Math.ceil(nColumns / COLUMNS) - 1, Math.floor((last - 1) / perColumn / COLUMNS));
    for (let column = Math.floor(first / perColumn / COLUMNS); column <= right; column++) {
      for (let row = top; row <= bottom; row++) result.push([level, tileLevel, column, row]);
    }
    return result;
  }

  fetch() {
    if (!this.width || !this.options.shape.n_entries) return;
    const { level, tileLevel, first, last } = this.levels();
    const { shape } = this.options;
    this.wanted = this.names(level, tileLevel, first, last);
    // The coarsest level stays loaded, so that there is always something to see.
    const coarse = this.names(shape.n_levels - 1, shape.rows.length - 1, 0, shape.n_entries);
    for (const key of [...coarse, ...this.wanted]) this.fetchBlock(key);
    this.status.textContent = `a column is ${count(2 ** level, this.options.noun ?? "step")}, a row ${count(4 ** tileLevel, "tile")}`;
  }

  async fetchBlock(key) {
    const name = key.join("/");
    if (this.blocks.has(name)) return;
    this.blocks.set(name, null);
    try {
      const pack = await this.options.load(`heat/${this.options.kind}/${name}`);
      const [level, tileLevel, column, row] = key;
      const block = this.unfold(pack, level, tileLevel, column, row);
      this.blocks.set(name, block);
      this.forget();
      this.draw();
    } catch (error) {
      this.blocks.delete(name);
      this.failed = error;
    }
  }

  unfold(pack, level, tileLevel, column, row) {
    const { n_columns: nColumns, n_rows: nRows } = pack.facts;
    const { nIpus, perIpu, shape } = this.options;
    const firstEntry = column * COLUMNS * 2 ** level;
    const bounds = this.options.boundsOf?.(firstEntry, 2 ** level, nColumns) ?? pack.columns;
    return {
      level, tileLevel, column, row, nColumns, nRows, firstEntry, columns: pack.columns,
      begin: bounds.begin, end: bounds.end, nIpus: this.options.boundsOf ? 1 : nIpus, allIpus: nIpus, perIpu,
      rowsPerIpu: shape.rows[tileLevel] / nIpus, firstRow: row * ROWS,
    };
  }

  // Columns of the wanted level, each once, for drawings of chips instead of tiles.
  columnsInSight() {
    const result = new Map();
    for (const key of this.wanted ?? []) {
      const block = this.blocks.get(key.join("/"));
      if (block && !result.has(block.column)) result.set(block.column, block);
    }
    const isComplete = result.size > 0 && (this.wanted ?? []).every(([, , column]) => result.has(column));
    return isComplete ? [...result.values()] : [];
  }

  forget() {
    if (this.blocks.size <= MOST_BLOCKS) return;
    const wanted = new Set(this.wanted.map((key) => key.join("/")));
    for (const [name, block] of this.blocks) {
      if (this.blocks.size <= MOST_BLOCKS) break;
      if (!block || wanted.has(name) || block.level === this.options.shape.n_levels - 1) continue;
      this.painter.drop(block);
      this.blocks.delete(name);
    }
  }

  // -- drawing ------------------------------------------------------------------------------------

  paint() {
    if (!this.width) return;
    const loaded = (this.wanted ?? []).map((key) => this.blocks.get(key.join("/")));
    const isComplete = loaded.length > 0 && loaded.every(Boolean);
    const behind = isComplete ? [] : [...this.blocks.values()].filter((b) => b && b.level > (this.wanted?.[0]?.[0] ?? 0));
    behind.sort((a, b) => b.level - a.level || b.tileLevel - a.tileLevel);
    const { range } = this.options;
    this.painter.paint([...behind, ...loaded.filter(Boolean)], {
      width: this.width - LEFT, height: this.height, left: LEFT, from: range.from, to: range.to,
      top: this.rows.from, bottom: this.rows.to, mode: this.mode, nTiles: this.nTiles,
    });
    this.element.dataset.complete = String(isComplete);
    this.paintOverlay();
  }

  // Redrawn only if something on it moved: it costs as much as the cells below it.
  paintOverlay() {
    const { tile: marked, span: spans } = this.marks ?? {}, { range } = this.options;
    const isMoving = (spans?.length ?? 0) > 0 || (this.cursorAt ?? null) !== null;
    const key = [this.width, this.height, this.rows.from, this.rows.to, marked, colour("ink"), isMoving && [range.from, range.to, this.cursorAt, spans]].join();
    if (key === this.overlayKey) return;
    this.overlayKey = key;
    const pen = sharpen(this.overlay, this.width, this.height);
    pen.font = "11px " + colour("font");
    pen.fillStyle = colour("muted");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    this.paintChips(pen);
    const { tile, span } = this.marks ?? {};
    pen.strokeStyle = colour("ink");
    if (tile !== undefined) {
      const y = this.y(tile), tall = Math.max(2, this.y(tile + 1) - y);
      pen.lineWidth = 1.5;
      pen.strokeRect(LEFT, y - 0.5, this.width - LEFT - 1, tall + 1);
    }
    this.paintSpans(pen, span ?? []);
    if (this.cursorAt !== undefined && this.cursorAt !== null) {
      pen.strokeStyle = colour("muted");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(this.x(this.cursorAt), 0);
      pen.lineTo(this.x(this.cursorAt), this.height);
      pen.stroke();
    }
  }

  // Names of chips and numbers of their tiles at the side; a gap between two chips.
  paintChips(pen) {
    const { perIpu, nIpus } = this.options, tall = (perIpu / this.rows.span) * this.height;
    const most = Math.max(1, this.height / 26) * (perIpu / this.rows.span);
    for (let chip = Math.floor(this.rows.from / perIpu); chip < nIpus && chip * perIpu < this.rows.to; chip++) {
      const top = this.y(chip * perIpu), isNamed = nIpus > 1 && chip % Math.ceil(13 / tall) === 0;
      if (isNamed) this.paintChipName(pen, chip, tall < 16 ? top + tall / 2 : Math.max(8, Math.min(top + 8, top + tall - 8)));
      if (chip && tall > 6) this.paintGap(pen, top, tall);
      if (nIpus > 1 && tall < 40) continue;
      for (const tile of ticks(0, perIpu - 1, most)) {
        const y = this.y(chip * perIpu + tile + 0.5);
        if (tile % 1 === 0 && y > Math.max(6, isNamed ? top + 18 : 0) && y < Math.min(this.height - 6, top + tall - 5)) pen.fillText(whole(tile), LEFT - 8, y);
      }
    }
  }

  paintChipName(pen, chip, y) {
    pen.fillStyle = colour("ink");
    pen.fillText(`chip ${chip}`, LEFT - 8, y);
    pen.fillStyle = colour("muted");
  }

  paintGap(pen, y, tall) {
    pen.fillStyle = colour("surface");
    pen.fillRect(LEFT, y - 1, this.width - LEFT, tall < 16 ? 1 : 2);
    pen.fillStyle = colour("faint");
    if (tall >= 40) pen.fillRect(LEFT - 44, y - 0.5, 40, 1);
    pen.fillStyle = colour("muted");
  }

  // What the colours say: every shade that the map can have.
  legend() {
    const bar = (colours) => h("span.shades", {}, colours.map((one) => h("i", { style: { background: css(one) } })));
    const item = (name, colours, about) => h("li", { title: about }, bar(colours), name);
    if (this.mode !== "phases") {
      return h("ul.legend.heat-legend", {}, item("", [0, 0.2, 0.4, 0.6, 0.8, 1].map(heat)), h("li", {}, "0 to 100 % of the time"));
    }
    const busy = phasesOn(this.options.nIpus).slice(0, -1).map(({ name, tone, about }) => item(name, shades(tone), about));
    const waiting = PHASES.at(-1);
    return h("ul.legend.heat-legend", {}, busy, item(waiting.name, [rgb(colour(waiting.tone))], waiting.about),
      h("li.status", {}, "a cell has the colour of what takes most of it: paler under 75, 50 and 25 %"));
  }

  x(value) {
    const { range } = this.options;
    return LEFT + ((value - range.from) / range.span) * (this.width - LEFT);
  }

  y(tile) {
    return ((tile - this.rows.from) / this.rows.span) * this.height;
  }

  // Frames around the executions of a step, or ticks where frames would cover them.
  paintSpans(pen, spans) {
    const seen = spans.map(([from, to]) => [this.x(from), this.x(to)]).filter(([left, right]) => right >= LEFT && left <= this.width);
    const isCrowded = seen.length > 6 && seen.reduce((sum, [left, right]) => sum + (right - left < 8), 0) > 6;
    pen.lineWidth = 1.5;
    pen.fillStyle = colour("ink");
    for (const [left, right] of seen) {
      const wide = Math.max(1.5, right - left), x = Math.max(LEFT, left);
      if (!isCrowded) pen.strokeRect(x, 0.5, wide, this.height - 1);
      else for (const y of [0, this.height - 7]) pen.fillRect(x, y, Math.max(2, wide), 7);
    }
  }

  mark(marks) {
    this.marks = marks;
    this.draw();
  }

  cursor(value) {
    this.cursorAt = value;
    this.draw();
  }

  // -- pointer ------------------------------------------------------------------------------------

  steer() {
    const rows = this.rows;
    const vertical = {
      at: (y) => rows.from + (y / this.height) * rows.span, zoom: (f, a) => rows.zoom(f, a), pan: (by) => rows.pan(by),
      reset: () => rows.reset(), get span() { return rows.span; }, get from() { return rows.from; }, get to() { return rows.to; },
    };
    steer(this.overlay, this.options.range, LEFT, {
      vertical, selected: () => this.options.selected?.(),
      onpick: (event, value) => {
        const hit = this.cellAt(value, vertical.at(event.offsetY));
        if (hit) this.options.onpick?.(hit);
      },
      onhover: (event, value) => {
        this.options.oncursor?.(value);
        const hit = value === null || event.offsetX < LEFT ? null : this.cellAt(value, vertical.at(event.offsetY));
        hint(event, hit && this.options.describe(hit));
      },
    });
  }

  // The finest loaded cell under the pointer: its block, column, shares and tile.
  cellAt(value, row) {
    const tile = Math.floor(row);
    if (tile < 0 || tile >= this.nTiles) return null;
    const keys = (this.wanted ?? []).map((key) => this.blocks.get(key.join("/"))).filter(Boolean);
    for (const block of keys) {
      const chip = Math.floor(tile / block.perIpu);
      const at = chip * block.rowsPerIpu + Math.floor((tile % block.perIpu) / 4 ** block.tileLevel) - block.firstRow;
      if (at < 0 || at >= block.nRows) continue;
      const lane = block.nIpus === 1 ? 0 : chip;
      for (let column = 0; column < block.nColumns; column++) {
        const i = column * block.nIpus + lane;
        if (value < block.begin[i] || value >= block.end[i]) continue;
        const cell = column * block.nRows + at;
        const firstEntry = block.firstEntry + column * 2 ** block.level;
        return {
          tile, chip, block, firstEntry, nEntries: Math.min(2 ** block.level, this.options.shape.n_entries - firstEntry),
          begin: block.begin[i], end: block.end[i], ...chipShares(block, column, chip),
          compute: block.columns.compute[cell] / FULL, exchange: (block.columns.exchange?.[cell] ?? 0) / FULL,
        };
      }
    }
    return null;
  }
}

function count(n, noun) {
  return `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
}
