/** Parsing the content of a part from blocks: events come out in order, attachments are hashed on the way (P6). */

import { hasher } from "../crypto/hash.ts";
import type { RawEntry } from "../log/entry.ts";
import { ENTRY_OVERHEAD, MAXIMA } from "../log/limits.ts";
import { type Bytes, concat, view } from "../wire/bytes.ts";
import type { IndexedAttachment, PartRow } from "../wire/schema.ts";
import { BundleError, isPart, MAGIC } from "./part.ts";

const EVENT = 1;
const ATTACHMENT = 2;
const EVENT_HEAD = 7;
const ATTACHMENT_HEAD = 5;
/** Events from one offset in the index to the next. */
const INDEX_STEP = 256n;

interface OpenAttachment {
  readonly offset: number;
  readonly size: number;
  left: number;
  readonly hash: ReturnType<typeof hasher>;
}

export class RecordParser {
  nextSeq: bigint;
  readonly offsets: bigint[] = [];
  readonly attachments: IndexedAttachment[] = [];
  eventBytes = 0n;
  readonly #number: number;
  readonly #row: PartRow;
  readonly #label: Bytes;
  readonly #end: number;
  readonly #digest = hasher();
  #at = 0;
  #rest: Uint8Array = new Uint8Array();
  #open: OpenAttachment | null = null;

  constructor(number: number, row: PartRow, label: Bytes) {
    this.nextSeq = row.first_seq;
    this.#number = number;
    this.#row = row;
    this.#label = label;
    this.#end = Number(row.size - row.index_size);
  }

  digest(): Bytes {
    return this.#digest.digest() as Bytes;
  }

  /** Take the next bytes of the content, up to the index; return the events that they complete. */
  feed(block: Uint8Array): RawEntry[] {
    this.#digest.update(block);
    const data = this.#rest.length > 0 ? concat(this.#rest, block) : block;
    let at = 0;
    if (this.#at === 0) {
      if (data.length < MAGIC.length) {
        this.#rest = data;
        return [];
      }
      if (!isPart(data)) throw this.#fail("the file does not begin like a part of a bundle");
      at = MAGIC.length;
    }
    const events: RawEntry[] = [];
    while (at < data.length) {
      const end = this.#record(data, at, events);
      if (end === null) break;
      at = end;
    }
    this.#at += at;
    this.#rest = data.subarray(at);
    return events;
  }

  /** Take the bytes of the index, which the caller has checked. */
  skip(block: Uint8Array): void {
    this.#digest.update(block);
  }

  /** Read the record at `at`; return where it ends, or null if more bytes are needed. */
  #record(data: Uint8Array, at: number, events: RawEntry[]): number | null {
    if (this.#open !== null) return this.#attachmentBytes(data, at, this.#open);
    const kind = data[at];
    if (kind === EVENT) return this.#event(data, at, events);
    if (kind === ATTACHMENT) return this.#attachment(data, at);
    throw this.#fail(`unknown record of type ${kind} at byte ${this.#at + at}`);
  }

  #event(data: Uint8Array, at: number, events: RawEntry[]): number | null {
    if (data.length - at < EVENT_HEAD) return null;
    const msgSize = view(data).getUint32(at + 1);
    const receiptSize = view(data).getUint16(at + 5);
    const start = at + EVENT_HEAD;
    const end = start + msgSize + receiptSize;
    if (end > data.length) {
      this.#checkAnnounced(at, msgSize, receiptSize);
      return null;
    }
    if ((this.nextSeq - this.#row.first_seq) % INDEX_STEP === 0n) this.offsets.push(BigInt(this.#at + at));
    events.push({
      label: this.#label,
      stream_seq: this.nextSeq,
      msgBytes: data.slice(start, start + msgSize) as Bytes,
      receiptBytes: data.slice(start + msgSize, end) as Bytes,
      isAuthorize: false,
    });
    this.eventBytes += BigInt(msgSize + receiptSize);
    this.nextSeq += 1n;
    return end;
  }

  #checkAnnounced(at: number, msgSize: number, receiptSize: number): void {
    if (msgSize > MAXIMA.max_msg_bytes || receiptSize > ENTRY_OVERHEAD) {
      const found = `the event announces ${msgSize} and ${receiptSize} bytes, which no MSG and RECEIPT have`;
      throw new BundleError(found, "core §14", { part: this.#number, seq: this.nextSeq });
    }
    if (this.#at + at + EVENT_HEAD + msgSize + receiptSize > this.#end) {
      throw this.#fail("the event does not end before the index", this.nextSeq);
    }
  }

  #attachment(data: Uint8Array, at: number): number | null {
    if (data.length - at < ATTACHMENT_HEAD) return null;
    const size = view(data).getUint32(at + 1);
    const start = at + ATTACHMENT_HEAD;
    if (size > MAXIMA.max_attachment_bytes) {
      throw this.#fail(`an attachment of ${size} bytes is larger than any attachment`);
    }
    if (this.#at + start + size > this.#end) throw this.#fail("an attachment does not end before the index");
    this.#open = { offset: this.#at + start, size, left: size, hash: hasher() };
    return this.#attachmentBytes(data, start, this.#open);
  }

  #attachmentBytes(data: Uint8Array, at: number, open: OpenAttachment): number {
    const piece = data.subarray(at, at + open.left);
    open.hash.update(piece);
    open.left -= piece.length;
    if (open.left === 0) {
      const coid = open.hash.digest() as Bytes;
      this.attachments.push({ coid, offset: BigInt(open.offset), size: BigInt(open.size) });
      this.#open = null;
      if (BigInt(this.attachments.length) > this.#row.attachments) {
        throw this.#fail(`more attachments than the ${this.#row.attachments} in the part table`);
      }
    }
    return at + piece.length;
  }

  /** Check that the records end exactly where the index begins, with the promised events. */
  finish(): void {
    if (this.#rest.length > 0 || this.#open !== null || this.#at !== this.#end) {
      throw this.#fail("the last record is incomplete", this.nextSeq);
    }
    if (this.nextSeq !== this.#row.last_seq + 1n) {
      const found = `the part ends before entry ${this.nextSeq}, its row says ${this.#row.last_seq}`;
      throw this.#fail(found, this.nextSeq);
    }
    if (BigInt(this.attachments.length) !== this.#row.attachments) {
      throw this.#fail(`${this.attachments.length} attachments, the part table has ${this.#row.attachments}`);
    }
  }

  #fail(found: string, seq?: bigint): BundleError {
    return new BundleError(
      found,
      undefined,
      seq === undefined ? { part: this.#number } : { part: this.#number, seq },
    );
  }
}
