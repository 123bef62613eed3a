/**
 * Wallets of a stream, folded as WAL §6 says: every event counts once, and a transfer once for each of its sides (WAL 5.5).
 *
 * The fold applies every event. Whether an event was allowed is decided by `veen wallet verify`.
 */
import { type Bytes, equal, hex } from "../../verify/wire/bytes.ts";
import { CborMap } from "../../verify/wire/cbor.ts";
import type { FoldedEvent } from "./folded_events.ts";
import { walletId } from "./identifiers.ts";
import { type DecodedRecord, fieldsOf } from "./record.ts";

const DAY_SEC = 86_400n;

/** The state of a wallet (WAL §4). */
export interface Wallet {
  exists: boolean;
  closed: boolean;
  balance: bigint;
  frozen: boolean;
  daily_limit: bigint | null;
  pending_daily_spent: bigint;
  last_limit_reset_ts: bigint;
}

const untouched = (): Wallet => ({
  exists: false, closed: false, balance: 0n, frozen: false, daily_limit: null, pending_daily_spent: 0n, last_limit_reset_ts: 0n,
});

/** Fold the wallet events of a stream; return the wallets by their ids in hex, in the order of the ids. */
export function walletsOf(events: readonly FoldedEvent[]): Map<string, Wallet> {
  const ledger = new Ledger();
  for (const { record } of events) ledger.apply(record);
  const idle = JSON.stringify(untouched(), written);
  return new Map([...ledger.wallets].sort(([a], [b]) => (a < b ? -1 : 1)).filter(([, wallet]) => JSON.stringify(wallet, written) !== idle));
}

const written = (_key: string, value: unknown): unknown => (typeof value === "bigint" ? String(value) : value);

class Ledger {
  readonly wallets = new Map<string, Wallet>();
  readonly #transfers = new Set<string>();

  apply(record: DecodedRecord): void {
    this.#control(record);
    const deposit = fieldsOf(record, "wallet.deposit.v1");
    if (deposit !== undefined) this.#credit(deposit.wallet_id, deposit.amount);
    const adjust = fieldsOf(record, "wallet.adjust.v1");
    if (adjust !== undefined) this.#credit(adjust.wallet_id, adjust.delta);
    const withdraw = fieldsOf(record, "wallet.withdraw.v1");
    if (withdraw !== undefined) this.#debit(withdraw.wallet_id, withdraw.amount, withdraw.ts);
    const transfer = fieldsOf(record, "wallet.transfer.v1");
    if (transfer === undefined || !(transfer.metadata === null || transfer.metadata instanceof CborMap)) return;
    const { wallet_id: from, to_wallet_id: to, transfer_id: id, amount, ts } = transfer;
    if (this.#isFirst("debit", from, id)) this.#debit(from, amount, ts);
    if (!equal(from, to) && this.#isFirst("credit", to, id)) this.#credit(to, amount);
  }

  /** Apply what changes no balance: opening, closing, limit, freeze (WAL 5.1, 5.2, 5.7 to 5.9). */
  #control(record: DecodedRecord): void {
    const open = fieldsOf(record, "wallet.open.v1");
    if (open !== undefined && isDerived(open)) {
      const wallet = this.#wallet(open.wallet_id);
      if (!wallet.exists) Object.assign(wallet, untouched(), { exists: true, last_limit_reset_ts: open.created_at });
    }
    const close = fieldsOf(record, "wallet.close.v1");
    if (close !== undefined && this.#wallet(close.wallet_id).exists) this.#wallet(close.wallet_id).closed = true;
    const limit = fieldsOf(record, "wallet.limit.v1");
    if (limit !== undefined) {
      const wallet = this.#wallet(limit.wallet_id);
      wallet.daily_limit = limit.daily_limit;
      if (limit.daily_limit !== null && wallet.last_limit_reset_ts === 0n) wallet.last_limit_reset_ts = limit.ts;
    }
    const frozen = fieldsOf(record, "wallet.freeze.v1");
    const stop = frozen ?? fieldsOf(record, "wallet.unfreeze.v1");
    if (stop !== undefined && this.#wallet(stop.wallet_id).exists) this.#wallet(stop.wallet_id).frozen = frozen !== undefined;
  }

  #wallet(id: Bytes): Wallet {
    const held = this.wallets.get(hex(id)) ?? untouched();
    this.wallets.set(hex(id), held);
    return held;
  }

  /** Whether this side of a transfer counts: a transfer_id counts once per wallet (WAL 5.5). */
  #isFirst(side: "debit" | "credit", wallet: Bytes, transfer: Bytes): boolean {
    const key = side + hex(wallet) + hex(transfer);
    const isFirst = !this.#transfers.has(key);
    this.#transfers.add(key);
    return isFirst;
  }

  #credit(id: Bytes, amount: bigint): void {
    const wallet = this.#wallet(id);
    if (wallet.exists && !wallet.closed) wallet.balance += amount;
  }

  #debit(id: Bytes, amount: bigint, ts: bigint): void {
    const wallet = this.#wallet(id);
    if (!wallet.exists || wallet.closed || wallet.frozen) return;
    if (wallet.daily_limit !== null) {
      if (ts / DAY_SEC !== wallet.last_limit_reset_ts / DAY_SEC) {
        wallet.pending_daily_spent = 0n;
        wallet.last_limit_reset_ts = ts;
      }
      wallet.pending_daily_spent += amount;
    }
    wallet.balance -= amount;
  }
}

/** Whether an opening is valid: its currency is ASCII, and its wallet_id follows from realm, account and currency (WAL 2.3). */
function isDerived(open: { readonly wallet_id: Bytes; readonly realm_id: Bytes; readonly ctx_id: Bytes; readonly currency: string }): boolean {
  return /^[\x00-\x7f]*$/.test(open.currency) && equal(open.wallet_id, walletId(open.realm_id, open.ctx_id, open.currency));
}
