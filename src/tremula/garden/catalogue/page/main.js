// The garden's page: search and filters beside a grid of cards. The address keeps what is chosen.

import { h, icon, replace } from "../dom.js";
import { startTheme, switchTheme, THEME_ICON } from "../theme.js";
import { cardOf } from "./cards.js";

const { applications, techniques } = JSON.parse(document.getElementById("packs").textContent);
const GROUPS = [
  ["domain", "Domain", (one) => [one.domain]],
  ["framework", "Framework", (one) => [one.framework]],
  ["technique", "Technique", (one) => one.techniques],
];
const CLEAR_ICON = "M6 6l12 12M18 6L6 18";

const search = h("input.search", {
  type: "search", placeholder: "Search (/)", "aria-label": "Search applications", oninput: () => change({ q: search.value }),
});
const status = h("p.status", { role: "status" });
const filters = h("nav.filters", { "aria-label": "Filters" });
const grid = h("ul.cards");
const stage = h("main.stage", { id: "stage", tabIndex: -1 }, grid);

function chosen() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

// Puts what is chosen into the address; an empty value takes its part out.
function change(changes) {
  const left = Object.entries({ ...chosen(), ...changes }).filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(left)}`);
  show();
}

function fits(one, choices, without) {
  const words = (choices.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => one.words.includes(word))
    && GROUPS.every(([key, , valuesOf]) => key === without || !choices[key] || valuesOf(one).includes(choices[key]));
}

// Each value with how many applications it would leave; of the group's own choice all values stay.
function groupOf([key, title, valuesOf], choices) {
  const counts = new Map();
  for (const one of applications) {
    for (const value of valuesOf(one)) counts.set(value, (counts.get(value) ?? 0) + fits(one, choices, key));
  }
  const values = [...counts].sort(([a], [b]) => a.localeCompare(b));
  return h("fieldset", {}, h("legend", {}, title), values.map(([value, n]) => h("button.filter", {
    type: "button", "aria-pressed": String(choices[key] === value), disabled: !n && choices[key] !== value,
    title: key === "technique" ? techniques[value] : undefined,
    "data-filter": `${key}=${value}`,
    onclick: () => change({ [key]: choices[key] === value ? "" : value }),
  }, h("span", {}, value), h("small", {}, n))));
}

function show() {
  const choices = chosen(), focused = document.activeElement?.dataset?.filter;
  const fitting = applications.filter((one) => fits(one, choices));
  if (search.value !== (choices.q ?? "")) search.value = choices.q ?? "";
  replace(filters, GROUPS.map((group) => groupOf(group, choices)), Object.keys(choices).length > 0
    && h("button.plain.clear", { type: "button", onclick: clear }, icon(CLEAR_ICON), "Clear all (Esc)"));
  if (focused) filters.querySelector(`[data-filter="${CSS.escape(focused)}"]`)?.focus();
  replace(grid, fitting.map((one) => cardOf(one, techniques, (technique) => change({ technique }))));
  status.textContent = fitting.length ? `${fitting.length} of ${applications.length} applications` : "No application fits.";
  stage.dataset.ready = "true";
}

function clear() {
  history.replaceState(null, "", "#");
  show();
}

// Arrow keys go from card to card; their number in a row is as the grid has it.
function step(event) {
  const links = [...grid.querySelectorAll("h2 a")], at = links.indexOf(document.activeElement);
  if (at < 0) return false;
  const top = (link) => link.closest("li").offsetTop;
  const nColumns = Math.max(1, links.filter((link) => top(link) === top(links[0])).length);
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: nColumns, ArrowUp: -nColumns }[event.key];
  if (!by) return false;
  links[Math.max(0, Math.min(links.length - 1, at + by))].focus();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target === search;
  if (event.key === "Escape") clear();
  else if (event.key === "/" && !isTyping) search.focus();
  else if (event.key === "d" && !isTyping) switchTheme();
  else if (!step(event)) return;
  event.preventDefault();
});
window.addEventListener("hashchange", show);

startTheme();
document.body.append(
  h("a.skip", { href: "#stage", onclick: (event) => { event.preventDefault(); stage.focus(); } }, "To the applications"),
  h("div.frame.garden", {},
    h("div.rail", {}, h("div.logo", {}, h("i"), h("span", {}, "Tremula garden")), filters),
    h("div.column", {},
      h("header.bar", {}, search, status, h("span.spring"),
        h("button.ghost", { type: "button", title: "Light or dark (d)", "aria-label": "Light or dark", onclick: switchTheme }, icon(THEME_ICON))),
      stage)));
// The frame is painted before the cards are made.
requestAnimationFrame(() => setTimeout(show));
