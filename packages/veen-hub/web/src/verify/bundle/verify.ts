/** Verify bundles: header, parts, every MSG and RECEIPT, roots, hub checkpoint (P6, AGB0 4.5). */

import { invalidSignatures } from "../crypto/signatures.ts";
import type { WitnessPolicy } from "../hublog/policy.ts";
import type { RawEntry } from "../log/entry.ts";
import { hubIdOf } from "../log/identity.ts";
import { MAXIMA } from "../log/limits.ts";
import { LogVerifier } from "../log/log_verifier.ts";
import { Mmr } from "../log/mmr.ts";
import { LogTerms, RULES } from "../log/rules.ts";
import { NO_PIN } from "../evidence/verifier.ts";
import { MAX_KEPT_MESSAGES, short, type Verdict, verdict } from "../evidence/verdict.ts";
import { type Bytes, equal, hex } from "../wire/bytes.ts";
import { decodeObject, encodeObject } from "../wire/codec.ts";
import { DecodeError, InvariantError, plural, VeenError } from "../wire/errors.ts";
import type { BundleHeader, PartIndex, PartTrailer } from "../wire/schema.ts";
import { originOfLabel, verifyHeader } from "./header.ts";
import { BundleError, bundleId, isHeartbeat, type Part, readPart, SECTION } from "./part.ts";
import { RecordParser } from "./records.ts";

const KIND = "part of a bundle";
const BLOCK_BYTES = 1_048_576;
const BATCH = 1_024;
const CLAIMS_PER_EVENT = 2;
const MAX_WRITERS = 4_096;
const CITED = / \((core §[^()]*)\)/;

/** Verify the bundles to which these files belong; return a verdict for each file or bundle. */
export async function verifyParts(
  files: readonly { readonly name: string; readonly bytes: Bytes }[],
  pin: Bytes | null,
  policy: WitnessPolicy | null,
): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  const bundles = new Map<string, Part[]>();
  for (const { name, bytes } of files) {
    try {
      const part = readPart(name, bytes);
      const id = hex(bundleId(part.trailer.header));
      bundles.set(id, [...(bundles.get(id) ?? []), part]);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      verdicts.push(verdict(name, KIND, false, `the file was cut or altered: ${error.full}`));
    }
  }
  for (const parts of bundles.values()) verdicts.push(await verifyBundle(parts, pin, policy));
  return verdicts;
}

async function verifyBundle(
  parts: readonly Part[],
  pin: Bytes | null,
  policy: WitnessPolicy | null,
): Promise<Verdict> {
  const first = parts[0] as Part;
  const { header } = first.trailer;
  const kind = header.parts.length > 1 ? KIND : "bundle";
  if (pin === null) return verdict(first.name, kind, null, NO_PIN);
  let current = first;
  let messages: readonly Bytes[] = [];
  try {
    const derived = hubIdOf(pin);
    const pinned = equal(header.identity.hub_id, derived) ? derived : pin;
    const verifier = new BundleVerifier(header);
    await verifyHeader(header, first.trailer.signature, pinned, policy);
    for (const part of [...parts].sort((a, b) => (a.trailer.number < b.trailer.number ? -1 : 1))) {
      current = part;
      await verifier.verifyPart(part);
    }
    verifier.finish();
    messages = verifier.messages;
  } catch (error) {
    if (error instanceof VeenError) return verdict(current.name, kind, false, error.full);
    throw error;
  }
  const { root_after: root, to_seq: size, identity, head, checkpoint } = header;
  const link = head === null ? null : { ...head, checkpoint };
  return verdict(first.name, kind, true, facts(header), { range: { root, size, identity, link, messages } });
}

function facts(header: BundleHeader): string {
  const span = `entries ${header.from_seq} to ${header.to_seq}`;
  const what = isHeartbeat(header) ? `heartbeat after entry ${header.to_seq}` : span;
  return (
    `${what} of stream ${header.stream}, ${plural(header.counts.attachments, "attachment")}, in ` +
    `${plural(header.parts.length, "part")}; root ${short(header.root_after)}; signed by bridge ` +
    short(header.bridge_id)
  );
}

/** The state of verifying one bundle, after its header. */
class BundleVerifier {
  readonly #header: BundleHeader;
  readonly #id: Bytes;
  readonly #terms: LogTerms;
  readonly #verified = new Map<number, PartIndex>();
  #log: { readonly number: number; readonly log: LogVerifier } | null = null;
  #eventBytes = 0n;
  #attachmentBytes = 0n;
  /** The first MSGs of the bundle. */
  readonly messages: Bytes[] = [];

  constructor(header: BundleHeader) {
    this.#header = header;
    this.#id = bundleId(header);
    this.#terms = new LogTerms(header.label, header.identity, header.profile, MAXIMA, originOfLabel(header));
  }

  async verifyPart(file: Part): Promise<void> {
    const { trailer } = file;
    const part = Number(trailer.number);
    const rows = this.#header.parts;
    const row = part >= 1 ? rows[part - 1] : undefined;
    if (row === undefined) throw new BundleError(`the bundle has ${rows.length} parts`, undefined, { part });
    if (BigInt(file.contentSize) !== row.size) {
      const found = `${file.contentSize} bytes of content, its row says ${row.size}: the file was cut or altered`;
      throw new BundleError(found, undefined, { part });
    }
    const indexAt = Number(row.size - row.index_size);
    const indexBytes = file.data.slice(indexAt, file.contentSize);
    const index = this.#begin(trailer, part, indexBytes);
    const log = this.#logBefore(part, index);
    const parser = new RecordParser(part, row, this.#header.label);
    let waiting: RawEntry[] = [];
    for (let at = 0; at < indexAt; at += BLOCK_BYTES) {
      waiting.push(...parser.feed(file.data.subarray(at, Math.min(indexAt, at + BLOCK_BYTES))));
      while (waiting.length >= BATCH) {
        await this.#verify(log, waiting.slice(0, BATCH), part);
        waiting = waiting.slice(BATCH);
      }
    }
    parser.finish();
    if (waiting.length > 0) await this.#verify(log, waiting, part);
    parser.skip(indexBytes);
    if (!equal(parser.digest(), row.digest)) {
      throw new BundleError("the content has another hash than the part table", undefined, { part });
    }
    this.#checkIndex(parser, index, part);
    this.#checkEnds(log, part);
    this.#verified.set(part, index);
    this.#log = { number: part, log };
    this.#eventBytes += parser.eventBytes;
    this.#attachmentBytes += index.attachments.reduce((sum, each) => sum + each.size, 0n);
  }

  #begin(trailer: PartTrailer, part: number, indexBytes: Bytes): PartIndex {
    const id = bundleId(trailer.header);
    if (!equal(id, this.#id)) {
      throw new BundleError(`it belongs to bundle ${hex(id)}, not to ${hex(this.#id)}`, undefined, { part });
    }
    if (this.#verified.has(part)) throw new BundleError("the part was given twice", undefined, { part });
    try {
      return decodeObject("PartIndex", indexBytes);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      throw new BundleError(`the index is damaged: ${error.full}`, undefined, { part });
    }
  }

  /** Return the log up to a part: continued from the part before it, or from the peaks in its index. */
  #logBefore(part: number, index: PartIndex): LogVerifier {
    const samePeaks = (peaks: readonly Bytes[]): boolean =>
      peaks.length === index.peaks.length && peaks.every((peak, at) => equal(peak, index.peaks[at] as Bytes));
    if (part === 1 && !(samePeaks(this.#header.peaks_before) && index.hub_ts === 0n)) {
      throw new BundleError("the index does not begin with the header's peaks_before", undefined, { part });
    }
    if (this.#log !== null && this.#log.number === part - 1) {
      const { log } = this.#log;
      this.#log = null;
      if (!samePeaks(log.tree.peaks) || index.hub_ts !== (log.hubTs ?? 0n)) {
        throw new BundleError("the index does not continue the part before it", undefined, { part });
      }
      return log;
    }
    const size = (this.#header.parts[part - 1] as { first_seq: bigint }).first_seq - 1n;
    try {
      new Mmr(size, index.peaks);
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      throw new BundleError(`the index is damaged: ${error.full}`, "core §5.1", { part });
    }
    return new LogVerifier(
      this.#terms,
      size,
      index.peaks,
      index.hub_ts === 0n ? null : index.hub_ts,
      MAX_WRITERS,
    );
  }

  /** Verify consecutive events, which extend the log; report the first fault in the order of the log. */
  async #verify(log: LogVerifier, entries: readonly RawEntry[], part: number): Promise<void> {
    const first = entries[0] as RawEntry;
    let failure: VeenError | null = null;
    let failedAt = first.stream_seq;
    const room = MAX_KEPT_MESSAGES - this.messages.length;
    this.messages.push(...entries.slice(0, room).map((entry) => entry.msgBytes));
    for (const entry of entries) {
      try {
        await log.accept(entry);
      } catch (error) {
        if (!(error instanceof VeenError)) throw error;
        [failure, failedAt] = [error, entry.stream_seq];
        break;
      }
    }
    const claims = log.claims.splice(0);
    const [invalid] = await invalidSignatures(claims);
    if (invalid !== undefined) {
      const seq = (entries[Math.floor(invalid / CLAIMS_PER_EVENT)] as RawEntry).stream_seq;
      const message = (claims[invalid] as (typeof claims)[number]).refusal().message;
      const clause = CITED.exec(message)?.[1];
      throw new BundleError(message.replace(CITED, ""), clause ?? "core §4.1, §4.3", { part, seq });
    }
    if (failure !== null) {
      const invariant = failure instanceof InvariantError ? failure.invariant : null;
      const clause = RULES.find((rule) => rule.name === invariant)?.clause;
      const suffix = ` (${clause}, stream_seq ${failedAt})`;
      const found = failure.message.endsWith(suffix)
        ? failure.message.slice(0, -suffix.length)
        : failure.message;
      throw new BundleError(found, clause ?? SECTION, { part, seq: failedAt });
    }
    const hubTs = decodeObject("Receipt", first.receiptBytes).hub_ts;
    if (first.stream_seq === this.#header.from_seq && hubTs !== this.#header.from_ts) {
      const found = `from_ts is not the hub_ts ${hubTs} of the first event`;
      throw new BundleError(found, undefined, { part, seq: first.stream_seq });
    }
  }

  #checkIndex(parser: RecordParser, index: PartIndex, part: number): void {
    const asBytes = (offsets: readonly bigint[], attachments: PartIndex["attachments"]): string =>
      hex(encodeObject("PartIndex", { ...index, offsets, attachments }));
    if (asBytes(parser.offsets, parser.attachments) !== asBytes(index.offsets, index.attachments)) {
      throw new BundleError("the index does not describe the records", undefined, { part });
    }
    if (this.#header.attachments === "omitted" && index.unopened !== 0n) {
      const found = "the index counts unopened messages, but the bundle omits attachments";
      throw new BundleError(found, undefined, { part });
    }
  }

  #checkEnds(log: LogVerifier, part: number): void {
    const header = this.#header;
    if (part !== header.parts.length) return;
    if (!equal(log.tree.root, header.root_after)) {
      throw new BundleError("root_after is not the root after the last event", "core §5.1", { part });
    }
    if (!isHeartbeat(header) && log.hubTs !== header.to_ts) {
      throw new BundleError(`to_ts is not the hub_ts ${log.hubTs} of the last event`, undefined, { part });
    }
  }

  /** Check that no part is missing and that the counts are those of the parts. */
  finish(): void {
    const rows = this.#header.parts;
    const missing = rows.flatMap((_, at) => (this.#verified.has(at + 1) ? [] : [at + 1]));
    if (missing[0] !== undefined) {
      const names = missing.slice(0, 8).join(", ") + (missing.length > 8 ? " …" : "");
      throw new BundleError(
        `${missing.length} of ${rows.length} parts are missing: ${names}`,
        undefined,
        { part: missing[0] },
        "give the files of all parts",
      );
    }
    const { counts } = this.#header;
    const unopened = [...this.#verified.values()].reduce((sum, index) => sum + index.unopened, 0n);
    const found = [this.#eventBytes, this.#attachmentBytes, unopened];
    const wanted = [counts.event_bytes, counts.attachment_bytes, counts.unopened];
    if (found.some((count, at) => count !== wanted[at])) {
      throw new BundleError("counts of bytes or unopened messages are not those of the parts");
    }
  }
}
