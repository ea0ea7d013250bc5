// A heat map of how report B differs from A: what its options, legend and hints are.

import { h } from "../dom.js";
import { css, difference } from "../colours.js";
import { bytes, counted, percent, signed } from "../format.js";

const SHARES = [-1, -0.6, -0.3, 0, 0.3, 0.6, 1];

// null without another report; `whyNot` where tiles cannot be paired.
export async function heatDifference(context, kind) {
  if (!context.other) return null;
  const { facts, columns } = await context.load(`difference/${context.other.report}`);
  return new HeatDifference(context, kind, facts, columns);
}

class HeatDifference {
  constructor(context, kind, facts, columns) {
    Object.assign(this, { context, kind, facts, whyNot: facts.why_not, changes: columns.change });
  }

  // Options of a HeatMap, besides those of report A's own.
  options(phase) {
    if (this.whyNot) return {};
    const prefix = `difference/${this.context.other.report}/`;
    return { mode: `difference ${phase}`, load: (name) => this.context.load(name.replace("heat/", prefix)) };
  }

  title(text) {
    return this.whyNot ? text : `${text}, B − A`;
  }

  // −1 … 1 of a share of a block's cell.
  valueOf(share) {
    return (Math.round(share * 63) - this.facts.middle) / this.facts.middle;
  }

  describe(cell) {
    if (this.kind === "live") return [["temporary, about", signed(this.valueOf(cell.compute) * this.facts.largest_live, bytes)]];
    return [["compute, B − A", signed(this.valueOf(cell.compute), percent)], ["exchange, B − A", signed(this.valueOf(cell.exchange), percent)]];
  }

  legend() {
    if (this.whyNot) return h("p.note", {}, `This shows A only: ${this.whyNot}, so tiles cannot be paired. Side by side shows both.`);
    const full = this.kind === "live" ? bytes(this.facts.largest_live) : "100 % of A's time";
    return this.scale(full);
  }

  // Shades from less to more, and what the strongest means.
  scale(full) {
    const { n_alone: n } = this.facts, alone = n ? ` ${counted(n, "step")} of A ${n === 1 ? "has" : "have"} no partner in B.` : "";
    return h("ul.legend.heat-legend", {}, h("li", {}, "less in B", h("span.shades", {}, SHARES.map((share) => h("i", { style: { background: css(difference(share)) } }))), "more in B"),
      h("li", {}, `full colour: ${full}.${alone}`));
  }
}
