/** The published vectors, as far as a page has a part in them; the others are named with their reason. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { operationId } from "../src/console/records/causality.ts";
import { isInForce, realmId, revocationEnd } from "../src/console/records/realm.ts";
import { decodeRecord, fieldsOf } from "../src/console/records/record.ts";
import { H, Ht } from "../src/verify/crypto/hash.ts";
import { verify } from "../src/verify/crypto/signatures.ts";
import { attRoot } from "../src/verify/log/attached.ts";
import { verifyCookie, verifyToken } from "../src/verify/log/grants.ts";
import { unsignedDigest, verifyCheckpoint, hubIdOf, keyIdOf } from "../src/verify/log/identity.ts";
import { Mmr, nodeHash } from "../src/verify/log/mmr.ts";
import { bodyNonce, leafHash } from "../src/verify/log/msg.ts";
import { verifyInclusion } from "../src/verify/log/proof.ts";
import { labelOf } from "../src/verify/log/stream.ts";
import { decode as decodeJson, encodeText } from "../src/verify/query/json.ts";
import { type Bytes, concat, fromHex, hex, utf8 } from "../src/verify/wire/bytes.ts";
import { decode } from "../src/verify/wire/cbor.ts";
import { decodeObject, encodeObject } from "../src/verify/wire/codec.ts";

declare const __WEB__: string;
const PUBLISHED = join(__WEB__, "../../veen-core/tests/vectors/published");

type Fields = Record<string, unknown>;
type Check = (inputs: Fields, expected: never) => void | Promise<void>;

const bytes = (text: unknown): Bytes => fromHex(text as string) as Bytes;
/** Bytes written as `42*32`: one byte, so many times. */
const repeated = (text: unknown): Bytes => {
  const [byte, count] = (text as string).split("*") as [string, string];
  return new Uint8Array(Number(count)).fill(Number.parseInt(byte, 16));
};
const same = (made: Bytes, expected: string): void => assert.equal(hex(made), expected);

const plainHash: Check = ({ data_utf8 }, expected: string) => same(H(utf8(data_utf8 as string)), expected);
const realmHash: Check = ({ op, realm_id }, expected: string) => {
  const [, tag] = /^Ht\("([^"]+)"/.exec(op as string) as unknown as [string, string];
  same(Ht(tag, bytes(realm_id)), expected);
};
const cookie: Check = ({ challenge_utf8, nonce, difficulty }) =>
  verifyCookie({
    challenge: utf8((challenge_utf8 ?? "spec-pow-test") as string),
    nonce: BigInt((nonce ?? 0) as number),
    difficulty: BigInt((difficulty ?? 0) as number),
  });
const header: Check = (_inputs, expected: string) =>
  same(encodeObject("PayloadHeader", decodeObject("PayloadHeader", bytes(expected))), expected);
/** The digest of a wire object whose last item is a signature of zeros. */
const digestOf = (unsigned: string): Bytes => {
  const body = bytes(unsigned);
  const head = Uint8Array.of((body[0] as number) + 1);
  return unsignedDigest(concat(head, body.subarray(1), Uint8Array.of(0x58, 0x40), new Uint8Array(64)));
};
const signing: Check = (_inputs, { cbor, digest, digest_Ht_veen_sig }: Record<string, string>) =>
  same(digestOf(cbor as string), (digest ?? digest_Ht_veen_sig) as string);

const attachments: Check = ({ attachment_ciphertexts_utf8 }, expected: string | { att_root: string }) => {
  const coids = (attachment_ciphertexts_utf8 as string[]).map((each) => H(utf8(each)));
  same(attRoot(coids), typeof expected === "string" ? expected : expected.att_root);
};

const CHECKS: Readonly<Record<string, Check>> = {
  label_derive: ({ routing_key_utf8, stream_id, epoch_hex }, expected: string) =>
    same(labelOf(utf8(routing_key_utf8 as string), bytes(stream_id), BigInt(epoch_hex as string)), expected),
  realm_stream_fed_admin: realmHash,
  realm_stream_revocation: realmHash,
  realm_stream_schema_meta: realmHash,
  pow_cookie_accept: cookie,
  pow_zero_difficulty: cookie,
  cbor_bstr32_prefix: () =>
    assert.deepEqual(decode(concat(bytes("5820"), new Uint8Array(32))), new Uint8Array(32)),
  leaf_hash_manual: ({ label, profile_id, ct_hash, client_id, client_seq }, expected: string) => {
    const fields = { profile_id: bytes(profile_id), ct_hash: bytes(ct_hash), client_id: bytes(client_id) };
    same(leafHash(bytes(label), { ...fields, client_seq: BigInt(client_seq as number) }), expected);
  },
  msg_signing_bytes_with_auth_ref: signing,
  receipt_signing_bytes: signing,
  checkpoint_signing_bytes: (_inputs, { cbor, digest }: { cbor: string; digest: string }) =>
    same(Ht("veen/sig", bytes(cbor)), digest),
  msg_signed_no_auth_ref: async ({ client_id }, { msg_cbor, digest, sig }: Record<string, string>) => {
    const wire = bytes(msg_cbor);
    same(encodeObject("Msg", decodeObject("Msg", wire)), msg_cbor as string);
    same(unsignedDigest(wire), digest as string);
    await verify(bytes(client_id), bytes(digest), bytes(sig), "MSG.sig");
  },
  checkpoint_signed: async ({ hub_pk }, { checkpoint_cbor_7 }: Record<string, string>) => {
    const key = bytes(hub_pk);
    const hubKey = {
      key_id: keyIdOf(key),
      hub_pk: key,
      valid_from: 0n,
      valid_until: null,
      endorsement: null,
    };
    const identity = {
      ver: 1n,
      hub_id: hubIdOf(key),
      hub_keys: [hubKey],
      anchoring: "data-directory",
    } as const;
    await verifyCheckpoint(identity, decodeObject("Checkpoint", bytes(checkpoint_cbor_7)), 0n);
  },
  mmr_node: ({ left, right }, expected: string) => same(nodeHash(repeated(left), repeated(right)), expected),
  mmr_append_proofs_1_to_8: (
    _inputs,
    expected: readonly { seq: number; root: string; proof_cbor: string }[],
  ) => {
    const tree = new Mmr();
    for (const { seq, root, proof_cbor } of expected) {
      const leaf = new Uint8Array(32).fill(seq);
      tree.add(leaf);
      same(tree.root, root);
      verifyInclusion(decodeObject("MmrProof", bytes(proof_cbor)), tree.root, BigInt(seq), leaf, tree.size);
    }
  },
  payload_header_full_cbor: header,
  payload_header_sparse_cbor: header,
  cap_token_issue: (_inputs, { token_cbor }: Record<string, string>) =>
    verifyToken(decodeObject("CapToken", bytes(token_cbor))),
  profile_id_rotating: ({ epoch_sec, pad_block }, expected: string) => {
    const fixed = {
      aead: "xchacha20poly1305",
      kdf: "hkdf-sha256",
      sig: "ed25519",
      dh: "x25519",
      mmr_hash: "sha256",
    } as const;
    const numbers = { epoch_sec: BigInt(epoch_sec as number), pad_block: BigInt(pad_block as number) };
    const profile = { ...fixed, ...numbers, hpke_suite: "X25519-HKDF-SHA256-CHACHA20POLY1305" } as const;
    same(Ht("veen/profile", encodeObject("Profile", profile)), expected);
  },
  att_root_one: attachments,
  att_root_two: attachments,
  att_root_three: attachments,
  body_nonce: ({ label, prev_ack, client_id, client_seq }, expected: string) => {
    const counters = { prev_ack: BigInt(prev_ack as number), client_seq: BigInt(client_seq as number) };
    same(bodyNonce({ label: repeated(label), client_id: repeated(client_id), ...counters }), expected);
  },
  operation_id: ({ leaf_hash }, expected: string) => assert.equal(operationId(bytes(leaf_hash as string)), expected),
  realm_id: ({ name }, expected: string) => {
    same(realmId(name as string), expected);
    same(realmId(expected), expected);
  },
  revocation_window: ({ ts, ttl }, expected: Record<string, boolean | number>) => {
    const made = { ts: BigInt(ts as number), ttl: BigInt(ttl as number) };
    assert.equal(revocationEnd(made), BigInt(expected["expires_at"] as number));
    for (const [name, active] of Object.entries(expected)) {
      const now = /^active\((\d+)\)$/.exec(name)?.[1];
      if (now !== undefined) assert.equal(isInForce(made, BigInt(now)), active);
    }
  },
  paid_operation_cbor: ({ fields }, expected: string) => {
    const found = decodeRecord(H(utf8("veen/schema:paid.operation.v1")), bytes(expected));
    assert.ok(typeof found !== "string", found as string);
    const paid = fieldsOf(found, "paid.operation.v1");
    const given = fields as Record<string, unknown>;
    assert.equal(paid?.operation_type, given["operation_type"]);
    same(paid?.payer_account as Uint8Array<ArrayBuffer>, given["payer_account"] as string);
    assert.equal(paid?.amount, BigInt(given["amount"] as number));
    assert.equal(paid?.metadata, null);
    const [last, cut] = [bytes(expected).slice(), bytes(expected).slice(0, -1)];
    last[0] = (last[0] as number) + 1;
    for (const wrong of [last, cut]) assert.equal(typeof decodeRecord(H(utf8("veen/schema:paid.operation.v1")), wrong), "string");
  },
  query_rows_hash: ({ rows }, expected: string) =>
    same(H(utf8(encodeText(decodeJson(utf8(JSON.stringify(rows)), 1_000)))), expected),
  query_result_digest_canonical_json: ({ digest }, expected: string) =>
    assert.equal(encodeText(decodeJson(utf8(JSON.stringify(digest)), 10_000)), expected),
};

/** Not done by a page: folds, and ids that only overlays use. */
const NOT_OF_A_PAGE: readonly (readonly [RegExp, string])[] = [
  [/^(lww_precedence|wallet_transfer)$/, "rules of folds"],
  [/^(principal|context|device|group|wallet|transfer)_id$/, "ids of overlays"],
  [/^identity_stream_ids$/, "ids of overlays"],
];

for (const file of readdirSync(PUBLISHED).sort()) {
  const name = file.replace(/\.json$/, "");
  const reason = NOT_OF_A_PAGE.find(([pattern]) => pattern.test(name))?.[1];
  const check = name.startsWith("schema_") ? plainHash : CHECKS[name];
  test(`published vector ${name}`, { skip: check === undefined ? (reason ?? false) : false }, async () => {
    assert.ok(check !== undefined, `${name} has neither a check nor a reason`);
    const { inputs, expected } = JSON.parse(readFileSync(join(PUBLISHED, file), "utf8")) as {
      inputs: Fields;
      expected: never;
    };
    await check(inputs, expected);
  });
}
