/** Last-writer-wins registers: the write with the greatest (ts, stream_seq) counts (CRDT0.1). */
import { type Bytes, hex } from "../../verify/wire/bytes.ts";
import type { FoldedEvent } from "./folded_events.ts";
import { fieldsOf } from "./record.ts";

export interface Register {
  readonly key: Bytes;
  readonly value: Bytes;
  readonly ts: bigint;
  readonly seq: number;
  readonly identity: string;
}

/** Whether a write replaces the one that is held: later in time, then in the stream, then by its identity. */
export function replaces(held: Pick<Register, "ts" | "seq" | "identity">, write: Pick<Register, "ts" | "seq" | "identity">): boolean {
  if (write.ts !== held.ts) return write.ts > held.ts;
  return write.seq !== held.seq ? write.seq > held.seq : write.identity >= held.identity;
}

/** Fold the writes of a stream; return the registers in the order of their keys. */
export function registersOf(events: readonly FoldedEvent[]): Register[] {
  const held = new Map<string, Register>();
  for (const { seq, identity, record } of events) {
    const write = fieldsOf(record, "crdt.lww.v1");
    if (write === undefined) continue;
    const key = hex(write.key);
    const made = { key: write.key, value: write.value, ts: write.ts, seq, identity };
    const before = held.get(key);
    if (before === undefined || replaces(before, made)) held.set(key, made);
  }
  return [...held].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, register]) => register);
}
