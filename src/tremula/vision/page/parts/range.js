// A range of an axis that several drawings share: zoom one and all follow.

export class Range {
  constructor(low, high, least) {
    Object.assign(this, { low, high: Math.max(high, low + least), least, listeners: new Set() });
    this.from = this.low;
    this.to = this.high;
  }

  show(from, to) {
    const span = Math.min(this.high - this.low, Math.max(this.least, to - from));
    const middle = (from + to) / 2;
    this.from = Math.max(this.low, Math.min(this.high - span, middle - span / 2));
    this.to = this.from + span;
    for (const listener of this.listeners) listener(this);
  }

  zoom(factor, around) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  // Closer: to what is selected, [from, to], so that it takes a third of the view; else to the middle.
  closer(selected) {
    const [from, to] = selected ?? [(this.from + this.to) / 2, (this.from + this.to) / 2], middle = (from + to) / 2;
    const third = Math.max(to - from, this.least / 3);
    if (selected && (this.span > 4 * third || middle < this.from || middle > this.to)) this.show(middle - 1.5 * third, middle + 1.5 * third);
    else this.zoom(0.6, middle);
  }

  // Moves, if a stretch is out of sight, so that it is in the middle.
  reveal(from, to) {
    if (from >= this.from && to <= this.to) return;
    const span = Math.max(this.span, (to - from) * 1.2), middle = (from + to) / 2;
    this.show(middle - span / 2, middle + span / 2);
  }

  pan(by) {
    this.show(this.from + by, this.to + by);
  }

  reset() {
    this.show(this.low, this.high);
  }

  listen(listener) {
    this.listeners.add(listener);
  }

  get span() {
    return this.to - this.from;
  }
}

export const STEERING = "Ctrl + wheel zooms, or the wheel after a click; drag moves, Shift + drag marks, 0 resets";

// What a turn of the wheel over a canvas asks for: "zoom", "pan" or "rows". Without a key, over a
// canvas that is not focused, nothing: the page scrolls.
export function wheelAsks(event, canvas) {
  if (event.altKey) return "rows";
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return "pan";
  return event.ctrlKey || event.metaKey || document.activeElement === canvas ? "zoom" : null;
}

// Wheel, drag, double click and keys on a canvas whose axis begins `left` pixels from its edge.
// onkey(event) comes before the keys below, and returns whether it took the key. With isMarking(event)
// a drag marks instead of moving: onmark({ from, to, y0, y1 }, isDone). selected() → [from, to] of what is
// selected, or null: the key + goes to it.
export function steer(canvas, range, left, { onpick, onhover, onkey, onmark, isMarking, selected, vertical } = {}) {
  const width = () => Math.max(1, canvas.clientWidth - left);
  const at = (x) => range.from + ((x - left) / width()) * range.span;
  let grabbed = null;
  canvas.addEventListener("wheel", (event) => {
    const action = wheelAsks(event, canvas);
    if (!action || (action === "rows" && !vertical)) return;
    event.preventDefault();
    if (action === "rows") vertical.zoom(2 ** (event.deltaY / 240), vertical.at(event.offsetY));
    else if (action === "pan") range.pan(((event.deltaX || event.deltaY) / width()) * range.span);
    else range.zoom(2 ** (event.deltaY / 240), at(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    grabbed = { x: event.offsetX, y: event.offsetY, moved: false, isMark: Boolean(isMarking?.(event)) };
    canvas.setPointerCapture(event.pointerId);
  });
  const mark = (event, isDone) => {
    const [from, to] = [at(grabbed.x), at(event.offsetX)].map((time) => Math.max(range.low, Math.min(range.high, time))).sort((a, b) => a - b);
    const [y0, y1] = [grabbed.y, event.offsetY].sort((a, b) => a - b);
    onmark({ from, to, y0, y1 }, isDone);
  };
  canvas.addEventListener("pointermove", (event) => {
    if (!grabbed) {
      onhover?.(event, at(event.offsetX));
      return;
    }
    const dx = event.offsetX - grabbed.x, dy = event.offsetY - grabbed.y;
    if (!grabbed.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    if (grabbed.isMark) {
      grabbed.moved = true;
      mark(event, false);
      return;
    }
    range.pan((-dx / width()) * range.span);
    vertical?.pan((-dy / canvas.clientHeight) * vertical.span);
    grabbed = { x: event.offsetX, y: event.offsetY, moved: true };
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grabbed?.moved && grabbed.isMark) mark(event, true);
    else if (grabbed && !grabbed.moved) onpick?.(event, at(event.offsetX));
    grabbed = null;
  });
  canvas.addEventListener("pointerleave", (event) => onhover?.(event, null));
  canvas.addEventListener("dblclick", () => {
    range.reset();
    vertical?.reset();
  });
  canvas.addEventListener("keydown", (event) => {
    const middle = (range.from + range.to) / 2;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (onkey?.(event)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const actions = {
      ArrowLeft: () => range.pan(-range.span / 8), ArrowRight: () => range.pan(range.span / 8),
      ArrowUp: () => vertical?.pan(-vertical.span / 8), ArrowDown: () => vertical?.pan(vertical.span / 8),
      "+": () => range.closer(selected?.()), "=": () => range.closer(selected?.()), "-": () => range.zoom(1.6, middle),
      "]": () => vertical?.zoom(0.6, (vertical.from + vertical.to) / 2), "[": () => vertical?.zoom(1.6, (vertical.from + vertical.to) / 2),
      0: () => {
        range.reset();
        vertical?.reset();
      },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });
}
