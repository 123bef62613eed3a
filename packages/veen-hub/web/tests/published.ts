/** The 53 published vectors, each by the pages' own code. No Node.js, no DOM. */

import { operationId } from "../src/console/records/causality.ts";
import type { FoldedEvent } from "../src/console/records/folded_events.ts";
import {
  ctxId, ctxStream, deviceId, groupId, handleStream, orgId, orgStream, principalId, principalStream, walletId, walletStream,
} from "../src/console/records/identifiers.ts";
import { isInForce, realmId, revocationEnd } from "../src/console/records/realm.ts";
import { decodeRecord, fieldsOf } from "../src/console/records/record.ts";
import { registersOf } from "../src/console/records/registers.ts";
import { RECORDS, type RecordSchema } from "../src/console/records/schema.ts";
import { walletsOf } from "../src/console/records/wallets.ts";
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
import { type Bytes, concat, fromHex, fromUtf8, hex, utf8 } from "../src/verify/wire/bytes.ts";
import { decode } from "../src/verify/wire/cbor.ts";
import { decodeObject, encodeObject } from "../src/verify/wire/codec.ts";

import { ok, same } from "./expect.ts";

type Fields = Record<string, unknown>;
type Check = (inputs: Fields, expected: never) => void | Promise<void>;

const bytes = (text: unknown): Bytes => fromHex(text as string) as Bytes;
/** Bytes written as `42*32`: one byte, so many times. */
const repeated = (text: unknown): Bytes => {
  const [byte, count] = (text as string).split("*") as [string, string];
  return new Uint8Array(Number(count)).fill(Number.parseInt(byte, 16));
};
const sameHex = (made: Bytes, expected: string): void => same(hex(made), expected);

const plainHash: Check = ({ data_utf8 }, expected: string) => sameHex(H(utf8(data_utf8 as string)), expected);
const realmHash: Check = ({ op, realm_id }, expected: string) => {
  const [, tag] = /^Ht\("([^"]+)"/.exec(op as string) as unknown as [string, string];
  sameHex(Ht(tag, bytes(realm_id)), expected);
};
const cookie: Check = ({ challenge_utf8, nonce, difficulty }) =>
  verifyCookie({
    challenge: utf8((challenge_utf8 ?? "spec-pow-test") as string),
    nonce: BigInt((nonce ?? 0) as number),
    difficulty: BigInt((difficulty ?? 0) as number),
  });
const header: Check = (_inputs, expected: string) =>
  sameHex(encodeObject("PayloadHeader", decodeObject("PayloadHeader", bytes(expected))), expected);
/** The digest of a wire object whose last item is a signature of zeros. */
const digestOf = (unsigned: string): Bytes => {
  const body = bytes(unsigned);
  const head = Uint8Array.of((body[0] as number) + 1);
  return unsignedDigest(concat(head, body.subarray(1), Uint8Array.of(0x58, 0x40), new Uint8Array(64)));
};
const signing: Check = (_inputs, { cbor, digest, digest_Ht_veen_sig }: Record<string, string>) =>
  sameHex(digestOf(cbor as string), (digest ?? digest_Ht_veen_sig) as string);

const attachments: Check = ({ attachment_ciphertexts_utf8 }, expected: string | { att_root: string }) => {
  const coids = (attachment_ciphertexts_utf8 as string[]).map((each) => H(utf8(each)));
  sameHex(attRoot(coids), typeof expected === "string" ? expected : expected.att_root);
};

const eventOf = (name: string, fields: Fields, seq: number): FoldedEvent => {
  const schema = RECORDS.find((each) => each.name === name) as RecordSchema;
  return { seq, identity: String(seq).padStart(8, "0"), record: { schema, fields } };
};
const writeAt = (seq: number, ts: bigint, value: string): FoldedEvent =>
  eventOf("crdt.lww.v1", { key: utf8("k"), ts, value: utf8(value) }, seq);

const CHECKS: Readonly<Record<string, Check>> = {
  label_derive: ({ routing_key_utf8, stream_id, epoch_hex }, expected: string) =>
    sameHex(labelOf(utf8(routing_key_utf8 as string), bytes(stream_id), BigInt(epoch_hex as string)), expected),
  realm_stream_fed_admin: realmHash,
  realm_stream_revocation: realmHash,
  realm_stream_schema_meta: realmHash,
  pow_cookie_accept: cookie,
  pow_zero_difficulty: cookie,
  cbor_bstr32_prefix: () =>
    same(decode(concat(bytes("5820"), new Uint8Array(32))), new Uint8Array(32)),
  leaf_hash_manual: ({ label, profile_id, ct_hash, client_id, client_seq }, expected: string) => {
    const fields = { profile_id: bytes(profile_id), ct_hash: bytes(ct_hash), client_id: bytes(client_id) };
    sameHex(leafHash(bytes(label), { ...fields, client_seq: BigInt(client_seq as number) }), expected);
  },
  msg_signing_bytes_with_auth_ref: signing,
  receipt_signing_bytes: signing,
  checkpoint_signing_bytes: (_inputs, { cbor, digest }: { cbor: string; digest: string }) =>
    sameHex(Ht("veen/sig", bytes(cbor)), digest),
  msg_signed_no_auth_ref: async ({ client_id }, { msg_cbor, digest, sig }: Record<string, string>) => {
    const wire = bytes(msg_cbor);
    sameHex(encodeObject("Msg", decodeObject("Msg", wire)), msg_cbor as string);
    sameHex(unsignedDigest(wire), digest as string);
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
  mmr_node: ({ left, right }, expected: string) => sameHex(nodeHash(repeated(left), repeated(right)), expected),
  mmr_append_proofs_1_to_8: (
    _inputs,
    expected: readonly { seq: number; root: string; proof_cbor: string }[],
  ) => {
    const tree = new Mmr();
    for (const { seq, root, proof_cbor } of expected) {
      const leaf = new Uint8Array(32).fill(seq);
      tree.add(leaf);
      sameHex(tree.root, root);
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
    sameHex(Ht("veen/profile", encodeObject("Profile", profile)), expected);
  },
  att_root_one: attachments,
  att_root_two: attachments,
  att_root_three: attachments,
  body_nonce: ({ label, prev_ack, client_id, client_seq }, expected: string) => {
    const counters = { prev_ack: BigInt(prev_ack as number), client_seq: BigInt(client_seq as number) };
    sameHex(bodyNonce({ label: repeated(label), client_id: repeated(client_id), ...counters }), expected);
  },
  operation_id: ({ leaf_hash }, expected: string) => same(operationId(bytes(leaf_hash as string)), expected),
  realm_id: ({ name }, expected: string) => {
    sameHex(realmId(name as string), expected);
    sameHex(realmId(expected), expected);
  },
  revocation_window: ({ ts, ttl }, expected: Record<string, boolean | number>) => {
    const made = { ts: BigInt(ts as number), ttl: BigInt(ttl as number) };
    same(revocationEnd(made), BigInt(expected["expires_at"] as number));
    for (const [name, active] of Object.entries(expected)) {
      const now = /^active\((\d+)\)$/.exec(name)?.[1];
      if (now !== undefined) same(isInForce(made, BigInt(now)), active);
    }
  },
  paid_operation_cbor: ({ fields }, expected: string) => {
    const found = decodeRecord(H(utf8("veen/schema:paid.operation.v1")), bytes(expected));
    ok(typeof found !== "string", found as string);
    const paid = fieldsOf(found, "paid.operation.v1");
    const given = fields as Record<string, unknown>;
    same(paid?.operation_type, given["operation_type"]);
    sameHex(paid?.payer_account as Uint8Array<ArrayBuffer>, given["payer_account"] as string);
    same(paid?.amount, BigInt(given["amount"] as number));
    same(paid?.metadata, null);
    const [last, cut] = [bytes(expected).slice(), bytes(expected).slice(0, -1)];
    last[0] = (last[0] as number) + 1;
    for (const wrong of [last, cut]) same(typeof decodeRecord(H(utf8("veen/schema:paid.operation.v1")), wrong), "string");
  },
  principal_id: ({ pk }, expected: string) => sameHex(principalId(bytes(pk)), expected),
  context_id: ({ principal_pk, realm_id }, expected: string) => sameHex(ctxId(bytes(principal_pk), bytes(realm_id)), expected),
  device_id: ({ pk }, expected: string) => sameHex(deviceId(bytes(pk)), expected),
  group_id: ({ org_pk, name }, expected: string) => sameHex(groupId(orgId(bytes(org_pk)), name as string), expected),
  identity_stream_ids: ({ pk, realm: name }, expected: Record<string, string>) => {
    const [key, realm] = [bytes(pk), realmId(name as string)];
    const made = {
      principal: principalStream(key), ctx: ctxStream(ctxId(key, realm), realm), org: orgStream(orgId(key)), handle_ns: handleStream(realm),
    };
    same(Object.fromEntries(Object.entries(made).map(([stream, id]) => [stream, hex(id)])), expected);
  },
  wallet_id: ({ realm: name, principal_pk, currency }, expected: Record<string, string>) => {
    const realm = realmId(name as string);
    const wallet = walletId(realm, ctxId(bytes(principal_pk), realm), currency as string);
    sameHex(wallet, expected["wallet_id"] as string);
    sameHex(walletStream(wallet), expected["stream_id_wallet"] as string);
  },
  transfer_id: ({ msg_id }, expected: string) => sameHex(Ht("wallet/xfer", repeated(msg_id)), expected), // B15 replaces it
  lww_precedence: (_inputs, expected: Record<string, string>) => {
    let log = [writeAt(5, 10n, "first")];
    for (const [step, outcome] of Object.entries(expected)) {
      const [, ts, seq] = /\((\d+),(\d+)\)$/.exec(step) as unknown as [string, string, string];
      log = [...log, writeAt(Number(seq), BigInt(ts), step)];
      const [register] = registersOf(log);
      same(fromUtf8(register?.value as Bytes) === step ? "replaced" : "ignored", outcome, step);
    }
  },
  wallet_transfer: (inputs, { source, dest }: Record<string, unknown>) => {
    const [deposit, limit, transfer] = ["deposit", "limit", "transfer"].map((name) => BigInt(inputs[name] as number)) as [bigint, bigint, bigint];
    const [realm, ctx] = [new Uint8Array(32), new Uint8Array(32).fill(1)];
    const [from, to] = [walletId(realm, ctx, "USD"), walletId(realm, ctx, "EUR")];
    const open = (wallet_id: Bytes, currency: string) => ["wallet.open.v1", { wallet_id, realm_id: realm, ctx_id: ctx, currency, created_at: 1n }] as const;
    const moved = ["wallet.transfer.v1",
      { wallet_id: from, to_wallet_id: to, amount: transfer, ts: 2n, transfer_id: new Uint8Array(32), metadata: null }] as const;
    const records = [open(from, "USD"), open(to, "EUR"), ["wallet.deposit.v1", { wallet_id: from, amount: deposit, ts: 2n, ref: null }] as const,
      ["wallet.limit.v1", { wallet_id: from, daily_limit: limit, ts: 2n }] as const, moved];
    for (const log of [records, [...records, moved, moved]]) { // replayed: other messages with the same transfer_id
      const held = walletsOf(log.map(([name, fields], at) => eventOf(name, fields, at + 1)));
      same([held.get(hex(from))?.balance, held.get(hex(to))?.balance], [BigInt(source as number), BigInt(dest as number)]);
    }
  },
  query_rows_hash: ({ rows }, expected: string) =>
    sameHex(H(utf8(encodeText(decodeJson(utf8(JSON.stringify(rows)), 1_000)))), expected),
  query_result_digest_canonical_json: ({ digest }, expected: string) =>
    same(encodeText(decodeJson(utf8(JSON.stringify(digest)), 10_000)), expected),
};

export interface PublishedVector {
  readonly name: string;
  readonly inputs: Record<string, unknown>;
  readonly expected: unknown;
}

/** Check one published vector; throw if the pages' code gives another answer, or has none. */
export async function checkPublished({ name, inputs, expected }: PublishedVector): Promise<void> {
  const check = name.startsWith("schema_") ? plainHash : CHECKS[name];
  ok(check !== undefined, `${name} has no check`);
  await check(inputs, expected as never);
}
