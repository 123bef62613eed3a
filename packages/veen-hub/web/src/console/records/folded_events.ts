/** Events of a stream as folds see them: valid records, of which each copy after the first is left out (core §11, §11.1). */
import { Ht } from "../../verify/crypto/hash.ts";
import { type Bytes, hex } from "../../verify/wire/bytes.ts";
import type { DecodedRecord } from "./record.ts";
import type { RecordEntry } from "./stream_log.ts";

/** An opened message. */
export interface FoldedMessage {
  readonly msgId: Bytes;
  readonly parentId: Bytes | null;
  readonly schema: Bytes;
  readonly body: Bytes;
  readonly record: DecodedRecord | undefined;
}

export interface FoldedEvent {
  /** Its position in the stream, from 1. */
  readonly seq: number;
  /** What all copies of the event share, in hex. */
  readonly identity: string;
  readonly record: DecodedRecord;
}

/** Return the opened messages at their positions; undefined at the position of an entry that is not opened. */
export function messagesOf(entries: readonly RecordEntry[]): (FoldedMessage | undefined)[] {
  return entries.map(({ row, opened, record }) => (opened === undefined || row.receipt === undefined ? undefined
    : { msgId: row.receipt.leaf_hash, parentId: opened.header.parent_id, schema: opened.header.schema, body: opened.body, record }));
}

export function eventsOf(messages: readonly (FoldedMessage | undefined)[]): FoldedEvent[] {
  const seen = new Set<string>();
  return messages.flatMap((message, at) => {
    if (message?.record === undefined) return [];
    const identity = hex(Ht("veen/event", message.parentId ?? message.msgId, message.schema, message.body));
    if (seen.has(identity)) return [];
    seen.add(identity);
    return [{ seq: at + 1, identity, record: message.record }];
  });
}
