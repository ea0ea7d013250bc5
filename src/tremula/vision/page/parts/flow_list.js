// Producers and consumers of the chosen execution: arrows on the timeline, and buttons that lead to them.

import { h, replace } from "../dom.js";
import { whole } from "../format.js";
import { Flows } from "./flows.js";

const MOST_NAMED = 5;

// options: context, trace, timeline, range, select(patch)
export class FlowList {
  constructor(options) {
    this.options = options;
    this.element = h("div.flows", { role: "status" });
  }

  // Shows those of a step's execution: the chosen entry, or the first in sight.
  async show(step, chosen) {
    const { context, trace, timeline } = this.options, mine = this.latest = {};
    if (step === undefined) return this.draw(null);
    this.flows ??= await Promise.all(["dataflow", "variables"].map(context.load)).then(([pack, variables]) => new Flows(trace, pack, variables)).catch(() => null);
    if (this.latest !== mine) return;
    if (!this.flows) return this.draw(null);
    const entry = chosen !== undefined && trace.stepOf(chosen) === step ? chosen : this.inSight(step), flows = entry === null ? null : this.flows.find(entry);
    this.draw(flows && { ...flows, entry }, this.flows.whyNot);
    timeline.flow(flows && { ...flows, entry });
  }

  inSight(step) {
    const { trace, range } = this.options;
    let first = null;
    for (const part of trace.parts.values()) {
      for (let i = 0; part && i < part.n; i++) {
        if (part.step[i] !== step) continue;
        const [from, to] = part.spanOf(i);
        if (from < range.to && to > range.from) return part.first + i;
        first ??= part.first + i;
      }
    }
    return first;
  }

  draw(flows, whyNot) {
    const { timeline } = this.options;
    this.element.dataset.flows = flows ? `${flows.producers.length},${flows.consumers.length}` : "";
    if (!flows) {
      timeline.flow(null);
      replace(this.element, whyNot && h("p.note", {}, `Producers and consumers follow from the tile program: ${whyNot}`));
      return;
    }
    replace(this.element, this.row("Made by", flows.producers, "nothing it reads was written before, as far as is loaded"), this.row("Used by", flows.consumers, "nothing reads what it writes, as far as is loaded"));
  }

  row(title, list, none) {
    const { trace, select } = this.options;
    const buttons = list.slice(0, MOST_NAMED).map(({ entry, step, variables }) => h("button.plain", {
      type: "button", title: variables.map((variable) => this.flows.nameOf(variable)).slice(0, 8).join(", "), onclick: () => select({ step, entry }),
    }, `${trace.path(step)} · ${this.flows.nameOf(variables[0])}${variables.length > 1 ? ` and ${whole(variables.length - 1)} more` : ""}`));
    const rest = list.length - buttons.length;
    return h("div.flow-row", {}, h("small", {}, title), list.length ? buttons : h("span.note", {}, none), rest > 0 && h("span.note", {}, `and ${whole(rest)} more`));
  }
}
