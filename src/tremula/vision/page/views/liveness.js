// Liveness: memory over the steps of the program, what makes the peak, and what would lower it.

import { card, choice, h, replace } from "../dom.js";
import { Chart, legend } from "../parts/chart.js";
import { HeatMap } from "../parts/heat.js";
import { heatDifference } from "../parts/heat_difference.js";
import { Range } from "../parts/range.js";
import { Table } from "../parts/table.js";
import { SERIES } from "../colours.js";
import { text } from "../data.js";
import { byteTicks, bytes, capital, place, signed, tileName, whole } from "../format.js";
import { current, link } from "../state.js";
import { column, titleOf } from "../quantities.js";

export async function livenessView(context) {
  const [live, steps, variables, overview] = await Promise.all(["liveness", "steps", "variables", "overview"].map(context.load));
  const other = context.other && (await context.other.load("liveness"));
  const versus = await heatDifference(context, "live");
  const view = new LivenessView(context, { live, steps, variables, overview, other, versus });
  return { element: view.element, select: (state, before) => view.select(state, before), closer: () => view.chart?.closer() };
}

class LivenessView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.show = current().show ?? "all";
    this.n = this.live.columns.temporary.length;
    this.rowOf = new Map([...this.variables.columns.id].map((id, row) => [id, row]));
    this.atStep = h("section.card.half", {});
    this.freeing = h("section.card.half", {});
    if (!this.n) {
      this.element = h("div", {}, card("Liveness", null, h("p.note", {}, "The program has no steps.")));
      return;
    }
    this.range = new Range(0, this.n, Math.min(8, this.n));
    const series = this.seriesOf();
    this.chart = new Chart({
      series, lines: this.lines(), label: "Live bytes over steps", xName: "step", yFormat: bytes, yTicks: byteTicks, height: 280,
      describe: (step) => this.describe(step), onpick: (step) => context.select({ step }),
      onview: ([from, to]) => this.isFollowing || this.range.show(from, to),
    });
    this.range.listen(({ from, to }) => {
      this.isFollowing = true;
      this.chart.show(from, to);
      this.isFollowing = false;
    });
    const { facts } = this.overview;
    this.heat = new HeatMap({
      kind: "live", shape: facts.heat.live, nIpus: facts.n_ipus, perIpu: facts.tiles_per_ipu, range: this.range, mode: "live", height: 360,
      load: context.load, entriesOf: (from, to) => [Math.max(0, Math.floor(from)), Math.min(this.n, Math.ceil(to))],
      boundsOf: (first, per, n) => stepBounds(first, per, n, this.n), label: "Temporary bytes of every tile over steps",
      describe: (cell) => this.describeCell(cell), onpick: (cell) => context.select({ tile: cell.tile, step: cell.firstEntry }), ...this.versus?.options("live"),
    });
    const peak = this.live.facts.peak_step;
    this.element = h("div", {},
      card("Live bytes over steps", [h("button.plain.peak", { type: "button", title: `${titleOf("temporary_peak")}: ${bytes(this.live.columns.temporary[peak])}`, onclick: () => context.select({ step: peak }) }, `Peak: step ${peak}`), h("div.spring"),
        choice("Bytes", [["all", "All tiles"], ["fullest", "Fullest tile", "most temporary bytes of any one tile"], ["always", "With always live"]], this.show, (show) => context.select({ show }))],
      this.chart.element, legend(series)),
      card(this.versus?.title("Temporary bytes, every tile") ?? "Temporary bytes, every tile", [this.heat.status, h("div.spring"),
        (!this.versus || this.versus.whyNot) && h("span.status", {}, `full colour: ${bytes(facts.largest_temporary)}`)], this.heat.element, this.versus?.legend()),
      h("div.grid", {}, this.atStep, this.freeing));
  }

  seriesOf() {
    const { columns, facts } = this.live;
    const values = this.show === "fullest" ? columns.largest : columns.temporary;
    const name = this.show === "fullest" ? "temporary, on the fullest tile" : "temporary, all tiles";
    const base = this.show === "always" ? facts.always_live : 0;
    const of = (pack, plus) => Float64Array.from(this.show === "fullest" ? pack.columns.largest : pack.columns.temporary, (v) => v + plus);
    const result = [{ name: base ? "always live and temporary, all tiles" : name, colour: SERIES[1], values: base ? of(this.live, base) : values, isArea: true }];
    if (this.other) {
      result[0].name = `A: ${result[0].name}`;
      result.push({ name: "B", colour: SERIES[3], values: of(this.other, base ? this.other.facts.always_live : 0) });
    }
    return result;
  }

  lines() {
    const { facts } = this.live;
    if (this.show === "always") return [{ y: facts.always_live, text: `always live ${bytes(facts.always_live)}`, tone: "muted" }, { y: facts.available * facts.n_tiles, text: `memory ${bytes(facts.available * facts.n_tiles)}` }];
    return this.show === "fullest" ? [{ y: facts.available, text: `a tile has ${bytes(facts.available)}` }] : [];
  }

  describe(step) {
    const { columns, facts } = this.live;
    const lines = [text(this.steps, "path", step) || `step ${step}`, ["step", whole(step)], [titleOf("temporary_at_step").toLowerCase(), bytes(columns.temporary[step])],
      ["on the fullest tile", bytes(columns.largest[step])], ["always live", bytes(facts.always_live)]];
    if (this.other && step < this.other.columns.temporary.length) lines.push(["B − A", signed(this.other.columns.temporary[step] - columns.temporary[step], bytes)]);
    return lines;
  }

  describeCell(cell) {
    const most = this.overview.facts.largest_temporary;
    return [cell.nEntries > 1 ? `${cell.nEntries} steps from ${cell.firstEntry}` : text(this.steps, "path", cell.firstEntry),
      this.nameOf(cell.tile), ...this.versus && !this.versus.whyNot ? this.versus.describe(cell) : [["temporary, about", bytes(cell.compute * most)]]];
  }

  nameOf(tile) {
    const { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.overview.facts;
    return tileName(tile, perIpu, nIpus);
  }

  // -- selection ----------------------------------------------------------------------------------

  select(state, before) {
    if (!this.n) return;
    const step = state.step >= 0 && state.step < this.n ? state.step : undefined;
    this.chart.update({ marks: step === undefined ? [] : [step] });
    this.heat.mark({ tile: state.tile, span: step === undefined ? [] : [[step, step + 1]] });
    const shown = step ?? this.live.facts.peak_step;
    if (shown !== this.shownStep || state.tile !== before.tile) this.showStep(shown, state.tile);
    if (!this.freeing.firstChild) this.showFreeing();
    if (state.focus && step !== undefined) this.focusOn(state);
    if (state.variable !== undefined) this.table?.reveal(this.listed.findIndex((row) => this.variables.columns.id[row.row] === state.variable));
  }

  // Zooms to the life of a variable, or to a step, that a link leads to; once.
  focusOn({ step, variable }) {
    const { columns } = this.variables, row = this.rowOf.get(variable), isTemporary = row !== undefined && !columns.always_live[row] && columns.first_step[row] >= 0;
    const [from, to] = isTemporary ? [columns.first_step[row], columns.last_step[row] + 1] : [step, step + 1];
    const room = Math.max(8, to - from);
    this.range.show(from - room / 2, to + room / 2);
    this.context.select({ focus: undefined });
  }

  // Rows of the variables that are live at a step, temporary ones largest first.
  async showStep(step, tile) {
    this.shownStep = step;
    const { columns } = this.variables, result = new Map();
    for (let i = 0; i < columns.life_row.length; i++) {
      if (columns.life_first[i] <= step && step <= columns.life_last[i]) result.set(columns.life_row[i], columns.n_bytes[columns.life_row[i]]);
    }
    for (let row = 0; row < columns.id.length; row++) if (columns.always_live[row]) result.set(row, columns.n_bytes[row]);
    const sizes = tile === undefined ? null : await this.sizesOn(tile);
    if (this.shownStep !== step) return;
    this.listed = [...result].map(([row, size]) => ({ row, size: sizes ? sizes.get(columns.id[row]) ?? 0 : size })).filter((one) => one.size > 0);
    const most = Math.max(1, ...this.listed.map((one) => one.size));
    this.table = new Table({
      count: this.listed.length, noun: "live", label: "Live variables", sort: [1, true], height: 340,
      filter: (i) => text(this.variables, "name", this.listed[i].row),
      onpick: (i) => this.context.select({ variable: columns.id[this.listed[i].row] }),
      columns: [
        column("variable", (i) => text(this.variables, "name", this.listed[i].row)),
        column(sizes ? "tile_bytes" : "n_bytes", (i) => this.listed[i].size, { bar: (v) => v / most }),
        column("lives", (i) => (columns.always_live[this.listed[i].row] ? 1e9 : columns.last_step[this.listed[i].row]), {
          isText: false, show: (v, i) => (columns.always_live[this.listed[i].row] ? "always" : `${columns.first_step[this.listed[i].row]}–${columns.last_step[this.listed[i].row]}`),
        }),
      ],
    });
    replace(this.atStep, h("header", {}, h("h2", {}, `Live at step ${step}${tile === undefined ? "" : ` on ${this.nameOf(tile)}`}`), h("div.spring"), this.table.tools),
      h("p.note", {}, `${text(this.steps, "path", step) || "unnamed"}: ${bytes(this.live.columns.temporary[step])} temporary, ${bytes(this.live.facts.always_live)} always live. `,
        h("a", { href: link({ view: "execution", step }), style: { color: "var(--accent)" } }, "In the trace →")), this.table.element);
  }

  async sizesOn(tile) {
    const part = await this.context.load(`tile-contents/${Math.floor(tile / 16)}`).catch(() => null);
    if (!part) return null;
    const { start, variable, n_bytes: size } = part.columns, at = tile % 16;
    const result = new Map();
    for (let i = start[at]; i < start[at + 1]; i++) result.set(variable[i], size[i]);
    return result;
  }

  showFreeing() {
    const zone = current().zone ?? "all", { facts } = this.live;
    const rows = facts.freeing[zone], { columns } = this.variables;
    const peak = zone === "all" ? this.live.columns.temporary[facts.peak_step] : this.overview.facts.largest_temporary;
    const rowOf = (i) => this.rowOf.get(rows[i].variable);
    const table = new Table({
      count: rows.length, noun: "variables", label: "What would lower the peak", sort: [2, true], height: 340,
      onpick: (i) => this.context.select({ variable: rows[i].variable }),
      columns: [
        column("variable", (i) => (rowOf(i) === undefined ? `variable ${rows[i].variable}` : text(this.variables, "name", rowOf(i)))),
        column(zone === "all" ? "n_bytes" : "tile_bytes", (i) => rows[i].n_bytes),
        column("saved_bytes", (i) => rows[i].saves, { bar: (v) => v / Math.max(1, peak), colour: "var(--good)" }),
        column("saved_share", (i) => rows[i].saves / Math.max(1, peak)),
        column("line", (i) => (rowOf(i) === undefined ? "" : place(text(this.variables, "source", rowOf(i))))),
      ],
    });
    replace(this.freeing, h("header", {}, h("h2", {}, "What would lower the peak"), h("div.spring"),
      choice("Peak of", [["all", "All tiles"], ["tile", capital(this.nameOf(facts.fullest_tile)), "the tile with most temporary bytes"]], zone, (next) => this.context.select({ zone: next }))),
    h("p.note", {}, "If one variable took no memory, another step might become the fullest: this is how far the peak itself would fall."), table.element);
    return columns;
  }
}

function stepBounds(first, per, n, most) {
  const begin = new Float64Array(n), end = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    begin[i] = first + i * per;
    end[i] = Math.min(most, begin[i] + per);
  }
  return { begin, end };
}
