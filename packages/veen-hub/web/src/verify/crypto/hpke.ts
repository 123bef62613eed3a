/** HPKE base mode, opening only: X25519-HKDF-SHA256, ChaCha20-Poly1305, with exports (RFC 9180, core §4.2). */

import { chacha20poly1305, xchacha20poly1305 } from "@noble/ciphers/chacha.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { type Bytes, concat, fromHex, utf8 } from "../wire/bytes.ts";
import { OpenError } from "../wire/errors.ts";
import { hmacSha256 } from "./hash.ts";

const EMPTY = new Uint8Array();
const VERSION = utf8("HPKE-v1");
const KEM_SUITE = concat(utf8("KEM"), Uint8Array.of(0, 0x20));
const HPKE_SUITE = concat(utf8("HPKE"), Uint8Array.of(0, 0x20, 0, 1, 0, 3));
/** The bytes before the secret in PKCS #8, as browsers import an X25519 key (RFC 8410). */
const PKCS8 = fromHex("302e020100300506032b656e04220420") as Bytes;

function extract(salt: Uint8Array, suite: Uint8Array, label: string, input: Uint8Array): Bytes {
  return hmacSha256(salt, concat(VERSION, suite, utf8(label), input));
}

/** LabeledExpand; no more than one block of 32 bytes is ever asked for here. */
function expand(
  secret: Uint8Array,
  suite: Uint8Array,
  label: string,
  info: Uint8Array,
  length: number,
): Bytes {
  const block = hmacSha256(
    secret,
    concat(Uint8Array.of(0, length), VERSION, suite, utf8(label), info, Uint8Array.of(1)),
  );
  return block.slice(0, length);
}

const SCHEDULE = concat(
  Uint8Array.of(0),
  extract(EMPTY, HPKE_SUITE, "psk_id_hash", EMPTY),
  extract(EMPTY, HPKE_SUITE, "info_hash", EMPTY),
);

/** Public keys that were computed, by the array of the secret: a reader opens many messages with one key. */
const PUBLIC_KEYS = new WeakMap<Bytes, Bytes>();

/** Return the public key of an X25519 secret; the array must not be changed while it is in use. */
export function publicKey(secret: Bytes): Bytes {
  const made = PUBLIC_KEYS.get(secret) ?? (x25519.getPublicKey(secret) as Bytes);
  PUBLIC_KEYS.set(secret, made);
  return made;
}

async function exchange(secret: Bytes, peer: Bytes): Promise<Bytes> {
  if (globalThis.crypto?.subtle !== undefined) {
    try {
      const key = await crypto.subtle.importKey("pkcs8", concat(PKCS8, secret), "X25519", false, [
        "deriveBits",
      ]);
      const other = await crypto.subtle.importKey("raw", peer, "X25519", false, []);
      return new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: other }, key, 256));
    } catch {
      // The browser lacks X25519, or the shared secret is zero: noble tells which.
    }
  }
  return x25519.getSharedSecret(secret, peer) as Bytes;
}

/** The recipient's context of one message. */
export class OpenContext {
  readonly #key: Bytes;
  readonly #nonce: Bytes;
  readonly #exporter: Bytes;

  private constructor(shared: Bytes) {
    const secret = extract(shared, HPKE_SUITE, "secret", EMPTY);
    this.#key = expand(secret, HPKE_SUITE, "key", SCHEDULE, 32);
    this.#nonce = expand(secret, HPKE_SUITE, "base_nonce", SCHEDULE, 12);
    this.#exporter = expand(secret, HPKE_SUITE, "exp", SCHEDULE, 32);
  }

  static async of(secret: Bytes, enc: Bytes): Promise<OpenContext> {
    let dh: Bytes;
    try {
      dh = await exchange(secret, enc);
    } catch {
      throw new OpenError("enc is not a usable X25519 key (core §4.2)");
    }
    const prk = extract(EMPTY, KEM_SUITE, "eae_prk", dh);
    return new OpenContext(expand(prk, KEM_SUITE, "shared_secret", concat(enc, publicKey(secret)), 32));
  }

  /** Decrypt the context's one ciphertext. */
  open(ciphertext: Bytes, aad: Bytes): Bytes {
    try {
      return chacha20poly1305(this.#key, this.#nonce, aad).decrypt(ciphertext) as Bytes;
    } catch {
      throw new OpenError(
        "the payload header does not open: another reader key, or an altered MSG (core §4.2)",
      );
    }
  }

  /** Derive a further secret of 32 bytes. */
  export(context: string): Bytes {
    return expand(this.#exporter, HPKE_SUITE, "sec", utf8(context), 32);
  }
}

/** Decrypt a body by XChaCha20-Poly1305; undefined if it does not open. */
export function openBody(key: Bytes, nonce: Bytes, aad: Bytes, ciphertext: Bytes): Bytes | undefined {
  try {
    return xchacha20poly1305(key, nonce, aad).decrypt(ciphertext) as Bytes;
  } catch {
    return undefined;
  }
}
