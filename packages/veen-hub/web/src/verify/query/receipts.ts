/** The receipts of a result: signed, of the right events, in the trees of their sources (query-api §6, P14). */

import { H } from "../crypto/hash.ts";
import { type Claim, invalidSignatures } from "../crypto/signatures.ts";
import { receiptClaim } from "../log/identity.ts";
import { type Bytes, concat, hex, utf8, view } from "../wire/bytes.ts";
import { EvidenceError, VerificationError } from "../wire/errors.ts";
import type { HubIdentity, Receipt, ResultEvidence, SourceEvidence } from "../wire/schema.ts";
import type { QueryDescriptor } from "./descriptor.ts";
import { evidenceHash, receiptId, type ResultDigest, type Source, type Verified } from "./digest.ts";
import { encodeText, type Json, type JsonObject } from "./json.ts";
import { named, ROWS_ACTION, splitHashes } from "./rows.ts";
import { readReceipt, verifyLeaves } from "./sources.ts";
import { formatTimestamp } from "./timestamp.ts";

interface Held {
  readonly source: Source;
  readonly receipt: Receipt;
  readonly wire: Bytes;
}

/** The receipts of one result, and the rows that they belong to. */
export class ReceiptCheck {
  readonly #descriptor: QueryDescriptor;
  readonly #digest: ResultDigest;
  readonly #rows: readonly JsonObject[];
  #bySource: (readonly [Source, SourceEvidence, readonly Receipt[]])[] = [];
  #held: Held[] = [];
  #matched: Bytes | null = null;
  /** The position of each receipt's row; null in an aggregate. */
  #positions: (number | null)[] = [];

  constructor(descriptor: QueryDescriptor, digest: ResultDigest, rows: readonly JsonObject[]) {
    this.#descriptor = descriptor;
    this.#digest = digest;
    this.#rows = rows;
  }

  get count(): number {
    return this.#held.length;
  }

  /** Check that the receipts are those of the evidence policy, fit their rows, and are signed. */
  async checkSignatures(
    evidence: ResultEvidence,
    identityOf: (source: Source) => HubIdentity,
  ): Promise<void> {
    this.#matched = evidence.matched;
    const claims: Claim[] = [];
    for (const [at, source] of this.#digest.coverage.entries()) {
      const shown = evidence.sources[at] as SourceEvidence;
      const receipts = shown.receipts.map((wire) => readReceipt(source, wire));
      this.#bySource.push([source, shown, receipts]);
      checkAscending(source, receipts);
      for (const [n, receipt] of receipts.entries()) {
        const wire = shown.receipts[n] as Bytes;
        claims.push(receiptClaim(identityOf(source), receipt, wire));
        this.#held.push({ source, receipt, wire });
      }
    }
    this.#positions = this.#checkPolicy();
    this.#checkAgainstRows();
    const [invalid] = await invalidSignatures(claims);
    if (invalid !== undefined) throw (claims[invalid] as Claim).refusal();
  }

  /** Refuse evidence of other events than the policy asks for; return the rows' positions (P14). */
  #checkPolicy(): (number | null)[] {
    const { mode } = this.#descriptor.evidence;
    if ((this.#matched !== null) !== (mode === "spot")) {
      throw new EvidenceError("only mode spot lists the receipts of all matched events (RESOLUTIONS P14)");
    }
    let positions: (number | null)[];
    if (this.#matched !== null) {
      positions = this.#checkSample(this.#matched);
    } else {
      this.#checkCounts(mode === "full");
      positions = this.#held.map((_, at) => at);
    }
    return this.#descriptor.aggregate === null ? positions : positions.map(() => null);
  }

  #checkCounts(every: boolean): void {
    for (const [source, , receipts] of this.#bySource) {
      if (BigInt(receipts.length) !== (every ? source.matched : 0n)) {
        throw new EvidenceError(
          `${named(source)}: the coverage says that ${source.matched} events match, and the ` +
            `evidence has ${receipts.length} receipts (query-api §6.3)`,
          ROWS_ACTION,
        );
      }
    }
  }

  #checkSample(hashes: Bytes): number[] {
    const ids = splitHashes(hashes).map((each) => `rcpt-${hex(each)}`);
    if (BigInt(ids.length) !== this.#bySource.reduce((sum, [source]) => sum + source.matched, 0n)) {
      throw new EvidenceError("the list of matched receipts is not as long as the coverage says (P14)");
    }
    const positions = sampled(this.#descriptor.queryId, ids, this.#descriptor.evidence.sampleRate as number);
    const shown = this.#held.map(({ wire }) => receiptId(wire));
    if (shown.length !== positions.length || shown.some((id, at) => id !== ids[positions[at] as number])) {
      throw new EvidenceError("the evidence is not that of the sampled rows (RESOLUTIONS P14)");
    }
    if (this.#descriptor.aggregate === null && this.#descriptor.projection.includes("receipt_id")) {
      for (const [at, row] of this.#rows.entries()) {
        if (row.get("receipt_id") !== ids[at]) {
          throw new EvidenceError(`row ${at + 1}: receipt_id is not that of its event (P11)`);
        }
      }
    }
    return positions;
  }

  #checkAgainstRows(): void {
    const allowed = allowedValues(this.#descriptor);
    for (const [n, held] of this.#held.entries()) {
      this.#checkTime(held.receipt);
      const at = this.#positions[n] as number | null;
      if (at !== null) this.#checkRow(at + 1, this.#rows[at] as JsonObject, held, allowed);
    }
  }

  /** Refuse an event that was committed outside filter.time (P11). */
  #checkTime({ hub_ts, stream_seq }: Receipt): void {
    const { from, to } = this.#descriptor.filter;
    const time = hub_ts * 1000n;
    if ((from !== null && time < from) || (to !== null && time >= to)) {
      throw new EvidenceError(
        `entry ${stream_seq} was committed at ${formatTimestamp(time)}, outside filter.time (RESOLUTIONS P11)`,
        ROWS_ACTION,
      );
    }
  }

  /** Refuse a row that contradicts its receipt or the filter. */
  #checkRow(
    number: number,
    row: JsonObject,
    { source, receipt, wire }: Held,
    allowed: readonly Allowed[],
  ): void {
    const proved: readonly (readonly [string, Json])[] = [
      ["stream", source.stream],
      ["hub_id", hex(source.hubId)],
      ["hub_commit_seq", receipt.stream_seq],
      ["hub_commit_time", formatTimestamp(receipt.hub_ts * 1000n)],
      ["receipt_id", receiptId(wire)],
    ];
    for (const [name, value] of proved) {
      if (this.#descriptor.projection.includes(name) && row.get(name) !== value) {
        throw new EvidenceError(
          `row ${number}: ${name} is not that of its receipt, entry ${receipt.stream_seq} (RESOLUTIONS P11)`,
          ROWS_ACTION,
        );
      }
    }
    for (const [name, values] of allowed) {
      if (!values.has(encodeText(row.get(name) as Json))) {
        throw new EvidenceError(
          `row ${number}: ${name} has a value that the filter excludes (query-api §4.2)`,
          ROWS_ACTION,
        );
      }
    }
  }

  /** Check that each event is in the tree of its source (core §5.4). */
  checkInclusion(): void {
    for (const [source, shown, receipts] of this.#bySource) {
      if (receipts.length === 0) {
        if (shown.proof.length > 0) {
          throw new EvidenceError(`${named(source)}: an inclusion proof of no event (query-api §6)`);
        }
        continue;
      }
      const [seqs, leaves] = [
        receipts.map((each) => each.stream_seq),
        receipts.map((each) => each.leaf_hash),
      ];
      try {
        verifyLeaves(shown.proof, seqs, leaves, source.to_seq, source.root as Bytes);
      } catch (error) {
        if (!(error instanceof VerificationError)) throw error;
        throw new EvidenceError(`${named(source)}: ${error.message}`, ROWS_ACTION);
      }
    }
  }

  /** Check that evidence_hash commits to coverage, receipts and rows (query-api §5.4, P13). */
  checkEvidenceHash(encodedRows: readonly Bytes[]): void {
    const verified = this.#held.map(({ source, wire }, n): Verified => {
      const at = this.#positions[n] as number | null;
      const rowHash = at === null ? null : H(encodedRows[at] as Bytes);
      return { receiptId: receiptId(wire), root: source.root as Bytes, hubId: source.hubId, rowHash };
    });
    if (
      evidenceHash(this.#descriptor, this.#digest.coverage, verified, this.#matched) !==
      this.#digest.evidenceHash
    ) {
      throw new EvidenceError(
        "the evidence is not that of evidence_hash: coverage, receipts or rows were changed " +
          "(query-api §5.4, RESOLUTIONS P13)",
        ROWS_ACTION,
      );
    }
  }
}

type Allowed = readonly [string, ReadonlySet<string>];

/** Return the values that the filter allows in projected fields, as canonical JSON. */
function allowedValues({ filter, projection }: QueryDescriptor): Allowed[] {
  const tests: (readonly [string, readonly Json[] | null])[] = [
    ...filter.where,
    ["subject_id", filter.subjectId === null ? null : [filter.subjectId]],
    ["event_type", filter.eventType],
  ];
  return tests.flatMap(([name, values]): Allowed[] =>
    values === null || !projection.includes(name) ? [] : [[name, new Set(values.map(encodeText))]],
  );
}

/** Return the positions of the sampled receipts; at least one if there is any (P14). */
export function sampled(queryId: string, ids: readonly string[], rate: number): number[] {
  const threshold = rate * 2 ** 64;
  const draws = ids.map((id) => view(H(concat(utf8(queryId), utf8(id)))).getBigUint64(0));
  const chosen = draws.flatMap((draw, at) => (draw < threshold ? [at] : []));
  if (chosen.length > 0 || draws.length === 0) return chosen;
  const less = (a: number, b: number): boolean => {
    const [x, y] = [draws[a] as bigint, draws[b] as bigint];
    return x < y || (x === y && (ids[a] as string) < (ids[b] as string));
  };
  return [draws.map((_, at) => at).reduce((best, at) => (less(at, best) ? at : best))];
}

function checkAscending(source: Source, receipts: readonly Receipt[]): void {
  let [before, time] = [0n, 0n];
  for (const { stream_seq: seq, hub_ts } of receipts) {
    if (seq <= before) {
      throw new EvidenceError(
        `${named(source)}: the receipt of entry ${seq} follows that of entry ${before}: ` +
          "an event appears twice, or events are out of order (RESOLUTIONS P11)",
        ROWS_ACTION,
      );
    }
    if (hub_ts < time) {
      throw new EvidenceError(
        `${named(source)}: hub_ts decreases at entry ${seq} (RESOLUTIONS H3)`,
        "keep this file: the hub signed two receipts that contradict each other",
      );
    }
    [before, time] = [seq, hub_ts];
  }
}
