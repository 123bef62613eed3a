/** ResultDigest: ids, hashes, coverage and limits of a result (query-api §5.2 to §5.4, RESOLUTIONS P11, P13). */

import { H, Ht } from "../crypto/hash.ts";
import { quote } from "../hublog/note.ts";
import { type Bytes, equal, fromHex, hex } from "../wire/bytes.ts";
import { U64_MAX } from "../wire/cbor.ts";
import { DecodeError } from "../wire/errors.ts";
import { type EvidencePolicy, evidenceJson, type QueryDescriptor, readEvidence } from "./descriptor.ts";
import {
  byUtf8,
  decodeCanonical,
  encode,
  encodeText,
  type Json,
  type JsonObject,
  object,
  QueryError,
} from "./json.ts";
import { formatTimestamp, parseTimestamp } from "./timestamp.ts";
import { cut } from "./fields.ts";

const MAX_DIGEST_BYTES = 1_048_576;
const COUNTS = ["epoch", "from_seq", "to_seq", "scanned", "opened", "unopened", "pruned", "matched"] as const;
const SOURCE_KEYS = ["stream", "hub_id", "label", "mmr_root", "checkpoint", ...COUNTS];
const KEYS = [
  "query_id",
  "result_id",
  "version",
  "row_count",
  "evidence_policy",
  "rows_hash",
  "evidence_hash",
  "executed_at",
  "hub_id",
  "coverage",
  "limits",
];

/** The entries of one source that a query read, and their counts. */
export interface Source extends Readonly<Record<(typeof COUNTS)[number], bigint>> {
  readonly stream: string;
  readonly hubId: Bytes;
  readonly label: Bytes;
  readonly root: Bytes | null;
  readonly checkpoint: string | null;
}

export interface ResultDigest {
  readonly queryId: string;
  readonly resultId: string;
  readonly rowCount: bigint;
  readonly policy: EvidencePolicy;
  readonly rowsHash: string;
  readonly evidenceHash: string;
  readonly coverage: readonly Source[];
  readonly limits: readonly JsonObject[];
}

export const sizeOf = (source: Source): bigint => source.to_seq - source.from_seq + 1n;

/** The part of a source that `result_id` commits to. */
function committed(source: Source): Record<string, Json> {
  return {
    stream: source.stream,
    hub_id: hex(source.hubId),
    label: hex(source.label),
    epoch: source.epoch,
    from_seq: source.from_seq,
    to_seq: source.to_seq,
    mmr_root: source.root === null ? null : hex(source.root),
  };
}

/** The part of a source that `evidence_hash` commits to. */
function counted(source: Source): Record<string, Json> {
  const { scanned, opened, unopened, pruned, matched } = source;
  return { ...committed(source), scanned, opened, unopened, pruned, matched };
}

/** Return one element of `coverage` in a digest (P13). */
export function coverageJson(source: Source): JsonObject {
  return object({ ...counted(source), checkpoint: source.checkpoint });
}

/** Return the id that follows from a query and the prefixes that it read (P11). */
export function resultId(descriptor: QueryDescriptor, coverage: readonly Source[]): string {
  const item = [descriptor.json, coverage.map((source) => object(committed(source)))];
  return `r-${hex(Ht("veen/query-result", encode(item))).slice(0, 32)}`;
}

/** One verified entry of the evidence summary. */
export interface Verified {
  readonly receiptId: string;
  readonly root: Bytes;
  readonly hubId: Bytes;
  readonly rowHash: Bytes | null;
}

/** Return the hash of the evidence summary, coverage included (query-api §5.4, P13). */
export function evidenceHash(
  descriptor: QueryDescriptor,
  coverage: readonly Source[],
  verified: readonly Verified[],
  matched: Bytes | null,
): string {
  const { mode, sampleRate } = descriptor.evidence;
  const summary: Record<string, Json> = { mode, coverage: coverage.map((source) => object(counted(source))) };
  if (mode !== "none") {
    if (sampleRate !== null) {
      summary["sample_rate"] = sampleRate;
      summary["matched_hash"] = hex(H(matched ?? new Uint8Array()));
    }
    summary["query_id"] = descriptor.queryId;
    summary["result_id"] = resultId(descriptor, coverage);
    summary["verified"] = verified.map(({ receiptId, root, hubId, rowHash }) =>
      object({
        receipt_id: receiptId,
        mmr_root: hex(root),
        hub_id: hex(hubId),
        ...(rowHash === null ? {} : { row_hash: hex(rowHash) }),
      }),
    );
  }
  return hex(H(encode(object(summary))));
}

/** Return the receipt_id of an encoded RECEIPT (P11). */
export function receiptId(wire: Bytes): string {
  return `rcpt-${hex(H(wire))}`;
}

// --- reading

/** Decode a digest; the error names the field. */
export function readDigest(data: Bytes): ResultDigest {
  const item = asDecodeError("", () => decodeCanonical(data, MAX_DIGEST_BYTES));
  const parts = readParts("", item, KEYS, ["profile_id"]);
  const get = (name: string): Json => parts.get(name) as Json;
  if (get("version") !== 1n) throw fail("version", "want 1");
  const policy = asDecodeError("evidence_policy", () => readEvidence(get("evidence_policy")));
  const executed = parseTimestamp(text("executed_at", get("executed_at")));
  if (executed === null) throw fail("executed_at", "want a timestamp (query-api §3.2)");
  const digest = {
    queryId: text("query_id", get("query_id")),
    resultId: text("result_id", get("result_id")),
    rowCount: uint("row_count", get("row_count")),
    policy,
    rowsHash: hash("rows_hash", get("rows_hash")),
    evidenceHash: hash("evidence_hash", get("evidence_hash")),
  };
  const hubId = text("hub_id", get("hub_id"));
  const profileId = parts.has("profile_id") ? text("profile_id", get("profile_id")) : null;
  const coverage = each("coverage", get("coverage"), readSource);
  const limits = each("limits", get("limits"), readLimit);
  const form = object({
    query_id: digest.queryId,
    result_id: digest.resultId,
    version: 1n,
    row_count: digest.rowCount,
    evidence_policy: evidenceJson(policy),
    rows_hash: digest.rowsHash,
    evidence_hash: digest.evidenceHash,
    executed_at: formatTimestamp(executed),
    hub_id: hubId,
    coverage: coverage.map(coverageJson),
    limits,
    ...(profileId === null ? {} : { profile_id: profileId }),
  });
  if (!equal(encode(form), data)) throw fail("", "is not in the form in which digests are recorded");
  return { ...digest, coverage, limits };
}

function fail(where: string, why: string): DecodeError {
  return new DecodeError(why, `ResultDigest${where === "" ? "" : "."}${where} (query-api §5.2)`);
}

function asDecodeError<T>(where: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof QueryError ? fail(where, error.message) : error;
  }
}

function readParts(
  where: string,
  item: Json,
  keys: readonly string[],
  optional: readonly string[] = [],
): JsonObject {
  if (!(item instanceof Map)) throw fail(where, "want an object");
  const held = item as JsonObject;
  const [missing] = keys.filter((key) => !held.has(key)).sort(byUtf8);
  if (missing !== undefined) throw fail(where, `${missing} is missing`);
  const [unknown] = [...held.keys()]
    .filter((key) => !keys.includes(key) && !optional.includes(key))
    .sort(byUtf8);
  if (unknown !== undefined) throw fail(where, `unknown key ${quote(cut(unknown, 40))}`);
  return held;
}

function each<T>(where: string, item: Json, read: (where: string, item: Json) => T): T[] {
  if (!Array.isArray(item)) throw fail(where, "want an array");
  return item.map((value: Json, at) => read(`${where}[${at}]`, value));
}

function readSource(where: string, item: Json): Source {
  const parts = readParts(where, item, SOURCE_KEYS);
  const get = (name: string): Json => parts.get(name) as Json;
  const bytes = (name: string): Bytes => fromHex(hash(`${where}.${name}`, get(name))) as Bytes;
  const counts = Object.fromEntries(COUNTS.map((name) => [name, uint(`${where}.${name}`, get(name))]));
  return {
    ...(counts as Record<(typeof COUNTS)[number], bigint>),
    stream: text(`${where}.stream`, get("stream")),
    hubId: bytes("hub_id"),
    label: bytes("label"),
    root: get("mmr_root") === null ? null : bytes("mmr_root"),
    checkpoint: get("checkpoint") === null ? null : text(`${where}.checkpoint`, get("checkpoint")),
  };
}

function readLimit(where: string, item: Json): JsonObject {
  const parts = readParts(where, item, ["limit", "means"]);
  return object({
    limit: text(`${where}.limit`, parts.get("limit") as Json),
    means: text(`${where}.means`, parts.get("means") as Json),
  });
}

function text(where: string, item: Json): string {
  if (typeof item !== "string") throw fail(where, "want text");
  return item;
}

function hash(where: string, item: Json): string {
  if (typeof item !== "string" || !/^[0-9a-f]{64}$/.test(item))
    throw fail(where, "want 64 digits of lowercase hex");
  return item;
}

function uint(where: string, item: Json): bigint {
  if (typeof item !== "bigint" || item < 0n || item > U64_MAX) throw fail(where, "want an unsigned integer");
  return item;
}

// --- what a result cannot prove (P13)

const ALWAYS: readonly (readonly [string, string])[] = [
  ["never_submitted", "Events that a producer never submitted are in no log, and so in no result."],
  [
    "claimed_values",
    "event_time, subject_id, origin and payload are the producer's claims; the log proves that the " +
      "producer made them, when, and in which order.",
  ],
  ["streams_not_named", "Streams that the scope does not name were not read."],
  [
    "later_entries",
    "Entries after to_seq of a source were not read; a hub can have committed some before the query.",
  ],
  [
    "opened_by_the_executor",
    "Receipts prove the place of each message, not its content. A verifier without reader keys relies on " +
      "the executor for what the messages say and for which of them match.",
  ],
];

/** Return the limits of a result, which follow from descriptor and coverage. */
export function limitsOf(descriptor: QueryDescriptor, coverage: readonly Source[]): JsonObject[] {
  const found = [...ALWAYS];
  const { mode } = descriptor.evidence;
  if (mode === "none") found.push(["no_evidence", "No receipt of a matched event was verified (mode none)."]);
  if (mode === "spot")
    found.push(["sampled", "Only the receipts of sampled events were verified (mode spot)."]);
  for (const source of coverage) {
    const name = `${source.stream} at hub ${hex(source.hubId)}, epoch ${source.epoch}`;
    if (source.scanned === 0n) {
      found.push([
        "empty_source",
        `${name}: no entries are known; nothing signed proves that there are none.`,
      ]);
    }
    if (source.from_seq > 1n)
      found.push(["starts_late", `${name}: entries before ${source.from_seq} were not read.`]);
    if (source.unopened > 0n) {
      found.push(["unopened", `${name}: ${source.unopened} entries did not open with the executor's keys.`]);
    }
    if (source.pruned > 0n) {
      found.push(["pruned", `${name}: retention removed ${source.pruned} entries; they may have matched.`]);
    }
  }
  return found.map(([limit, means]) => object({ limit, means }));
}

export const sameJson = (a: Json, b: Json): boolean => encodeText(a) === encodeText(b);
