"""WAL §6's pseudocode, line by line, for one wallet: the independent reference for the monoid. Slow on
purpose.

Written from the document, sharing nothing with the package but its records. Duplicates as 5.5 and 11.4
say: a set of identities, and a set of transfer_ids for each direction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from veen_overlays.fold.event import Message
from veen_overlays.schema.record import Record, decode_record
from veen_overlays.wallet import records as wal

SHAPES = {bytes(shape.SCHEMA): shape for shape in wal.WALLET_RECORDS}


def needs_reset(last: int, now: int) -> bool:
    return now // 86400 != last // 86400


@dataclass
class Interpreter:
    wallet_id: bytes
    exists: bool = False
    closed: bool = False
    balance: int = 0
    frozen: bool = False
    daily_limit: int | None = None
    pending_daily_spent: int = 0
    last_limit_reset_ts: int = 0
    seen_identities: set[tuple[bytes, bytes, bytes]] = field(default_factory=set)
    seen_debits: set[bytes] = field(default_factory=set)
    seen_credits: set[bytes] = field(default_factory=set)

    def feed(self, message: Message) -> None:
        original = message.parent_id if message.parent_id is not None else message.msg_id
        identity = original, message.schema, message.body  # copies are byte for byte (WALBR0 11.3)
        if identity in self.seen_identities:
            return
        self.seen_identities.add(identity)
        shape = SHAPES.get(message.schema)
        if shape is None:
            return
        e = decode_record((shape,), message.body)
        if not isinstance(e, Record):
            return
        if isinstance(e, wal.Transfer):
            self.transfer(e)
        elif e.wallet_id == self.wallet_id:  # type: ignore[attr-defined]
            self.step(e)

    def step(self, e: Any) -> None:  # noqa: PLR0912 - as long as the document's own
        if isinstance(e, wal.Open):
            if not self.exists:
                self.exists = True
                self.closed = False
                self.balance = 0
                self.frozen = False
                self.daily_limit = None
                self.pending_daily_spent = 0
                self.last_limit_reset_ts = e.created_at
        elif isinstance(e, wal.Close):
            if self.exists:
                self.closed = True
        elif isinstance(e, wal.Limit):
            if e.daily_limit is None:
                self.daily_limit = None
            else:
                self.daily_limit = e.daily_limit
                if self.last_limit_reset_ts == 0:
                    self.last_limit_reset_ts = e.ts
        elif isinstance(e, wal.Freeze):
            if self.exists:
                self.frozen = True
        elif isinstance(e, wal.Unfreeze):
            if self.exists:
                self.frozen = False
        elif isinstance(e, wal.Deposit):
            if self.exists and not self.closed:
                self.balance += e.amount
        elif isinstance(e, wal.Withdraw):
            if self.exists and not self.closed and not self.frozen:
                self.debit(e)
        elif isinstance(e, wal.Adjust):  # noqa: SIM102 - as the document writes it
            if self.exists and not self.closed:
                self.balance = self.balance + e.delta

    def debit(self, e: Any) -> None:
        if self.daily_limit is not None:
            if needs_reset(self.last_limit_reset_ts, e.ts):
                self.pending_daily_spent = 0
                self.last_limit_reset_ts = e.ts
            self.pending_daily_spent += e.amount
        self.balance -= e.amount

    def transfer(self, e: wal.Transfer) -> None:
        if e.wallet_id == self.wallet_id:
            first = e.transfer_id not in self.seen_debits
            self.seen_debits.add(e.transfer_id)
            if first and self.exists and not self.closed and not self.frozen:
                self.debit(e)
        elif e.to_wallet_id == self.wallet_id:
            first = e.transfer_id not in self.seen_credits
            self.seen_credits.add(e.transfer_id)
            if first and self.exists and not self.closed:
                self.balance += e.amount

    def state(self) -> dict[str, Any]:
        names = "exists closed balance frozen daily_limit pending_daily_spent last_limit_reset_ts"
        return {name: getattr(self, name) for name in names.split()}
