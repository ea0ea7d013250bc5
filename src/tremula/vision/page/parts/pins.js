// Pins: places of the report with a note each, kept in the page's address, so that a link has them.

import { h, icon, menu, replace } from "../dom.js";
import { change, current } from "../state.js";

export const PIN_ICON = "M9 3h6l-1 6 3.500 3.500h-11L10 9zM12 12.500V21";
// What a pin remembers of the page, beside its view and note; numbers are the selection's.
const PINNED_FIELDS = ["report", "step", "entry", "tile", "tiles", "variable", "op", "source", "from", "to", "mark"];
const NUMBERS = new Set(["report", "step", "entry", "tile", "variable", "from", "to"]);
const MOST_PINS = 40, LONGEST_NOTE = 400;

// "execution,step:42,tile:7!a note;memory,tile:3": views, selections, notes. What cannot be read is left out.
export function parsePins(written) {
  return (written ?? "").split(";").filter(Boolean).slice(0, MOST_PINS).map(parsePin).filter(Boolean);
}

function parsePin(written) {
  try {
    const at = written.indexOf("!"), place = at < 0 ? written : written.slice(0, at);
    const note = at < 0 ? "" : decodeURIComponent(written.slice(at + 1)).slice(0, LONGEST_NOTE);
    const [view, ...parts] = place.split(","), pin = { view: decodeURIComponent(view) || "summary", note };
    for (const part of parts) {
      const [key, value] = part.split(":");
      if (!PINNED_FIELDS.includes(key) || !value) continue;
      const known = decodeURIComponent(value);
      if (!NUMBERS.has(key)) pin[key] = known;
      else if (/^-?\d+(\.\d+)?$/.test(known)) pin[key] = Number(known);
    }
    return pin;
  } catch {
    return null; // not what this page has written
  }
}

export function writePins(pins) {
  const code = (value) => encodeURIComponent(value).replaceAll("!", "%21");
  return pins.map(({ view, note, ...rest }) => {
    const parts = PINNED_FIELDS.filter((key) => rest[key] !== undefined).map((key) => `${key}:${code(rest[key])}`);
    return [code(view), ...parts].join(",") + (note ? `!${code(note)}` : "");
  }).join(";") || undefined;
}

// What is pinned, in words: "Execution: step 42, tile 7".
export function pinTitle(pin, views) {
  const parts = ["step", "tile", "tiles", "variable", "op", "source"].filter((key) => pin[key] !== undefined).map((key) => `${key} ${pin[key]}`);
  if (pin.from !== undefined && pin.to !== undefined) parts.push(`cycles ${pin.from} to ${pin.to}`);
  return `${views.find(([name]) => name === pin.view)?.[1] ?? pin.view}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}

// The button of the bar above the views, and the list it opens. views: [[name, title]]
export class PinBoard {
  constructor(views) {
    this.views = views;
    this.count = h("small.pin-count", {});
    this.button = h("button.ghost.pins", { type: "button", title: "Pins and notes (p pins what is shown)", "aria-label": "Pins and notes", "aria-haspopup": "menu", onclick: () => this.open() }, icon(PIN_ICON), this.count);
    this.paint();
  }

  get pins() {
    return parsePins(current().pins);
  }

  paint() {
    const { length } = this.pins;
    replace(this.count, length ? String(length) : "");
    this.button.setAttribute("aria-label", `Pins and notes: ${length}`);
  }

  // Pins what is shown and selected now, and opens the list with its note.
  add() {
    const state = current(), pin = { view: state.view, note: "" };
    for (const key of PINNED_FIELDS) if (state[key] !== undefined) pin[key] = state[key];
    const { pins } = this;
    if (pins.length >= MOST_PINS) pins.shift();
    this.save([...pins, pin]);
    this.open();
    this.panel.querySelector(".pin:last-child input")?.focus();
  }

  save(pins) {
    change({ pins: writePins(pins) });
    this.paint();
  }

  open() {
    this.panel?.isConnected && this.panel.hidePopover();
    this.panel = menu(this.button, () => this.list());
    this.panel.classList.add("pin-menu");
  }

  list() {
    const { pins } = this;
    return [
      pins.map((pin, i) => h("div.pin", {},
        h("button.go", { type: "button", onclick: () => this.go(pin) }, pinTitle(pin, this.views)),
        h("input.note-text", {
          type: "text", value: pin.note, maxLength: LONGEST_NOTE, placeholder: "Note…", "aria-label": `Note of pin ${i + 1}`,
          onchange: (event) => this.save(pins.map((other, k) => (k === i ? Object.assign(other, { note: event.target.value }) : other))),
        }),
        h("button.ghost.small", { type: "button", "aria-label": `Remove pin ${i + 1}`, onclick: () => this.remove(i) }, "×"))),
      !pins.length && h("p.note", {}, "Nothing is pinned. Pins and notes are part of this page's address: whoever opens the link sees them."),
      h("div.pin-tools", {}, h("button.plain", { type: "button", onclick: () => this.add() }, "Pin what is shown"), this.copyButton()),
    ];
  }

  remove(i) {
    this.save(this.pins.filter((_, k) => k !== i));
    this.open();
  }

  go({ note, ...place }) {
    const nothing = Object.fromEntries(PINNED_FIELDS.map((key) => [key, undefined]));
    this.panel?.hidePopover();
    change({ ...nothing, ...place });
  }

  copyButton() {
    const button = h("button.plain", {
      type: "button",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(location.href);
          replace(button, "Copied");
        } catch {
          replace(button, "Copy the address above"); // the browser does not allow it here
        }
      },
    }, "Copy link");
    return button;
  }
}
