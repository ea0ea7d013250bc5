// Numbers as people read them.

const plain = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

export function whole(value) {
  return Number.isFinite(value) ? plain.format(value) : "–";
}

// "1 tile", "2 tiles": a number and what it counts.
export function counted(n, noun) {
  return `${whole(n)} ${plural(n, noun)}`;
}

export function plural(n, noun) {
  if (n === 1) return noun;
  if (noun.endsWith("vertex")) return noun.replace(/ex$/, "ices");
  return /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : /(s|x|ch|sh)$/.test(noun) ? `${noun}es` : `${noun}s`;
}

function scaled(value, base, units) {
  let size = Math.abs(value), unit = 0;
  while (size >= base && unit < units.length - 1) {
    size /= base;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0;
  return `${value < 0 ? "−" : ""}${size.toFixed(digits)}${units[unit]}`;
}

export function bytes(value) {
  return Number.isFinite(value) ? scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]) : "–";
}

export function short(value) {
  return Number.isFinite(value) ? scaled(value, 1000, ["", " k", " M", " G", " T"]) : "–";
}

// A tile by its number over all chips; where there are several, as "chip 1, tile 0".
export function tileName(tile, perIpu, nIpus) {
  return nIpus > 1 ? `chip ${whole(Math.floor(tile / perIpu))}, tile ${whole(tile % perIpu)}` : `tile ${whole(tile)}`;
}

export function capital(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}`;
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = 100 * share;
  return `${value.toFixed(Math.abs(value) >= 10 || value === 0 ? 0 : 1)} %`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds === 0) return "0 s";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (seconds >= size) return `${(seconds / size).toPrecision(4)} ${unit}`;
  }
  return `${(seconds * 1e9).toFixed(1)} ns`;
}

// The same for axes, without trailing zeros.
export function shortDuration(seconds) {
  return duration(seconds).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

// A constant of the chip: bytes as bytes, others in few digits with their unit.
export function quantity(value, unit) {
  if (unit === "B") return bytes(value);
  if (unit === "s") return shortDuration(value);
  const digits = Math.abs(value) >= 1e4 ? short(value) : String(Number(value.toPrecision(4)));
  return unit === "Hz" ? `${digits}Hz` : unit ? `${digits} ${unit}` : digits;
}

export function signed(value, format) {
  return value > 0 ? `+${format(value)}` : value < 0 ? `−${format(-value)}` : "0";
}

export function shape(text) {
  return /^\[[\d, ]*\]$/.test(text) ? text.slice(1, -1).replaceAll(", ", " × ") || "scalar" : text;
}

// The end of a path, as in "…/models/net.py:12": enough to recognise, short enough to show.
export function place(source) {
  return source.split("/").slice(-2).join("/");
}

// Round values between two ends, about n of them.
export function ticks(low, high, n) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, n), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const result = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) result.push(at);
  return result;
}

// The same for bytes: powers of two.
export function byteTicks(low, high, n) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const step = 2 ** Math.ceil(Math.log2(span / Math.max(1, n)));
  const result = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) result.push(at);
  return result;
}
