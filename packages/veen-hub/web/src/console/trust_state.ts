/** Whom the page believes: the hub_id that a person confirmed, and what follows from it (core §8.4). */
import { labelOf } from "./label_names.ts";
import { verifyIdentity, verifyIdentitySignature } from "../verify/log/identity.ts";
import { verifyHandover } from "../verify/hublog/handover.ts";
import { epochAt } from "../verify/log/stream.ts";
import { equal, hex } from "../verify/wire/bytes.ts";
import { decodeObject, encodeObject } from "../verify/wire/codec.ts";
import { IdentityError, VeenError, VerificationError } from "../verify/wire/errors.ts";
import type { HubIdentity, HubKey, Status } from "../verify/wire/schema.ts";
import type { AuditLog } from "./audit.ts";
import { CallError, type HubCalls } from "./hub_calls.ts";
import type { Problems } from "./problems.ts";
import { Subject } from "./subject.ts";

const EVERY_MS = 5_000;
const STORE = "veen-console-hub";

/** What the hub says of itself before a person has confirmed it. */
export interface Candidate {
  readonly hubId: string;
  readonly identity: HubIdentity | undefined;
  readonly problem: string | undefined;
}

/** The confirmed hub with its newest verified status. */
export interface ConfirmedHub {
  readonly hubId: string;
  readonly identity: HubIdentity;
  readonly status: Status;
  /** When the status was verified last, by this device's clock. */
  readonly verifiedAt: number;
}

export class TrustState {
  readonly candidate = new Subject<Candidate | undefined>(undefined);
  readonly hub = new Subject<ConfirmedHub | undefined>(undefined);
  /** The pin of the operator who started this console, or of an earlier visit. */
  readonly expected: string | undefined;
  /** Newest hub_ts of a receipt that was verified: no key may be ended before it. */
  seenHubTs = 0n;
  /** Newest hub_ts of a receipt or of a label's head that was verified: the only time of the hub that is signed. */
  newestHubTs = 0n;
  isRemembered: boolean;
  readonly #hub: HubCalls;
  readonly #problems: Problems;
  readonly #audit: AuditLog;
  #latest: Status | undefined;
  #reading: Promise<void> = Promise.resolve();

  constructor(hub: HubCalls, problems: Problems, audit: AuditLog, pinned: string | null) {
    this.#hub = hub;
    this.#problems = problems;
    this.#audit = audit;
    const remembered = recall();
    this.isRemembered = remembered !== undefined;
    this.expected = pinned ?? remembered;
  }

  /** Fetch the status and verify its identity, after any request that is under way: answers stay in their order. */
  refresh(): Promise<void> {
    this.#reading = this.#reading.catch(() => undefined).then(() => this.#read());
    return this.#reading;
  }

  /**
   * Run a check under the held identity. If it fails, run it again under the newest one: the hub may have rotated its
   * key since, and the identity is up to 5 s old. Throws `CallError` if the hub does not answer: that is no verdict.
   */
  async check<T>(work: (hub: ConfirmedHub) => Promise<T>): Promise<T> {
    try {
      return await work(this.hub.value as ConfirmedHub);
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      await this.refresh();
      return work(this.hub.value as ConfirmedHub);
    }
  }

  /** A receipt, or only a label's head, with this hub_ts was verified. */
  see(hubTs: bigint, isReceipt: boolean): void {
    if (hubTs > this.newestHubTs) this.newestHubTs = hubTs;
    if (isReceipt && hubTs > this.seenHubTs) this.seenHubTs = hubTs;
  }

  start(): void {
    const round = () => void this.#round().finally(() => setTimeout(round, EVERY_MS));
    round();
  }

  /** Whether the hub that answers has this hub_id or first hub_pk, in hex. */
  isOf(text: string): boolean {
    const identity = this.candidate.value?.identity;
    const first = identity?.hub_keys[0];
    return identity !== undefined && first !== undefined && (text === hex(identity.hub_id) || text === hex(first.hub_pk));
  }

  /** A person says that this is the hub. */
  confirm(hubId: string, remember: boolean): void {
    const status = this.#latest;
    if (status === undefined || hex(status.identity.hub_id) !== hubId) return;
    this.#audit.add("trust", `hub_id ${hubId} confirmed by the person${remember ? ", remembered in this browser" : ""}`);
    this.isRemembered = remember;
    if (remember) localStorage.setItem(STORE, JSON.stringify({ hub_id: hubId }));
    else localStorage.removeItem(STORE);
    this.hub.set({ hubId, identity: status.identity, status, verifiedAt: Date.now() });
  }

  async #round(): Promise<void> {
    try {
      await this.refresh();
    } catch (error) {
      if (!(error instanceof CallError)) throw error; // vitals report that the hub does not answer
    }
  }

  async #read(): Promise<void> {
    const body = await this.#hub.status();
    try {
      const status = decodeObject("Status", body);
      await this.#accept(status);
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      const evidence = [{ name: "status.cbor", bytes: body }];
      this.#problems.report("identity", "", error.message, true, evidence);
      if (this.hub.value === undefined) this.candidate.set({ hubId: "", identity: undefined, problem: error.message });
    }
  }

  async #accept(status: Status): Promise<void> {
    const confirmed = this.hub.value;
    await verifyIdentity(status.identity, confirmed?.identity.hub_id ?? null);
    await verifyIdentitySignature(status.identity, status.identity_sig);
    if (!equal(status.control_label, labelOf(status.identity.hub_id, "veen/control", 0n))) {
      throw new IdentityError("status.control_label is not the label that follows from hub_id (RESOLUTIONS H5)");
    }
    if (status.epoch !== epochAt(status.hub_ts, status.profile.epoch_sec)) {
      throw new VerificationError(`status.epoch is ${status.epoch}, which is not the epoch of hub_ts ${status.hub_ts} (core §3.2)`);
    }
    await this.#checkHandover(status, confirmed);
    if (confirmed !== undefined) {
      checkSuccessor(confirmed.identity, status.identity, this.seenHubTs);
      this.hub.set({ ...confirmed, identity: status.identity, status, verifiedAt: Date.now() });
      return;
    }
    this.#latest = status;
    const hubId = hex(status.identity.hub_id);
    const shown = this.candidate.value;
    if (shown?.identity === undefined || shown.hubId !== hubId) {
      this.candidate.set({ hubId, identity: status.identity, problem: undefined });
    }
    if (this.isRemembered && this.expected !== undefined && this.isOf(this.expected)) this.confirm(hubId, true);
  }

  /** A handover is signed, is never withdrawn, and the hub signs nothing after it (RESOLUTIONS P9). */
  async #checkHandover({ handover, identity, hub_log_origin: origin }: Status, confirmed: ConfirmedHub | undefined): Promise<void> {
    const held = confirmed?.status.handover ?? null;
    if (handover === null && held !== null) throw new VerificationError("the hub no longer shows the handover that it signed (RESOLUTIONS P9)");
    if (handover === null) return;
    await verifyHandover(handover, identity, origin);
    if (held !== null && !equal(encodeObject("Handover", held), encodeObject("Handover", handover))) {
      throw new VerificationError("the hub shows another handover than the one that it signed before (RESOLUTIONS P9)");
    }
    if (this.seenHubTs > handover.hub_ts) {
      throw new VerificationError(
        `the hub signed a receipt at ${this.seenHubTs}, after the handover that it signed at ${handover.hub_ts} (RESOLUTIONS P9)`);
    }
  }
}

/** Check that an identity continues an earlier one: keys are only added, and only ended by a successor (core §8.4). */
function checkSuccessor(held: HubIdentity, shown: HubIdentity, seen: bigint): void {
  if (shown.hub_keys.length < held.hub_keys.length) {
    throw new IdentityError("hub-identity (core §8.4): a key of the earlier record is missing");
  }
  for (const [at, old] of held.hub_keys.entries()) {
    const fresh = shown.hub_keys[at] as HubKey;
    const plain = (key: HubKey) => hex(encodeObject("HubKey", { ...key, valid_until: null }));
    if (plain(fresh) !== plain(old)) throw new IdentityError("hub-identity (core §8.4): a key was replaced");
    if (old.valid_until !== null && fresh.valid_until !== old.valid_until) {
      throw new IdentityError("hub-identity (core §8.4): the valid_until of a key was changed");
    }
    if (old.valid_until === null && fresh.valid_until !== null) {
      const next = shown.hub_keys[at + 1];
      if (next === undefined || fresh.valid_until < next.valid_from) {
        throw new IdentityError("hub-identity (core §8.4): a key ends before its successor becomes valid");
      }
      if (fresh.valid_until <= seen) {
        throw new IdentityError(
          `hub-identity (core §8.4): a key ends at ${fresh.valid_until}, but it signed a receipt at ${seen}`,
        );
      }
    }
  }
}

function recall(): string | undefined {
  try {
    const held: unknown = JSON.parse(localStorage.getItem(STORE) ?? "null");
    const found = typeof held === "object" && held !== null && "hub_id" in held ? held.hub_id : undefined;
    return typeof found === "string" ? found : undefined;
  } catch {
    return undefined;
  }
}
