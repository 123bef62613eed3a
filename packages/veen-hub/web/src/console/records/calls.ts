/** Calls of a stream: requests and the replies that name them (RPC0.1, RPC0.2). */
import { hex } from "../../verify/wire/bytes.ts";
import { fieldsOf } from "./record.ts";
import type { RecordEntry } from "./stream_log.ts";

export interface Call {
  readonly request: RecordEntry;
  readonly method: string;
  /** The first reply that names the request. Whether its writer is a server of the method is not decided here. */
  readonly reply: RecordEntry | undefined;
  /** The code of a reply that says that the call failed. */
  readonly error: string | undefined;
}

export function callsOf(entries: readonly RecordEntry[]): Call[] {
  const replies = new Map<string, RecordEntry>();
  for (const entry of entries) {
    const parent = entry.opened?.header.parent_id ?? null;
    if (fieldsOf(entry.record, "rpc.res.v1") === undefined || parent === null) continue;
    if (!replies.has(hex(parent))) replies.set(hex(parent), entry);
  }
  return entries.flatMap((request) => {
    const asked = fieldsOf(request.record, "rpc.v1");
    if (asked === undefined || request.row.receipt === undefined) return [];
    const reply = replies.get(hex(request.row.receipt.leaf_hash));
    const error = fieldsOf(reply?.record, "rpc.res.v1")?.error?.code;
    return [{ request, method: asked.method, reply, error }];
  });
}
