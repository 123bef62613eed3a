/** Byte strings: comparison, hexadecimal text, base64 and big-endian integers (core §3.3). */

export type Bytes = Uint8Array<ArrayBuffer>;

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Join byte strings. */
export function concat(...parts: readonly Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

/** Compare in lexicographic byte order (core §3.3). */
export function compare(a: Uint8Array, b: Uint8Array): number {
  const common = Math.min(a.length, b.length);
  for (let at = 0; at < common; at += 1) {
    const difference = (a[at] as number) - (b[at] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export function hex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += HEX[byte];
  return text;
}

/** Parse hexadecimal digits; undefined for any other text. */
export function fromHex(text: string): Bytes | undefined {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) return undefined;
  return Uint8Array.from({ length: text.length / 2 }, (_, at) =>
    Number.parseInt(text.slice(2 * at, 2 * at + 2), 16),
  );
}

/** The value of each ASCII hexadecimal digit; 16 for any other byte. */
const DIGITS = Uint8Array.from({ length: 256 }, (_, byte) => {
  const value = "0123456789abcdef".indexOf(String.fromCharCode(byte).toLowerCase());
  return value < 0 ? 16 : value;
});

const isSpace = (byte: number | undefined): boolean =>
  byte === 0x20 || (byte !== undefined && byte >= 0x09 && byte <= 0x0d);

/** Decode hexadecimal text; white space may stand between bytes only, as in Python's `bytes.fromhex`. */
export function fromHexText(text: Uint8Array): Bytes | undefined {
  const made = new Uint8Array(text.length >> 1);
  let size = 0;
  for (let at = 0; at < text.length; at += 2) {
    while (isSpace(text[at])) at += 1;
    if (at === text.length) break;
    const high = DIGITS[text[at] as number] as number;
    const low = DIGITS[text[at + 1] ?? 0] as number;
    if (high > 15 || low > 15) return undefined;
    made[size] = 16 * high + low;
    size += 1;
  }
  return made.slice(0, size);
}

export function utf8(text: string): Bytes {
  return encoder.encode(text);
}

/** Decode UTF-8; undefined if the bytes are not UTF-8. */
export function fromUtf8(bytes: Uint8Array): string | undefined {
  try {
    return strict.decode(bytes);
  } catch {
    return undefined;
  }
}

export function base64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000)
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/** Parse base64 in its one canonical form; undefined for any other text. */
export function fromBase64(text: string): Bytes | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) return undefined;
  const made = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return base64(made) === text ? made : undefined;
}

/** Encode an unsigned integer in eight bytes, big-endian (core §3.3). */
export function u64be(n: bigint): Bytes {
  const made = new Uint8Array(8);
  new DataView(made.buffer).setBigUint64(0, n);
  return made;
}

/** A view for reading big-endian integers. */
export function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
