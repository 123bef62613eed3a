/** A stream as records: every entry from the first on, verified, opened with this tab's keys and decoded. */
import type { Opened } from "../../verify/log/msg.ts";
import type { Bytes } from "../../verify/wire/bytes.ts";
import type { App } from "../app.ts";
import type { Row } from "../label_chain.ts";
import type { LabelView } from "../label_watch.ts";
import { type Stop, Subject } from "../subject.ts";
import { type DecodedRecord, decodeRecord } from "./record.ts";

/** Messages that are opened between two looks at the screen. */
const SLICE = 64;

/** One verified entry, and what became of it. */
export interface RecordEntry {
  readonly row: Row;
  /** Undefined if no key of this tab opens the message. */
  readonly opened: Opened | undefined;
  readonly record: DecodedRecord | undefined;
  /** Why an opened message is no record of a schema that this page knows. */
  readonly why: string;
}

export interface RecordLogView {
  /** The verified entries in their order, from the first of the stream on if `isWhole`. */
  readonly entries: readonly RecordEntry[];
  /** Whether every verified row is among the entries. */
  readonly isCaughtUp: boolean;
  /** Whether the entries begin with the first of the stream: none was pruned, or dropped by this tab. */
  readonly isWhole: boolean;
  readonly note: string;
}

export class RecordLog {
  readonly view = new Subject<RecordLogView>({ entries: [], isCaughtUp: false, isWhole: true, note: "" });
  readonly #app: App;
  #entries: RecordEntry[] = [];
  #keys = -1;
  #isOpening = false;
  #isClosed = false;
  #rows: LabelView;
  readonly #stops: readonly Stop[];

  constructor(app: App, label: Bytes) {
    this.#app = app;
    const watch = app.labels.open(label, 1);
    this.#rows = watch.view.value;
    this.#stops = [
      watch.view.watch((view) => {
        this.#rows = view;
        void this.#openNew();
      }),
      app.keys.keys.watch((held) => {
        if (held.length === this.#keys) return;
        this.#keys = held.length;
        this.#entries = [];
        void this.#openNew();
      }),
    ];
  }

  stop(): void {
    this.#isClosed = true;
    for (const stop of this.#stops) stop();
  }

  async #openNew(): Promise<void> {
    if (this.#isOpening) return;
    this.#isOpening = true;
    while (!this.#isClosed) {
      const keys = this.#keys;
      const fresh = this.#newRows().slice(0, SLICE);
      if (fresh.length === 0) break;
      const opened = await Promise.all(fresh.map((row) => this.#open(row)));
      if (keys === this.#keys) this.#entries.push(...opened);
      this.#show();
    }
    this.#isOpening = false;
    this.#show();
  }

  /** The verified rows that are not among the entries yet; a row that does not hold ends the log. */
  #newRows(): readonly Row[] {
    const { rows } = this.#rows;
    const first = rows[0]?.seq ?? 1;
    if (this.#entries.length > 0 && this.#entries[0]?.row.seq !== first) this.#entries = [];
    const fresh = rows.slice(this.#entries.length);
    const failed = fresh.findIndex((row) => row.verdict === "fails");
    return failed < 0 ? fresh : fresh.slice(0, failed);
  }

  async #open(row: Row): Promise<RecordEntry> {
    const opened = row.msg === undefined ? undefined : await this.#app.keys.open(row.msg);
    const record = opened === undefined ? "" : decodeRecord(opened.header.schema, opened.body);
    return typeof record === "string" ? { row, opened, record: undefined, why: record } : { row, opened, record, why: "" };
  }

  #show(): void {
    const { rows, note } = this.#rows;
    this.view.set({
      entries: [...this.#entries],
      isCaughtUp: this.#newRows().length === 0 && this.#rows.phase === "live",
      isWhole: (rows[0]?.seq ?? 1) === 1,
      note,
    });
  }
}
