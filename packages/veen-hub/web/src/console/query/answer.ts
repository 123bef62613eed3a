/** Answer a query from verified entries, with a result file that `veen verify` accepts (query-api §4 to §6, P11 to P14). */
import { H } from "../../verify/crypto/hash.ts";
import { nodeHash, subtrees } from "../../verify/log/mmr.ts";
import type { QueryDescriptor } from "../../verify/query/descriptor.ts";
import { evidenceJson } from "../../verify/query/descriptor.ts";
import { coverageJson, evidenceHash, limitsOf, receiptId, resultId, type Source } from "../../verify/query/digest.ts";
import { encode, encodeText, type JsonObject, object } from "../../verify/query/json.ts";
import { sampled } from "../../verify/query/receipts.ts";
import { formatTimestamp } from "../../verify/query/timestamp.ts";
import { type Bytes, concat, hex, utf8 } from "../../verify/wire/bytes.ts";
import { encodeObject } from "../../verify/wire/codec.ts";
import { VeenError } from "../../verify/wire/errors.ts";
import type { HubIdentity, HubLogLink, ResultFile } from "../../verify/wire/schema.ts";
import type { RecordEntry } from "../records/stream_log.ts";
import { aggregate, rendered } from "./aggregation.ts";
import { readEvents, type RecorderEvent, valueOf } from "./events.ts";

/** Rows that one result may have here; `veen query run` has no such bound. */
export const MAX_ROWS = 10_000;

/** One label of one stream, from its first entry on; none if the stream has no entries. */
export interface QueriedLabel {
  readonly stream: string;
  readonly label: Bytes;
  readonly epoch: bigint;
  readonly entries: readonly RecordEntry[];
  /** The way from the last entry to a hub checkpoint, and its text, if there is one. */
  readonly link: HubLogLink | null;
  readonly checkpoint: string | null;
}

export interface QueryAnswer {
  readonly rows: readonly JsonObject[];
  /** The event of each row; none for the rows of an aggregate. */
  readonly events: readonly RecorderEvent[];
  readonly coverage: readonly Source[];
  readonly resultId: string;
  readonly file: ResultFile;
  /** The bytes of the result file. */
  readonly bytes: Bytes;
}

/** A matched event, and the place of its label in the coverage. */
interface Match {
  readonly event: RecorderEvent;
  readonly at: number;
}

/** Execute a descriptor over the labels of its scope, which are in the order of P11. `now` is in milliseconds. */
export async function answerQuery(
  descriptor: QueryDescriptor, identity: HubIdentity, labels: readonly QueriedLabel[], now: bigint,
): Promise<QueryAnswer> {
  const matches: Match[] = [];
  const coverage: Source[] = [];
  for (const [at, label] of labels.entries()) {
    const found = await readEvents(label.entries, { stream: label.stream, hubId: identity.hub_id });
    const events = found.filter((each): each is RecorderEvent => typeof each !== "string" && isSelected(descriptor, each));
    const unopened = found.filter((each) => each === "unopened").length;
    coverage.push(sourceOf(label, identity, found.length - unopened, unopened, events.length));
    matches.push(...events.map((event) => ({ event, at })));
  }
  const isAggregate = descriptor.aggregate !== null;
  if (!isAggregate && matches.length > MAX_ROWS) {
    throw new VeenError(`${matches.length} events match, and this page answers with at most ${MAX_ROWS} rows`,
      "narrow the filter, group the events, or use `veen query run`");
  }
  const rows = isAggregate ? aggregate(descriptor, matches.map(({ event }) => (field) => valueOf(event, field)), MAX_ROWS)
    : matches.map(({ event }) => rowOf(descriptor, event));
  const events = isAggregate ? [] : matches.map(({ event }) => event);
  return { rows, events, coverage, ...resultFile(descriptor, identity, labels, coverage, matches, rows, now) };
}

/** Whether the filter selects an event; the time range excludes its end (query-api §4.2.4, P11). */
function isSelected({ filter }: QueryDescriptor, event: RecorderEvent): boolean {
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
  return new Map(projection.map((field) => [field, rendered(field, valueOf(event, field))]));
}

/** The coverage of one label: every entry, up to the newest that was verified (P13). */
function sourceOf(
  { stream, label, epoch, entries, checkpoint }: QueriedLabel, identity: HubIdentity, opened: number, unopened: number, matched: number,
): Source {
  const newest = entries.at(-1)?.row.receipt;
  return {
    stream, hubId: identity.hub_id, label, epoch, root: newest?.mmr_root ?? null, checkpoint,
    from_seq: 1n, to_seq: newest?.stream_seq ?? 0n, scanned: BigInt(opened + unopened), opened: BigInt(opened),
    unopened: BigInt(unopened), pruned: 0n, matched: BigInt(matched),
  };
}

/** The places of the matches whose receipts the evidence policy wants (query-api §6, P14). */
function chosen({ evidence, queryId }: QueryDescriptor, ids: readonly string[]): readonly number[] {
  if (evidence.mode === "none") return [];
  return evidence.sampleRate === null ? [...ids.keys()] : sampled(queryId, ids, evidence.sampleRate);
}

function resultFile(
  descriptor: QueryDescriptor, identity: HubIdentity, labels: readonly QueriedLabel[], coverage: readonly Source[],
  matches: readonly Match[], rows: readonly JsonObject[], now: bigint,
): Pick<QueryAnswer, "resultId" | "file" | "bytes"> {
  const encoded = rows.map(encode);
  const rowsJson = utf8(`[${rows.map(encodeText).join(",")}]`);
  const { hub_id: hubId } = identity;
  const ids = matches.map(({ event }) => receiptId(event.receipt));
  const places = chosen(descriptor, ids);
  const verified = places.map((place) => ({
    receiptId: ids[place] as string, root: coverage[(matches[place] as Match).at]?.root as Bytes, hubId,
    rowHash: descriptor.aggregate === null ? H(encoded[place] as Bytes) : null,
  }));
  const matched = descriptor.evidence.mode === "spot" ? concat(...matches.map(({ event }) => H(event.receipt))) : null;
  const id = resultId(descriptor, coverage);
  const digest = object({
    query_id: descriptor.queryId, result_id: id, version: 1n, row_count: BigInt(rows.length),
    evidence_policy: evidenceJson(descriptor.evidence), rows_hash: hex(H(rowsJson)),
    evidence_hash: evidenceHash(descriptor, coverage, verified, matched), executed_at: formatTimestamp(now),
    hub_id: hex(hubId), coverage: coverage.map(coverageJson), limits: limitsOf(descriptor, coverage),
  });
  const sources = labels.map(({ entries, link }, at) => {
    const picked = places.map((place) => matches[place] as Match).filter((match) => match.at === at).map(({ event }) => event);
    const newest = entries.at(-1)?.row.receipt;
    return {
      head: newest === undefined ? null : encodeObject("Receipt", newest),
      receipts: picked.map(({ receipt }) => receipt),
      proof: picked.length === 0 ? new Uint8Array() : proveLeaves(entries, picked.map(({ seq }) => seq)),
      link,
    };
  });
  const file: ResultFile = {
    kind: "veen-query-result", ver: 1n, descriptor_json: descriptor.canonical, digest_json: encode(digest),
    rows_json: rowsJson, row_hashes: concat(...encoded.map(H)), evidence: { identities: [identity], sources, matched },
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
