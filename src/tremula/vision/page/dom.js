// Elements, built by functions. Text always becomes a text node: names in reports are not trusted.

const SVG = "http://www.w3.org/2000/svg";

// h("div.card", {onclick, title, …}, child, …): children are elements, text or lists of them.
export function h(selector, properties, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// An element of a drawing: drawn("circle", {r: 3, onclick}, child, …).
export function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  append(element, children);
  return element;
}

// An icon: one path on a 24 × 24 grid, stroked in the text's colour.
export function icon(path) {
  return drawn("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, drawn("path", { d: path }));
}

// A row of buttons of which one is chosen; arrow keys move between them.
export function choice(label, options, chosen, onpick) {
  const group = h("div.choice", { role: "radiogroup", "aria-label": label });
  for (const [value, text, title] of options) {
    group.append(h("button", {
      type: "button", role: "radio", title, "aria-checked": String(value === chosen),
      tabIndex: value === chosen ? 0 : -1, onclick: () => onpick(value),
    }, text));
  }
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const at = options.findIndex(([value]) => value === chosen);
    onpick(options[(at + step + options.length) % options.length][0]);
    event.preventDefault();
    event.stopPropagation();
  });
  return group;
}

export function card(title, aside, ...children) {
  const head = title && h("header", {}, h("h2", {}, title), aside);
  return h("section.card", {}, head, ...children);
}

// A panel below a button, closed by Escape, a click elsewhere, or close().
export function menu(button, build) {
  const panel = h("div.menu", { popover: "auto", ontoggle: (event) => event.newState === "closed" && panel.remove() });
  const close = () => panel.hidePopover();
  append(panel, build(close));
  document.body.append(panel);
  panel.showPopover();
  const box = button.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = panel;
  panel.style.left = `${Math.max(8, Math.min(box.right - width, innerWidth - width - 8))}px`;
  panel.style.top = `${Math.max(8, Math.min(box.bottom + 6, innerHeight - height - 8))}px`;
  panel.querySelector("input:enabled, button, a")?.focus();
  return panel;
}

// What a reader has chosen, kept for the next visit where the browser allows it.
export function remember(key, value) {
  try {
    if (value === undefined) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // A file or a private window may have no storage; the choice then lasts as long as the page.
  }
}

export function remembered(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

const drawers = new WeakMap(), otherPens = new WeakMap();

// The pens with which an element's canvases were drawn again, other than their own.
export function redrawn(element, canvases, makePen) {
  const pens = canvases.map((canvas) => {
    const pen = makePen();
    otherPens.set(canvas, pen);
    return pen;
  });
  drawers.get(element)?.();
  for (const canvas of canvases) otherPens.delete(canvas);
  drawers.get(element)?.();
  return pens;
}

// Calls back with the size of an element, at once and whenever it changes.
export function onSize(element, callback) {
  let width = 0, height = 0;
  drawers.set(element, () => width > 0 && height > 0 && callback(width, height));
  const observer = new ResizeObserver(([entry]) => {
    const box = entry.contentRect;
    if (box.width === width && box.height === height) return;
    ({ width, height } = box);
    if (width > 0 && height > 0) callback(width, height);
  });
  observer.observe(element);
  return observer;
}

// A canvas as sharp as the screen; returns its 2D context, scaled to CSS pixels.
export function sharpen(canvas, width, height) {
  if (otherPens.has(canvas)) return otherPens.get(canvas);
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const w = Math.round(width * ratio), k = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== k) {
    canvas.width = w;
    canvas.height = k;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// At most one call per frame.
export function perFrame(callback) {
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      callback();
    });
  };
}

const bubble = h("div.bubble", { role: "status", hidden: true });

// Shows a few lines beside the pointer; called without lines, hides them.
export function hint(event, lines) {
  if (!bubble.isConnected) document.body.append(bubble);
  if (!lines || !lines.length) {
    bubble.hidden = true;
    return;
  }
  replace(bubble, lines.map((line) => Array.isArray(line)
    ? h("div.pair", {}, h("span", {}, line[0]), h("b", {}, line[1]))
    : h("div", {}, line)));
  bubble.hidden = false;
  const { innerWidth, innerHeight } = window, box = bubble.getBoundingClientRect();
  const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
  const y = Math.min(event.clientY + 14, innerHeight - box.height - 8);
  bubble.style.transform = `translate(${Math.round(Math.max(4, x))}px, ${Math.round(y)}px)`;
}
