// A table of any length: only visible rows are in the page. It sorts, filters and takes arrow keys;
// columns can be dragged wider, hidden, and saved as CSV.

import { h, icon, menu, onSize, perFrame, replace } from "../dom.js";
import { COLUMNS_ICON, SAVE_ICON, saveFile } from "../save.js";
import { Columns } from "./table_columns.js";
import { scopesOf } from "../quantities.js";

const ROW = 30;
let nTables = 0;

// columns: [{key (of a quantity), title, get(row), show(value, row), isText, isExtra, bar, colour, tone(value, row), about}]; extra ones are hidden at first
// options: count, columns, sort: [column, isDown], filter(row) → text, onpick(row, event), chosen, isChosen(row), label, height
export class Table {
  constructor(options) {
    this.options = options;
    this.id = `table${nTables++}`;
    this.sorting = options.sort ?? [0, false];
    this.words = "";
    this.input = options.filter && h("input.search", {
      type: "search", placeholder: options.placeholder ?? "Filter…", "aria-label": `Filter ${options.label}`,
      oninput: (event) => {
        this.words = event.target.value.toLowerCase();
        this.arrange();
      },
    });
    this.status = h("span.status", { role: "status" });
    this.head = h("div.row.head", { role: "row", onkeydown: (event) => this.headKey(event) });
    this.body = h("div.rows", { role: "rowgroup" });
    this.space = h("div.space", { role: "presentation" }, this.body);
    this.scroll = h("div.scroll", {
      tabIndex: 0, role: "grid", "aria-label": options.label, onscroll: () => this.draw(),
      onkeydown: (event) => this.key(event), style: { maxHeight: `${options.height ?? 420}px` },
    }, this.head, this.space);
    this.scopes = h("p.scopes", { hidden: true });
    this.element = h("div.table", {}, this.scroll, this.scopes);
    this.tools = h("div.tools", {}, this.input, this.status, this.buttons());
    this.columns = new Columns(options, this.element);
    this.draw = perFrame(() => this.paint());
    onSize(this.scroll, () => {
      this.columns.apply();
      this.paint();
    });
    this.layout();
    this.arrange();
  }

  buttons() {
    const { label } = this.options;
    return h("span.table-buttons", {},
      h("button.ghost.small", { type: "button", title: "Columns", "aria-label": `Columns of ${label}`, "aria-haspopup": "menu", onclick: (event) => this.chooser(event.currentTarget) }, icon(COLUMNS_ICON)),
      h("button.ghost.small", { type: "button", title: "Save as CSV", "aria-label": `Save ${label} as CSV`, onclick: () => this.save() }, icon(SAVE_ICON)));
  }

  chooser(button) {
    menu(button, (close) => [
      this.options.columns.map((column) => h("label", {}, h("input", {
        type: "checkbox", checked: this.columns.isShown(column), disabled: column === this.options.columns[0],
        onchange: (event) => {
          this.columns.show(column, event.target.checked);
          this.layout();
          this.draw();
        },
      }), h("span", {}, column.title), column.about && h("small", {}, column.about))),
      h("button.plain", {
        type: "button",
        onclick: () => {
          this.columns.forget();
          this.layout();
          this.draw();
          close();
        },
      }, "As it was"),
    ]);
  }

  // What is listed, in its order, with all digits.
  save() {
    const shown = this.columns.shown();
    const lines = [shown.map((column) => column.title), ...this.order.map((row) => shown.map((column) => column.get(row)))];
    saveFile(`${this.options.label.toLowerCase().replace(/\W+/g, "-")}.csv`, new Blob([lines.map((line) => `${line.map(quoted).join(",")}\n`).join("")], { type: "text/csv" }));
  }

  layout() {
    const shown = this.columns.shown(), all = this.options.columns;
    if (all[this.sorting[0]] && !shown.includes(all[this.sorting[0]])) this.columns.show(all[this.sorting[0]], true);
    this.columns.apply();
    replace(this.head, this.columns.shown().map((column, at) => {
      const number = all.indexOf(column), isSorted = this.sorting[0] === number;
      return h(`div.cell${column.isText ? ".text" : ""}`, {
        role: "columnheader", "data-quantity": column.key, "aria-colindex": at + 1, "aria-sort": !isSorted ? "none" : this.sorting[1] ? "descending" : "ascending",
      }, h("button", { type: "button", title: column.about ?? column.title, tabIndex: isSorted || (this.sorting[0] < 0 && at === 0) ? 0 : -1, onclick: () => this.sort(number) }, column.title),
      h("i.grip", {
        title: "Drag to resize, double-click to fit", "aria-hidden": "true", onpointerdown: (event) => this.drag(event, column),
        ondblclick: () => this.columns.fit(column, this.order),
      }));
    }));
    this.scroll.setAttribute("aria-colcount", this.columns.shown().length);
    this.paintScopes();
  }

  // What the numbers are of, where that differs from column to column.
  paintScopes() {
    const scopes = scopesOf(this.columns.shown());
    this.scopes.hidden = scopes.length < 2;
    replace(this.scopes, scopes.map(([of, titles]) => h("span", {}, h("b", {}, of), ` ${titles.join(", ")}`)));
  }

  drag(event, column) {
    const grip = event.currentTarget, from = event.clientX, width = grip.parentElement.offsetWidth;
    const move = (at) => this.columns.resize(column, width + at.clientX - from);
    grip.setPointerCapture(event.pointerId);
    grip.addEventListener("pointermove", move);
    grip.addEventListener("pointerup", () => grip.removeEventListener("pointermove", move), { once: true });
    event.preventDefault();
  }

  // Left and right go from title to title, with Shift they resize.
  headKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const cells = [...this.head.children], at = cells.findIndex((cell) => cell.contains(event.target));
    if (!step || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.shiftKey) this.columns.resize(this.columns.shown()[at], cells[at].offsetWidth + 16 * step);
    else cells[(at + step + cells.length) % cells.length].querySelector("button").focus();
  }

  sort(column) {
    const [now, isDown] = this.sorting, hadFocus = this.head.contains(document.activeElement);
    this.sorting = [column, now === column ? !isDown : !this.options.columns[column].isText];
    this.layout();
    this.arrange();
    if (hadFocus) this.head.querySelector("[tabindex='0']")?.focus();
  }

  update(options) {
    Object.assign(this.options, options);
    if (options.columns) this.columns = new Columns(this.options, this.element);
    if (options.columns || options.count !== undefined) this.layout();
    if (options.count !== undefined || options.columns) this.arrange();
    else this.draw();
  }

  arrange() {
    const { count, columns, filter } = this.options;
    const [by, isDown] = this.sorting;
    let rows = Array.from({ length: count }, (_, i) => i);
    if (this.words && filter) rows = rows.filter((row) => filter(row).toLowerCase().includes(this.words));
    const column = columns[by];
    if (column && !(this.options.isOrdered && by === 0 && !isDown)) {
      const values = new Map(rows.map((row) => [row, column.get(row)]));
      const sign = isDown ? -1 : 1;
      rows.sort((a, b) => sign * compare(values.get(a), values.get(b)) || a - b);
    }
    this.order = rows;
    const all = count.toLocaleString("en-GB"), { noun = "rows" } = this.options;
    this.status.textContent = `${rows.length === count ? all : `${rows.length.toLocaleString("en-GB")} of ${all}`} ${count === 1 ? noun.replace(/^kinds/, "kind").replace(/ies$/, "y").replace(/s$/, "") : noun}`;
    this.scroll.setAttribute("aria-rowcount", rows.length + 1);
    this.space.style.height = `${rows.length * ROW}px`;
    this.draw();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - 4);
    const last = Math.min(this.order.length, first + Math.ceil(this.scroll.clientHeight / ROW) + 8);
    const rows = this.order.slice(first, last), shown = this.columns.shown();
    this.columns.grow(rows);
    this.body.style.transform = `translateY(${first * ROW}px)`;
    replace(this.body, rows.map((row, i) => h("div.row", {
      role: "row", id: `${this.id}-${row}`, "aria-rowindex": first + i + 2, "aria-selected": String(this.isChosen(row)), onclick: (event) => this.pick(row, event),
    }, shown.map((column) => cell(column, row)))));
    const isThere = rows.includes(this.options.chosen);
    this.scroll[isThere ? "setAttribute" : "removeAttribute"]("aria-activedescendant", `${this.id}-${this.options.chosen}`);
    if (!this.order.length) replace(this.body, h("p.empty", {}, "Nothing here."));
  }

  isChosen(row) {
    return this.options.isChosen?.(row) ?? row === this.options.chosen;
  }

  pick(row, event) {
    this.options.chosen = row;
    this.draw();
    this.options.onpick?.(row, event);
  }

  // Scrolls to a row without picking it.
  reveal(row) {
    const at = this.order.indexOf(row);
    this.options.chosen = row;
    if (at >= 0) {
      const top = at * ROW, { scrollTop, clientHeight } = this.scroll;
      if (top < scrollTop || top > scrollTop + clientHeight - 3 * ROW) this.scroll.scrollTop = top - clientHeight / 3;
    }
    this.draw();
  }

  key(event) {
    const n = this.order.length;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -n, End: n }[event.key];
    if (!step || !n || event.target !== this.scroll) return;
    event.preventDefault();
    event.stopPropagation();
    const now = this.order.indexOf(this.options.chosen);
    const row = this.order[Math.max(0, Math.min(n - 1, now + step))];
    this.pick(row, event);
    this.reveal(row);
  }
}

function compare(a, b) {
  if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b));
  return (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b);
}

// A field of a CSV file. Spreadsheets would compute text that looks like a formula.
function quoted(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function cell(column, row) {
  const value = column.get(row);
  const content = column.show ? column.show(value, row) : String(value);
  const bar = column.bar && h("i.bar", {
    style: { width: `calc((100% - 8px) * ${Math.max(0, Math.min(1, column.bar(value, row) || 0))})`, background: column.colour ?? "" },
  });
  const tone = column.tone?.(value, row);
  // A path that does not fit shows its end: beginnings are what names have in common.
  const isPath = column.isText && typeof content === "string" && content.includes("/");
  return h(`div.cell${column.isText ? ".text" : ""}${isPath ? ".path" : ""}${tone ? `.${tone}` : ""}`, {
    role: "gridcell", title: column.isText && typeof content === "string" ? content : undefined,
  }, bar, content instanceof Node ? content : h("span", {}, content));
}
