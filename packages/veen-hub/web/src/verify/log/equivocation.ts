/** Evidence that a hub signed two receipts for one position (spec-1 §14, §16; AUTH1 3.4). */

import { compare, equal, hex } from "../wire/bytes.ts";
import { encodeObject } from "../wire/codec.ts";
import { EvidenceError, IdentityError, SignatureError, VerificationError } from "../wire/errors.ts";
import type { Equivocation, HubIdentity, Receipt, Statement } from "../wire/schema.ts";
import { activeAt, verifyIdentity, verifyReceipt, verifyReceiptUnder } from "./identity.ts";

/** Throw unless both receipts are signed and contradict each other; with an identity, by active keys of that hub. */
export async function verifyEquivocation(
  evidence: Equivocation,
  identity: HubIdentity | null,
): Promise<void> {
  const { first, second } = evidence;
  if (compare(encodeObject("Statement", first), encodeObject("Statement", second)) >= 0) {
    throw new EvidenceError("the statements are not in ascending order (spec-1 §16)");
  }
  const [a, b] = [first.receipt, second.receipt];
  if (!equal(a.label, b.label) || a.stream_seq !== b.stream_seq) {
    throw new EvidenceError("the receipts are for different labels or stream_seqs (spec-1 §14)");
  }
  if (equal(a.leaf_hash, b.leaf_hash) && equal(a.mmr_root, b.mmr_root)) {
    throw new EvidenceError("the receipts agree on leaf_hash and mmr_root (spec-1 §14)");
  }
  if (identity === null && !equal(first.hub_pk, second.hub_pk)) {
    throw new EvidenceError(
      "the statements name two keys; pass the hub's identity, which shows whether both are its keys",
    );
  }
  try {
    if (identity !== null) await verifyIdentity(identity);
    for (const statement of [first, second]) {
      await verifyReceiptUnder(statement.receipt, statement.hub_pk);
      if (identity !== null) checkActive(statement, identity);
    }
  } catch (error) {
    if (error instanceof SignatureError || error instanceof IdentityError)
      throw new EvidenceError(error.full);
    throw error;
  }
}

/** A key that was used outside its period may be stolen (core §8.4). */
function checkActive(statement: Statement, identity: HubIdentity): void {
  const when = statement.receipt.hub_ts;
  if (!activeAt(identity, when).some((key) => equal(key.hub_pk, statement.hub_pk))) {
    throw new EvidenceError(
      `key ${hex(statement.hub_pk)} was not an active key of hub ${hex(identity.hub_id)} at ${when}`,
    );
  }
}

/** Return whether two receipts together convict the hub. */
export async function isEquivocation(identity: HubIdentity, a: Receipt, b: Receipt): Promise<boolean> {
  try {
    const made: Statement[] = [];
    for (const receipt of [a, b]) made.push({ hub_pk: await verifyReceipt(identity, receipt), receipt });
    made.sort((x, y) => compare(encodeObject("Statement", x), encodeObject("Statement", y)));
    await verifyEquivocation(
      { ver: 1n, first: made[0] as Statement, second: made[1] as Statement },
      identity,
    );
  } catch (error) {
    if (error instanceof VerificationError) return false;
    throw error;
  }
  return true;
}
