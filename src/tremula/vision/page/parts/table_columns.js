// Which columns of a table are shown and how wide they are: numbers are never cut, names get what is
// left, and what a user has changed is remembered.

import { remember, remembered } from "../dom.js";
import { colour } from "../colours.js";

const N_MEASURED = 60, PADDING = 18, HEAD_ROOM = 34;
const FIRST = { least: 300, most: 480 }, LATER = { least: 96, most: 230 };

let pen;

// In pixels, as the page writes it.
function textWidth(text, font) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${font} ${colour("font")}`;
  return Math.ceil(pen.measureText(text).width * 1.01);
}

export class Columns {
  constructor(options, element) {
    Object.assign(this, { options, element });
    this.key = `tremula-table:${options.label}`;
    const { hidden, widths } = remembered(this.key) ?? {};
    this.hidden = new Set(hidden ?? options.columns.filter((column) => column.isExtra).map((column) => column.title));
    this.widths = new Map(Object.entries(widths ?? {}));
    this.least = new Map();
  }

  shown() {
    return this.options.columns.filter((column) => this.isShown(column));
  }

  isShown(column) {
    return column === this.options.columns[0] || !this.hidden.has(column.title);
  }

  show(column, isShown) {
    this.hidden[isShown ? "delete" : "add"](column.title);
    this.keep();
  }

  resize(column, width) {
    this.widths.set(column.title, Math.round(Math.max(48, Math.min(1600, width))));
    this.keep();
    this.apply();
  }

  // As wide as the longest text of these rows.
  fit(column, rows) {
    this.resize(column, Math.max(headWidth(column), this.widest(column, rows.slice(0, 2000))));
  }

  forget() {
    this.widths.clear();
    this.hidden = new Set(this.options.columns.filter((column) => column.isExtra).map((column) => column.title));
    remember(this.key, undefined);
  }

  keep() {
    remember(this.key, { hidden: [...this.hidden], widths: Object.fromEntries(this.widths) });
  }

  apply() {
    let sum = 8;
    // In a narrow card names make room for numbers.
    this.narrow = Math.min(1, Math.max(0.45, (this.element.clientWidth || 1150) / 1150));
    const parts = this.shown().map((column, place) => {
      const own = this.widths.get(column.title), [least, share] = own ? [own, 0] : this.room(column, place);
      sum += least;
      return own ? `${own}px` : `minmax(${least}px, ${share}fr)`;
    });
    this.element.style.setProperty("--columns", parts.join(" "));
    this.element.style.setProperty("--least", `${sum}px`);
  }

  // [least pixels, share of what is left]
  room(column, place) {
    if (!this.least.has(column)) this.least.set(column, Math.max(headWidth(column), this.widest(column, this.sample(column))));
    const whole = this.least.get(column);
    if (!column.isText) return [whole, whole];
    if (column.room) return [column.room, 3 * column.room];
    const { least, most } = place ? LATER : FIRST;
    return [Math.max(headWidth(column), Math.min(whole, Math.round(least * this.narrow))), 5 * Math.min(whole, most)];
  }

  // Rows here and there, and those of the largest and the smallest value.
  sample(column) {
    const { count } = this.options, step = Math.max(1, Math.floor(count / N_MEASURED)), rows = [];
    for (let row = 0; row < count; row += step) rows.push(row);
    if (!column.isText && count) {
      let low = 0, high = 0;
      for (let row = 1; row < count; row++) {
        if (column.get(row) > column.get(high)) high = row;
        if (column.get(row) < column.get(low)) low = row;
      }
      rows.push(low, high);
    }
    return rows;
  }

  // While scrolling, a number may come that is longer than all that were measured.
  grow(rows) {
    let isGrown = false;
    for (const column of this.shown()) {
      if (column.isText || this.widths.has(column.title)) continue;
      const width = this.widest(column, rows);
      if (width <= (this.least.get(column) ?? 0)) continue;
      this.least.set(column, width);
      isGrown = true;
    }
    if (isGrown) this.apply();
  }

  widest(column, rows) {
    let widest = 40;
    for (const row of rows) {
      const value = column.get(row), content = column.show ? column.show(value, row) : value;
      const text = content instanceof Node ? content.textContent : String(content);
      widest = Math.max(widest, textWidth(text, "13.5px") + PADDING + (content instanceof Node ? 24 : 0));
    }
    return widest;
  }
}

function headWidth(column) {
  return textWidth(column.title, "600 12px") + HEAD_ROOM;
}
