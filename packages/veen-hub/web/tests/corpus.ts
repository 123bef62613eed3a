/** The corpus of `agreement/`: what veen-core and veen-overlays say, and what the pages' library says. No Node.js, no DOM. */

import { aggregate } from "../src/console/query/aggregation.ts";
import { type RecorderEvent, valueOf } from "../src/console/query/events.ts";
import { eventsOf } from "../src/console/records/folded_events.ts";
import { decodeRecord } from "../src/console/records/record.ts";
import { registersOf } from "../src/console/records/registers.ts";
import { walletsOf } from "../src/console/records/wallets.ts";
import { verifyFiles } from "../src/verify/evidence/verify.ts";
import { normalise } from "../src/verify/query/descriptor.ts";
import { decode, encodeText, type Json, type JsonObject } from "../src/verify/query/json.ts";
import { type Bytes, fromHex, hex, utf8 } from "../src/verify/wire/bytes.ts";
import { clauseOf, VeenError } from "../src/verify/wire/errors.ts";

interface Expected {
  readonly file: string;
  readonly kind: string;
  readonly holds: boolean | null;
  readonly why: string;
  readonly steps: readonly string[];
  readonly complete: boolean;
}

interface Case {
  readonly name: string;
  readonly files: readonly { readonly name: string; readonly hex: string }[];
  readonly trust: string | null;
  readonly policy: string | null;
  readonly expect: readonly Expected[];
}

interface AggregateCase {
  readonly name: string;
  readonly descriptor: string;
  readonly events: readonly string[];
  /** The rows in canonical JSON; null if a metric is not defined. */
  readonly rows: string | null;
}

interface FoldCase {
  readonly name: string;
  readonly messages: readonly { readonly msg_id: string; readonly parent_id: string | null; readonly schema: string; readonly body: string }[];
  readonly wallets: readonly (readonly [string, Readonly<Record<string, string>>])[];
  readonly registers: readonly (readonly [string, string])[];
}

export interface Corpus {
  readonly now: number;
  readonly cases: readonly Case[];
  readonly aggregates: readonly AggregateCase[];
  readonly folds: readonly FoldCase[];
}

/** How many cases agree, how many of them in every word, and what the others say. */
export interface Agreement {
  readonly total: number;
  readonly agreed: number;
  readonly worded: number;
  readonly differing: readonly string[];
}

type Line = readonly [file: string, holds: boolean | null, clause: string | null, why: string, steps: string];

const bytes = (text: string): Bytes => fromHex(text) as Bytes;

const lineOf = (each: Pick<Expected, "file" | "holds" | "why" | "steps">): Line => [
  each.file,
  each.holds,
  each.holds === true ? null : clauseOf(each.why),
  each.why,
  each.steps.join("\n"),
];

const byFile = (lines: readonly Line[]): Line[] => [...lines].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));

/** Compare verdicts and clauses of evidence with those of `veen verify`. */
export async function compareVerdicts({ now, cases }: Corpus, showWords = false): Promise<Agreement> {
  let [agreed, worded] = [0, 0];
  const differing: string[] = [];
  for (const each of cases) {
    const made = await linesOf(each, now);
    const wanted = byFile(each.expect.map(lineOf));
    const core = (lines: readonly Line[]): string => JSON.stringify(lines.map((line) => line.slice(0, 3)));
    const same = core(made) === core(wanted);
    if (same) agreed += 1;
    if (JSON.stringify(made) === JSON.stringify(wanted)) worded += 1;
    else if (!same || showWords) {
      const text = (lines: readonly Line[]): string => lines.map((line) => `    ${JSON.stringify(line)}`).join("\n");
      differing.push(`${each.name}\n  veen verify:\n${text(wanted)}\n  page:\n${text(made)}`);
    }
  }
  return { total: cases.length, agreed, worded, differing };
}

async function linesOf(each: Case, now: number): Promise<Line[]> {
  const files = each.files.map(({ name, hex: text }) => ({ name, bytes: bytes(text) }));
  const trust = { pin: each.trust === null ? null : bytes(each.trust), policy: each.policy };
  try {
    return byFile((await verifyFiles(files, { ...trust, now: BigInt(now) })).map(lineOf));
  } catch (error) {
    return [["", null, null, `the page failed: ${error instanceof Error ? error.stack : error}`, ""]];
  }
}

/** Compare groups, wallets and registers with those of veen-overlays. */
export function compareFolds({ aggregates, folds }: Corpus): Agreement {
  const made = [
    ...aggregates.map((each) => [each.name, String(each.rows), String(rowsOf(each))] as const),
    ...folds.map((each) => [each.name, JSON.stringify([each.wallets, each.registers]), JSON.stringify(statesOf(each))] as const),
  ];
  const differing = made.filter(([, wanted, found]) => wanted !== found).map(([name, wanted, found]) => `${name}\n  veen-overlays: ${wanted}\n  page: ${found}`);
  const agreed = made.length - differing.length;
  return { total: made.length, agreed, worded: agreed, differing };
}

function rowsOf({ descriptor, events }: AggregateCase): string | null {
  const asked = normalise(decode(utf8(descriptor), 65_536));
  const readers = events.map((text) => {
    const fields = decode(utf8(text), 65_536) as JsonObject;
    const event = { fields, payload: fields.get("payload") as Json } as RecorderEvent;
    return (field: string) => valueOf(event, field);
  });
  try {
    return encodeText(aggregate(asked, readers, 10_000));
  } catch (error) {
    if (error instanceof VeenError) return null;
    throw error;
  }
}

function statesOf({ messages }: FoldCase): unknown {
  const events = eventsOf(messages.map(({ msg_id, parent_id, schema, body }) => {
    const record = decodeRecord(bytes(schema), bytes(body));
    const parentId = parent_id === null ? null : bytes(parent_id);
    return { msgId: bytes(msg_id), parentId, schema: bytes(schema), body: bytes(body), record: typeof record === "string" ? undefined : record };
  }));
  const asPython = (value: unknown): string => (value === true ? "True" : value === false ? "False" : value === null ? "None" : String(value));
  const wallets = [...walletsOf(events)].map(([id, wallet]) =>
    [id, Object.fromEntries(Object.entries(wallet).map(([name, value]) => [name, asPython(value)]))]);
  return [wallets, registersOf(events).map(({ key, value }) => [hex(key), hex(value)])];
}
