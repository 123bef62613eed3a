/** Aggregates: groups of events, and metrics over each group (query-api §4.3, §5.1, RESOLUTIONS P11). */
import { Ht } from "../../verify/crypto/hash.ts";
import type { Aggregate, QueryDescriptor } from "../../verify/query/descriptor.ts";
import { TIME_FIELDS } from "../../verify/query/fields.ts";
import { byUtf8, encodeText, type Json, type JsonObject } from "../../verify/query/json.ts";
import { formatTimestamp } from "../../verify/query/timestamp.ts";
import { hex, utf8 } from "../../verify/wire/bytes.ts";
import { VeenError } from "../../verify/wire/errors.ts";

/** What an aggregate reads of an event. */
export type ReadField = (field: string) => Json;

/** The state of one metric of one group; null and missing values count for `count` only. */
interface Metric {
  add(value: Json): void;
  result(): Json;
}

const METRICS: Readonly<Record<string, (field: string) => Metric>> = {
  count: () => {
    let count = 0n;
    return { add: () => void (count += 1n), result: () => count };
  },
  min: (field) => extreme(field, -1),
  max: (field) => extreme(field, 1),
  sum: (field) => total(field, (sum) => sum),
  avg: (field) => total(field, (sum, count) => (count === 0n ? null : quotient(sum, count))),
  count_distinct: () => {
    const seen = new Set<string>();
    return { add: (value) => void (value === null || seen.add(encodeText(value))), result: () => BigInt(seen.size) };
  },
};

/** Group events, and return one row per group in the order of the canonical JSON of the group's keys. */
export function aggregate({ aggregate: wanted, projection }: QueryDescriptor, events: readonly ReadField[], maxRows: number): JsonObject[] {
  const { groupBy, metrics } = wanted as Aggregate;
  const columns = metrics.map(columnOf);
  if (projection.includes("receipt_id")) columns.push({ name: "receipt_id", field: "receipt_id", make: receiptSet });
  const groups = new Map<string, { readonly keys: readonly Json[]; readonly states: readonly Metric[] }>();
  const groupOf = (keys: readonly Json[]) => {
    const id = encodeText(keys);
    const held = groups.get(id) ?? { keys, states: columns.map(({ make }) => make()) };
    groups.set(id, held);
    return held.states;
  };
  if (groupBy.length === 0) groupOf([]);
  for (const read of events) {
    const states = groupOf(groupBy.map((field) => rendered(field, read(field))));
    for (const [at, { field }] of columns.entries()) states[at]?.add(field === null ? null : read(field));
    if (groups.size > maxRows) throw new VeenError(`there are more than ${maxRows} groups`, "group by fewer values, or narrow the filter");
  }
  return [...groups].sort(([a], [b]) => byUtf8(a, b)).map(([, { keys, states }]) => new Map<string, Json>([
    ...groupBy.map((field, at) => [field, keys[at] as Json] as const),
    ...columns.map(({ name }, at) => [name, (states[at] as Metric).result()] as const),
  ]));
}

/** Return a value as a row shows it: times as timestamps (query-api §3.2). */
export function rendered(field: string, value: Json): Json {
  return TIME_FIELDS.includes(field) && typeof value === "bigint" ? formatTimestamp(value) : value;
}

interface Column {
  readonly name: string;
  readonly field: string | null;
  readonly make: () => Metric;
}

function columnOf(name: string): Column {
  const [, called = name, field = null] = /^([a-z_]+)\((.*)\)$/s.exec(name) ?? [];
  const make = METRICS[called] as (field: string) => Metric; // the descriptor's rules know no other
  return { name, field, make: () => make(field ?? "") };
}

/** The smallest (`sign` -1) or largest (1) value: false, true, numbers, then text by its UTF-8 bytes. */
function extreme(field: string, sign: 1 | -1): Metric {
  let best: Json = null;
  return {
    add: (value) => {
      if (value === null) return;
      if (rankOf(value) < 0) {
        throw new VeenError(
          `min and max of ${field} are not defined: an event has ${value instanceof Map ? "an object" : "an array"} there (query-api §4.3)`,
          "name a path that leads to numbers or text, or filter such events out");
      }
      if (best === null || sign * compared(value, best) > 0) best = value;
    },
    result: () => rendered(field, best),
  };
}

function rankOf(value: Json): number {
  return typeof value === "boolean" ? 0 : typeof value === "bigint" || typeof value === "number" ? 1 : typeof value === "string" ? 2 : -1;
}

function compared(a: Json, b: Json): number {
  const rank = rankOf(a) - rankOf(b);
  if (rank !== 0) return rank;
  if (typeof a === "string") return byUtf8(a, b as string);
  return (a as bigint) < (b as bigint) ? -1 : (a as bigint) > (b as bigint) ? 1 : 0;
}

/** The sum and the count of integers. */
function total(field: string, finish: (sum: bigint, count: bigint) => Json): Metric {
  let [sum, count] = [0n, 0n];
  return {
    add: (value) => {
      if (value === null) return;
      if (typeof value !== "bigint") {
        throw new VeenError(
          `sum and avg of ${field} are not defined: an event has a value there that is not an integer (query-api §4.3)`,
          "name a path that leads to integers, or filter such events out");
      }
      sum += value;
      count += 1n;
    },
    result: () => finish(sum, count),
  };
}

/** Bits of a quotient before it is rounded to a double, which has 53. */
const QUOTIENT_BITS = 80;

/** Return the double that is nearest to the exact quotient. */
export function quotient(sum: bigint, count: bigint): number {
  const size = sum < 0n ? -sum : sum;
  const shift = Math.max(0, QUOTIENT_BITS - size.toString(2).length + count.toString(2).length);
  const shifted = size << BigInt(shift);
  const rest = shifted % count === 0n ? 0n : 1n; // a last bit that breaks a tie
  const value = Number((shifted / count) | rest) / 2 ** shift;
  return sum < 0n ? -value : value;
}

/** The receipt_id of a group: a hash of the sorted receipt_ids of its events, a line each. */
function receiptSet(): Metric {
  const ids = new Set<string>();
  return {
    add: (value) => void ids.add(value as string),
    result: () => `rcpt-set-${hex(Ht("veen/query-receipts", utf8([...ids].sort().map((id) => `${id}\n`).join(""))))}`,
  };
}
