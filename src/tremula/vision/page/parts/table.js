// A table of any length: only visible rows are in the page. It sorts, filters and takes arrow keys.

import { h, onSize, perFrame, replace } from "../dom.js";

const ROW = 30, N_MEASURED = 60;

// columns: [{title, get(row), show(value, row), isText, width, bar, tone(value), title}]
// options: count, columns, sort: [column, isDown], filter(row) → text, onpick(row), chosen, label, height
export class Table {
  constructor(options) {
    this.options = options;
    this.sorting = options.sort ?? [0, false];
    this.words = "";
    this.input = options.filter && h("input.search", {
      type: "search", placeholder: options.placeholder ?? "Filter…", "aria-label": "Filter",
      oninput: (event) => {
        this.words = event.target.value.toLowerCase();
        this.arrange();
      },
    });
    this.status = h("span.status");
    this.head = h("div.row.head", { role: "row" });
    this.body = h("div.rows", { role: "presentation" });
    this.space = h("div.space", {}, this.body);
    this.scroll = h("div.scroll", {
      tabIndex: 0, role: "grid", "aria-label": options.label, onscroll: () => this.draw(),
      onkeydown: (event) => this.key(event), style: { maxHeight: `${options.height ?? 420}px` },
    }, this.head, this.space);
    this.element = h("div.table", {}, this.scroll);
    this.tools = h("div.tools", {}, this.input, this.status);
    this.draw = perFrame(() => this.paint());
    onSize(this.scroll, () => this.paint());
    this.layout();
    this.arrange();
  }

  layout() {
    const { columns } = this.options;
    const least = columns.map((c, i) => this.leastWidth(c, i));
    const widths = columns.map((c, i) => c.width ?? `minmax(${least[i]}px, ${c.isText ? 3 : 1}fr)`);
    this.element.style.setProperty("--columns", widths.join(" "));
    this.element.style.setProperty("--least", `${least.reduce((sum, width) => sum + width, 8)}px`);
    replace(this.head, columns.map((column, i) => h(`button.cell${column.isText ? ".text" : ""}`, {
      type: "button", role: "columnheader", title: column.about ?? column.title,
      "aria-sort": this.sorting[0] !== i ? "none" : this.sorting[1] ? "descending" : "ascending",
      onclick: () => this.sort(i),
    }, column.title)));
  }

  // In pixels: numbers are never cut off; names may be, and hovering shows them whole.
  leastWidth(column, place) {
    if (column.width) return parseInt(/\d+/.exec(column.width)[0], 10);
    const title = Math.ceil(6.7 * column.title.length) + 30;
    const step = Math.max(1, Math.floor(this.options.count / N_MEASURED)), lengths = [];
    for (let row = 0; row < this.options.count; row += step) {
      const value = column.get(row), content = column.show ? column.show(value, row) : value;
      lengths.push(content instanceof Node ? 12 : String(content).length);
    }
    const content = Math.ceil(8.2 * Math.max(4, ...lengths)) + 18;
    return Math.max(title, column.isText ? Math.min(content, place ? 110 : this.options.columns.length < 5 ? 150 : 200) : Math.min(content, 160));
  }

  sort(column) {
    const [now, isDown] = this.sorting;
    this.sorting = [column, now === column ? !isDown : !this.options.columns[column].isText];
    this.layout();
    this.arrange();
  }

  update(options) {
    Object.assign(this.options, options);
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
    const shown = rows.length === count ? count : `${rows.length} of ${count}`;
    this.status.textContent = `${shown.toLocaleString()} ${this.options.noun ?? "rows"}`;
    this.space.style.height = `${rows.length * ROW}px`;
    this.draw();
  }

  paint() {
    const { columns, chosen } = this.options;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - 4);
    const last = Math.min(this.order.length, first + Math.ceil(this.scroll.clientHeight / ROW) + 8);
    this.body.style.transform = `translateY(${first * ROW}px)`;
    replace(this.body, this.order.slice(first, last).map((row) => h("div.row", {
      role: "row", "aria-selected": String(row === chosen), onclick: () => this.pick(row),
    }, columns.map((column) => cell(column, row)))));
    if (!this.order.length) replace(this.body, h("p.empty", {}, "Nothing here."));
  }

  pick(row) {
    this.options.chosen = row;
    this.draw();
    this.options.onpick?.(row);
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
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 }[event.key];
    if (!step || !this.order.length) return;
    event.preventDefault();
    event.stopPropagation();
    const now = this.order.indexOf(this.options.chosen);
    const row = this.order[Math.max(0, Math.min(this.order.length - 1, now + step))];
    this.pick(row);
    this.reveal(row);
  }
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b);
}

function cell(column, row) {
  const value = column.get(row);
  const content = column.show ? column.show(value, row) : String(value);
  const bar = column.bar && h("i.bar", {
    style: { width: `${Math.max(0, Math.min(100, 100 * column.bar(value, row)))}%`, background: column.colour ?? "" },
  });
  const tone = column.tone?.(value, row);
  // A path that does not fit shows its end: beginnings are what names have in common.
  const isPath = column.isText && typeof content === "string" && content.includes("/");
  return h(`div.cell${column.isText ? ".text" : ""}${isPath ? ".path" : ""}${tone ? `.${tone}` : ""}`, {
    role: "gridcell", title: column.isText && typeof content === "string" ? content : undefined,
  }, bar, content instanceof Node ? content : h("span", {}, content));
}
