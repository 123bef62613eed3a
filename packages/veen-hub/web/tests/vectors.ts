/** The vectors of signed objects and proofs, each judged by the pages' code. No Node.js, no DOM. */

import { H } from "../src/verify/crypto/hash.ts";
import { verify } from "../src/verify/crypto/signatures.ts";
import { verifyHubEvidence } from "../src/verify/hublog/checkpoint.ts";
import { verifyHubLogFork, verifyLabelFork } from "../src/verify/hublog/fork.ts";
import { verifyHandover } from "../src/verify/hublog/handover.ts";
import { parsePolicy } from "../src/verify/hublog/policy.ts";
import { checkAttachments } from "../src/verify/log/attached.ts";
import { verifyEquivocation } from "../src/verify/log/equivocation.ts";
import { verifyCard, verifyToken } from "../src/verify/log/grants.ts";
import {
  checkpointDigest, verifyIdentity, verifyIdentitySignature, verifyReceiptUnder, verifyWitnesses,
} from "../src/verify/log/identity.ts";
import { MAXIMA } from "../src/verify/log/limits.ts";
import { Mmr } from "../src/verify/log/mmr.ts";
import { openMsg, verifyMsg } from "../src/verify/log/msg.ts";
import { verifyConsistency, verifyInclusion } from "../src/verify/log/proof.ts";
import { checkTransition } from "../src/verify/log/transition.ts";
import { type Bytes, fromHex, utf8 } from "../src/verify/wire/bytes.ts";
import { decodeObject } from "../src/verify/wire/codec.ts";
import { VeenError } from "../src/verify/wire/errors.ts";
import type { Limits, Msg } from "../src/verify/wire/schema.ts";
import { ok } from "./expect.ts";

export type Context = Readonly<Record<string, unknown>>;
export type Judge = (wire: Bytes, context: Context) => Promise<unknown> | unknown;

export interface Vector {
  readonly object: string;
  /** The name of its folder; it ends with `_fail` if the vector must be refused. */
  readonly name: string;
  readonly wire: string;
  readonly context: Context;
  /** Part of the reason for which veen-core refuses it. */
  readonly match: string | null;
}

const bytes = (value: unknown): Bytes => fromHex(value as string) as Bytes;
const maybe = (value: unknown): Bytes | null => (value === undefined || value === null ? null : bytes(value));
const number = (value: unknown): bigint => BigInt(value as number);
const list = (value: unknown): Bytes[] => ((value ?? []) as readonly unknown[]).map(bytes);
const limitsIn = ({ limits }: Context): Limits =>
  ({ ...MAXIMA, ...Object.fromEntries(Object.entries((limits ?? {}) as object).map(([name, value]) => [name, BigInt(value as number)])) });

/** Decode and verify a vector with what its context has, as veen-core's own test does. */
export const JUDGES: Readonly<Record<string, Judge>> = {
  receipt: async (wire, { hub_pk }) => {
    const receipt = decodeObject("Receipt", wire);
    if (hub_pk !== undefined) await verifyReceiptUnder(receipt, bytes(hub_pk));
  },
  checkpoint: async (wire, context) => {
    const made = decodeObject("Checkpoint", wire);
    const what = `CHECKPOINT.hub_sig at upto_seq ${made.upto_seq} (core §4.4)`;
    await verify(bytes(context["hub_pk"]), checkpointDigest(made), made.hub_sig, what);
    await verifyWitnesses(made, list(context["witnesses"]), []);
    const tree = new Mmr();
    for (const leaf of list(context["leaves"])) tree.add(leaf);
    const origin = context["origin"] as Context | undefined;
    checkTransition(made, {
      size: tree.size, root: tree.root, lastUptoSeq: number(context["last_upto_seq"] ?? 0),
      hubTs: context["hub_ts"] === undefined ? null : number(context["hub_ts"]),
      origin: origin === undefined ? null : {
        routing: bytes(origin["routing_key"]), stream: bytes(origin["stream_id"]),
        epochSec: number(origin["epoch_sec"]), maxSkewSec: number(origin["max_skew_sec"]),
      },
    });
  },
  msg: (wire, context) => verifyMsg(wire, limitsIn(context)),
  mmr_proof: (wire, { root, stream_seq, leaf_hash, tree_size }) => {
    const proof = decodeObject("MmrProof", wire);
    if (root === undefined) return;
    const seq = number(stream_seq);
    verifyInclusion(proof, bytes(root), seq, bytes(leaf_hash), tree_size === null ? seq : number(tree_size));
  },
  mmr_consistency: (wire, { from_root, to_root }) =>
    verifyConsistency(decodeObject("MmrConsistency", wire), bytes(from_root), bytes(to_root)),
  hub_identity: async (wire, { pinned, signature }) => {
    const identity = decodeObject("HubIdentity", wire);
    await verifyIdentity(identity, maybe(pinned));
    await verifyIdentitySignature(identity, bytes(signature));
  },
  equivocation: async (wire, { identity }) =>
    verifyEquivocation(decodeObject("Equivocation", wire), identity === undefined ? null : decodeObject("HubIdentity", bytes(identity))),
  handover: (wire, { identity }) => verifyHandover(decodeObject("Handover", wire), decodeObject("HubIdentity", bytes(identity))),
  hub_evidence: async (wire, { pinned, policy }) => {
    const asked = typeof policy === "string" ? parsePolicy(utf8(policy)) : null;
    await verifyHubEvidence(decodeObject("HubEvidence", wire), maybe(pinned), asked, null);
  },
  hub_log_fork: (wire, { pinned }) => {
    const evidence = decodeObject("HubLogFork", wire);
    return verifyIdentity(evidence.identity, maybe(pinned)).then(() => verifyHubLogFork(evidence, null));
  },
  label_fork: (wire, { pinned }) => {
    const evidence = decodeObject("LabelFork", wire);
    return verifyIdentity(evidence.identity, maybe(pinned)).then(() => verifyLabelFork(evidence, null));
  },
  cap_token: (wire) => verifyToken(decodeObject("CapToken", wire)),
  identity_card: (wire, { pinned }) => verifyCard(decodeObject("IdentityCard", wire), maybe(pinned)),
  ciphertext: async (wire, { binding, reader_secret, attachments }) => {
    const held = binding as Context;
    const msg: Msg = {
      ver: 1n,
      profile_id: bytes(held["profile_id"]),
      label: bytes(held["label"]),
      client_id: bytes(held["client_id"]),
      client_seq: number(held["client_seq"]),
      prev_ack: number(held["prev_ack"]),
      auth_ref: maybe(held["auth_ref"]),
      ct_hash: new Uint8Array(32),
      ciphertext: wire,
      sig: new Uint8Array(64),
    };
    const opened = await openMsg(msg, bytes(reader_secret));
    checkAttachments(opened.header, list(attachments).map(H));
    return opened;
  },
};

/** Where this library says it in other words than veen-core's decoder of one object. */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/_float_fail$/, "floats and other simple values are not allowed (core §3.1)"],
  [/^hub_evidence\/checkpoint_not_a_note_fail$/, "note (C2SP signed-note)"],
];

/** Check that a vector is accepted, or refused for the reason that it names; return whether it is refused. */
export async function checkVector({ object, name, wire, context, match }: Vector): Promise<boolean> {
  const judge = JUDGES[object];
  ok(judge !== undefined, `${object} has no judge`);
  const where = `${object}/${name}`;
  const refusal = await refusalOf(() => judge(bytes(wire), context));
  if (!name.endsWith("_fail")) {
    ok(refusal === undefined, `${where} is refused: ${String(refusal)}`);
    return false;
  }
  ok(refusal instanceof VeenError, `${where} is not refused as an error of VEEN: ${String(refusal)}`);
  const wanted = WORDS.find(([pattern]) => pattern.test(where))?.[1] ?? match ?? "";
  ok(refusal.message.includes(wanted), `${where} is refused with ${refusal.message}, want ${wanted}`);
  return true;
}

async function refusalOf(work: () => unknown): Promise<unknown> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return error;
  }
}
