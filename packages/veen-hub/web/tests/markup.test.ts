import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

declare const __WEB__: string;

/** What makes markup or code from text, and what could send data elsewhere. */
const FORBIDDEN = [
  /\b(?:inner|outer)HTML\b/,
  /\binsertAdjacentHTML\b/,
  /\bdocument\.write/,
  /\bDOMParser\b/,
  /\bcreateContextualFragment\b/,
  /\beval\(/,
  /\bnew Function\b/,
  /\bsetTimeout\("/,
  /\bsrcdoc\b/,
  /\bXMLHttpRequest\b/,
  /\bsendBeacon\b/,
  /\bWebSocket\b/,
];

function* sources(folder: string): Generator<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* sources(path);
    else if (entry.name.endsWith(".ts")) yield path;
  }
}

test("no source makes markup or code from text", () => {
  const found = [...sources(join(__WEB__, "src"))].flatMap((path) => {
    const text = readFileSync(path, "utf8");
    return FORBIDDEN.filter((pattern) => pattern.test(text)).map((pattern) => `${path}: ${pattern}`);
  });
  assert.deepEqual(found, []);
});
