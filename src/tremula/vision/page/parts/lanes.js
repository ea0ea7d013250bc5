// Lanes of events on the host's clock: nested spans, instants, numbers, and the device below.

import { h, hint, onSize, perFrame, sharpen } from "../dom.js";
import { SERIES, colour, inkOn } from "../colours.js";
import { steer } from "./range.js";
import { counted, duration, shortDuration, ticks, whole } from "../format.js";

const LEFT = 150, AXIS = 24, ROW = 20, GAP = 14, GRAPH = 84, DEVICE = 22;
// What the numbers are that every trace has.
const ABOUT = {
  "host memory": "bytes of the process in memory", "host utilisation": "of all processors, by the process",
  loss: "mean of what a call returned",
};

// options: host (pack), range, clock (Hz of the device), onpick(i), filter(i)
export class Lanes {
  constructor(options) {
    this.options = options;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": "Host events" });
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
        hint(event, time === null ? null : this.toldAt(event, time));
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
    const nRuns = facts.runs.length;
    const description = `Host events over time: ${counted(facts.lanes.length, "thread")}, ${counted(facts.n_events, "event")}, ${counted(nRuns, "run")} of the device`;
    this.canvas.setAttribute("aria-label", description);
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
    if (facts.runs.length) top += DEVICE + GAP + 6;
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
          if (wide > 40) this.label(pen, facts.labels[columns.label[i]], Math.max(left, LEFT) + 5, y, wide - 8 - Math.max(0, LEFT - left), pen.fillStyle);
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

  label(pen, text, x, y, wide, ground) {
    const most = Math.floor(wide / 5.8);
    pen.fillStyle = inkOn(ground);
    pen.textAlign = "left";
    pen.fillText(text.length > most ? (most > 3 ? `${text.slice(0, most - 1)}…` : "") : text, x, y + ROW / 2 - 1);
  }

  // Numbers over time, with ticks in their unit; the axis begins at 0 unless that hides everything.
  paintGraph(pen, graph) {
    const { columns, facts } = this.options.host, unit = facts.graphs[graph.series[0]].unit;
    const scale = this.scaleOf(graph);
    this.name(pen, graph.name, graph.top);
    pen.textAlign = "right";
    for (const value of ticks(scale.low, scale.high, 3)) {
      const y = Math.round(scale.y(value)) + 0.5;
      pen.fillStyle = colour("muted");
      pen.fillText(`${Number(value.toPrecision(4)).toLocaleString("en-GB")}${unit && ` ${unit}`}`, LEFT - 8, y);
      pen.fillStyle = colour("line");
      pen.fillRect(LEFT, y, this.width - LEFT, 1);
    }
    this.inside(pen, () => graph.series.forEach((i, k) => {
      const times = columns[`series_${i}_us`], values = columns[`series_${i}`];
      pen.strokeStyle = pen.fillStyle = SERIES[k % SERIES.length];
      pen.lineWidth = 1.5;
      pen.beginPath();
      values.forEach((v, j) => (j ? pen.lineTo(this.x(times[j]), scale.y(v)) : pen.moveTo(this.x(times[j]), scale.y(v))));
      pen.stroke();
      if (values.length < 40) values.forEach((v, j) => pen.fillRect(this.x(times[j]) - 2, scale.y(v) - 2, 4, 4));
    }));
  }

  scaleOf(graph) {
    if (graph.scale) return graph.scale;
    let high = -Infinity, low = Infinity;
    for (const i of graph.series) for (const v of this.options.host.columns[`series_${i}`]) { high = Math.max(high, v); low = Math.min(low, v); }
    const { unit } = this.options.host.facts.graphs[graph.series[0]];
    if (low > 0 && (unit === "%" || low < high * 0.7)) low = 0;
    if (!(high > low)) [low, high] = [Math.min(0, low), high || 1];
    const y = (v) => graph.top + GRAPH - 4 - ((v - low) / (high - low)) * (GRAPH - 26);
    graph.scale = { low, high, y };
    return graph.scale;
  }

  // Runs where the host modelled them, hatched; inside each, what a device would need, to scale.
  paintDevice(pen) {
    const { facts } = this.options.host;
    if (!facts.runs.length) return;
    this.name(pen, "device runs", this.deviceTop);
    pen.fillStyle = colour("muted");
    pen.fillText("hatched: modelling", 0, this.deviceTop + ROW + 6);
    this.inside(pen, () => {
      for (const run of facts.runs) {
        const left = this.x(run.from), right = Math.max(left + 1, this.x(run.to));
        if (right < LEFT || left > this.width) continue;
        this.hatch(pen, left, right - left);
        const wide = Math.max(2, this.x(run.from + this.deviceUs(run)) - left);
        pen.fillStyle = colour("accent");
        pen.fillRect(left, this.deviceTop, wide, DEVICE);
        if (wide > 60) this.label(pen, duration(this.deviceUs(run) / 1e6), left + 5, this.deviceTop, wide - 8, colour("accent"));
      }
    });
  }

  deviceUs(run) {
    return ((run.cycles_to - run.cycles_from) / this.options.clock) * 1e6;
  }

  hatch(pen, left, wide) {
    const top = this.deviceTop;
    pen.fillStyle = colour("sunken");
    pen.fillRect(left, top, wide, DEVICE);
    pen.strokeStyle = colour("faint");
    pen.lineWidth = 0.5;
    pen.save();
    pen.beginPath();
    pen.rect(left, top, wide, DEVICE);
    pen.clip();
    pen.beginPath();
    const from = Math.max(left, LEFT) - DEVICE, to = Math.min(left + wide, this.width);
    for (let x = from - (from % 7); x < to; x += 7) {
      pen.moveTo(x, top + DEVICE);
      pen.lineTo(x + DEVICE, top);
    }
    pen.stroke();
    pen.restore();
    pen.strokeRect(left + 0.5, top + 0.5, Math.max(0, wide - 1), DEVICE - 1);
  }

  // What is under the pointer, in words; null for nothing.
  toldAt(event, time) {
    const hit = this.eventAt(event);
    if (hit !== null) return this.describe(hit);
    const graph = this.graphs.find((one) => event.offsetY >= one.top && event.offsetY < one.top + GRAPH);
    if (graph && event.offsetX >= LEFT) return this.describeGraph(graph, time);
    const isDevice = event.offsetY >= this.deviceTop && event.offsetY < this.deviceTop + DEVICE;
    const run = isDevice && this.options.host.facts.runs.find((one) => time >= one.from && time <= one.to);
    return run ? [`Run of ${run.name}`, ["on the device, modelled", duration(this.deviceUs(run) / 1e6)], ["modelling it took", duration((run.to - run.from) / 1e6)]] : null;
  }

  describeGraph(graph, time) {
    const { columns, facts } = this.options.host, unit = facts.graphs[graph.series[0]].unit;
    const rows = graph.series.map((i) => {
      const times = columns[`series_${i}_us`];
      let at = times.findIndex((t) => t > time) - 1;
      if (at < 0) at = time < times[0] ? 0 : times.length - 1;
      return [facts.graphs[i].name, `${columns[`series_${i}`][at].toPrecision(4)}${unit && ` ${unit}`}`];
    });
    return [`${graph.name}${ABOUT[graph.name] ? `: ${ABOUT[graph.name]}` : ""}`, ...rows];
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
