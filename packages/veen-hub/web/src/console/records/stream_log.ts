/**
 * Streams as records: every entry of every epoch from the first on, verified, opened with this tab's keys and decoded.
 *
 * Labels are read one after the other, so that any number of epochs takes one connection. A label that the hub no
 * longer accepts entries for is read once; the others are read again whenever the hub log has grown.
 */
import type { Opened } from "../../verify/log/msg.ts";
import { hex } from "../../verify/wire/bytes.ts";
import { VeenError, VerificationError } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { breathe } from "../breathing.ts";
import { CallError } from "../hub_calls.ts";
import type { Row } from "../label_chain.ts";
import { type LabelWatch, MAX_ROWS } from "../label_watch.ts";
import { type Stop, Subject } from "../subject.ts";
import { labelsOf, type NamedLabel } from "./find_stream.ts";
import { type DecodedRecord, decodeRecord } from "./record.ts";

/** Messages that are opened between two looks at the screen. */
const SLICE = 64;
/** While a log is read, the screens are drawn in at most this share of the time. */
const DRAWING_SHARE = 0.2;
const EVERY_MS = 3_000;

/** One verified entry, and what became of it. */
export interface RecordEntry {
  readonly row: Row;
  /** Its label in hex. */
  readonly label: string;
  /** Undefined if no key of this tab opens the message. */
  readonly opened: Opened | undefined;
  readonly record: DecodedRecord | undefined;
  /** Why an opened message is no record of a schema that this page knows. */
  readonly why: string;
}

/** One label that has entries. */
export interface LabelEntries extends NamedLabel {
  readonly entries: readonly RecordEntry[];
}

export interface StreamLogView {
  /** The labels with entries: streams in the order in which they were named, each in the order of its epochs. */
  readonly labels: readonly LabelEntries[];
  /** The entries of all labels in that order. */
  readonly entries: readonly RecordEntry[];
  /** Whether everything that the hub shows was read. */
  readonly isCaughtUp: boolean;
  /** Whether every label begins with its first entry: none was pruned, and this tab holds them all. */
  readonly isWhole: boolean;
  readonly note: string;
}

interface Source extends NamedLabel {
  readonly watch: LabelWatch;
  entries: RecordEntry[];
}

export class StreamLog {
  readonly view = new Subject<StreamLogView>({ labels: [], entries: [], isCaughtUp: false, isWhole: true, note: "" });
  readonly names: readonly string[];
  readonly #app: App;
  readonly #sources = new Map<string, Source>();
  #order: readonly string[] = [];
  #keys = -1;
  #isClosed = false;
  /** Whether the keys changed while a reading was under way. */
  #isStale = false;
  #refreshing: Promise<void> | undefined;
  #opening: Promise<void> = Promise.resolve();
  /** When the screens may be drawn again while a log is being read. */
  #drawAfter = 0;
  readonly #stops: readonly Stop[];

  constructor(app: App, names: readonly string[]) {
    this.#app = app;
    this.names = names;
    const timer = setInterval(() => void this.refresh(), EVERY_MS);
    this.#stops = [
      () => clearInterval(timer),
      app.keys.keys.watch((held) => {
        if (held.length === this.#keys) return;
        this.#keys = held.length;
        this.#isStale = true;
        for (const source of this.#sources.values()) source.entries = [];
        void this.refresh();
      }),
    ];
  }

  stop(): void {
    this.#isClosed = true;
    for (const stop of this.#stops) stop();
    for (const { watch } of this.#sources.values()) watch.stop();
  }

  /** Read what is new, after a reading that is under way. */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#read().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #read(): Promise<void> {
    let why = "";
    do {
      this.#isStale = false;
      why = "";
      try {
        for (const name of this.names) for (const each of labelsOf(this.#app, name)) await this.#readLabel(each);
      } catch (error) {
        if (!(error instanceof CallError || error instanceof VeenError)) throw error;
        why = error.message;
      }
    } while (this.#isStale && !this.#isClosed);
    if (!this.#isClosed) this.#show(why === "", why);
  }

  async #readLabel(named: NamedLabel): Promise<void> {
    if (this.#isClosed) return;
    const id = hex(named.label);
    const source = this.#sources.get(id) ?? { ...named, watch: this.#app.labels.make(named.label), entries: [] };
    try {
      const newest = await this.#newest(source);
      if (newest === 0) return;
      if (!this.#sources.has(id)) {
        this.#sources.set(id, source);
        this.#order = this.#inOrder();
      }
      await this.#readTo(source, newest);
    } catch (error) {
      if (error instanceof VeenError) this.#app.problems.report("streams", id, error.message, true);
      throw error;
    } finally {
      if (!this.#sources.has(id) || this.#isClosed) source.watch.stop();
    }
  }

  async #readTo(source: Source, newest: number): Promise<void> {
    const others = [...this.#sources.values()].reduce((sum, each) => sum + (each === source ? 0 : each.entries.length), 0);
    if (others + newest > MAX_ROWS) throw new CallError(`this tab holds at most ${MAX_ROWS} entries`, 0, "too large");
    const stop = source.watch.view.watch(() => void this.#open(source));
    try {
      await source.watch.readUpTo(newest);
    } finally {
      stop();
    }
    await this.#open(source);
    const { rows, note } = source.watch.view.value;
    const failed = rows.find((row) => row.verdict === "fails");
    if (failed !== undefined) throw new VerificationError(`entry ${failed.seq} does not hold: ${failed.reason}`);
    if ((rows.at(-1)?.seq ?? 0) < newest) throw new CallError(note, 0, "stopped");
  }

  /** The newest entry of a label: by its receipt, or, once its epoch has passed, by the hub log. */
  async #newest({ isOpen, label, watch }: Source): Promise<number> {
    const head = Number(this.#app.hubLog.view.value.labels.get(hex(label))?.upto_seq ?? 0n);
    if (!isOpen) return head;
    const newest = await watch.newestSeq();
    const signed = Math.max(head, watch.view.value.rows.at(-1)?.seq ?? 0);
    if (newest < signed) {
      throw new VerificationError(`the hub shows ${newest} entries, although it signed the root of ${signed} (core §7, RESOLUTIONS P1)`);
    }
    return newest;
  }

  #inOrder(): string[] {
    const place = (source: Source) => this.names.indexOf(source.name);
    return [...this.#sources].sort(([, a], [, b]) => place(a) - place(b) || (a.epoch < b.epoch ? -1 : 1)).map(([id]) => id);
  }

  /** Open the verified rows of a label that are not among its entries yet; a row that does not hold ends it. */
  #open(source: Source): Promise<void> {
    this.#opening = this.#opening.then(async () => {
      while (!this.#isClosed) {
        const keys = this.#keys;
        const fresh = newRows(source).slice(0, SLICE);
        if (fresh.length === 0) return;
        const opened = await Promise.all(fresh.map((row) => this.#openRow(row, source)));
        if (keys === this.#keys) source.entries.push(...opened);
        if (performance.now() > this.#drawAfter) this.#show(false, "");
        await breathe();
      }
    });
    return this.#opening;
  }

  async #openRow(row: Row, source: Source): Promise<RecordEntry> {
    const opened = row.msg === undefined ? undefined : await this.#app.keys.open(row.msg);
    const record = opened === undefined ? "" : decodeRecord(opened.header.schema, opened.body);
    const entry = { row, label: hex(source.label), opened };
    return typeof record === "string" ? { ...entry, record: undefined, why: record } : { ...entry, record, why: "" };
  }

  #show(isCaughtUp: boolean, why: string): void {
    const sources = this.#order.map((id) => this.#sources.get(id) as Source);
    const notes = sources.map(({ watch }) => watch.view.value.note).filter((note) => note.includes("pruned"));
    const started = performance.now();
    this.view.set({
      labels: sources.map(({ name, label, epoch, isOpen, entries }) => ({ name, label, epoch, isOpen, entries: [...entries] })),
      entries: sources.flatMap(({ entries }) => entries),
      isCaughtUp,
      isWhole: sources.every(({ watch }) => (watch.view.value.rows[0]?.seq ?? 1) === 1),
      note: [why, ...notes].filter((each) => each !== "").join("; "),
    });
    const now = performance.now();
    this.#drawAfter = now + (now - started) / DRAWING_SHARE;
  }
}

function newRows({ watch, entries }: Source): readonly Row[] {
  const { rows } = watch.view.value;
  const first = rows[0]?.seq ?? 1;
  const fresh = rows.slice(Math.max(0, (entries.at(-1)?.row.seq ?? first - 1) + 1 - first));
  const failed = fresh.findIndex((row) => row.verdict === "fails");
  return failed < 0 ? fresh : fresh.slice(0, failed);
}
