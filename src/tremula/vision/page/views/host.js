// Host: what the host did and when, on one clock with the device.

import { card, h } from "../dom.js";
import { legend } from "../parts/chart.js";
import { Lanes } from "../parts/lanes.js";
import { Range } from "../parts/range.js";
import { Table } from "../parts/table.js";
import { SERIES, colour } from "../colours.js";
import { duration, percent, whole } from "../format.js";

export async function hostView(context) {
  const [host, overview] = await Promise.all([context.load("host"), context.load("overview")]);
  if (!host.facts.found) {
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
      host, range: this.range, device: (...all) => this.paintRun(...all), filter: (i) => !this.words || this.label(i).toLowerCase().includes(this.words),
      onpick: (i) => i !== null && i !== undefined && this.zoomTo(i),
    });
    const search = h("input.search", { type: "search", placeholder: "Find events…", "aria-label": "Find", oninput: (event) => {
      this.words = event.target.value.toLowerCase();
      this.lanes.draw();
    } });
    const table = this.sums();
    const shown = columns.start_us.length < facts.n_events ? `longest ${whole(columns.start_us.length)} of ${whole(facts.n_events)} events` : `${whole(facts.n_events)} events`;
    this.element = h("div", {},
      card("Host and device", [search, h("span.status", {}, `${shown}, ${facts.files.length} trace(s)`), h("div.spring"), h("span.status", {}, "wheel zooms, drag moves, a click goes to an event, 0 resets")],
        this.lanes.element, legend(facts.channels.map((name, i) => ({ name, colour: SERIES[i % SERIES.length] })))),
      card("By event", [h("div.spring"), table.tools], table.element));
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

  // The device's phases inside one run, from the overview of its trace.
  paintRun(pen, run, left, right, top, tall) {
    const { columns, facts } = this.overview, k = facts.n_ipus;
    const scale = (right - left) / Math.max(1, run.cycles_to - run.cycles_from);
    for (let i = 0; i < (columns.entry?.length ?? 0) * k; i += k) {
      if (columns.end[i] <= run.cycles_from || columns.begin[i] >= run.cycles_to) continue;
      const x = left + (columns.begin[i] - run.cycles_from) * scale, wide = Math.max(0.7, (columns.end[i] - columns.begin[i]) * scale);
      const total = Math.max(1, columns.end[i] - columns.begin[i]);
      let y = top + tall;
      for (const name of ["sync", "exchange", "compute"]) {
        const size = (tall * columns[name][i]) / total;
        pen.fillStyle = colour(name);
        pen.fillRect(x, y - size, wide, size);
        y -= size;
      }
    }
  }

  sums() {
    const { columns, facts } = this.host, found = new Map();
    columns.start_us.forEach((_, i) => {
      const key = `${columns.channel[i]}/${columns.label[i]}`;
      const row = found.get(key) ?? { label: facts.labels[columns.label[i]], channel: facts.channels[columns.channel[i]], n: 0, total: 0, longest: 0 };
      const length = Math.max(0, columns.duration_us[i]);
      row.n += 1;
      row.total += length;
      row.longest = Math.max(row.longest, length);
      found.set(key, row);
    });
    const rows = [...found.values()], most = Math.max(1e-9, ...rows.map((row) => row.total));
    return new Table({
      count: rows.length, noun: "kinds of events", label: "Events", sort: [3, true], height: 340, filter: (i) => `${rows[i].label} ${rows[i].channel}`,
      columns: [
        { title: "Event", isText: true, get: (i) => rows[i].label },
        { title: "Channel", isText: true, width: "minmax(100px, 1fr)", get: (i) => rows[i].channel },
        { title: "Times", get: (i) => rows[i].n, show: whole },
        { title: "Together", get: (i) => rows[i].total, show: (v) => duration(v / 1e6), bar: (v) => v / most },
        { title: "Of the trace", get: (i) => rows[i].total / this.range.high, show: percent },
        { title: "Mean", get: (i) => rows[i].total / rows[i].n, show: (v) => duration(v / 1e6) },
        { title: "Longest", get: (i) => rows[i].longest, show: (v) => duration(v / 1e6) },
      ],
    });
  }
}
