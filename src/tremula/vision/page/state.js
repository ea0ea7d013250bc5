// What is shown and selected, kept in the address, so that any view can be shared as a link.

const NUMBERS = new Set(["tile", "step", "variable", "report", "with", "entry", "from", "to", "row", "stage", "insight"]);
const listeners = new Set();
let state = parse();

function parse() {
  // "#/memory?tile=7", as this page writes it, or "#view=memory&tile=7", as people do.
  const hash = location.hash.replace(/^#\/?/, ""), isPlain = /^[\w-]+=/.test(hash);
  const at = isPlain ? -1 : hash.indexOf("?"), query = isPlain ? hash : at < 0 ? "" : hash.slice(at + 1);
  const result = { view: (isPlain ? "" : at < 0 ? hash : hash.slice(0, at)) || "summary" };
  for (const [key, value] of new URLSearchParams(query)) {
    if (!NUMBERS.has(key)) result[key] = value;
    else if (/^-?\d+(\.\d+)?$/.test(value)) result[key] = Number(value);
  }
  return result;
}

function written() {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (key !== "view" && value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  const text = query.toString();
  return `#/${state.view}${text ? `?${text}` : ""}`;
}

export function current() {
  return state;
}

// Change some keys (undefined removes one). A new view is a new entry in the browser's history.
export function change(patch) {
  const before = state;
  state = { ...state, ...patch };
  const hash = written();
  if (hash === location.hash) return;
  if (patch.view && patch.view !== before.view) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  notify(before);
}

export function link(patch) {
  const before = state;
  state = { ...state, ...patch };
  const hash = written();
  state = before;
  return hash;
}

function notify(before, isMove = false) {
  for (const listener of [...listeners]) listener(state, before, isMove);
}

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// Back, forward, or a link pasted into the address: everything may have changed.
function onMove() {
  const before = state;
  state = parse();
  if (JSON.stringify(state) !== JSON.stringify(before)) notify(before, true);
}
window.addEventListener("popstate", onMove);
window.addEventListener("hashchange", onMove);
