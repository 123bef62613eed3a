/** The content of an object as a table, by the fields that its declaration names. */

import type { AnyThing } from "../verify/evidence/recognize.ts";
import { formatUtc } from "../verify/evidence/verdict.ts";
import { hex } from "../verify/wire/bytes.ts";
import { CborMap, type Item } from "../verify/wire/cbor.ts";
import { el, foreign } from "../ui/dom.ts";

/** Bytes of a field that are shown before the rest is left out. */
const MAX_SHOWN = 64;
const MAX_ITEMS = 40;
const TIMES = new Set(["hub_ts", "valid_from", "valid_until", "expires_at", "from_ts", "to_ts", "exported_at", "seen_at"]);

/** Return a closed box with the fields of an object; nothing for objects without declared fields. */
export function detailsOf(thing: AnyThing): HTMLElement | null {
  if (thing.kind === "Bare") return null;
  return el("details", { class: "fields" }, el("summary", {}, "All fields"), table(thing.value as object));
}

function table(value: object): HTMLElement {
  const rows = Object.entries(value).filter(([, held]) => held !== null && typeof held !== "function");
  return el("dl", {}, ...rows.flatMap(([name, held]) => [el("dt", {}, name), el("dd", {}, shown(name, held))]));
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
