// SQL over the report: tables to look at, examples, a query and its answer. It only reads.

import { card, h, replace } from "../dom.js";
import { Table } from "../parts/table.js";
import { duration, whole } from "../format.js";
import { current } from "../state.js";
import { aboutOf } from "../quantities.js";

// Columns whose values can be selected, and what they select.
const LINKS = { step: "step", step_id: "step", tile: "tile", critical_tile: "tile", variable: "variable" };

let lastQuery; // for coming back from another view

export async function sqlView(context) {
  if (context.isExported) {
    return { element: h("div", {}, card("SQL", null, h("p.note", {}, "An exported page has no database to ask. Open the report itself, `tremula view REPORT`, to query it here; every table can be saved as CSV."))) };
  }
  const { facts } = await context.load("sql");
  const view = new SqlView(context, facts);
  return { element: view.element, select: (state) => view.select(state) };
}

class SqlView {
  constructor(context, facts) {
    Object.assign(this, { context, facts });
    this.input = h("textarea.query", {
      rows: 8, spellcheck: false, "aria-label": "SQL", value: current().q ?? lastQuery ?? facts.examples[0].sql,
      onkeydown: (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        this.ask();
      },
    });
    this.answer = h("section.card", {}, h("p.note", {}, "Choose an example, or write a SELECT and run it."));
    this.element = h("div", {},
      h("div.grid", {},
        h("section.card.two-thirds", {}, h("header", {}, h("h2", {}, "SQL over this report"), h("div.spring"), h("span.status", {}, "reads only, 2 s and 10,000 rows at most")),
          this.input, h("div.query-tools", {}, h("button.primary", { type: "button", onclick: () => this.ask() }, "Run", h("kbd", {}, "Ctrl Enter")),
            facts.examples.map(({ title, sql }) => h("button.plain", { type: "button", onclick: () => this.take(sql) }, title)))),
        h("section.card.third.schema", {}, h("header", {}, h("h2", {}, "Tables")), facts.tables.map((table) => this.describe(table)))),
      this.answer);
  }

  // A table of the report; clicking a name writes it into the query.
  describe({ name, about, n_rows: nRows, columns }) {
    return h("details", {}, h("summary", { title: about }, h("code", {}, name), h("small", {}, ` ${whole(nRows)}`)),
      h("p.note", {}, `A row is ${about}.`),
      h("div.columns", {}, columns.map((column) => h("button.plain", { type: "button", title: column.type.toLowerCase(), onclick: () => this.write(column.name) }, column.name))));
  }

  write(text) {
    const { selectionStart: at, selectionEnd: end } = this.input;
    this.input.setRangeText(text, at, end, "end");
    this.input.focus();
  }

  take(sql) {
    this.input.value = sql;
    this.ask();
  }

  ask() {
    const q = this.input.value.trim();
    if (q === this.query) this.fetch(q);
    else this.context.select({ q });
  }

  select({ q }) {
    if (!q || q === this.query) return;
    this.input.value = q;
    this.fetch(q);
  }

  async fetch(q) {
    this.query = lastQuery = q;
    replace(this.answer, h("p.note", { role: "status" }, "Asking…"));
    try {
      const { facts } = await this.context.load(`sql/${q}`);
      if (this.query === q) this.show(facts);
    } catch (error) {
      if (this.query === q) replace(this.answer, h("p.failure", { role: "alert" }, error.message.split("\n").map((line) => h("div", {}, line))));
    }
  }

  show({ names, rows, is_cut: isCut, seconds }) {
    const isNumber = names.map((_, k) => rows.every((row) => row[k] === null || typeof row[k] === "number"));
    const table = new Table({
      count: rows.length, noun: isCut ? "rows, and more that are not listed" : "rows", label: "Answer", height: 520, isOrdered: true,
      sort: [-1, false], filter: (i) => rows[i].join(" "), onpick: (i) => this.follow(names, rows[i]),
      columns: names.map((name, k) => ({ key: "answer", title: name, about: aboutOf("answer"), isText: !isNumber[k], get: (i) => rows[i][k] ?? (isNumber[k] ? NaN : ""), show: (v, i) => shown(rows[i][k]) })),
    });
    replace(this.answer, h("header", {}, h("h2", {}, "Answer"), h("span.status", {}, duration(Math.max(0.001, seconds))), h("div.spring"), table.tools),
      rows.length ? table.element : h("p.note", {}, "No row."));
  }

  // A row's step, tile or variable becomes the selection that other views show.
  follow(names, row) {
    const patch = {};
    names.forEach((name, k) => {
      if (LINKS[name] && Number.isInteger(row[k])) patch[LINKS[name]] = row[k];
    });
    if (Object.keys(patch).length) this.context.select(patch);
  }
}

function shown(value) {
  if (value === null) return "NULL";
  return Number.isInteger(value) ? whole(value) : String(value);
}
