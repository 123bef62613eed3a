/** Evidence that a hub signed two histories (P1), and contradictions that a witness kept (P2). */

import { type Bytes, equal, utf8 } from "../wire/bytes.ts";
import { DecodeError, EvidenceError, ProofError, SignatureError, VeenError } from "../wire/errors.ts";
import type {
  CutTree,
  HubIdentity,
  HubLogFork,
  LabelFork,
  LabelHead,
  LabelStatement,
  LogContradiction,
} from "../wire/schema.ts";
import { verifyIdentity, verifyReceipt } from "../log/identity.ts";
import { Mmr, peakPositions, subtrees } from "../log/mmr.ts";
import { headLeaf, verifyHubCheckpoint } from "./checkpoint.ts";
import { type NoteKey, parseSignedHead, type SignedHead, verifiedSignatures } from "./note.ts";
import { EMPTY_ROOT, rootsOfProof, Tree, verifyInclusion } from "./tree.ts";

/** Turn any error of a part into an error of the evidence. */
async function asEvidence<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof EvidenceError || !(error instanceof VeenError)) throw error;
    throw new EvidenceError(error.full);
  }
}

/** Return the record of the hub's keys to verify with: the verifier's own, if there is one. */
async function identityOf(shown: HubIdentity, known: HubIdentity | null): Promise<HubIdentity> {
  await verifyIdentity(shown);
  if (known === null) return shown;
  await verifyIdentity(known, shown.hub_id);
  return known;
}

async function signedHead(identity: HubIdentity, origin: string, note: Bytes): Promise<SignedHead> {
  const signed = parseSignedHead(note);
  await verifyHubCheckpoint(identity, signed, origin);
  return signed;
}

/** Throw unless the hub signed both checkpoints and they contradict each other. */
export async function verifyHubLogFork(evidence: HubLogFork, known: HubIdentity | null): Promise<void> {
  const [earlier, later] = await asEvidence(async () => {
    const identity = await identityOf(evidence.identity, known);
    return [
      await signedHead(identity, evidence.origin, evidence.earlier),
      await signedHead(identity, evidence.origin, evidence.later),
    ] as const;
  });
  if (earlier.size > later.size) {
    throw new EvidenceError("the earlier hub checkpoint is larger than the later one (RESOLUTIONS P1)");
  }
  let prefix = later.root;
  if (earlier.size < later.size) {
    const [before, whole] = trees(evidence.cut, new Tree(), earlier.size, later.size);
    if (!equal(whole.root, later.root)) {
      throw new EvidenceError("the cut tree does not lead to the later hub checkpoint (RESOLUTIONS P1)");
    }
    prefix = before.root;
  }
  if (equal(prefix, earlier.root)) {
    throw new EvidenceError("the two hub checkpoints do not contradict each other (RESOLUTIONS P1)");
  }
}

/** Throw unless the hub signed both statements and they contradict each other. */
export async function verifyLabelFork(evidence: LabelFork, known: HubIdentity | null): Promise<void> {
  const [earlier, later] = await asEvidence(async () => {
    const identity = await identityOf(evidence.identity, known);
    return [
      await stated(identity, evidence.origin, evidence.earlier),
      await stated(identity, evidence.origin, evidence.later),
    ] as const;
  });
  if (!equal(earlier.label, later.label)) {
    throw new EvidenceError("the statements are about two labels (RESOLUTIONS P1)");
  }
  if (earlier.upto_seq > later.upto_seq) {
    throw new EvidenceError("the earlier statement covers more entries than the later one (RESOLUTIONS P1)");
  }
  if (wentBack(evidence.earlier, evidence.later)) return;
  let prefix = later.mmr_root;
  if (earlier.upto_seq < later.upto_seq) {
    const [before, whole] = trees(evidence.cut, new Mmr(), earlier.upto_seq, later.upto_seq);
    if (!equal(whole.root, later.mmr_root)) {
      throw new EvidenceError("the cut tree does not lead to the later statement (RESOLUTIONS P1)");
    }
    prefix = before.root;
  }
  if (equal(prefix, earlier.mmr_root)) {
    throw new EvidenceError("the two statements do not contradict each other (RESOLUTIONS P1)");
  }
}

/** Return the head of the label that a statement proves to be signed. */
async function stated(identity: HubIdentity, origin: string, statement: LabelStatement): Promise<LabelHead> {
  const { receipt, head, index, proof, checkpoint } = statement;
  if (receipt !== null) {
    if (head !== null || index !== null || proof !== null || checkpoint !== null) {
      throw new EvidenceError("a statement is both a receipt and a head (RESOLUTIONS P1)");
    }
    await verifyReceipt(identity, receipt);
    const { label, stream_seq: upto_seq, mmr_root, hub_ts } = receipt;
    return { ver: 1n, label, upto_seq, mmr_root, hub_ts };
  }
  if (head === null || index === null || proof === null || checkpoint === null) {
    throw new EvidenceError("a statement is neither a receipt nor a head with its proof (RESOLUTIONS P1)");
  }
  const signed = await signedHead(identity, origin, checkpoint);
  verifyInclusion(headLeaf(head), index, signed.size, proof, signed.root);
  return head;
}

/** Return whether one hub log has the head with fewer entries after the one with more. */
function wentBack(smaller: LabelStatement, larger: LabelStatement): boolean {
  if (smaller.checkpoint === null || larger.checkpoint === null) return false;
  if (!equal(smaller.checkpoint, larger.checkpoint)) return false;
  return smaller.index !== null && larger.index !== null && smaller.index > larger.index;
}

interface AnyTree<T> {
  appendSubtree(height: number, root: Bytes): void;
  copy(): T;
}

/** Return the tree before the cut and the whole tree; throw unless the counts fit the two sizes. */
function trees<T extends AnyTree<T>>(cut: CutTree | null, empty: T, at: bigint, size: bigint): [T, T] {
  if (cut === null) throw new EvidenceError("the later tree is missing (RESOLUTIONS P1)");
  const before = peakPositions(at).reverse();
  const after = subtrees(at, size);
  if (before.length !== cut.before.length || after.length !== cut.after.length) {
    throw new EvidenceError("the cut tree does not fit the two sizes (RESOLUTIONS P1)");
  }
  for (const [n, [height]] of before.entries()) empty.appendSubtree(height, cut.before[n] as Bytes);
  const prefix = empty.copy();
  for (const [n, [height]] of after.entries()) empty.appendSubtree(height, cut.after[n] as Bytes);
  return [prefix, empty];
}

/** Return the checkpoints in a contradiction; no signature is verified. */
export function headsOf(found: LogContradiction): SignedHead[] {
  return found.notes.map((note) => parseSignedHead(utf8(note)));
}

/** Throw unless the log with these keys signed statements that cannot all be true. */
export async function verifyContradiction(found: LogContradiction, keys: readonly NoteKey[]): Promise<void> {
  const heads = await signedHeads(found, keys);
  const [first, second] = heads;
  if (found.claim === "two-roots" && first !== undefined && heads.length === 1) {
    if (first.size !== 0n || equal(first.root, EMPTY_ROOT)) {
      throw new EvidenceError("one checkpoint contradicts itself only at size 0 with a root of leaves");
    }
  } else if (
    found.claim === "two-roots" &&
    first !== undefined &&
    second !== undefined &&
    heads.length === 2
  ) {
    if (first.size !== second.size) {
      throw new EvidenceError(`the sizes ${first.size} and ${second.size} differ: no two roots of one tree`);
    }
    if (equal(first.root, second.root)) {
      throw new EvidenceError("both checkpoints have the same size and root: no contradiction");
    }
  } else if (found.claim === "fork" && first !== undefined && second !== undefined && heads.length === 2) {
    if (!(first.size > 0n && first.size < second.size) || !showsFork(first, second, found.proof)) {
      throw new EvidenceError(
        `the proof does not lead from the root at size ${second.size} to another at size ${first.size}`,
      );
    }
  } else if (found.claim === "unproven") {
    throw new EvidenceError(
      "the checkpoints need not contradict each other; ask the log for a consistency proof",
    );
  } else {
    throw new EvidenceError(`${found.claim} cannot be shown by ${heads.length} checkpoints`);
  }
}

async function signedHeads(found: LogContradiction, keys: readonly NoteKey[]): Promise<SignedHead[]> {
  let heads: SignedHead[];
  try {
    heads = headsOf(found);
  } catch (error) {
    throw error instanceof DecodeError ? error.within("log contradiction.notes") : error;
  }
  if (new Set(heads.map((head) => head.origin)).size !== 1) {
    throw new EvidenceError("the checkpoints are those of different logs");
  }
  for (const head of heads) {
    if ((await verifiedSignatures(head.note, keys)).size === 0) {
      throw new SignatureError(
        `the checkpoint of ${head.origin} at size ${head.size} has no signature of the log`,
      );
    }
  }
  return heads;
}

function showsFork(old: SignedHead, later: SignedHead, proof: readonly Bytes[]): boolean {
  try {
    const [oldRoot, newRoot] = rootsOfProof(old.size, later.size, proof, old.root);
    return equal(newRoot, later.root) && !equal(oldRoot, old.root);
  } catch (error) {
    if (error instanceof ProofError) return false;
    throw error;
  }
}
