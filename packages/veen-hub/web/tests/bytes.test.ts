import assert from "node:assert/strict";
import { test } from "node:test";
import { byUtf8 } from "../src/verify/query/json.ts";
import { base64, compare, fromBase64, fromHex, hex, utf8 } from "../src/verify/wire/bytes.ts";

test("hexadecimal text gives the same bytes back", () => {
  assert.equal(hex(fromHex("00ff10") as Uint8Array), "00ff10");
  assert.equal(fromHex("0"), undefined);
  assert.equal(fromHex("0g"), undefined);
});

test("base64 has one form", () => {
  assert.equal(base64(utf8("veen")), "dmVlbg==");
  assert.deepEqual(fromBase64("dmVlbg=="), utf8("veen"));
  assert.equal(fromBase64("dmVlbh=="), undefined);
  assert.equal(fromBase64("dmVlbg"), undefined);
});

test("byte strings are ordered as unsigned bytes, a prefix first", () => {
  assert.ok(compare(utf8("a"), utf8("ab")) < 0);
  assert.ok(compare(Uint8Array.of(0x80), Uint8Array.of(0x7f)) > 0);
  assert.equal(compare(utf8("a"), utf8("a")), 0);
});

test("texts are in the order of their UTF-8 bytes, also beyond the basic plane", () => {
  const texts = ["", "a", "ab", "b", "é", "\ud7ff", "\ue000", "\uffff", "\u{10000}", "\u{10000}a", "\u{1f600}", "\u{10ffff}", "a\u{1f600}", "a\uffee"];
  for (const a of texts) for (const b of texts) {
    assert.equal(Math.sign(byUtf8(a, b)), Buffer.compare(Buffer.from(a), Buffer.from(b)), `${a} and ${b}`);
  }
});
