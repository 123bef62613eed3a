import assert from "node:assert/strict";
import { test } from "node:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { AuditLog } from "../src/console/audit.ts";
import type { HubCalls } from "../src/console/hub_calls.ts";
import { labelOf } from "../src/console/label_names.ts";
import { Problems } from "../src/console/problems.ts";
import { TrustState } from "../src/console/trust_state.ts";
import { H, Ht } from "../src/verify/crypto/hash.ts";
import { originOf } from "../src/verify/hublog/checkpoint.ts";
import { hubIdOf, keyIdOf } from "../src/verify/log/identity.ts";
import { MAXIMA } from "../src/verify/log/limits.ts";
import { base64, type Bytes, concat, hex, utf8 } from "../src/verify/wire/bytes.ts";
import { encodeObject } from "../src/verify/wire/codec.ts";
import type { Handover, HubIdentity, Status } from "../src/verify/wire/schema.ts";

const secret = new Uint8Array(32).fill(7);
const hubPk = ed25519.getPublicKey(secret) as Bytes;
const sign = (digest: Bytes): Bytes => ed25519.sign(digest, secret) as Bytes;
const hubId = hubIdOf(hubPk);
const key = { key_id: keyIdOf(hubPk), hub_pk: hubPk, valid_from: 1n, valid_until: null, endorsement: null };
const identity: HubIdentity = { ver: 1n, hub_id: hubId, hub_keys: [key], anchoring: "data-directory" };

function handover(changes: Partial<Handover> = {}): Handover {
  const text = `${originOf(hubId)}\n3\n${base64(new Uint8Array(32))}\n`;
  const id = H(concat(utf8(`${originOf(hubId)}\n`), Uint8Array.of(1), hubPk)).slice(0, 4);
  const note = utf8(`${text}\n\u2014 ${originOf(hubId)} ${base64(concat(id, sign(utf8(text))))}\n`);
  const record: Handover = {
    ver: 1n, old_hub: hubId, new_hub: new Uint8Array(32), hub_ts: 50n, checkpoint: note, attachments: 0n,
    attachments_hash: new Uint8Array(32), url: "", sig: new Uint8Array(64), ...changes,
  };
  return { ...record, sig: sign(Ht("veen/handover", encodeObject("Handover", record))) };
}

function status(changes: Partial<Status>): Bytes {
  return encodeObject("Status", {
    ver: 1n, identity, identity_sig: sign(Ht("veen/hub-identity", encodeObject("HubIdentity", identity))),
    profile: {
      aead: "xchacha20poly1305", kdf: "hkdf-sha256", sig: "ed25519", dh: "x25519",
      hpke_suite: "X25519-HKDF-SHA256-CHACHA20POLY1305", epoch_sec: 60n, pad_block: 0n, mmr_hash: "sha256",
    },
    limits: MAXIMA, hub_ts: 100n, epoch: 1n, control_label: labelOf(hubId, "veen/control", 0n), gating: true, enforces: [],
    cannot_enforce: [], pow_salt: new Uint8Array(32), pow_difficulty: 0n, max_page_items: 1n, level: "core", server_version: "0",
    hub_log_origin: null, memories: null, not_signing: null, replica_of: null, handover: null, ...changes,
  });
}

/** Show these statuses one after the other to a page that confirmed the first; return what it says of the last. */
async function reasonAfter(newestReceipt: bigint, ...shown: readonly Partial<Status>[]): Promise<string | undefined> {
  Object.defineProperty(globalThis, "localStorage", { configurable: true, value: { getItem: () => null, removeItem: () => undefined } });
  const answers = [status({}), ...shown.map(status)];
  const log = new AuditLog();
  const problems = new Problems(log);
  const hub = { status: () => Promise.resolve(answers.shift() as Bytes) } as unknown as HubCalls;
  const trust = new TrustState(hub, problems, log, null);
  await trust.refresh();
  trust.confirm(hex(hubId), false);
  trust.see(newestReceipt, true);
  for (const _each of shown) await trust.refresh();
  return problems.of("identity")?.reason;
}

test("a hub whose statements fit is no problem", async () => {
  assert.equal(await reasonAfter(50n, { handover: handover() }, { handover: handover() }), undefined);
});

test("a receipt after the handover that the hub signed is red", async () => {
  assert.match((await reasonAfter(51n, { handover: handover() })) ?? "", /signed a receipt at 51, after the handover .* at 50/);
});

test("a handover that is not signed, withdrawn or replaced is red", async () => {
  assert.match((await reasonAfter(0n, { handover: { ...handover(), url: "https://other" } })) ?? "", /no key of the old hub/);
  assert.match((await reasonAfter(0n, { handover: handover() }, { handover: null })) ?? "", /no longer shows the handover/);
  const other = handover({ new_hub: new Uint8Array(32).fill(1) });
  assert.match((await reasonAfter(0n, { handover: handover() }, { handover: other })) ?? "", /another handover/);
});

test("an epoch that does not follow from the hub's time is red", async () => {
  assert.match((await reasonAfter(0n, { epoch: 2n })) ?? "", /status\.epoch is 2/);
});
