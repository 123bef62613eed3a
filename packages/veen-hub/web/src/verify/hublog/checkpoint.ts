/** The hub checkpoint, and evidence of a message that leads to it (RESOLUTIONS P1, P2). */

import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { encodeObject } from "../wire/codec.ts";
import { EvidenceError, SignatureError } from "../wire/errors.ts";
import type { HubEvidence, HubIdentity, LabelHead, Receipt } from "../wire/schema.ts";
import { verifyIdentity, verifyReceipt } from "../log/identity.ts";
import { verifyInclusion } from "../log/proof.ts";
import {
  ED25519,
  type NoteKey,
  parseSignedHead,
  quote,
  type SignedHead,
  verifiedSignatures,
} from "./note.ts";
import type { Cosigned, WitnessPolicy } from "./policy.ts";
import * as tree from "./tree.ts";

/** Return the name of a hub's log, unless the hub is configured with another (P1). */
export function originOf(hubId: Bytes): string {
  return `veen.hub/${hex(hubId)}`;
}

/** Return all keys of a hub as keys that sign hub checkpoints. */
export function noteKeys(identity: HubIdentity, origin: string): NoteKey[] {
  return identity.hub_keys.map((key) => ({ name: origin, kind: ED25519, public: key.hub_pk }));
}

/** Throw unless a key of the hub signed this hub checkpoint; `since` is the time of an entry in the tree. */
export async function verifyHubCheckpoint(
  identity: HubIdentity,
  signed: SignedHead,
  origin: string,
  since: bigint | null = null,
): Promise<void> {
  if (signed.origin !== origin) {
    const found = quote(signed.origin.slice(0, 100));
    throw new SignatureError(`hub checkpoint (RESOLUTIONS P1): its origin is ${found}, not ${quote(origin)}`);
  }
  const keys = identity.hub_keys
    .filter((key) => since === null || key.valid_until === null || since < key.valid_until)
    .map((key) => ({ name: origin, kind: ED25519, public: key.hub_pk }));
  if ((await verifiedSignatures(signed.note, keys)).size === 0) {
    throw new SignatureError(
      `hub checkpoint at size ${signed.size} (RESOLUTIONS P1): no key of the hub signed it`,
    );
  }
}

/** Return the leaf of a label's head in the hub log. */
export function headLeaf(head: LabelHead): Bytes {
  return tree.leafHash(encodeObject("LabelHead", head));
}

/** What hub evidence proves. */
export interface EvidenceVerdict {
  readonly checkpoint: SignedHead;
  readonly cosigned: Cosigned | null;
}

/** Verify every step from the message to the cosignatures, in this order; each error names its step. */
export async function verifyHubEvidence(
  evidence: HubEvidence,
  pinned: Bytes | null,
  policy: WitnessPolicy | null,
  known: HubIdentity | null,
): Promise<EvidenceVerdict> {
  await verifyIdentity(evidence.identity, pinned);
  if (known !== null) await verifyIdentity(known, evidence.identity.hub_id);
  const identity = known ?? evidence.identity;
  const { receipt, head } = evidence;
  await verifyReceipt(identity, receipt);
  checkHead(receipt, head);
  verifyInclusion(evidence.proof, head.mmr_root, receipt.stream_seq, receipt.leaf_hash, head.upto_seq);
  const signed = parseSignedHead(evidence.checkpoint);
  tree.verifyInclusion(headLeaf(head), evidence.index, signed.size, evidence.head_proof, signed.root);
  const name = evidence.origin ?? originOf(identity.hub_id);
  await verifyHubCheckpoint(identity, signed, name, head.hub_ts);
  if (policy === null) return { checkpoint: signed, cosigned: null };
  checkLogName(identity, name, policy, pinned);
  return { checkpoint: signed, cosigned: await policy.check(signed, noteKeys(identity, name)) };
}

/** Throw unless the head may cover the receipt's message (P1, H3). */
function checkHead(receipt: Receipt, head: LabelHead): void {
  if (!equal(head.label, receipt.label)) {
    throw new EvidenceError("the head is that of another label than the receipt (RESOLUTIONS P1)");
  }
  if (head.upto_seq < receipt.stream_seq) {
    throw new EvidenceError(
      `the label's head at ${head.upto_seq} is before the message at ${receipt.stream_seq} (RESOLUTIONS P1)`,
    );
  }
  if (head.hub_ts < receipt.hub_ts) {
    throw new EvidenceError(
      `the label's head has hub_ts ${head.hub_ts}, before that of the receipt, ${receipt.hub_ts} (RESOLUTIONS P1, H3)`,
    );
  }
  const same = equal(head.mmr_root, receipt.mmr_root) && head.hub_ts === receipt.hub_ts;
  if (head.upto_seq === receipt.stream_seq && !same) {
    throw new EvidenceError(
      `head and receipt at ${head.upto_seq} differ in mmr_root or hub_ts (RESOLUTIONS P1)`,
    );
  }
}

/** Throw if nothing ties a log with a name of its own to the hub (P1). */
export function checkLogName(
  identity: HubIdentity,
  name: string,
  policy: WitnessPolicy,
  pinned: Bytes | null,
): void {
  if (name === originOf(identity.hub_id)) return;
  if (policy.logs.length === 0) {
    throw new EvidenceError(
      `the log is named ${quote(name)}, and nothing says that it is the hub's one log (RESOLUTIONS P1)`,
      "add a log line to the witness policy",
    );
  }
  const first = identity.hub_keys[0];
  const named = policy.logs.some(
    (log) => log.name === name && first !== undefined && equal(log.public, first.hub_pk),
  );
  if (pinned === null && !named) {
    throw new EvidenceError(
      `nothing ties the log ${quote(name)} to hub ${hex(identity.hub_id)} (RESOLUTIONS P1)`,
      "pin the hub_id",
    );
  }
}

/** Return whether a policy pins the hub, by naming a key of its log. */
export function namesHub(policy: WitnessPolicy | null, identity: HubIdentity, origin: string): boolean {
  return (
    policy !== null &&
    policy.logs.some(
      (log) => log.name === origin && identity.hub_keys.some((key) => equal(key.hub_pk, log.public)),
    )
  );
}
