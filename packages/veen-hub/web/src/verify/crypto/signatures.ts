/**
 * Ed25519 verification, by the browser where it has the algorithm, else by noble (core §3.2).
 *
 * The answer is that of libsodium, which `veen verify` uses, for every input: keys of small order and keys that
 * are not canonical are refused, and the equation is checked times the cofactor. A browser may check a stricter
 * equation, so a signature that it refuses is checked again by noble.
 */

import { ed25519 } from "@noble/curves/ed25519.js";
import { type Bytes, fromHex, hex } from "../wire/bytes.ts";
import { SignatureError } from "../wire/errors.ts";

const KEYS_HELD = 512;
/** The y coordinates of all points of small order, also in their second form; the sign bit is cleared. */
const SMALL_ORDER = new Set([
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]);
const FIRST_BYTES = new Set([0x00, 0x01, 0x26, 0xc7, 0xec, 0xed, 0xee]);

function isSmallOrder(point: Uint8Array): boolean {
  if (!FIRST_BYTES.has(point[0] as number)) return false;
  const plain = Uint8Array.from(point);
  plain[31] = (plain[31] as number) & 0x7f;
  return SMALL_ORDER.has(hex(plain));
}

/** Return whether the y coordinate is below the field's prime. */
function isCanonical(point: Uint8Array): boolean {
  if (((point[31] as number) & 0x7f) !== 0x7f || (point[0] as number) < 0xed) return true;
  return !point.subarray(1, 31).every((byte) => byte === 0xff);
}

const held = new Map<string, Promise<CryptoKey | null>>();
let native: Promise<boolean> | undefined;

function importKey(key: Bytes): Promise<CryptoKey | null> {
  const name = hex(key);
  let imported = held.get(name);
  if (imported === undefined) {
    if (held.size >= KEYS_HELD) held.delete(held.keys().next().value as string);
    imported = crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]).catch(() => null);
    held.set(name, imported);
  }
  return imported;
}

/** The first test of RFC 8032 §7.1: a browser that does not pass it is not asked again. */
const TEST_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const TEST_SIGNATURE =
  "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";

/** Return whether this page can verify Ed25519 by the browser. */
export function hasNativeEd25519(): Promise<boolean> {
  native ??= (async () => {
    if (globalThis.crypto?.subtle === undefined) return false;
    const key = await importKey(fromHex(TEST_KEY) as Bytes);
    if (key === null) return false;
    return crypto.subtle.verify("Ed25519", key, fromHex(TEST_SIGNATURE) as Bytes, new Uint8Array());
  })().catch(() => false);
  return native;
}

/** Return whether `key` made `signature` over `message`. */
export async function isValid(key: Bytes, message: Bytes, signature: Bytes): Promise<boolean> {
  if (key.length !== 32 || signature.length !== 64) return false;
  if (isSmallOrder(key) || !isCanonical(key) || isSmallOrder(signature.subarray(0, 32))) return false;
  if (await hasNativeEd25519()) {
    const imported = await importKey(key);
    if (imported !== null && (await crypto.subtle.verify("Ed25519", imported, signature, message)))
      return true;
  }
  return ed25519.verify(signature, message, key, { zip215: false });
}

/** Throw unless `key` made `signature` over `message`; `what` names the signature in the error. */
export async function verify(key: Bytes, message: Bytes, signature: Bytes, what: string): Promise<void> {
  if (!(await isValid(key, message, signature))) throw refused(key, what);
}

export function refused(key: Bytes, what: string): SignatureError {
  return new SignatureError(`${what} does not verify under key ${hex(key)}`);
}

/** A signature to verify: it is valid if one of `keys` made it over `message`. */
export interface Claim {
  readonly keys: readonly Bytes[];
  readonly message: Bytes;
  readonly signature: Bytes;
  readonly refusal: () => SignatureError;
}

async function holds(claim: Claim): Promise<boolean> {
  for (const key of claim.keys) if (await isValid(key, claim.message, claim.signature)) return true;
  return false;
}

/** Verify many signatures at once; return the positions of the invalid ones, ascending. */
export async function invalidSignatures(claims: readonly Claim[]): Promise<number[]> {
  const answers = await Promise.all(claims.map(holds));
  return answers.flatMap((valid, at) => (valid ? [] : [at]));
}

/** Say by what this page verifies signatures. */
export async function engine(): Promise<string> {
  return (await hasNativeEd25519()) ? "the browser's Web Cryptography" : "the noble library in this page";
}
