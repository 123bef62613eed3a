/** The rules of one source: its label, its receipts, its signed root, its way to a hub checkpoint (P1, P11, P13). */

import { isValid } from "../crypto/signatures.ts";
import { checkLogName, headLeaf, noteKeys, originOf, verifyHubCheckpoint } from "../hublog/checkpoint.ts";
import { parseSignedHead } from "../hublog/note.ts";
import type { WitnessPolicy } from "../hublog/policy.ts";
import { verifyInclusion } from "../hublog/tree.ts";
import { receiptClaim } from "../log/identity.ts";
import { Mmr, subtrees } from "../log/mmr.ts";
import { verifyConsistency } from "../log/proof.ts";
import { labelOf, routingKey, streamId } from "../log/stream.ts";
import { type Bytes, equal } from "../wire/bytes.ts";
import { decodeObject } from "../wire/codec.ts";
import { DecodeError, EvidenceError, ProofError, VerificationError } from "../wire/errors.ts";
import type { HubIdentity, HubLogLink, Receipt } from "../wire/schema.ts";
import { sizeOf, type Source } from "./digest.ts";
import { named } from "./rows.ts";

/** Refuse a source whose label is not that of its stream (core §2, B12). */
export function checkLabel(source: Source): void {
  if (!equal(source.label, labelOf(routingKey(source.hubId), streamId(source.stream), source.epoch))) {
    throw new EvidenceError(
      `${named(source)}: the label of the coverage is not that of this stream (core §2)`,
      "if the hub of origin calls the stream by another name, say which (aliases)",
    );
  }
}

/** Decode the receipt of an entry of a source; refuse one of another label or outside the range (P13). */
export function readReceipt(source: Source, wire: Bytes): Receipt {
  let receipt: Receipt;
  try {
    receipt = decodeObject("Receipt", wire);
  } catch (error) {
    throw error instanceof DecodeError ? error.within(named(source)) : error;
  }
  const seq = receipt.stream_seq;
  if (!equal(receipt.label, source.label)) {
    throw new EvidenceError(
      `${named(source)}: the receipt of entry ${seq} is that of another label (RESOLUTIONS P11)`,
    );
  }
  if (seq < source.from_seq || seq > source.to_seq) {
    throw new EvidenceError(
      `${named(source)}: entry ${seq} is outside the coverage, ${source.from_seq} to ${source.to_seq} (RESOLUTIONS P13)`,
    );
  }
  return receipt;
}

/** Verify that the hub signed the root at the end of a source; return the receipt (P13). */
export async function checkHead(
  source: Source,
  head: Bytes | null,
  identity: HubIdentity,
): Promise<Receipt | null> {
  if (source.root === null || source.to_seq === 0n) {
    if (head !== null || source.root !== null || sizeOf(source) !== 0n) {
      throw new EvidenceError(
        `${named(source)}: a source without entries has neither root nor receipt (RESOLUTIONS P13)`,
      );
    }
    return null;
  }
  if (head === null) {
    throw new EvidenceError(
      `${named(source)}: the receipt of entry ${source.to_seq}, which signs the root, is missing (RESOLUTIONS P13)`,
    );
  }
  const receipt = readReceipt(source, head);
  if (receipt.stream_seq !== source.to_seq) {
    throw new EvidenceError(
      `${named(source)}: the coverage ends at entry ${source.to_seq}, but the receipt that signs its ` +
        `root is that of entry ${receipt.stream_seq} (RESOLUTIONS P13)`,
    );
  }
  if (!equal(receipt.mmr_root, source.root)) {
    throw new EvidenceError(
      `${named(source)}: the hub signed another root for the first ${source.to_seq} entries than the ` +
        "coverage names (RESOLUTIONS P13)",
    );
  }
  const claim = receiptClaim(identity, receipt, head);
  for (const key of claim.keys) if (await isValid(key, claim.message, claim.signature)) return receipt;
  throw claim.refusal();
}

/** Verify the way from a source to a hub checkpoint and, with a policy, its cosignatures (P1, P2). */
export async function checkLink(
  source: Source,
  link: HubLogLink,
  identity: HubIdentity,
  policy: WitnessPolicy | null,
): Promise<void> {
  try {
    await checkLinkSteps(source, link, identity, policy);
  } catch (error) {
    if (!(error instanceof VerificationError)) throw error;
    throw new EvidenceError(`${named(source)}: ${error.message}`, error.action);
  }
}

async function checkLinkSteps(
  source: Source,
  link: HubLogLink,
  identity: HubIdentity,
  policy: WitnessPolicy | null,
): Promise<void> {
  const { head } = link;
  if (!equal(head.label, source.label) || source.root === null) {
    throw new EvidenceError("the label head is that of another label (RESOLUTIONS P1)");
  }
  checkSameLog(source, source.root, link);
  const signed = parseSignedHead(link.checkpoint);
  verifyInclusion(headLeaf(head), link.index, signed.size, link.head_proof, signed.root);
  const origin = link.origin ?? originOf(identity.hub_id);
  await verifyHubCheckpoint(identity, signed, origin, head.hub_ts);
  if (source.checkpoint !== signed.note.text) {
    throw new EvidenceError(
      "the coverage names another hub checkpoint than the evidence has (RESOLUTIONS P13)",
    );
  }
  if (policy === null) return;
  checkLogName(identity, origin, policy, identity.hub_id);
  await policy.check(signed, noteKeys(identity, origin));
}

/** Refuse a label head that does not belong to the same history as the end of the source (B11). */
function checkSameLog(source: Source, root: Bytes, { head, consistency: proof }: HubLogLink): void {
  if (head.upto_seq === source.to_seq) {
    if (!equal(head.mmr_root, root) || proof !== null) {
      throw new EvidenceError(
        `the label head in the hub log has another root at entry ${source.to_seq} (RESOLUTIONS P1)`,
      );
    }
    return;
  }
  const both = [
    { size: head.upto_seq, root: head.mmr_root },
    { size: source.to_seq, root },
  ] as const;
  const [smaller, larger] = head.upto_seq < source.to_seq ? both : ([both[1], both[0]] as const);
  if (proof === null || proof.from_seq !== smaller.size || proof.to_seq !== larger.size) {
    throw new EvidenceError(
      `a consistency proof between entries ${smaller.size} and ${larger.size} is missing (RESOLUTIONS B11)`,
    );
  }
  verifyConsistency(proof, smaller.root, larger.root);
}

/** Throw unless each leaf is at its place in the tree of `size` leaves under `root` (B11, P13). */
export function verifyLeaves(
  proof: Bytes,
  seqs: readonly bigint[],
  leaves: readonly Bytes[],
  size: bigint,
  root: Bytes,
): void {
  let before = 0n;
  for (const seq of seqs) {
    if (!(before < seq && seq <= size)) {
      throw new ProofError(
        `leaf ${seq} does not follow leaf ${before} in a tree of ${size} leaves (core §5.4)`,
      );
    }
    before = seq;
  }
  const tree = new Mmr();
  let at = 0;
  const fill = (start: bigint, end: bigint): void => {
    for (const [height] of subtrees(start, end)) {
      const node = proof.slice(at, at + 32);
      at += 32;
      if (node.length !== 32)
        throw new ProofError("inclusion proof (B11): ends early for its places and tree size");
      tree.appendSubtree(height, node);
    }
  };
  let start = 0n;
  for (const [n, seq] of seqs.entries()) {
    fill(start, seq - 1n);
    tree.add(leaves[n] as Bytes);
    start = seq;
  }
  fill(start, size);
  if (at !== proof.length) {
    throw new ProofError(
      `inclusion proof (B11): ${proof.length} bytes, places and tree size require ${at} of them`,
    );
  }
  if (!equal(tree.root, root)) {
    throw new ProofError(
      `inclusion proof (core §5.4): the leaves do not lead to the root of ${size} entries`,
    );
  }
}
