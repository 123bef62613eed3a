/** The Merkle tree of RFC 6962 §2.1, over the entries of a hub log or of any C2SP log. */

import { H } from "../crypto/hash.ts";
import { type Bytes, concat, equal } from "../wire/bytes.ts";
import { ProofError } from "../wire/errors.ts";
import { bitCount } from "../log/mmr.ts";

export const EMPTY_ROOT = H(new Uint8Array());
const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);
const INCLUSION = "inclusion proof (RFC 6962 §2.1.1)";
const CONSISTENCY = "consistency proof (RFC 6962 §2.1.2)";

export function leafHash(entry: Uint8Array): Bytes {
  return H(concat(LEAF, entry));
}

export function nodeHash(left: Bytes, right: Bytes): Bytes {
  return H(concat(NODE, left, right));
}

/** Return the root over complete subtrees, given from left to right. */
function rootOf(subtrees: readonly Bytes[]): Bytes {
  const last = subtrees.at(-1);
  return last === undefined
    ? EMPTY_ROOT
    : subtrees.slice(0, -1).reduceRight((root, each) => nodeHash(each, root), last);
}

/** A tree as its size and complete subtrees, the largest first. */
export class Tree {
  size: bigint;
  readonly #subtrees: Bytes[];

  constructor(size = 0n, subtrees: readonly Bytes[] = []) {
    this.size = size;
    this.#subtrees = [...subtrees];
    const want = bitCount(size);
    if (subtrees.length !== want) {
      throw new ProofError(`a tree of ${size} leaves has ${want} complete subtrees, not ${subtrees.length}`);
    }
  }

  append(leaf: Bytes): void {
    this.appendSubtree(0, leaf);
  }

  /** Add 2^height leaves by the hash of their subtree. */
  appendSubtree(height: number, root: Bytes): void {
    const count = 1n << BigInt(height);
    if (this.size % count !== 0n) {
      throw new ProofError(`a subtree of ${count} leaves is not aligned after ${this.size} leaves`);
    }
    let made = root;
    for (let carry = this.size >> BigInt(height); (carry & 1n) === 1n; carry >>= 1n) {
      made = nodeHash(this.#subtrees.pop() as Bytes, made);
    }
    this.#subtrees.push(made);
    this.size += count;
  }

  get root(): Bytes {
    return rootOf(this.#subtrees);
  }

  copy(): Tree {
    return new Tree(this.size, this.#subtrees);
  }
}

/** One step of an inclusion proof: the sibling, and on which side of the running node it lies. */
export interface Step {
  readonly sibling: Bytes;
  readonly side: "left" | "right";
  readonly node: Bytes;
}

/** Return every step from a leaf to the root that the proof leads to (RFC 9162 §2.1.3.2). */
export function inclusionSteps(leaf: Bytes, index: bigint, size: bigint, proof: readonly Bytes[]): Step[] {
  if (index >= size) throw new ProofError(`${INCLUSION}: leaf ${index} is not in a tree of ${size} leaves`);
  const steps: Step[] = [];
  let [at, last, node] = [index, size - 1n, leaf];
  for (const sibling of proof) {
    if (last === 0n) throw new ProofError(`${INCLUSION}: too long for a tree of ${size} leaves`);
    if ((at & 1n) === 1n || at === last) {
      node = nodeHash(sibling, node);
      steps.push({ sibling, side: "left", node });
      while ((at & 1n) === 0n && at !== 0n) [at, last] = [at >> 1n, last >> 1n];
    } else {
      node = nodeHash(node, sibling);
      steps.push({ sibling, side: "right", node });
    }
    [at, last] = [at >> 1n, last >> 1n];
  }
  if (last !== 0n) throw new ProofError(`${INCLUSION}: too short for a tree of ${size} leaves`);
  return steps;
}

/** Throw unless the leaf hash is at `index` of the tree. */
export function verifyInclusion(
  leaf: Bytes,
  index: bigint,
  size: bigint,
  proof: readonly Bytes[],
  root: Bytes,
): void {
  const steps = inclusionSteps(leaf, index, size, proof);
  if (!equal(steps.at(-1)?.node ?? leaf, root)) {
    throw new ProofError(`${INCLUSION}: leaf ${index} of ${size} does not lead to the root`);
  }
}

/** Return the old and the new root that a consistency proof leads to, for 0 < old < new (RFC 9162 §2.1.4.2). */
export function rootsOfProof(
  old: bigint,
  size: bigint,
  proof: readonly Bytes[],
  oldRoot: Bytes,
): [Bytes, Bytes] {
  if (!(old > 0n && old < size))
    throw new ProofError(`${CONSISTENCY}: want 0 < old < new, found ${old} and ${size}`);
  if (proof.length === 0) throw new ProofError(`${CONSISTENCY}: is empty`);
  const [first, ...path] = (old & (old - 1n)) === 0n ? [oldRoot, ...proof] : proof;
  let [at, last] = [old - 1n, size - 1n];
  while ((at & 1n) === 1n) [at, last] = [at >> 1n, last >> 1n];
  let [foundOld, foundNew] = [first as Bytes, first as Bytes];
  for (const sibling of path) {
    if (last === 0n) throw new ProofError(`${CONSISTENCY}: too long from size ${old} to ${size}`);
    if ((at & 1n) === 1n || at === last) {
      [foundOld, foundNew] = [nodeHash(sibling, foundOld), nodeHash(sibling, foundNew)];
      while ((at & 1n) === 0n && at !== 0n) [at, last] = [at >> 1n, last >> 1n];
    } else {
      foundNew = nodeHash(foundNew, sibling);
    }
    [at, last] = [at >> 1n, last >> 1n];
  }
  if (last !== 0n) throw new ProofError(`${CONSISTENCY}: too short from size ${old} to ${size}`);
  return [foundOld, foundNew];
}
