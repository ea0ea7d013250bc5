// Draws heat blocks with WebGL2: a texture per block, an instance per column and chip.

import { PHASES, SHADES, colour, empty, heat, rgb, shades } from "../colours.js";

export const MODES = ["phases", "compute", "exchange", "idle", "live"];
export const LEAST = 0.125; // of a cell: what takes less leaves it waiting
export const NARROW = 2.5; // pixels: a column of less is one colour
const PER_INSTANCE = 12;

const VERTEX = `#version 300 es
layout(location = 0) in vec4 span;    // begin, end, row of the texture, column
layout(location = 1) in vec4 parts;   // of the chip's time: links, host, sync, exchange
layout(location = 2) in vec4 lane;    // rows of this chip, share of waiting
uniform vec4 view;                    // from, 1 / span, top tile, 1 / tiles
uniform float tilesPerRow, firstTile, wide;
out float across, row;
flat out vec4 shares;
flat out float pixels, waiting;
flat out int column;
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  float begin = (span.x - view.x) * view.y, end = (span.y - view.x) * view.y;
  end = max(end, begin + 1.0 / wide);
  float x = mix(begin, end, corner.x);
  row = mix(span.z, span.z + lane.x, corner.y);
  float y = (firstTile + (row - span.z) * tilesPerRow - view.z) * view.w;
  across = corner.x;
  shares = parts;
  waiting = lane.y;
  pixels = (end - begin) * wide;
  column = int(span.w);
  gl_Position = vec4(2.0 * x - 1.0, 1.0 - 2.0 * y, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform highp sampler2D cells;
uniform int mode, isSingle;
uniform vec3 tones[6];                // of each phase: compute, exchange, links, host, sync, waiting
uniform vec3 shades[5 * ${SHADES}];
uniform vec3 scale[7];
in float across, row;
flat in vec4 shares;
flat in float pixels, waiting;
flat in int column;
out vec4 paint;
vec3 heat(float share) {
  float at = clamp(share, 0.0, 1.0) * 6.0;
  int i = min(5, int(at));
  return mix(scale[i], scale[i + 1], at - float(i));
}
// A step of a chip waits for others, then syncs, transfers, exchanges and computes.
vec3 inTime(float compute, float exchange) {
  float left = across - waiting;
  if (left < 0.0) return tones[5];
  if (left < shares.z) return tones[4];
  left -= shares.z;
  if (left < shares.x) return tones[2];
  left -= shares.x;
  if (left < shares.y) return tones[3];
  left -= shares.y;
  if (left < shares.w) return left < exchange ? tones[1] : tones[5];
  return left - shares.w < compute ? tones[0] : tones[5];
}
// The phase that takes most of a cell, in the shade of its share.
vec3 mostOf(float share[5]) {
  int most = 0;
  for (int i = 1; i < 5; i++) if (share[i] > share[most]) most = i;
  if (share[most] < ${LEAST}) return tones[5];
  return shades[most * ${SHADES} + min(${SHADES} - 1, int(share[most] * ${SHADES}.0))];
}
void main() {
  vec2 cell = texelFetch(cells, ivec2(int(row), column), 0).rg * (255.0 / 63.0);
  float compute = cell.r, exchange = cell.g;
  vec3 tone;
  if (mode == 0 && isSingle == 1 && pixels > ${NARROW}) tone = inTime(compute, exchange);
  else if (mode == 0) tone = mostOf(float[5](compute, exchange, shares.x, shares.y, shares.z));
  else if (mode == 1) tone = heat(compute);
  else if (mode == 2) tone = heat(exchange);
  else if (mode == 3) tone = heat(1.0 - compute - exchange - shares.x - shares.y - shares.z);
  else tone = compute > 0.0 ? heat(compute) : tones[5];
  paint = vec4(tone, 1.0);
}`;

export class GlPainter {
  // A painter, or null if there is no WebGL2, or only an emulated one and a fast one is wanted.
  static make(canvas, failIfMajorPerformanceCaveat) {
    if (failIfMajorPerformanceCaveat && isEmulated()) return null;
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, failIfMajorPerformanceCaveat, powerPreference: "high-performance" });
    if (!gl) return null;
    const program = link(gl);
    return program && new GlPainter(canvas, gl, program);
  }

  constructor(canvas, gl, program) {
    Object.assign(this, { canvas, gl, program, places: {} });
    for (const name of ["view", "tilesPerRow", "firstTile", "wide", "cells", "mode", "isSingle", "tones", "shades", "scale"]) {
      this.places[name] = gl.getUniformLocation(program, name);
    }
  }

  paint(blocks, view) {
    const { gl, canvas, places } = this;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.max(1, Math.round(view.width * ratio)), height = Math.round(view.height * ratio);
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    canvas.style.cssText = `left: ${view.left}px; width: ${view.width}px; height: ${view.height}px`;
    gl.viewport(0, 0, width, height);
    const [r, g, b] = groundOf(view.mode);
    gl.clearColor(r / 255, g / 255, b / 255, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(this.program);
    gl.uniform1f(places.wide, view.width);
    gl.uniform1i(places.cells, 0);
    gl.uniform1i(places.mode, MODES.indexOf(view.mode));
    const names = PHASES.map((phase) => (phase.key === "waiting" && view.mode === "live" ? "cell-empty" : phase.tone));
    gl.uniform3fv(places.tones, shares(names.map((name) => rgb(colour(name)))));
    gl.uniform3fv(places.shades, shares(PHASES.slice(0, -1).flatMap((phase) => shades(phase.tone))));
    gl.uniform3fv(places.scale, shares([0, 1, 2, 3, 4, 5, 6].map((i) => heat(i / 6))));
    for (const block of blocks) this.paintBlock(block, view);
  }

  paintBlock(block, view) {
    const { gl, places } = this;
    block.gl ??= this.upload(block);
    gl.bindTexture(gl.TEXTURE_2D, block.gl.texture);
    gl.uniform4f(places.view, view.from - block.gl.base, 1 / (view.to - view.from), view.top, 1 / (view.bottom - view.top));
    gl.uniform1i(places.isSingle, block.level === 0 ? 1 : 0);
    for (const lane of block.gl.lanes) {
      gl.uniform1f(places.tilesPerRow, lane.tilesPerRow);
      gl.uniform1f(places.firstTile, lane.firstTile);
      gl.bindVertexArray(lane.array);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, block.nColumns);
    }
    gl.bindVertexArray(null);
  }

  upload(block) {
    const { gl } = this, { nColumns, nRows, columns } = block;
    const cells = new Uint8Array(nColumns * nRows * 2);
    for (let i = 0; i < nColumns * nRows; i++) {
      cells[2 * i] = columns.compute[i];
      cells[2 * i + 1] = columns.exchange?.[i] ?? 0;
    }
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RG8, nRows, nColumns, 0, gl.RG, gl.UNSIGNED_BYTE, cells);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    const base = block.begin[0];
    const lanes = lanesOf(block).map((lane) => ({ ...lane, array: this.instances(block, lane, base) }));
    return { texture, base, lanes };
  }

  instances(block, lane, base) {
    const { gl } = this, { nColumns } = block;
    const values = new Float32Array(nColumns * PER_INSTANCE);
    for (let column = 0; column < nColumns; column++) {
      const i = column * block.nIpus + (block.nIpus === 1 ? 0 : lane.chip);
      const chip = chipShares(block, column, lane.chip);
      values.set([block.begin[i] - base, block.end[i] - base, lane.row, column,
        chip.links, chip.host, chip.sync, chip.exchange, lane.nRows, chip.waiting], column * PER_INSTANCE);
    }
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    for (const [at, offset] of [[0, 0], [1, 16], [2, 32]]) {
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, 4, gl.FLOAT, false, 4 * PER_INSTANCE, offset);
      gl.vertexAttribDivisor(at, 1);
    }
    return array;
  }

  drop(block) {
    if (!block.gl) return;
    this.gl.deleteTexture(block.gl.texture);
    for (const lane of block.gl.lanes) this.gl.deleteVertexArray(lane.array);
    block.gl = null;
  }
}

// Colours as a shader wants them.
function shares(colours) {
  return colours.flat().map((v) => v / 255);
}

// Where nothing is drawn, a chip waits.
export function groundOf(mode) {
  if (mode === "live") return rgb(colour("sunken"));
  if (mode.startsWith("difference")) return empty();
  return mode === "phases" ? rgb(colour("idle")) : heat(mode === "idle" ? 1 : 0);
}

// What a chip does in a column, as shares of the column's time.
export function chipShares({ columns, nIpus }, column, chip) {
  const i = column * nIpus + (nIpus === 1 ? 0 : chip), total = Math.max(1, columns.total?.[i] ?? 1);
  const share = (name) => (columns[`chip_${name}`]?.[i] ?? 0) / total;
  const busy = { links: share("links"), host: share("host"), sync: share("sync"), exchange: share("exchange"), compute: share("compute") };
  return { ...busy, waiting: Math.max(0, 1 - Object.values(busy).reduce((sum, v) => sum + v, 0)) };
}

// Tested on a separate canvas: one that has had a WebGL context cannot get another kind.
function isEmulated() {
  const gl = document.createElement("canvas").getContext("webgl2");
  if (!gl) return true;
  const name = gl.getExtension("WEBGL_debug_renderer_info");
  const renderer = String(gl.getParameter(name ? name.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|softpipe|software|basic render/i.test(renderer);
}

// A block may hold rows of several chips: {chip, row in the block, nRows, firstTile, tilesPerRow} of each.
export function lanesOf(block) {
  const result = [], { rowsPerIpu, perIpu, tileLevel } = block, tilesPerRow = 4 ** tileLevel;
  const first = Math.floor(block.firstRow / rowsPerIpu), last = Math.floor((block.firstRow + block.nRows - 1) / rowsPerIpu);
  for (let chip = first; chip <= last; chip++) {
    const from = Math.max(block.firstRow, chip * rowsPerIpu);
    const to = Math.min(block.firstRow + block.nRows, (chip + 1) * rowsPerIpu);
    result.push({
      chip, row: from - block.firstRow, nRows: to - from, tilesPerRow,
      firstTile: chip * perIpu + (from - chip * rowsPerIpu) * tilesPerRow,
    });
  }
  return result;
}

function link(gl) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (gl.getProgramParameter(program, gl.LINK_STATUS)) return program;
  console.error(gl.getProgramInfoLog(program), ...gl.getAttachedShaders(program).map((s) => gl.getShaderInfoLog(s)));
  return null;
}
