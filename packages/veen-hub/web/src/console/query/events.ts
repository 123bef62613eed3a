/** Recorder events: which entry is one, its values, and whether its principal wrote it (SDR0, RESOLUTIONS P10, P11). */
import { Ht } from "../../verify/crypto/hash.ts";
import { isValid } from "../../verify/crypto/signatures.ts";
import { receiptId } from "../../verify/query/digest.ts";
import type { Json, JsonObject } from "../../verify/query/json.ts";
import { type Bytes, equal, hex } from "../../verify/wire/bytes.ts";
import { CborMap, type Item } from "../../verify/wire/cbor.ts";
import { encodeObject } from "../../verify/wire/codec.ts";
import { fieldsOf } from "../records/record.ts";
import type { RecordEntry } from "../records/stream_log.ts";
import type { Records } from "../records/schema.ts";

/** Levels that a payload may nest; `MAX_NESTING` of veen-overlays. */
const MAX_NESTING = 16;

/** One event with the fields that a query reads; times are in milliseconds. */
export interface RecorderEvent {
  readonly seq: bigint;
  /** Its label in hex. */
  readonly label: string;
  readonly committed: bigint;
  readonly receipt: Bytes;
  readonly fields: ReadonlyMap<string, Json>;
  readonly payload: Json;
}

/** What became of one entry: an event, another message that opened, or a message that no key opens. */
export type Found = RecorderEvent | "other" | "unopened";

/** The name of the stream and its hub, which every event repeats. */
export interface Origin {
  readonly stream: string;
  readonly hubId: Bytes;
}

/** Read the entries of one label in their order; continuity records count for the entries after them. */
export async function readEvents(entries: readonly RecordEntry[], origin: Origin): Promise<Found[]> {
  const links = new Set<string>();
  const found: Found[] = [];
  for (const entry of entries) {
    const { row, opened, record } = entry;
    const link = fieldsOf(record, "record.continuity.v1");
    if (link !== undefined && row.msg !== undefined && await isLink(link, row.msg.client_id)) {
      links.add(pair(link.principal_id, link.client_id));
    }
    const event = fieldsOf(record, "record.event.v1");
    if (opened === undefined && row.token === undefined) found.push("unopened");
    else if (event === undefined) found.push("other");
    else found.push(readEvent(entry, event, origin, links) ?? "other");
  }
  return found;
}

const pair = (principal: Bytes, client: Bytes): string => hex(principal) + hex(client);

/** Whether a continuity record in a message of this client_id links the two keys. */
async function isLink(link: Records["record.continuity.v1"], client: Bytes): Promise<boolean> {
  const digest = Ht("veen/key-continuity", link.principal_id, link.client_id);
  return equal(link.client_id, client) && isValid(link.principal_id, digest, link.sig);
}

function readEvent(
  { row, label }: RecordEntry, event: Records["record.event.v1"], { stream, hubId }: Origin, links: ReadonlySet<string>,
): RecorderEvent | undefined {
  const payload = asJson(event.payload as Item, MAX_NESTING);
  if (payload === undefined || row.msg === undefined || row.receipt === undefined) return undefined;
  const receipt = encodeObject("Receipt", row.receipt);
  const { stream_seq: seq } = row.receipt;
  const committed = row.receipt.hub_ts * 1_000n;
  const { client_id: client } = row.msg;
  const attributed = equal(event.principal_id, client) || links.has(pair(event.principal_id, client));
  const fields = new Map<string, Json>(Object.entries({
    subject_id: event.subject_id, principal_id: hex(event.principal_id), event_type: event.event_type,
    event_time: event.event_time, origin: event.origin, hub_commit_time: committed, hub_commit_seq: seq,
    stream, hub_id: hex(hubId), receipt_id: receiptId(receipt), attributed,
  }));
  return { seq, label, committed, receipt, fields, payload };
}

/** Return the JSON form of a payload; undefined if it nests too deep or a map has a key that is not text (P10, P12). */
function asJson(item: Item, left: number): Json | undefined {
  if (item instanceof Uint8Array) return hex(item);
  if (item instanceof CborMap) {
    if (left === 0) return undefined;
    const made = new Map<string, Json>();
    for (const [key, value] of item.entries) {
      const inner = asJson(value, left - 1);
      if (typeof key !== "string" || inner === undefined) return undefined;
      made.set(key, inner);
    }
    return made;
  }
  if (!Array.isArray(item)) return item as Json;
  if (left === 0) return undefined;
  const made = item.map((each: Item) => asJson(each, left - 1));
  return made.includes(undefined) ? undefined : (made as Json[]);
}

/** Return the value of a field; null for a path that leads nowhere. */
export function valueOf(event: RecorderEvent, field: string): Json {
  if (field === "payload") return event.payload;
  if (!field.startsWith("payload.")) return event.fields.get(field) ?? null;
  let value: Json = event.payload;
  for (const part of field.slice("payload.".length).split(".")) value = step(value, part);
  return value;
}

function step(value: Json, part: string): Json {
  if (value instanceof Map) return (value as JsonObject).get(part) ?? null;
  if (!Array.isArray(value) || !/^(0|[1-9]\d{0,8})$/.test(part)) return null;
  return (value as readonly Json[])[Number(part)] ?? null;
}
