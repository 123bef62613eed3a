/** Log entries: a frame around a MSG (or cap token) and its RECEIPT (core §4.8.1, B8, H5). */

import { H, Ht } from "../crypto/hash.ts";
import { type Bytes, concat, equal, utf8, view } from "../wire/bytes.ts";
import { decodeObject } from "../wire/codec.ts";
import { DecodeError, FAULT, VerificationError } from "../wire/errors.ts";
import type { CapToken, Fault, Receipt } from "../wire/schema.ts";
import { authRef } from "./grants.ts";

const FRAME_SIZE = 82;
const ENTRY_VERSION = 1;
const FLAG_AUTHORIZE = 1;

/** One log entry: the bytes of MSG (or cap token) and RECEIPT. */
export interface RawEntry {
  readonly label: Bytes;
  readonly stream_seq: bigint;
  readonly msgBytes: Bytes;
  readonly receiptBytes: Bytes;
  readonly isAuthorize: boolean;
}

/** An entry whose frame was checked and whose RECEIPT was decoded. */
export interface Entry extends RawEntry {
  readonly receipt: Receipt;
  readonly entryHash: Bytes;
}

function fail(found: string, field = "", fault: Fault = FAULT.CBOR): DecodeError {
  return new DecodeError(found, field === "" ? "entry (core §4.8.1)" : `entry.${field} (core §4.8.1)`, fault);
}

/** Check the frame header at byte `at` and return the size of the whole entry. */
export function frameSize(data: Bytes, at: number): number {
  const size = data.length - at;
  if (size < FRAME_SIZE)
    throw fail(`want ${FRAME_SIZE} bytes of frame header, found ${size}`, "", FAULT.SIZE);
  const head = view(data.subarray(at));
  const [version, flags] = [head.getUint8(0), head.getUint8(1)];
  if (version !== ENTRY_VERSION) {
    throw fail(`want entry_ver ${ENTRY_VERSION}, found ${version}`, "entry_ver", FAULT.VERSION);
  }
  if ((flags & ~FLAG_AUTHORIZE) !== 0) {
    throw fail(`unused bits are set, found 0x${flags.toString(16).padStart(2, "0")}`, "flags");
  }
  return FRAME_SIZE + head.getUint32(42) + head.getUint32(46);
}

/** Return the entry at byte `at` and where it ends. */
export function unframe(data: Bytes, at: number): [Entry, number] {
  const whole = frameSize(data, at);
  const size = data.length - at;
  const head = view(data.subarray(at));
  const [flags, msgSize, receiptSize] = [head.getUint8(1), head.getUint32(42), head.getUint32(46)];
  if (size < whole)
    throw fail(`msg_len and receipt_len announce ${whole} bytes, found ${size}`, "", FAULT.SIZE);
  if (receiptSize === 0) throw fail("is 0, but every entry has a RECEIPT", "receipt_len", FAULT.SIZE);
  const msgBytes = data.slice(at + FRAME_SIZE, at + FRAME_SIZE + msgSize);
  const receiptBytes = data.slice(at + FRAME_SIZE + msgSize, at + whole);
  if (
    !equal(H(concat(utf8("veen/entry"), msgBytes, receiptBytes)), data.subarray(at + 50, at + FRAME_SIZE))
  ) {
    throw fail("does not match the bytes of the entry", "entry_hash");
  }
  const receipt = decodeObject("Receipt", receiptBytes);
  const label = data.slice(at + 2, at + 34);
  const stream_seq = head.getBigUint64(34);
  if (!equal(receipt.label, label) || receipt.stream_seq !== stream_seq) {
    throw fail("the RECEIPT and the header differ in label or stream_seq", "stream_seq");
  }
  const entryHash = data.slice(at + 50, at + FRAME_SIZE);
  const isAuthorize = flags === FLAG_AUTHORIZE;
  return [{ label, stream_seq, msgBytes, receiptBytes, isAuthorize, receipt, entryHash }, at + whole];
}

/** Yield the entries of a chunk in order; a damaged entry throws, and none is skipped (core §4.8.2). */
export function* splitFrames(data: Bytes): Generator<Entry> {
  for (let at = 0; at < data.length;) {
    let entry: Entry;
    let end: number;
    try {
      [entry, end] = unframe(data, at);
    } catch (error) {
      throw error instanceof DecodeError ? error.within(`entry at byte ${at}`) : error;
    }
    yield entry;
    at = end;
  }
}

/** Return the token of a control entry; throw unless its RECEIPT is for this token (H5). */
export function verifyAuthorize(entry: Pick<Entry, "msgBytes" | "receipt">): CapToken {
  const token = decodeObject("CapToken", entry.msgBytes);
  if (!equal(entry.receipt.leaf_hash, Ht("veen/authorize", authRef(token), H(entry.msgBytes)))) {
    throw new VerificationError(
      "leaf_hash in the RECEIPT is not the leaf hash of the entry's token (RESOLUTIONS H5)",
    );
  }
  return token;
}
