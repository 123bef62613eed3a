"""What a wallet does not allow: refused before it is emitted, reported where it was (WAL 5.3-5.6, §13, §15).

The fold follows §6 and applies what stands in the log. Whether it should stand there is decided by one
table, in two places: a producer asks ``refusal`` before it emits, a verifier asks ``violations`` of a log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen_overlays.fold.event import Event, MemorySeenKeys, Message, SeenKeys
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import NEVER_OPENED, State
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
    """WAL §13's codes, and those that its rules need besides.

    The last three are of transfers between two logs (``settlement``).
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
"""What §8 leaves to end users' devices: no deposit, adjust, limit, freeze or unfreeze."""


class Refusal(NamedTuple):
    """Why an event must not be emitted."""

    code: WalCode
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletPolicy:
    """What a deployment decides (WAL 2.2, §8). None: no restriction."""

    currencies: frozenset[str] | None = None
    """The codes in which wallets may be opened."""
    operators: frozenset[bytes] | None = None
    """The keys that may emit every record, all others only ``USER_RECORDS``: of services, which sign, or of
    organisations, whose tokens the services act with (§8)."""

    def refusal(self, record: Record, authors: Collection[bytes]) -> Refusal | None:
        """Why whoever has these keys may not emit the record."""
        ordinary = self.operators is not None and self.operators.isdisjoint(authors)
        if ordinary and type(record) not in USER_RECORDS:
            return Refusal(WalCode.UNAUTHORIZED_OPERATION, f"only an operator may emit {record.NAME}")
        if self.currencies is None or not isinstance(record, Open) or record.currency in self.currencies:
            return None
        known = ", ".join(sorted(self.currencies)) or "there are none"
        return Refusal(
            WalCode.INVALID_CURRENCY, f"{record.currency} is none of this deployment's codes: {known}"
        )


NO_RESTRICTION: Final = WalletPolicy()


class Violation(NamedTuple):
    """An event in a log that should not be there."""

    seq: int
    origin: bytes
    """The message's id, or that of the one it is a copy of."""
    wallet_id: bytes
    code: WalCode
    why: str


Broken = Callable[[State, Any], str | None]
"""What is wrong with a record for a wallet in this state; None: nothing."""


def _not_open(state: State, _record: Any) -> str | None:
    return None if state.exists else "the wallet was never opened; emit wallet.open.v1 first"


def _already_open(state: State, _record: Any) -> str | None:
    return "the wallet is open already" if state.exists else None


def _closed(state: State, _record: Any) -> str | None:
    return "the wallet is closed for good" if state.closed else None


def _frozen(state: State, _record: Any) -> str | None:
    return "the wallet is frozen; it pays out again after wallet.unfreeze.v1" if state.frozen else None


def _to_oneself(_state: State, record: Transfer) -> str | None:
    return "source and destination are one wallet" if record.wallet_id == record.to_wallet_id else None


def spent_today(state: State, ts: int) -> int:
    """What counts against the limit at ``ts``: nothing of an earlier day (5.4)."""
    return state.pending_daily_spent if ts // DAY_SEC == state.last_limit_reset_ts // DAY_SEC else 0


def _over_limit(state: State, record: Withdraw | Transfer) -> str | None:
    if state.daily_limit is None:
        return None
    spent = spent_today(state, record.ts)
    if spent + record.amount <= state.daily_limit:
        return None
    return f"{spent} of {state.daily_limit} are spent that day, {record.amount} more do not fit"


def _overdraft(state: State, record: Withdraw | Transfer) -> str | None:
    return None if state.balance >= record.amount else f"the balance is {state.balance}, not {record.amount}"


def _below_zero(state: State, record: Adjust) -> str | None:
    left = state.balance + record.delta
    return None if left >= 0 else f"the balance would be {left}"


def _not_empty(state: State, _record: Any) -> str | None:
    return f"the balance is {state.balance}; pay it out first" if state.balance else None


PAYS_OUT: Final = (Withdraw, Transfer)
MOVES: Final = (Deposit, *PAYS_OUT, Adjust)

RULES: Final[tuple[tuple[tuple[type[Record], ...], WalCode, Broken, bool], ...]] = (
    ((Open,), WalCode.ALREADY_OPEN, _already_open, False),
    ((*MOVES, Close, Limit, Freeze, Unfreeze), WalCode.NOT_OPEN, _not_open, True),
    ((*MOVES, Close), WalCode.CLOSED, _closed, True),
    (PAYS_OUT, WalCode.FROZEN, _frozen, True),
    ((Transfer,), WalCode.SELF_TRANSFER, _to_oneself, True),
    (PAYS_OUT, WalCode.DAILY_LIMIT_EXCEEDED, _over_limit, True),
    (PAYS_OUT, WalCode.INSUFFICIENT_FUNDS, _overdraft, True),
    ((Adjust,), WalCode.INSUFFICIENT_FUNDS, _below_zero, True),
    ((Close,), WalCode.NOT_EMPTY, _not_empty, False),
)
"""For which records, which code, when, and whether a verifier reports it too. The first broken one counts."""


def refusal(
    state: State, record: Record, policy: WalletPolicy = NO_RESTRICTION, authors: Collection[bytes] = ()
) -> Refusal | None:
    """Why a producer with these keys must not emit this record for a wallet in this state; None: it may."""
    return policy.refusal(record, authors) or next(_broken(state, record, reported=False), None)


def violation_of(state: State, record: Record) -> Refusal | None:
    """What a verifier reports of a record that was emitted for a wallet in this state; None: nothing.

    A producer's check and its emission are two steps: another producer's event may come between them.
    """
    return next(_broken(state, record, reported=True), None)


def _broken(state: State, record: Record, *, reported: bool) -> Iterator[Refusal]:
    for records, code, breaks, is_violation in RULES:
        if isinstance(record, records) and (is_violation or not reported):
            why = breaks(state, record)
            if why is not None:
                yield Refusal(code, why)


def violations(
    messages: Iterable[Message],
    seen: SeenKeys | None = None,
    *,
    policy: WalletPolicy = NO_RESTRICTION,
    authors: Callable[[Message], Collection[bytes]] = lambda _message: (),
) -> Iterator[Violation]:
    """Every event of a log, from its start, that a verifier must report; in stream order (5.4-5.6).

    ``authors`` says which keys stand behind a message: a policy about operators needs it. Of a copy whose
    wallet this log does not know nothing is reported: it is mirrored for its credit, the rest is its own
    log's (5.5), and ``settlement`` compares the two.
    """
    states: dict[bytes, State] = {}
    refs: dict[tuple[bytes, bytes], int] = {}
    seen = MemorySeenKeys() if seen is None else seen
    for message in messages:
        event = LEDGER.distinct(message, seen)
        if not isinstance(event, Event):
            continue
        wallet = bytes(event.record.wallet_id)  # type: ignore[attr-defined]  # every wallet record has one
        if (refused := policy.refusal(event.record, authors(message))) is not None:
            yield Violation(event.seq, message.origin, wallet, *refused)
        only_credits = message.parent_id is not None and not states.get(wallet, NEVER_OPENED).exists
        if not only_credits and not (event.repeated and event.repeated[0]):
            yield from _of_source(states, event, message.origin)
            yield from _of_its_ref(states, refs, event, message.origin)
        yield from _of_destination(states, event, message.origin)
        yield from _of_its_id(event, message.origin)
        advance(states, event)


def advance(states: dict[bytes, State], event: Event) -> None:
    """One event on, for the wallets it names (§6)."""
    for wallet, account in LEDGER.lift(event).items():
        states[wallet] = account.apply(states.get(wallet, NEVER_OPENED))


def _of_source(states: dict[bytes, State], event: Event, origin: bytes) -> Iterator[Violation]:
    wallet = bytes(event.record.wallet_id)  # type: ignore[attr-defined]  # every wallet record has one
    broken = violation_of(states.get(wallet, NEVER_OPENED), event.record)
    if broken is not None:
        yield Violation(event.seq, origin, wallet, *broken)


def _of_its_ref(
    states: dict[bytes, State], refs: dict[tuple[bytes, bytes], int], event: Event, origin: bytes
) -> Iterator[Violation]:
    """A second withdrawal under one ref is the first one tried again (§7). It counts: the fold is §6's."""
    if not isinstance(record := event.record, Withdraw) or record.ref is None:
        return
    wallet = bytes(record.wallet_id)
    if not states.get(wallet, NEVER_OPENED).pays_out:
        return
    first = refs.setdefault((wallet, record.ref), event.seq)
    if first != event.seq:
        why = f"message {first} has paid out under this ref"
        yield Violation(event.seq, origin, wallet, WalCode.DUPLICATE_REF, why)


def _of_its_id(event: Event, origin: bytes) -> Iterator[Violation]:
    """Two transfers under one transfer_id, which is globally unique (5.5): one half of the second counts."""
    if not isinstance(record := event.record, Transfer) or len(set(event.repeated)) != 2:
        return
    debited_before = event.repeated[0]
    wallet = record.wallet_id if debited_before else record.to_wallet_id
    why = "credited without a debit" if debited_before else "debited without a credit"
    why = f"its transfer_id is that of another transfer: {why}"
    yield Violation(event.seq, origin, bytes(wallet), WalCode.DUPLICATE_TRANSFER, why)


def _of_destination(states: dict[bytes, State], event: Event, origin: bytes) -> Iterator[Violation]:
    """A credit to a wallet that this log closed is lost (§6); a wallet it does not know is elsewhere."""
    record = event.record
    if not isinstance(record, Transfer) or record.to_wallet_id == record.wallet_id:
        return
    wallet, credited_before = bytes(record.to_wallet_id), bool(event.repeated and event.repeated[1])
    if states.get(wallet, NEVER_OPENED).closed and not credited_before:
        why = "the destination is closed; it was not credited"
        yield Violation(event.seq, origin, wallet, WalCode.CLOSED, why)
