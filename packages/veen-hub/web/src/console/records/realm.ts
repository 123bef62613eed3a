/** Realms: their ids, their stream of revocations, and whether a revocation is in force (spec-2 1.3, KEX1+ 4.3). */
import { Ht } from "../../verify/crypto/hash.ts";
import { type Bytes, fromHex, utf8 } from "../../verify/wire/bytes.ts";
import type { Records } from "./schema.ts";

/** Return the id of a realm that a person named: 64 hex digits are the id itself, any other text is the realm's name. */
export function realmId(text: string): Bytes {
  return (/^[0-9a-f]{64}$/.test(text) ? fromHex(text) : undefined) ?? Ht("id/realm", utf8(text));
}

/** Return the id of the stream that carries a realm's revocations (spec-2 1.3). */
export function revocationStream(realm: Bytes): Bytes {
  return Ht("veen/revocation", realm);
}

/** Return when a revocation ends, in seconds; null if it never does. */
export function revocationEnd({ ts, ttl }: Pick<Records["veen.revocation.v1"], "ts" | "ttl">): bigint | null {
  return ttl === null ? null : ts + ttl;
}

/** Whether a revocation is in force: from `ts` on, and before its end (KEX1+ 4.3). */
export function isInForce(made: Pick<Records["veen.revocation.v1"], "ts" | "ttl">, now: bigint): boolean {
  const end = revocationEnd(made);
  return made.ts <= now && (end === null || now < end);
}
