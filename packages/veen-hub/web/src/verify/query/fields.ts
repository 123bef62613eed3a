/** Reading one value of a descriptor, and the names of fields (query-api §4.2.5, §4.4). */

import { quote } from "../hublog/note.ts";
import { type Json, type JsonObject, QueryError } from "./json.ts";

export const BASE_FIELDS = [
  "subject_id",
  "principal_id",
  "event_type",
  "event_time",
  "origin",
  "hub_commit_time",
  "hub_commit_seq",
  "stream",
  "hub_id",
  "receipt_id",
  "attributed",
] as const;
export const TIME_FIELDS: readonly string[] = ["event_time", "hub_commit_time"];
const MAX_PATH_PARTS = 16;
const MAX_FIELD_CHARACTERS = 256;
const PART = /^[^.\x00-\x1f\x7f\ud800-\udfff]+$/u;

export const characters = (text: string): number => [...text].length;

export function invalid(where: string, why: string): QueryError {
  return new QueryError(`${where}: ${why}`);
}

function describe(item: Json): string {
  if (item === null) return "null";
  if (typeof item === "boolean") return "a boolean";
  if (typeof item === "bigint" || typeof item === "number") return "a number";
  if (typeof item === "string") return `text of ${characters(item)} characters`;
  return item instanceof Map ? "an object" : `an array of ${(item as readonly Json[]).length}`;
}

export function want(what: string, item: Json, where: string): QueryError {
  return invalid(where, `want ${what}, found ${describe(item)}`);
}

export function readObject(item: Json, where: string, known: readonly string[]): JsonObject {
  if (!(item instanceof Map)) throw want("an object", item, where);
  for (const key of (item as JsonObject).keys()) {
    if (!known.includes(key)) throw invalid(where, `unknown key ${quote(cut(key, 40))}`);
  }
  return item as JsonObject;
}

export const cut = (text: string, most: number): string => [...text].slice(0, most).join("");

export function readText(item: Json, where: string, most: number): string {
  if (typeof item !== "string") throw want("text", item, where);
  const count = characters(item);
  if (count < 1 || count > most) throw invalid(where, `has ${count} characters`);
  return item;
}

export function readList(item: Json | undefined, where: string, most: number): readonly Json[] {
  if (!Array.isArray(item)) throw want("an array", item ?? null, where);
  if (item.length < 1 || item.length > most) throw invalid(where, `has ${item.length} items`);
  return item;
}

export function checkUnique(items: readonly string[], where: string): void {
  if (new Set(items).size !== items.length) throw invalid(where, "names an item twice");
}

/** Return the name of a field in its normal form. */
export function parseField(name: Json, where: string): string {
  if (typeof name !== "string") throw invalid(where, "the name of a field is not text");
  if ((BASE_FIELDS as readonly string[]).includes(name)) return name;
  if (name === "payload" || name === "payload.*") return "payload";
  const count = characters(name);
  if (count > MAX_FIELD_CHARACTERS) {
    throw invalid(
      where,
      `the name of a field has ${count} characters, at most ${MAX_FIELD_CHARACTERS} are allowed`,
    );
  }
  if (!name.startsWith("payload.")) throw invalid(where, `${quote(name)} is not a field`);
  const parts = name.slice("payload.".length).split(".");
  if (parts.length > MAX_PATH_PARTS || !parts.every((part) => PART.test(part))) {
    throw invalid(where, `${quote(name)} is not a path into the payload`);
  }
  return name;
}
