/** SHA-256, tagged hashes and HMAC (core §3.3). */

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { type Bytes, concat, utf8 } from "../wire/bytes.ts";

/** The bytes of each tag with its separator. */
const TAGS = new Map<string, Bytes>();
/** From this size on, the browser's own SHA-256 is faster than the call to it is slow. */
const LARGE_BYTES = 16_384;

/** Return the SHA-256 hash. */
export function H(bytes: Uint8Array): Bytes {
  return sha256(bytes) as Bytes;
}

/** Return `H(tag || 0x00 || x)`; the tag separates the uses of the hash. */
export function Ht(tag: string, ...parts: readonly Uint8Array[]): Bytes {
  let prefix = TAGS.get(tag);
  if (prefix === undefined) {
    prefix = utf8(`${tag}\0`);
    TAGS.set(tag, prefix);
  }
  return H(concat(prefix, ...parts));
}

/** Return the SHA-256 hash of many bytes, by the browser if it has the algorithm. */
export async function hashLarge(bytes: Bytes): Promise<Bytes> {
  if (bytes.length < LARGE_BYTES || globalThis.crypto?.subtle === undefined) return H(bytes);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/** A hash that takes its input in pieces. */
export function hasher(): { update(piece: Uint8Array): unknown; digest(): Uint8Array } {
  return sha256.create();
}

export function hmacSha256(key: Uint8Array, message: Uint8Array): Bytes {
  return hmac(sha256, key, message) as Bytes;
}
