/** Verdicts on pieces of evidence, and the statements that they rest on. */

import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { clauseOf, VerificationError } from "../wire/errors.ts";
import type { SignedHead } from "../hublog/note.ts";
import type { HubIdentity, LabelHead } from "../wire/schema.ts";
import type { Recognized } from "./recognize.ts";

/** The verdict on one object; `holds` is null if there is too little evidence to decide. */
export interface Verdict {
  readonly file: string;
  readonly kind: string;
  readonly holds: boolean | null;
  readonly why: string;
  /** The clause that the reason cites. */
  readonly clause: string | null;
  /** Whether every check was made. */
  readonly complete: boolean;
  /** The steps of the proof in words, for evidence that has several. */
  readonly steps: readonly string[];
  /** The object that was judged, if there is one. */
  readonly found: Recognized | null;
  /** For an inclusion proof that holds: the root and size that it leads to, and the entry. */
  readonly leads: Lead | null;
  /** For a range of a log that holds: its end, the way to the hub checkpoint, and its messages. */
  readonly range: Range | null;
}

/** Messages of a range that are kept for a reader to open. */
export const MAX_KEPT_MESSAGES = 1_000;

/** What a bundle or an export proves beside its verdict. */
export interface Range {
  readonly root: Bytes;
  readonly size: bigint;
  readonly identity: HubIdentity;
  /** The way from the label's head to a hub checkpoint, if the file has it. */
  readonly link: {
    readonly head: LabelHead;
    readonly index: bigint;
    readonly proof: readonly Bytes[];
    readonly checkpoint: Bytes;
  } | null;
  /** The first encoded MSGs, in order. */
  readonly messages: readonly Bytes[];
}

export interface Lead {
  readonly root: Bytes;
  readonly size: bigint;
  readonly streamSeq: bigint;
  readonly source: string;
}

export function verdict(
  file: string,
  kind: string,
  holds: boolean | null,
  why: string,
  more: Partial<Pick<Verdict, "complete" | "steps" | "found" | "leads" | "range">> = {},
): Verdict {
  const clause = holds === true ? null : clauseOf(why);
  return {
    file,
    kind,
    holds,
    why,
    clause,
    complete: true,
    steps: [],
    found: null,
    leads: null,
    range: null,
    ...more,
  };
}

/** There is too little evidence to decide. */
export class Undecided extends Error {}

/** A root that a verified statement names. */
export interface KnownRoot {
  readonly label: Bytes;
  readonly size: bigint;
  readonly root: Bytes;
  readonly source: string;
}

export function short(bytes: Uint8Array): string {
  return `${hex(bytes).slice(0, 16)}…`;
}

/** The roots stated so far, by label and size. */
export class Roots {
  readonly known = new Map<string, Map<bigint, KnownRoot>>();

  /** Add a root; throw if another root is known for the same size (core §9 Resync). */
  add(label: Bytes, size: bigint, root: Bytes, source: string): void {
    const stated = { label, size, root, source };
    const name = hex(label);
    const sizes = this.known.get(name) ?? new Map<bigint, KnownRoot>();
    this.known.set(name, sizes);
    const other = sizes.get(size) ?? stated;
    sizes.set(size, other);
    if (!equal(other.root, root)) {
      throw new VerificationError(
        `contradicts ${other.source}: the root of ${size} entries of label ${short(label)} differs`,
        "keep both as evidence: the hub has signed two histories",
      );
    }
  }

  of(label: Bytes): Map<bigint, KnownRoot> {
    return this.known.get(hex(label)) ?? new Map<bigint, KnownRoot>();
  }
}

/** The hub checkpoints seen so far, by name and size of the log. */
export class HubLogs {
  readonly #known = new Map<string, readonly [Bytes, string]>();

  /** Add a verified hub checkpoint; throw if another root is known for the same size (P1). */
  add(signed: SignedHead, where: string): void {
    const key = `${signed.size} ${signed.origin}`;
    const [root, other] = this.#known.get(key) ?? [signed.root, where];
    this.#known.set(key, [root, other]);
    if (!equal(root, signed.root)) {
      throw new VerificationError(
        `contradicts ${other}: the hub signed two hub logs of ${signed.size} entries`,
        "keep both as evidence: together they convict the hub",
      );
    }
  }
}

/** The last second of the year 9999. */
const MAX_TIME = 253_402_300_799n;

/** Format a Unix time as UTC, to the second. */
export function formatUtc(seconds: bigint): string {
  if (seconds > MAX_TIME) return `${seconds} s after 1970`;
  return `${new Date(Number(seconds) * 1000).toISOString().slice(0, 19).replace("T", " ")}Z`;
}
