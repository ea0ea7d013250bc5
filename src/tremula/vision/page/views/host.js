// Host: what the host did and when, on one clock with the device.

import { card, h } from "../dom.js";
import { legend } from "../parts/chart.js";
import { Lanes } from "../parts/lanes.js";
import { DeviceRun } from "../parts/device_run.js";
import { Range, STEERING } from "../parts/range.js";
import { Table } from "../parts/table.js";
import { SERIES, colour, phasesOn } from "../colours.js";
import { counted, duration, percent, whole } from "../format.js";
import { link } from "../state.js";
import { column } from "../quantities.js";

export async function hostView(context) {
  const [host, overview] = await Promise.all([context.load("host"), context.load("overview")]);
  if (!host.facts.has_trace) {
    return { element: h("div", {}, card("Host", null, h("p.note", {}, host.facts.why))) };
  }
  const view = new HostView(host, overview);
  return { element: view.element };
}

class HostView {
  constructor(host, overview) {
    Object.assign(this, { host, overview, words: "" });
    const { columns, facts } = host;
    let end = 1;
    columns.start_us.forEach((start, i) => { end = Math.max(end, start + Math.max(0, columns.duration_us[i])); });
    for (const run of facts.runs) end = Math.max(end, run.to);
    this.range = new Range(0, end * 1.01, 0.5);
    this.lanes = new Lanes({
      host, range: this.range, clock: overview.facts.clock_hz, filter: (i) => !this.words || this.label(i).toLowerCase().includes(this.words),
      onpick: (i) => i !== null && i !== undefined && this.zoomTo(i),
    });
    const search = h("input.search", { type: "search", placeholder: "Find events…", "aria-label": "Find", oninput: (event) => {
      this.words = event.target.value.toLowerCase();
      this.lanes.draw();
    } });
    const table = this.sums();
    const shown = columns.start_us.length < facts.n_events ? `longest ${whole(columns.start_us.length)} of ${counted(facts.n_events, "event")}` : counted(facts.n_events, "event");
    this.element = h("div", {}, this.verdictCard(),
      card("Host and device", [search, h("span.status", {}, `${shown}, ${counted(facts.files.length, "trace")}`), h("div.spring"), h("span.status", {}, `${STEERING}; a click goes to an event`)],
        this.lanes.element, legend(facts.channels.map((name, i) => ({ name, colour: SERIES[i % SERIES.length] })))),
      this.deviceCard(), card("By event", [h("div.spring"), table.tools], table.element));
  }

  label(i) {
    const { columns, facts } = this.host;
    return facts.labels[columns.label[i]];
  }

  zoomTo(i) {
    const { start_us: start, duration_us: length } = this.host.columns;
    const span = Math.max(1, length[i]);
    this.range.show(start[i] - span * 0.1, start[i] + span * 1.1);
  }

  // Which of host, input and device a call spends its time in, and the parts to one scale.
  verdictCard() {
    const { verdict } = this.host.facts;
    if (!verdict) return null;
    const tones = { device: colour("accent"), transfer: colour("host"), loading: SERIES[6], host: SERIES[9] };
    const parts = verdict.parts.map((part) => ({ ...part, colour: tones[part.key], share: part.us / Math.max(1e-9, verdict.total_us) }));
    const name = `${verdict.verdict[0].toUpperCase()}${verdict.verdict.slice(1)}`;
    return card("Where a call spends its time", [h("span.status", {}, verdict.n_calls ? `typical of ${counted(verdict.n_calls, "call")}` : "")],
      h("div.figure.verdict", {}, h("b", {}, verdict.is_close ? `Nearly balanced, ${verdict.verdict}` : name)), h("p.note", {}, verdict.why),
      parts.length > 0 && [h("div.shares", { role: "img", "aria-label": parts.map((p) => `${p.name} ${duration(p.us / 1e6)}`).join(", ") },
        parts.map((p) => h("i", { title: `${p.name}: ${duration(p.us / 1e6)}`, style: { width: `${100 * p.share}%`, background: p.colour } }))),
      legend(parts.map((p) => ({ ...p, value: `${duration(p.us / 1e6)}, ${percent(p.share)}` }))),
      h("p.note", {}, `Computing a run here took ${duration(verdict.modelling_us / 1e6)}. That is the model's time: a device would not need it, so it is no part of a call.`)]);
  }

  // One run on the device's own clock; the host's is too long to show it.
  deviceCard() {
    const { facts } = this.overview, run = this.host.facts.runs.at(-1);
    if (!run || !facts.n_entries) return null;
    const first = facts.runs[0], from = first?.cycles_from ?? run.cycles_from, to = first?.cycles_to ?? run.cycles_to;
    const device = new DeviceRun({ overview: this.overview, from, to });
    return card("A run on the device", [h("span.status", {}, `modelled: ${whole(to - from)} cycles, ${duration((to - from) / facts.clock_hz)}; on its own clock, not the host's`),
      h("div.spring"), h("a.plain", { href: link({ view: "execution" }) }, "In the trace →")],
    device.element, legend(phasesOn(facts.n_ipus).map(({ name, tone }) => ({ name, tone, colour: colour(tone) }))));
  }

  sums() {
    const { columns, facts } = this.host, result = new Map();
    columns.start_us.forEach((_, i) => {
      const key = `${columns.channel[i]}/${columns.label[i]}`;
      const row = result.get(key) ?? { label: facts.labels[columns.label[i]], channel: facts.channels[columns.channel[i]], n: 0, total: 0, longest: 0 };
      const length = Math.max(0, columns.duration_us[i]);
      row.n += 1;
      row.total += length;
      row.longest = Math.max(row.longest, length);
      result.set(key, row);
    });
    const rows = [...result.values()], most = Math.max(1e-9, ...rows.map((row) => row.total));
    return new Table({
      count: rows.length, noun: "kinds of events", label: "Events", sort: [3, true], height: 340, filter: (i) => `${rows[i].label} ${rows[i].channel}`,
      columns: [
        column("event", (i) => rows[i].label), column("channel", (i) => rows[i].channel), column("n_events", (i) => rows[i].n),
        column("host_time", (i) => rows[i].total, { bar: (v) => v / most }), column("host_share", (i) => rows[i].total / this.range.high),
        column("host_mean", (i) => rows[i].total / rows[i].n), column("host_longest", (i) => rows[i].longest),
      ],
    });
  }
}
