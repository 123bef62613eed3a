"""The rules of wallets: a producer must not break them, a verifier reports it (WAL 5.3-5.6, §13, §15).

The fold follows WAL §6 and applies every event of the log. Whether an event was allowed is decided by one
table, used in two places: a producer calls ``refusal`` before it sends a record, a verifier calls
``violations`` on a log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen_overlays.fold.event import Event, MemorySeenKeys, Message, SeenKeys
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import NEVER_OPENED, WalletState
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.records import (
    Adjust,
    Close,
    Deposit,
    Freeze,
    Limit,
    Open,
    Transfer,
    Unfreeze,
    Withdraw,
)
from veen_overlays.wallet.window import DAY_SEC


class WalCode(enum.StrEnum):
    """The codes of WAL §13, and further ones for rules without a code there.

    The last three concern transfers between two logs (``settlement``).
    """

    UNAUTHORIZED_OPERATION = "WAL.UNAUTHORIZED_OPERATION"
    INVALID_CURRENCY = "WAL.INVALID_CURRENCY"
    ALREADY_OPEN = "WAL.ALREADY_OPEN"
    NOT_OPEN = "WAL.NOT_OPEN"
    CLOSED = "WAL.CLOSED"
    FROZEN = "WAL.FROZEN"
    SELF_TRANSFER = "WAL.SELF_TRANSFER"
    DAILY_LIMIT_EXCEEDED = "WAL.DAILY_LIMIT_EXCEEDED"
    INSUFFICIENT_FUNDS = "WAL.INSUFFICIENT_FUNDS"
    NOT_EMPTY = "WAL.NOT_EMPTY"
    DUPLICATE_TRANSFER = "WAL.DUPLICATE_TRANSFER"
    DUPLICATE_REF = "WAL.DUPLICATE_REF"
    NOT_DEBITED = "WAL.NOT_DEBITED"
    NOT_CREDITED = "WAL.NOT_CREDITED"
    UNVERIFIED = "WAL.UNVERIFIED"


USER_RECORDS: Final[frozenset[type[Record]]] = frozenset((Open, Withdraw, Transfer, Close))
"""The records that an end user's device may send (WAL §8); all others are reserved to operators."""


class WalletRefusal(NamedTuple):
    """The code and the reason why a record must not be sent."""

    code: WalCode
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletPolicy:
    """Restrictions that a deployment adds (WAL 2.2, §8); None restricts nothing."""

    currencies: frozenset[str] | None = None
    """The currency codes in which wallets may be opened."""
    operators: frozenset[bytes] | None = None
    """The keys that may send every record; other keys may send ``USER_RECORDS`` only.

    A key is a service's, which signs messages, or an organisation's, which issued the service's token (WAL
    §8).
    """

    def refusal(self, record: Record, authors: Collection[bytes]) -> WalletRefusal | None:
        """Why a sender with these keys may not send the record; None if it may."""
        ordinary = self.operators is not None and self.operators.isdisjoint(authors)
        if ordinary and type(record) not in USER_RECORDS:
            return WalletRefusal(WalCode.UNAUTHORIZED_OPERATION, f"only an operator may send {record.NAME}")
        if self.currencies is None or not isinstance(record, Open) or record.currency in self.currencies:
            return None
        known = ", ".join(sorted(self.currencies)) or "none"
        return WalletRefusal(
            WalCode.INVALID_CURRENCY, f"{record.currency} is not a currency of this deployment ({known})"
        )


NO_RESTRICTION: Final = WalletPolicy()


class WalletViolation(NamedTuple):
    """An event of a log that the rules forbid."""

    seq: int
    origin: bytes
    """The msg_id of the message, or of the message it is a copy of."""
    wallet_id: bytes
    code: WalCode
    why: str


RuleCheck = Callable[[WalletState, Any], str | None]
"""Why a record is forbidden for a wallet in this state; None if the rule allows it."""


def _not_open(state: WalletState, _record: Any) -> str | None:
    return None if state.exists else "the wallet was never opened"


def _already_open(state: WalletState, _record: Any) -> str | None:
    return "the wallet is open already" if state.exists else None


def _closed(state: WalletState, _record: Any) -> str | None:
    return "the wallet is closed" if state.closed else None


def _frozen(state: WalletState, _record: Any) -> str | None:
    return "the wallet is frozen" if state.frozen else None


def _same_wallet(_state: WalletState, record: Transfer) -> str | None:
    return "source and destination are the same wallet" if record.wallet_id == record.to_wallet_id else None


def spent_today(state: WalletState, ts: int) -> int:
    """The amount that counts against the daily limit at ``ts``; earlier days do not count (WAL 5.4)."""
    return state.pending_daily_spent if ts // DAY_SEC == state.last_limit_reset_ts // DAY_SEC else 0


def _over_limit(state: WalletState, record: Withdraw | Transfer) -> str | None:
    if state.daily_limit is None:
        return None
    spent = spent_today(state, record.ts)
    if spent + record.amount <= state.daily_limit:
        return None
    return (
        f"the daily limit is {state.daily_limit}, {spent} are spent, and {record.amount} more would exceed it"
    )


def _overdraft(state: WalletState, record: Withdraw | Transfer) -> str | None:
    return (
        None
        if state.balance >= record.amount
        else f"the balance is {state.balance}, less than {record.amount}"
    )


def _below_zero(state: WalletState, record: Adjust) -> str | None:
    left = state.balance + record.delta
    return None if left >= 0 else f"the balance would be {left}"


def _not_empty(state: WalletState, _record: Any) -> str | None:
    return f"the balance is {state.balance}, not 0" if state.balance else None


PAYS_OUT: Final = (Withdraw, Transfer)
MOVES: Final = (Deposit, *PAYS_OUT, Adjust)

RULES: Final[tuple[tuple[tuple[type[Record], ...], WalCode, RuleCheck, bool], ...]] = (
    ((Open,), WalCode.ALREADY_OPEN, _already_open, False),
    ((*MOVES, Close, Limit, Freeze, Unfreeze), WalCode.NOT_OPEN, _not_open, True),
    ((*MOVES, Close), WalCode.CLOSED, _closed, True),
    (PAYS_OUT, WalCode.FROZEN, _frozen, True),
    ((Transfer,), WalCode.SELF_TRANSFER, _same_wallet, True),
    (PAYS_OUT, WalCode.DAILY_LIMIT_EXCEEDED, _over_limit, True),
    (PAYS_OUT, WalCode.INSUFFICIENT_FUNDS, _overdraft, True),
    ((Adjust,), WalCode.INSUFFICIENT_FUNDS, _below_zero, True),
    ((Close,), WalCode.NOT_EMPTY, _not_empty, False),
)
"""The rules: records, code, check, and whether a verifier reports it too. The first broken rule counts."""


def refusal(
    state: WalletState, record: Record, policy: WalletPolicy = NO_RESTRICTION, authors: Collection[bytes] = ()
) -> WalletRefusal | None:
    """Why a producer with these keys must not send this record for a wallet in this state; None if it may."""
    return policy.refusal(record, authors) or next(_broken(state, record, reported=False), None)


def violation_of(state: WalletState, record: Record) -> WalletRefusal | None:
    """The violation that a verifier reports for a record that follows this state; None if it is allowed.

    Unlike ``refusal``, it allows a second opening, and the closing of a wallet with money: neither changes a
    balance, so only a producer refuses them.
    """
    return next(_broken(state, record, reported=True), None)


def _broken(state: WalletState, record: Record, *, reported: bool) -> Iterator[WalletRefusal]:
    for records, code, breaks, is_violation in RULES:
        if isinstance(record, records) and (is_violation or not reported):
            why = breaks(state, record)
            if why is not None:
                yield WalletRefusal(code, why)


def violations(
    messages: Iterable[Message],
    seen: SeenKeys | None = None,
    *,
    policy: WalletPolicy = NO_RESTRICTION,
    authors: Callable[[Message], Collection[bytes]] = lambda _message: (),
) -> Iterator[WalletViolation]:
    """Every forbidden event of a log, read from its start, in stream order (WAL 5.4-5.6).

    ``authors`` returns the keys that sent a message; only a policy with operators needs it. If a mirrored
    transfer's source wallet is not in this log, only its credit is checked: the debit belongs to the source's
    log (WAL 5.5), and ``settlement`` compares the two logs.
    """
    states: dict[bytes, WalletState] = {}
    refs: dict[tuple[bytes, bytes], int] = {}
    seen = MemorySeenKeys() if seen is None else seen
    for message in messages:
        event = LEDGER.distinct(message, seen)
        if not isinstance(event, Event):
            continue
        wallet = bytes(event.record.wallet_id)  # type: ignore[attr-defined]  # every wallet record has one
        if (refused := policy.refusal(event.record, authors(message))) is not None:
            yield WalletViolation(event.seq, message.origin, wallet, *refused)
        credit_only = message.parent_id is not None and not states.get(wallet, NEVER_OPENED).exists
        debited_before = isinstance(event.record, Transfer) and event.repeated[:1] == (True,)
        if not credit_only and not debited_before:
            yield from _source_violations(states, event, message.origin)
            yield from _ref_violations(states, refs, event, message.origin)
        yield from _destination_violations(states, event, message.origin)
        yield from _transfer_id_violations(event, message.origin)
        advance(states, event)


def advance(states: dict[bytes, WalletState], event: Event) -> None:
    """Apply one event to the states of the wallets it names (WAL §6)."""
    for wallet, account in LEDGER.lift(event).items():
        states[wallet] = account.apply(states.get(wallet, NEVER_OPENED))


def _source_violations(
    states: dict[bytes, WalletState], event: Event, origin: bytes
) -> Iterator[WalletViolation]:
    wallet = bytes(event.record.wallet_id)  # type: ignore[attr-defined]  # every wallet record has one
    broken = violation_of(states.get(wallet, NEVER_OPENED), event.record)
    if broken is not None:
        yield WalletViolation(event.seq, origin, wallet, *broken)


def _ref_violations(
    states: dict[bytes, WalletState], refs: dict[tuple[bytes, bytes], int], event: Event, origin: bytes
) -> Iterator[WalletViolation]:
    """Report a second payout under one ref, which is a retry by WAL §7, although the fold pays it."""
    if not isinstance(record := event.record, Withdraw) or record.ref is None:
        return
    wallet = bytes(record.wallet_id)
    if not states.get(wallet, NEVER_OPENED).pays_out:
        return
    first = refs.setdefault((wallet, record.ref), event.seq)
    if first != event.seq:
        why = paid_under_ref(first)
        yield WalletViolation(event.seq, origin, wallet, WalCode.DUPLICATE_REF, why)


def paid_under_ref(seq: int) -> str:
    """The text of a DUPLICATE_REF violation; message ``seq`` was the first payout under the ref."""
    return f"message {seq} has paid out under this ref"


def _transfer_id_violations(event: Event, origin: bytes) -> Iterator[WalletViolation]:
    """Report a second transfer under a transfer_id, of which the fold counts only one half (WAL 5.5)."""
    if not isinstance(record := event.record, Transfer) or len(set(event.repeated)) != 2:
        return
    debited_before = event.repeated[0]
    wallet = record.wallet_id if debited_before else record.to_wallet_id
    why = "credited without a debit" if debited_before else "debited without a credit"
    why = f"another transfer has the same transfer_id: {why}"
    yield WalletViolation(event.seq, origin, bytes(wallet), WalCode.DUPLICATE_TRANSFER, why)


def _destination_violations(
    states: dict[bytes, WalletState], event: Event, origin: bytes
) -> Iterator[WalletViolation]:
    """Report a credit to a wallet that this log closed: the money is lost (WAL §6)."""
    record = event.record
    if not isinstance(record, Transfer) or record.to_wallet_id == record.wallet_id:
        return
    wallet, credited_before = bytes(record.to_wallet_id), bool(event.repeated and event.repeated[1])
    if states.get(wallet, NEVER_OPENED).closed and not credited_before:
        why = "the destination is closed and was not credited"
        yield WalletViolation(event.seq, origin, wallet, WalCode.CLOSED, why)
