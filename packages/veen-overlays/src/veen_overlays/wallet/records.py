"""Declarations of the nine wallet records (WAL §5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from veen_core.ids import UnixTime
from veen_core.kinds import SIGNED
from veen_core.wire import EXPLICIT
from veen_overlays.identifiers import CtxId, RealmId, TransferId, WalletId, wallet_id
from veen_overlays.schema.record import Record, RecordRule, is_map, record

_CURRENCY_IS_ASCII = RecordRule("currency is ASCII", lambda r: r.currency.isascii())
_WALLET_ID_MATCHES = RecordRule(
    "wallet_id is derived from realm_id, ctx_id and currency",
    lambda r: r.wallet_id == wallet_id(r.realm_id, r.ctx_id, r.currency),
)


@record("wallet.open.v1", section="WAL 5.1", rules=(_CURRENCY_IS_ASCII, _WALLET_ID_MATCHES))
@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Record):
    """Open a wallet; has no effect on a wallet that exists."""

    wallet_id: WalletId
    realm_id: RealmId
    ctx_id: CtxId
    currency: str
    created_at: UnixTime


@record("wallet.close.v1", section="WAL 5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Record):
    """Close a wallet; a closed wallet cannot be opened again."""

    wallet_id: WalletId
    ts: UnixTime


@record("wallet.deposit.v1", section="WAL 5.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit(Record):
    """Pay money into a wallet from outside."""

    wallet_id: WalletId
    amount: int
    ts: UnixTime
    ref: bytes | None = None


@record("wallet.withdraw.v1", section="WAL 5.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw(Record):
    """Pay money out of a wallet to the outside."""

    wallet_id: WalletId
    amount: int
    ts: UnixTime
    ref: bytes | None = None


@record("wallet.transfer.v1", section="WAL 5.5", rules=(is_map("metadata"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Record):
    """Pay from ``wallet_id`` to ``to_wallet_id``: one event debits the first and credits the second."""

    wallet_id: WalletId
    to_wallet_id: WalletId
    amount: int
    ts: UnixTime
    transfer_id: TransferId
    metadata: Any | None = None


@record("wallet.adjust.v1", section="WAL 5.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust(Record):
    """Correct a balance by ``delta``; reserved to operators."""

    wallet_id: WalletId
    delta: Annotated[int, SIGNED]
    ts: UnixTime
    reason: str
    ref: bytes | None = None


@record("wallet.limit.v1", section="WAL 5.7")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Record):
    """Set the daily limit of outgoing payments; null clears the limit."""

    wallet_id: WalletId
    daily_limit: Annotated[int | None, EXPLICIT]
    ts: UnixTime


@record("wallet.freeze.v1", section="WAL 5.8")
@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze(Record):
    """Freeze a wallet: outgoing payments stop, incoming ones still count."""

    wallet_id: WalletId
    ts: UnixTime
    reason: str | None = None


@record("wallet.unfreeze.v1", section="WAL 5.9")
@dataclass(frozen=True, slots=True, kw_only=True)
class Unfreeze(Record):
    """Unfreeze a wallet: outgoing payments are possible again."""

    wallet_id: WalletId
    ts: UnixTime
    reason: str | None = None


WALLET_RECORDS: tuple[type[Record], ...] = (
    Open,
    Close,
    Deposit,
    Withdraw,
    Transfer,
    Adjust,
    Limit,
    Freeze,
    Unfreeze,
)
