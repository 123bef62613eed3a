"""wallet: what is paid, what is refused with which code, what a verifier finds."""

from __future__ import annotations

import pytest

from veen_cli.exits import Exit
from veen_overlays.identifiers import WalletId
from veen_overlays.wallet.records import Withdraw

from .conftest import Town


def opened(square: Town, who: str, realm: str, *on: object) -> str:
    told = square.as_(who, "wallet", "open", "--realm", realm, "--currency", "EUR", *on, "--json").json
    wallet: str = told["wallet"]
    return wallet


def balance(square: Town, who: str, wallet: str, *on: object) -> int:
    return int(square.as_(who, "wallet", "balance", wallet, *on, "-q").ok().out)


def test_a_transfer_on_a_shared_ledger_debits_one_wallet_and_credits_the_other(square: Town) -> None:
    on = ("--ledger", "shop", "--reader", square / "realm")
    a, b = opened(square, "alice", "shop", *on), opened(square, "bob", "shop", *on)
    square.as_("alice", "wallet", "deposit", a, 500, "--ref", "invoice 17", *on).ok()
    square.as_("alice", "wallet", "withdraw", a, 100, *on).ok()
    paid = square.as_("alice", "wallet", "transfer", a, b, 40, *on, "--json").json
    assert (paid["balance"], paid["credit"]) == (360, None)
    again = ("--transfer-id", paid["transfer_id"])
    assert square.as_("alice", "wallet", "transfer", a, b, 40, *again, *on, "--json").json["balance"] == 360
    told = square.as_("bob", "wallet", "balance", *on, "--json").json
    assert {each["wallet"]: each["balance"] for each in told["wallets"]} == {a: 360, b: 40}
    events = square.as_("bob", "wallet", "ledger", b, *on, "--json").json["events"]
    assert [each["schema"] for each in events] == ["wallet.open.v1", "wallet.transfer.v1"]
    assert "invoice 17" in square.as_("bob", "wallet", "ledger", *on).ok().out
    assert square.as_("bob", "wallet", "verify", *on, "--json").json["holds"] is True


def test_a_transfer_between_streams_is_mirrored_into_the_destinations(square: Town) -> None:
    on = ("--reader", square / "realm")
    a, b = opened(square, "alice", "two", *on), opened(square, "bob", "two", *on)
    square.as_("alice", "wallet", "deposit", a, 10, *on).ok()
    paid = square.as_("alice", "wallet", "transfer", a, b, 4, *on, "--json").json
    again = ("--transfer-id", paid["transfer_id"])
    square.as_("alice", "wallet", "transfer", a, b, 4, *again, *on).ok()  # as after a lost answer
    other = square.as_("alice", "wallet", "transfer", a, b, 5, *again, *on).failed(Exit.USAGE)
    assert "another transfer" in other
    assert (balance(square, "alice", a, *on), balance(square, "bob", b, *on)) == (6, 4)


@pytest.mark.parametrize(
    ("before", "refused", "code"),
    [
        ([], ["withdraw", "W", 11], "INSUFFICIENT_FUNDS"),
        ([], ["transfer", "W", "W", 1], "SELF_TRANSFER"),
        ([], ["adjust", "W", "--by", -11, "--reason", "x"], "INSUFFICIENT_FUNDS"),
        ([], ["close", "W"], "NOT_EMPTY"),
        ([], ["deposit", "00" * 32, 1], "NOT_OPEN"),
        ([], ["transfer", "W", "00" * 32, 1], "NOT_OPEN"),
        ([["limit", "W", 3]], ["withdraw", "W", 4], "DAILY_LIMIT_EXCEEDED"),
        ([["freeze", "W", "--reason", "lost"]], ["withdraw", "W", 1], "FROZEN"),
        ([["withdraw", "W", 10], ["close", "W"]], ["deposit", "W", 1], "CLOSED"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_the_rules_forbid_is_refused_with_its_code_and_not_sent(
    square: Town,
    before: list[list[object]],
    refused: list[object],
    code: str,
    request: pytest.FixtureRequest,
) -> None:
    on = ("--ledger", request.node.name)
    wallet = opened(square, "alice", "rules", *on)

    def named(args: list[object]) -> list[object]:
        return [wallet if each == "W" else each for each in args]

    square.as_("alice", "wallet", "deposit", wallet, 10, *on).ok()
    for args in before:
        square.as_("alice", "wallet", *named(args), *on).ok()
    size = square.as_("alice", "fold", "wallet.ledger", on[1], "--json").json["upto_seq"]
    said = square.as_("alice", "wallet", *named(refused), *on).failed(Exit.POLICY)
    assert f"WAL.{code}" in said
    assert "nothing was sent" in said
    assert square.as_("alice", "fold", "wallet.ledger", on[1], "--json").json["upto_seq"] == size


def test_controls_come_and_go(square: Town) -> None:
    on = ("--ledger", "controls")
    wallet = opened(square, "alice", "controls", *on)
    again = square.as_("alice", "wallet", "open", "--realm", "controls", "--currency", "EUR", *on).failed(
        Exit.POLICY
    )
    assert "WAL.ALREADY_OPEN" in again
    square.as_("alice", "wallet", "adjust", wallet, "--by", 5, "--reason", "a gift", *on).ok()
    square.as_("alice", "wallet", "limit", wallet, 1, *on).ok()
    square.as_("alice", "wallet", "limit", wallet, "--none", *on).ok()
    square.as_("alice", "wallet", "freeze", wallet, *on).ok()
    square.as_("alice", "wallet", "unfreeze", wallet, *on).ok()
    assert square.as_("alice", "wallet", "withdraw", wallet, 5, *on, "--json").json["balance"] == 0
    assert square.as_("alice", "wallet", "close", wallet, *on, "--json").json["closed"] is True


def test_a_verifier_reports_what_another_producer_put_into_the_log(square: Town) -> None:
    on = ("--ledger", "overdrawn")
    wallet = opened(square, "alice", "overdrawn", *on)
    record = Withdraw(wallet_id=WalletId.from_hex(wallet), amount=9, ts=1)  # type: ignore[arg-type]
    (square / "withdraw.cbor").write_bytes(record.encode())
    schema = ("--schema", "wallet.withdraw.v1", "--file", square / "withdraw.cbor")
    sent = square.as_("alice", "send", "-s", "overdrawn", *schema, "--json").json
    done = square.as_("alice", "wallet", "verify", *on, "--json")
    assert done.code == Exit.PROTOCOL
    assert f'"stream_seq": {sent["stream_seq"]}' in done.out
    assert "WAL.INSUFFICIENT_FUNDS" in done.out
