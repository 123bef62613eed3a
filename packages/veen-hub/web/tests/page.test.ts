import assert from "node:assert/strict";
import { test } from "node:test";
import { withFiles } from "../src/page/held.ts";
import { choose, type Desk, NOTHING, propose } from "../src/page/trust.ts";
import { unhex } from "../src/verify/evidence/recognize.ts";
import { hex, utf8 } from "../src/verify/wire/bytes.ts";

const EMPTY: Desk = { own: NOTHING, proposed: NOTHING, confirmed: false };
const MINE = { hub: "aa", policy: "quorum both" };
const file = (name: string, text: string) => ({ name, bytes: utf8(text) });

test("a sender's policy alone is unconfirmed, and cannot name the hub", () => {
  const desk = propose(EMPTY, { hub: "", policy: "quorum none" });
  assert.deepEqual(choose(desk), { hub: "", policy: "", unconfirmed: ["policy"] });
  const confirmed = choose({ ...desk, confirmed: true });
  assert.deepEqual(confirmed, { hub: "", policy: "quorum none", unconfirmed: [] });
});

test("what the reader entered goes before what the sender proposes", () => {
  const desk = propose({ ...EMPTY, own: MINE }, { hub: "bb", policy: "quorum none" });
  assert.deepEqual(choose(desk), { ...MINE, unconfirmed: [] });
  assert.deepEqual(desk.own, MINE);
});

test("the reader's own hub does not confirm the sender's policy", () => {
  const desk = propose(EMPTY, { hub: "bb", policy: "quorum none" });
  assert.deepEqual(choose({ ...desk, own: { hub: "aa", policy: "" } }), {
    hub: "aa",
    policy: "quorum none",
    unconfirmed: ["policy"],
  });
});

test("what the reader confirmed stays when other evidence proposes something else", () => {
  const first = { ...propose(EMPTY, MINE), confirmed: true };
  const second = propose(first, { hub: "", policy: "quorum none" });
  assert.deepEqual(second.own, MINE);
  assert.equal(second.confirmed, false);
  assert.deepEqual(choose(second), { ...MINE, unconfirmed: [] });
});

test("no file replaces another, and the same file is kept once", () => {
  const names = (files: readonly { name: string }[]): string[] => files.map(({ name }) => name);
  const held = withFiles([], [file("m.evidence", "bad"), file("m.evidence", "good")]);
  assert.deepEqual(names(held), ["m.evidence", "2/m.evidence"]);
  assert.deepEqual(names(withFiles(held, [file("m.evidence", "bad")])), names(held));
  const folder = [file("export/a", "1"), file("export/b", "1")];
  const both = withFiles(folder, [file("export/a", "2"), file("export/b", "1")]);
  assert.deepEqual(names(both), ["export/a", "export/b", "2/export/a", "2/export/b"]);
});

test("hexadecimal text may have white space between bytes, not between the digits of one", () => {
  assert.equal(hex(unhex(utf8(" 00 11\n2233\t44 "))), "0011223344");
  for (const text of ["0 0 11 22 33 44", "001122334 4", "00112233445"]) {
    assert.deepEqual(unhex(utf8(text)), utf8(text));
  }
});
