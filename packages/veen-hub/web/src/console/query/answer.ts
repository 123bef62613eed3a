/** Answer a query from verified entries, with a result file that `veen verify` accepts (query-api §4 to §6, P11 to P14). */
import { H } from "../../verify/crypto/hash.ts";
import { nodeHash, subtrees } from "../../verify/log/mmr.ts";
import type { QueryDescriptor } from "../../verify/query/descriptor.ts";
import { evidenceJson } from "../../verify/query/descriptor.ts";
import { coverageJson, evidenceHash, limitsOf, receiptId, resultId, type Source } from "../../verify/query/digest.ts";
import { TIME_FIELDS } from "../../verify/query/fields.ts";
import { encode, encodeText, type Json, type JsonObject, object } from "../../verify/query/json.ts";
import { formatTimestamp } from "../../verify/query/timestamp.ts";
import { type Bytes, concat, hex, utf8 } from "../../verify/wire/bytes.ts";
import { encodeObject } from "../../verify/wire/codec.ts";
import { VeenError } from "../../verify/wire/errors.ts";
import type { HubIdentity, HubLogLink, ResultFile } from "../../verify/wire/schema.ts";
import type { RecordEntry } from "../records/record_log.ts";
import { readEvents, type RecorderEvent, valueOf } from "./events.ts";

/** Rows that one result may have here; `veen query run` has no such bound. */
export const MAX_ROWS = 10_000;

/** The log that is queried: one label of one stream, from its first entry on. */
export interface QueriedLog {
  readonly stream: string;
  readonly label: Bytes;
  readonly epoch: bigint;
  readonly identity: HubIdentity;
  readonly entries: readonly RecordEntry[];
  /** The way from the last entry to a hub checkpoint, and its text, if there is one. */
  readonly link: HubLogLink | null;
  readonly checkpoint: string | null;
}

export interface QueryAnswer {
  readonly rows: readonly JsonObject[];
  readonly source: Source;
  readonly resultId: string;
  readonly file: ResultFile;
  /** The bytes of the result file. */
  readonly bytes: Bytes;
}

/** Execute a descriptor over one log; evidence is that of mode full. `now` is in milliseconds. */
export async function answerQuery(descriptor: QueryDescriptor, log: QueriedLog, now: bigint): Promise<QueryAnswer> {
  const found = await readEvents(log.entries, { stream: log.stream, hubId: log.identity.hub_id });
  const matched = found.filter((each): each is RecorderEvent => typeof each !== "string" && matches(descriptor, each));
  if (matched.length > MAX_ROWS) {
    throw new VeenError(`${matched.length} events match, and this page answers with at most ${MAX_ROWS} rows`,
      "narrow the filter, or use `veen query run`");
  }
  const unopened = BigInt(found.filter((each) => each === "unopened").length);
  const source = sourceOf(log, BigInt(found.length) - unopened, unopened, BigInt(matched.length));
  const rows = matched.map((event) => rowOf(descriptor, event));
  return { rows, source, ...resultFile(descriptor, log, source, matched, rows, now) };
}

/** Whether the filter selects an event; the time range excludes its end (query-api §4.2.4, P11). */
function matches({ filter }: QueryDescriptor, event: RecorderEvent): boolean {
  return (filter.subjectId === null || event.fields.get("subject_id") === filter.subjectId)
    && (filter.eventType === null || filter.eventType.includes(event.fields.get("event_type") as string))
    && (filter.from === null || event.committed >= filter.from)
    && (filter.to === null || event.committed < filter.to)
    && filter.where.every(([field, values]) => {
      const text = encodeText(valueOf(event, field));
      return values.some((each) => encodeText(each) === text);
    });
}

function rowOf({ projection }: QueryDescriptor, event: RecorderEvent): JsonObject {
  const rendered = (field: string): Json => {
    const value = valueOf(event, field);
    return TIME_FIELDS.includes(field) ? formatTimestamp(value as bigint) : value;
  };
  return new Map(projection.map((field) => [field, rendered(field)]));
}

/** The coverage: every entry of the log, up to the newest that was verified (P13). */
function sourceOf(log: QueriedLog, opened: bigint, unopened: bigint, matched: bigint): Source {
  const newest = log.entries.at(-1)?.row.receipt;
  return {
    stream: log.stream, hubId: log.identity.hub_id, label: log.label, epoch: log.epoch, root: newest?.mmr_root ?? null,
    checkpoint: log.checkpoint, from_seq: 1n, to_seq: newest?.stream_seq ?? 0n, scanned: opened + unopened, opened, unopened,
    pruned: 0n, matched,
  };
}

function resultFile(
  descriptor: QueryDescriptor, log: QueriedLog, source: Source, matched: readonly RecorderEvent[],
  rows: readonly JsonObject[], now: bigint,
): Pick<QueryAnswer, "resultId" | "file" | "bytes"> {
  const encoded = rows.map(encode);
  const rowsJson = utf8(`[${rows.map(encodeText).join(",")}]`);
  const { hub_id: hubId } = log.identity;
  const verified = matched.map(({ receipt }, at) => ({
    receiptId: receiptId(receipt), root: source.root as Bytes, hubId, rowHash: H(encoded[at] as Bytes),
  }));
  const id = resultId(descriptor, [source]);
  const digest = object({
    query_id: descriptor.queryId, result_id: id, version: 1n, row_count: BigInt(rows.length),
    evidence_policy: evidenceJson(descriptor.evidence), rows_hash: hex(H(rowsJson)),
    evidence_hash: evidenceHash(descriptor, [source], verified, null), executed_at: formatTimestamp(now),
    hub_id: hex(hubId), coverage: [coverageJson(source)], limits: limitsOf(descriptor, [source]),
  });
  const newest = log.entries.at(-1)?.row.receipt;
  const file: ResultFile = {
    kind: "veen-query-result", ver: 1n, descriptor_json: descriptor.canonical, digest_json: encode(digest),
    rows_json: rowsJson, row_hashes: concat(...encoded.map(H)),
    evidence: {
      identities: [log.identity],
      sources: [{
        head: newest === undefined ? null : encodeObject("Receipt", newest),
        receipts: matched.map(({ receipt }) => receipt),
        proof: matched.length === 0 ? new Uint8Array() : proveLeaves(log.entries, matched.map(({ seq }) => seq)),
        link: log.link,
      }],
      matched: null,
    },
  };
  return { resultId: id, file, bytes: encodeObject("ResultFile", file) };
}

/** Prove that entries are in the tree of all entries: the roots of the subtrees between them (B11, P13). */
function proveLeaves(entries: readonly RecordEntry[], seqs: readonly bigint[]): Bytes {
  const leaves = entries.map(({ row }) => row.receipt?.leaf_hash as Bytes);
  const nodes: Bytes[] = [];
  const fill = (start: bigint, end: bigint): void => {
    for (const [height, index] of subtrees(start, end)) nodes.push(subtreeRoot(leaves, height, index));
  };
  let start = 0n;
  for (const seq of seqs) {
    fill(start, seq - 1n);
    start = seq;
  }
  fill(start, BigInt(leaves.length));
  return concat(...nodes);
}

function subtreeRoot(leaves: readonly Bytes[], height: number, index: bigint): Bytes {
  const from = Number(index << BigInt(height));
  let level = leaves.slice(from, from + 2 ** height);
  while (level.length > 1) {
    level = level.flatMap((left, at) => (at % 2 === 0 ? [nodeHash(left, level[at + 1] as Bytes)] : []));
  }
  return level[0] as Bytes;
}
