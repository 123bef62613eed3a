/** Elements made from code. Text is always set as text, so that no name or content can become markup. */

export type Child = Node | string | null | undefined | false;
export type Attributes = Readonly<Record<string, string | number | boolean | null | undefined | EventListener>>;

const SVG = "http://www.w3.org/2000/svg";

/** Create an HTML element; an attribute that begins with `on` is an event listener. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: readonly Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((each): each is Node | string => typeof each === "string" || each instanceof Node));
  return element;
}

/** Characters that change how text around them is shown: controls, and marks of direction. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Return text of others with every invisible character spelled out, such as `<U+202E>`. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (char) => `<U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

/** Create an element for text of others: its invisible characters are spelled out, its direction stays inside. */
export function foreign(text: string, className = ""): HTMLElement {
  return el("bdi", { class: className }, visible(text));
}

/** Create an element for text of others that has lines: as `foreign`, but each newline begins a line. */
export function foreignLines(text: string): HTMLElement {
  return el("span", { class: "text" }, ...text.split("\n").flatMap((line, at) => [at > 0 ? "\n" : null, foreign(line)]));
}

/** Return the element with this id, which the page's own markup has. */
export function byId<E extends HTMLElement = HTMLElement>(id: string): E {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element #${id}`);
  return found as E;
}
