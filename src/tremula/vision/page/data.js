// Fetches packs from the server, or from this file if it is an export, and decodes them.

const TYPES = {
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i1: Int8Array, i2: Int16Array, i4: Int32Array,
  f4: Float32Array, f8: Float64Array,
};
const MAX_CACHED = 400;

const inside = document.getElementById("packs");
const embedded = inside && JSON.parse(inside.textContent);
const cache = new Map();

export const isExported = Boolean(embedded);

let generation; // of the reports that this page shows: answers from others are rejected

// The facts of everything, the first thing a page loads.
export async function loadIndex() {
  const { facts } = await load("index");
  ({ generation } = facts);
  return facts;
}

// Whether reports were written again, and how far the server is with a sweep; null where it is unknown.
export async function news() {
  if (embedded) return null;
  try {
    const answer = await fetch("news");
    const result = answer.ok ? await answer.json() : null;
    return result && { ...result, isOld: result.generation !== generation };
  } catch {
    return null; // the server has ended; packs that are still wanted will say so
  }
}

// Has the server open a report from this computer's files; resolves to its number on the page.
export async function openFile(file) {
  if (embedded) throw new Error(`This page is a file without a server, which cannot read reports. Open it with: tremula view ${file.name}`);
  const answer = await fetch("open", { method: "POST", body: file, headers: { "X-Tremula-Name": encodeURIComponent(file.name) } })
    .catch(() => { throw new Error("The server of this page does not answer: has `tremula view` ended?"); });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()).report;
}

// { facts, columns } of a name; the same promise for the same name.
export function load(name) {
  if (!cache.has(name)) {
    const waiting = read(name).then(unfold);
    waiting.catch(() => cache.delete(name));
    cache.set(name, waiting);
    if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
  }
  return cache.get(name);
}

async function read(name) {
  if (embedded) {
    if (!(name in embedded)) throw new Error("This detail is not in the exported file.");
    const text = atob(embedded[name]);
    return Uint8Array.from(text, (c) => c.charCodeAt(0));
  }
  const answer = await fetch(`data/${name.split("/").map(encodeURIComponent).join("/")}${generation === undefined ? "" : `?generation=${generation}`}`);
  if (!answer.ok) throw new Error(await answer.text());
  return new Uint8Array(await answer.arrayBuffer());
}

async function unfold(content) {
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const nHeader = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, nHeader)));
  const columns = {};
  for (const [name, [type, offset, n]] of Object.entries(header.columns)) {
    columns[name] = new TYPES[type](buffer, 4 + nHeader + offset, n);
  }
  return { facts: header.facts, columns };
}

// A text of a column that stores texts as numbers: text(pack, "path", row).
export function text(pack, name, row) {
  return pack.facts.texts[name][pack.columns[name][row]];
}

// Int32Array: each step's partner in another report, the n-th of a name for the n-th; -1 for none.
export function partners(steps, others) {
  const names = (pack) => {
    const seen = new Map();
    return Array.from(pack.columns.cycles, (_, i) => {
      const path = text(pack, "path", i), nth = seen.get(path) ?? 0;
      seen.set(path, nth + 1);
      return `${path}#${nth}`;
    });
  };
  const places = new Map(names(others).map((name, i) => [name, i]));
  return Int32Array.from(names(steps), (name) => places.get(name) ?? -1);
}
