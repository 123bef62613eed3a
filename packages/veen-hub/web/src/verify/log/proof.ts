/** Inclusion proofs: a leaf is at a position of a tree (core §5.2 to §5.4, B9, B10); consistency proofs (B11). */

import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { ProofError } from "../wire/errors.ts";
import type { MmrConsistency, MmrProof } from "../wire/schema.ts";
import { Mmr, nodeHash, peakHeights, peakPositions, rootOf, subtrees } from "./mmr.ts";

/** Longest path of an inclusion proof (core §14). */
const MAX_PROOF_PATH = 64;

/** Return the height of the peak above leaf `position` (from 0), and its index in increasing height. */
export function ownPeak(position: bigint, size: bigint): [number, number] {
  const rank = peakPositions(size).findIndex(([height, index]) => position >> BigInt(height) === index);
  if (rank < 0) throw new ProofError(`leaf ${position + 1n} is not in a tree of ${size} leaves`);
  return [peakHeights(size)[rank] as number, rank];
}

/** Verify an inclusion proof against the root of a tree of `size` leaves (core §5.4). */
export function verifyInclusion(
  proof: MmrProof,
  root: Bytes,
  streamSeq: bigint,
  leaf: Bytes,
  size: bigint,
): void {
  if (streamSeq < 1n) throw new ProofError("stream_seq 0 names no leaf (core §5.4)");
  if (streamSeq > size)
    throw new ProofError(`stream_seq ${streamSeq} is beyond a tree of ${size} leaves (core §5.4)`);
  if (!equal(proof.leaf_hash, leaf)) {
    throw new ProofError("mmr_proof.leaf_hash (core §5.4): is not the leaf hash of the entry to prove");
  }
  const position = streamSeq - 1n;
  const [height, rank] = ownPeak(position, size);
  const { path, peaks_after: others } = proof;
  if (path.length > MAX_PROOF_PATH) {
    throw new ProofError(`mmr_proof.path (core §14): ${path.length} siblings, at most ${MAX_PROOF_PATH}`);
  }
  if (path.length !== height) {
    throw new ProofError(
      `mmr_proof.path (core §5.3): ${path.length} siblings, position and tree size require ${height}`,
    );
  }
  if (others.length !== peakHeights(size).length - 1) {
    throw new ProofError(
      `mmr_proof.peaks_after (core §5.4): a tree of ${size} leaves does not have ${others.length + 1} peaks`,
    );
  }
  let node = proof.leaf_hash;
  for (const [level, step] of path.entries()) {
    if (step.dir !== ((position >> BigInt(level)) & 1n)) {
      throw new ProofError(
        `mmr_proof.path[${level}].dir (core §5.2): ${step.dir} contradicts the leaf's position`,
      );
    }
    node = step.dir === 1n ? nodeHash(step.sib, node) : nodeHash(node, step.sib);
  }
  const peaks = [...others.slice(0, rank), node, ...others.slice(rank)];
  if (new Set(peaks.map(hex)).size !== peaks.length) {
    throw new ProofError("mmr_proof.peaks_after (core §5.4): two peaks are equal");
  }
  if (!equal(rootOf(peaks), root)) {
    throw new ProofError(
      `mmr_proof (core §5.4): leaf ${streamSeq} of ${size} does not lead to the expected mmr_root`,
    );
  }
}

/** Return whether a proof of this entry in a tree of this size has this number of hashes (core §5.3). */
export function fits(proof: MmrProof, streamSeq: bigint, size: bigint): boolean {
  const [height] = ownPeak(streamSeq - 1n, size);
  return proof.path.length === height && proof.peaks_after.length === peakHeights(size).length - 1;
}

/** Verify that the tree under `fromRoot` is a prefix of the tree under `toRoot` (B11). */
export function verifyConsistency(proof: MmrConsistency, fromRoot: Bytes, toRoot: Bytes): void {
  const { from_seq: from, to_seq: to } = proof;
  if (!(from >= 1n && from < to)) {
    throw new ProofError(`mmr_consistency (B11): want 1 <= from_seq < to_seq, found ${from} and ${to}`);
  }
  const tiles = subtrees(from, to);
  if (proof.path.length !== tiles.length) {
    throw new ProofError(
      `mmr_consistency.path (B11): ${proof.path.length} subtrees, the two sizes require ${tiles.length}`,
    );
  }
  const tree = new Mmr(from, proof.peaks_from);
  if (!equal(tree.root, fromRoot)) {
    throw new ProofError(`mmr_consistency (B11): peaks_from do not fold to the root at ${from}`);
  }
  for (const [at, [height]] of tiles.entries()) tree.appendSubtree(height, proof.path[at] as Bytes);
  if (!equal(tree.root, toRoot)) {
    throw new ProofError(
      `mmr_consistency (B11): path does not lead from the root at ${from} to the root at ${to}`,
    );
  }
}
