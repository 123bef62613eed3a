/** The rules of a CHECKPOINT against the log that it covers, without its signatures (core §4.4.1, RESOLUTIONS H9). */

import { type Bytes, equal } from "../wire/bytes.ts";
import { U64_MAX } from "../wire/cbor.ts";
import { CheckpointError } from "../wire/errors.ts";
import type { Checkpoint } from "../wire/schema.ts";
import { checkEpoch, rotates } from "./log_verifier.ts";
import { epochsAround, labelOf, type LabelOrigin } from "./stream.ts";

/** The log that a verifier rebuilt for `label_curr`, and what else it knows of it. */
export interface CoveredLog {
  readonly size: bigint;
  readonly root: Bytes;
  /** `upto_seq` of the last checkpoint that was accepted; 0 if there is none. */
  readonly lastUptoSeq: bigint;
  /** How the label is derived; null if the stream is not known. */
  readonly origin: LabelOrigin | null;
  /** `hub_ts` of the receipt at `upto_seq`; null if it is not known. */
  readonly hubTs: bigint | null;
}

export function checkTransition(made: Checkpoint, { size, root, lastUptoSeq, origin, hubTs }: CoveredLog): void {
  if (origin !== null) checkLabels(made, origin, hubTs);
  const { upto_seq: upto } = made;
  if (upto < lastUptoSeq) {
    throw new CheckpointError(`upto_seq ${upto} is before the last checkpoint at ${lastUptoSeq} (core §4.4.1)`);
  }
  if (upto < 1n) throw new CheckpointError("upto_seq is 0, so the checkpoint covers no entry (core §4.4)");
  if (upto !== size) {
    throw new CheckpointError(`upto_seq ${upto} is not the end of the log of ${size} entries (core §4.4.1)`);
  }
  if (!equal(made.mmr_root, root)) {
    throw new CheckpointError(`mmr_root at upto_seq ${upto} is not the root of the log (core §4.4.1)`);
  }
}

/** Check that epoch and labels agree; a label accepts messages within the skew window (core §12, H9). */
function checkLabels(made: Checkpoint, origin: LabelOrigin, hubTs: bigint | null): void {
  const { epochSec, maxSkewSec, routing, stream } = origin;
  checkEpoch(made, epochSec, hubTs);
  if (made.epoch > U64_MAX / (epochSec || 1n) - 1n - maxSkewSec) {
    throw new CheckpointError(`epoch ${made.epoch} is out of range`);
  }
  if (epochSec === 0n && made.epoch !== 0n) {
    throw new CheckpointError(`epoch is ${made.epoch}, but the profile has no epochs (core §3.2)`);
  }
  const labelAt = (epoch: bigint): Bytes => labelOf(routing, stream, epoch);
  const own = epochsAround(origin, made.epoch * epochSec).find((epoch) => equal(labelAt(epoch), made.label_curr));
  if (own === undefined) {
    throw new CheckpointError(`label_curr is not the stream's label in epoch ${made.epoch} (core §4.4.1)`);
  }
  if (rotates(made) && (own === 0n || !equal(made.label_prev, labelAt(own - 1n)))) {
    throw new CheckpointError("label_prev is not the stream's label in the previous epoch (core §4.4.1)");
  }
}
