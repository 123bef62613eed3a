/** What issuers and people sign: cap tokens (core §6), identity cards (KEX0.2), proof-of-work cookies (SH1+ 5.2). */

import { Ht } from "../crypto/hash.ts";
import { verify } from "../crypto/signatures.ts";
import { type Bytes, compare, equal, hex, u64be } from "../wire/bytes.ts";
import { CborMap, encode } from "../wire/cbor.ts";
import { encodeObject, writeObject } from "../wire/codec.ts";
import { CapError, SignatureError, VerificationError } from "../wire/errors.ts";
import type { CapToken, IdentityCard, Limits, PowCookie } from "../wire/schema.ts";
import { MAXIMA } from "./limits.ts";
import { bitLength } from "./mmr.ts";

const MAX_CAP_CHAIN = 8;
const MAX_DIFFICULTY = 255n;
const NO_SIGNATURE = new Uint8Array(64);

/** Return the reference by which a MSG names its token (core §6). */
export function authRef(token: CapToken): Bytes {
  return Ht("veen/cap", encodeObject("CapToken", token));
}

/** Check the rules of core §6, then every link of the chain under the issuer's key. */
export async function verifyToken(token: CapToken, limits: Limits = MAXIMA): Promise<void> {
  checkRules(token, limits);
  const items = writeObject("CapToken", token) as CborMap;
  const claims = encode(new CborMap(items.entries.filter(([key]) => key !== 5n)));
  let before: Uint8Array = NO_SIGNATURE;
  for (const [position, signature] of token.sig_chain.entries()) {
    try {
      const what = `cap_token.sig_chain[${position}] (core §6)`;
      await verify(token.issuer_pk, Ht("veen/cap-link", claims, before), signature, what);
    } catch (error) {
      throw error instanceof SignatureError ? new CapError(error.message) : error;
    }
    before = signature;
  }
}

function checkRules(token: CapToken, limits: Limits): void {
  const count = token.sig_chain.length;
  if (count < 1 || count > MAX_CAP_CHAIN) {
    throw new CapError(`cap_token.sig_chain (core §14): ${count} signatures, want 1 to ${MAX_CAP_CHAIN}`);
  }
  const ids = token.allow.stream_ids;
  if (ids.length === 0) throw new CapError("cap_token.allow.stream_ids (core §6): must not be empty");
  if (ids.slice(1).some((id, at) => compare(ids[at] as Bytes, id) >= 0)) {
    throw new CapError("cap_token.allow.stream_ids (core §6): must be ascending without duplicates");
  }
  const rate = token.allow.rate;
  if (
    rate !== null &&
    (rate.per_sec > limits.max_cap_rate_per_sec || rate.burst > limits.max_cap_rate_burst)
  ) {
    throw new CapError(
      `cap_token.allow.rate (core §14.1): ${rate.per_sec}/s and burst ${rate.burst} exceed ` +
        `${limits.max_cap_rate_per_sec}/s and ${limits.max_cap_rate_burst}`,
    );
  }
}

/** Verify the signatures of a card and its prekeys; `pinned` is the id_sign that must be in it (KEX0.2). */
export async function verifyCard(card: IdentityCard, pinned: Bytes | null = null): Promise<void> {
  if (pinned !== null && !equal(card.id_sign, pinned)) {
    throw new VerificationError(`identity_card.id_sign is ${hex(card.id_sign)}, but the pinned key is ${hex(pinned)}`);
  }
  const digest = Ht("veen/identity-card", encodeObject("IdentityCard", { ...card, sig: NO_SIGNATURE }));
  await verify(card.id_sign, digest, card.sig, "identity_card.sig");
  for (const [position, prekey] of card.prekeys.entries()) {
    const signed = Ht("veen/prekey", card.id_sign, prekey.dh_pk, u64be(prekey.expires_at));
    try {
      await verify(card.id_sign, signed, prekey.sig, `identity_card.prekeys[${position}].sig`);
    } catch (error) {
      throw error instanceof SignatureError ? new VerificationError(error.message) : error;
    }
  }
}

/** Verify that a cookie solves its own challenge with the difficulty that it claims. */
export function verifyCookie(cookie: PowCookie): void {
  if (cookie.difficulty > MAX_DIFFICULTY) {
    throw new VerificationError(`pow_cookie.difficulty (SH1+ 5.2): ${cookie.difficulty} is not a uint8`);
  }
  const made = Ht("veen/pow", cookie.challenge, u64be(cookie.nonce));
  const value = made.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  if (256 - bitLength(value) < Number(cookie.difficulty)) {
    throw new VerificationError("pow_cookie.nonce (SH1+ 5.2): does not reach the claimed difficulty");
  }
}
