/** Canonical JSON: every value has one encoding (query-api §3.1, RESOLUTIONS P12). */

import { type Bytes, equal, fromUtf8, utf8 } from "../wire/bytes.ts";
import { VeenError } from "../wire/errors.ts";

/** A decoded value: a number is a bigint if its canonical form is an integer. */
export type Json = null | boolean | bigint | number | string | readonly Json[] | JsonObject;
export type JsonObject = ReadonlyMap<string, Json>;

const MAX_DEPTH = 32;
const MAX_INT_DIGITS = 128;

/** A query or its JSON breaks a rule of query-api §3 or §4. */
export class QueryError extends VeenError {}

const refused = (why: string): QueryError => new QueryError(`the JSON ${why}`);

export function encodeText(value: Json): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "bigint") {
    if (value.toString().replace("-", "").length > MAX_INT_DIGITS) {
      throw refused(`has an integer of more than ${MAX_INT_DIGITS} digits`);
    }
    return value.toString();
  }
  if (typeof value === "number") return Object.is(value, -0) ? "0" : String(value);
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw refused("has text with a lone surrogate, which UTF-8 cannot encode");
    return JSON.stringify(value);
  }
  if (value instanceof Map) {
    const keys = [...(value.keys() as Iterable<string>)].sort(byUtf8);
    return `{${keys.map((key) => `${encodeText(key)}:${encodeText(value.get(key) as Json)}`).join(",")}}`;
  }
  return `[${(value as readonly Json[]).map(encodeText).join(",")}]`;
}

/** Return the canonical bytes of a value. */
export function encode(value: Json): Bytes {
  return utf8(encodeText(value));
}

/** Compare texts by their UTF-8 bytes, which is the order of their code points. */
export function byUtf8(a: string, b: string): number {
  const common = Math.min(a.length, b.length);
  for (let at = 0; at < common; at += 1) {
    const [x, y] = [a.charCodeAt(at), b.charCodeAt(at)];
    if (x !== y) return place(x) - place(y);
  }
  return a.length - b.length;
}

/** Move the two halves of code points above U+FFFF behind the code units that stand for themselves. */
const place = (unit: number): number => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800);

/** Make an object from pairs. */
export function object(pairs: Readonly<Record<string, Json>>): JsonObject {
  return new Map(Object.entries(pairs));
}

/** Parse JSON that has a canonical form. */
export function decode(data: Uint8Array, maxBytes: number): Json {
  if (data.length > maxBytes) throw refused(`has ${data.length} bytes, at most ${maxBytes} are allowed`);
  const text = fromUtf8(data);
  if (text === undefined) throw refused("is not UTF-8");
  const parser = new Parser(text);
  const value = parser.document();
  if (text.includes("\\u")) encodeText(value);
  return value;
}

/** Parse bytes that must be canonical already. */
export function decodeCanonical(data: Uint8Array, maxBytes: number): Json {
  const value = decode(data, maxBytes);
  if (!equal(encode(value), data)) throw refused("is JSON, but not canonical JSON (RESOLUTIONS P12)");
  return value;
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;

class Parser {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Json {
    const value = this.#value(MAX_DEPTH);
    this.#space();
    if (this.#at !== this.#text.length) throw this.#wrong("Extra data");
    return value;
  }

  #space(): void {
    this.#match(SPACE);
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found !== null) this.#at += found[0].length;
    return found;
  }

  #take(word: string): boolean {
    if (!this.#text.startsWith(word, this.#at)) return false;
    this.#at += word.length;
    return true;
  }

  #wrong(what: string): QueryError {
    return refused(`is not JSON: ${what}: character ${this.#at}`);
  }

  #value(depth: number): Json {
    this.#space();
    const first = this.#text[this.#at];
    if (first === '"') return this.#string();
    if (first === "[" || first === "{") {
      if (depth === 0) throw refused(`is nested deeper than ${MAX_DEPTH} levels`);
      return first === "[" ? this.#array(depth - 1) : this.#object(depth - 1);
    }
    if (this.#take("null")) return null;
    if (this.#take("true")) return true;
    if (this.#take("false")) return false;
    return this.#number();
  }

  #string(): string {
    const found = this.#match(STRING);
    if (found === null) throw this.#wrong("a string is not closed, or has a wrong character");
    return JSON.parse(found[0]) as string;
  }

  #number(): Json {
    const found = this.#match(NUMBER);
    if (found === null) throw this.#wrong("Expecting value");
    const [text, fraction, exponent] = found;
    if (fraction === undefined && exponent === undefined) {
      if (text.replace("-", "").length > MAX_INT_DIGITS) {
        throw refused(`is not JSON: an integer has more than ${MAX_INT_DIGITS} digits`);
      }
      return BigInt(text);
    }
    const value = Number(text);
    if (!Number.isFinite(value)) throw refused("is not JSON: a number is beyond the range of a double");
    const form = encodeText(value);
    return /^-?[0-9]+$/.test(form) ? BigInt(form) : value;
  }

  #array(depth: number): Json[] {
    const items: Json[] = [];
    this.#at += 1;
    this.#space();
    if (this.#take("]")) return items;
    for (;;) {
      items.push(this.#value(depth));
      this.#space();
      if (this.#take("]")) return items;
      if (!this.#take(",")) throw this.#wrong("Expecting ',' delimiter");
    }
  }

  #object(depth: number): JsonObject {
    const made = new Map<string, Json>();
    let count = 0;
    this.#at += 1;
    this.#space();
    if (this.#take("}")) return made;
    for (;;) {
      this.#space();
      if (this.#text[this.#at] !== '"')
        throw this.#wrong("Expecting property name enclosed in double quotes");
      const key = this.#string();
      this.#space();
      if (!this.#take(":")) throw this.#wrong("Expecting ':' delimiter");
      made.set(key, this.#value(depth));
      count += 1;
      this.#space();
      if (this.#take("}")) break;
      if (!this.#take(",")) throw this.#wrong("Expecting ',' delimiter");
    }
    if (made.size !== count) throw refused("is not JSON: an object has the same key twice");
    return made;
  }
}
