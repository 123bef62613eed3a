/** The rules between rows, descriptor, digest and coverage of one result (query-api §5, P11 to P13). */

import { H } from "../crypto/hash.ts";
import { quote } from "../hublog/note.ts";
import { type Bytes, compare, concat, equal, hex, utf8 } from "../wire/bytes.ts";
import { EvidenceError } from "../wire/errors.ts";
import type { ResultFile } from "../wire/schema.ts";
import type { QueryDescriptor } from "./descriptor.ts";
import { limitsOf, type ResultDigest, resultId, sameJson, sizeOf, type Source } from "./digest.ts";
import { cut } from "./fields.ts";
import { byUtf8, encode, type JsonObject } from "./json.ts";

export const ROWS_ACTION = "get the result again from the executor, and keep this file as evidence";

export function named(source: Source): string {
  const epoch = source.epoch !== 0n ? `, epoch ${source.epoch}` : "";
  return `stream ${quote(source.stream)} at hub ${hex(source.hubId).slice(0, 16)}…${epoch}`;
}

/** Split concatenated hashes. */
export function splitHashes(data: Bytes): Bytes[] {
  if (data.length % 32 !== 0)
    throw new EvidenceError("a list of hashes ends in the middle of a hash (query-api §5)");
  return Array.from({ length: data.length / 32 }, (_, at) => data.slice(32 * at, 32 * at + 32));
}

/** Refuse a digest that is not that of the descriptor and of its own coverage. */
export function checkDigest(descriptor: QueryDescriptor, digest: ResultDigest): void {
  if (digest.queryId !== descriptor.queryId) {
    throw new EvidenceError("the digest is that of another query_id (query-api §5.2)");
  }
  const [a, b] = [digest.policy, descriptor.evidence];
  if (a.mode !== b.mode || a.sampleRate !== b.sampleRate) {
    throw new EvidenceError("digest and descriptor have different evidence policies (query-api §5.2)");
  }
  if (digest.resultId !== resultId(descriptor, digest.coverage)) {
    throw new EvidenceError(
      "result_id does not follow from descriptor and coverage: one of them was changed (RESOLUTIONS P11)",
      ROWS_ACTION,
    );
  }
  if (!sameJson(digest.limits, limitsOf(descriptor, digest.coverage))) {
    throw new EvidenceError("limits do not follow from descriptor and coverage (RESOLUTIONS P13)");
  }
}

/** Refuse rows that are not those of row_count and rows_hash (query-api §5.3). */
export function checkRows(
  file: ResultFile,
  digest: ResultDigest,
  descriptor: QueryDescriptor,
  rows: readonly JsonObject[],
  encoded: readonly Bytes[],
): void {
  const why = difference(splitHashes(file.row_hashes), encoded.map(H));
  if (why !== null) throw new EvidenceError(`${why} (query-api §5.3)`, ROWS_ACTION);
  if (BigInt(rows.length) !== digest.rowCount) {
    throw new EvidenceError(
      `the file has ${rows.length} rows, row_count says ${digest.rowCount} (query-api §5.2)`,
      ROWS_ACTION,
    );
  }
  const whole = concat(
    utf8("["),
    ...encoded.flatMap((row, at) => (at === 0 ? [row] : [utf8(","), row])),
    utf8("]"),
  );
  if (!equal(whole, file.rows_json)) {
    throw new EvidenceError("the rows are not in canonical JSON (RESOLUTIONS P12)", ROWS_ACTION);
  }
  if (hex(H(whole)) !== digest.rowsHash) {
    throw new EvidenceError(
      "the rows are not those of rows_hash: rows were changed (query-api §5.3)",
      ROWS_ACTION,
    );
  }
  checkShape(descriptor, rows);
}

/** Say how two lists of rows differ, given the hashes of their rows. */
function difference(expected: readonly Bytes[], found: readonly Bytes[]): string | null {
  const same = (a: Bytes | undefined, b: Bytes | undefined): boolean =>
    a !== undefined && b !== undefined && equal(a, b);
  const common = Math.min(expected.length, found.length);
  let at = expected.slice(0, common).findIndex((each, n) => !same(each, found[n]));
  if (at < 0) {
    if (expected.length === found.length) return null;
    at = common;
  }
  if (found.length < expected.length) return `row ${at + 1} of ${expected.length} is missing`;
  if (found.length > expected.length) {
    const twin = found.slice(0, at).findIndex((each) => same(each, found[at]));
    return twin < 0 ? `row ${at + 1} was added` : `row ${at + 1} repeats row ${twin + 1}`;
  }
  const other = found.findIndex((each, n) => n > at && same(each, expected[at]));
  if (other < 0) return `row ${at + 1} was changed`;
  return `row ${at + 1} is out of order: the row that belongs there is row ${other + 1}`;
}

function checkShape(descriptor: QueryDescriptor, rows: readonly JsonObject[]): void {
  const { aggregate, projection } = descriptor;
  const names = new Set(aggregate === null ? projection : [...aggregate.groupBy, ...aggregate.metrics]);
  if (aggregate !== null && projection.includes("receipt_id")) names.add("receipt_id");
  for (const [at, row] of rows.entries()) {
    const wrong = [
      ...[...row.keys()].filter((key) => !names.has(key)),
      ...[...names].filter((key) => !row.has(key)),
    ];
    const [first] = wrong.sort(byUtf8);
    if (first !== undefined) {
      throw new EvidenceError(
        `row ${at + 1}: the descriptor and the row disagree about the field ${quote(cut(first, 80))} (query-api §5.1)`,
        ROWS_ACTION,
      );
    }
  }
}

/** Refuse a coverage that leaves out a stream, is out of order, or does not add up (P11, P13). */
export function checkCoverage(
  descriptor: QueryDescriptor,
  coverage: readonly Source[],
  rows: readonly JsonObject[],
): void {
  const { scope } = descriptor;
  const [missing] = scope
    .filter((stream) => !coverage.some((source) => source.stream === stream))
    .sort(byUtf8);
  if (missing !== undefined) {
    throw new EvidenceError(`the coverage leaves out the stream ${quote(missing)} (RESOLUTIONS P13)`);
  }
  let before: Source | null = null;
  for (const source of coverage) {
    checkCounts(source, scope);
    if (before !== null && order(before, source, scope) >= 0) {
      throw new EvidenceError(`${named(source)}: the sources are not in order (RESOLUTIONS P11)`);
    }
    before = source;
  }
  const matched = coverage.reduce((sum, source) => sum + source.matched, 0n);
  if (descriptor.aggregate !== null) {
    checkGroups(descriptor, rows, matched);
  } else if (matched !== BigInt(rows.length)) {
    throw new EvidenceError(
      `the coverage says that ${matched} events match, but there are ${rows.length} rows (RESOLUTIONS P13)`,
      ROWS_ACTION,
    );
  }
}

function order(a: Source, b: Source, scope: readonly string[]): number {
  const place = scope.indexOf(a.stream) - scope.indexOf(b.stream);
  if (place !== 0) return place;
  const hub = compare(a.hubId, b.hubId);
  return hub !== 0 ? hub : a.epoch < b.epoch ? -1 : a.epoch > b.epoch ? 1 : 0;
}

function checkCounts(source: Source, scope: readonly string[]): void {
  if (!scope.includes(source.stream)) {
    throw new EvidenceError(`${named(source)}: the scope does not name this stream (RESOLUTIONS P13)`);
  }
  if (source.from_seq !== 1n) {
    throw new EvidenceError(
      `${named(source)}: the coverage begins at entry ${source.from_seq}, so the entries before it were ` +
        "left out (RESOLUTIONS P13)",
      ROWS_ACTION,
    );
  }
  const size = sizeOf(source);
  if (source.scanned !== size) {
    throw new EvidenceError(
      `${named(source)}: ${source.scanned} entries were scanned, but the range ${source.from_seq} to ` +
        `${source.to_seq} has ${size} (RESOLUTIONS P13)`,
      ROWS_ACTION,
    );
  }
  const { opened, unopened, pruned, scanned, matched } = source;
  if (opened + unopened + pruned !== scanned || matched > opened) {
    throw new EvidenceError(`${named(source)}: the counts do not add up (RESOLUTIONS P13)`, ROWS_ACTION);
  }
}

/** Check order and counts of aggregate rows. */
function checkGroups(descriptor: QueryDescriptor, rows: readonly JsonObject[], matched: bigint): void {
  const { groupBy, metrics } = descriptor.aggregate as NonNullable<QueryDescriptor["aggregate"]>;
  if (groupBy.length === 0 && rows.length !== 1) {
    throw new EvidenceError(`an aggregate without groups has one row, not ${rows.length} (query-api §4.3)`);
  }
  if (groupBy.length > 0 && BigInt(rows.length) > matched) {
    throw new EvidenceError(`${rows.length} groups cannot come from ${matched} events (query-api §4.3)`);
  }
  let before: Uint8Array = new Uint8Array();
  for (const [at, row] of rows.entries()) {
    const key = encode(groupBy.map((name) => row.get(name) ?? null));
    if (compare(key, before) <= 0) {
      throw new EvidenceError(`row ${at + 1}: its group does not follow that of row ${at} (P11)`);
    }
    before = key;
  }
  if (!metrics.includes("count")) return;
  const counts = rows.map((row) => row.get("count"));
  const total = counts.reduce<bigint>((sum, count) => (typeof count === "bigint" ? sum + count : sum), 0n);
  if (total !== matched) {
    throw new EvidenceError(
      `the counts of the groups add up to ${total}, but ${matched} events match (P13)`,
      ROWS_ACTION,
    );
  }
}
