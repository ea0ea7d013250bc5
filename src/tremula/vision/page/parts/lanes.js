// Lanes of events on the host's clock: nested spans, instants, numbers, and the device below.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { SERIES, colour } from "../colours.js";
import { steer } from "./range.js";
import { duration, shortDuration, ticks, whole } from "../format.js";

const LEFT = 150, AXIS = 24, ROW = 20, GAP = 12, GRAPH = 72, DEVICE = 30;

// options: host (pack), range, device(pen, x, top, height) draws chips; onpick(i), filter(i)
export class Lanes {
  constructor(options) {
    this.options = options;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": "Host events over time" });
    this.element = h("div.chart.lanes", {}, this.canvas);
    this.draw = perFrame(() => this.paint());
    this.arrange();
    onSize(this.element, (width) => {
      this.width = width;
      this.paint();
    });
    options.range.listen(() => this.draw());
    steer(this.canvas, options.range, LEFT, {
      onpick: (event) => this.options.onpick?.(this.eventAt(event)),
      onhover: (event, time) => {
        this.cursorAt = time;
        const found = time === null ? null : this.eventAt(event);
        hint(event, found === null || found === undefined ? null : this.describe(found));
        this.draw();
      },
    });
  }

  // Lanes from top to bottom: threads with as many rows as they nest, graphs, chips.
  arrange() {
    const { facts, columns } = this.options.host;
    const rows = facts.lanes.map(() => 1);
    columns.depth.forEach((depth, i) => { rows[columns.lane[i]] = Math.max(rows[columns.lane[i]], depth + 1); });
    let top = AXIS;
    this.threads = facts.lanes.map((name, i) => {
      const lane = { name, top, rows: rows[i], events: [] };
      top += rows[i] * ROW + GAP;
      return lane;
    });
    columns.lane.forEach((lane, i) => this.threads[lane].events.push(i));
    const names = [...new Set(facts.graphs.map((graph) => graph.graph))];
    this.graphs = names.map((name) => {
      const graph = { name, top, series: facts.graphs.flatMap((g, i) => (g.graph === name ? [i] : [])) };
      top += GRAPH + GAP;
      return graph;
    });
    this.deviceTop = top;
    if (facts.runs.length) top += DEVICE + GAP;
    this.height = top;
    this.element.style.height = `${top}px`;
  }

  x(time) {
    const { range } = this.options;
    return LEFT + ((time - range.from) / range.span) * (this.width - LEFT);
  }

  paint() {
    if (!this.width) return;
    const pen = sharpen(this.canvas, this.width, this.height);
    pen.font = "11px " + colour("font");
    pen.textBaseline = "middle";
    this.paintAxis(pen);
    for (const lane of this.threads) this.paintThread(pen, lane);
    for (const graph of this.graphs) this.paintGraph(pen, graph);
    this.paintDevice(pen);
    if (this.cursorAt !== null && this.cursorAt !== undefined) {
      pen.strokeStyle = colour("muted");
      pen.beginPath();
      pen.moveTo(this.x(this.cursorAt), AXIS);
      pen.lineTo(this.x(this.cursorAt), this.height);
      pen.stroke();
    }
  }

  paintAxis(pen) {
    const { range } = this.options;
    for (const time of ticks(range.from, range.to, this.width / 150)) {
      const x = Math.round(this.x(time)) + 0.5;
      if (x < LEFT) continue;
      pen.strokeStyle = colour("line");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.fillStyle = colour("muted");
      pen.textAlign = "center";
      pen.fillText(time === 0 ? "0" : shortDuration(time / 1e6), x, 9);
    }
  }

  name(pen, text, top) {
    pen.fillStyle = colour("muted");
    pen.textAlign = "left";
    pen.fillText(text.length > 24 ? `${text.slice(0, 23)}…` : text, 0, top + ROW / 2 - 1);
  }

  inside(pen, draw) {
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width - LEFT, this.height);
    pen.clip();
    draw();
    pen.restore();
  }

  paintThread(pen, lane) {
    const { columns, facts } = this.options.host;
    this.name(pen, lane.name, lane.top);
    this.inside(pen, () => {
      const drawn = new Float64Array(lane.rows).fill(-1e9);
      for (const i of lane.events) {
        const left = this.x(columns.start_us[i]), length = columns.duration_us[i], row = columns.depth[i];
        const right = length < 0 ? left : this.x(columns.start_us[i] + length);
        if (right < LEFT || left > this.width || (length >= 0 && right <= drawn[row] + 0.6)) continue;
        const y = lane.top + row * ROW;
        pen.globalAlpha = this.options.filter(i) ? 1 : 0.15;
        pen.fillStyle = SERIES[columns.channel[i] % SERIES.length];
        if (length < 0) this.paintInstant(pen, left, y);
        else {
          const wide = Math.max(1, right - left - (right - left > 4 ? 1 : 0));
          pen.fillRect(left, y, wide, ROW - 3);
          drawn[row] = right;
          if (wide > 40) this.label(pen, facts.labels[columns.label[i]], Math.max(left, LEFT) + 5, y, wide - 8 - Math.max(0, LEFT - left));
        }
      }
      pen.globalAlpha = 1;
    });
  }

  paintInstant(pen, x, y) {
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + 4, y + 6);
    pen.lineTo(x, y + 12);
    pen.lineTo(x - 4, y + 6);
    pen.fill();
  }

  label(pen, text, x, y, wide) {
    const most = Math.floor(wide / 5.8);
    pen.fillStyle = "#fff";
    pen.textAlign = "left";
    pen.fillText(text.length > most ? (most > 3 ? `${text.slice(0, most - 1)}…` : "") : text, x, y + ROW / 2 - 1);
  }

  paintGraph(pen, graph) {
    const { columns, facts } = this.options.host;
    const values = graph.series.map((i) => columns[`series_${i}`]);
    let high = -Infinity, low = Infinity;
    for (const one of values) for (const v of one) { high = Math.max(high, v); low = Math.min(low, v); }
    low = Math.min(low, 0);
    const y = (v) => graph.top + GRAPH - 4 - ((v - low) / (high - low || 1)) * (GRAPH - 12);
    this.name(pen, `${graph.name}${facts.graphs[graph.series[0]].unit ? `, ${facts.graphs[graph.series[0]].unit}` : ""}`, graph.top);
    pen.textAlign = "right";
    pen.fillText(high.toPrecision(4), LEFT - 8, graph.top + 28);
    this.inside(pen, () => graph.series.forEach((i, k) => {
      const times = columns[`series_${i}_us`];
      pen.strokeStyle = SERIES[k % SERIES.length];
      pen.lineWidth = 1.5;
      pen.beginPath();
      values[k].forEach((v, j) => (j ? pen.lineTo(this.x(times[j]), y(v)) : pen.moveTo(this.x(times[j]), y(v))));
      pen.stroke();
    }));
  }

  // Device runs are drawn where the host waited for them; the trace inside is stretched to fit.
  paintDevice(pen) {
    const { facts } = this.options.host;
    if (!facts.runs.length) return;
    this.name(pen, "device", this.deviceTop);
    this.inside(pen, () => {
      for (const run of facts.runs) {
        const left = this.x(run.from), right = Math.max(left + 1, this.x(run.to));
        pen.fillStyle = colour("idle");
        pen.fillRect(left, this.deviceTop, right - left, DEVICE);
        this.options.device(pen, run, left, right, this.deviceTop, DEVICE);
      }
    });
  }

  eventAt(event) {
    const { columns } = this.options.host, { range } = this.options;
    const lane = this.threads.find((one) => event.offsetY >= one.top && event.offsetY < one.top + one.rows * ROW);
    if (!lane || event.offsetX < LEFT) return null;
    const row = Math.floor((event.offsetY - lane.top) / ROW);
    const time = range.from + ((event.offsetX - LEFT) / (this.width - LEFT)) * range.span;
    const slack = (4 / (this.width - LEFT)) * range.span;
    return lane.events.find((i) => columns.depth[i] === row && time >= columns.start_us[i] - slack
      && time <= columns.start_us[i] + Math.max(0, columns.duration_us[i]) + slack) ?? null;
  }

  describe(i) {
    const { columns, facts } = this.options.host;
    const length = columns.duration_us[i];
    return [facts.labels[columns.label[i]], ["channel", facts.channels[columns.channel[i]]],
      ["from", duration(columns.start_us[i] / 1e6)], ["takes", length < 0 ? "an instant" : duration(length / 1e6)], ["event", whole(i)]];
  }
}
