// Several tiles beside each other: what each needs, and which variables they hold differently.

import { h, replace } from "../dom.js";
import { text } from "../data.js";
import { bytes, capital, tileName, whole } from "../format.js";
import { Table } from "./table.js";
import { aboutOf, column } from "../quantities.js";

const TILES_PER_PART = 16;

// Adds a tile to a list such as "3,5", or removes it; what to select then.
export function toggled(state, tile) {
  const now = new Set((state.tiles ?? String(state.tile ?? "")).split(",").filter(Boolean).map(Number));
  if (now.has(tile) && now.size > 1) now.delete(tile);
  else now.add(tile);
  const tiles = [...now].sort((a, b) => a - b);
  return { tile: now.has(tile) ? tile : tiles[0], tiles: tiles.length > 1 ? tiles.join(",") : undefined };
}

// Fills an element with two tables; `isWanted` says whether it still is when the data has come.
export async function showTiles(element, tiles, { context, tiles: pack, variables, rowOf }, isWanted) {
  const parts = await Promise.all(tiles.map((tile) => context.load(`tile-contents/${Math.floor(tile / TILES_PER_PART)}`)));
  if (!isWanted()) return;
  const nBytesOf = parts.map((part, i) => bytesOn(part.columns, tiles[i] % TILES_PER_PART));
  const variableTable = tableOfVariables(tiles, nBytesOf, { context, variables, rowOf, facts: pack.facts });
  replace(element, h("header", {}, h("h2", {}, `${whole(tiles.length)} tiles`), h("div.spring"), variableTable.tools),
    needs(tiles, pack, context).element, h("h3", {}, "Bytes of each variable"), variableTable.element);
}

function bytesOn({ start, variable, n_bytes: size }, at) {
  const result = new Map();
  for (let i = start[at]; i < start[at + 1]; i++) result.set(variable[i], size[i]);
  return result;
}

function needs(tiles, { columns, facts }, context) {
  const name = (i) => tileName(tiles[i], facts.tiles_per_ipu, facts.n_ipus);
  return new Table({
    count: tiles.length, noun: "tiles", label: "Tiles", height: 220, sort: [1, true], onpick: (i) => context.select({ tile: tiles[i] }),
    columns: [
      column("tile", (i) => tiles[i], { show: (_, i) => name(i) }),
      column("tile_needs", (i) => columns.including_gaps[tiles[i]]),
      column("tile_share", (i) => columns.including_gaps[tiles[i]] / facts.available),
      column("tile_always_live", (i) => columns.always_live[tiles[i]]),
      column("tile_temporary", (i) => columns.temporary[tiles[i]]),
      column("tile_peak_step", (i) => columns.peak_step[tiles[i]], { isText: false, show: whole }),
      column("tile_compute", (i) => columns.compute[tiles[i]]),
    ],
  });
}

// A column for each tile, and how far the fullest and the emptiest are apart.
function tableOfVariables(tiles, nBytesOf, { context, variables, rowOf, facts }) {
  const ids = [...new Set(nBytesOf.flatMap((one) => [...one.keys()]))];
  const nameOf = (i) => (rowOf.has(ids[i]) ? text(variables, "name", rowOf.get(ids[i])) : `variable ${ids[i]}`);
  const spread = ids.map((id) => {
    const sizes = nBytesOf.map((one) => one.get(id) ?? 0);
    return Math.max(...sizes) - Math.min(...sizes);
  });
  return new Table({
    count: ids.length, noun: "variables", label: "Variables on these tiles", height: 300, sort: [1, true], filter: nameOf,
    onpick: (i) => context.select({ variable: ids[i] }),
    columns: [
      column("variable", nameOf), column("tile_spread", (i) => spread[i], { show: (v) => (v ? bytes(v) : "–") }),
      ...tiles.map((tile, k) => ({ key: "tile_bytes", title: capital(tileName(tile, facts.tiles_per_ipu, facts.n_ipus)), about: aboutOf("tile_bytes"), get: (i) => nBytesOf[k].get(ids[i]) ?? 0, show: (v) => (v ? bytes(v) : "–") })),
    ],
  });
}
