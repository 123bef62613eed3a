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

/** Reads one head after the other; the fields describe the head that was read last. No object is made per head. */
class Heads {
  readonly #data: Uint8Array;
  /** Where the next byte is. */
  at: number;
  major = 0;
  /** The argument of the head; beyond 2^53 it is rounded, and larger than any file. */
  value = 0;
  /** Whether the argument takes eight bytes, so that only `big` has it exactly. */
  isLong = false;
  /** Whether the argument is in its shortest form. */
  isShortest = true;

  constructor(data: Uint8Array, at: number) {
    this.#data = data;
    this.at = at;
  }

  /** Read the head at `at`; refuse what core §3.1 refuses. */
  read(): void {
    const first = this.#data[this.at];
    if (first === undefined) throw new DecodeError("not CBOR: ends early");
    const info = first & 31;
    this.major = first >> 5;
    if (this.major === 6) throw new DecodeError("not CBOR: tags are not allowed (core §3.1)");
    if (info > 27 || (this.major === 7 && info !== 20 && info !== 21 && info !== 22)) {
      throw new DecodeError(
        "not CBOR: indefinite lengths, floats and other simple values are not allowed (core §3.1)",
      );
    }
    this.at += 1;
    this.value = info;
    this.isLong = info === 27;
    this.isShortest = true;
    if (info < 24) return;
    const end = this.at + 2 ** (info - 24);
    let value = 0;
    for (let at = this.at; at < end; at += 1) value = value * 256 + (this.#data[at] ?? 0);
    this.at = end;
    this.value = value;
    this.isShortest = value >= (SHORTEST[info - 24] as number);
  }

  /** The exact argument of the head that was read last. */
  get big(): bigint {
    return this.isLong ? view(this.#data).getBigUint64(this.at - 8) : BigInt(this.value);
  }
}

const SHORTEST = [24, 0x100, 0x10000, 0x100000000] as const;

/** Return where the item at `start` ends, by reading heads only, in linear time. */
export function itemEnd(data: Uint8Array, start = 0): number {
  const size = data.length;
  const open: [number, boolean][] = [];
  const heads = new Heads(data, start);
  let left = 1;
  let inMap = false;
  for (;;) {
    while (left === 0) {
      const outer = open.pop();
      if (outer === undefined) return heads.at;
      [left, inMap] = outer;
    }
    const isKey = inMap && left % 2 === 0;
    left -= 1;
    heads.read();
    const { major, value } = heads;
    if (major === 2 || major === 3) {
      heads.at += value;
    } else if (major === 4 || major === 5) {
      const count = major === 4 ? value : 2 * value;
      if (isKey) throw new DecodeError(WRONG_KEY);
      if (count > size - heads.at) throw new DecodeError("not CBOR: ends early");
      if (open.length >= MAX_DEPTH) throw new DecodeError(`not CBOR: nested deeper than ${MAX_DEPTH}`);
      open.push([left, inMap]);
      [left, inMap] = [count, major === 5];
    } else if (major === 7 && isKey) {
      throw new DecodeError(WRONG_KEY);
    }
    if (heads.at > size) throw new DecodeError("not CBOR: ends early");
  }
}

const WRONG_KEY = "not CBOR: a map key that is neither an integer nor a string";

class Reader {
  readonly #data: Uint8Array;
  readonly #heads: Heads;
  /** Where the first head is that is not in its shortest form; -1 if there is none. */
  firstLong = -1;

  constructor(data: Uint8Array) {
    this.#data = data;
    this.#heads = new Heads(data, 0);
  }

  /** Read the next item of bytes that `itemEnd` accepts. */
  item(): Item {
    const heads = this.#heads;
    const start = heads.at;
    heads.read();
    const { major, value } = heads;
    if (!heads.isShortest && this.firstLong < 0) this.firstLong = start;
    switch (major) {
      case 0:
        return heads.big;
      case 1:
        return -1n - heads.big;
      case 2:
        return this.#string(value);
      case 3: {
        const text = fromUtf8(this.#string(value));
        if (text === undefined) throw new DecodeError("not CBOR: error decoding text string");
        return text;
      }
      case 4: {
        const items: Item[] = [];
        for (let n = 0; n < value; n += 1) items.push(this.item());
        return items;
      }
      case 5:
        return this.#map(value);
      default:
        return value === 22 ? null : value === 21;
    }
  }

  #string(size: number): Bytes {
    const at = this.#heads.at;
    this.#heads.at += size;
    return this.#data.slice(at, at + size) as Bytes;
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
  if (end !== data.length)
    throw new DecodeError(`not canonical CBOR: ${data.length - end} bytes after the item`);
  const reader = new Reader(data);
  const item = reader.item();
  if (reader.firstLong >= 0) {
    throw new DecodeError(`not canonical CBOR: first difference at byte ${reader.firstLong}`);
  }
  return item;
}

/** Split a CBOR sequence (RFC 8742) into the bytes of each item. */
export function* splitSequence(data: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < data.length;) {
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
