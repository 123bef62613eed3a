/** The rules that every log obeys, and the checks of a single entry (core §7, §4.8.1; RESOLUTIONS H3, H5). */

import { H, Ht } from "../crypto/hash.ts";
import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { decodeObject, encodeObject } from "../wire/codec.ts";
import { DecodeError, InvariantError, VerificationError } from "../wire/errors.ts";
import type { CapToken, HubIdentity, Limits, Msg, Profile, PrunedEntry, Receipt } from "../wire/schema.ts";
import { type RawEntry, verifyAuthorize } from "./entry.ts";
import { authRef } from "./grants.ts";
import { checkLayout, leafHash } from "./msg.ts";
import { controlLabel, type LabelOrigin } from "./stream.ts";

/** One rule of a log: its name in errors, and the clause that states it. */
export class Rule {
  readonly name: string;
  readonly clause: string;

  constructor(name: string, clause: string) {
    this.name = name;
    this.clause = clause;
  }

  broken(found: string, seq: bigint): InvariantError {
    return new InvariantError(this.name, `${found} (${this.clause}, stream_seq ${seq})`);
  }
}

const FRAME = new Rule("§4.8.1", "core §4.8.1");
const CANONICAL = new Rule("I10", "core §7");
const SIZES = new Rule("I11", "core §7");
const CT_HASH = new Rule("I1", "core §7");
const LEAF = new Rule("I2", "core §7");
const PROFILE = new Rule("I4", "core §7");
export const TOKEN = new Rule("H5", "RESOLUTIONS H5");
export const POSITION = new Rule("I3", "core §7");
export const TIME = new Rule("H3", "RESOLUTIONS H3");
export const ACKNOWLEDGED = new Rule("I6", "core §7");
export const UNIQUE = new Rule("I8", "core §7");
export const CONSECUTIVE = new Rule("I9", "core §7");
export const EPOCH = new Rule("I12", "core §7");
export const RULES = [
  FRAME,
  CANONICAL,
  SIZES,
  CT_HASH,
  LEAF,
  PROFILE,
  TOKEN,
  POSITION,
  TIME,
  ACKNOWLEDGED,
  UNIQUE,
  CONSECUTIVE,
  EPOCH,
] as const;

/** Facts about a label that a verifier has from sources other than the log. */
export class LogTerms {
  readonly label: Bytes;
  readonly identity: HubIdentity;
  readonly profile: Profile;
  readonly limits: Limits;
  readonly origin: LabelOrigin | null;
  readonly profileId: Bytes;
  readonly isControlLabel: boolean;

  constructor(
    label: Bytes,
    identity: HubIdentity,
    profile: Profile,
    limits: Limits,
    origin: LabelOrigin | null = null,
  ) {
    this.label = label;
    this.identity = identity;
    this.profile = profile;
    this.limits = limits;
    this.origin = origin;
    this.profileId = Ht("veen/profile", encodeObject("Profile", profile));
    this.isControlLabel = equal(label, controlLabel(identity.hub_id));
  }
}

/** What one entry adds to its log. */
export interface LogStep {
  readonly receipt: Receipt;
  /** The fields of a MSG; null for a control entry. */
  readonly writer: Pick<Msg, "client_id" | "client_seq" | "prev_ack"> | null;
  /** The token that a control entry authorizes. */
  readonly authorizes: Bytes | null;
  /** The decoded content, whose signatures are left to verify; null for a pruned entry. */
  readonly content: { readonly msg: Msg } | { readonly token: CapToken } | null;
}

/** Check an entry by itself and against the terms of its log; no signature is checked. */
export function examine(entry: RawEntry, terms: LogTerms): LogStep {
  const seq = entry.stream_seq;
  const { limits } = terms;
  if (entry.msgBytes.length > limits.max_msg_bytes) {
    throw SIZES.broken(`${entry.msgBytes.length} bytes exceed max_msg_bytes = ${limits.max_msg_bytes}`, seq);
  }
  let receipt: Receipt;
  let step: LogStep;
  try {
    receipt = decodeObject("Receipt", entry.receiptBytes);
    step = entry.isAuthorize ? tokenStep(entry, receipt) : msgStep(entry, receipt);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw CANONICAL.broken(error.full, seq);
  }
  if (!equal(receipt.label, entry.label) || receipt.stream_seq !== seq) {
    throw FRAME.broken("the RECEIPT and the frame differ in label or stream_seq", seq);
  }
  checkContent(entry, step, limits);
  if (!equal(entry.label, terms.label)) {
    throw LEAF.broken(`the entry has label ${hex(entry.label)}, not ${hex(terms.label)}`, seq);
  }
  if (step.content !== null && "msg" in step.content) checkProfile(step.content.msg.profile_id, terms, seq);
  else if (!terms.isControlLabel) {
    throw TOKEN.broken("the entry authorizes a token outside the hub's control label", seq);
  }
  return step;
}

function msgStep(entry: RawEntry, receipt: Receipt): LogStep {
  const msg = decodeObject("Msg", entry.msgBytes);
  return { receipt, writer: msg, authorizes: null, content: { msg } };
}

function tokenStep(entry: RawEntry, receipt: Receipt): LogStep {
  const token = decodeObject("CapToken", entry.msgBytes);
  return { receipt, writer: null, authorizes: authRef(token), content: { token } };
}

function checkContent(entry: RawEntry, step: LogStep, limits: Limits): void {
  const { receipt, content } = step;
  const seq = receipt.stream_seq;
  if (content === null || !("msg" in content)) {
    try {
      verifyAuthorize({ msgBytes: entry.msgBytes, receipt });
    } catch (error) {
      throw error instanceof VerificationError ? TOKEN.broken(error.full, seq) : error;
    }
    return;
  }
  const { msg } = content;
  try {
    checkLayout(msg.ciphertext, limits);
  } catch (error) {
    throw error instanceof DecodeError ? SIZES.broken(error.full, seq) : error;
  }
  if (!equal(H(msg.ciphertext), msg.ct_hash))
    throw CT_HASH.broken("ct_hash is not the hash of the ciphertext", seq);
  if (!equal(msg.label, receipt.label)) throw LEAF.broken("the MSG and its RECEIPT differ in label", seq);
  checkLeaf(receipt, leafHash(msg.label, msg));
}

/** Check the kept part of a pruned entry by itself. */
export function examinePruned(kept: PrunedEntry, terms: LogTerms): LogStep {
  const { receipt } = kept;
  if (!equal(receipt.label, terms.label)) {
    throw LEAF.broken(
      `the RECEIPT has label ${hex(receipt.label)}, not ${hex(terms.label)}`,
      receipt.stream_seq,
    );
  }
  checkLeaf(receipt, leafHash(receipt.label, kept));
  checkProfile(kept.profile_id, terms, receipt.stream_seq);
  return { receipt, writer: kept, authorizes: null, content: null };
}

function checkLeaf(receipt: Receipt, leaf: Bytes): void {
  if (!equal(receipt.leaf_hash, leaf)) {
    throw LEAF.broken("leaf_hash is not the leaf hash of the MSG", receipt.stream_seq);
  }
}

function checkProfile(profileId: Bytes, terms: LogTerms, seq: bigint): void {
  if (!equal(profileId, terms.profileId))
    throw PROFILE.broken(`profile ${hex(profileId)} is not the hub's`, seq);
}
