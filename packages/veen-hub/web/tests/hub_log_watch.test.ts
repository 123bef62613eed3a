import assert from "node:assert/strict";
import { test } from "node:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { AuditLog } from "../src/console/audit.ts";
import type { HubCalls } from "../src/console/hub_calls.ts";
import { HubLogWatch, MAX_ENTRIES } from "../src/console/hub_log_watch.ts";
import { Problems } from "../src/console/problems.ts";
import type { TrustState } from "../src/console/trust_state.ts";
import { H } from "../src/verify/crypto/hash.ts";
import { originOf } from "../src/verify/hublog/checkpoint.ts";
import { leafHash, Tree } from "../src/verify/hublog/tree.ts";
import { hubIdOf, keyIdOf } from "../src/verify/log/identity.ts";
import { base64, type Bytes, concat, hex, utf8 } from "../src/verify/wire/bytes.ts";
import { encodeObject } from "../src/verify/wire/codec.ts";
import { ProofError } from "../src/verify/wire/errors.ts";

const secret = new Uint8Array(32).fill(7);
const hubPk = ed25519.getPublicKey(secret) as Bytes;
const hubId = hubIdOf(hubPk);
const origin = originOf(hubId);
const key = { key_id: keyIdOf(hubPk), hub_pk: hubPk, valid_from: 1n, valid_until: null, endorsement: null };
const hub = {
  hubId: hex(hubId),
  identity: { ver: 1n, hub_id: hubId, hub_keys: [key], anchoring: "data-directory" },
  status: { hub_log_origin: null, hub_ts: 9n, handover: null as { checkpoint: Bytes } | null },
};

function noteOf(size: number, root: Bytes): Bytes {
  const text = `${origin}\n${size}\n${base64(root)}\n`;
  const keyId = H(concat(utf8(`${origin}\n`), Uint8Array.of(1), hubPk)).slice(0, 4);
  const line = base64(concat(keyId, ed25519.sign(utf8(text), secret) as Bytes));
  return utf8(`${text}\n\u2014 ${origin} ${line}\n`);
}

const entries = [1, 2, 3].map((seq) => encodeObject("LabelHead", {
  ver: 1n, label: new Uint8Array(32), upto_seq: BigInt(seq), mmr_root: new Uint8Array(32).fill(seq), hub_ts: 5n,
}));

function rootAt(size: number): Bytes {
  const tree = new Tree();
  for (const entry of entries.slice(0, size)) tree.append(leafHash(entry));
  return tree.root;
}

const OTHER = new Uint8Array(32).fill(9);

/** A watch of a hub whose newest checkpoint is `published.note`; `compare` of a larger one makes it read. */
function watched(published: { note: Bytes }, remembered?: Bytes, changes: object = {}) {
  const stored = remembered === undefined ? null : new TextDecoder().decode(remembered);
  Object.defineProperty(globalThis, "localStorage", { configurable: true, value: { getItem: () => stored, setItem: () => undefined } });
  const calls = {
    hubCheckpoint: () => Promise.resolve(published.note),
    tile: (path: string) => Promise.resolve(path.startsWith("0/") ? concat(...entries.map((each) => leafHash(each)))
      : concat(...entries.flatMap((each) => [Uint8Array.of(0, each.length), each]))),
  };
  const trust = {
    hub: { value: { ...hub, ...changes } }, isRemembered: false, see: () => undefined,
    check: (work: (each: typeof hub) => Promise<unknown>) => work({ ...hub, ...changes }),
  };
  const problems = new Problems(new AuditLog());
  const watch = new HubLogWatch(calls as unknown as HubCalls, problems, trust as unknown as TrustState, null);
  const read = () => watch.compare(noteOf(1_000_000, OTHER)).catch(() => undefined);
  return { watch, problems, read };
}

test("a checkpoint that is shown with a proof must be one of the followed log", async () => {
  const { watch, problems, read } = watched({ note: noteOf(3, rootAt(3)) });
  await read();
  assert.deepEqual(problems.all.value, []);
  await watch.compare(noteOf(2, rootAt(2)));
  await watch.compare(noteOf(3, rootAt(3)));
  for (const size of [1, 2, 3]) await assert.rejects(watch.compare(noteOf(size, OTHER)), ProofError);
});

test("a log that grew since an earlier visit must begin with the tree that was seen then", async () => {
  const honest = watched({ note: noteOf(3, rootAt(3)) }, noteOf(2, rootAt(2)));
  await honest.read();
  assert.deepEqual(honest.problems.all.value, []);
  const rewritten = watched({ note: noteOf(3, rootAt(3)) }, noteOf(2, OTHER));
  await rewritten.read();
  assert.match(rewritten.problems.of("hub log")?.reason ?? "", /does not continue the one that was shown at 2/);
});

test("two roots at one size are a contradiction, however long the log is", async () => {
  const published = { note: noteOf(MAX_ENTRIES + 1, rootAt(1)) };
  const { watch, problems, read } = watched(published);
  await read();
  assert.equal(watch.view.value.head?.size, MAX_ENTRIES + 1);
  published.note = noteOf(MAX_ENTRIES + 1, OTHER);
  await read();
  assert.match(problems.of("hub log")?.reason ?? "", /two roots/);
});

test("every key that is active at the newest entry and now must have signed the hub checkpoint", async () => {
  const next = ed25519.getPublicKey(new Uint8Array(32).fill(8)) as Bytes;
  const rotated = (from: bigint) => {
    const second = { key_id: keyIdOf(next), hub_pk: next, valid_from: from, valid_until: null, endorsement: new Uint8Array(64) };
    return { identity: { ...hub.identity, hub_keys: [key, second] } };
  };
  const later = watched({ note: noteOf(3, rootAt(3)) }, undefined, rotated(6n));
  await later.read();
  assert.deepEqual(later.problems.all.value, [], "the newest entry is older than the second key");
  const both = watched({ note: noteOf(3, rootAt(3)) }, undefined, rotated(4n));
  await both.read();
  assert.match(both.problems.of("hub log")?.reason ?? "", /the active key \w+ did not sign the hub checkpoint/);
});

test("a hub log that grows after the hub's handover is red", async () => {
  const ended = (size: number) => ({ status: { ...hub.status, handover: { checkpoint: noteOf(size, rootAt(size)) } } });
  const honest = watched({ note: noteOf(3, rootAt(3)) }, undefined, ended(3));
  await honest.read();
  assert.deepEqual(honest.problems.all.value, []);
  const grown = watched({ note: noteOf(3, rootAt(3)) }, undefined, ended(2));
  await grown.read();
  assert.match(grown.problems.of("hub log")?.reason ?? "", /grew to size 3, after the handover that ended it at 2/);
});
