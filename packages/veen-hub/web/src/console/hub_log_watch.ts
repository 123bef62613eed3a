/**
 * The hub log, followed: every hub checkpoint is verified, and must extend the one before (RESOLUTIONS P1, P2).
 *
 * The page reads every entry and builds the tree itself, so a new checkpoint holds only if the old tree is its start
 * and the list of labels is complete under it.
 */
import { noteKeys, originOf, verifyHubCheckpoint } from "../verify/hublog/checkpoint.ts";
import { cosignedAt, parseSignedHead, type SignedHead, verifiedSignatures } from "../verify/hublog/note.ts";
import { parsePolicy, type WitnessPolicy } from "../verify/hublog/policy.ts";
import { isActive } from "../verify/log/identity.ts";
import { leafHash, rootsOfProof, Tree } from "../verify/hublog/tree.ts";
import { type Bytes, equal, hex, utf8, view } from "../verify/wire/bytes.ts";
import { decodeObject, encodeObject } from "../verify/wire/codec.ts";
import { DecodeError, InvariantError, ProofError, QuorumError, VeenError } from "../verify/wire/errors.ts";
import type { LabelHead } from "../verify/wire/schema.ts";
import { CallError, type HubCalls } from "./hub_calls.ts";
import type { Evidence, Problems } from "./problems.ts";
import { Subject } from "./subject.ts";
import type { ConfirmedHub, TrustState } from "./trust_state.ts";

const EVERY_MS = 3_000;
const MAX_HISTORY = 200;
const TILE_WIDTH = 256;
/** Entries of a hub log that the page reads and hashes; beyond, it does not list labels. */
export const MAX_ENTRIES = 65_536;
const STORE = "veen-console-checkpoint-";

export interface Cosignature {
  readonly name: string;
  readonly at: number;
  /** Whether it verifies under a key of the witness policy; without a policy it is only claimed. */
  readonly isVerified: boolean;
}

export interface HubHead {
  readonly size: number;
  readonly root: string;
  readonly note: Bytes;
  /** When the page verified it, in milliseconds by this device's clock. */
  readonly seenAt: number;
  readonly cosignatures: readonly Cosignature[];
  readonly quorum: { readonly isMet: boolean; readonly text: string } | undefined;
}

export interface HubLogView {
  readonly head: HubHead | undefined;
  /** Verified checkpoints of this session, the newest first. */
  readonly history: readonly HubHead[];
  /** The newest head of every label, by label in hex. */
  readonly labels: ReadonlyMap<string, LabelHead>;
  readonly isComplete: boolean;
  readonly note: string;
}

export class HubLogWatch {
  readonly view = new Subject<HubLogView>({ head: undefined, history: [], labels: new Map(), isComplete: false, note: "" });
  readonly policy: WitnessPolicy | undefined;
  readonly policyError: string;
  readonly #hub: HubCalls;
  readonly #problems: Problems;
  readonly #trust: TrustState;
  #tree = new Tree();
  /** Leaf hashes of the tree: the root of every earlier size follows from them. */
  #leaves: readonly Bytes[] = [];
  #labels = new Map<string, LabelHead>();
  #before: Bytes | undefined;
  #isRememberedChecked = false;
  #reading: Promise<void> = Promise.resolve();

  constructor(hub: HubCalls, problems: Problems, trust: TrustState, policyText: string | null) {
    this.#hub = hub;
    this.#problems = problems;
    this.#trust = trust;
    let error = "";
    try {
      this.policy = policyText === null ? undefined : parsePolicy(utf8(policyText));
    } catch (found) {
      if (!(found instanceof VeenError)) throw found;
      error = found.message;
    }
    this.policyError = error;
  }

  /** Whether the newest hub checkpoint satisfies the witness policy; without a policy, nothing is wanted of it. */
  get isCosigned(): boolean {
    if (this.policyError !== "") return false;
    return this.policy === undefined || this.view.value.head?.quorum?.isMet === true;
  }

  /** Return the newest head of a label in the hub log, which is read first if it was not read yet. */
  async headOf(label: Bytes): Promise<LabelHead | undefined> {
    if (this.view.value.head === undefined) await this.#round();
    return this.view.value.labels.get(hex(label));
  }

  start(): void {
    const round = () => void this.#round().finally(() => setTimeout(round, EVERY_MS));
    const stop = this.#trust.hub.watch((hub) => {
      if (hub === undefined) return;
      queueMicrotask(() => stop());
      round();
    });
  }

  /**
   * Check that a hub checkpoint that was shown elsewhere is one of the followed log (RESOLUTIONS P1).
   *
   * Throws `CallError` if the hub has not published so long a log yet: then nothing is decided.
   */
  async compare(note: Bytes): Promise<void> {
    const shown = parseSignedHead(note);
    if (shown.size > BigInt(this.view.value.head?.size ?? 0)) await this.#round();
    const { head } = this.view.value;
    if (head === undefined || shown.size > BigInt(head.size)) {
      throw new CallError(`the hub log that this page follows has not reached size ${shown.size} yet`, 0, "behind");
    }
    await this.#checkStart(shown, parseSignedHead(head.note));
  }

  /** Read the newest hub checkpoint, after any reading that is under way. */
  #round(): Promise<void> {
    this.#reading = this.#reading.catch(() => undefined).then(() => this.#read());
    return this.#reading;
  }

  async #read(): Promise<void> {
    const hub = this.#trust.hub.value;
    if (hub === undefined || this.#problems.of("hub log")?.isLie) return;
    let note: Bytes;
    try {
      note = await this.#hub.hubCheckpoint();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      const held = this.view.value.head;
      if (!error.isAbsent) return;
      if (held === undefined) this.view.set({ ...this.view.value, note: "the hub has published none yet" });
      else this.#lie(hub, held.note, `the hub shows no hub log, although it signed one of ${held.size} entries (RESOLUTIONS P1)`);
      return;
    }
    try {
      await this.#accept(note);
    } catch (error) {
      if (error instanceof CallError) {
        if (!error.isAbsent) return;
        this.#lie(hub, note, `the hub does not serve its own log: ${error.message} (RESOLUTIONS P1)`);
      } else if (error instanceof VeenError) {
        this.#lie(hub, note, error.message);
      } else {
        throw error;
      }
    }
  }

  #lie(hub: ConfirmedHub, note: Bytes, reason: string): void {
    const evidence: Evidence[] = [{ name: "hub-checkpoint.txt", bytes: note }];
    const before = this.view.value.head?.note ?? this.#before;
    if (before !== undefined) evidence.push({ name: "hub-checkpoint-before.txt", bytes: before });
    evidence.push({ name: "hub-identity.cbor", bytes: encodeObject("HubIdentity", hub.identity) });
    this.#problems.report("hub log", "", reason, true, evidence);
    this.view.set({ ...this.view.value });
  }

  async #accept(note: Bytes): Promise<void> {
    const held = this.view.value.head;
    const signed = parseSignedHead(note);
    const [hub, origin] = await this.#trust.check(async (each) => {
      const name = each.status.hub_log_origin ?? originOf(each.identity.hub_id);
      await verifyHubCheckpoint(each.identity, signed, name);
      return [each, name] as const;
    });
    const before = this.#remembered(hub, note);
    const size = Number(signed.size);
    if (held !== undefined && size < held.size) {
      throw new ProofError(`the hub log went back from size ${held.size} to ${size} (RESOLUTIONS P1)`);
    }
    if (held !== undefined && size === held.size && hex(signed.root) !== held.root) {
      throw new ProofError(`the hub signed two roots of the hub log at size ${size} (RESOLUTIONS P1)`);
    }
    if (before !== undefined && signed.size < before.size) {
      throw new ProofError(
        `the hub log is at size ${size}, but this browser saw it at ${before.size} before (RESOLUTIONS P1)`);
    }
    checkEnd(hub, signed);
    const isComplete = size <= MAX_ENTRIES;
    if (isComplete) {
      await this.#extend(size, signed.root);
      await this.#checkSigners(hub, signed, origin);
    }
    else if (held !== undefined && size > held.size) await this.#checkConsistency(parseSignedHead(held.note), signed);
    if (before !== undefined) await this.#checkStart(before, signed);
    this.#isRememberedChecked = true;
    const head: HubHead = {
      size, root: hex(signed.root), note, seenAt: Date.now(), ...(await this.#cosigned(hub, signed, origin)),
    };
    const { history } = this.view.value;
    const isNew = held === undefined || !equal(held.note, note);
    const earlier = held?.size === size ? history.slice(1) : history; // the same tree, with newer cosignatures
    this.view.set({
      head, labels: this.#labels, isComplete, note: "", history: [head, ...earlier].slice(0, MAX_HISTORY),
    });
    if (isNew && this.#trust.isRemembered) localStorage.setItem(STORE + hub.hubId, new TextDecoder().decode(note));
  }

  /** The checkpoint of an earlier visit, until it was compared: the followed log must begin with its tree. */
  #remembered(hub: ConfirmedHub, note: Bytes): SignedHead | undefined {
    if (this.#isRememberedChecked) return undefined;
    const text = localStorage.getItem(STORE + hub.hubId);
    this.#before = text === null ? note : utf8(text);
    return text === null ? undefined : parseSignedHead(this.#before);
  }

  /** Check that an earlier tree is the start of the newest one. */
  async #checkStart(before: SignedHead, newest: SignedHead): Promise<void> {
    if (before.size > BigInt(this.#leaves.length) && before.size < newest.size) {
      await this.#checkConsistency(before, newest);
      return;
    }
    const root = before.size === newest.size ? newest.root : this.#rootAt(Number(before.size));
    if (!equal(root, before.root)) {
      throw new ProofError(
        `the hub log at size ${newest.size} does not continue the one that was shown at ${before.size} (RESOLUTIONS P1)`);
    }
  }

  #rootAt(size: number): Bytes {
    const tree = new Tree();
    for (const leaf of this.#leaves.slice(0, size)) tree.append(leaf);
    return tree.root;
  }

  /** Read the entries after those of the held tree, and check that they lead to the signed root. */
  async #extend(size: number, root: Bytes): Promise<void> {
    const tree = this.#tree.copy();
    const labels = new Map(this.#labels);
    const leaves = [...this.#leaves];
    let at = Number(tree.size);
    while (at < size) {
      const tile = Math.floor(at / TILE_WIDTH);
      const width = Math.min(TILE_WIDTH, size - tile * TILE_WIDTH);
      const entries = splitEntries(await this.#hub.tile(`entries/${tilePath(tile, width)}`));
      const hashes = await this.#hub.tile(`0/${tilePath(tile, width)}`);
      if (entries.length !== width || hashes.length !== 32 * width) {
        throw new ProofError(`tile ${tile} of the hub log does not have ${width} entries and hashes (C2SP tlog-tiles)`);
      }
      for (const [place, entry] of entries.entries()) {
        const leaf = leafHash(entry);
        if (!equal(leaf, hashes.subarray(32 * place, 32 * place + 32))) {
          throw new ProofError(`entry ${place} of the bundle does not have its hash in tile ${tile} (C2SP tlog-tiles)`);
        }
        if (tile * TILE_WIDTH + place < at) continue;
        tree.append(leaf);
        leaves.push(leaf);
        addHead(labels, decodeObject("LabelHead", entry));
      }
      at = tile * TILE_WIDTH + width;
    }
    if (!equal(tree.root, root)) {
      throw new ProofError(
        `the entries of the hub log do not have the root that the hub signed at size ${size} (RESOLUTIONS P1)`);
    }
    this.#tree = tree;
    this.#leaves = leaves;
    this.#labels = labels;
    for (const head of labels.values()) this.#trust.see(head.hub_ts, false);
  }

  /** Check that every key signed that was active both at the newest entry and now, and so in between (P1, KEX0.1). */
  async #checkSigners({ identity, status }: ConfirmedHub, { note, size }: SignedHead, origin: string): Promise<void> {
    const newest = [...this.#labels.values()].reduce((time, head) => (head.hub_ts > time ? head.hub_ts : time), 0n);
    const active = identity.hub_keys.filter((key) => newest > 0n && isActive(key, newest) && isActive(key, status.hub_ts));
    const keys = noteKeys(identity, origin).filter((key) => active.some(({ hub_pk: own }) => equal(own, key.public)));
    const signed = await verifiedSignatures(note, keys);
    const missing = keys.find((key) => !signed.has(key));
    if (missing === undefined) return;
    throw new ProofError(`the active key ${hex(missing.public).slice(0, 16)} did not sign the hub checkpoint at size ${size} (RESOLUTIONS P1, KEX0.1)`);
  }

  async #checkConsistency(before: SignedHead, newest: SignedHead): Promise<void> {
    const answer = decodeObject("HubConsistencyResponse", await this.#hub.hubLogConsistency(Number(before.size)));
    if (answer.new_size > newest.size) throw new CallError("the hub log grew meanwhile", 0, "behind");
    const [oldRoot, newRoot] = rootsOfProof(before.size, newest.size, answer.proof, before.root);
    if (!equal(oldRoot, before.root) || !equal(newRoot, newest.root)) {
      throw new ProofError(
        `the hub log at size ${newest.size} does not continue the one at ${before.size} (RESOLUTIONS P1)`);
    }
  }

  async #cosigned(hub: ConfirmedHub, signed: SignedHead, origin: string): Promise<Pick<HubHead, "cosignatures" | "quorum">> {
    const own = new Set(noteKeys(hub.identity, origin).map((key) => key.name));
    const claimed = signed.note.signatures.filter((line) => !own.has(line.name) && line.signature.length === 72);
    const unverified = claimed.map((line) => ({ name: line.name, at: Number(cosignedAt(line.signature)), isVerified: false }));
    if (this.policy === undefined) return { cosignatures: unverified, quorum: undefined };
    try {
      const found = await this.policy.check(signed, noteKeys(hub.identity, origin));
      const verified = found.witnesses.map(([witness, at]) => ({ name: witness.name, at: Number(at), isVerified: true }));
      const text = `${verified.length} of ${this.policy.witnesses.length} witnesses`;
      const age = found.quorumAt === null ? 0 : Math.abs(Date.now() / 1_000 - Number(found.quorumAt));
      if (age > this.policy.maxAgeSec) {
        return { cosignatures: verified, quorum: { isMet: false, text: `quorum older than ${this.policy.maxAgeSec} s` } };
      }
      return { cosignatures: verified, quorum: { isMet: true, text } };
    } catch (error) {
      if (!(error instanceof QuorumError)) throw error;
      return { cosignatures: unverified, quorum: { isMet: false, text: "no quorum" } };
    }
  }
}

/** Check that the hub log ends where the hub's handover says (P9). */
function checkEnd({ status: { handover } }: ConfirmedHub, { size }: SignedHead): void {
  if (handover === null) return;
  const last = parseSignedHead(handover.checkpoint);
  if (size > last.size) {
    throw new ProofError(`the hub log grew to size ${size}, after the handover that ended it at ${last.size} (RESOLUTIONS P9)`);
  }
}

/** Add an entry of the hub log; within a label, heads only grow (P1, I3, H3). */
function addHead(labels: Map<string, LabelHead>, head: LabelHead): void {
  const name = hex(head.label);
  const before = labels.get(name);
  if (head.upto_seq < 1n || (before !== undefined && head.upto_seq <= before.upto_seq)) {
    const held = before?.upto_seq ?? 0;
    throw new InvariantError("P1", `upto_seq of label ${name} does not grow in the hub log: ${held}, then ${head.upto_seq}`);
  }
  if (before !== undefined && head.hub_ts < before.hub_ts) {
    throw new InvariantError("P1", `hub_ts of label ${name} decreases at ${head.upto_seq} in the hub log`);
  }
  labels.set(name, head);
}

/** The end of a tile's path (C2SP tlog-tiles). */
function tilePath(index: number, width: number): string {
  const digits = String(index);
  const padded = digits.padStart(Math.ceil(digits.length / 3) * 3, "0");
  const parts = padded.match(/.{3}/g) ?? [];
  const path = [...parts.slice(0, -1).map((part) => `x${part}`), parts.at(-1)].join("/");
  return `${path}${width < TILE_WIDTH ? `.p/${width}` : ""}`;
}

function splitEntries(data: Bytes): Bytes[] {
  const entries: Bytes[] = [];
  for (let at = 0; at < data.length; ) {
    if (at + 2 > data.length) throw new DecodeError(`ends within entry ${entries.length}`, "entry bundle (C2SP tlog-tiles)");
    const length = view(data).getUint16(at);
    const entry = data.slice(at + 2, at + 2 + length);
    if (entry.length !== length) throw new DecodeError(`ends within entry ${entries.length}`, "entry bundle (C2SP tlog-tiles)");
    entries.push(entry);
    at += 2 + length;
  }
  return entries;
}

