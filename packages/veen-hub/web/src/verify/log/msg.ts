/** MSG: a sealed and signed message; its verification, and how a reader opens it (core §4.1, §4.2, §4.5). */

import { H, Ht } from "../crypto/hash.ts";
import { OpenContext, openBody } from "../crypto/hpke.ts";
import { type Claim, refused, verify } from "../crypto/signatures.ts";
import { type Bytes, equal, u64be, view } from "../wire/bytes.ts";
import { decodeObject, encodeObject } from "../wire/codec.ts";
import { DecodeError, FAULT, OpenError, VerificationError } from "../wire/errors.ts";
import type { Limits, Msg, PayloadHeader } from "../wire/schema.ts";
import { unsignedDigest } from "./identity.ts";
import { MAXIMA } from "./limits.ts";

/** Bytes before the header: enc, hdr_len, body_len. */
const PREFIX_SIZE = 40;
const SIGNATURE = "MSG.sig (core §4.1)";
const ZERO_32 = new Uint8Array(32);

export interface LeafFields {
  readonly profile_id: Bytes;
  readonly ct_hash: Bytes;
  readonly client_id: Bytes;
  readonly client_seq: bigint;
}

/** Return the leaf hash of a message, which is also its MsgID (core §2). */
export function leafHash(label: Bytes, msg: LeafFields): Bytes {
  return Ht("veen/leaf", label, msg.profile_id, msg.ct_hash, msg.client_id, u64be(msg.client_seq));
}

/** Return where the body starts and ends; throw if a length or the padding is wrong (core §14.2). */
export function checkLayout(ciphertext: Bytes, limits: Limits = MAXIMA): [number, number] {
  const size = ciphertext.length;
  if (size < PREFIX_SIZE) {
    throw layout(`${size} bytes are too few: enc, hdr_len and body_len take ${PREFIX_SIZE}`);
  }
  const header = view(ciphertext).getUint32(32);
  const body = view(ciphertext).getUint32(36);
  if (header > limits.max_hdr_bytes) {
    throw layout(`hdr_len ${header} exceeds max_hdr_bytes = ${limits.max_hdr_bytes} (core §14.2)`);
  }
  if (body > limits.max_body_bytes) {
    throw layout(`body_len ${body} exceeds max_body_bytes = ${limits.max_body_bytes} (core §14.2)`);
  }
  const end = PREFIX_SIZE + header + body;
  if (size < end) throw layout(`${size} bytes are fewer than the ${end} that hdr_len and body_len announce`);
  if (ciphertext.subarray(end).some((byte) => byte !== 0))
    throw layout("the padding contains a byte that is not zero");
  return [PREFIX_SIZE + header, end];
}

function layout(found: string): DecodeError {
  return new DecodeError(found, "MSG.ciphertext (core §4.2)", FAULT.SIZE);
}

/** Return MSG.sig to be verified together with others. */
export function msgClaim(msg: Msg, wire: Bytes = encodeObject("Msg", msg)): Claim {
  return {
    keys: [msg.client_id],
    message: unsignedDigest(wire),
    signature: msg.sig,
    refusal: () => refused(msg.client_id, SIGNATURE),
  };
}

/** Decode and verify a MSG by itself; return it with its leaf hash. */
export async function verifyMsg(wire: Bytes, limits: Limits = MAXIMA): Promise<[Msg, Bytes]> {
  if (wire.length > limits.max_msg_bytes) {
    const found = `${wire.length} bytes exceed max_msg_bytes = ${limits.max_msg_bytes} (core §14.2)`;
    throw new DecodeError(found, "MSG (core §4.1)", FAULT.SIZE);
  }
  const msg = decodeObject("Msg", wire);
  checkLayout(msg.ciphertext, limits);
  if (!equal(H(msg.ciphertext), msg.ct_hash)) {
    throw new VerificationError("MSG.ct_hash (core §4.2): is not the hash of the ciphertext");
  }
  await verify(msg.client_id, unsignedDigest(wire), msg.sig, SIGNATURE);
  return [msg, leafHash(msg.label, msg)];
}

/** An opened message. */
export interface Opened {
  readonly header: PayloadHeader;
  readonly body: Bytes;
}

/** Return the nonce under which the body is sealed (core §4.2). */
export function bodyNonce(msg: Pick<Msg, "label" | "prev_ack" | "client_id" | "client_seq">): Bytes {
  return Ht("veen/nonce", msg.label, u64be(msg.prev_ack), msg.client_id, u64be(msg.client_seq)).slice(0, 24);
}

/** Open a message with a reader's X25519 secret (core §4.2, §6). */
export async function openMsg(msg: Msg, secret: Bytes): Promise<Opened> {
  const [bodyAt, end] = checkLayout(msg.ciphertext);
  const context = await OpenContext.of(secret, msg.ciphertext.slice(0, 32));
  const counters = [u64be(msg.client_seq), u64be(msg.prev_ack)] as const;
  const aad = Ht("veen/aad", msg.profile_id, msg.label, msg.client_id, ...counters, msg.auth_ref ?? ZERO_32);
  const header = decodeObject("PayloadHeader", context.open(msg.ciphertext.slice(PREFIX_SIZE, bodyAt), aad));
  if (header.cap_ref !== null && (msg.auth_ref === null || !equal(header.cap_ref, msg.auth_ref))) {
    throw new OpenError("payload_hdr.cap_ref (core §6): is not the auth_ref of its MSG");
  }
  const body = openBody(context.export("veen/body-k"), bodyNonce(msg), aad, msg.ciphertext.slice(bodyAt, end));
  if (body === undefined)
    throw new OpenError("the body does not open: it was not sealed with this header (core §4.2)");
  return { header, body };
}
