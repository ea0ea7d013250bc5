// What is in the marked area of the timeline, in numbers.

import { h, replace } from "../dom.js";
import { colour, phasesOn } from "../colours.js";
import { bytes, duration, percent, whole } from "../format.js";
import { legend } from "./chart.js";
import { areaSums } from "./marked_area.js";

// options: trace, onclear(), onzoom(area)
export class AreaCard {
  constructor(options) {
    this.options = options;
    this.element = h("section.card.marked-area", { hidden: true, "aria-live": "polite" });
  }

  async show(area) {
    this.area = area;
    this.element.hidden = !area;
    if (!area) return;
    const { trace } = this.options, sums = await areaSums(trace, area).catch((error) => ({ error }));
    if (this.area !== area) return; // another one since
    const { clock_hz: clock, n_ipus: n } = trace.overview.facts, span = area.to - area.from, nChips = area.last - area.first + 1;
    const head = h("header", {}, h("h2", {}, "Marked area"), h("span.status", {}, `cycles ${whole(area.from)} to ${whole(area.to)}${nChips === n ? n > 1 ? `, all ${n} chips` : "" : nChips > 1 ? `, chips ${area.first} to ${area.last}` : `, chip ${area.first}`}`), h("div.spring"),
      h("button.plain", { type: "button", onclick: () => this.options.onzoom(area) }, "Zoom to it"), h("button.plain", { type: "button", onclick: () => this.options.onclear() }, "Clear"));
    if (sums.error) {
      replace(this.element, head, h("p.note", {}, `It cannot be added up: ${sums.error.message}`));
      return;
    }
    const parts = phasesOn(n).map(({ key, name, tone, about }) => ({ name, about, tone, colour: colour(tone), cycles: sums.phases[key] }));
    const facts = [
      ["Cycles", `${whole(span)}, ${duration(span / clock)}${nChips > 1 ? `; ${whole(sums.all)} on ${nChips} chips together` : ""}`],
      ["Executions of steps", sums.nExecutions === undefined ? "more than a million: mark a shorter stretch" : whole(sums.nExecutions)],
      sums.nSteps !== undefined && ["Different steps", whole(sums.nSteps)],
      sums.nBytes !== undefined && ["Bytes exchanged", `${bytes(sums.nBytes)} (${whole(sums.nBytes)} bytes) received by tiles`],
    ].filter(Boolean);
    replace(this.element, head, h("dl.facts", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      h("div.shares", { role: "img", "aria-label": parts.map((p) => `${p.name} ${whole(p.cycles)} cycles`).join(", ") }, parts.map((p) => h(`i.tone-${p.tone}`, { style: { width: `${(100 * p.cycles) / sums.all}%`, backgroundColor: p.colour } }))),
      legend(parts.map((p) => ({ ...p, value: `${whole(p.cycles)} (${percent(p.cycles / sums.all)})` }))));
    this.element.dataset.ready = `${area.from}-${area.to}`;
  }
}
