// The address card of one tile: a map of which blocks lie where at a step.

import { choice, h, replace } from "../dom.js";
import { legend } from "./chart.js";
import { KINDS, MemoryMap } from "./memory_map.js";
import { text } from "../data.js";
import { bytes, tileName, whole } from "../format.js";

const TILES_PER_PART = 16, STEPS_PER_PART = 16;
const SPANS = [["all", "All memory"], ["used", "In use", "up to the highest address in use"]];

export class Addresses {
  constructor(context, { tiles, variables }, rowOf) {
    Object.assign(this, { context, tiles, variables, rowOf, nSteps: context.info.n_steps });
    this.element = h("section.card.addresses", {});
  }

  // The map at the selected step, or at the step where the tile is fullest.
  async show(tile, state) {
    const peak = this.tiles.columns.peak_step[tile];
    const step = state.step >= 0 && state.step < this.nSteps ? state.step : peak;
    const key = `${tile} ${step}`;
    if (key !== this.shown) {
      this.shown = key;
      const { tiles_per_ipu: perIpu, n_ipus: nIpus } = this.tiles.facts;
      const title = `Addresses of ${tileName(tile, perIpu, nIpus)}${step >= 0 ? ` at step ${step}` : ""}`;
      try {
        const blocks = await this.blocksAt(tile, step);
        if (this.shown !== key) return;
        this.build(title, blocks, state.span ?? "all", step !== peak && peak >= 0 && this.toPeak(tile, peak));
      } catch (error) {
        if (this.shown === key) replace(this.element, h("header", {}, h("h2", {}, title)), h("p.note", {}, error.message));
      }
    }
    this.map?.update({ chosen: state.variable });
  }

  async blocksAt(tile, step) {
    const part = await this.context.load(`tile-contents/${Math.floor(tile / TILES_PER_PART)}`);
    if (!part.columns.address) throw new Error("This report has no addresses of variables: an older version wrote it.");
    const variables = this.variablesAt(part.columns, tile % TILES_PER_PART, step);
    return blocksOf(this.tiles, tile, variables, step >= 0 ? await this.buffersAt(tile, step, variables) : 0);
  }

  toPeak(tile, step) {
    return h("button.plain", { type: "button", onclick: () => this.context.select({ tile, step }) }, `Go to its peak: step ${step}`);
  }

  build(title, blocks, span, toPeak) {
    const { available, memory } = this.tiles.facts, words = summaryOf(blocks, available);
    this.map = new MemoryMap({
      blocks, available, region0: memory.region0, base: memory.base_address, isUsedOnly: span === "used",
      label: `${title}: ${words}`, onpick: (variable) => this.context.select({ variable }),
    });
    replace(this.element, h("header", {}, h("h2", {}, title), h("div.spring"), toPeak, choice("Show", SPANS, span, (next) => this.context.select({ span: next }))),
      h("p.note", {}, words), this.map.element, legend(Object.values(KINDS).map(([name, paint]) => ({ name, colour: paint }))));
  }

  // Variables on the tile that are live at a step, as blocks.
  variablesAt(part, at, step) {
    const { columns } = this.variables, live = this.liveRows(step), result = [];
    for (let i = part.start[at]; i < part.start[at + 1]; i++) {
      const id = part.variable[i], row = this.rowOf.get(id);
      const isAlways = Boolean(columns.always_live[row]);
      if (part.address[i] < 0 || !part.n_bytes[i] || !(isAlways || live.has(row))) continue;
      result.push({ address: part.address[i], size: part.n_bytes[i], kind: isAlways ? "always" : "temporary", name: text(this.variables, "name", row), id });
    }
    return result;
  }

  liveRows(step) {
    const { life_row: row, life_first: first, life_last: last } = this.variables.columns, result = new Set();
    for (let i = 0; i < row.length; i++) if (first[i] <= step && step <= last[i]) result.add(row[i]);
    return result;
  }

  // Bytes that a step needs on a tile besides its variables.
  async buffersAt(tile, step, variables) {
    const part = await this.context.load(`step-live/${Math.floor(step / STEPS_PER_PART)}`);
    const live = part.columns.live[(step % STEPS_PER_PART) * this.tiles.facts.n_tiles + tile];
    return live - variables.reduce((sum, block) => sum + (block.kind === "temporary" ? block.size : 0), 0);
  }
}

// Code and everything fixed lie at the bottom, in the order of their categories; then variables.
function blocksOf(tiles, tile, variables, nBuffers) {
  const { facts, columns } = tiles, n = facts.n_tiles, result = [];
  let at = 0;
  const add = (kind, isMine) => facts.categories.forEach((name, row) => {
    const size = columns.category_always_live[row * n + tile];
    if (!size || !isMine(name)) return;
    result.push({ address: at, size, kind, name });
    at += size;
  });
  add("code", (name) => facts.memory.code.includes(name));
  add("state", (name) => !facts.memory.code.includes(name) && !facts.memory.variables.includes(name));
  const placed = [...result, ...variables].sort((a, b) => a.address - b.address);
  return nBuffers > 0 ? [...placed, bufferBlock(placed, nBuffers)].sort((a, b) => a.address - b.address) : placed;
}

// Buffers are counted, not placed one by one: they are shown in the lowest free piece that holds them.
function bufferBlock(blocks, size) {
  let end = 0;
  for (const block of blocks) {
    if (block.address - end >= size) break;
    end = Math.max(end, block.address + block.size);
  }
  return { address: end, size, kind: "buffer", name: "exchange buffers: counted, not placed one by one" };
}

// In words: how much is used, and how much is free between blocks and above the highest.
function summaryOf(blocks, available) {
  let end = 0, gaps = 0, nGaps = 0, used = 0, widest = 0;
  for (const block of blocks) {
    if (block.address > end) {
      gaps += block.address - end;
      nGaps += 1;
      widest = Math.max(widest, block.address - end);
    }
    end = Math.max(end, block.address + block.size);
    used += block.size;
  }
  if (available > end) widest = Math.max(widest, available - end);
  return `${bytes(used)} in ${whole(blocks.length)} blocks, ${bytes(gaps)} free in ${whole(nGaps)} gaps below the highest, ${bytes(Math.max(0, available - end))} above it; the largest free piece is ${bytes(widest)}.`;
}
