/**
 * Verify pieces of evidence, each by itself and all of them together, without a hub; as `veen verify` does.
 *
 * Objects that a hub signed count only under the identity of the pinned hub. Receipts and checkpoints that verify
 * name roots, and proofs are verified against those roots. Two statements that contradict each other fail.
 */

import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { plural, VeenError, VerificationError } from "../wire/errors.ts";
import type * as wire from "../wire/schema.ts";
import { isEquivocation, verifyEquivocation } from "../log/equivocation.ts";
import { type Entry, verifyAuthorize } from "../log/entry.ts";
import { verifyCard, verifyCookie, verifyToken } from "../log/grants.ts";
import { isPinned, verifyCheckpointSigners, verifyIdentity, verifyReceipt } from "../log/identity.ts";
import { verifyMsg } from "../log/msg.ts";
import { fits, verifyConsistency, verifyInclusion } from "../log/proof.ts";
import { namesHub, noteKeys, verifyHubCheckpoint, verifyHubEvidence } from "../hublog/checkpoint.ts";
import { headsOf, verifyContradiction, verifyHubLogFork, verifyLabelFork } from "../hublog/fork.ts";
import { type NoteKey, parseSignedHead, type SignedHead } from "../hublog/note.ts";
import { cosignedStep, type WitnessPolicy } from "../hublog/policy.ts";
import { verifyQueryResult } from "../query/verify.ts";
import { commandOnly, nameOf, type Recognized } from "./recognize.ts";
import { formatUtc, HubLogs, type Lead, Roots, short, Undecided, type Verdict, verdict } from "./verdict.ts";

export const NO_PIN = "cannot be verified without the hub's id: give --trust HUB_ID";
const NO_KEYS =
  "cannot be verified without the hub's keys: give its hub-identity.cbor too (`veen hub keys --hub URL " +
  "--out hub-identity.cbor`), or a --client that knows the hub";
export const NO_POLICY = "no witness policy was given: only the hub vouches for its log (--witnesses FILE)";

/** What an object proves and, for some, the steps of the proof. */
interface Proved {
  readonly why: string;
  readonly steps?: readonly string[];
  readonly leads?: Lead;
}

export class EvidenceVerifier {
  readonly #found: readonly Recognized[];
  readonly #pin: Bytes | null;
  readonly #identity: wire.HubIdentity | null;
  readonly #now: bigint;
  readonly #policy: WitnessPolicy | null;
  readonly #roots = new Roots();
  readonly #hubLogs = new HubLogs();
  readonly #byPlace = new Map<string, wire.Receipt>();
  readonly #byMessage = new Map<string, wire.Receipt>();

  constructor(
    found: readonly Recognized[],
    pin: Bytes | null,
    identity: wire.HubIdentity | null,
    now: bigint,
    policy: WitnessPolicy | null,
  ) {
    this.#found = found;
    this.#pin = pin;
    this.#identity = identity;
    this.#now = now;
    this.#policy = policy;
  }

  /** Verify receipts first, then what depends on them; return verdicts in the order of the files. */
  async verdicts(): Promise<Verdict[]> {
    const made = new Map<Recognized, Verdict>();
    for (const order of [0, 1, 2]) {
      for (const found of this.#found)
        if (orderOf(found) === order) made.set(found, await this.#verify(found));
    }
    return this.#found.map((found) => made.get(found) as Verdict);
  }

  async #verify(found: Recognized): Promise<Verdict> {
    const name = nameOf(found.thing);
    try {
      const { why, steps = [], leads = null } = await this.#apply(found);
      return verdict(found.where, name, true, why, { steps, leads, found });
    } catch (error) {
      if (error instanceof Undecided) return verdict(found.where, name, null, error.message, { found });
      if (error instanceof VeenError) return verdict(found.where, name, false, error.full, { found });
      throw error;
    }
  }

  #apply(found: Recognized): Promise<Proved> {
    const { thing } = found;
    switch (thing.kind) {
      case "HubIdentity":
        return this.#hubIdentity(thing.value);
      case "Receipt":
        return this.#receipt(thing.value, found.where);
      case "Checkpoint":
        return this.#checkpoint(thing.value, found.where);
      case "Entry":
        return this.#entry(thing.value, found.where);
      case "Equivocation":
        return this.#equivocation(thing.value);
      case "SignedHead":
        return this.#hubCheckpoint(thing.value, found.where);
      case "HubEvidence":
        return this.#hubEvidence(thing.value, found.where);
      case "ResultFile":
        return verifyQueryResult(thing.value, this.#pin, this.#identity, this.#policy, [
          ...this.#byPlace.values(),
        ]);
      case "Transcript":
        throw new Undecided(
          "is the transcript of a call, which this page does not verify; run `veen verify` on it",
        );
      case "HubLogFork":
      case "LabelFork":
        return this.#fork(thing);
      case "LogContradiction":
        return this.#contradiction(thing.value);
      case "MmrProof":
        return this.#inclusion(thing.value);
      case "MmrConsistency":
        return this.#consistency(thing.value);
      case "Msg":
        return this.#msg(found.data);
      case "CapToken":
        return this.#token(thing.value);
      case "IdentityCard":
        return this.#card(thing.value);
      case "PowCookie":
        return this.#cookie(thing.value);
      default:
        throw new Undecided(
          commandOnly(thing) ?? "is not evidence: there is nothing to verify; `veen inspect` shows it",
        );
    }
  }

  #pinnedIdentity(): wire.HubIdentity {
    if (this.#identity === null) throw new Undecided(this.#pin === null ? NO_PIN : NO_KEYS);
    return this.#identity;
  }

  // --- what hubs sign

  async #hubIdentity(shown: wire.HubIdentity): Promise<Proved> {
    await verifyIdentity(shown);
    const id = hex(shown.hub_id);
    if (this.#pin === null)
      throw new Undecided(`is the identity of hub ${id}: give --trust with this id to accept it`);
    if (this.#identity === null || !equal(shown.hub_id, this.#identity.hub_id)) {
      throw new VerificationError(`belongs to hub ${id}, but ${hex(this.#pin)} is pinned`);
    }
    const chain = shown.hub_keys.length > 1 ? ", each endorsed by the one before" : "";
    return { why: `the pinned hub with ${plural(shown.hub_keys.length, "key")}${chain}` };
  }

  async #receipt(receipt: wire.Receipt, where: string): Promise<Proved> {
    await verifyReceipt(this.#pinnedIdentity(), receipt);
    const place = `${hex(receipt.label)} ${receipt.stream_seq}`;
    const other = this.#byPlace.get(place);
    if (other !== undefined && (await isEquivocation(this.#pinnedIdentity(), other, receipt))) {
      throw new VerificationError(
        `the hub signed another receipt for entry ${receipt.stream_seq} too`,
        "keep both as evidence: together they convict the hub",
      );
    }
    this.#roots.add(receipt.label, receipt.stream_seq, receipt.mmr_root, `the receipt in ${where}`);
    if (other === undefined) this.#byPlace.set(place, receipt);
    const message = hex(receipt.leaf_hash);
    if (!this.#byMessage.has(message)) this.#byMessage.set(message, receipt);
    return { why: `the hub signed entry ${receipt.stream_seq} of label ${short(receipt.label)}` };
  }

  async #checkpoint(made: wire.Checkpoint, where: string): Promise<Proved> {
    const identity = this.#pinnedIdentity();
    const covered = [...this.#byPlace.values()]
      .filter((each) => equal(each.label, made.label_curr) && each.stream_seq <= made.upto_seq)
      .map((each) => each.hub_ts);
    const since =
      covered.length > 0 ? largest(covered) : smallest(identity.hub_keys.map((key) => key.valid_from));
    await verifyCheckpointSigners(identity, made, since, this.#now);
    this.#roots.add(made.label_curr, made.upto_seq, made.mmr_root, `the checkpoint in ${where}`);
    const size = plural(made.upto_seq, "entry", "entries");
    return { why: `the hub signed the root of ${size} of label ${short(made.label_curr)}` };
  }

  async #entry(entry: Entry, where: string): Promise<Proved> {
    const { why: signed } = await this.#receipt(entry.receipt, where);
    if (entry.isAuthorize) {
      await verifyToken(verifyAuthorize(entry));
      return { why: `${signed}, and it is for this token` };
    }
    const [, leaf] = await verifyMsg(entry.msgBytes);
    if (!equal(leaf, entry.receipt.leaf_hash)) {
      throw new VerificationError("the RECEIPT is for another MSG than the one in the same entry (I2)");
    }
    return { why: `${signed}, and it is for this message` };
  }

  async #equivocation(evidence: wire.Equivocation): Promise<Proved> {
    await verifyEquivocation(evidence, this.#identity);
    const hub = this.#identity !== null ? "the pinned hub" : hex(evidence.first.hub_pk);
    return { why: `two signed receipts for one position convict ${hub}` };
  }

  // --- the hub log

  async #hubCheckpoint(signed: SignedHead, where: string): Promise<Proved> {
    const why = await verifyCheckpointNote(this.#pinnedIdentity(), signed, this.#policy);
    this.#hubLogs.add(signed, `the hub checkpoint in ${where}`);
    return { why };
  }

  async #hubEvidence(evidence: wire.HubEvidence, where: string): Promise<Proved> {
    const { identity, receipt, head } = evidence;
    const signed = parseSignedHead(evidence.checkpoint);
    const hub = hex(identity.hub_id);
    if (this.#pin !== null && !(await isPinned(identity, this.#pin))) {
      throw new VerificationError(`the hub is ${hub}, but ${hex(this.#pin)} is pinned`);
    }
    const known = this.#identity;
    const found = await verifyHubEvidence(evidence, known?.hub_id ?? null, this.#policy, known);
    const named = namesHub(this.#policy, identity, signed.origin);
    if (this.#pin === null && !named) {
      throw new Undecided(`verifies for hub ${hub}: give --trust with this id, if that is the hub you mean`);
    }
    const source = `the hub evidence in ${where}`;
    this.#roots.add(head.label, head.upto_seq, head.mmr_root, source);
    this.#roots.add(receipt.label, receipt.stream_seq, receipt.mmr_root, source);
    this.#hubLogs.add(signed, source);
    const which =
      known !== null
        ? "the pinned one"
        : named
          ? "the one that the policy names"
          : "the one that the file names";
    const { cosigned } = found;
    return {
      why: `message ${receipt.stream_seq} of label ${short(receipt.label)} is in the log of hub ${short(identity.hub_id)}`,
      steps: [
        `the hub is ${which}, ${hub}, with ${plural(identity.hub_keys.length, "key")}`,
        `the hub signed the receipt of message ${receipt.stream_seq}, with the message's hash ` +
          `${short(receipt.leaf_hash)}, at ${formatUtc(receipt.hub_ts)}`,
        `the message is under the label's head, which covers ${plural(head.upto_seq, "message")}`,
        `the label's head is entry ${evidence.index + 1n} of ${signed.size} in the hub log`,
        `the hub signed the root of the hub log, as ${signed.origin}`,
        cosigned === null || this.#policy === null
          ? NO_POLICY
          : cosignedStep(cosigned, this.#policy, formatUtc),
      ],
    };
  }

  async #fork(
    thing: { kind: "HubLogFork"; value: wire.HubLogFork } | { kind: "LabelFork"; value: wire.LabelFork },
  ): Promise<Proved> {
    const { identity } = thing.value;
    const hub = hex(identity.hub_id);
    if (this.#pin !== null && !(await isPinned(identity, this.#pin))) {
      throw new VerificationError(`convicts hub ${hub}, but ${hex(this.#pin)} is pinned`);
    }
    const name = this.#pin !== null ? "the pinned hub" : `hub ${hub}`;
    if (thing.kind === "HubLogFork") {
      await verifyHubLogFork(thing.value, this.#identity);
      return { why: `two hub checkpoints that contradict each other convict ${name}` };
    }
    await verifyLabelFork(thing.value, this.#identity);
    return { why: `two statements about one label that contradict each other convict ${name}` };
  }

  async #contradiction(evidence: wire.LogContradiction): Promise<Proved> {
    const origin = headsOf(evidence)[0]?.origin ?? "";
    const keys: NoteKey[] = (this.#policy?.logs ?? []).filter((key) => key.name === origin);
    if (this.#identity !== null) keys.push(...noteKeys(this.#identity, origin));
    if (keys.length === 0) {
      throw new Undecided(
        "cannot be verified without the log's key: give --witnesses with a policy that names it, " +
          "or --trust and the hub's hub-identity.cbor",
      );
    }
    await verifyContradiction(evidence, keys);
    return { why: `signed checkpoints that contradict each other convict the log ${origin}` };
  }

  // --- proofs

  async #inclusion(proof: wire.MmrProof): Promise<Proved> {
    const receipt = this.#byMessage.get(hex(proof.leaf_hash));
    if (receipt === undefined) {
      if (this.#receiptsGiven().some((each) => equal(each.leaf_hash, proof.leaf_hash))) {
        this.#pinnedIdentity();
        throw new Undecided("cannot be verified: the receipt of its entry does not verify");
      }
      throw new Undecided("cannot be verified without the receipt of its entry: give the receipt too");
    }
    const seq = receipt.stream_seq;
    const later = [...this.#roots.of(receipt.label).values()]
      .filter(({ size }) => size >= seq)
      .sort((a, b) => (a.size < b.size ? 1 : -1));
    const fitting = later.filter(({ size }) => fits(proof, seq, size));
    if (fitting.length === 0) {
      const sizes = later
        .map(({ size }) => size)
        .reverse()
        .join(", ");
      throw new Undecided(
        `cannot be verified with the given roots of ${sizes} entries: give the receipt or checkpoint ` +
          "of the tree that the proof was made for (`veen proof get` prints its size)",
      );
    }
    const { root, size, source } = firstThatVerifies(fitting, (each) =>
      verifyInclusion(proof, each.root, seq, receipt.leaf_hash, each.size),
    );
    return {
      why: `entry ${seq} is among the first ${plural(size, "entry", "entries")}, whose root the hub signed`,
      leads: { root, size, streamSeq: seq, source },
    };
  }

  #receiptsGiven(): wire.Receipt[] {
    return this.#found.flatMap(({ thing }) => {
      if (thing.kind === "Receipt") return [thing.value];
      return thing.kind === "Entry" ? [thing.value.receipt] : [];
    });
  }

  async #consistency(proof: wire.MmrConsistency): Promise<Proved> {
    const { from_seq: from, to_seq: to } = proof;
    const fitting = [...this.#roots.known.values()].filter((tree) => tree.has(from) && tree.has(to));
    if (fitting.length === 0) {
      const signed = new Set(["Receipt", "Entry", "Checkpoint"]);
      if (this.#found.some(({ thing }) => signed.has(thing.kind))) this.#pinnedIdentity();
      throw new Undecided(
        `cannot be verified without the roots at ${from} and ${to}: give receipts or checkpoints of both`,
      );
    }
    const rootAt = (tree: (typeof fitting)[number], size: bigint): Bytes => tree.get(size)?.root as Bytes;
    firstThatVerifies(fitting, (tree) => verifyConsistency(proof, rootAt(tree, from), rootAt(tree, to)));
    return { why: `the log of ${plural(from, "entry", "entries")} is a prefix of the log of ${to}` };
  }

  // --- what clients and issuers sign

  async #msg(data: Bytes): Promise<Proved> {
    const [msg, leaf] = await verifyMsg(data);
    const receipt = this.#byMessage.get(hex(leaf));
    const where = receipt === undefined ? "" : `, entry ${receipt.stream_seq} by its receipt`;
    return { why: `signed by client_id ${short(msg.client_id)}${where}` };
  }

  async #token(token: wire.CapToken): Promise<Proved> {
    await verifyToken(token);
    return { why: `signed by issuer ${short(token.issuer_pk)}; each hub decides which issuers it accepts` };
  }

  async #card(card: wire.IdentityCard): Promise<Proved> {
    await verifyCard(card);
    return { why: `signed by the identity that it names, ${short(card.id_sign)}` };
  }

  async #cookie(cookie: wire.PowCookie): Promise<Proved> {
    verifyCookie(cookie);
    return { why: `solves its challenge with ${cookie.difficulty} bits` };
  }
}

/** Verify a hub checkpoint: signed by a key of the hub and, with a policy, by a quorum. */
export async function verifyCheckpointNote(
  identity: wire.HubIdentity,
  signed: SignedHead,
  policy: WitnessPolicy | null,
): Promise<string> {
  await verifyHubCheckpoint(identity, signed, signed.origin);
  const byHub = `the hub signed a hub log of ${plural(signed.size, "entry", "entries")} as ${signed.origin}`;
  if (policy === null) return `${byHub}; ${NO_POLICY}`;
  const cosigned = await policy.check(signed, noteKeys(identity, signed.origin));
  return `${byHub}; ${cosignedStep(cosigned, policy, formatUtc)}`;
}

/** Receipts come before checkpoints, whose time they bound; proofs need both. */
function orderOf({ thing }: Recognized): number {
  if (["MmrProof", "MmrConsistency", "Msg", "ResultFile"].includes(thing.kind)) return 2;
  return thing.kind === "Checkpoint" ? 1 : 0;
}

/** Return the first candidate that verifies; throw the error of the last if none does. */
function firstThatVerifies<T>(candidates: readonly T[], check: (candidate: T) => void): T {
  let why: unknown;
  for (const each of candidates) {
    try {
      check(each);
      return each;
    } catch (error) {
      if (!(error instanceof VerificationError)) throw error;
      why = error;
    }
  }
  throw why;
}

const largest = (numbers: readonly bigint[]): bigint => numbers.reduce((a, b) => (a > b ? a : b));
const smallest = (numbers: readonly bigint[]): bigint => numbers.reduce((a, b) => (a < b ? a : b));
