// The controls of the What-if view: which constants vary, over which values, in how many steps.

import { h, replace } from "../dom.js";
import { quantity } from "../format.js";

const WIDEST = 3; // a slider goes from an eighth to eight times the chip's own value
const WAIT_MS = 250;

// {name: "text of its values"} of "clock_hz=1,2/sync_cycles=3", the way a sweep is written everywhere.
export function sweepOf(text) {
  return Object.fromEntries(text.split("/").map((part) => part.split("=")).filter(([name]) => name));
}

function written(sweep) {
  return Object.entries(sweep).map(([name, values]) => `${name}=${values.replaceAll(/[\s/]/g, "").replace(/,$/, "")}`).join("/");
}

// About n values between two factors of the chip's own, in even ratios, including its own.
export function valuesBetween(constant, from, to, n) {
  const { value, grain } = constant;
  const own = value || grain || 1, [low, high] = [Math.min(from, to), Math.max(from, to)];
  const result = Array.from({ length: n }, (_, i) => own * 2 ** (low + ((high - low) * i) / Math.max(1, n - 1)));
  if (low <= 0 && high >= 0) result.push(own);
  const rounded = result.map((v) => (grain ? Math.max(1, Math.round(v / grain)) * grain : Number(v.toPrecision(4))));
  return [...new Set(rounded)].sort((a, b) => a - b).join(",");
}

export class SweepForm {
  constructor(facts, isExported, onchange) {
    Object.assign(this, { facts, isExported, onchange });
    this.constantOf = new Map(facts.constants.map((one) => [one.name, one]));
    this.element = h("div.sweep", {});
    this.rows = [];
  }

  show(text) {
    if (text === this.shown) return;
    const names = Object.keys(sweepOf(text)).join();
    this.shown = text;
    if (names === this.names) this.rows.forEach((row) => row.fill(sweepOf(text)[row.name]));
    else this.build(text);
    this.names = names;
  }

  build(text) {
    if (this.isExported) {
      replace(this.element, this.readyChoice(text));
      return;
    }
    const sweep = sweepOf(text), names = Object.keys(sweep);
    this.rows = names.map((name, i) => new ConstantRow(this, name, sweep[name], i, names.slice(0, i)));
    const spare = this.facts.constants.filter((one) => !names.includes(one.name));
    const add = names.length < 2 && h("label.add", {}, h("span", {}, "and"), picker("Second constant", spare, "", (name) => this.change({ ...sweepOf(this.shown), [name]: this.usual(name, 1) }), "no other"));
    replace(this.element, this.rows.map((row) => row.element), add,
      h("p.note", {}, "Vertices keep their cycles; exchange, sync, memory and the clock are costed again. Changing the program itself (tiles, workers, arithmetic) needs the script: ",
        h("code", {}, "tremula whatif script.py --sweep tiles=736,1472 --html FILE")));
  }

  // What an exported file can show, and that it is not everything.
  readyChoice(text) {
    const known = this.facts.sweeps.includes(text);
    return [
      h("label.add", {}, h("span", {}, "Vary"), h("select", { "aria-label": "Sweep", onchange: (event) => this.onchange(event.target.value) },
        !known && h("option", { value: text, selected: true }, Object.keys(sweepOf(text)).join(" × ")),
        this.facts.sweeps.map((one) => h("option", { value: one, selected: one === text }, Object.keys(sweepOf(one)).join(" × ") || "chips")))),
      Object.keys(sweepOf(text)).map((name) => this.constantOf.has(name) && aboutConstant(this.constantOf.get(name), this.facts.chip)),
      this.facts.is_fixed_program && h("p.note", {}, "This file holds only these sweeps. For other values and constants, use ", h("code", {}, "tremula view"), " with the report itself."),
    ];
  }

  usual(name, place) {
    return valuesBetween(this.constantOf.get(name), place ? -1 : -2, place ? 1 : 2, place ? 3 : 8);
  }

  change(sweep) {
    this.onchange(written(sweep));
  }

  // Choose the n-th constant, with values around its own; no name removes it.
  replaceAt(place, name) {
    const entries = Object.entries(sweepOf(this.shown));
    entries.splice(place, 1, ...(name ? [[name, this.usual(name, place)]] : []));
    this.change(Object.fromEntries(entries));
  }
}

class ConstantRow {
  constructor(form, name, values, place, taken) {
    Object.assign(this, { form, name, place, constant: form.constantOf.get(name) });
    const free = form.facts.constants.filter((one) => !taken.includes(one.name));
    this.values = h("input.search.values", {
      type: "text", spellcheck: false, "aria-label": `Values of ${name}`, title: "Numbers, separated by commas",
      onchange: () => this.apply(this.values.value),
    });
    const isKnown = this.constant !== undefined;
    this.from = this.slider("from", -WIDEST, WIDEST, 0.25, place ? -1 : -2);
    this.to = this.slider("to", -WIDEST, WIDEST, 0.25, place ? 1 : 2);
    this.count = this.slider("values", 2, 12, 1, place ? 3 : 8);
    this.element = h("fieldset.constant", {}, h("legend", {}, place ? "and" : "Vary"),
      picker(`Constant ${place + 1}`, free, name, (chosen) => form.replaceAt(place, chosen), place ? "no other" : undefined),
      isKnown && [this.from.element, this.to.element, this.count.element], this.values,
      isKnown && aboutConstant(this.constant, form.facts.chip));
    this.fill(values);
  }

  slider(title, min, max, step, value) {
    const output = h("output", {});
    const input = h("input", { type: "range", min, max, step, value, "aria-label": `${this.name}: ${title}`, oninput: () => this.slide() });
    const showValue = () => { output.textContent = title === "values" ? input.value : quantity(this.constant.value * 2 ** input.value, this.constant.unit); };
    if (this.constant) showValue();
    return { input, showValue, element: h("label.slider", {}, h("span", {}, title), input, output) };
  }

  // While a slider is being dragged, answers do not move it.
  slide() {
    this.isSliding = true;
    for (const one of [this.from, this.to, this.count]) one.showValue();
    const text = valuesBetween(this.constant, Number(this.from.input.value), Number(this.to.input.value), Number(this.count.input.value));
    this.values.value = text.split(",").map(brief).join(", ");
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.apply(text);
      this.isSliding = false;
    }, WAIT_MS);
  }

  apply(text) {
    this.form.change({ ...sweepOf(this.form.shown), [this.name]: text });
  }

  fill(text) {
    if (document.activeElement !== this.values) this.values.value = (text ?? "").split(",").map(brief).join(", ");
    const numbers = (text ?? "").split(",").map(Number);
    if (!this.constant?.value || !numbers.every((v) => v > 0) || this.isSliding) return;
    const place = (v) => Math.max(-WIDEST, Math.min(WIDEST, Math.log2(v / this.constant.value)));
    for (const [one, value] of [[this.from, place(Math.min(...numbers))], [this.to, place(Math.max(...numbers))], [this.count, numbers.length]]) {
      one.input.value = value;
      one.showValue();
    }
  }
}

// 1850000000 as 1850e6: space is short.
function brief(text) {
  const millions = Number(text) / 1e6;
  return millions >= 1 && Number(millions.toPrecision(6)) === millions && !/e/i.test(text) && text.length > 6 ? `${millions}e6` : text;
}

// Constants in groups, as the chip has them.
function picker(label, constants, chosen, onpick, nothing) {
  const groups = Map.groupBy(constants, (one) => one.group);
  return h("select", { "aria-label": label, onchange: (event) => onpick(event.target.value) },
    nothing && h("option", { value: "", selected: !chosen }, nothing),
    [...groups].map(([name, members]) => h("optgroup", { label: name }, members.map((one) => h("option", { value: one.name, selected: one.name === chosen }, one.name)))));
}

function aboutConstant(constant, chip) {
  if (constant.value === undefined) return h("p.note.about", {}, h("b", {}, constant.name), ` (${constant.unit}): ${constant.meaning}`);
  return h("p.note.about", {}, h("b", {}, `${chip}: ${quantity(constant.value, constant.unit)}`), `, ${constant.meaning}. `,
    h("span.standing", { title: constant.source }, constant.standing), ` ${constant.source}`);
}
