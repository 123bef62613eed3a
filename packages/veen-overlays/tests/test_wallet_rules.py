"""The rules of wallets (WAL 5.3-5.6, §8, §9, §13)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from logs import log_of
from strategies import logs
from test_wallet import (
    DAY_SEC,
    NOON,
    OTHER,
    TO,
    W,
    after,
    deposit,
    limit,
    opened,
    transfer,
    withdraw,
)

from veen_core.ids import Signature
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.fold.event import Message
from veen_overlays.identifiers import approval_hash
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import NEVER_OPENED
from veen_overlays.wallet.approval import approved_by
from veen_overlays.wallet.ledger import LEDGER, state_of
from veen_overlays.wallet.records import Adjust, Close, Freeze, Limit, Unfreeze
from veen_overlays.wallet.rules import USER_RECORDS, WalCode, WalletPolicy, refusal, violations

FREEZE, CLOSE = Freeze(wallet_id=W, ts=NOON), Close(wallet_id=W, ts=NOON)
FUNDED = (opened(), deposit(100))

CASES: dict[str, tuple[tuple[Record, ...], Record, WalCode]] = {
    "withdraw before open": ((), withdraw(1), WalCode.NOT_OPEN),
    "deposit before open": ((), deposit(1), WalCode.NOT_OPEN),
    "deposit after close": ((*FUNDED, CLOSE), deposit(1), WalCode.CLOSED),
    "withdraw after close": ((*FUNDED, CLOSE), withdraw(1), WalCode.CLOSED),
    "adjust after close": (
        (*FUNDED, CLOSE),
        Adjust(wallet_id=W, delta=1, ts=NOON, reason=""),
        WalCode.CLOSED,
    ),
    "withdraw while frozen": ((*FUNDED, FREEZE), withdraw(1), WalCode.FROZEN),
    "transfer while frozen": ((*FUNDED, FREEZE), transfer(1, b"t"), WalCode.FROZEN),
    "withdraw more than there is": (FUNDED, withdraw(101), WalCode.INSUFFICIENT_FUNDS),
    "transfer more than there is": (FUNDED, transfer(101, b"t"), WalCode.INSUFFICIENT_FUNDS),
    "adjust below zero": (
        FUNDED,
        Adjust(wallet_id=W, delta=-101, ts=NOON, reason="error"),
        WalCode.INSUFFICIENT_FUNDS,
    ),
    "withdraw beyond the limit": (
        (*FUNDED, limit(10), withdraw(6)),
        withdraw(5),
        WalCode.DAILY_LIMIT_EXCEEDED,
    ),
    "transfer beyond the limit": ((*FUNDED, limit(10)), transfer(11, b"t"), WalCode.DAILY_LIMIT_EXCEEDED),
    "transfer to oneself": (FUNDED, transfer(1, b"t", to=W), WalCode.SELF_TRANSFER),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_a_producer_refuses_it(case: tuple[tuple[Record, ...], Record, WalCode]) -> None:
    before, record, code = case
    refused = refusal(after(*before), record)
    assert refused is not None
    assert refused.code is code


@every_case
def test_a_verifier_reports_it_with_its_seq(case: tuple[tuple[Record, ...], Record, WalCode]) -> None:
    before, record, code = case
    [found] = violations(log_of(*before, record))
    assert (found.seq, found.wallet_id, found.code) == (len(before) + 1, bytes(W), code)


def test_an_allowed_event_is_neither_refused_nor_reported() -> None:
    records = (*FUNDED, limit(60), withdraw(60), withdraw(40, NOON + DAY_SEC), CLOSE)
    for n, record in enumerate(records):
        assert refusal(after(*records[:n]), record) is None
    assert list(violations(log_of(*records))) == []


def test_a_second_open_and_closing_with_money_are_refused_but_not_reported() -> None:
    """WAL 5.1, 5.2: producers SHOULD; the fold defines both."""
    for record, code in ((opened(), WalCode.ALREADY_OPEN), (CLOSE, WalCode.NOT_EMPTY)):
        refused = refusal(after(*FUNDED), record)
        assert refused is not None
        assert refused.code is code
        assert list(violations(log_of(*FUNDED, record))) == []


def test_a_copy_of_a_transfer_is_not_reported_again() -> None:
    log = log_of(opened(), transfer(5, b"t"), transfer(5, b"t"))
    assert [found.seq for found in violations(log)] == [2]


def test_a_second_payout_under_one_ref_is_reported() -> None:
    """WAL §7: a withdrawal that was not paid uses up no ref. The fold (WAL §6) pays both."""
    paid = replace(withdraw(3), ref=b"bank 17")
    log = log_of(*FUNDED, FREEZE, paid, Unfreeze(wallet_id=W, ts=NOON), paid, withdraw(3), withdraw(3), paid)
    found = [(each.seq, each.code) for each in violations(log)]
    assert found == [(4, WalCode.FROZEN), (9, WalCode.DUPLICATE_REF)]
    assert state_of(LEDGER.fold(log).inner, W).balance == 100 - 4 * 3
    mirrored = [*log[:6], log[5]._replace(seq=7, msg_id=b"\x01" * 32, parent_id=log[5].msg_id)]
    assert [each.code for each in violations(mirrored)] == [WalCode.FROZEN], "a copy is no second attempt"
    two = (opened(OTHER), replace(deposit(9), wallet_id=TO), paid, replace(paid, wallet_id=TO))
    assert list(violations(log_of(*FUNDED, *two))) == [], "a ref is one wallet's"


def test_a_credit_lost_in_a_closed_wallet_is_reported() -> None:
    records = (*FUNDED, opened(OTHER), Close(wallet_id=TO, ts=NOON), transfer(5, b"t"))
    [found] = violations(log_of(*records))
    assert (found.wallet_id, found.code) == (bytes(TO), WalCode.CLOSED)


def test_a_mirrored_transfer_is_not_reported_as_a_payment_of_an_unknown_wallet() -> None:
    """WAL 5.5: its source is in another log. Without a parent it would be a payment of this log."""
    log = log_of(opened(OTHER), transfer(5, b"t"))
    assert [found.code for found in violations(log)] == [WalCode.NOT_OPEN]
    mirrored = log[1]._replace(parent_id=b"\x01" * 32)
    another = log_of(transfer(5, b"u"), start=3)[0]._replace(parent_id=b"\x02" * 32)
    assert list(violations([log[0], mirrored, another])) == []
    assert state_of(LEDGER.fold([log[0], mirrored]).inner, TO).balance == 5


def test_a_policy_restricts_currencies_and_operators() -> None:
    """WAL 2.2, §8."""
    refused = refusal(NEVER_OPENED, opened(), WalletPolicy(currencies=frozenset(("JPY",))))
    assert refused is not None
    assert refused.code is WalCode.INVALID_CURRENCY
    bank = WalletPolicy(operators=frozenset((b"bank",)))
    assert refusal(after(*FUNDED), withdraw(1), bank, (b"phone",)) is None
    for record in (deposit(1), limit(1), FREEZE, Unfreeze(wallet_id=W, ts=NOON)):
        assert type(record) not in USER_RECORDS
        assert refusal(after(*FUNDED), record, bank, (b"phone", b"bank")) is None
        refused = refusal(after(*FUNDED), record, bank, (b"phone",))
        assert refused is not None
        assert refused.code is WalCode.UNAUTHORIZED_OPERATION


def test_a_verifier_reports_what_the_deployments_policy_forbids() -> None:
    """WAL 2.2, §8: operator records by other authors, and wallets in other currencies."""
    log = log_of(*FUNDED, withdraw(1))
    policy = WalletPolicy(currencies=frozenset(), operators=frozenset((b"bank",)))

    def found(author: bytes) -> list[tuple[int, WalCode]]:
        return [(each.seq, each.code) for each in violations(log, policy=policy, authors=lambda _: (author,))]

    assert found(b"bank") == [(1, WalCode.INVALID_CURRENCY)]
    assert found(b"phone") == [(1, WalCode.INVALID_CURRENCY), (2, WalCode.UNAUTHORIZED_OPERATION)]
    assert list(violations(log)) == []


@given(logs(LEDGER, max_size=40))
def test_a_log_without_violations_never_had_a_negative_balance(log: list[Message]) -> None:
    """WAL §15: the refusals of producers keep every prefix of every wallet from going below zero."""
    clean: list[Message] = []
    for message in log:
        if not list(violations([*clean, message])):
            clean.append(message)
    accounts = LEDGER.fold(clean).inner
    assert all(state_of(accounts, wallet).lowest >= 0 for wallet in accounts)


def test_approvals_are_counted_once_per_approver() -> None:
    keys = [SigningKey(SigningSeed(bytes([n]) * 32)) for n in (1, 2, 3)]
    move = transfer(5, b"t")
    digest = approval_hash(W, TO, 5, NOON, move.transfer_id)
    signatures = [
        keys[0].sign(digest),
        keys[0].sign(digest),
        keys[2].sign(b"\x00" * 32),
        Signature(b"\x00" * 64),
    ]
    publics = [key.public for key in keys]
    assert approved_by(move, signatures, publics) == {keys[0].public}
    assert approved_by(move, [key.sign(digest) for key in keys], publics[:2]) == set(publics[:2])


def test_a_limit_on_a_wallet_never_opened_is_reported() -> None:
    [found] = violations(log_of(Limit(wallet_id=W, daily_limit=1, ts=NOON)))
    assert found.code is WalCode.NOT_OPEN
