/** Verify a portable set, item by item (spec-1 §15, COMP0.1). */

import type { RawEntry } from "../log/entry.ts";
import { type Bytes, equal } from "../wire/bytes.ts";
import { decodeObject, encodeObject } from "../wire/codec.ts";
import { DecodeError, VeenError } from "../wire/errors.ts";
import type { PrunedEntry } from "../wire/schema.ts";
import { CheckpointQueue, type IndexedItem, type RangeVerifier } from "./range.ts";
import { damaged, type Folder, readSequence } from "./sequence.ts";

const RECEIPTS = "receipts";
const PAYLOADS = "payloads";
const CHECKPOINTS = "checkpoints";
const sequence = (stem: string): string => `${stem}.cborseq`;
const sidecar = (stem: string): string => `${stem}.index.cborseq`;

/** Verify every receipt with its payload, and the checkpoints; `listed` are the manifest's files of this form. */
export async function checkSet(
  folder: Folder,
  verifier: RangeVerifier,
  listed: ReadonlySet<string>,
): Promise<void> {
  const expected = new Set(
    [RECEIPTS, PAYLOADS, CHECKPOINTS].flatMap((stem) => [sequence(stem), sidecar(stem)]),
  );
  for (const name of [...new Set([...listed, ...expected])].sort()) {
    if (listed.has(name) && expected.has(name)) continue;
    throw damaged(name, listed.has(name) ? "is not a file of a portable set" : "is not in the manifest");
  }
  const payloads = readIndexed(folder, PAYLOADS);
  const checkpoints = new CheckpointQueue(readIndexed(folder, CHECKPOINTS), verifier, () =>
    sequence(CHECKPOINTS),
  );
  await checkpoints.verifyDue();
  const where = sequence(PAYLOADS);
  for (const [, receiptBytes, seq] of readIndexed(folder, RECEIPTS)) {
    const payload = payloads.next();
    if (payload.done === true) throw damaged(where, `has no item for receipt ${seq}`);
    const [offset, content, payloadSeq] = payload.value;
    if (seq !== payloadSeq) throw damaged(where, `found payload ${payloadSeq} for receipt ${seq}`, offset);
    await verifyPayload(verifier, content, receiptBytes, seq, offset);
    await checkpoints.verifyDue();
  }
  const left = payloads.next();
  if (left.done !== true) throw damaged(where, "has more items than there are receipts", left.value[0]);
  checkpoints.checkEmpty();
}

async function verifyPayload(
  verifier: RangeVerifier,
  payload: Bytes,
  receiptBytes: Bytes,
  seq: bigint,
  offset: number,
): Promise<void> {
  const where = sequence(PAYLOADS);
  let found: RawEntry | PrunedEntry;
  try {
    found = readPayload(verifier.manifest.label, payload, receiptBytes, seq);
  } catch (error) {
    throw error instanceof VeenError ? damaged(where, `entry ${seq}: ${error.full}`, offset) : error;
  }
  if ("msgBytes" in found) await verifier.accept(found, where, offset);
  else await verifier.acceptPruned(found, where, offset);
}

function readPayload(label: Bytes, payload: Bytes, receiptBytes: Bytes, seq: bigint): RawEntry | PrunedEntry {
  const receipt = decodeObject("Receipt", receiptBytes);
  if (receipt.stream_seq !== seq) {
    throw new DecodeError(`the index says stream_seq ${seq}, the RECEIPT says ${receipt.stream_seq}`);
  }
  const entry = { label, stream_seq: seq, receiptBytes };
  if ((payload[0] as number) >> 5 === 4) return { ...entry, msgBytes: payload, isAuthorize: false };
  const token = authorized(payload);
  if (token !== undefined) return { ...entry, msgBytes: token, isAuthorize: true };
  const { pruned } = decodeObject("PrunedPayload", payload);
  if (!equal(encodeObject("Receipt", pruned.receipt), receiptBytes)) {
    throw new DecodeError("the pruned payload belongs to another RECEIPT");
  }
  return pruned;
}

function authorized(payload: Bytes): Bytes | undefined {
  try {
    return decodeObject("AuthorizePayload", payload).authorize;
  } catch (error) {
    if (error instanceof VeenError) return undefined;
    throw error;
  }
}

/** Yield the items of a sequence with the entry that the sidecar names; its offsets must be right. */
function* readIndexed(folder: Folder, stem: string): Generator<IndexedItem, undefined> {
  const items = readSequence(folder, sequence(stem));
  for (const [rowAt, row] of readSequence(folder, sidecar(stem))) {
    let claimed: { offset: bigint; stream_seq: bigint };
    try {
      claimed = decodeObject("IndexRow", row);
    } catch (error) {
      throw error instanceof VeenError ? damaged(sidecar(stem), error.full, rowAt) : error;
    }
    const item = items.next();
    const [offset, content] = item.done === true ? [-1, new Uint8Array()] : item.value;
    if (BigInt(offset) !== claimed.offset) {
      throw damaged(sidecar(stem), `lists an item at byte ${claimed.offset}, where none begins`, rowAt);
    }
    yield [offset, content, claimed.stream_seq];
  }
  const beyond = items.next();
  if (beyond.done !== true) {
    throw damaged(sequence(stem), "contains an item that the index does not list", beyond.value[0]);
  }
  return undefined;
}
