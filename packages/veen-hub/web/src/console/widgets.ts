/** Small parts of screens: cards, verdicts, hashes, downloads. */
import { type Child, el, foreign, svg, visible } from "../ui/dom.ts";
import type { AuditLog } from "./audit.ts";
import { short, utc } from "./format.ts";
import type { Evidence, Problem } from "./problems.ts";

export type Verdict = "holds" | "fails" | "open";

const MARKS: Readonly<Record<Verdict, string>> = { holds: "✓", fails: "✕", open: "○" };

/** A verdict as sign, colour and words: never by colour alone. */
export function badge(verdict: Verdict, text: string, title = ""): HTMLElement {
  const mark = el("span", { "aria-hidden": "true" }, MARKS[verdict]);
  return el("span", { class: `badge ${verdict}`, title: visible(title) || null }, mark, visible(text));
}

/** What the hub says of itself without a signature: never in the colour and with the sign of what is verified. */
export function said(isGood: boolean, text: string): HTMLElement {
  return isGood ? el("span", { class: "badge said", title: "said by the hub, not signed" }, text) : badge("fails", text);
}

export function card(title: string, ...children: readonly Child[]): HTMLElement {
  return el("section", { class: "panel card" }, el("h2", {}, title), ...children);
}

export function empty(text: string): HTMLElement {
  return el("p", { class: "quiet empty" }, text);
}

/** Names and values; a value may be text, which is taken as text of others, or an element. */
export function facts(rows: readonly (readonly [string, Child])[]): HTMLElement {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === false) continue;
    list.append(el("dt", {}, foreign(name)), el("dd", {}, typeof value === "string" ? foreign(value) : value));
  }
  return list;
}

/** A hash, shortened if `digits` is given, with its whole text in the title, and copied by a click. */
export function hash(text: string, digits?: number): HTMLElement {
  const shown = digits === undefined ? text : short(text, digits);
  const button = el("button", {
    class: "hash mono",
    type: "button",
    title: `${text}\nClick to copy`,
    onclick: (event) => {
      event.stopPropagation();
      void navigator.clipboard?.writeText(text).then(() => flash(button));
    },
  }, shown);
  return button;
}

function flash(element: HTMLElement): void {
  element.classList.add("copied");
  setTimeout(() => element.classList.remove("copied"), 900);
}

export function save(audit: AuditLog, name: string, bytes: Uint8Array<ArrayBuffer>, type = "application/octet-stream") {
  const url = URL.createObjectURL(new Blob([bytes], { type }));
  const link = el("a", { href: url, download: name.replace(/[^\w.-]/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  audit.add("download", `${name}, ${bytes.length} bytes`);
}

export function evidenceButtons(audit: AuditLog, evidence: readonly Evidence[]): HTMLElement {
  const buttons = evidence.map(({ name, bytes }) =>
    el("button", { type: "button", class: "small", onclick: () => save(audit, name, bytes) }, `Download ${name}`));
  return el("div", { class: "buttons" }, ...buttons);
}

/** A problem with its reason and its evidence. */
export function problemPanel(audit: AuditLog, problem: Problem): HTMLElement {
  const heading = problem.isLie ? `Does not hold: ${problem.area}` : `No answer: ${problem.area}`;
  return el("div", { class: `problem ${problem.isLie ? "lie" : "silence"}`, role: "alert" },
    el("strong", {}, heading, problem.subject ? ` ${short(problem.subject, 12)}` : ""),
    el("p", {}, foreign(problem.reason)),
    el("p", { class: "quiet" }, `since ${utc(problem.since / 1_000)} UTC`),
    evidenceButtons(audit, problem.evidence));
}

/** A line of recent values. */
export function sparkline(values: readonly number[], label: string): SVGElement {
  const [width, height] = [160, 36];
  const top = Math.max(...values, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    preserveAspectRatio: "none" },
  svg("polyline", { points: points.join(" "), fill: "none", "vector-effect": "non-scaling-stroke" }));
}

let hints = 0;

/** A labelled input; the hint describes it and is no part of its name. */
export function field(label: string, input: HTMLElement, hint = ""): HTMLElement {
  const named = el("label", {}, el("span", {}, label), input);
  if (hint === "") return el("div", { class: "field" }, named);
  const id = `hint-${(hints += 1)}`;
  input.setAttribute("aria-describedby", id);
  return el("div", { class: "field" }, named, el("small", { class: "quiet", id }, hint));
}
