"""The wallet overlay, clause by clause, and compared with the pseudocode of WAL §6."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from logs import log_of
from strategies import WALLETS, lifted, logs
from wallet_interpreter import Interpreter

from veen_core.errors import EncodeError
from veen_core.hashing import H, Ht, u64be
from veen_core.ids import ClientId, ClientSeq, VerifyKey
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.identifiers import (
    CtxId,
    PrincipalPk,
    RealmId,
    TransferId,
    WalletId,
    approval_hash,
    ctx_id,
    realm_id,
    transfer_id,
    wallet_id,
    wallet_stream,
)
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import NEVER_OPENED, WalletState
from veen_overlays.wallet.ledger import LEDGER, one_wallet, state_of
from veen_overlays.wallet.records import (
    WALLET_RECORDS,
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

PUBLISHED = Path(__file__).parent / "vectors" / "published"
REALM, CTX = realm_id("shop"), ctx_id(PrincipalPk(b"\x01" * 32), realm_id("shop"))
OTHER = ctx_id(PrincipalPk(b"\x02" * 32), REALM)
W, TO = wallet_id(REALM, CTX, "USD"), wallet_id(REALM, OTHER, "USD")
DAY_SEC = 86_400
NOON = 1_700_006_400  # a multiple of DAY plus some hours


def opened(ctx: CtxId = CTX, at: int = NOON) -> Open:
    return Open(
        wallet_id=wallet_id(REALM, ctx, "USD"), realm_id=REALM, ctx_id=ctx, currency="USD", created_at=at
    )


def deposit(amount: int, ts: int = NOON) -> Deposit:
    return Deposit(wallet_id=W, amount=amount, ts=ts)


def withdraw(amount: int, ts: int = NOON) -> Withdraw:
    return Withdraw(wallet_id=W, amount=amount, ts=ts)


def transfer(amount: int, name: bytes, ts: int = NOON, source: WalletId = W, to: WalletId = TO) -> Transfer:
    return Transfer(wallet_id=source, to_wallet_id=to, amount=amount, ts=ts, transfer_id=TransferId(H(name)))


def limit(value: int | None, ts: int = NOON) -> Limit:
    return Limit(wallet_id=W, daily_limit=value, ts=ts)


def after(*records: Record, wallet: WalletId = W) -> WalletState:
    return state_of(LEDGER.fold(log_of(*records)).inner, wallet)


# --- the fold is §6


def expected(log: list[Message], wallet: bytes) -> dict[str, Any]:
    machine = Interpreter(wallet)
    for message in log:
        machine.feed(message)
    return machine.state()


def check_against_pseudocode(log: list[Message]) -> None:
    accounts = LEDGER.fold(log).inner
    for wallet in WALLETS:
        state = state_of(accounts, wallet)._asdict()
        assert {name: state[name] for name in expected(log, wallet)} == expected(log, wallet)


@settings(max_examples=400)
@given(logs(LEDGER, max_size=40))
def test_the_fold_is_the_pseudocode_of_section_6(log: list[Message]) -> None:
    check_against_pseudocode(log)


AMOUNTS = (0, 1, 5, 100)
TIMES = (0, 1, 5, DAY_SEC - 1, DAY_SEC, DAY_SEC + 7, 2 * DAY_SEC, NOON)


def tight_record(rng: random.Random) -> Record:
    """Few amounts, and times around midnight and 0, where windows begin and end."""
    n = rng.randrange(3)
    wallet, ts, amount = WALLETS[n], rng.choice(TIMES), rng.choice(AMOUNTS)
    realm, ctx = RealmId(bytes([n]) * 32), CtxId(bytes([n]) * 32)
    to, name = WALLETS[rng.randrange(3)], TransferId(bytes([rng.randrange(6)]) * 32)
    made: tuple[Record, ...] = (
        Open(wallet_id=wallet, realm_id=realm, ctx_id=ctx, currency="USD", created_at=ts),
        Close(wallet_id=wallet, ts=ts),
        Limit(wallet_id=wallet, daily_limit=rng.choice((None, 3, 50)), ts=ts),
        Freeze(wallet_id=wallet, ts=ts),
        Unfreeze(wallet_id=wallet, ts=ts),
        Deposit(wallet_id=wallet, amount=amount, ts=ts),
        Adjust(wallet_id=wallet, delta=rng.choice((-7, 3)), ts=ts, reason="r"),
        Withdraw(wallet_id=wallet, amount=amount, ts=ts),
        Transfer(wallet_id=wallet, to_wallet_id=to, amount=amount, ts=ts, transfer_id=name),
    )
    weights = (3, 1 if rng.random() < 0.2 else 0, 3, 2, 2, 4, 2, 8, 5)
    return rng.choices(made, weights)[0]


@pytest.mark.parametrize("seed", range(20))
def test_long_tight_logs_fold_like_the_pseudocode_in_every_tree(seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(*(tight_record(rng) for _ in range(300)))
    check_against_pseudocode(log)
    seen, parts, at = MemorySeenKeys(), [], 0
    while at < len(log):
        size = rng.choice((1, 1, 2, 3, 10, 50))
        parts.append(LEDGER.fold(log[at : at + size], seen))
        at += size
    while len(parts) > 1:
        n = rng.randrange(len(parts) - 1)
        parts[n : n + 2] = [LEDGER.combine(parts[n], parts[n + 1])]
    assert LEDGER.encode(parts[0]) == LEDGER.encode(LEDGER.fold(log))
    assert LEDGER.encode(LEDGER.merge(lifted(LEDGER, log))) == LEDGER.encode(parts[0])


def test_the_lowest_balance_shows_that_a_prefix_was_overdrawn() -> None:
    assert after(opened(), deposit(5), withdraw(7), deposit(10)).lowest == -2
    assert after(opened(), deposit(5), withdraw(5)).lowest == 0


# --- identifiers


def test_published_identifiers_are_derived() -> None:
    vector = json.loads((PUBLISHED / "wallet_id.json").read_bytes())
    realm = realm_id(vector["inputs"]["realm"])
    ctx = ctx_id(PrincipalPk.from_hex(vector["inputs"]["principal_pk"]), realm)
    wallet = wallet_id(realm, ctx, vector["inputs"]["currency"])
    assert wallet.hex() == vector["expected"]["wallet_id"]
    assert wallet_stream(wallet).hex() == vector["expected"]["stream_id_wallet"]


@pytest.mark.parametrize("word", ["close", "deposit", "withdraw", "transfer", "unfreeze"])
def test_published_schema_ids_are_derived(word: str) -> None:
    vector = json.loads((PUBLISHED / f"schema_wallet_{word}.json").read_bytes())
    [shape] = [shape for shape in WALLET_RECORDS if f"wallet.{word}.v1" == shape.NAME]
    assert shape.SCHEMA.hex() == vector["expected"]


def test_a_transfer_id_can_be_derived_before_sealing() -> None:
    """RESOLUTIONS B15 replaces the published formula, which needs the msg_id of its own message."""
    vector = json.loads((PUBLISHED / "transfer_id.json").read_bytes())
    assert Ht("wallet/xfer", b"\x44" * 32).hex() == vector["expected"]
    client = ClientId(VerifyKey(b"\x07" * 32))
    made = transfer_id(W, TO, ClientSeq(9), client)
    assert made == Ht("wallet/xfer", W + TO + u64be(9) + client)


def test_approvers_sign_the_core_fields() -> None:
    name = TransferId(b"\x09" * 32)
    made = approval_hash(W, TO, 120, NOON, name)
    assert made == Ht("wallet/approval", W + TO + u64be(120) + u64be(NOON) + name)
    assert made != approval_hash(W, TO, 121, NOON, name)


def test_an_open_with_another_wallets_id_is_undecodable() -> None:
    """WAL 5.1: wallet_id MUST equal its derivation."""
    right = opened()
    wrong = right.encode().replace(bytes(W), bytes(TO))
    log = [Message(1, b"m" * 32, right.SCHEMA, wrong)]
    summary = LEDGER.fold(log)
    assert (summary.events, summary.undecodable) == (0, 1)
    assert "wallet_id is derived from" in summary.ignored[0].why


# --- events


def test_a_wallet_opens_once() -> None:
    assert after(opened(), deposit(5), opened(at=NOON + 1)) == WalletState(
        exists=True, balance=5, last_limit_reset_ts=NOON
    )


def test_nothing_moves_before_open_or_after_close() -> None:
    assert after(deposit(5), withdraw(3)) == NEVER_OPENED
    closed = after(opened(), deposit(5), Close(wallet_id=W, ts=NOON), deposit(7), withdraw(1))
    assert (closed.closed, closed.balance) == (True, 5)


def test_a_frozen_wallet_pays_nothing_out_and_still_takes_in() -> None:
    frozen = Freeze(wallet_id=W, ts=NOON)
    assert after(opened(), deposit(9), frozen, withdraw(4), transfer(2, b"t"), deposit(1)).balance == 10
    thawed = Unfreeze(wallet_id=W, ts=NOON)
    assert after(opened(), deposit(9), frozen, thawed, withdraw(4)).balance == 5


def test_the_daily_window_starts_again_each_day() -> None:
    """WAL 5.4, 5.7: day = floor(ts / 86400)."""
    state = after(opened(), deposit(100), limit(50), withdraw(10), withdraw(5, NOON + 60))
    assert (state.pending_daily_spent, state.last_limit_reset_ts) == (15, NOON)
    state = after(opened(), deposit(100), limit(50), withdraw(10), withdraw(5, NOON + DAY_SEC))
    assert (state.pending_daily_spent, state.last_limit_reset_ts) == (5, NOON + DAY_SEC)


def test_without_a_limit_nothing_is_pending_and_null_clears_it() -> None:
    assert after(opened(), deposit(9), withdraw(4)).pending_daily_spent == 0
    state = after(opened(), deposit(9), limit(5), withdraw(1), limit(None), withdraw(2))
    assert (state.daily_limit, state.pending_daily_spent) == (None, 1)


def test_adjust_moves_the_balance_either_way_and_no_window() -> None:
    up = Adjust(wallet_id=W, delta=7, ts=NOON, reason="found")
    down = Adjust(wallet_id=W, delta=-4, ts=NOON, reason="lost")
    state = after(opened(), limit(5), up, down)
    assert (state.balance, state.pending_daily_spent) == (3, 0)


def test_the_published_transfer_is_folded_as_stated() -> None:
    vector = json.loads((PUBLISHED / "wallet_transfer.json").read_bytes())
    given_ = vector["inputs"]
    moved = transfer(given_["transfer"], b"t")
    records = [opened(), opened(OTHER), deposit(given_["deposit"]), limit(given_["limit"]), moved]
    assert after(*records).balance == vector["expected"]["source"]
    assert after(*records, wallet=TO).balance == vector["expected"]["dest"]
    replayed = [*records, moved, moved]  # other messages, the same transfer_id
    assert after(*replayed).balance == vector["expected"]["source"]
    assert after(*replayed, wallet=TO).balance == vector["expected"]["dest"]


def test_a_transfer_mirrored_into_the_destinations_stream_is_credited_once() -> None:
    """WAL 5.5: the destination's stream has a copy, and perhaps the original too."""
    source = log_of(opened(), deposit(50), transfer(20, b"t"))
    copy = source[2]._replace(msg_id=H(b"copy"), parent_id=source[2].msg_id)
    home = log_of(opened(OTHER))
    for log in ([*home, copy], [*home, copy, copy], [*home, copy, source[2]]):
        assert state_of(LEDGER.fold(log).inner, TO).balance == 20


def test_the_same_transfer_id_to_another_wallet_debits_no_second_time() -> None:
    third = wallet_id(REALM, CTX, "EUR")
    records = [opened(), opened(OTHER), deposit(50), transfer(20, b"t"), transfer(20, b"t", to=third)]
    assert after(*records).balance == 30


def test_a_transfer_to_the_same_wallet_is_a_debit() -> None:
    """WAL §6 says "else if": the credit is not considered."""
    assert after(opened(), deposit(9), transfer(4, b"t", to=W)).balance == 5


def test_bridged_events_count_once_by_parent_id() -> None:
    """WALBR0 11.4."""
    log = log_of(opened(), deposit(5))
    bridged = [m._replace(msg_id=H(b"b" + m.msg_id), parent_id=m.msg_id) for m in log]
    twice = [m._replace(msg_id=H(b"c" + m.msg_id)) for m in bridged]
    assert state_of(LEDGER.fold([*bridged, *twice]).inner, W).balance == 5


def test_metadata_and_ref_change_no_balance() -> None:
    """WAL §10."""
    plain = transfer(4, b"t")
    rich = Transfer(
        **{f.name: getattr(plain, f.name) for f in plain.codec.fields} | {"metadata": {"note": "x"}}
    )
    base = [opened(), Deposit(wallet_id=W, amount=9, ts=NOON, ref=b"bank" * 40)]
    assert after(*base, plain) == after(*base, rich)


def test_sums_may_exceed_64_bits() -> None:
    most = 2**64 - 1
    summary = LEDGER.fold(log_of(opened(), deposit(most), deposit(most)))
    assert LEDGER.load(LEDGER.encode(summary)) == summary
    assert LEDGER.view(summary.inner)[bytes(W)]["balance"] == str(2 * most)


def test_one_wallets_overlay_sees_only_its_own_side() -> None:
    records = log_of(opened(), opened(OTHER), deposit(50), transfer(20, b"t"))
    for wallet in (W, TO):
        inner = one_wallet(wallet).fold(records).inner
        assert set(inner) == {bytes(wallet)}
        assert inner[bytes(wallet)] == LEDGER.fold(records).inner[bytes(wallet)]


def test_the_view_of_one_wallet_has_the_same_class_and_its_own_store_key() -> None:
    """Spec-3 7.2: state_class is the kind of state, state_id the wallet."""
    assert {one_wallet(W).name, one_wallet(TO).name} == {LEDGER.name}
    assert len({one_wallet(W).class_id, one_wallet(TO).class_id, LEDGER.class_id}) == 3


def test_the_state_in_json_is_hex_where_it_is_bytes() -> None:
    shown = LEDGER.view_json(LEDGER.fold(log_of(opened(), deposit(5))))
    assert json.loads(json.dumps(shown))[W.hex()]["balance"] == 5


def test_the_state_is_section_4_in_its_order() -> None:
    shown = LEDGER.view(LEDGER.fold(log_of(opened(), deposit(5))).inner)[bytes(W)]
    assert list(shown) == [
        *("exists", "closed", "balance", "frozen"),
        *("daily_limit", "pending_daily_spent", "last_limit_reset_ts"),
    ]


def test_a_currency_is_ascii() -> None:
    """WAL 2.2."""
    with pytest.raises(EncodeError, match="ASCII"):
        wallet_id(REALM, CTX, "€")
