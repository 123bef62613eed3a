/**
 * Compares the verdicts of the page's library with those of `veen verify` on a corpus.
 *
 * Usage: node agreement.mjs CORPUS.json [--show N]. Prints the share of cases with the same verdicts and clauses.
 */

import { readFileSync } from "node:fs";
import { clauseOf } from "../src/verify/wire/errors.ts";
import { type Bytes, fromHex } from "../src/verify/wire/bytes.ts";
import { verifyFiles } from "../src/verify/evidence/verify.ts";

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

const [path, , show = "20"] = process.argv.slice(2);
const corpus = JSON.parse(readFileSync(path as string, "utf8")) as { now: number; cases: readonly Case[] };

type Line = readonly [file: string, holds: boolean | null, clause: string | null, why: string, steps: string];

const lineOf = (each: Pick<Expected, "file" | "holds" | "why" | "steps">): Line => [
  each.file,
  each.holds,
  each.holds === true ? null : clauseOf(each.why),
  each.why,
  each.steps.join("\n"),
];

const byFile = (lines: readonly Line[]): Line[] =>
  [...lines].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));

let agreed = 0;
let worded = 0;
const differing: string[] = [];
for (const each of corpus.cases) {
  const files = each.files.map(({ name, hex }) => ({ name, bytes: fromHex(hex) as Bytes }));
  const trust = { pin: each.trust === null ? null : (fromHex(each.trust) as Bytes), policy: each.policy };
  let made: Line[];
  try {
    made = byFile((await verifyFiles(files, { ...trust, now: BigInt(corpus.now) })).map(lineOf));
  } catch (error) {
    made = [["", null, null, `the page failed: ${error instanceof Error ? error.stack : error}`, ""]];
  }
  const wanted = byFile(each.expect.map(lineOf));
  const core = (lines: readonly Line[]): string => JSON.stringify(lines.map((line) => line.slice(0, 3)));
  const same = core(made) === core(wanted);
  if (same) agreed += 1;
  if (JSON.stringify(made) === JSON.stringify(wanted)) worded += 1;
  else if (!same || process.argv.includes("--words")) {
    const text = (lines: readonly Line[]): string =>
      lines.map((line) => `    ${JSON.stringify(line)}`).join("\n");
    differing.push(`${each.name}\n  veen verify:\n${text(wanted)}\n  page:\n${text(made)}`);
  }
}
const total = corpus.cases.length;
for (const each of differing.slice(0, Number(show))) console.log(each);
console.log(
  `console.agree ${(agreed / total).toFixed(4)} (${agreed} of ${total} cases; the same words in ${worded})`,
);
process.exitCode = agreed === total ? 0 : 1;
