// A line above the views that says a newer report was written, and shows it.

import { h, replace } from "../dom.js";
import { news } from "../data.js";

const EVERY_MS = 2000;

export class Banner {
  constructor(problem) {
    this.element = h("div.banner", { role: "status", hidden: !problem }, problem && `A newer report was written, but it cannot be shown: ${problem}`);
    this.problem = problem;
    this.timer = setInterval(() => this.look(), EVERY_MS);
    document.addEventListener("visibilitychange", () => this.look());
  }

  async look() {
    if (document.hidden) return;
    const result = await news();
    if (!result) return;
    const key = String(result.stamp);
    if (this.problem && this.dismissed === undefined) this.dismissed = key; // the one that cannot be shown
    if (key === this.dismissed || !(result.newer.length || result.isOld)) return;
    if (result.is_watching) location.reload();
    else if (key !== this.shown) this.show(key, result.newer);
  }

  // "Later" holds until yet another one is written.
  show(key, newer) {
    this.shown = key;
    const [subject, verb] = newer.length > 1 ? ["Newer reports of", "were"] : ["A newer report of", "was"];
    this.element.hidden = false;
    replace(this.element, h("span", {}, newer.length ? `${subject} ${newer.join(", ")} ${verb} written.` : "Another window shows a newer report."),
      h("button.plain", { type: "button", onclick: () => location.reload() }, "Show it"),
      h("button.ghost.small", { type: "button", "aria-label": "Later", title: "Later", onclick: () => this.dismiss(key) }, "×"));
  }

  dismiss(key) {
    this.dismissed = key;
    this.element.hidden = true;
  }
}
