/** Deterministic CBOR: every value has one encoding (core §3.1, RESOLUTIONS B3); anything else is refused. */

import { type Bytes, concat, fromUtf8, hex, utf8, view } from "./bytes.ts";
import { DecodeError } from "./errors.ts";

/** A map with its pairs in the order of the bytes. */
export class CborMap {
  readonly entries: readonly (readonly [Key, Item])[];

  constructor(entries: readonly (readonly [Key, Item])[]) {
    this.entries = entries;
  }

  get(key: Key): Item | undefined {
    const name = keyName(key);
    return this.entries.find(([held]) => keyName(held) === name)?.[1];
  }
}

export type Key = bigint | string | Bytes;
export type Item = bigint | Bytes | string | boolean | null | readonly Item[] | CborMap;

/** Deepest nesting that is accepted. */
const MAX_DEPTH = 32;
export const U64_MAX = 2n ** 64n - 1n;

function keyName(key: Key): string {
  return typeof key === "string" ? `t${key}` : typeof key === "bigint" ? `i${key}` : `b${hex(key)}`;
}

interface Head {
  readonly major: number;
  readonly value: bigint;
  readonly end: number;
  /** Whether the value is in its shortest form. */
  readonly shortest: boolean;
}

const SHORTEST = [24n, 0x100n, 0x10000n, 0x100000000n] as const;

/** Read the head at `at`; refuse what core §3.1 refuses. Past the end, the value is that of the bytes there. */
function head(data: Uint8Array, at: number): Head {
  const first = data[at];
  if (first === undefined) throw new DecodeError("not CBOR: ends early");
  const major = first >> 5;
  const info = first & 31;
  if (major === 6) throw new DecodeError("not CBOR: tags are not allowed (core §3.1)");
  if (info > 27 || (major === 7 && info !== 20 && info !== 21 && info !== 22)) {
    throw new DecodeError("not CBOR: indefinite lengths, floats and other simple values are not allowed (core §3.1)");
  }
  if (info < 24) return { major, value: BigInt(info), end: at + 1, shortest: true };
  const end = at + 1 + 2 ** (info - 24);
  let value = 0n;
  for (const byte of data.subarray(at + 1, end)) value = (value << 8n) | BigInt(byte);
  return { major, value, end, shortest: value >= (SHORTEST[info - 24] as bigint) };
}

/** Return where the item at `start` ends, by reading heads only, in linear time. */
export function itemEnd(data: Uint8Array, start = 0): number {
  const size = BigInt(data.length);
  const open: [bigint, boolean][] = [];
  let at = BigInt(start);
  let left = 1n;
  let inMap = false;
  for (;;) {
    while (left === 0n) {
      const outer = open.pop();
      if (outer === undefined) return Number(at);
      [left, inMap] = outer;
    }
    const isKey = inMap && left % 2n === 0n;
    left -= 1n;
    const { major, value, end } = head(data, Number(at));
    at = BigInt(end);
    if (major === 2 || major === 3) {
      at += value;
    } else if (major === 4 || major === 5) {
      const count = major === 4 ? value : 2n * value;
      if (isKey) throw new DecodeError(WRONG_KEY);
      if (count > size - at) throw new DecodeError("not CBOR: ends early");
      if (open.length >= MAX_DEPTH) throw new DecodeError(`not CBOR: nested deeper than ${MAX_DEPTH}`);
      open.push([left, inMap]);
      [left, inMap] = [count, major === 5];
    } else if (major === 7 && isKey) {
      throw new DecodeError(WRONG_KEY);
    }
    if (at > size) throw new DecodeError("not CBOR: ends early");
  }
}

const WRONG_KEY = "not CBOR: a map key that is neither an integer nor a string";

class Reader {
  readonly #data: Uint8Array;
  #at: number;
  /** Where the first head is that is not in its shortest form; -1 if there is none. */
  firstLong = -1;

  constructor(data: Uint8Array, at: number) {
    this.#data = data;
    this.#at = at;
  }

  item(): Item {
    const start = this.#at;
    const { major, value, end, shortest } = head(this.#data, start);
    this.#at = end;
    if (!shortest && major !== 7 && this.firstLong < 0) this.firstLong = start;
    switch (major) {
      case 0:
        return value;
      case 1:
        return -1n - value;
      case 2:
        return this.#string(Number(value));
      case 3: {
        const text = fromUtf8(this.#string(Number(value)));
        if (text === undefined) throw new DecodeError("not CBOR: error decoding text string");
        return text;
      }
      case 4:
        return Array.from({ length: Number(value) }, () => this.item());
      case 5:
        return this.#map(Number(value));
      default:
        return value === 22n ? null : value === 21n;
    }
  }

  #string(size: number): Bytes {
    const found = this.#data.slice(this.#at, this.#at + size) as Bytes;
    this.#at += size;
    return found;
  }

  #map(count: number): CborMap {
    const seen = new Set<string>();
    const entries: [Key, Item][] = [];
    for (let n = 0; n < count; n += 1) {
      const key = this.item() as Key;
      entries.push([key, this.item()]);
      if (seen.size === seen.add(keyName(key)).size) throw new DecodeError("not CBOR: duplicate map key");
    }
    return new CborMap(entries);
  }
}

/** Decode canonical bytes of one value, with nothing after them (B3). */
export function decode(data: Uint8Array): Item {
  const end = itemEnd(data);
  if (end !== data.length) throw new DecodeError(`not canonical CBOR: ${data.length - end} bytes after the item`);
  const reader = new Reader(data, 0);
  const item = reader.item();
  if (reader.firstLong >= 0) {
    throw new DecodeError(`not canonical CBOR: first difference at byte ${reader.firstLong}`);
  }
  return item;
}

/** Split a CBOR sequence (RFC 8742) into the bytes of each item. */
export function* splitSequence(data: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < data.length; ) {
    const end = itemEnd(data, at);
    yield data.subarray(at, end);
    at = end;
  }
}

function encodeHead(major: number, value: bigint): Bytes {
  const kind = major << 5;
  if (value < 24n) return Uint8Array.of(kind | Number(value));
  const size = value < 0x100n ? 1 : value < 0x10000n ? 2 : value < 0x100000000n ? 4 : 8;
  const made = new Uint8Array(9);
  view(made).setBigUint64(1, value);
  made[8 - size] = kind | (24 + Math.log2(size));
  return made.subarray(8 - size);
}

/** Return the canonical bytes of a value; maps keep their order. */
export function encode(item: Item): Bytes {
  const parts: Bytes[] = [];
  write(item, parts);
  return concat(...parts);
}

function write(item: Item, parts: Bytes[]): void {
  if (typeof item === "bigint") parts.push(item >= 0n ? encodeHead(0, item) : encodeHead(1, -1n - item));
  else if (item instanceof Uint8Array) parts.push(encodeHead(2, BigInt(item.length)), item);
  else if (typeof item === "string") {
    const text = utf8(item);
    parts.push(encodeHead(3, BigInt(text.length)), text);
  } else if (item === null) parts.push(Uint8Array.of(0xf6));
  else if (typeof item === "boolean") parts.push(Uint8Array.of(item ? 0xf5 : 0xf4));
  else if (item instanceof CborMap) {
    parts.push(encodeHead(5, BigInt(item.entries.length)));
    for (const [key, value] of item.entries) {
      write(key, parts);
      write(value, parts);
    }
  } else {
    parts.push(encodeHead(4, BigInt(item.length)));
    for (const each of item) write(each, parts);
  }
}
