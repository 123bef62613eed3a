/**
 * Ed25519 verification, by the browser where it has the algorithm, else by noble's curve (core §3.2).
 *
 * The answer is that of libsodium, which `veen verify` uses, for every input. Keys and points of small order and
 * keys that are not canonical are refused. The equation is checked without the cofactor: a signature with a part
 * of small order, which only its own signer can make, is refused. A browser that accepts one is not used.
 */

import { ed25519 } from "@noble/curves/ed25519.js";
import { sha512 } from "@noble/hashes/sha2.js";
import { type Bytes, concat, equal, fromHex, hex } from "../wire/bytes.ts";
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

/** A signature under a key with a part of small order: the equation holds only times the cofactor. */
const MIXED_KEY = "b15bf26424d1b69dd33b7a9e57db5de4a2aadea4a2a051efd9bfd6af74165d2b";
const MIXED_SIGNATURE =
  "6b12d4d055bd943206034b402ebe601bf715a3bbe772cdac6ab65b94d9a07bf6" +
  "ac51c9185df31b6f44c4f88389ff298ab63f13e1394f446a70b7784e16413f00";
const MIXED_MESSAGE = "6d736730";

/** Return whether this page can verify Ed25519 by the browser, with libsodium's answers. */
export function hasNativeEd25519(): Promise<boolean> {
  native ??= (async () => {
    if (globalThis.crypto?.subtle === undefined) return false;
    const rfc = await askBrowser(bytes(TEST_KEY), new Uint8Array(), bytes(TEST_SIGNATURE));
    const mixed = await askBrowser(bytes(MIXED_KEY), bytes(MIXED_MESSAGE), bytes(MIXED_SIGNATURE));
    return rfc === true && mixed === false;
  })().catch(() => false);
  return native;
}

const bytes = (text: string): Bytes => fromHex(text) as Bytes;

/** Return the browser's answer; null if it does not take the key. */
async function askBrowser(key: Bytes, message: Bytes, signature: Bytes): Promise<boolean | null> {
  const imported = await importKey(key);
  return imported === null ? null : crypto.subtle.verify("Ed25519", imported, signature, message);
}

/** Return whether S·B - k·A is R, by noble's curve; it is the browser's stand-in. */
export function isValidByNoble(key: Bytes, message: Bytes, signature: Bytes): boolean {
  const { Point } = ed25519;
  const r = signature.subarray(0, 32);
  const s = littleEndian(signature.subarray(32));
  if (s >= Point.Fn.ORDER) return false;
  try {
    const k = littleEndian(sha512(concat(r, key, message))) % Point.Fn.ORDER;
    const found = Point.BASE.multiplyUnsafe(s).subtract(Point.fromBytes(key).multiplyUnsafe(k));
    return equal(found.toBytes(), r);
  } catch {
    return false; // the key is no point of the curve
  }
}

function littleEndian(data: Uint8Array): bigint {
  return data.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
}

/** Return whether `key` made `signature` over `message`. */
export async function isValid(key: Bytes, message: Bytes, signature: Bytes): Promise<boolean> {
  if (key.length !== 32 || signature.length !== 64) return false;
  if (isSmallOrder(key) || !isCanonical(key) || isSmallOrder(signature.subarray(0, 32))) return false;
  if (await hasNativeEd25519()) {
    const answer = await askBrowser(key, message, signature);
    if (answer !== null) return answer;
  }
  return isValidByNoble(key, message, signature);
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
