/** What a person typed into the query form, as a QueryDescriptor (query-api §4); the same forms as the options of `veen query run`. */
import { normalise, type QueryDescriptor } from "../../verify/query/descriptor.ts";
import { decode, type Json, object, QueryError } from "../../verify/query/json.ts";
import { utf8 } from "../../verify/wire/bytes.ts";

export interface QueryForm {
  readonly streams: readonly string[];
  readonly subject: string;
  readonly types: string;
  readonly from: string;
  readonly to: string;
  /** FIELD=VALUE, one per line. */
  readonly conditions: string;
  readonly fields: string;
  readonly groups: string;
  readonly metrics: string;
  readonly evidence: string;
}

/** Share of the events whose receipts a result with a sample has; the default of `veen query run`. */
const SAMPLE_RATE = 0.1;
const MAX_VALUE_BYTES = 16_384;

export function descriptorOf(form: QueryForm, queryId: string): QueryDescriptor {
  const [groups, metrics] = [words(form.groups), form.metrics.match(/[^,(]+(?:\([^)]*\))?/g)?.map((each) => each.trim()).filter(Boolean) ?? []];
  const conditions = conditionsOf(form.conditions);
  return normalise(object({
    query_id: queryId, version: 1n, scope: form.streams,
    filter: object({
      subject_id: form.subject.trim() || null,
      event_type: form.types.trim() ? words(form.types) : null,
      time: object({ from: timestamp(form.from), to: timestamp(form.to) }),
      ...(conditions.size > 0 ? { where: conditions } : {}),
    }),
    projection: form.fields.trim() ? words(form.fields) : ["*"],
    ...(groups.length + metrics.length > 0 ? { aggregate: object({ group_by: groups, metrics: metrics.length > 0 ? metrics : ["count"] }) } : {}),
    evidence: object(form.evidence === "spot" ? { mode: "spot", sample_rate: SAMPLE_RATE } : { mode: form.evidence }),
  }));
}

const words = (text: string): string[] => text.split(",").map((each) => each.trim()).filter((each) => each !== "");

/** Return a time that a person typed as a timestamp; a time that is none stays as it is, and is refused later. */
function timestamp(text: string): Json {
  const typed = text.trim().replace(" ", "T");
  if (typed === "") return null;
  const time = new Date(typed.length <= 10 || /Z$/.test(typed) ? typed : `${typed}Z`);
  return Number.isNaN(time.getTime()) ? typed : time.toISOString();
}

/** Read conditions; a value that is JSON is that value, anything else is text. */
function conditionsOf(text: string): Map<string, Json[]> {
  const found = new Map<string, Json[]>();
  for (const line of text.split("\n").map((each) => each.trim()).filter((each) => each !== "")) {
    const at = line.indexOf("=");
    if (at < 1) throw new QueryError(`the condition ${JSON.stringify(line.slice(0, 80))} has no equals sign`, "write FIELD=VALUE, such as payload.status=401");
    const [field, value] = [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    found.set(field, [...(found.get(field) ?? []), valueOf(value)]);
  }
  return found;
}

function valueOf(text: string): Json {
  try {
    return decode(utf8(text), MAX_VALUE_BYTES);
  } catch (error) {
    if (error instanceof QueryError) return text;
    throw error;
  }
}
