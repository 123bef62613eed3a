"""Wallets at the hub: balances follow from the log, and forbidden payments are reported (WAL §5, §6)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.hashing import H
from veen_core.ids import StreamSeq, UnixTime
from veen_hub.client import Identity
from veen_overlays.identifiers import CtxId, RealmId, TransferId, wallet_id
from veen_overlays.live.opening import open_entry
from veen_overlays.schema.record import Record
from veen_overlays.wallet.ledger import LEDGER, state_of
from veen_overlays.wallet.records import Deposit, Freeze, Open, Transfer, Withdraw
from veen_overlays.wallet.rules import WalCode, violations
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.overlay_reader import connected, folded, writable_hub
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext

CURRENCY: Final = "EUR"


def _wallets(context: CheckContext) -> None:
    """Balances add up for every reader, and an audit names each forbidden payment with its code."""
    asyncio.run(_pay_and_audit(context, writable_hub(context)))


async def _pay_and_audit(context: CheckContext, hub: HttpHub) -> None:
    teller, auditor = (Identity.generate(context.rng.randbytes) for _ in range(2))
    name, realm = context.stream_name("ledger"), RealmId(H(b"realm" + context.secret))
    accounts = [CtxId(H(f"account {n}".encode() + context.secret)) for n in range(2)]
    alice, bob = (wallet_id(realm, account, CURRENCY) for account in accounts)
    ts = UnixTime(1_700_000_000)

    def transfer(amount: int, number: int) -> Transfer:
        id_ = TransferId(H(f"transfer {number}".encode() + context.secret))
        return Transfer(wallet_id=alice, to_wallet_id=bob, amount=amount, ts=ts, transfer_id=id_)

    opened = [
        Open(wallet_id=wallet, realm_id=realm, ctx_id=account, currency=CURRENCY, created_at=ts)
        for wallet, account in zip((alice, bob), accounts, strict=True)
    ]
    records: list[Record] = [
        *opened,
        Deposit(wallet_id=alice, amount=100, ts=ts),
        transfer(30, 1),
        transfer(30, 1),  # the same transfer again: it counts once (WAL 5.5)
        Withdraw(wallet_id=bob, amount=31, ts=ts),  # forbidden: bob has 30
        Freeze(wallet_id=alice, ts=ts),
        transfer(5, 2),  # forbidden: alice is frozen; only bob's wallet changes (WAL §6)
        Deposit(wallet_id=bob, amount=7, ts=ts),
    ]
    async with connected(hub, teller) as connection:
        async for _receipt in connection.stream(name, readers=auditor.dh_keys).send_many(records):
            pass
    async with connected(hub, auditor) as connection:
        state = await folded(connection, name, LEDGER, auditor.dh_keys)
        label = connection.stream(name).label()
        entries = await connection.log_reader().page(label, StreamSeq(1), len(records))
    messages = [open_entry(entry, entry.receipt, auditor.dh_keys) for entry in entries]
    reported = [(found.seq, found.code) for found in violations(messages)]
    require_equal(
        reported, [(6, WalCode.INSUFFICIENT_FUNDS), (8, WalCode.FROZEN)], "violations that an audit reports"
    )
    balances = [state_of(state, wallet).balance for wallet in (alice, bob)]
    require_equal(balances, [70, 11], "balances after all events (WAL §6)")


CHECKS: Final = (Check("overlay.wallets", "WAL §5.5, §6", _wallets),)
