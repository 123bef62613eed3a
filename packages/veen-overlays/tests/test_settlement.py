"""Transfers between two logs (WAL 5.5): credited exactly once, and only what was debited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import log_of
from test_wallet import NOON, OTHER, TO, W, deposit, opened, transfer

from veen_overlays.fold.event import UNOPENED, Message
from veen_overlays.identifiers import WalletId
from veen_overlays.schema.record import Record
from veen_overlays.wallet.ledger import LEDGER, state_of
from veen_overlays.wallet.records import Close, Freeze, Transfer
from veen_overlays.wallet.rules import WalCode, WalletViolation, violations
from veen_overlays.wallet.settlement import counterparties, halves, unsettled

FUNDED = (opened(), deposit(100))


def mirrored(message: Message, seq: int) -> Message:
    """A copy of a message, as a producer or a bridge writes it to the destination's log."""
    return message._replace(seq=seq, msg_id=b"copy" + message.msg_id[4:], parent_id=message.msg_id)


def between(source: list[Message], destination: list[Message]) -> list[WalletViolation]:
    return list(unsettled(W, halves(source), TO, halves(destination)))


def paid(*moves: Transfer) -> tuple[list[Message], list[Message]]:
    """The payer's log, and the payee's with a copy of each transfer."""
    source = log_of(*FUNDED, *moves)
    destination = log_of(opened(OTHER))
    return source, destination + [mirrored(each, n) for n, each in enumerate(source[2:], 2)]


def test_a_transfer_in_both_logs_is_settled() -> None:
    source, destination = paid(transfer(5, b"t"), transfer(6, b"u"))
    assert between(source, destination) == []
    again = mirrored(source[2], 4)
    assert between(source, [*destination, again]) == [], "a second copy is the first one again"
    assert state_of(LEDGER.fold([*destination, again]).inner, TO).balance == 11


def test_a_debit_without_its_credit_is_reported_in_the_payers_log() -> None:
    source, destination = paid(transfer(5, b"t"), transfer(6, b"u"))
    [found] = between(source, destination[:-1])
    assert (found.seq, found.wallet_id, found.code) == (4, bytes(W), WalCode.NOT_CREDITED)
    assert "6 debited" in found.why


THIRD = WalletId(b"\x33" * 32)
FORGED = {
    "no debit at all": (FUNDED, "was not debited"),
    "no such wallet": ((), "was not debited"),
    "a debit of a frozen wallet": ((*FUNDED, Freeze(wallet_id=W, ts=NOON), transfer(5, b"t")), "not debited"),
    "a debit of a closed wallet": ((*FUNDED, Close(wallet_id=W, ts=NOON), transfer(5, b"t")), "not debited"),
    "a smaller debit": ((*FUNDED, transfer(4, b"t")), "was debited 4"),
    "a debit for a third wallet": ((*FUNDED, transfer(5, b"t", to=THIRD)), "debited for another wallet"),
}


@pytest.mark.parametrize(("source", "why"), FORGED.values(), ids=FORGED)
def test_a_credit_without_its_debit_is_reported_in_the_payees_log(
    source: tuple[Record, ...], why: str
) -> None:
    """WAL §6 credits it, and nothing in the payee's log shows that it was not debited."""
    _, destination = paid(transfer(5, b"t"))
    assert list(violations(destination)) == []
    [found] = between(log_of(*source), destination)
    assert (found.seq, found.wallet_id, found.code) == (2, bytes(TO), WalCode.NOT_DEBITED)
    assert why in found.why


def test_a_credit_to_a_closed_wallet_is_not_a_credit() -> None:
    source, destination = paid(transfer(5, b"t"))
    closed = log_of(opened(OTHER), Close(wallet_id=TO, ts=NOON))
    for log in (destination[1:], [*closed, mirrored(source[2], 3)]):
        assert [found.code for found in between(source, log)] == [WalCode.NOT_CREDITED]


def test_one_transfer_id_settles_one_transfer() -> None:
    """WAL 5.5: an id is unique; another payer's transfer under it is reported, not credited."""
    source, destination = paid(transfer(5, b"t"))
    other = log_of(transfer(9, b"t", source=THIRD), start=9)[0]
    log = [destination[0], mirrored(other, 2), mirrored(source[2], 3)]
    assert [found.code for found in between(source, log)] == [WalCode.NOT_CREDITED]
    assert [(found.seq, found.wallet_id, found.code) for found in violations(log)] == [
        (3, bytes(TO), WalCode.DUPLICATE_TRANSFER)
    ]
    assert state_of(LEDGER.fold(log).inner, TO).balance == 9


def test_two_payees_under_one_transfer_id_are_reported_in_the_payers_log() -> None:
    """No debit matches the second credit (WAL 5.5)."""
    log = log_of(*FUNDED, transfer(5, b"t"), transfer(5, b"t", to=THIRD), transfer(5, b"t"))
    found = [(each.seq, each.wallet_id, each.code) for each in violations(log)]
    assert found == [(4, bytes(W), WalCode.DUPLICATE_TRANSFER)]


def test_a_half_that_may_be_sealed_to_another_key_is_unverified() -> None:
    source, destination = paid(transfer(5, b"t"))
    sealed = Message(9, b"\x09" * 32, UNOPENED, b"")
    for logs in (([*log_of(*FUNDED), sealed], destination), (source, [destination[0], sealed])):
        assert [found.code for found in between(*logs)] == [WalCode.UNVERIFIED]
    assert between([*source, sealed], [*destination, sealed]) == [], "both halves are there to be seen"


def test_a_log_names_the_counterparties_of_other_logs() -> None:
    source, destination = paid(transfer(5, b"t"))
    assert (counterparties(halves(source)), counterparties(halves(destination))) == ({TO}, {W})
    assert counterparties(halves(log_of(*FUNDED, opened(OTHER), transfer(5, b"t")))) == frozenset()


@given(st.lists(st.integers(1, 50), max_size=8), st.data())
def test_two_settled_logs_hold_together_what_was_deposited(amounts: list[int], data: st.DataObject) -> None:
    """For any order of the copies; a missing or an extra copy is reported."""
    source, destination = paid(*(transfer(amount, bytes([n])) for n, amount in enumerate(amounts)))
    copies = data.draw(st.permutations(destination[1:]))
    log = [destination[0], *(each._replace(seq=n) for n, each in enumerate(copies, 2))]
    assert between(source, log) == []
    held = [state_of(LEDGER.fold(each).inner, wallet).balance for each, wallet in ((source, W), (log, TO))]
    assert sum(held) == 100
    if amounts:
        assert [found.code for found in between(source, log[:-1])] == [WalCode.NOT_CREDITED]
        assert {found.code for found in between(source[:-1], log)} == {WalCode.NOT_DEBITED}
