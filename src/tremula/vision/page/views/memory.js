// Memory: bytes on every tile, split by what they are for; one tile's contents; the floor plan.

import { card, choice, h, replace } from "../dom.js";
import { Chart, legend } from "../parts/chart.js";
import { Table } from "../parts/table.js";
import { FloorPlan, ORDERS } from "../parts/floorplan.js";
import { Addresses } from "../parts/addresses.js";
import { tilesOf } from "../parts/palette.js";
import { showTiles, toggled } from "../parts/several_tiles.js";
import { SERIES, colour, css, difference, empty, heat } from "../colours.js";
import { text } from "../data.js";
import { byteTicks, bytes, capital, counted, percent, place, shape, signed, tileName, whole } from "../format.js";
import { current } from "../state.js";
import { column, titleOf } from "../quantities.js";

const TILES_PER_PART = 16;
const SPLITS = [
  ["liveness", "Liveness", "always live or temporary"], ["category", "Category", "what the bytes are for"],
  ["region", "Region", "plain, interleaved, too much"], ["total", "Total"],
];

export async function memoryView(context) {
  const [tiles, variables, vertices] = await Promise.all(["tiles", "variables", "vertices"].map(context.load));
  const other = context.other && (await context.other.load("tiles"));
  const view = new MemoryView(context, { tiles, variables, vertices, other });
  return { element: view.element, select: (state, before) => view.select(state, before), closer: () => view.chart.closer() };
}

class MemoryView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.by = current().by ?? "liveness";
    this.used = this.tiles.columns.including_gaps;
    this.n = this.tiles.facts.n_tiles;
    this.rowOf = new Map([...this.variables.columns.id].map((id, row) => [id, row]));
    this.chart = new Chart({
      ...this.seriesOf(), label: "Bytes on every tile", xName: "tile", yFormat: bytes, yTicks: byteTicks, height: 300,
      describe: (tile) => this.describe(tile), onpick: (tile, event) => this.pick(tile, event),
      perChip: this.tiles.facts.n_ipus > 1 ? this.tiles.facts.tiles_per_ipu : undefined,
    });
    this.key = h("div", {}, legend(this.chart.options.series.toReversed()));
    this.plan = new FloorPlan({
      tiles: this.tiles, ...this.shading(), describe: (tile) => this.describe(tile),
      onpick: (tile, event) => this.pick(tile, event), height: 430, order: current().order,
    });
    this.contents = h("section.card.half", {});
    this.addresses = new Addresses(context, packs, this.rowOf);
    this.table = this.variableTable();
    this.element = h("div", {},
      card(this.other ? "Bytes on each tile, B − A" : "Bytes on each tile", [h("div.spring"), choice("Split by", SPLITS, this.by, (by) => context.select({ by }))],
        this.chart.element, this.key),
      h("div.grid", {},
        h("section.card.half", {}, h("header", {}, h("h2", {}, "On the chip"), h("div.spring"), this.scale(),
          choice("Order of tiles", ORDERS, current().order ?? "place", (order) => context.select({ order }))), this.plan.element),
        this.contents),
      h("div.grid", {}, this.addresses.element),
      h("div.grid", {}, h("section.card", {}, h("header", {}, h("h2", {}, "Variables"), h("div.spring"), this.table.tools), this.table.element,
        this.variables.facts.n_left_out > 0 && h("p.note", {}, `${whole(this.variables.facts.n_left_out)} smaller ones, together ${bytes(this.variables.facts.bytes_left_out)}, are not listed.`))),
      h("div.grid", {}, this.categoryCard(), this.vertexCard()));
  }

  seriesOf() {
    if (this.other) {
      const then = this.other.columns.including_gaps;
      const values = Float64Array.from(this.used, (now, i) => (then[i] ?? 0) - now);
      return {
        series: [{ name: "B − A", colour: SERIES[3], values, isArea: true }], isStacked: false, lines: [],
        minimum: Math.min(0, ...values),
      };
    }
    const lines = [{ y: this.tiles.facts.available, text: `a tile has ${bytes(this.tiles.facts.available)}` }];
    return { series: this.split(), isStacked: this.by !== "total", lines };
  }

  split() {
    const { columns, facts } = this.tiles;
    if (this.by === "total") return [{ name: "including gaps", colour: SERIES[0], values: columns.including_gaps, isArea: true }];
    if (this.by === "region") {
      const parts = [["plain", "region0"], ["interleaved", "region1"], ["too much", "overflowed"]];
      return parts.map(([name, column], i) => ({ name, colour: [SERIES[0], SERIES[2], colour("bad")][i], values: columns[column] }));
    }
    if (this.by === "category") return this.categories().map(([name, row], i) => ({
      name, colour: SERIES[i % SERIES.length], values: this.categoryValues(row, facts),
    }));
    return [
      { name: "always live", colour: SERIES[0], values: columns.always_live },
      { name: titleOf("temporary_peaks").toLowerCase(), colour: SERIES[1], values: columns.temporary },
    ];
  }

  // [name, row] of categories that take any memory, largest first.
  categories() {
    const { facts } = this.tiles;
    return facts.categories.map((name, row) => [name, row, this.categorySum(row)])
      .filter(([, , sum]) => sum > 0).sort((a, b) => b[2] - a[2]);
  }

  categorySum(row) {
    let sum = 0;
    for (const n of this.categoryValues(row)) sum += n;
    return sum;
  }

  categoryValues(row) {
    const { category_always_live: always, category_temporary: temporary } = this.tiles.columns;
    const result = new Float64Array(this.n), first = row * this.n; // a loop: there may be 100,000 tiles
    for (let tile = 0; tile < this.n; tile++) result[tile] = always[first + tile] + temporary[first + tile];
    return result;
  }

  shading() {
    const { available } = this.tiles.facts;
    if (this.other) {
      const then = this.other.columns.including_gaps;
      const change = (tile) => (then[tile] ?? 0) - this.used[tile];
      let most = 1;
      for (let tile = 0; tile < this.n; tile++) most = Math.max(most, Math.abs(change(tile)));
      return { value: change, shade: (value) => difference(value / most) };
    }
    const values = this.chosenBytes ?? this.used;
    const most = this.chosenBytes ? Math.max(1, ...values) : Math.max(...values, 1);
    this.most = most;
    return {
      value: (tile) => values[tile],
      shade: (value, tile) => (this.used[tile] > available ? [229, 72, 77] : value ? heat(value / most) : this.emptyShade()),
    };
  }

  emptyShade() {
    return empty();
  }

  scale() {
    if (this.other) return h("span.status", {}, "dark blue: less, light orange: more");
    const bar = h("i", { style: {
      width: "110px", height: "8px", borderRadius: "4px", display: "inline-block",
      background: `linear-gradient(90deg, ${[0, .2, .4, .6, .8, 1].map((s) => css(heat(s))).join(", ")})`,
    } });
    this.scaleText = h("span", {}, bytes(Math.max(...this.used)));
    return h("span.status.tools", {}, "0", bar, this.scaleText);
  }

  describe(tile) {
    const { columns, facts } = this.tiles;
    const lines = [this.nameOf(tile),
      ["needs", bytes(this.used[tile])], ["of its memory", percent(this.used[tile] / facts.available)],
      ["always live", bytes(columns.always_live[tile])], ["temporary at its peak", bytes(columns.temporary[tile])]];
    if (this.other) lines.push(["B − A", signed((this.other.columns.including_gaps[tile] ?? 0) - this.used[tile], bytes)]);
    if (this.chosenBytes) lines.push(["selected variable", bytes(this.chosenBytes[tile])]);
    return lines;
  }

  nameOf(tile) {
    const { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.tiles.facts;
    return tileName(tile, perIpu, nIpus);
  }

  variableTable() {
    const { columns } = this.variables;
    const most = Math.max(1, ...columns.n_bytes.slice(0, 1));
    return new Table({
      count: columns.id.length, noun: "variables", label: "Variables", sort: [3, true], height: 380,
      filter: (row) => `${text(this.variables, "name", row)} ${text(this.variables, "source", row)}`,
      onpick: (row) => this.context.select({ variable: columns.id[row] }),
      columns: [
        column("variable", (row) => text(this.variables, "name", row)),
        column("type", (row) => text(this.variables, "type", row).toLowerCase(), { isText: false }),
        column("shape", (row) => shape(text(this.variables, "shape", row)), { isText: false }),
        column("n_bytes", (row) => columns.n_bytes[row], { bar: (v) => v / most }),
        column("n_tiles", (row) => columns.n_tiles[row]),
        column("largest_on_tile", (row) => columns.largest_on_tile[row]),
        column("lives", (row) => (columns.always_live[row] ? -1 : columns.last_step[row] - columns.first_step[row]), {
          isText: false, show: (v, row) => (columns.always_live[row] ? "always" : columns.first_step[row] < 0 ? "–" : `${columns.first_step[row]}–${columns.last_step[row]}`),
        }),
        column("line", (row) => place(text(this.variables, "source", row))),
      ],
    });
  }

  categoryCard() {
    const { category_always_live: always, category_temporary: temporary } = this.tiles.columns;
    const sum = (column, row) => column.subarray(row * this.n, (row + 1) * this.n).reduce((s, v) => s + v, 0);
    const rows = this.categories().map(([name, row]) => ({ name, always: sum(always, row), temporary: sum(temporary, row) }));
    const most = Math.max(1, ...rows.map((r) => r.always + r.temporary));
    const table = new Table({
      count: rows.length, noun: "categories", label: "Categories", sort: [3, true], height: 330,
      columns: [
        column("category", (i) => rows[i].name), column("always_live", (i) => rows[i].always), column("temporary_peaks", (i) => rows[i].temporary),
        column("bytes_at_peaks", (i) => rows[i].always + rows[i].temporary, { bar: (v) => v / most }),
      ],
    });
    return h("section.card.half", {}, h("header", {}, h("h2", {}, "Categories, all tiles")), table.element);
  }

  vertexCard() {
    const { columns, facts } = this.vertices;
    const most = Math.max(1, ...columns.type_state_bytes);
    const table = new Table({
      count: facts.texts.name.length, noun: "codelets", label: "Vertices", sort: [3, true], height: 330,
      columns: [
        column("codelet", (i) => facts.texts.name[i]), column("n_vertices", (i) => columns.type_n_vertices[i]),
        column("code_bytes", (i) => columns.type_code_bytes[i]), column("state_bytes", (i) => columns.type_state_bytes[i], { bar: (v) => v / most }),
      ],
    });
    return h("section.card.half", {}, h("header", {}, h("h2", {}, "Vertices")), table.element);
  }

  // With Shift, one tile more.
  pick(tile, event) {
    this.context.select(event?.shiftKey ? toggled(current(), tile) : { tile, tiles: undefined });
  }

  // -- selection ----------------------------------------------------------------------------------

  select(state, before) {
    const tile = state.tile >= 0 && state.tile < this.n ? state.tile : undefined;
    const tiles = tilesOf(state.tiles ?? "", this.n);
    this.chart.update({ marks: tile === undefined ? [] : [tile, ...tiles.filter((one) => one !== tile)] });
    const fullest = this.fullest();
    this.plan.update({ chosen: tile, label: `Tiles on the chip: ${this.nameOf(fullest)} needs most, ${bytes(this.used[fullest])}` });
    if (tiles.length > 1) {
      if (state.tiles !== this.shownTiles) showTiles(this.contents, tiles, this, () => current().tiles === state.tiles);
    } else if (tile !== before.tile || this.shownTiles || !this.contents.firstChild) this.showTile(tile);
    this.shownTiles = tiles.length > 1 ? state.tiles : undefined;
    this.addresses.show(tile ?? this.fullest(), state);
    if (state.variable !== this.variable) this.showVariable(state.variable);
    if (state.focus && tile !== undefined) this.focusOn(tile);
  }

  // Zooms to a tile that a link leads to, once.
  focusOn(tile) {
    this.chart.closer();
    this.chart.element.scrollIntoView({ block: "nearest" });
    this.context.select({ tile, focus: undefined });
  }

  async showVariable(id) {
    this.variable = id;
    const row = this.rowOf.get(id);
    if (row === undefined) this.chosenBytes = null;
    else {
      this.table.reveal(row);
      const per = this.variables.facts.n_per_part;
      const part = await this.context.load(`variable-tiles/${Math.floor(row / per)}`);
      if (this.variable !== id) return;
      const { start, tile, n_bytes: size } = part.columns, at = row % per;
      this.chosenBytes = new Float64Array(this.n);
      for (let i = start[at]; i < start[at + 1]; i++) this.chosenBytes[tile[i]] = size[i];
    }
    const shading = this.shading();
    this.plan.update(shading);
    if (this.scaleText) this.scaleText.textContent = bytes(this.most);
    if (!this.other) {
      const series = this.chosenBytes
        ? [{ name: text(this.variables, "name", row), colour: SERIES[2], values: this.chosenBytes, isArea: true }] : this.split();
      this.chart.update({ series, isStacked: !this.chosenBytes && this.by !== "total", lines: this.chosenBytes ? [] : this.seriesOf().lines });
      replace(this.key, legend(series.toReversed()));
    }
  }

  fullest() {
    return this.used.indexOf(Math.max(...this.used));
  }

  async showTile(tile) {
    if (tile === undefined) {
      const fullest = this.fullest();
      replace(this.contents, h("header", {}, h("h2", {}, "One tile")),
        h("p.note", {}, "Choose a tile in the chart or on the chip to see what it holds; with Shift, several. "),
        h("p", { style: { marginTop: "10px" } }, h("button.plain", { type: "button", onclick: () => this.context.select({ tile: fullest }) }, `The fullest: ${this.nameOf(fullest)}`)));
      return;
    }
    const part = await this.context.load(`tile-contents/${Math.floor(tile / TILES_PER_PART)}`).catch((error) => error);
    if (current().tile !== tile) return;
    if (part instanceof Error) { // an exported file without this detail
      replace(this.contents, h("header", {}, h("h2", {}, capital(this.nameOf(tile)))), h("p.note", {}, part.message));
      return;
    }
    const table = this.tileTable(part.columns, tile % TILES_PER_PART);
    const { columns, facts } = this.tiles;
    replace(this.contents, h("header", {}, h("h2", {}, capital(this.nameOf(tile))), h("div.spring"), table.tools),
      h("p.note", { className: "note tile-note" }, `Needs ${bytes(this.used[tile])} (${percent(this.used[tile] / facts.available)}), ${bytes(columns.always_live[tile])} of it always. Fullest at step ${columns.peak_step[tile]}. Computes ${whole(columns.compute[tile])} cycles.`),
      table.element, this.tileVertices(part.columns, tile % TILES_PER_PART));
  }

  tileTable(part, at) {
    const from = part.start[at], count = part.start[at + 1] - from;
    const nameOf = (i) => {
      const row = this.rowOf.get(part.variable[from + i]);
      return row === undefined ? `variable ${part.variable[from + i]}` : text(this.variables, "name", row);
    };
    const most = Math.max(1, ...part.n_bytes.subarray(from, from + count));
    const base = this.tiles.facts.memory.base_address;
    const isAlways = (i) => this.variables.columns.always_live[this.rowOf.get(part.variable[from + i])];
    return new Table({
      count, noun: "variables", label: "Variables on this tile", sort: [1, true], height: 290, filter: nameOf,
      onpick: (i) => this.context.select({ variable: part.variable[from + i] }),
      columns: [
        column("variable", nameOf), column("tile_bytes", (i) => part.n_bytes[from + i], { bar: (v) => v / most }),
        ...(part.address ? [column("address", (i) => part.address[from + i], { isText: false, show: (v) => (v < 0 ? "–" : `0x${(v + base).toString(16)}`) })] : []),
        column("at_peak", (i) => (isAlways(i) ? 2 : part.at_peak[from + i]), { isText: false, show: (v) => ["–", "temporary", "always"][v] }),
      ],
    });
  }

  tileVertices(part, at) {
    const names = this.vertices.facts.texts.name, result = [];
    for (let i = part.vertex_start[at]; i < part.vertex_start[at + 1]; i++) result.push([names[part.vertex_type[i]], part.vertex_count[i]]);
    result.sort((a, b) => b[1] - a[1]);
    const total = result.reduce((sum, [, n]) => sum + n, 0);
    return h("details", {}, h("summary", {}, `${counted(total, "vertex")} of ${counted(result.length, "codelet")}`),
      h("dl.facts", {}, result.map(([name, n]) => [h("dt", {}, whole(n)), h("dd", {}, name)])));
  }
}
