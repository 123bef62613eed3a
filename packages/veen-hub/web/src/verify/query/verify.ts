/** Verify a query result without a hub, step by step (query-api §5, §6, RESOLUTIONS P11 to P14). */

import { Undecided } from "../evidence/verdict.ts";
import type { WitnessPolicy } from "../hublog/policy.ts";
import { isPinned, verifyIdentity, verifyReceipt } from "../log/identity.ts";
import { type Bytes, compare, equal, hex } from "../wire/bytes.ts";
import { DecodeError, EvidenceError, plural, VerificationError } from "../wire/errors.ts";
import type { HubIdentity, Receipt, ResultFile, SourceEvidence } from "../wire/schema.ts";
import { normalise, type QueryDescriptor } from "./descriptor.ts";
import { readDigest, type ResultDigest, type Source } from "./digest.ts";
import { decode, decodeCanonical, encode, type JsonObject, QueryError } from "./json.ts";
import { ReceiptCheck } from "./receipts.ts";
import { checkCoverage, checkDigest, checkRows, named, ROWS_ACTION } from "./rows.ts";
import { checkHead, checkLabel, checkLink } from "./sources.ts";
import { formatTimestamp } from "./timestamp.ts";

const MAX_RESULT_BYTES = 64 * 1_048_576;

/** What a result proves, as `veen verify` says it. */
export interface ResultProof {
  readonly why: string;
  readonly steps: readonly string[];
}

/** Verify a result; `known` is the pinned hub's identity, `held` are receipts that have been verified. */
export async function verifyQueryResult(
  file: ResultFile,
  pin: Bytes | null,
  known: HubIdentity | null,
  policy: WitnessPolicy | null,
  held: readonly Receipt[],
): Promise<ResultProof> {
  const { identities } = file.evidence;
  if (pin !== null) {
    for (const identity of identities) {
      if (await isPinned(identity, pin)) continue;
      throw new VerificationError(
        `rests on hub ${hex(identity.hub_id)}, but ${hex(pin)} is pinned`,
        "`veen query verify` takes several hubs with --trust",
      );
    }
  }
  const made = new Verification(
    file,
    pin === null ? null : identities.map((each) => each.hub_id),
    known,
    policy,
    held,
  );
  await made.run();
  const { digest, steps, receipts, hubs } = made;
  if (pin === null) {
    const names = hubs.map(hex).join(", ");
    throw new Undecided(`verifies for hub ${names}: give --trust with this id, if that is the hub you mean`);
  }
  const why =
    `${plural(digest.rowCount, "row")} of query ${digest.queryId} over ${plural(digest.coverage.length, "source")}, ` +
    `${plural(receipts, "receipt")} verified (mode ${digest.policy.mode})`;
  return { why, steps: [...steps, ...digest.limits.map((limit) => `not proved: ${limit.get("means")}`)] };
}

/** The rows of a result, decoded; nothing is verified. */
export function rowsOf(file: ResultFile): JsonObject[] {
  const where = "query result.rows (query-api §5.1)";
  const rows = asDecodeError(where, () => decode(file.rows_json, MAX_RESULT_BYTES));
  if (!Array.isArray(rows) || !rows.every((row) => row instanceof Map)) {
    throw new DecodeError("want an array of objects", where);
  }
  return rows as JsonObject[];
}

function asDecodeError<T>(where: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof QueryError ? new DecodeError(error.message, where) : error;
  }
}

function readDescriptor(data: Bytes): QueryDescriptor {
  const descriptor = asDecodeError("query result.descriptor (query-api §4)", () =>
    normalise(decodeCanonical(data, MAX_RESULT_BYTES)),
  );
  if (!equal(descriptor.canonical, data)) {
    throw new DecodeError("is not in normal form", "query result.descriptor (query-api §4.4)");
  }
  return descriptor;
}

class Verification {
  readonly digest: ResultDigest;
  readonly steps: string[] = [];
  readonly #file: ResultFile;
  readonly #pinned: readonly Bytes[] | null;
  readonly #known: HubIdentity | null;
  readonly #policy: WitnessPolicy | null;
  readonly #receiptsHeld: readonly Receipt[];
  readonly #descriptor: QueryDescriptor;
  readonly #rows: readonly JsonObject[];
  readonly #encoded: readonly Bytes[];
  readonly #keys = new Map<string, HubIdentity>();
  readonly #heads: (Receipt | null)[] = [];
  readonly #check: ReceiptCheck;

  constructor(
    file: ResultFile,
    pinned: readonly Bytes[] | null,
    known: HubIdentity | null,
    policy: WitnessPolicy | null,
    held: readonly Receipt[],
  ) {
    this.#file = file;
    this.#pinned = pinned;
    this.#known = known;
    this.#policy = policy;
    this.#receiptsHeld = held;
    this.#descriptor = readDescriptor(file.descriptor_json);
    this.digest = readDigest(file.digest_json);
    this.#rows = rowsOf(file);
    this.#encoded = this.#rows.map(encode);
    this.#check = new ReceiptCheck(this.#descriptor, this.digest, this.#rows);
  }

  get receipts(): number {
    return this.#check.count;
  }

  get hubs(): Bytes[] {
    return [...this.#keys.values()].map((identity) => identity.hub_id);
  }

  async run(): Promise<void> {
    this.#checkContent();
    await this.#checkHubs();
    await this.#checkHeads();
    await this.#checkReceipts();
    await this.#checkLinks();
    const times = this.#heads.flatMap((head) => (head === null ? [] : [head.hub_ts * 1000n]));
    if (times.length === this.#heads.length && times.length > 0) {
      const until = formatTimestamp(times.reduce((a, b) => (a < b ? a : b)));
      this.steps.push(`the coverage has every entry of its sources that was committed before ${until}`);
    }
  }

  #sources(): (readonly [Source, SourceEvidence])[] {
    return this.digest.coverage.map((source, at) => [
      source,
      this.#file.evidence.sources[at] as SourceEvidence,
    ]);
  }

  #identityOf(source: Source): HubIdentity {
    return this.#keys.get(hex(source.hubId)) as HubIdentity;
  }

  #checkContent(): void {
    const { coverage } = this.digest;
    checkDigest(this.#descriptor, this.digest);
    checkRows(this.#file, this.digest, this.#descriptor, this.#rows, this.#encoded);
    this.steps.push(
      `${plural(this.#rows.length, "row")} with the rows_hash ${this.digest.rowsHash.slice(0, 16)}…`,
    );
    if (this.#file.evidence.sources.length !== coverage.length) {
      throw new EvidenceError("coverage and evidence have different numbers of sources (RESOLUTIONS P13)");
    }
    checkCoverage(this.#descriptor, coverage, this.#rows);
    for (const source of coverage) checkLabel(source);
    const scanned = coverage.reduce((sum, each) => sum + each.scanned, 0n);
    const matched = coverage.reduce((sum, each) => sum + each.matched, 0n);
    this.steps.push(
      `the coverage has ${plural(coverage.length, "source")} with ${scanned} entries, of which ${matched} match`,
    );
  }

  async #checkHubs(): Promise<void> {
    const { identities } = this.#file.evidence;
    const hubs = [...new Map(this.digest.coverage.map(({ hubId }) => [hex(hubId), hubId])).values()].sort(
      compare,
    );
    if (
      identities.length !== hubs.length ||
      identities.some((each, at) => !equal(each.hub_id, hubs[at] as Bytes))
    ) {
      throw new EvidenceError("the file does not have the keys of exactly the hubs of its coverage (core §8.4)");
    }
    for (const [at, hub] of hubs.entries()) {
      if (this.#pinned !== null && !this.#pinned.some((each) => equal(each, hub))) {
        throw new EvidenceError(
          `the result rests on hub ${hex(hub)}, which is not pinned (core §8.4)`,
          "pin this hub_id, if you trust the hub",
        );
      }
      const own = this.#known !== null && equal(this.#known.hub_id, hub) ? this.#known : null;
      const identity = own ?? (identities[at] as HubIdentity);
      await verifyIdentity(identity, hub);
      this.#keys.set(hex(hub), identity);
    }
    const which = this.#pinned !== null ? "the pinned one" : "as named in the file";
    this.steps.push(
      `${hubs.length === 1 ? "the hub is" : "the hubs are"} ${which}: ${hubs.map(hex).join(", ")}`,
    );
  }

  async #checkHeads(): Promise<void> {
    for (const [source, evidence] of this.#sources()) {
      try {
        this.#heads.push(await checkHead(source, evidence.head, this.#identityOf(source)));
      } catch (error) {
        if (!(error instanceof VerificationError)) throw error;
        const { message } = error;
        throw new EvidenceError(
          message.startsWith("stream ") ? message : `${named(source)}: ${message}`,
          ROWS_ACTION,
        );
      }
    }
    const unmatched: Receipt[] = [];
    for (const receipt of this.#receiptsHeld) if (!(await this.#checkKnown(receipt))) unmatched.push(receipt);
    this.steps.push("a hub signed the root at the end of each source");
    for (const { stream_seq, label } of unmatched) {
      this.steps.push(
        `not compared: your receipt of entry ${stream_seq} of label ${hex(label)}, which ` +
          "the coverage does not have; if it is of a stream in the scope, the result leaves out an epoch",
      );
    }
  }

  /** Refuse a coverage that contradicts a held receipt or ends before it; return whether it applies. */
  async #checkKnown(known: Receipt): Promise<boolean> {
    let matched = false;
    for (const [at, source] of this.digest.coverage.entries()) {
      if (!equal(source.label, known.label)) continue;
      matched = true;
      await verifyReceipt(this.#identityOf(source), known);
      const head = this.#heads[at] as Receipt | null;
      if (known.stream_seq === source.to_seq && head !== null && !equal(known.mmr_root, head.mmr_root)) {
        throw new EvidenceError(
          `${named(source)}: the hub signed two roots for ${source.to_seq} entries (core §9)`,
          "keep both receipts: together they convict the hub",
        );
      }
      if (known.stream_seq > source.to_seq) {
        throw new EvidenceError(
          `${named(source)}: the coverage ends at entry ${source.to_seq}, although the hub had ` +
            `committed entry ${known.stream_seq} at ${formatTimestamp(known.hub_ts * 1000n)} (RESOLUTIONS P13)`,
          "ask the executor to run the query over the newer entries; leave this receipt out " +
            "if you had the result before that time",
        );
      }
    }
    return matched;
  }

  async #checkReceipts(): Promise<void> {
    const check = this.#check;
    await check.checkSignatures(this.#file.evidence, (source) => this.#identityOf(source));
    const { mode } = this.#descriptor.evidence;
    this.steps.push(
      mode === "none"
        ? "no receipt of an event was verified (mode none)"
        : `a hub signed the receipts of ${plural(check.count, "event")} (mode ${mode})`,
    );
    check.checkInclusion();
    if (check.count > 0) this.steps.push("each of these events is in the tree of its source");
    check.checkEvidenceHash(this.#encoded);
    this.steps.push(
      `the evidence_hash ${this.digest.evidenceHash.slice(0, 16)}… commits to coverage and receipts`,
    );
  }

  async #checkLinks(): Promise<void> {
    const ask = "verify without a witness policy, or run the query after the next checkpoint";
    let links = 0;
    for (const [source, { link }] of this.#sources()) {
      if (link === null) {
        if (source.checkpoint !== null) {
          throw new EvidenceError(`${named(source)}: the evidence lacks the hub checkpoint (P13)`);
        }
        if (this.#policy !== null && source.scanned > 0n) {
          throw new EvidenceError(
            `${named(source)}: no hub checkpoint, so no witness vouches for it (P2)`,
            ask,
          );
        }
        continue;
      }
      await checkLink(source, link, this.#identityOf(source), this.#policy);
      if (this.#policy !== null && link.head.upto_seq < source.to_seq) {
        throw new EvidenceError(
          `${named(source)}: no witness vouches for the entries after ${link.head.upto_seq} (RESOLUTIONS P2)`,
          ask,
        );
      }
      links += 1;
    }
    if (links > 0) {
      const cosigned = this.#policy !== null ? " and the witnesses cosigned" : "";
      this.steps.push(`the hub signed${cosigned} the hub checkpoint of ${plural(links, "source")}`);
    }
  }
}
