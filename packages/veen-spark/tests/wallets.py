"""A wallet's log with every kind of duplicate: copies, false copies, repeated transfers."""

from __future__ import annotations

from veen_core.ids import LeafHash
from veen_overlays.identifiers import CtxId, RealmId, TransferId
from veen_overlays.schema.record import Record
from veen_overlays.wallet.records import Deposit, Open, Transfer

from .logs import BORN, Hub
from .records import WALLETS


def transfer(n: int, amount: int = 5, *, back: bool = False) -> Transfer:
    a, b = (WALLETS[1], WALLETS[0]) if back else WALLETS[:2]
    return Transfer(
        wallet_id=a, to_wallet_id=b, amount=amount, ts=BORN, transfer_id=TransferId(bytes([n]) * 32)
    )


def opened(n: int) -> Open:
    realm = RealmId(bytes([n]) * 32)
    return Open(
        wallet_id=WALLETS[n], realm_id=realm, ctx_id=CtxId(bytes(realm)), currency="USD", created_at=BORN
    )


def deposit(amount: int) -> Deposit:
    return Deposit(wallet_id=WALLETS[0], amount=amount, ts=BORN)


def mirror(hub: Hub, name: str, *, reader: str) -> None:
    """Write 19 messages, with originals before and after their copies."""

    def send(*records: Record, parents: list[LeafHash | None] | None = None) -> list[LeafHash]:
        return [r.leaf_hash for r in hub.send_records(name, records, reader=reader, parents=parents)]

    send(opened(0), opened(1))
    first = send(transfer(1), deposit(7), transfer(2), deposit(9))
    send(deposit(100), transfer(1), transfer(3))
    send(transfer(1), deposit(7), parents=[*first[:2]])
    unseen = LeafHash(b"\x09" * 32)
    send(transfer(4), parents=[unseen])
    send(deposit(11), transfer(5), transfer(2, back=True), parents=[unseen, None, None])
    send(transfer(6), parents=[first[3]])  # a copy of a deposit that lies: it is dropped,
    send(transfer(6, 70), deposit(1), transfer(5))  # so that this is the first with id 6
