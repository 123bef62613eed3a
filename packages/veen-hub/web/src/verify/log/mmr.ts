/** Merkle Mountain Range: the hash tree over one label's log (core §5.1). Peaks are in increasing height. */

import { Ht } from "../crypto/hash.ts";
import type { Bytes } from "../wire/bytes.ts";
import { ProofError } from "../wire/errors.ts";

/** Return the hash of an inner node. */
export function nodeHash(left: Bytes, right: Bytes): Bytes {
  return Ht("veen/mmr-node", left, right);
}

/** Return the root: a single peak as it is, several hashed together. */
export function rootOf(peaks: readonly Bytes[]): Bytes {
  return peaks.length === 1 ? (peaks[0] as Bytes) : Ht("veen/mmr-root", ...peaks);
}

export function bitLength(n: bigint): number {
  return n === 0n ? 0 : n.toString(2).length;
}

export function bitCount(n: bigint): number {
  return n.toString(2).replaceAll("0", "").length;
}

/** Return the heights of the peaks of a tree of `size` leaves, increasing. */
export function peakHeights(size: bigint): number[] {
  return [...size.toString(2)].reverse().flatMap((bit, height) => (bit === "1" ? [height] : []));
}

/** Return height and index of each peak of a tree of `size` leaves. */
export function peakPositions(size: bigint): [number, bigint][] {
  return peakHeights(size).map((height) => [height, (size >> BigInt(height)) - 1n]);
}

/** Return the fewest aligned perfect subtrees that cover leaves `start` to `end - 1`, left to right (B11). */
export function subtrees(start: bigint, end: bigint): [number, bigint][] {
  const tiles: [number, bigint][] = [];
  for (let at = start; at < end;) {
    const aligned = at === 0n ? bitLength(end) : bitLength(at & -at) - 1;
    const height = Math.min(aligned, bitLength(end - at) - 1);
    tiles.push([height, at >> BigInt(height)]);
    at += 1n << BigInt(height);
  }
  return tiles;
}

/** A tree as its size and peaks, which is all that appending needs. */
export class Mmr {
  #size: bigint;
  /** Highest first. */
  #stack: Bytes[];

  constructor(size = 0n, peaks: readonly Bytes[] = []) {
    this.#size = size;
    this.#stack = [...peaks].reverse();
    const want = bitCount(size);
    if (peaks.length !== want) {
      throw new ProofError(`a tree of ${size} leaves has ${want} peaks, not ${peaks.length}`);
    }
  }

  get size(): bigint {
    return this.#size;
  }

  get peaks(): Bytes[] {
    return [...this.#stack].reverse();
  }

  get root(): Bytes {
    return rootOf(this.peaks);
  }

  add(leaf: Bytes): void {
    this.#merge(0, leaf);
  }

  /** Add 2^height leaves by the root of their subtree (B11). */
  appendSubtree(height: number, root: Bytes): void {
    const count = 1n << BigInt(height);
    if (this.#size % count !== 0n) {
      throw new ProofError(`a subtree of ${count} leaves is not aligned after ${this.#size} leaves (B11)`);
    }
    this.#merge(height, root);
  }

  #merge(height: number, node: Bytes): void {
    let carry = this.#size >> BigInt(height);
    let made = node;
    while ((carry & 1n) === 1n) {
      made = nodeHash(this.#stack.pop() as Bytes, made);
      carry >>= 1n;
    }
    this.#stack.push(made);
    this.#size += 1n << BigInt(height);
  }

  copy(): Mmr {
    return new Mmr(this.#size, this.peaks);
  }
}
