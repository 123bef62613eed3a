/** Signatures on the edge of Ed25519: the answers are libsodium's, by the browser's algorithm and by noble's curve. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hasNativeEd25519, isValid, isValidByNoble } from "../src/verify/crypto/signatures.ts";
import { type Bytes, fromHex } from "../src/verify/wire/bytes.ts";

const bytes = (text: string): Bytes => fromHex(text) as Bytes;

/** Name, key, message, signature, and what libsodium says. */
const CASES: readonly (readonly [string, string, string, string, boolean])[] = [
  ["plain", "7767a3242dc9b58bbc68488c1265cc6cc5f26c6f3c88a5d55e901b0734dca572", "6d736730", "6b12d4d055bd943206034b402ebe601bf715a3bbe772cdac6ab65b94d9a07bf6e0eaa5603ac765ff17cf88dbb5abdcf0d9a6b36c06333896a835738327789509", true],
  ["S+L", "7767a3242dc9b58bbc68488c1265cc6cc5f26c6f3c88a5d55e901b0734dca572", "6d736730", "6b12d4d055bd943206034b402ebe601bf715a3bbe772cdac6ab65b94d9a07bf6cdbe9bbd542a7857ee6b807e94a5bb05daa6b36c06333896a835738327789519", false],
  ["mixedA", "b15bf26424d1b69dd33b7a9e57db5de4a2aadea4a2a051efd9bfd6af74165d2b", "6d736730", "6b12d4d055bd943206034b402ebe601bf715a3bbe772cdac6ab65b94d9a07bf6ac51c9185df31b6f44c4f88389ff298ab63f13e1394f446a70b7784e16413f00", false],
  ["mixedR", "7767a3242dc9b58bbc68488c1265cc6cc5f26c6f3c88a5d55e901b0734dca572", "6d736730", "37da69e09442b7d55cc3b5795bfab9763f2d49979cf569920d433aac74ed56b975f449631174d0dd64c02eb70a305dedebe89e8455fc593cb3350188e9a0840e", false],
  ["both", "b15bf26424d1b69dd33b7a9e57db5de4a2aadea4a2a051efd9bfd6af74165d2b", "6d736730", "37da69e09442b7d55cc3b5795bfab9763f2d49979cf569920d433aac74ed56b9c83112a372d2b0549cb0dabeaaa4ca5caa7660e248447adc43405cfd03cf4007", false],
  ["small A", "0100000000000000000000000000000000000000000000000000000000000000", "00", "01000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000", false],
  ["noncanonical A", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "00", "01000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000", false],
  ["small R", "7767a3242dc9b58bbc68488c1265cc6cc5f26c6f3c88a5d55e901b0734dca572", "78", "010000000000000000000000000000000000000000000000000000000000000088ecafddb98d6ac0ec9fcea2daba91bd7ca4557ef283fd3e6595c6e785cb4606", false],
];

for (const [name, key, message, signature, expected] of CASES) {
  test(`${name} is ${expected ? "valid" : "refused"}`, async () => {
    assert.equal(await hasNativeEd25519(), true, "this Node.js has Ed25519");
    assert.equal(await isValid(bytes(key), bytes(message), bytes(signature)), expected);
    if (!name.startsWith("small") && !name.startsWith("noncanonical")) {
      assert.equal(isValidByNoble(bytes(key), bytes(message), bytes(signature)), expected);
    }
  });
}

test("any flipped bit of a signature, key or message is refused by noble's curve too", () => {
  const [, key, message, signature] = CASES[0] as (typeof CASES)[number];
  for (const [at, text] of [key, message, signature].entries()) {
    for (let byte = 0; byte < text.length / 2; byte += 7) {
      const parts = [bytes(key), bytes(message), bytes(signature)] as const;
      const changed = parts[at] as Bytes;
      changed[byte] = (changed[byte] as number) ^ 4;
      assert.equal(isValidByNoble(...parts), false);
    }
  }
});
