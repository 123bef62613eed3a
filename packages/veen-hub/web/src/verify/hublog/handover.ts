/** The handover record: a hub names its successor and the exact point at which it ends (RESOLUTIONS P9). */

import { Ht } from "../crypto/hash.ts";
import { isValid } from "../crypto/signatures.ts";
import { activeAt, verifyIdentity } from "../log/identity.ts";
import { equal } from "../wire/bytes.ts";
import { encodeObject } from "../wire/codec.ts";
import { IdentityError, SignatureError, VerificationError } from "../wire/errors.ts";
import type { Handover, HubIdentity } from "../wire/schema.ts";
import { originOf, verifyHubCheckpoint } from "./checkpoint.ts";
import { parseSignedHead, type SignedHead } from "./note.ts";

const WHERE = "handover (RESOLUTIONS P9)";
const UNSIGNED = new Uint8Array(64);

/** Verify that the old hub signed the record and its last hub checkpoint; return the checkpoint. */
export async function verifyHandover(record: Handover, old: HubIdentity, origin: string | null = null): Promise<SignedHead> {
  await verifyIdentity(old, record.old_hub);
  if (equal(record.new_hub, record.old_hub)) throw new VerificationError(`${WHERE}: a hub cannot be its own successor`);
  const digest = Ht("veen/handover", encodeObject("Handover", { ...record, sig: UNSIGNED }));
  const active = activeAt(old, record.hub_ts);
  if (active.length === 0) throw new IdentityError(`${WHERE}: no key of the old hub is active at ${record.hub_ts}`);
  const signed = await Promise.all(active.map((key) => isValid(key.hub_pk, digest, record.sig)));
  if (!signed.includes(true)) {
    throw new SignatureError(`${WHERE}: no key of the old hub that is active at ${record.hub_ts} signed it`);
  }
  const head = parseSignedHead(record.checkpoint);
  await verifyHubCheckpoint(old, head, origin ?? originOf(old.hub_id));
  return head;
}
