/** The rules of a bundle's header: its form, the bridge's signature, and its way to the hub checkpoint (P6). */

import { verify } from "../crypto/signatures.ts";
import { checkLogName, headLeaf, noteKeys, originOf, verifyHubCheckpoint } from "../hublog/checkpoint.ts";
import { parseSignedHead } from "../hublog/note.ts";
import type { WitnessPolicy } from "../hublog/policy.ts";
import { verifyInclusion } from "../hublog/tree.ts";
import { verifyIdentity } from "../log/identity.ts";
import { MAXIMA } from "../log/limits.ts";
import { bitCount, rootOf } from "../log/mmr.ts";
import { verifyConsistency } from "../log/proof.ts";
import { type LabelOrigin, labelOf, routingKey, streamId } from "../log/stream.ts";
import { type Bytes, equal, utf8 } from "../wire/bytes.ts";
import type { BundleHeader, HeadProof } from "../wire/schema.ts";
import { BundleError, bundleId, isHeartbeat, MAGIC } from "./part.ts";

const MAX_PARTS = 1_024;
const MAX_NAME_BYTES = 1_024;
const MAX_INDEXED_ATTACHMENTS = 16_384n;
const MAX_INDEX_BYTES = 16n * 1_048_576n;
const P1 = "RESOLUTIONS P1";

/** Return how the label follows from hub, stream and epoch (H4). */
export function originOfLabel(header: BundleHeader): LabelOrigin {
  return {
    routing: routingKey(header.identity.hub_id),
    stream: streamId(header.stream),
    epochSec: header.profile.epoch_sec,
    maxSkewSec: MAXIMA.max_epoch_skew_sec,
  };
}

/** Verify everything that a header shows without its parts. */
export async function verifyHeader(
  header: BundleHeader,
  signature: Bytes,
  pinned: Bytes,
  policy: WitnessPolicy | null,
): Promise<void> {
  await verifyIdentity(header.identity, pinned);
  await verify(
    header.bridge_id,
    bundleId(header),
    signature,
    "bundle signature of the bridge (RESOLUTIONS P6)",
  );
  checkLabel(header);
  checkRange(header);
  checkParts(header);
  const signed = parseSignedHead(header.checkpoint);
  const { identity } = header;
  let since: bigint | null = null;
  if (header.head !== null) {
    const { head, index, proof } = header.head;
    checkHead(header, header.head);
    since = head.hub_ts;
    verifyInclusion(headLeaf(head), index, signed.size, proof, signed.root);
  } else if (header.to_seq !== 0n) {
    throw new BundleError(`the header has no head of the label that covers entry ${header.to_seq}`);
  }
  const name = header.origin ?? originOf(identity.hub_id);
  await verifyHubCheckpoint(identity, signed, name, since);
  if (policy === null) return;
  checkLogName(identity, name, policy, pinned);
  await policy.check(signed, noteKeys(identity, name));
}

function checkLabel(header: BundleHeader): void {
  if (header.stream === "" || utf8(header.stream).length > MAX_NAME_BYTES) {
    throw new BundleError(`the stream's name is empty or longer than ${MAX_NAME_BYTES} bytes`);
  }
  if (header.profile.epoch_sec === 0n && header.epoch !== 0n) {
    throw new BundleError(`epoch is ${header.epoch}, but the profile has no epochs`, "core §3.2");
  }
  const { routing, stream } = originOfLabel(header);
  if (!equal(labelOf(routing, stream, header.epoch), header.label)) {
    throw new BundleError("the label is not that of the stream in this epoch of this hub", "core §2");
  }
}

function checkRange(header: BundleHeader): void {
  const { from_seq: from, to_seq: to, peaks_before: peaks, counts } = header;
  if (from < 1n || to < from - 1n) throw new BundleError(`entries ${from} to ${to} are no range`);
  if (peaks.length !== bitCount(from - 1n)) {
    throw new BundleError(`${peaks.length} peaks are not those of ${from - 1n} entries`);
  }
  if (!equal(rootOf(peaks), header.root_before)) {
    throw new BundleError("root_before is not the root of peaks_before", "core §5.1");
  }
  if (isHeartbeat(header) && !equal(header.root_after, header.root_before)) {
    throw new BundleError("a heartbeat has no events, but its two roots differ");
  }
  if (header.from_ts > header.to_ts) {
    throw new BundleError(`hub_ts goes back from ${header.from_ts} to ${header.to_ts}`, "RESOLUTIONS H3");
  }
  if (counts.events !== to - from + 1n) {
    throw new BundleError(`counts has ${counts.events} events, but the range is ${from} to ${to}`);
  }
}

function checkParts(header: BundleHeader): void {
  const count = header.parts.length;
  if (count < 1 || count > MAX_PARTS) throw new BundleError(`${count} parts; want 1 to ${MAX_PARTS}`);
  let last = header.from_seq - 1n;
  let attachments = 0n;
  for (const [at, row] of header.parts.entries()) {
    const part = at + 1;
    if (row.first_seq !== last + 1n || row.last_seq < row.first_seq - 1n) {
      const span = `entries ${row.first_seq} to ${row.last_seq}`;
      throw new BundleError(`${span} do not follow entry ${last}`, undefined, { part });
    }
    if (row.attachments > MAX_INDEXED_ATTACHMENTS || row.index_size > MAX_INDEX_BYTES) {
      throw new BundleError("the index is larger than allowed", undefined, { part });
    }
    if (row.size < BigInt(MAGIC.length) + row.index_size) {
      throw new BundleError(`${row.size} bytes are too few for the index`, undefined, { part });
    }
    last = row.last_seq;
    attachments += row.attachments;
  }
  if (last !== header.to_seq) {
    throw new BundleError(`the part table ends at entry ${last}, the bundle at ${header.to_seq}`);
  }
  if (attachments !== header.counts.attachments) {
    throw new BundleError(
      `the parts have ${attachments} attachments, counts has ${header.counts.attachments}`,
    );
  }
  if (header.attachments === "omitted" && (attachments !== 0n || header.counts.unopened !== 0n)) {
    throw new BundleError("the bundle says that it omits attachments, but it counts some");
  }
}

/** Check that the tree after the range is the head's, or a prefix of it (P1, B11). */
function checkHead(header: BundleHeader, shown: HeadProof): void {
  const { head, consistency: proof } = shown;
  if (!equal(head.label, header.label))
    throw new BundleError("the head in the hub log is that of another label", P1);
  if (head.upto_seq < header.to_seq || head.hub_ts < header.to_ts) {
    throw new BundleError(
      `the label's head at ${head.upto_seq} is before the bundle's last entry ${header.to_seq}`,
      P1,
    );
  }
  if (head.upto_seq === header.to_seq) {
    if (!equal(head.mmr_root, header.root_after) || head.hub_ts !== header.to_ts) {
      throw new BundleError(`head and bundle differ in root or hub_ts at ${header.to_seq}`, P1);
    }
    if (proof !== null) throw new BundleError("a consistency proof between equal trees", "B11");
    return;
  }
  if (isHeartbeat(header)) {
    throw new BundleError(
      `a heartbeat after entry ${header.to_seq}, but the label has ${head.upto_seq} entries`,
      P1,
    );
  }
  if (proof === null || proof.from_seq !== header.to_seq || proof.to_seq !== head.upto_seq) {
    throw new BundleError(
      `the consistency proof from ${header.to_seq} to ${head.upto_seq} is missing`,
      "B11",
    );
  }
  verifyConsistency(proof, header.root_after, head.mmr_root);
}
