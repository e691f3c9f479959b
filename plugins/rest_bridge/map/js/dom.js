// Making elements. Text goes in as text, always: nothing here parses markup.

/**
 * make("button", { class: "chip", title: "…", on: { click } }, "text", child, …)
 * Properties are set as attributes; `on` holds listeners, false and null leave one out.
 */
export function make(tag, properties = {}, ...children) {
  return dress(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function makeSvg(tag, properties = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function dress(element, { on = {}, ...attributes }, children) {
  for (const [name, text] of Object.entries(attributes)) {
    if (text !== false && text !== null && text !== undefined) {
      element.setAttribute(name, text === true ? "" : text);
    }
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** An icon of the sprite in index.html. */
export function icon(name) {
  return makeSvg("svg", { class: "icon", "aria-hidden": "true" }, makeSvg("use", { href: `#icon-${name}` }));
}

/** The element with an id; a missing one is a mistake in the page, not something to survive. */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}
