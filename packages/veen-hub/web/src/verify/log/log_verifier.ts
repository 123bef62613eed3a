/** The verifier of a label's log: it takes entries and checkpoints in order and throws at the first fault. */

import type { Claim } from "../crypto/signatures.ts";
import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { encodeObject } from "../wire/codec.ts";
import { CheckpointError } from "../wire/errors.ts";
import type { Checkpoint, Msg, PrunedEntry } from "../wire/schema.ts";
import type { RawEntry } from "./entry.ts";
import { verifyToken } from "./grants.ts";
import { receiptClaim, verifyCheckpoint, verifyWitnesses } from "./identity.ts";
import { Mmr } from "./mmr.ts";
import { msgClaim } from "./msg.ts";
import {
  ACKNOWLEDGED,
  CONSECUTIVE,
  EPOCH,
  examine,
  examinePruned,
  type LogStep,
  type LogTerms,
  POSITION,
  TIME,
  TOKEN,
  UNIQUE,
} from "./rules.ts";
import { epochAt, isAccepted } from "./stream.ts";

const MAX_TOKENS = 65_536;

/** A map of bounded size; beyond it, the key that was set longest ago is evicted. */
class Bounded {
  readonly #items = new Map<string, bigint>();
  readonly #limit: number;
  evicted = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get(key: string): bigint | undefined {
    return this.#items.get(key);
  }

  put(key: string, value: bigint): void {
    this.#items.delete(key);
    this.#items.set(key, value);
    if (this.#items.size > this.#limit) {
      this.#items.delete(this.#items.keys().next().value as string);
      this.evicted += 1;
    }
  }
}

export class LogVerifier {
  readonly terms: LogTerms;
  /** Signatures of accepted entries that are not verified yet; the caller verifies them. */
  readonly claims: Claim[] = [];
  hubTs: bigint | null;
  /** upto_seq of the last checkpoint; null if an earlier one may exist that was not seen. */
  checkpointed: bigint | null;
  #tree: Mmr;
  readonly #writers: Bounded;
  readonly #tokens = new Bounded(MAX_TOKENS);
  readonly #fromFirst: boolean;
  #epochCheckedAt: bigint | null = null;

  constructor(
    terms: LogTerms,
    size: bigint,
    peaks: readonly Bytes[],
    hubTs: bigint | null,
    maxWriters: number,
  ) {
    this.terms = terms;
    this.#tree = new Mmr(size, peaks);
    this.hubTs = hubTs;
    this.checkpointed = size === 0n ? 0n : null;
    this.#fromFirst = size === 0n;
    this.#writers = new Bounded(maxWriters);
  }

  get tree(): Mmr {
    return this.#tree;
  }

  /** Whether I8, I9 and H5 were checked for every entry. */
  get followedAll(): boolean {
    return this.#writers.evicted === 0 && this.#tokens.evicted === 0;
  }

  /** Verify the next entry; its signatures are added to `claims`. */
  async accept(entry: RawEntry): Promise<LogStep> {
    const step = examine(entry, this.terms);
    if (step.content !== null && "msg" in step.content)
      this.claims.push(msgClaim(step.content.msg, entry.msgBytes));
    else if (step.content !== null) await verifyToken(step.content.token, this.terms.limits);
    return this.#advance(step, entry.receiptBytes);
  }

  /** Verify the next entry, whose payload retention has pruned. */
  acceptPruned(kept: PrunedEntry): LogStep {
    return this.#advance(examinePruned(kept, this.terms), encodeObject("Receipt", kept.receipt));
  }

  #advance(step: LogStep, receiptBytes: Bytes): LogStep {
    this.claims.push(receiptClaim(this.terms.identity, step.receipt, receiptBytes));
    const { stream_seq: seq, hub_ts: time, leaf_hash: leaf, mmr_root: root } = step.receipt;
    const { size } = this.#tree;
    if (seq !== size + 1n) throw POSITION.broken(`the entry does not follow entry ${size}`, seq);
    if (this.hubTs !== null && time < this.hubTs) {
      throw TIME.broken(`hub_ts goes back from ${this.hubTs} to ${time}`, seq);
    }
    if (step.writer !== null) {
      this.#checkWriter(step.writer, seq);
      this.#checkEpoch(seq, time);
    } else if (step.authorizes !== null) {
      const before = this.#tokens.get(hex(step.authorizes));
      if (before !== undefined) {
        throw TOKEN.broken(`token ${hex(step.authorizes)} was already authorized by entry ${before}`, seq);
      }
    }
    const tree = this.#tree.copy();
    tree.add(leaf);
    if (!equal(tree.root, root))
      throw POSITION.broken("mmr_root does not follow from the log before it", seq);
    this.#tree = tree;
    this.hubTs = time;
    if (step.writer !== null) this.#writers.put(hex(step.writer.client_id), step.writer.client_seq);
    else if (step.authorizes !== null) this.#tokens.put(hex(step.authorizes), seq);
    return step;
  }

  #checkWriter(writer: Pick<Msg, "client_id" | "client_seq" | "prev_ack">, seq: bigint): void {
    const { size } = this.#tree;
    const { client_seq: number, prev_ack: acknowledged } = writer;
    if (acknowledged > size) {
      throw ACKNOWLEDGED.broken(`prev_ack ${acknowledged} is beyond the ${size} entries before the MSG`, seq);
    }
    let last = this.#writers.get(hex(writer.client_id));
    if (last === undefined) {
      const knowsAll = this.#fromFirst && this.#writers.evicted === 0;
      last = knowsAll || number === 0n ? 0n : number - 1n;
    } else if (number <= last) {
      throw UNIQUE.broken(`client_seq ${number} was accepted before`, seq);
    }
    if (number !== last + 1n) throw CONSECUTIVE.broken(`client_seq ${number} does not follow ${last}`, seq);
  }

  #checkEpoch(seq: bigint, time: bigint): void {
    const { origin, label } = this.terms;
    if (origin === null || time === this.#epochCheckedAt) return;
    if (!isAccepted(origin, label, time)) {
      throw EPOCH.broken(`the label belongs to no epoch within the skew of hub_ts ${time}`, seq);
    }
    this.#epochCheckedAt = time;
  }

  /** Verify a checkpoint of the log as it is now: core §4.4.1, RESOLUTIONS H9, signatures. */
  async acceptCheckpoint(made: Checkpoint): Promise<void> {
    const { label, profile } = this.terms;
    const upto = made.upto_seq;
    if (!equal(made.label_curr, label)) {
      throw new CheckpointError(`label_curr is ${hex(made.label_curr)}, not ${hex(label)} (core §4.4.1)`);
    }
    const last = this.checkpointed ?? 0n;
    if (upto < last) {
      throw new CheckpointError(`upto_seq ${upto} is before the last checkpoint at ${last} (core §4.4.1)`);
    }
    if (upto < 1n) throw new CheckpointError("upto_seq is 0, so the checkpoint covers no entry (core §4.4)");
    if (upto !== this.#tree.size) {
      const size = this.#tree.size;
      throw new CheckpointError(
        `upto_seq ${upto} is not the end of the log of ${size} entries (core §4.4.1)`,
      );
    }
    if (!equal(made.mmr_root, this.#tree.root)) {
      throw new CheckpointError(`mmr_root at upto_seq ${upto} is not the root of the log (core §4.4.1)`);
    }
    if (upto === this.checkpointed)
      throw new CheckpointError(`upto_seq ${upto} has a checkpoint already (core §4.4.1)`);
    checkEpoch(made, profile.epoch_sec, this.hubTs);
    if (rotates(made) && ((this.checkpointed ?? 0n) !== 0n || profile.epoch_sec === 0n)) {
      throw new CheckpointError(
        "label_prev differs from label_curr after the label's first checkpoint (RESOLUTIONS H9)",
      );
    }
    await verifyCheckpointOf(this.terms, made);
    this.checkpointed = upto;
  }
}

export function rotates(made: Checkpoint): boolean {
  return !equal(made.label_prev, made.label_curr);
}

/** Throw unless the epoch is that of the receipt at upto_seq, if its hub_ts is known (H9). */
export function checkEpoch(made: Checkpoint, epochSec: bigint, hubTs: bigint | null): void {
  if (hubTs !== null && made.epoch !== epochAt(hubTs, epochSec)) {
    throw new CheckpointError(`epoch ${made.epoch} is not the epoch of hub_ts ${hubTs} (RESOLUTIONS H9)`);
  }
}

/** Verify hub_sig, and every witness signature under a key of the hub (core §8.4, P2). */
export async function verifyCheckpointOf(terms: LogTerms, made: Checkpoint): Promise<void> {
  await verifyCheckpoint(terms.identity, made, terms.profile.epoch_sec);
  await verifyWitnesses(
    made,
    [],
    terms.identity.hub_keys.map((key) => key.hub_pk),
  );
}
