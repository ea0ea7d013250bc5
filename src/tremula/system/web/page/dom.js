// Elements in one expression: h("div.card", { id }, child, …); texts are never read as HTML.

export function h(kind, given = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = Object.assign(document.createElement(tag), given);
  if (classes.length) made.className = classes.join(" ");
  made.append(...children.filter((child) => child !== null && child !== false));
  return made;
}

// The same for SVG, whose attributes are set as such.
export function s(tag, given = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children);
}
