/** The content of an object as a table, by the fields that its declaration names. */

import type { AnyThing } from "../verify/evidence/recognize.ts";
import { formatUtc } from "../verify/evidence/verdict.ts";
import { hex } from "../verify/wire/bytes.ts";
import { CborMap, type Item } from "../verify/wire/cbor.ts";
import { el, foreign } from "../ui/dom.ts";
import { VeenError } from "../verify/wire/errors.ts";
import type { ResultFile } from "../verify/wire/schema.ts";
import { encodeText, type JsonObject } from "../verify/query/json.ts";
import { rowsOf } from "../verify/query/verify.ts";

/** Bytes of a field that are shown before the rest is left out. */
const MAX_SHOWN = 64;
const MAX_ITEMS = 40;
const TIMES = new Set([
  "hub_ts",
  "valid_from",
  "valid_until",
  "expires_at",
  "from_ts",
  "to_ts",
  "exported_at",
  "seen_at",
]);

/** Return a closed box with the fields of an object; nothing for objects without declared fields. */
export function detailsOf(thing: AnyThing): HTMLElement | null {
  if (thing.kind === "Bare") return null;
  return el("details", { class: "fields" }, el("summary", {}, "All fields"), table(thing.value as object));
}

/** Rows of a query result that are shown before the rest is left out. */
const MAX_ROWS = 200;

/** Return the rows of a query result as a table; nothing if they cannot be read. */
export function rowsView(file: ResultFile): HTMLElement | null {
  let rows: JsonObject[];
  try {
    rows = rowsOf(file);
  } catch (error) {
    if (error instanceof VeenError) return null;
    throw error;
  }
  const names = [...(rows[0]?.keys() ?? [])];
  if (names.length === 0) return null;
  const cell = (row: JsonObject, name: string): HTMLElement => {
    const value = row.get(name) ?? null;
    return el("td", {}, value === null ? "" : foreign(typeof value === "string" ? value : encodeText(value)));
  };
  const body = rows.slice(0, MAX_ROWS).map((row) => el("tr", {}, ...names.map((name) => cell(row, name))));
  const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, foreign(name))));
  const more =
    rows.length > MAX_ROWS ? el("p", { class: "quiet" }, `… and ${rows.length - MAX_ROWS} more rows`) : null;
  const box = el("div", { class: "rows", tabindex: 0, role: "region", "aria-label": "Rows" });
  box.append(el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
  return el("div", {}, box, more);
}

function table(value: object): HTMLElement {
  const rows = Object.entries(value).filter(([, held]) => held !== null && typeof held !== "function");
  return el(
    "dl",
    {},
    ...rows.flatMap(([name, held]) => [el("dt", {}, name), el("dd", {}, shown(name, held))]),
  );
}

function shown(name: string, value: unknown): HTMLElement | string {
  if (typeof value === "bigint") {
    return TIMES.has(name) && value > 0n ? `${formatUtc(value)} (${value})` : value.toString();
  }
  if (typeof value === "string") return foreign(value, "text");
  if (typeof value === "boolean") return value ? "true" : "false";
  if (value instanceof Uint8Array) {
    const more = value.length > MAX_SHOWN ? `… (${value.length} bytes)` : "";
    return el("code", {}, value.length === 0 ? "empty" : hex(value.subarray(0, MAX_SHOWN)) + more);
  }
  if (Array.isArray(value)) {
    if (value.length === 0) return "none";
    const items = value.slice(0, MAX_ITEMS).map((each: unknown) => el("li", {}, shown(name, each)));
    const more = value.length > MAX_ITEMS ? el("li", {}, `… ${value.length - MAX_ITEMS} more`) : null;
    return el("ol", {}, ...items, more);
  }
  return value !== null && typeof value === "object" ? table(value) : String(value);
}

/** Return a decoded CBOR value as indented text. */
export function cborText(item: Item, indent = ""): string {
  const deeper = `${indent}  `;
  if (item instanceof Uint8Array) return `h'${hex(item)}'`;
  if (typeof item === "string") return JSON.stringify(item);
  if (item instanceof CborMap) {
    const lines = item.entries.map(([key, value]) => `${deeper}${cborText(key)}: ${cborText(value, deeper)}`);
    return lines.length === 0 ? "{}" : `{\n${lines.join(",\n")}\n${indent}}`;
  }
  if (Array.isArray(item)) {
    const lines = item.map((value: Item) => `${deeper}${cborText(value, deeper)}`);
    return lines.length === 0 ? "[]" : `[\n${lines.join(",\n")}\n${indent}]`;
  }
  return String(item);
}
