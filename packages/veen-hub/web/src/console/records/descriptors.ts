/** Descriptors of hubs, overlays and services: the newest of each publisher (spec-5 §4, RESOLUTIONS P16). */
import { type Bytes, hex } from "../../verify/wire/bytes.ts";
import { fieldsOf } from "./record.ts";
import type { RecordEntry } from "./stream_log.ts";

/** A descriptor. Whether its publisher may speak for the id is decided by `veen disc`, not here. */
export interface Described {
  readonly entry: RecordEntry;
  readonly kind: "hub" | "overlay" | "service";
  readonly id: string;
  readonly name: string;
  readonly isRetired: boolean;
  /** When it expires, in seconds: `expires_at`, or `ttl_sec` after its receipt (P16). */
  readonly end: bigint;
}

/** Return the newest descriptor of each id and publisher, in the order of the stream. */
export function descriptorsOf(entries: readonly RecordEntry[]): Described[] {
  const newest = new Map<string, Described>();
  for (const entry of entries) {
    const found = describedBy(entry);
    if (found === undefined) continue;
    const key = `${found.kind} ${found.id} ${hex(entry.row.msg?.client_id as Bytes)}`;
    const before = newest.get(key);
    newest.delete(key);
    newest.set(key, found.isRetired && before !== undefined ? { ...found, name: before.name } : found);
  }
  return [...newest.values()];
}

function describedBy(entry: RecordEntry): Described | undefined {
  const { record, row } = entry;
  const hub = fieldsOf(record, "disc.hub.advertise.v1") ?? fieldsOf(record, "disc.hub.retire.v1");
  const overlay = fieldsOf(record, "disc.overlay.advertise.v1") ?? fieldsOf(record, "disc.overlay.retire.v1");
  const service = fieldsOf(record, "disc.service.advertise.v1") ?? fieldsOf(record, "disc.service.retire.v1");
  const found = hub ?? overlay ?? service;
  if (found === undefined || row.receipt === undefined) return undefined;
  const kind = hub !== undefined ? "hub" : overlay !== undefined ? "overlay" : "service";
  const id = hex(hub?.hub_id ?? overlay?.overlay_id ?? (service?.service_id as Bytes));
  const name = "name" in found ? found.name : "region" in found ? found.region : "";
  return { entry, kind, id, name, isRetired: !("ttl_sec" in found), end: "ttl_sec" in found ? endOf(found, row.receipt.hub_ts) : 0n };
}

function endOf({ ttl_sec: ttl, expires_at: at }: { readonly ttl_sec: bigint; readonly expires_at: bigint | null }, from: bigint): bigint {
  return at ?? from + ttl;
}
