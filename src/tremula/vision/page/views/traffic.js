// Traffic: bytes from tile to tile, of one step or of everything that ran: from × to, routes, arrows.

import { card, choice, h, replace } from "../dom.js";
import { Chart } from "../parts/chart.js";
import { ORDERS } from "../parts/floorplan.js";
import { RoutePlan } from "../parts/route_plan.js";
import { Table } from "../parts/table.js";
import { TrafficMap } from "../parts/traffic_map.js";
import { SERIES, heat } from "../colours.js";
import { text } from "../data.js";
import { byteTicks, bytes, place, tileName, whole } from "../format.js";
import { current } from "../state.js";
import { column } from "../quantities.js";

const MOST_ARROWS = 60;

export async function trafficView(context) {
  const [all, steps, tiles] = await Promise.all(["traffic", "steps", "tiles"].map(context.load));
  const view = new TrafficView(context, { all, steps, tiles });
  return { element: view.element, select: (state, before) => view.select(state, before) };
}

class TrafficView {
  constructor(context, packs) {
    Object.assign(this, packs, { context });
    this.shown = h("div.results", {});
    this.table = this.stepTable();
    this.element = h("div", {}, this.shown, card("Steps that move data", [h("div.spring"), this.table.tools], this.table.element));
  }

  async select({ step, tile }, before) {
    const isStep = step !== undefined && step < this.steps.columns.cycles.length;
    if (step !== before.step || !this.shown.firstChild) {
      const pack = isStep ? await this.context.load(`traffic/${step}`).catch(() => null) : this.all;
      if (current().step !== step) return;
      this.show(pack, isStep ? step : undefined);
      if (isStep) this.table.reveal(step);
    }
    this.mark(current().tile ?? tile);
  }

  mark(tile) {
    this.map?.mark(tile);
    this.plan?.update({ chosen: tile, routes: this.routesOf(tile) });
    this.chart?.update({ marks: tile === undefined ? [] : [tile] });
  }

  show(pack, step) {
    Object.assign(this, { pack, map: null, plan: null, chart: null });
    const title = step === undefined ? "Everything that ran" : `One execution of step ${whole(step)}: ${text(this.steps, "path", step) || "(unnamed)"}`;
    const back = step !== undefined && h("button.plain", { type: "button", onclick: () => this.context.select({ step: undefined }) }, "Everything");
    const why = !pack ? "This step is not in the exported file." : pack.facts.why_not;
    if (why) {
      replace(this.shown, card(title, [h("div.spring"), back], h("p.note", {}, why)));
      return;
    }
    const { facts } = pack;
    if (!facts.n_bytes) {
      replace(this.shown, card(title, [h("div.spring"), back], h("p.note", {}, `No tile sends to another. ${this.outsideText()}`)));
      return;
    }
    this.map = new TrafficMap({ pack, nTiles: this.tiles.facts.n_tiles, name: (tile) => this.nameOf(tile), describe: (cell) => this.describe(cell), onpick: (cell) => this.context.select({ tile: cell.to }) });
    this.plan = this.routePlan();
    this.chart = this.tileChart();
    this.routes = this.routeTable();
    replace(this.shown, card(title, [h("div.spring"), back],
      h("p.note.traffic-sum", {}, `${bytes(facts.n_bytes)} (${whole(facts.n_bytes)} bytes) arrive over ${whole(facts.n_routes)} routes from tile to tile. ${this.outsideText()}`),
      h("p.note", {}, facts.pool > 1 ? `A cell is ${facts.pool} × ${facts.pool} neighbouring tiles: rows send, columns receive. A byte that several tiles receive counts for each.` : "Rows send, columns receive. A byte that several tiles receive counts for each."),
      this.map.element, this.map.legend()),
    h("div.grid", {}, h("section.card.two-thirds", {}, h("header", {}, h("h2", {}, "Busiest routes on the chip"), h("span.status", {}, "wider is more; choose a tile for its own"), h("div.spring"),
      choice("Order of tiles", ORDERS, current().order ?? "place", (order) => this.context.select({ order: order === "place" ? undefined : order }))), this.plan.element),
    h("section.card.third", {}, h("header", {}, h("h2", {}, "Busiest routes"), h("div.spring"), this.routes.tools), this.routes.element)),
    card("Bytes of each tile", null, this.chart.element));
  }

  outsideText() {
    const { from_outside: arrives, to_outside: leaves } = this.pack.facts;
    return arrives || leaves ? `From the host or other replicas come ${bytes(arrives)}, to them go ${bytes(leaves)}.` : "";
  }

  nameOf(tile) {
    const { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.tiles.facts;
    return tileName(tile, perIpu, nIpus);
  }

  describe({ from, to, pool, nBytes }) {
    const { n_tiles: n } = this.tiles.facts, group = (first) => (pool === 1 ? this.nameOf(first) : `${this.nameOf(first)} to ${this.nameOf(Math.min(n, first + pool) - 1)}`);
    return [nBytes ? bytes(nBytes) : "nothing", ["from", group(from)], ["to", group(to)], ...nBytes ? [["bytes", whole(nBytes)]] : []];
  }

  // The busiest routes, or those of one tile: [{from, to, bytes}], largest first.
  routesOf(tile) {
    const { route_from: from, route_to: to, route_bytes: n } = this.pack.columns, result = [];
    for (let i = 0; i < n.length && result.length < MOST_ARROWS; i++) {
      if (tile === undefined || from[i] === tile || to[i] === tile) result.push({ from: from[i], to: to[i], bytes: n[i] });
    }
    return result;
  }

  routePlan() {
    const { received } = this.pack.columns, most = received.reduce((high, v) => Math.max(high, v), 1);
    return new RoutePlan({
      tiles: this.tiles, order: current().order, value: (tile) => received[tile] / most, shade: (share) => heat(share), height: 420, routes: this.routesOf(current().tile),
      describe: (tile) => [this.nameOf(tile), ["receives", bytes(received[tile])], ["sends", bytes(this.pack.columns.sent[tile])]], onpick: (tile) => this.context.select({ tile }),
    });
  }

  tileChart() {
    const { sent, received } = this.pack.columns, { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.tiles.facts;
    return new Chart({
      series: [{ name: "receives", colour: SERIES[0], values: received }, { name: "sends", colour: SERIES[1], values: sent }],
      label: "Bytes of each tile", xName: "tile", yFormat: bytes, yTicks: byteTicks, height: 190, perChip: nIpus > 1 ? perIpu : undefined,
      describe: (i) => [this.nameOf(i), ["receives", bytes(received[i])], ["sends", bytes(sent[i])]], onpick: (tile) => this.context.select({ tile }),
    });
  }

  routeTable() {
    const { route_from: from, route_to: to, route_bytes: n } = this.pack.columns, most = Math.max(1, n[0]);
    return new Table({
      count: n.length, noun: "routes", label: "Busiest routes", sort: [2, true], height: 380, onpick: (i) => this.context.select({ tile: to[i] }),
      columns: [
        column("from_tile", (i) => this.nameOf(from[i])), column("to_tile", (i) => this.nameOf(to[i])),
        column("route_bytes", (i) => n[i], { show: (v) => `${whole(v)} B`, bar: (v) => v / most }),
      ],
    });
  }

  stepTable() {
    const { columns } = this.steps, rows = Array.from(columns.bytes_in, (_, i) => i), most = columns.bytes_in.reduce((high, v) => Math.max(high, v), 1);
    return new Table({
      count: rows.length, noun: "steps", label: "Steps that move data", sort: [2, true], height: 320, onpick: (i) => this.context.select({ step: i }),
      filter: (i) => `${text(this.steps, "path", i)} ${text(this.steps, "source", i)}`,
      columns: [
        column("number", (i) => i, { show: whole, isText: false }), column("step", (i) => text(this.steps, "path", i)),
        column("once_bytes", (i) => columns.bytes_in[i], { bar: (v) => v / most }), column("executed", (i) => columns.executed[i]),
        column("line", (i) => place(text(this.steps, "source", i))),
      ],
    });
  }
}
