/** All that proves one message: fetched from the hub, and verified here step by step (core §5.4, RESOLUTIONS P1). */
import { H } from "../verify/crypto/hash.ts";
import { headLeaf, verifyHubCheckpoint, verifyHubEvidence, originOf } from "../verify/hublog/checkpoint.ts";
import { parseSignedHead, type SignedHead } from "../verify/hublog/note.ts";
import type { WitnessPolicy } from "../verify/hublog/policy.ts";
import { inclusionSteps, verifyInclusion as verifyHeadInclusion } from "../verify/hublog/tree.ts";
import { verify as verifySignature } from "../verify/crypto/signatures.ts";
import { verifyAuthorize } from "../verify/log/entry.ts";
import { verifyToken } from "../verify/log/grants.ts";
import { verifyReceipt } from "../verify/log/identity.ts";
import { nodeHash, rootOf } from "../verify/log/mmr.ts";
import { checkLayout, leafHash, msgClaim } from "../verify/log/msg.ts";
import { verifyInclusion } from "../verify/log/proof.ts";
import { type Bytes, equal, hex } from "../verify/wire/bytes.ts";
import { decodeObject, encodeObject } from "../verify/wire/codec.ts";
import { VeenError, VerificationError } from "../verify/wire/errors.ts";
import type { CapToken, HubEvidence, LabelHead, MmrProof, Msg, Receipt } from "../verify/wire/schema.ts";
import { CallError, type HubCalls } from "./hub_calls.ts";
import type { ConfirmedHub } from "./trust_state.ts";

export interface Check {
  readonly name: string;
  readonly clause: string;
  readonly verdict: "holds" | "fails" | "open";
  readonly detail: string;
}

/** One hash on the way up, and what it was made of. */
export interface PathNode {
  readonly kind: "leaf" | "node" | "root" | "head" | "checkpoint";
  readonly title: string;
  readonly hash: string;
  readonly sibling: string | undefined;
  readonly side: "left" | "right" | undefined;
}

export interface MessageProof {
  readonly msg: Msg | undefined;
  readonly token: CapToken | undefined;
  readonly wire: Bytes;
  readonly receipt: Receipt;
  readonly checks: readonly Check[];
  readonly path: readonly PathNode[];
  /** Evidence that `veen verify` accepts, if a hub checkpoint covers the message. */
  readonly evidence: Bytes | undefined;
}

/** The hub log that the console follows, with its witness policy: none was given, or why it cannot be read. */
export interface FollowedLog {
  readonly policy: WitnessPolicy | undefined;
  readonly policyError: string;
  /** The newest head of a label in the verified hub log. */
  headOf(label: Bytes): Promise<LabelHead | undefined>;
  /** Throw `ProofError` if a hub checkpoint is not one of this log, `CallError` if that is not known yet. */
  compare(note: Bytes): Promise<void>;
}

/** Fetch one entry and everything above it; a failed check is a result, no answer is an error. */
export async function proveMessage(
  hub: HubCalls, confirmed: ConfirmedHub, followed: FollowedLog, label: Bytes, seq: number,
): Promise<MessageProof> {
  const isControl = equal(label, confirmed.status.control_label);
  const body = await hub.page(label, seq, 1);
  const { items } = decodeObject(isControl ? "ControlResponse" : "StreamResponse", body);
  const item = items[0];
  if (item === undefined || item.receipt === null || Number(item.stream_seq) !== seq) {
    const signed = (await followed.headOf(label))?.upto_seq ?? 0n;
    if (signed >= BigInt(seq)) {
      throw new VerificationError(`the hub does not show entry ${seq}, although it signed a head of ${signed} entries (RESOLUTIONS P1)`);
    }
    throw new CallError(`the hub has no entry ${seq} with a receipt in this label`, 404, "E.NOT_FOUND");
  }
  const { receipt } = item;
  const msg = isControl ? undefined : (item.msg as Msg);
  const token = isControl ? (item.msg as CapToken) : undefined;
  const wire = msg === undefined ? encodeObject("CapToken", token as CapToken) : encodeObject("Msg", msg);
  const checks = new Checks();
  if (msg !== undefined) await checkMsg(checks, msg);
  if (token !== undefined) await checkToken(checks, token);
  await checkReceipt(checks, confirmed, label, seq, receipt, msg, token);
  const path: PathNode[] = [{ kind: "leaf", title: `message ${seq}`, hash: hex(receipt.leaf_hash), sibling: undefined, side: undefined }];
  const evidence = await climb(checks, path, hub, confirmed, label, receipt);
  const isWhole = evidence !== undefined && await verifyWhole(checks, evidence, confirmed, followed);
  return { msg, token, wire, receipt, checks: checks.all, path, evidence: isWhole ? encodeObject("HubEvidence", evidence) : undefined };
}

class Checks {
  readonly all: Check[] = [];

  async add(name: string, clause: string, detail: string, work: () => void | Promise<unknown>): Promise<boolean> {
    try {
      await work();
      this.hold(name, clause, detail);
      return true;
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      this.fail(name, clause, error.message);
      return false;
    }
  }

  hold(name: string, clause: string, detail: string): void {
    this.all.push({ name, clause, verdict: "holds", detail });
  }

  fail(name: string, clause: string, detail: string): void {
    this.all.push({ name, clause, verdict: "fails", detail });
  }

  open(name: string, clause: string, detail: string): void {
    this.all.push({ name, clause, verdict: "open", detail });
  }
}

function must(holds: boolean, otherwise: string): void {
  if (!holds) throw new VerificationError(otherwise);
}

async function checkMsg(checks: Checks, msg: Msg): Promise<void> {
  await checks.add("Encoding", "core §3.1", "one canonical encoding, every length within its bound", () => {
    checkLayout(msg.ciphertext);
  });
  await checks.add("Ciphertext", "core §4.2", "ct_hash is its SHA-256", () =>
    must(equal(H(msg.ciphertext), msg.ct_hash), "ct_hash is not the hash of the ciphertext"));
  await checks.add("Writer", "core §4.1", `signed by client ${hex(msg.client_id)}`, async () => {
    const { keys, message, signature } = msgClaim(msg);
    await verifySignature(keys[0] as Bytes, message, signature, "MSG.sig (core §4.1)");
  });
}

async function checkToken(checks: Checks, token: CapToken): Promise<void> {
  await checks.add("Token", "core §6", `signed by issuer ${hex(token.issuer_pk)}`, () => verifyToken(token));
}

async function checkReceipt(
  checks: Checks, confirmed: ConfirmedHub, label: Bytes, seq: number, receipt: Receipt,
  msg: Msg | undefined, token: CapToken | undefined,
): Promise<void> {
  await checks.add("Receipt", "core §4.3", `signed by a key of hub ${confirmed.hubId}`, () =>
    verifyReceipt(confirmed.identity, receipt));
  await checks.add("Place", "core §7, I2", "the receipt is for this message, at this place of this label", () => {
    must(equal(receipt.label, label) && Number(receipt.stream_seq) === seq, "the receipt is for another place");
    if (msg !== undefined) must(equal(receipt.leaf_hash, leafHash(label, msg)), "leaf_hash is not the leaf hash of the MSG");
    if (token !== undefined) verifyAuthorize({ msgBytes: encodeObject("CapToken", token), receipt });
  });
}

/** From the leaf to the hub checkpoint; without one that covers the message, to the receipt's own root. */
async function climb(
  checks: Checks, path: PathNode[], hub: HubCalls, confirmed: ConfirmedHub, label: Bytes, receipt: Receipt,
): Promise<HubEvidence | undefined> {
  const seq = Number(receipt.stream_seq);
  let covered: { head: LabelHead; index: bigint; proof: readonly Bytes[]; checkpoint: Bytes } | undefined;
  try {
    covered = decodeObject("HubProofResponse", await hub.hubLogProof(label, seq));
  } catch (error) {
    if (!(error instanceof CallError) || !error.isAbsent) throw error;
  }
  const size = Number(covered?.head.upto_seq ?? receipt.stream_seq);
  const root = covered?.head.mmr_root ?? receipt.mmr_root;
  const { mmr_proof: proof } = decodeObject("ProofResponse", await hub.proof(label, seq, size));
  const isIn = await checks.add("Label's tree", "core §5.4", `message ${seq} is in the tree of ${size} entries`, () =>
    verifyInclusion(proof, root, receipt.stream_seq, receipt.leaf_hash, BigInt(size)));
  if (isIn) addTreePath(path, proof, size);
  if (covered === undefined) {
    checks.open("Hub log", "RESOLUTIONS P1", "no published hub checkpoint covers this message yet");
    return undefined;
  }
  const { head, index, checkpoint } = covered;
  const signed = await checkHead(checks, confirmed, receipt, covered);
  if (signed === undefined || !isIn) return undefined;
  path.push({ kind: "head", title: `head of the label, entry ${index} of the hub log`, hash: hex(headLeaf(head)), sibling: undefined, side: undefined });
  for (const step of inclusionSteps(headLeaf(head), index, signed.size, covered.proof)) {
    path.push({ kind: "node", title: "hub log", hash: hex(step.node), sibling: hex(step.sibling), side: step.side });
  }
  path.push({ kind: "checkpoint", title: `hub checkpoint at size ${signed.size}, signed by the hub`, hash: hex(signed.root), sibling: undefined, side: undefined });
  if (checks.all.some((check) => check.verdict === "fails")) return undefined;
  return {
    kind: "veen-hub-evidence", ver: 1n, identity: confirmed.identity, receipt, proof, head, index,
    head_proof: covered.proof, checkpoint, origin: confirmed.status.hub_log_origin,
  };
}

/** Verify the evidence as `veen verify` does, then under the witness policy; return whether it proves the message. */
async function verifyWhole(
  checks: Checks, evidence: HubEvidence, confirmed: ConfirmedHub, followed: FollowedLog,
): Promise<boolean> {
  const pinned = confirmed.identity.hub_id;
  try {
    await verifyHubEvidence(evidence, pinned, null, null);
  } catch (error) {
    if (!(error instanceof VeenError)) throw error;
    checks.fail("Evidence", "RESOLUTIONS P1", error.message);
    return false;
  }
  try {
    await followed.compare(evidence.checkpoint);
  } catch (error) {
    if (error instanceof CallError) checks.open("Followed hub log", "RESOLUTIONS P1", error.message);
    else if (error instanceof VeenError) checks.fail("Followed hub log", "RESOLUTIONS P1", error.message);
    else throw error;
  }
  const { policy, policyError } = followed;
  const [name, clause] = ["Witnesses", "RESOLUTIONS P2"];
  if (policyError !== "") checks.open(name, clause, policyError);
  if (policy === undefined) return true;
  try {
    const { cosigned } = await verifyHubEvidence(evidence, pinned, policy, null);
    const count = cosigned?.witnesses.length ?? 0;
    checks.hold(name, clause, `${count} of ${policy.witnesses.length} witnesses cosigned the hub checkpoint`);
  } catch (error) {
    if (!(error instanceof VeenError)) throw error;
    checks.open(name, clause, error.message);
  }
  return true;
}

async function checkHead(
  checks: Checks, confirmed: ConfirmedHub, receipt: Receipt,
  { head, index, proof, checkpoint }: { head: LabelHead; index: bigint; proof: readonly Bytes[]; checkpoint: Bytes },
): Promise<SignedHead | undefined> {
  let signed: SignedHead | undefined;
  const holds = await checks.add("Hub log", "RESOLUTIONS P1", `the label's head at ${head.upto_seq} is entry ${index} of the hub log`, () => {
    must(equal(head.label, receipt.label), "the head is that of another label than the receipt");
    must(head.upto_seq >= receipt.stream_seq && head.hub_ts >= receipt.hub_ts, "the head is before the message");
    signed = parseSignedHead(checkpoint);
    verifyHeadInclusion(headLeaf(head), index, signed.size, proof, signed.root);
  });
  if (!holds || signed === undefined) return undefined;
  const found: SignedHead = signed;
  const isSigned = await checks.add("Hub checkpoint", "RESOLUTIONS P1", `signed by a key of the hub, at size ${found.size}`, () =>
    verifyHubCheckpoint(confirmed.identity, found, confirmed.status.hub_log_origin ?? originOf(confirmed.identity.hub_id), head.hub_ts));
  return isSigned ? found : undefined;
}

function addTreePath(path: PathNode[], proof: MmrProof, size: number): void {
  let node = proof.leaf_hash;
  for (const step of proof.path) {
    const isLeft = step.dir === 1n;
    node = isLeft ? nodeHash(step.sib, node) : nodeHash(node, step.sib);
    path.push({ kind: "node", title: "label's tree", hash: hex(node), sibling: hex(step.sib), side: isLeft ? "left" : "right" });
  }
  const rank = proof.peaks_after.length === 0 ? 0 : rankOf(BigInt(size), proof.path.length);
  const peaks = [...proof.peaks_after.slice(0, rank), node, ...proof.peaks_after.slice(rank)];
  const others = proof.peaks_after.length;
  path.push({
    kind: "root", title: others === 0 ? `root of ${size} entries` : `root of ${size} entries, over ${others + 1} peaks`,
    hash: hex(rootOf(peaks)), sibling: undefined, side: undefined,
  });
}

/** The place of a peak of this height among the peaks, which are in increasing height. */
function rankOf(size: bigint, height: number): number {
  let rank = 0;
  for (let at = 0; at < height; at += 1) if (((size >> BigInt(at)) & 1n) === 1n) rank += 1;
  return rank;
}

