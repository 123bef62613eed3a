/** QueryDescriptor: a query as data, validated and in its normal form (query-api §4, RESOLUTIONS P11, P12). */

import { quote } from "../hublog/note.ts";
import type { Bytes } from "../wire/bytes.ts";
import {
  BASE_FIELDS,
  checkUnique,
  cut,
  invalid,
  parseField,
  readList,
  readObject,
  readText,
  TIME_FIELDS,
  want,
  characters,
} from "./fields.ts";
import { byUtf8, encode, encodeText, type Json, type JsonObject, object, QueryError } from "./json.ts";
import { formatTimestamp, parseTimestamp } from "./timestamp.ts";

const MAX_DESCRIPTOR_BYTES = 65_536;
const FUNCTIONS = ["min", "max", "sum", "avg", "count_distinct"];
const KEYS = ["query_id", "version", "scope", "filter", "projection", "aggregate", "evidence", "meta"];

export interface Filter {
  readonly subjectId: string | null;
  readonly eventType: readonly string[] | null;
  readonly from: bigint | null;
  readonly to: bigint | null;
  /** The values that a field may have. */
  readonly where: readonly (readonly [string, readonly Json[]])[];
}

export interface EvidencePolicy {
  readonly mode: "none" | "spot" | "full";
  readonly sampleRate: number | null;
}

export interface Aggregate {
  readonly groupBy: readonly string[];
  readonly metrics: readonly string[];
}

export interface QueryDescriptor {
  readonly queryId: string;
  readonly scope: readonly string[];
  readonly filter: Filter;
  readonly projection: readonly string[];
  readonly aggregate: Aggregate | null;
  readonly evidence: EvidencePolicy;
  readonly json: JsonObject;
  readonly canonical: Bytes;
}

/** Validate a descriptor and bring it into normal form. */
export function normalise(item: Json): QueryDescriptor {
  const where = "QueryDescriptor (query-api §4.1)";
  const parts = readObject(item, where, KEYS);
  checkVersion(parts.get("version") ?? null);
  for (const name of ["scope", "filter", "projection", "evidence"]) {
    if ((parts.get(name) ?? null) === null) throw invalid(`${name} (query-api §4.2)`, "is missing");
  }
  const get = (name: string): Json => parts.get(name) ?? null;
  const aggregate = get("aggregate") === null ? null : readAggregate(get("aggregate"));
  const made = {
    queryId: get("query_id") === null ? "" : readQueryId(get("query_id")),
    scope: readScope(get("scope")),
    filter: readFilter(get("filter")),
    projection: readProjection(get("projection"), aggregate),
    aggregate,
    evidence: readEvidence(get("evidence")),
  };
  const meta = get("meta") === null ? null : readMeta(get("meta"));
  const json = asJson(made, meta);
  const canonical = encode(json);
  if (canonical.length > MAX_DESCRIPTOR_BYTES)
    throw invalid(where, `has ${canonical.length} bytes in canonical JSON`);
  return { ...made, json, canonical };
}

function asJson(made: Omit<QueryDescriptor, "json" | "canonical">, meta: Json): JsonObject {
  const { aggregate, filter } = made;
  const time = (ms: bigint | null): Json => (ms === null ? null : formatTimestamp(ms));
  return object({
    query_id: made.queryId,
    version: 1n,
    scope: made.scope,
    filter: object({
      subject_id: filter.subjectId,
      event_type: filter.eventType,
      time: object({ from: time(filter.from), to: time(filter.to) }),
      ...(filter.where.length > 0 ? { where: new Map(filter.where) } : {}),
    }),
    projection: made.projection,
    evidence: evidenceJson(made.evidence),
    ...(aggregate === null
      ? {}
      : { aggregate: object({ group_by: aggregate.groupBy, metrics: aggregate.metrics }) }),
    ...(meta === null ? {} : { meta }),
  });
}

export function evidenceJson({ mode, sampleRate }: EvidencePolicy): JsonObject {
  return object({ mode, ...(sampleRate === null ? {} : { sample_rate: sampleRate }) });
}

function checkVersion(version: Json): void {
  if (version === null) return;
  if (typeof version !== "bigint" && typeof version !== "number") {
    throw want("the number 1", version, "version (query-api §4.2)");
  }
  if (typeof version === "number") throw want("the number 1", version, "version (query-api §4.2)");
  if (version !== 1n) {
    throw new QueryError("version (query-api §10.1): this server reads version 1 of QueryDescriptor only");
  }
}

function readQueryId(item: Json): string {
  const where = "query_id (query-api §2.2)";
  if (typeof item !== "string") throw want("text", item, where);
  if (!/^[A-Za-z0-9][A-Za-z0-9._~:-]{0,127}$/.test(item))
    throw invalid(where, `${quote(cut(item, 40))} is not a query_id`);
  return item;
}

function readScope(item: Json): string[] {
  const where = "scope (query-api §4.2)";
  const names = readList(item, where, 64).map((each) => readText(each, where, 256));
  if (names.some((name) => /[\x00-\x1f\x7f]/.test(name))) {
    throw invalid(where, "the name of a stream has a control character");
  }
  checkUnique(names, where);
  return names;
}

function readProjection(item: Json, aggregate: Aggregate | null): string[] {
  const where = "projection (query-api §4.2)";
  const names = readList(item, where, 64);
  if (names.includes("*")) {
    if (names.length > 1) throw invalid(where, '"*" is not alone');
    return aggregate === null
      ? [...BASE_FIELDS, "payload"]
      : BASE_FIELDS.filter((name) => name !== "receipt_id");
  }
  const fields = names.map((each) => parseField(each, where));
  checkUnique(fields, where);
  return fields;
}

function readMeta(item: Json): Json {
  const where = "meta (query-api §4.3)";
  if (!(item instanceof Map)) throw want("an object", item, where);
  const size = encode(item as JsonObject).length;
  if (size > 16_384) throw invalid(where, `has ${size} bytes`);
  return item as JsonObject;
}

function readFilter(item: Json): Filter {
  const parts = readObject(item, "filter (query-api §4.2)", ["subject_id", "event_type", "time", "where"]);
  const get = (name: string): Json => parts.get(name) ?? null;
  const [from, to] = readTime(get("time"));
  const subject = get("subject_id");
  return {
    subjectId: subject === null ? null : readText(subject, "filter.subject_id (query-api §4.2)", 1_024),
    eventType: get("event_type") === null ? null : readTypes(get("event_type")),
    from,
    to,
    where: get("where") === null ? [] : readWhere(get("where")),
  };
}

function readTypes(item: Json): string[] {
  const where = "filter.event_type (query-api §4.2)";
  if (Array.isArray(item) && item.length === 0)
    throw invalid(where, "is an empty array, which selects nothing");
  const types = readList(item, where, 256).map((each) => readText(each, where, 256));
  return [...new Set(types)].sort(byUtf8);
}

function readTime(item: Json): [bigint | null, bigint | null] {
  const where = "filter.time (query-api §4.2)";
  if (item === null) return [null, null];
  const parts = readObject(item, where, ["from", "to"]);
  const [from, to] = [readTimestamp(parts, "from"), readTimestamp(parts, "to")];
  if (from !== null && to !== null && from >= to) throw invalid(where, "from is not before to");
  return [from, to];
}

function readTimestamp(parts: JsonObject, name: string): bigint | null {
  const where = `filter.time.${name} (query-api §3.2)`;
  const item = parts.get(name) ?? null;
  if (item === null) return null;
  if (typeof item !== "string") throw want("a timestamp", item, where);
  const milliseconds = parseTimestamp(item);
  if (milliseconds === null) throw invalid(where, `${quote(cut(item, 40))} is not a timestamp`);
  return milliseconds;
}

function readWhere(item: Json): [string, Json[]][] {
  const where = "filter.where (query-api §10.3)";
  if (!(item instanceof Map) || (item as JsonObject).size > 16) throw want("an object", item, where);
  const conditions = [...(item as JsonObject)].map(([name, values]) => readCondition(name, values));
  checkUnique(
    conditions.map(([name]) => name),
    where,
  );
  return conditions.sort(([a], [b]) => byUtf8(a, b));
}

function readCondition(name: string, item: Json): [string, Json[]] {
  const where = `filter.where.${cut(name, 80)} (query-api §10.3)`;
  const field = parseField(name, where);
  if (TIME_FIELDS.includes(field)) throw invalid(where, "a time has no list of values");
  const items = readList(Array.isArray(item) ? item : [item], where, 256);
  const encoded = new Map<string, Json>();
  for (const value of items) {
    const isScalar = !Array.isArray(value) && !(value instanceof Map);
    if (!isScalar || (typeof value === "string" && characters(value) > 4_096)) {
      throw want("null, a boolean, a number or a text", value, where);
    }
    encoded.set(encodeText(value), value);
  }
  return [field, [...encoded.keys()].sort(byUtf8).map((key) => encoded.get(key) as Json)];
}

function readAggregate(item: Json): Aggregate {
  const parts = readObject(item, "aggregate (query-api §4.3)", ["group_by", "metrics"]);
  const groups = parts.get("group_by") ?? null;
  let where = "aggregate.group_by (query-api §4.3)";
  let groupBy: string[] = [];
  if (groups !== null && !(Array.isArray(groups) && groups.length === 0)) {
    groupBy = readList(groups, where, 16).map((each) => parseField(each, where));
    checkUnique(groupBy, where);
  }
  where = "aggregate.metrics (query-api §4.3)";
  const metrics = readList(parts.get("metrics"), where, 32).map((each) => readMetric(each, where));
  checkUnique(metrics, where);
  return { groupBy, metrics };
}

function readMetric(item: Json, where: string): string {
  if (typeof item !== "string") throw want("the text of a metric", item, where);
  if (item === "count") return item;
  const [, name, argument] = /^([a-z_]+)\((.*)\)$/s.exec(item) ?? [];
  if (name === undefined || !FUNCTIONS.includes(name))
    throw invalid(where, `${quote(cut(item, 80))} is not a metric`);
  const field = parseField(argument as string, where);
  const isBase = (BASE_FIELDS as readonly string[]).includes(field);
  if ((name === "sum" || name === "avg") && isBase && field !== "hub_commit_seq") {
    throw invalid(where, `${name} of ${field} is not defined: its values are not integers`);
  }
  return `${name}(${field})`;
}

/** Validate and normalise `evidence` (query-api §4.2.6). */
export function readEvidence(item: Json): EvidencePolicy {
  const parts = readObject(item, "evidence (query-api §4.2)", ["mode", "sample_rate"]);
  const mode = parts.get("mode") ?? null;
  const rate = parts.get("sample_rate") ?? null;
  let where = "evidence.mode (query-api §4.2)";
  if (typeof mode !== "string") throw want("none, spot or full", mode, where);
  if (mode !== "none" && mode !== "spot" && mode !== "full") {
    throw invalid(where, `${quote(cut(mode, 40))} is not a mode`);
  }
  where = "evidence.sample_rate (query-api §4.2)";
  if (mode !== "spot") {
    if (rate !== null) throw invalid(where, `mode ${quote(mode)} has no sample_rate`);
    return { mode, sampleRate: null };
  }
  if (typeof rate !== "bigint" && typeof rate !== "number") throw want("a number", rate, where);
  if (!(rate > 0 && rate <= 1)) throw invalid(where, "is not in (0, 1]");
  return { mode, sampleRate: Number(rate) };
}
