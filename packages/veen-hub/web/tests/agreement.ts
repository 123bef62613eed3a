/**
 * Compares what the pages' library says with what veen-core and veen-overlays say, on a corpus.
 *
 * Usage: node agreement.mjs CORPUS.json [--show N] [--words]. Prints the share of cases with the same verdicts and clauses.
 */

import { readFileSync } from "node:fs";
import { compareFolds, compareVerdicts, type Corpus } from "./corpus.ts";

const [path, , show = "20"] = process.argv.slice(2);
const corpus = JSON.parse(readFileSync(path as string, "utf8")) as Corpus;
const folded = compareFolds(corpus);
const verdicts = await compareVerdicts(corpus, process.argv.includes("--words"));
for (const each of [...folded.differing, ...verdicts.differing].slice(0, Number(show))) console.log(each);
console.log(`groups of queries, wallets and registers: ${folded.agreed} of ${folded.total} cases agree with veen-overlays`);
const { total, agreed, worded } = verdicts;
console.log(`console.agree ${(agreed / total).toFixed(4)} (${agreed} of ${total} cases; the same words in ${worded})`);
process.exitCode = agreed === total && folded.agreed === folded.total ? 0 : 1;
