/** The Merkle path as SVG: rows from the message at the bottom to the signatures at the top; every hash is a button. */

import type { PathNode, PathRow, Seal } from "../verify/evidence/path.ts";
import { hex } from "../verify/wire/bytes.ts";
import { el, svg } from "../ui/dom.ts";

const ROW = 86;
const BOX = 52;
const HEADING = 34;
const TOP = 12;
/** From one signature to the next below it. */
const SEAL = 30;

/** What was clicked. */
export type Chosen = { readonly node: PathNode } | { readonly seal: Seal };

interface Frame {
  readonly width: number;
  /** Width of a node on the trunk, and of a sibling beside it. */
  readonly node: number;
  readonly sibling: number;
  readonly narrow: boolean;
}

/** Draw the rows for a width in pixels; `choose` is called with what the reader clicks. */
export function drawPath(
  rows: readonly PathRow[],
  width: number,
  choose: (chosen: Chosen) => void,
): SVGSVGElement {
  const narrow = width < 560;
  const third = Math.min(220, (width - 48) / 3);
  const frame: Frame = {
    width,
    node: narrow ? width * 0.46 : third,
    sibling: narrow ? width * 0.25 : third,
    narrow,
  };
  const upward = [...rows].reverse();
  let y = TOP;
  const places = upward.map((each) => {
    const place = y;
    const seals = SEAL * (frame.narrow ? each.seals.length : Math.max(0, each.seals.length - 2));
    y += ROW + (each.section === null ? 0 : HEADING) + seals;
    return place;
  });
  const picture = svg("svg", {
    class: "path",
    width,
    height: y,
    viewBox: `0 0 ${width} ${y}`,
    role: "group",
    "aria-label": "The path from the message, at the bottom, to the signatures, at the top",
  });
  upward.forEach((_, at) => {
    const next = places[at + 1];
    if (next !== undefined)
      picture.append(trunk(frame, places[at] as number, next, upward[at + 1] as PathRow));
  });
  upward.forEach((each, at) =>
    picture.append(...rowShapes(frame, each, upward[at + 1], places[at] as number, choose)),
  );
  return picture;
}

/** The lines from the node and siblings of the row below up to this node. */
function trunk(frame: Frame, above: number, below: number, from: PathRow): SVGGElement {
  const middle = frame.width / 2;
  const bend = above + BOX + 14;
  const group = svg("g", { class: "lines" });
  group.append(svg("path", { d: `M${middle} ${below}V${above + BOX}` }));
  if (from.siblings.length > 0) {
    const x = siblingX(frame, from.side) + frame.sibling / 2;
    group.append(
      svg("path", {
        class: "side",
        d: `M${x} ${below}V${bend + 8}Q${x} ${bend} ${x + (x < middle ? 8 : -8)} ${bend}H${middle}`,
      }),
    );
  }
  return group;
}

function siblingX(frame: Frame, side: "left" | "right"): number {
  const gap = frame.narrow ? 6 : 20;
  const middle = frame.width / 2;
  return side === "left" ? middle - frame.node / 2 - gap - frame.sibling : middle + frame.node / 2 + gap;
}

function rowShapes(
  frame: Frame,
  each: PathRow,
  below: PathRow | undefined,
  y: number,
  choose: (chosen: Chosen) => void,
): SVGElement[] {
  const x = frame.width / 2 - frame.node / 2;
  const kind = each.seals.length > 0 ? "node sealed" : "node";
  const shapes: SVGElement[] = [box(frame.node, each.node, x, y, kind, choose)];
  const [first] = each.siblings;
  if (first !== undefined) {
    const more = each.siblings.length - 1;
    const many = frame.narrow ? `${more + 1} peaks` : `another peak, and ${more} more`;
    const title = more > 0 ? many : frame.narrow ? first.title.replace("another ", "") : first.title;
    shapes.push(
      box(frame.sibling, { ...first, title }, siblingX(frame, each.side), y, "sibling", () =>
        choose({ node: first }),
      ),
    );
  }
  const takes = (other: PathRow | undefined, side: string): boolean =>
    other !== undefined && other.siblings.length > 0 && other.side === side;
  const onRight = takes(each, "left") || (takes(below, "left") && !takes(each, "right"));
  each.seals.forEach((seal, at) => shapes.push(sealShape(frame, seal, onRight, y, at, choose)));
  if (each.section !== null) {
    const seals = SEAL * each.seals.length;
    const under = y + 22 + (frame.narrow ? BOX + seals : Math.max(BOX, seals));
    shapes.push(svg("path", { class: "divider", d: `M0 ${under + 12}H${frame.width}` }));
    shapes.push(
      svg(
        "text",
        { class: "section", x: 0, y: under },
        frame.narrow ? each.section.replace(/ \(.*\)/, "") : each.section,
      ),
    );
  }
  return shapes;
}

function box(
  width: number,
  node: PathNode,
  x: number,
  y: number,
  kind: string,
  choose: (chosen: Chosen) => void,
): SVGGElement {
  const digits = hex(node.hash);
  const shown = width >= 150 ? `${digits.slice(0, 10)}…${digits.slice(-6)}` : `${digits.slice(0, 8)}…`;
  const title = fit(node.title, width, 6.4);
  const middle = x + width / 2;
  return button(`${node.title}, hash ${digits}`, kind, () => choose({ node }), [
    svg("rect", { x, y, width, height: BOX, rx: 9 }),
    svg("text", { class: "title", x: middle, y: y + 20 }, title),
    svg("text", { class: "hash", x: middle, y: y + 40 }, shown),
  ]);
}

function sealShape(
  frame: Frame,
  seal: Seal,
  onRight: boolean,
  y: number,
  at: number,
  choose: (chosen: Chosen) => void,
): SVGGElement {
  const text = `✓ ${seal.name}`;
  const size = frame.narrow ? frame.width - 8 : Math.min(frame.width / 2 - frame.node / 2 - 14, 250);
  const x = frame.narrow ? 4 : onRight ? frame.width - size : 0;
  const top = frame.narrow ? y + BOX + 5 + SEAL * at : y + SEAL * at;
  return button(`${seal.name}: verify this signature again`, `seal ${seal.by}`, () => choose({ seal }), [
    svg("rect", { x, y: top, width: size, height: 26, rx: 13 }),
    svg("text", { x: x + 12, y: top + 18 }, fit(text, size - 14, 6.9)),
  ]);
}

/** Cut text to a width, for a font with characters of about `each` pixels. */
function fit(text: string, width: number, each: number): string {
  const most = Math.floor(width / each);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function button(label: string, kind: string, act: () => void, children: readonly SVGElement[]): SVGGElement {
  const onKey = (event: Event): void => {
    const { key } = event as KeyboardEvent;
    if (key !== "Enter" && key !== " ") return;
    event.preventDefault();
    act();
  };
  const attributes = {
    class: kind,
    role: "button",
    tabindex: 0,
    "aria-label": label,
    onclick: act,
    onkeydown: onKey,
  };
  return svg("g", attributes, svg("title", {}, label), ...children);
}

/** A place that draws the path anew whenever its width changes. */
export function pathView(rows: readonly PathRow[], choose: (chosen: Chosen) => void): HTMLElement {
  const place = el("div", { class: "drawing" });
  let drawn = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry?.contentRect.width ?? 0);
    if (width === drawn || width < 100) return;
    drawn = width;
    place.replaceChildren(drawPath(rows, Math.min(width, 860), choose));
  }).observe(place);
  return place;
}
