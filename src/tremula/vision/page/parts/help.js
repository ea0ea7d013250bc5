// What the keys do, in a dialog.

import { h } from "../dom.js";

const KEYS = [
  ["The page", [["g  /", "go to a tile, a step, a name or a view"], ["1 … 9, 0", "the views, in the order of the list"], ["p", "pin what is shown, with a note; pins are part of the link"], ["d", "light or dark"], ["t", "textures besides colours"], ["Escape", "select nothing"], ["?", "this list"]]],
  ["Charts", [["← →", "the neighbouring tile, step or point"], ["Shift ← →", "move along"], ["+  −", "closer, to what is selected if anything is; farther"], ["0", "everything"], [",  .", "in a timeline or among stages: the step or box before, the next; ↑ ↓ another chip or stage"], ["Shift drag", "in the timeline: mark an area and add it up; a drag along its axis marks all chips"], ["s", "save the chart as a picture"], ["Shift click", "more than one tile, in Memory"]]],
  ["Tables", [["↑ ↓ Page ↑ ↓", "from row to row"], ["Home  End", "first, last row"], ["← →", "from title to title"], ["Enter", "sort by this column"], ["Shift ← →", "narrower, wider"]]],
  ["SQL", [["Ctrl Enter", "run the query"]]],
];

export function showHelp() {
  const dialog = h("dialog.help", { "aria-label": "Keys", onclose: () => dialog.remove(), onclick: (event) => event.target === dialog && dialog.close() },
    h("header", {}, h("h2", {}, "Keys"), h("div.spring"), h("button.ghost.small", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "×")),
    h("div.keys", {}, KEYS.map(([title, rows]) => h("section", {}, h("h3", {}, title), h("dl", {}, rows.map(([keys, what]) => [h("dt", {}, keys.split(/\s{2,}/).map((key) => h("kbd", {}, key))), h("dd", {}, what)]))))));
  document.body.append(dialog);
  dialog.showModal();
}
