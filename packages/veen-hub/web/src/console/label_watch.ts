/** One label, followed live: rows appear as they are verified, from a place in the log that is itself proven. */
import { verifyCheckpoint, verifyCheckpointSigners, verifyReceipt } from "../verify/log/identity.ts";
import { Mmr, nodeHash } from "../verify/log/mmr.ts";
import { verifyInclusion } from "../verify/log/proof.ts";
import { checkTransition } from "../verify/log/transition.ts";
import { type Bytes, compare, concat, equal, hex } from "../verify/wire/bytes.ts";
import { itemEnd } from "../verify/wire/cbor.ts";
import { decodeObject, encodeObject } from "../verify/wire/codec.ts";
import { CheckpointError, DecodeError, VeenError, VerificationError } from "../verify/wire/errors.ts";
import type { Checkpoint, MmrProof, Receipt, Statement } from "../verify/wire/schema.ts";
import { breathe } from "./breathing.ts";
import { CallError, type HubCalls } from "./hub_calls.ts";
import type { HubLogWatch } from "./hub_log_watch.ts";
import { originOfStream } from "./label_names.ts";
import { LabelChain, profileId, type Row } from "./label_chain.ts";
import type { Evidence, Problems } from "./problems.ts";
import { type Stop, Subject } from "./subject.ts";
import type { ConfirmedHub, TrustState } from "./trust_state.ts";

/** Rows that stay in memory; older ones are dropped. */
export const MAX_ROWS = 50_000;
const TAIL_ROWS = 200;
const MAX_BATCH = 512;
/** Largest item of a stream: a MSG has at most 1 MiB. */
const MAX_ITEM_BYTES = 2 * 1_048_576;
const CHECKPOINT_EVERY_MS = 5_000;
/** Longest time without a new row while a label is read to its end. */
const MAX_SILENCE_MS = 20_000;
const RETRY_MS = [500, 1_000, 2_000, 5_000] as const;

export type Phase = "starting" | "live" | "waiting" | "stopped";

export interface LabelView {
  readonly rows: readonly Row[];
  readonly phase: Phase;
  /** What a person should know: pruned entries, dropped rows, a lost connection. */
  readonly note: string;
  /** Rows up to here are confirmed by the newest hub checkpoint. */
  readonly confirmedUpTo: number;
  /** Whether the newest hub checkpoint has what the witness policy wants, if one is given. */
  readonly isCosigned: boolean;
  /** `upto_seq` of the label's newest CHECKPOINT that was verified against the rows. */
  readonly checkpointedUpTo: number;
}

export class LabelWatch {
  readonly view = new Subject<LabelView>({ rows: [], phase: "starting", note: "", confirmedUpTo: 0, isCosigned: true, checkpointedUpTo: 0 });
  readonly label: Bytes;
  readonly name: string;
  readonly #nameOf: () => string | undefined;
  readonly #hub: HubCalls;
  readonly #problems: Problems;
  readonly #trust: TrustState;
  readonly #hubLog: HubLogWatch;
  #chain: LabelChain | undefined;
  #abort = new AbortController();
  #attempt = 0;
  #isRunning = false;
  /** The reading that is under way: a new one begins only after it, so that no row is verified twice. */
  #reading: Promise<void> = Promise.resolve();
  readonly #stopHubLog: Stop;
  readonly #timer: ReturnType<typeof setInterval>;

  /** `nameOf` returns the name of the label's stream, once a person has told it. */
  constructor(
    label: Bytes, nameOf: () => string | undefined, hub: HubCalls, problems: Problems, trust: TrustState, hubLog: HubLogWatch,
  ) {
    this.label = label;
    this.#nameOf = nameOf;
    this.name = hex(label);
    this.#hub = hub;
    this.#problems = problems;
    this.#trust = trust;
    this.#hubLog = hubLog;
    this.#stopHubLog = hubLog.view.watch(() => this.#confirm());
    this.#timer = setInterval(() => void this.#readCheckpoint(), CHECKPOINT_EVERY_MS);
  }

  /** Follow from `from`; 0 is the newest rows. */
  start(from = 0): void {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#chain = undefined;
    this.#isRunning = true;
    this.view.set({ rows: [], phase: "starting", note: "", confirmedUpTo: 0, isCosigned: true, checkpointedUpTo: 0 });
    this.#reading = this.#run(from, this.#abort.signal);
  }

  /** Read from the first entry until `size` entries are verified, then close the connection; the rows stay. */
  async readUpTo(size: number): Promise<void> {
    await this.#reading;
    const isDone = ({ rows, phase }: LabelView): boolean => (rows.at(-1)?.seq ?? 0) >= size || phase === "stopped";
    if (isDone(this.view.value)) return;
    this.#abort = new AbortController();
    this.#isRunning = true;
    this.#reading = this.#run(1, this.#abort.signal);
    const isRead = await until(this.view, isDone);
    this.#isRunning = false;
    this.#abort.abort();
    await this.#reading;
    if (!isRead) throw new CallError(`the hub has sent no entry for ${MAX_SILENCE_MS / 1_000} s, although it has ${size}`, 0, "no answer");
  }

  /** The stream_seq of the newest entry, by its verified receipt; 0 if the label has none. */
  async newestSeq(): Promise<number> {
    try {
      return Number((await this.#receipt(0)).stream_seq);
    } catch (error) {
      if (error instanceof CallError && error.isAbsent) return 0;
      throw error;
    }
  }

  stop(): void {
    this.#isRunning = false;
    this.#abort.abort();
    this.#chain = undefined;
    this.#stopHubLog();
    clearInterval(this.#timer);
  }

  /** The place of the first row that is not older than a time, found by the receipts of the hub. */
  async seqAt(seconds: number): Promise<number> {
    let [low, high] = [1, Number((await this.#receipt(0)).stream_seq)];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (Number((await this.#receipt(middle)).hub_ts) < seconds) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  async #run(from: number, signal: AbortSignal): Promise<void> {
    let start = from;
    while (this.#isRunning && !signal.aborted) {
      try {
        const hub = this.#trust.hub.value;
        if (hub === undefined) return;
        if (this.#chain === undefined) {
          const begun = await this.#begin(hub, start);
          if (signal.aborted) return;
          this.#chain = begun;
        }
        if (this.#attempt > 0 && this.view.value.rows.length > 0 && !(await this.#isStillThere(signal))) return;
        await this.#follow(this.#chain, signal);
        if (signal.aborted || this.#chain?.broken !== "") return;
        this.#note("waiting", "the hub ended the stream; asking again");
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof CallError) {
          if (error.streamSeq !== undefined) {
            start = error.streamSeq;
            this.#chain = undefined;
            this.#note("starting", `entries before ${start} were pruned by the hub's retention rules`);
          } else {
            this.#note("waiting", error.isAbsent ? "no entries yet" : `${error.message}; asking again`);
          }
        } else if (error instanceof VeenError) {
          this.#lie(error.message, []);
          this.#note("stopped", error.message);
          return;
        } else {
          throw error;
        }
      }
      await pause(RETRY_MS[Math.min(this.#attempt++, RETRY_MS.length - 1)] as number, signal);
    }
  }

  /** After a lost connection: whether the hub still has the rows that are here. It would not say so while it is followed. */
  async #isStillThere(signal: AbortSignal): Promise<boolean> {
    const last = this.view.value.rows.at(-1) as Row;
    const newest = await this.newestSeq();
    if (signal.aborted) return false;
    if (newest >= last.seq) {
      this.#note("live", "");
      return true;
    }
    this.#lie(`the hub shows ${newest || "no"} entries of this label, although it signed entry ${last.seq} (core §7)`, this.#evidenceOf(last));
    this.#note("stopped", "the hub lost entries that it signed");
    return false;
  }

  /** Prove the tree before the first row, so that the first row's root can be checked. */
  async #begin(hub: ConfirmedHub, from: number): Promise<LabelChain> {
    const isControl = equal(this.label, hub.status.control_label);
    const terms = {
      label: this.label, isControl,
      identity: () => this.#trust.hub.value?.identity ?? hub.identity,
      refresh: () => this.#trust.refresh(),
      profileId: profileId(encodeObject("Profile", hub.status.profile)),
    };
    const newest = from === 0 ? Number((await this.#receipt(0)).stream_seq) : from;
    const first = from === 0 ? Math.max(1, newest - TAIL_ROWS + 1) : Math.max(1, from);
    if (first === 1) return new LabelChain(terms, new Mmr(), 0n);
    const receipt = await this.#receipt(first - 1);
    const size = BigInt(first - 1);
    const { mmr_proof: proof } = decodeObject("ProofResponse", await this.#hub.proof(this.label, first - 1, first - 1));
    verifyInclusion(proof, receipt.mmr_root, size, receipt.leaf_hash, size);
    return new LabelChain(terms, new Mmr(size, [climb(proof), ...proof.peaks_after]), receipt.hub_ts);
  }

  async #receipt(seq: number): Promise<Receipt> {
    const { receipt } = decodeObject("ReceiptResponse", await this.#hub.receipt(this.label, seq));
    if (!equal(receipt.label, this.label) || (seq !== 0 && Number(receipt.stream_seq) !== seq)) {
      throw new VerificationError(`the hub answers with the receipt of another entry than ${seq} (core §10.4.3)`);
    }
    await this.#trust.check((hub) => verifyReceipt(hub.identity, receipt));
    await this.compare(receipt);
    return receipt;
  }

  /** Compare a receipt with the row at its place. */
  async compare(receipt: Receipt): Promise<void> {
    const held = this.view.value.rows.find((row) => row.seq === Number(receipt.stream_seq))?.receipt;
    if (held !== undefined) await this.compareTwo(held, receipt);
  }

  /** Two signed receipts for one place that differ convict the hub (spec-1 §14). */
  async compareTwo(held: Receipt, receipt: Receipt): Promise<void> {
    if (this.#trust.hub.value === undefined || (equal(held.mmr_root, receipt.mmr_root) && equal(held.leaf_hash, receipt.leaf_hash))) return;
    const statements: Statement[] = [];
    for (const each of [held, receipt]) {
      statements.push({ hub_pk: await this.#trust.check((hub) => verifyReceipt(hub.identity, each)), receipt: each });
    }
    statements.sort((a, b) => compare(encodeObject("Statement", a), encodeObject("Statement", b)));
    const [first, second] = statements as [Statement, Statement];
    const bytes = encodeObject("Equivocation", { ver: 1n, first, second });
    this.#lie(`the hub signed two receipts for stream_seq ${receipt.stream_seq} (spec-1 §14)`,
      [{ name: `equivocation-${receipt.stream_seq}.cbor`, bytes }]);
  }

  async #follow(chain: LabelChain, signal: AbortSignal): Promise<void> {
    let rest: Bytes = new Uint8Array();
    for await (const part of this.#hub.follow(this.label, chain.size + 1, signal)) {
      this.#attempt = 0;
      rest = concat(rest, part);
      let items: Bytes[];
      [items, rest] = wholeItems(rest);
      for (let at = 0; at < items.length; at += MAX_BATCH) {
        const rows = await chain.accept(items.slice(at, at + MAX_BATCH));
        if (this.#chain !== chain) return;
        this.#add(rows);
        await breathe();
        const failed = rows.find((row) => row.verdict === "fails");
        if (failed !== undefined) {
          this.#lie(`stream_seq ${failed.seq}: ${failed.reason}`, this.#evidenceOf(failed));
          this.#note("stopped", "a row does not hold: nothing after it can be verified");
          return;
        }
      }
    }
  }

  #evidenceOf(row: Row): Evidence[] {
    const identity = this.#trust.hub.value?.identity;
    return [
      { name: `item-${row.seq}.cbor`, bytes: row.item },
      ...(row.receipt ? [{ name: `receipt-${row.seq}.cbor`, bytes: encodeObject("Receipt", row.receipt) }] : []),
      ...(identity ? [{ name: "hub-identity.cbor", bytes: encodeObject("HubIdentity", identity) }] : []),
    ];
  }

  #add(fresh: readonly Row[]): void {
    const { rows, note } = this.view.value;
    const all = [...rows, ...fresh];
    const dropped = Math.max(0, all.length - MAX_ROWS);
    const newest = fresh.at(-1)?.receipt?.hub_ts;
    if (newest !== undefined && fresh.every((row) => row.verdict === "holds")) this.#trust.see(newest, true);
    this.view.set({
      ...this.view.value, rows: dropped > 0 ? all.slice(dropped) : all, phase: "live",
      note: dropped > 0 ? `the oldest rows are dropped: this tab holds ${MAX_ROWS}` : note.includes("pruned") ? note : "",
    });
    this.#confirm();
  }

  #note(phase: Phase, note: string): void {
    this.view.set({ ...this.view.value, phase, note });
  }

  /** Compare the label's head in the hub log with the row at its place. */
  #confirm(): void {
    const { isCosigned } = this.#hubLog;
    if (this.view.value.isCosigned !== isCosigned) this.view.set({ ...this.view.value, isCosigned });
    const head = this.#hubLog.view.value.labels.get(this.name);
    const { rows, confirmedUpTo } = this.view.value;
    const upTo = Number(head?.upto_seq ?? 0n);
    const row = rows[upTo - (rows[0]?.seq ?? 0)];
    if (head === undefined || row?.receipt === undefined || row.seq !== upTo || confirmedUpTo === upTo) return;
    if (!equal(row.receipt.mmr_root, head.mmr_root)) {
      this.#lie(`the hub log has another root at stream_seq ${upTo} than the receipt (RESOLUTIONS P1)`, [
        { name: `receipt-${upTo}.cbor`, bytes: encodeObject("Receipt", row.receipt) },
        { name: `label-head-${upTo}.cbor`, bytes: encodeObject("LabelHead", head) },
        { name: "hub-checkpoint.txt", bytes: this.#hubLog.view.value.head?.note ?? new Uint8Array() },
      ]);
      return;
    }
    if (isCosigned) this.view.set({ ...this.view.value, confirmedUpTo: upTo });
  }

  /** Verify the label's newest CHECKPOINT, and compare it with the row at its place (core §4.4, §8.4). */
  async #readCheckpoint(): Promise<void> {
    if (this.#trust.hub.value === undefined || this.view.value.phase !== "live") return;
    let body: Bytes;
    try {
      body = await this.#hub.checkpoint(this.label);
    } catch (error) {
      if (error instanceof CallError) return; // none yet, or no answer, which is reported elsewhere
      throw error;
    }
    try {
      const { checkpoint } = decodeObject("CheckpointResponse", body);
      await this.#checkCheckpoint(checkpoint);
    } catch (error) {
      if (error instanceof CallError) return;
      if (!(error instanceof VeenError)) throw error;
      this.#lie(error.message, [{ name: "checkpoint-answer.cbor", bytes: body }]);
    }
  }

  async #checkCheckpoint(made: Checkpoint): Promise<void> {
    if (!equal(made.label_curr, this.label)) {
      throw new CheckpointError("CHECKPOINT.label_curr (core §4.4): is another label than was asked for");
    }
    const { rows, checkpointedUpTo } = this.view.value;
    const upTo = Number(made.upto_seq);
    const held = rows[upTo - (rows[0]?.seq ?? 0)]?.receipt;
    await this.#trust.check(async (hub) => {
      await verifyCheckpoint(hub.identity, made, hub.status.profile.epoch_sec);
      const since = held?.hub_ts ?? hub.identity.hub_keys[0]?.valid_from ?? 0n;
      await verifyCheckpointSigners(hub.identity, made, since, hub.status.hub_ts);
      if (held === undefined) return; // no row of this tab is at its place
      const name = this.#nameOf();
      checkTransition(made, {
        size: held.stream_seq, root: held.mmr_root, lastUptoSeq: BigInt(checkpointedUpTo), hubTs: held.hub_ts,
        origin: name === undefined || this.#isControl ? null : originOfStream(hub, name),
      });
    });
    if (held !== undefined) this.view.set({ ...this.view.value, checkpointedUpTo: upTo });
  }

  get #isControl(): boolean {
    const control = this.#trust.hub.value?.status.control_label;
    return control !== undefined && equal(this.label, control);
  }

  #lie(reason: string, evidence: readonly Evidence[]): void {
    this.#problems.report(this.#isControl ? "tokens" : "streams", this.name, reason, true, evidence);
  }
}

/** Return the peak above the leaf of a verified proof. */
function climb(proof: MmrProof): Bytes {
  return proof.path.reduce(
    (node, step) => (step.dir === 1n ? nodeHash(step.sib, node) : nodeHash(node, step.sib)), proof.leaf_hash);
}

/** Split what has arrived into whole items and the rest. */
function wholeItems(data: Bytes): [Bytes[], Bytes] {
  const items: Bytes[] = [];
  let at = 0;
  while (at < data.length) {
    let end: number;
    try {
      end = itemEnd(data, at);
    } catch (error) {
      if (!(error instanceof DecodeError) || !error.found.includes("ends early")) throw error;
      if (data.length - at > MAX_ITEM_BYTES) throw new DecodeError("an item of the stream is too large (core §14.2)");
      break;
    }
    items.push(data.slice(at, end));
    at = end;
  }
  return [items, data.slice(at)];
}

/** Wait until a view is as wanted; return false if no row comes for too long. */
function until(view: Subject<LabelView>, isDone: (view: LabelView) => boolean): Promise<boolean> {
  return new Promise((resolve) => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let newest = -1;
    const end = (isRead: boolean) => {
      clearTimeout(timer);
      queueMicrotask(() => stop());
      resolve(isRead);
    };
    const stop = view.watch((held) => {
      const seq = held.rows.at(-1)?.seq ?? 0;
      if (isDone(held)) end(true);
      else if (seq !== newest) {
        newest = seq;
        clearTimeout(timer);
        timer = setTimeout(() => end(false), MAX_SILENCE_MS);
      }
    });
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
