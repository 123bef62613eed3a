"""veen wallet: payments, refusals with their codes, and verification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veen_cli.frame.exits import Exit
from veen_cli.overlays.overlay_stream import REFUSAL_ACTIONS, OverlayStream
from veen_core.hashing import H
from veen_core.receipt import Receipt
from veen_hub.client.log import HubLogReader
from veen_overlays.identifiers import TransferId, WalletId, wallet_stream
from veen_overlays.schema.record import Record
from veen_overlays.wallet.records import Transfer, Withdraw

from .conftest import Town
from .running import process, veen


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
    assert "a different transfer" in other
    assert (balance(square, "alice", a, *on), balance(square, "bob", b, *on)) == (6, 4)


def test_a_credit_that_its_owner_could_not_open_is_not_sent(square: Town) -> None:
    """Each wallet's stream is sealed to its owner only."""
    a, b = opened(square, "alice", "private"), opened(square, "bob", "private")
    square.as_("alice", "wallet", "deposit", a, 10).ok()
    assert "--credit-to" in square.as_("alice", "wallet", "transfer", a, b, 4).failed(Exit.USAGE)
    assert balance(square, "alice", a) == 10
    paid = square.as_("alice", "wallet", "transfer", a, b, 4, "--credit-to", square / "bob", "--json").json
    again = ("--credit-to", square / "bob", "--transfer-id", paid["transfer_id"])
    square.as_("alice", "wallet", "transfer", a, b, 4, *again).ok()
    assert (balance(square, "alice", a), balance(square, "bob", b)) == (6, 4)
    (found,) = (
        each
        for each in square.as_("bob", "wallet", "ledger", b, "--json").json["events"]
        if each["schema"] == "wallet.transfer.v1"
    )
    assert found["transfer_id"] == paid["transfer_id"], "the second copy is the first one again"


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
def test_a_forbidden_event_is_refused_with_its_code_and_next_step_and_not_sent(
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
    assert f"nothing was sent; {REFUSAL_ACTIONS[f'WAL.{code}']}" in said
    assert square.as_("alice", "fold", "wallet.ledger", on[1], "--json").json["upto_seq"] == size


def test_a_second_payout_under_a_ref_is_refused(square: Town) -> None:
    """WAL §7: a retry of a withdrawal whose answer was lost."""
    on = ("--reader", square / "realm")
    wallet = opened(square, "alice", "refs", *on)
    square.as_("alice", "wallet", "deposit", wallet, 10, "--ref", "bank 17", *on).ok()
    pay = ("wallet", "withdraw", wallet, 3, *on, "--ref")
    square.as_("alice", *pay, "bank 17").ok()
    said = square.as_("alice", *pay, "bank 17").failed(Exit.POLICY)
    assert "WAL.DUPLICATE_REF: message 3 has paid out under this ref; nothing was sent" in said
    square.as_("alice", *pay, "bank 18").ok()
    assert balance(square, "alice", wallet, *on) == 4


@pytest.mark.parametrize("streams", ["a shared ledger", "streams of their own"])
def test_no_payment_reads_the_log_from_its_start(
    square: Town, monkeypatch: pytest.MonkeyPatch, streams: str
) -> None:
    """Refs and resumed transfers are looked up in the identity's stored view."""
    ledger = ("--ledger", "unread") if streams == "a shared ledger" else ()
    on, realm = (*ledger, "--reader", square / "realm"), f"unread-{len(ledger)}"
    a, b = opened(square, "alice", realm, *on), opened(square, "bob", realm, *on)
    square.as_("alice", "wallet", "deposit", a, 20, *on).ok()
    monkeypatch.delattr(OverlayStream, "signed")
    square.as_("alice", "wallet", "withdraw", a, 1, "--ref", "bank 17", *on).ok()
    again = square.as_("alice", "wallet", "withdraw", a, 1, "--ref", "bank 17", *on).failed(Exit.POLICY)
    assert "WAL.DUPLICATE_REF" in again
    paid = square.as_("alice", "wallet", "transfer", a, b, 4, *on, "--json").json["transfer_id"]
    square.as_("alice", "wallet", "transfer", a, b, 4, "--transfer-id", paid, *on).ok()
    assert balance(square, "bob", b, *on) == 4


@pytest.mark.parametrize("messages", [70, 300])
def test_a_withdrawal_fetches_as_many_entries_from_a_long_log_as_from_a_short_one(
    square: Town, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    on = ("--ledger", f"long-{messages}")
    wallet = opened(square, "alice", f"long-{messages}", *on)
    (square / "filler.txt").write_text("not a wallet record\n" * (messages - 1))
    square.as_("alice", "send", "--batch", "--file", square / "filler.txt", "-s", on[1]).ok()
    square.as_("alice", "wallet", "deposit", wallet, 9, *on).ok()
    fetched, page = [], HubLogReader.page

    async def counting(reader: HubLogReader, label: Any, from_seq: Any, max_items: int) -> Any:
        entries = await page(reader, label, from_seq, max_items)
        fetched.extend(entries)
        return entries

    monkeypatch.setattr(HubLogReader, "page", counting)
    square.as_("alice", "wallet", "withdraw", wallet, 1, "--ref", "once", *on).ok()
    assert len(fetched) <= 70, "at most the open block of 64, and the new message"


def test_limits_and_freezes_can_be_set_and_lifted(square: Town) -> None:
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


@pytest.mark.parametrize("what", ["withdraw", "transfer"])
def test_the_slower_of_two_concurrent_producers_fails_and_a_verifier_reports_it(
    square: Town, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bob's process withdraws after Alice's check and before her message."""
    on = ("--reader", square / "realm")
    a, b = opened(square, "alice", f"race-{what}", *on), opened(square, "bob", f"race-{what}", *on)
    square.as_("alice", "wallet", "deposit", a, 10, *on).ok()
    send, rivals = OverlayStream.send, [("wallet", "withdraw", a, 8, *on)]

    async def late(source: OverlayStream, record: Record, **options: object) -> Receipt:
        if rivals:
            flags = ("--hub", square.url, "--trust", square.hub_id, "--client", square / "bob")
            process(tmp_path, *rivals.pop(), *flags).ok()
        return await send(source, record, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(OverlayStream, "send", late)
    args = (a, b, 7) if what == "transfer" else (a, 7)
    said = square.as_("alice", "wallet", what, *args, *on).failed(Exit.PROTOCOL)
    assert "WAL.INSUFFICIENT_FUNDS: the balance is 2, less than 7" in said
    assert "another producer was faster" in said
    found = json.loads(square.as_("alice", "wallet", "verify", a, *on, "--json").out)["violations"]
    assert [(each["code"], each["stream_seq"]) for each in found] == [("WAL.INSUFFICIENT_FUNDS", 4)]
    assert balance(square, "bob", b, *on) == 0, "what should not have been debited is not credited"
    if what == "transfer":
        events = square.as_("alice", "wallet", "ledger", a, *on, "--json").json["events"]
        again = ("--transfer-id", events[-1]["transfer_id"])
        said = square.as_("alice", "wallet", "transfer", *args, *again, *on).failed(Exit.PROTOCOL)
        assert "message 4 is in the log" in said
        assert balance(square, "bob", b, *on) == 0, "nor when it is tried again"


def across(square: Town, wallet: str, *on: object) -> list[tuple[str, str, int]]:
    """Verify the wallet's stream and the streams of its counterparties."""
    done = square.as_("bob", "wallet", "verify", wallet, "--across", *on, "--json")
    told = json.loads(done.out)
    assert (done.code == Exit.OK) == told["holds"] == (not told["violations"] and not told["unopened"])
    return [(each["code"], each["wallet"], each["stream_seq"]) for each in told["violations"]]


def test_a_transfer_between_streams_is_credited_once_and_only_if_it_was_debited(
    square: Town, tmp_path: Path
) -> None:
    """WAL 5.5: each log alone is valid; only a comparison of both finds the fault."""
    on = ("--reader", square / "realm")
    a, b = opened(square, "alice", "across", *on), opened(square, "bob", "across", *on)
    square.as_("alice", "wallet", "deposit", a, 10, *on).ok()
    paid = square.as_("alice", "wallet", "transfer", a, b, 4, *on, "--json").json
    assert across(square, a, *on) == across(square, b, *on) == []

    def forged(stream: str, amount: int, name: bytes) -> int:
        """Write a transfer into only one of the two streams."""
        ids = WalletId.from_hex(a), WalletId.from_hex(b), TransferId(H(name))
        record = Transfer(wallet_id=ids[0], to_wallet_id=ids[1], amount=amount, ts=1, transfer_id=ids[2])  # type: ignore[arg-type]
        (tmp_path / "transfer.cbor").write_bytes(record.encode())
        body = ("--schema", "wallet.transfer.v1", "--file", tmp_path / "transfer.cbor")
        sealed = ("--to", square / "realm", "--parent", paid["id"])
        sent: int = square.as_("alice", "send", "-s", stream, *body, *sealed, "--json").json["stream_seq"]
        return sent

    streams = {each: wallet_stream(WalletId.from_hex(each)).hex() for each in (a, b)}
    credited = forged(streams[b], 1_000, b"from nothing")
    assert balance(square, "bob", b, *on) == 1_004, "its own log cannot tell"
    assert square.as_("bob", "wallet", "verify", b, *on, "--json").json["holds"] is True
    debited = forged(streams[a], 3, b"into nothing")
    found = {("WAL.NOT_DEBITED", b, credited), ("WAL.NOT_CREDITED", a, debited)}
    assert set(across(square, b, *on)) == set(across(square, a, *on)) == found
    said = square.as_("bob", "wallet", "verify", b, "--across", *on)
    assert (said.code, f"message {credited} of {b[:12]}" in said.out) == (Exit.PROTOCOL, True)


def test_messages_that_an_auditors_keys_do_not_open_are_unverified(square: Town) -> None:
    a, b = opened(square, "alice", "sealed"), opened(square, "bob", "sealed")
    square.as_("alice", "wallet", "deposit", a, 10).ok()
    square.as_("alice", "wallet", "transfer", a, b, 4, "--credit-to", square / "bob").ok()
    assert [code for code, *_ in across(square, b)] == ["WAL.UNVERIFIED"]
    done = square.as_("bob", "wallet", "verify", a, "--json")
    assert (done.code, json.loads(done.out)) == (
        Exit.PROTOCOL,
        {"messages": 3, "unopened": 3, "holds": False, "violations": []},
    )
    assert "3 of 3 messages were not verified" in square.as_("bob", "wallet", "verify", a).out


def test_an_operator_may_be_named_by_the_organisation_that_issued_its_token(
    town: Town, tmp_path: Path
) -> None:
    """WAL §8: issuer_pk is org_pk, subject_pk the service's key."""
    token, stream = tmp_path / "till.cap", "till"
    made = ("--issuer", town / "admin", "--subject", town / "alice", "--stream", stream, "--out", token)
    veen("cap", "issue", *made).ok()
    town.as_("alice", "cap", "authorize", token).ok()
    org, service = (
        veen("id", "show", "--client", town / who, "--json").json["id_sign"] for who in ("admin", "alice")
    )
    policy = tmp_path / "policy.json"
    on = ("--ledger", stream, "--policy", policy)
    policy.write_text(json.dumps({"operators": [org]}))
    wallet = opened(town, "alice", "till", *on)
    for operator in (org, service):
        policy.write_text(json.dumps({"operators": [operator]}))
        town.as_("alice", "wallet", "deposit", wallet, 10, *on).ok()
        town.as_("alice", "wallet", "deposit", wallet, 10, *on, "--cap", token).ok()
        assert town.as_("alice", "wallet", "verify", *on, "--json").json["holds"] is True
    policy.write_text(json.dumps({"operators": ["00" * 32]}))
    assert "UNAUTHORIZED" in town.as_("alice", "wallet", "deposit", wallet, 1, *on).failed(Exit.POLICY)
    found = json.loads(town.as_("alice", "wallet", "verify", *on, "--json").out)["violations"]
    assert [each["code"] for each in found] == ["WAL.UNAUTHORIZED_OPERATION"] * 4


def test_the_policy_file_is_enforced_and_verified(square: Town, tmp_path: Path) -> None:
    """WAL 2.2, §8, §13."""
    on = ("--ledger", "bank")
    bank = square.as_("alice", "id", "client-id", "-s", "bank", "--json").json["client_id"]
    policy = tmp_path / "policy.json"
    under = ("--policy", policy)

    def is_now(**rules: object) -> None:
        policy.write_text(json.dumps(rules))

    is_now(currencies=["EUR"], operators=[bank])
    wallet = opened(square, "alice", "bank", *on, *under)
    square.as_("alice", "wallet", "deposit", wallet, 10, *on, *under).ok()
    for currency in ("JPY", "€"):
        make = ("wallet", "open", "--realm", "bank", "--currency", currency)
        said = square.as_("alice", *make, *on, *under).failed(Exit.POLICY)
        assert "WAL.INVALID_CURRENCY" in said
    assert square.as_("alice", "wallet", "verify", *on, *under, "--json").json["holds"] is True
    is_now(currencies=[], operators=["00" * 32])
    for args in (["deposit", wallet, 1], ["freeze", wallet], ["adjust", wallet, "--by", 1, "--reason", "x"]):
        said = square.as_("alice", "wallet", *args, *on, *under).failed(Exit.POLICY)
        assert "WAL.UNAUTHORIZED_OPERATION" in said
        assert "nothing was sent" in said
    square.as_("alice", "wallet", "withdraw", wallet, 1, *on, *under).ok()
    found = json.loads(square.as_("alice", "wallet", "verify", *on, *under, "--json").out)["violations"]
    assert [(each["stream_seq"], each["code"].removeprefix("WAL.")) for each in found] == [
        (1, "INVALID_CURRENCY"),
        (2, "UNAUTHORIZED_OPERATION"),
    ]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"currency": []}', '{"currencies": "EUR"}', '{"operators": ["bank"]}']
)
def test_an_invalid_policy_file_is_a_usage_error(square: Town, tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.json").write_text(text)
    said = square.as_(
        "alice", "wallet", "balance", "--ledger", "shop", "--policy", tmp_path / "policy.json"
    ).failed(Exit.USAGE)
    assert "--policy" in said
