/** The verifier of an exported range: the log's rules, and those of the manifest (ADR 0007). */

import { invalidSignatures } from "../crypto/signatures.ts";
import type { RawEntry } from "../log/entry.ts";
import { verifyReceipt } from "../log/identity.ts";
import { checkEpoch, LogVerifier, rotates, verifyCheckpointOf } from "../log/log_verifier.ts";
import { Mmr } from "../log/mmr.ts";
import { verifyConsistency } from "../log/proof.ts";
import { LogTerms, POSITION } from "../log/rules.ts";
import { epochAt } from "../log/stream.ts";
import { type Bytes, equal } from "../wire/bytes.ts";
import { decodeObject } from "../wire/codec.ts";
import { CheckpointError, InvariantError, VeenError } from "../wire/errors.ts";
import type { Checkpoint, HubIdentity, Manifest, PrunedEntry, Registry } from "../wire/schema.ts";
import { MAX_KEPT_MESSAGES } from "../evidence/verdict.ts";
import { damaged, inFile } from "./sequence.ts";

export const MANIFEST = "manifest.cbor";
const MAX_UNVERIFIED = 1_024;
export const MAX_WRITERS = 65_536;

/** What a verified export proves. */
export interface VerifiedRange {
  readonly root: Bytes;
  readonly pruned: bigint;
  readonly checkpoints: number;
  readonly followedAll: boolean;
  /** The first MSGs of the range. */
  readonly messages: readonly Bytes[];
}

interface Place {
  readonly name: string;
  readonly where: string;
  readonly offset: number;
}

export class RangeVerifier {
  readonly manifest: Manifest;
  readonly registry: Registry;
  readonly #terms: LogTerms;
  readonly #log: LogVerifier;
  readonly #places: Place[] = [];
  readonly #pruned: [bigint, bigint][] = [];
  #checkpoints = 0;
  readonly #messages: Bytes[] = [];

  private constructor(manifest: Manifest, identity: HubIdentity, registry: Registry) {
    this.manifest = manifest;
    this.registry = registry;
    this.#terms = new LogTerms(manifest.label, identity, registry.profile, registry.limits);
    const hubTs = manifest.before?.hub_ts ?? null;
    this.#log = new LogVerifier(
      this.#terms,
      manifest.from_seq - 1n,
      manifest.peaks_before,
      hubTs,
      MAX_WRITERS,
    );
  }

  static async of(manifest: Manifest, identity: HubIdentity, registry: Registry): Promise<RangeVerifier> {
    const { before, from_seq: from } = manifest;
    if ((before === null) !== (from === 1n)) {
      throw damaged(MANIFEST, "the field before must be present if and only if from_seq is not 1");
    }
    if (before !== null) {
      try {
        await verifyReceipt(identity, before);
      } catch (error) {
        throw error instanceof VeenError ? damaged(MANIFEST, `the field before: ${error.full}`) : error;
      }
      const tree = new Mmr(from - 1n, manifest.peaks_before);
      const fits = equal(before.label, manifest.label) && before.stream_seq === tree.size;
      if (!fits || !equal(before.mmr_root, tree.root)) {
        throw damaged(MANIFEST, "the field before is not the RECEIPT at from_seq - 1");
      }
    }
    return new RangeVerifier(manifest, identity, registry);
  }

  get tree(): Mmr {
    return this.#log.tree;
  }

  /** Verify what the block accepts; an invalid signature before a fault is reported instead of the fault. */
  async verifying(block: () => Promise<void>): Promise<void> {
    let failure: VeenError | null = null;
    try {
      await block();
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      failure = error;
    }
    await this.#verifySignatures();
    if (failure !== null) throw failure;
  }

  accept(entry: RawEntry, where: string, offset: number): Promise<void> {
    if (!entry.isAuthorize && this.#messages.length < MAX_KEPT_MESSAGES) this.#messages.push(entry.msgBytes);
    return this.#accept(`entry ${entry.stream_seq}`, entry.stream_seq, where, offset, () =>
      this.#log.accept(entry),
    );
  }

  async acceptPruned(kept: PrunedEntry, where: string, offset: number): Promise<void> {
    const seq = kept.receipt.stream_seq;
    await this.#accept(`pruned entry ${seq}`, seq, where, offset, () => this.#log.acceptPruned(kept));
    const last = this.#pruned.at(-1);
    if (last !== undefined && last[1] === seq - 1n) last[1] = seq;
    else this.#pruned.push([seq, seq]);
  }

  async #accept(
    name: string,
    seq: bigint,
    where: string,
    offset: number,
    work: () => ReturnType<LogVerifier["acceptPruned"]> | ReturnType<LogVerifier["accept"]>,
  ): Promise<void> {
    const { claims } = this.#log;
    try {
      const { hub_ts } = (await work()).receipt;
      if (seq === this.manifest.from_seq && hub_ts !== this.manifest.from_ts) {
        throw new InvariantError("from_ts", `hub_ts ${hub_ts} is not the manifest's from_ts`);
      }
    } catch (error) {
      throw error instanceof VeenError ? damaged(where, `${name}: ${error.full}`, offset) : error;
    } finally {
      while (this.#places.length < claims.length) this.#places.push({ name, where, offset });
    }
    if (claims.length >= MAX_UNVERIFIED) await this.#verifySignatures();
  }

  async #verifySignatures(): Promise<void> {
    const claims = this.#log.claims.splice(0);
    const places = this.#places.splice(0);
    const [invalid] = await invalidSignatures(claims);
    if (invalid === undefined) return;
    const { name, where, offset } = places[invalid] as Place;
    throw damaged(where, `${name}: ${(claims[invalid] as (typeof claims)[number]).refusal().full}`, offset);
  }

  /** Verify a checkpoint of the log up to the last accepted entry. */
  async checkpoint(made: Checkpoint, where: string, offset: number): Promise<void> {
    await this.#verifySignatures();
    try {
      await this.#log.acceptCheckpoint(made);
    } catch (error) {
      throw error instanceof VeenError
        ? damaged(where, `checkpoint at ${made.upto_seq}: ${error.full}`, offset)
        : error;
    }
    this.#checkpoints += 1;
  }

  /** Check the manifest's fields about the end of the range. */
  async conclude(): Promise<VerifiedRange> {
    const { manifest, tree } = this;
    if (tree.size !== manifest.to_seq) {
      throw damaged(MANIFEST, `to_seq is ${manifest.to_seq}, but the last entry is ${tree.size}`);
    }
    const { peaks } = tree;
    const samePeaks =
      peaks.length === manifest.peaks_after.length &&
      peaks.every((peak, at) => equal(peak, manifest.peaks_after[at] as Bytes));
    if (!samePeaks || this.#log.hubTs !== manifest.to_ts) {
      throw damaged(MANIFEST, "peaks_after or to_ts does not match the last entry");
    }
    const same =
      this.#pruned.length === manifest.pruned.length &&
      manifest.pruned.every(({ start_seq, end_seq }, at) => {
        const [start, end] = this.#pruned[at] as [bigint, bigint];
        return start === start_seq && end === end_seq;
      });
    if (!same) throw damaged(MANIFEST, "the field pruned does not list exactly the pruned entries");
    await this.#checkLater();
    return {
      root: tree.root,
      pruned: this.#pruned.reduce((sum, [start, end]) => sum + end - start + 1n, 0n),
      checkpoints: this.#checkpoints,
      followedAll: this.#log.followedAll,
      messages: this.#messages,
    };
  }

  /** Check the later checkpoint: its position, consistency with the range, epoch and signature. */
  async #checkLater(): Promise<void> {
    const { later, label, to_ts: time } = this.manifest;
    if (later === null) return;
    const { checkpoint: made, consistency: proof } = later;
    const epochSec = this.registry.profile.epoch_sec;
    try {
      if (proof.from_seq !== this.tree.size || proof.to_seq !== made.upto_seq) {
        throw POSITION.broken(
          "the consistency proof does not lead from to_seq to the checkpoint",
          made.upto_seq,
        );
      }
      if (!equal(made.label_curr, label))
        throw new CheckpointError("label_curr is not the label of the export");
      verifyConsistency(proof, this.tree.root, made.mmr_root);
      if (made.epoch < epochAt(time, epochSec)) {
        throw new CheckpointError(`epoch ${made.epoch} is before the epoch of entry to_seq (RESOLUTIONS H9)`);
      }
      if (epochSec === 0n) checkEpoch(made, epochSec, time);
      if (rotates(made) && ((this.#log.checkpointed ?? 0n) !== 0n || epochSec === 0n)) {
        throw new CheckpointError(
          "label_prev differs from label_curr after the label's first checkpoint (H9)",
        );
      }
      await verifyCheckpointOf(this.#terms, made);
    } catch (error) {
      throw error instanceof VeenError ? damaged(MANIFEST, `the field later: ${error.full}`) : error;
    }
  }
}

/** Offset of an item, its bytes, and the entry it is about. */
export type IndexedItem = readonly [number, Bytes, bigint];

/** The checkpoints of an export in order, each verified when the tree has grown to it. */
export class CheckpointQueue {
  readonly #items: Iterator<IndexedItem>;
  readonly #verifier: RangeVerifier;
  readonly #name: (upto: bigint) => string;
  #next: IndexedItem | undefined;

  constructor(items: Iterator<IndexedItem>, verifier: RangeVerifier, name: (upto: bigint) => string) {
    this.#items = items;
    this.#verifier = verifier;
    this.#name = name;
    this.#advance();
  }

  #advance(): void {
    const { value, done } = this.#items.next();
    this.#next = done === true ? undefined : value;
  }

  async verifyDue(): Promise<void> {
    while (this.#next !== undefined && this.#next[2] === this.#verifier.tree.size) {
      const [offset, content, upto] = this.#next;
      const where = this.#name(upto);
      const made = await inFile(where, () => decodeObject("Checkpoint", content), offset);
      await this.#verifier.checkpoint(made, where, offset);
      this.#advance();
    }
  }

  /** Throw if a checkpoint is left that belongs to no entry of the range. */
  checkEmpty(): void {
    if (this.#next === undefined) return;
    const [offset, , upto] = this.#next;
    throw damaged(this.#name(upto), `the checkpoint at ${upto} is outside the range`, offset);
  }
}
