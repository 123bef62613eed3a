import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { checkPublished, type PublishedVector } from "./published.ts";

declare const __WEB__: string;
const PUBLISHED = join(__WEB__, "../../veen-core/tests/vectors/published");
const FILES = readdirSync(PUBLISHED).sort();

test("all published vectors are here", () => assert.equal(FILES.length, 53));

for (const file of FILES) {
  test(`published vector ${file}`, () => checkPublished(JSON.parse(readFileSync(join(PUBLISHED, file), "utf8")) as PublishedVector));
}

test("a published vector with another answer is refused", async () => {
  const vector = JSON.parse(readFileSync(join(PUBLISHED, "principal_id.json"), "utf8")) as PublishedVector;
  await assert.rejects(checkPublished({ ...vector, expected: "00".repeat(32) }), /want "00/);
  await assert.rejects(checkPublished({ ...vector, name: "unknown" }), /has no check/);
});
