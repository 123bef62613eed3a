/**
 * In a browser: the published vectors, the vectors of signed objects, and the corpus of `agreement/`.
 *
 * The page has `globalThis.corpus`. Its title becomes JSON: how many of each kind passed, and what the others say.
 */

import { hasNativeEd25519 } from "../src/verify/crypto/signatures.ts";
import { type Agreement, compareFolds, compareVerdicts, type Corpus } from "./corpus.ts";
import { checkPublished, type PublishedVector } from "./published.ts";
import { checkVector, type Vector } from "./vectors.ts";

interface PageCorpus extends Corpus {
  readonly published: readonly PublishedVector[];
  readonly vectors: readonly Vector[];
}

const MAX_SHOWN = 20;
const MAX_SHOWN_CHARACTERS = 2_000;

async function run({ published, vectors, ...corpus }: PageCorpus): Promise<Record<string, unknown>> {
  const failures: string[] = [];
  const failing = async (work: () => unknown): Promise<boolean> => {
    try {
      return (await work()) === true;
    } catch (error) {
      failures.push(String(error));
      return false;
    }
  };
  for (const vector of published) await failing(() => checkPublished(vector));
  const refusals = [];
  for (const vector of vectors) refusals.push(await failing(() => checkVector(vector)));
  const folds = compareFolds(corpus);
  const verdicts = await compareVerdicts(corpus);
  failures.push(...folds.differing, ...verdicts.differing);
  const counts = ({ agreed, total, worded }: Agreement) => ({ agreed, total, worded });
  return {
    published: published.length, vectors: vectors.length, refused: refusals.filter(Boolean).length,
    folds: counts(folds), verdicts: counts(verdicts), native: await hasNativeEd25519(),
    failures: failures.slice(0, MAX_SHOWN).map((each) => each.slice(0, MAX_SHOWN_CHARACTERS)),
  };
}

run((globalThis as unknown as { corpus: PageCorpus }).corpus).then(
  (found) => (document.title = JSON.stringify(found)),
  (error: unknown) => (document.title = JSON.stringify({ failures: [String(error)] })),
);
