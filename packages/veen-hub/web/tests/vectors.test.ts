/** The repository's vectors: each valid one is accepted, and each `_fail` one refused for the reason it names. */

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fromHex, hex } from "../src/verify/wire/bytes.ts";
import { decodeObject, encodeObject } from "../src/verify/wire/codec.ts";
import { checkVector, type Context, type Judge, JUDGES, type Vector } from "./vectors.ts";

declare const __WEB__: string;
const VECTORS = join(__WEB__, "../../veen-core/tests/vectors");

const read = (folder: string, name: string): Context | undefined => {
  const file = join(folder, name);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Context) : undefined;
};

const vectorsOf = (object: string): Vector[] =>
  readdirSync(join(VECTORS, object)).map((name) => {
    const folder = join(VECTORS, object, name);
    const expected = read(folder, "expect.json") as { match?: string } | undefined;
    const wire = readFileSync(join(folder, "wire.hex"), "utf8").replace(/\s/g, "");
    return { object, name, wire, context: read(folder, "context.json") ?? {}, match: expected?.match ?? null };
  });

for (const object of Object.keys(JUDGES)) {
  test(`every vector of ${object} is accepted or refused as it says`, async () => {
    const refused = await Promise.all(vectorsOf(object).map(checkVector));
    assert.ok(refused.includes(true) && refused.includes(false));
  });
}

test("a vector that is accepted although it should be refused, or for another reason, is an error", async () => {
  const [good] = vectorsOf("receipt").filter(({ name }) => !name.endsWith("_fail")) as [Vector];
  const [bad] = vectorsOf("receipt").filter(({ name }) => name.endsWith("_fail")) as [Vector];
  await assert.rejects(checkVector({ ...good, name: "good_fail" }), /is not refused/);
  await assert.rejects(checkVector({ ...bad, match: "another reason" }), /want another reason/);
  await assert.rejects(checkVector({ ...bad, name: "bad" }), /is refused/);
});

test("an opened vector has the header and body that were sealed", async () => {
  const folder = join(VECTORS, "ciphertext/with_auth_ref");
  const wire = fromHex(readFileSync(join(folder, "wire.hex"), "utf8").replace(/\s/g, "")) as Uint8Array<ArrayBuffer>;
  const opened = (await (JUDGES["ciphertext"] as Judge)(wire, read(folder, "context.json") as Context)) as {
    body: Uint8Array;
    header: { schema: Uint8Array };
  };
  const { body, header } = read(folder, "value.json") as unknown as { body: string; header: { schema: string } };
  assert.equal(hex(opened.body), body);
  assert.equal(hex(opened.header.schema), header.schema);
});

test("what is decoded is encoded to the same bytes", () => {
  for (const [object, name] of [
    ["receipt", "Receipt"],
    ["msg", "Msg"],
    ["hub_identity", "HubIdentity"],
    ["checkpoint", "Checkpoint"],
  ] as const) {
    for (const each of vectorsOf(object).filter((vector) => !vector.name.endsWith("_fail"))) {
      const wire = fromHex(each.wire) as Uint8Array<ArrayBuffer>;
      assert.deepEqual(encodeObject(name, decodeObject(name, wire) as never), wire, `${object}/${each.name}`);
    }
  }
});
