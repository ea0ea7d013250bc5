// Arrows with a slight bend, made of short lines, so that any pen can draw them.

const SEGMENTS = 14, BEND = 0.16, MOST_BEND = 46;

// From a point to another, [x, y] each; `lift` bends it upwards by that many pixels instead.
export function arrow(pen, [x0, y0], [x1, y1], width, lift) {
  const dx = x1 - x0, dy = y1 - y0, long = Math.hypot(dx, dy);
  if (long < 1) return;
  const bend = lift === undefined ? Math.min(MOST_BEND, BEND * long) : 0;
  const cx = (x0 + x1) / 2 - (dy / long) * bend, cy = (y0 + y1) / 2 + (dx / long) * bend - (lift ?? 0);
  const at = (t) => [(1 - t) ** 2 * x0 + 2 * t * (1 - t) * cx + t * t * x1, (1 - t) ** 2 * y0 + 2 * t * (1 - t) * cy + t * t * y1];
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(x0, y0);
  for (let i = 1; i <= SEGMENTS; i++) pen.lineTo(...at(i / SEGMENTS));
  pen.stroke();
  const [px, py] = at(1 - 1 / SEGMENTS), angle = Math.atan2(y1 - py, x1 - px), size = Math.min(long / 2, 5 + 1.6 * width);
  pen.beginPath();
  pen.moveTo(x1, y1);
  for (const turn of [2.7, -2.7]) pen.lineTo(x1 + size * Math.cos(angle + turn), y1 + size * Math.sin(angle + turn));
  pen.closePath();
  pen.fill();
}
