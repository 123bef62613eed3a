/**
 * The log of one label, verified row by row as it arrives: every signature, rule and root (core §7, §9).
 *
 * A row holds if its MSG and RECEIPT are canonical and signed, and if the tree with its leaf has the root that the
 * RECEIPT promises. After a row that does not hold, nothing proves the place of later rows: they do not hold either.
 */
import { H, Ht } from "../verify/crypto/hash.ts";
import { type Claim, invalidSignatures } from "../verify/crypto/signatures.ts";
import { verifyAuthorize } from "../verify/log/entry.ts";
import { verifyToken } from "../verify/log/grants.ts";
import { receiptClaim } from "../verify/log/identity.ts";
import type { Mmr } from "../verify/log/mmr.ts";
import { checkLayout, leafHash, msgClaim } from "../verify/log/msg.ts";
import { type Bytes, equal, hex } from "../verify/wire/bytes.ts";
import { decodeObject, encodeObject } from "../verify/wire/codec.ts";
import { InvariantError, VeenError } from "../verify/wire/errors.ts";
import type { CapToken, HubIdentity, Msg, Receipt } from "../verify/wire/schema.ts";

/** One message, or one authorized token, with its verdict. */
export interface Row {
  readonly seq: number;
  readonly verdict: "holds" | "fails";
  /** Why it does not hold. */
  readonly reason: string;
  readonly msg: Msg | undefined;
  readonly token: CapToken | undefined;
  readonly receipt: Receipt | undefined;
  /** The stream item as the hub sent it. */
  readonly item: Bytes;
}

export interface ChainTerms {
  readonly label: Bytes;
  /** The identity that is held now: the hub may rotate its key while the label is followed. */
  readonly identity: () => HubIdentity;
  /** Fetch the identity anew; throws if the hub does not answer. */
  readonly refresh: () => Promise<void>;
  readonly profileId: Bytes;
  readonly isControl: boolean;
}

interface Decoded {
  readonly item: Bytes;
  readonly seq: bigint;
  readonly msg: Msg | undefined;
  readonly token: CapToken | undefined;
  readonly receipt: Receipt;
  readonly claims: readonly Claim[];
}

type Step = Decoded | { readonly item: Bytes; readonly error: VeenError };

export class LabelChain {
  /** Set once a row does not hold. */
  broken = "";
  hubTs: bigint;
  readonly #terms: ChainTerms;
  #tree: Mmr;
  readonly #writers = new Map<string, bigint>();

  /** Continue after the entries of `tree`, the newest of which has this hub_ts. */
  constructor(terms: ChainTerms, tree: Mmr, hubTs: bigint) {
    this.#terms = terms;
    this.#tree = tree;
    this.hubTs = hubTs;
  }

  get size(): number {
    return Number(this.#tree.size);
  }

  /** Verify the next items, in their order. Signatures are checked together, rules one after the other. */
  async accept(items: readonly Bytes[]): Promise<Row[]> {
    let [steps, invalid] = await this.#verify(items);
    if (invalid.size > 0) {
      await this.#terms.refresh();
      [steps, invalid] = await this.#verify(items);
    }
    return steps.map((step) => this.#advance(step, invalid));
  }

  async #verify(items: readonly Bytes[]): Promise<[Step[], ReadonlySet<Claim>]> {
    const steps = await Promise.all(items.map((item) => this.#decode(item)));
    const claims = steps.flatMap((step) => ("error" in step ? [] : step.claims));
    return [steps, new Set((await invalidSignatures(claims)).map((at) => claims[at] as Claim))];
  }

  async #decode(item: Bytes): Promise<Step> {
    try {
      if (this.#terms.isControl) {
        const { stream_seq: seq, msg: token, receipt } = decodeObject("ControlItem", item);
        await verifyToken(token);
        return { item, seq, msg: undefined, token, ...this.#withReceipt(receipt, seq) };
      }
      const { stream_seq: seq, msg, receipt } = decodeObject("StreamItem", item);
      checkLayout(msg.ciphertext);
      const found = this.#withReceipt(receipt, seq);
      return { item, seq, msg, token: undefined, receipt: found.receipt, claims: [msgClaim(msg), ...found.claims] };
    } catch (error) {
      if (error instanceof VeenError) return { item, error };
      throw error;
    }
  }

  #withReceipt(receipt: Receipt | null, seq: bigint): { receipt: Receipt; claims: Claim[] } {
    if (receipt === null) throw new InvariantError("I3", `the item has no RECEIPT (core §10.2, stream_seq ${seq})`);
    return { receipt, claims: [receiptClaim(this.#terms.identity(), receipt)] };
  }

  #advance(step: Step, invalid: ReadonlySet<Claim>): Row {
    if ("error" in step) return this.#fail(step.item, this.size + 1, step.error.message);
    const { item, msg, token, receipt } = step;
    const about = { msg, token, receipt };
    const seq = Number(step.seq);
    if (this.broken !== "") return this.#fail(item, seq, `follows a row that does not hold: ${this.broken}`, about);
    try {
      this.#check(step);
      const wrong = step.claims.find((claim) => invalid.has(claim));
      if (wrong !== undefined) throw wrong.refusal();
      this.#append(step);
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      return this.#fail(item, seq, error.message, about);
    }
    return { seq, verdict: "holds", reason: "", item, ...about };
  }

  #fail(item: Bytes, seq: number, reason: string, about: Partial<Row> = {}): Row {
    if (this.broken === "") this.broken = reason;
    return { seq, verdict: "fails", reason, item, msg: undefined, token: undefined, receipt: undefined, ...about };
  }

  /** The rules that an entry shows by itself, then those between entries, in the order of core §7. */
  #check({ seq, msg, token, receipt }: Decoded): void {
    const { label, profileId } = this.#terms;
    const broken = (rule: string, found: string, clause = "core §7") =>
      new InvariantError(rule, `${found} (${clause}, stream_seq ${seq})`);
    if (!equal(receipt.label, label) || receipt.stream_seq !== seq) {
      throw broken("§4.8.1", "the RECEIPT and the item differ in label or stream_seq", "core §4.8.1");
    }
    if (msg !== undefined) {
      if (!equal(H(msg.ciphertext), msg.ct_hash)) throw broken("I1", "ct_hash is not the hash of the ciphertext");
      if (!equal(msg.label, label)) throw broken("I2", "the MSG and its RECEIPT differ in label");
      if (!equal(receipt.leaf_hash, leafHash(label, msg))) throw broken("I2", "leaf_hash is not the leaf hash of the MSG");
      if (!equal(msg.profile_id, profileId)) throw broken("I4", `profile ${hex(msg.profile_id)} is not the hub's`);
    }
    if (token !== undefined) verifyAuthorize({ msgBytes: encodeObject("CapToken", token), receipt });
    const next = this.#tree.size + 1n;
    if (seq !== next) throw broken("I3", `found stream_seq ${seq}, want ${next}`);
    if (receipt.hub_ts < this.hubTs) {
      throw broken("H3", `hub_ts ${receipt.hub_ts} is before ${this.hubTs}`, "RESOLUTIONS H3");
    }
    if (msg !== undefined) this.#checkWriter(msg, seq, broken);
  }

  #checkWriter(msg: Msg, seq: bigint, broken: (rule: string, found: string) => InvariantError): void {
    if (msg.prev_ack >= seq) throw broken("I6", `prev_ack ${msg.prev_ack} is not before the MSG`);
    const before = this.#writers.get(hex(msg.client_id));
    if (before !== undefined && msg.client_seq <= before) {
      throw broken("I8", `client_seq ${msg.client_seq} of ${hex(msg.client_id)} was accepted before`);
    }
    if (before !== undefined && msg.client_seq !== before + 1n) {
      throw broken("I9", `client_seq ${msg.client_seq} of ${hex(msg.client_id)} does not follow ${before}`);
    }
  }

  #append({ seq, msg, receipt }: Decoded): void {
    const tree = this.#tree.copy();
    tree.add(receipt.leaf_hash);
    if (!equal(tree.root, receipt.mmr_root)) {
      throw new InvariantError("I3", `mmr_root is not the root with the new leaf (core §7, stream_seq ${seq})`);
    }
    this.#tree = tree;
    this.hubTs = receipt.hub_ts;
    if (msg !== undefined) this.#writers.set(hex(msg.client_id), msg.client_seq);
  }
}

/** The id of a profile (core §3.2). */
export function profileId(encoded: Bytes): Bytes {
  return Ht("veen/profile", encoded);
}
