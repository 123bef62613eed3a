"""Paid operations, grants and delegated executions, against a plain interpreter and rule by rule."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_operations import World
from strategies import logs

from veen_core import cbor
from veen_core.hashing import H, u64be
from veen_core.ids import AuthRef, StreamId, UnixTime
from veen_core.msg import operation_id
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import CtxId, RealmId, WalletId, wallet_id
from veen_overlays.operations.access import AccessGrant, AccessRevoke, cap_token
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.operation import AccountId, IdentityId
from veen_overlays.operations.overlays import ACCOUNTS, EXECUTIONS, GRANTS, PAYMENTS
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.operations.refusal import Refusal
from veen_overlays.schema.record import Record
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.records import Deposit, Freeze, Limit, Open

ADMIN, ANN, BOB, EVE = (bytes([n]) * 32 for n in (1, 2, 3, 4))
WALLETS = tuple(wallet_id(RealmId(bytes(32)), CtxId(bytes([n]) * 32), "USD") for n in range(3))
A, B, C = (AccountId(wallet) for wallet in WALLETS)
NARROW, WIDE = (StreamId(b"\x01" * 32),), (StreamId(b"\x01" * 32), StreamId(b"\x02" * 32))
NOON = 1_700_000_000
Signed = tuple[bytes, int, Record]
"""Signer, hub_ts and record of a message."""


def log(*signed: Signed) -> list[Message]:
    return [
        Message(n, H(b"m" + u64be(n)), r.SCHEMA, r.encode(), None, signer, at)
        for n, (signer, at, r) in enumerate(signed, start=1)
    ]


def open_(n: int, currency: str = "USD") -> Open:
    ctx = CtxId(bytes([n]) * 32)
    return Open(
        wallet_id=wallet_id(RealmId(bytes(32)), ctx, currency),
        realm_id=RealmId(bytes(32)),
        ctx_id=ctx,
        currency=currency,
        created_at=UnixTime(NOON),
    )


def pay(amount: int, payer: AccountId = A, payee: AccountId = B, unit: str | None = "USD") -> PaidOperation:
    return PaidOperation(
        operation_type="translate",
        operation_args={"text": "hello"},
        payer_account=payer,
        payee_account=payee,
        amount=amount,
        currency_code=unit,
    )


def grant(subject: bytes, **changed: Any) -> AccessGrant:
    fields: dict[str, Any] = {"allowed_stream_ids": WIDE, "expiry_time": NOON + 100}
    return AccessGrant(subject_identity=IdentityId(subject), **(fields | changed))


def domain(**changed: Any) -> Domain:
    fields: dict[str, Any] = {
        "authorities": (IdentityId(ADMIN),),
        "negative_balances": False,
        "grants_required": False,
    }
    return Domain(**(fields | changed))


def ref(issuer: bytes, given_: AccessGrant, at: int = NOON) -> AuthRef:
    return cap_token(given_, issuer, at).auth_ref


def execution(
    *chain: AuthRef, what: Record | None = None, principal: bytes = ANN, agent: bytes = BOB
) -> DelegatedExecution:
    what = what or pay(5)
    return DelegatedExecution(
        principal_identity=IdentityId(principal),
        agent_identity=IdentityId(agent),
        delegation_chain=chain,
        operation_schema=what.SCHEMA,
        operation_body=cbor.decode(what.encode()),
    )


def view(overlay: Overlay[Any], messages: list[Message]) -> Any:
    return overlay.view(overlay.fold(messages).inner)


def outcomes(*signed: Signed) -> list[str]:
    return [row["outcome"] for row in view(PAYMENTS, log(*signed))]


def balances(*signed: Signed) -> dict[bytes, int]:
    return {row["account_id"]: row["balance"] for row in view(ACCOUNTS, log(*signed))}


FUNDED: tuple[Signed, ...] = (
    (ADMIN, NOON, domain()),
    (ADMIN, NOON, open_(0)),
    (ADMIN, NOON, open_(1)),
    (ADMIN, NOON, Deposit(wallet_id=WalletId(A), amount=10, ts=UnixTime(NOON))),
)


# --- against the plain interpreter


def drawn(rng: random.Random, issued: list[tuple[bytes, int, AccessGrant]], at: int) -> tuple[bytes, Record]:
    who = rng.choice((ADMIN, ADMIN, ANN, BOB))
    refs = [ref(issuer, given_, when) for issuer, when, given_ in issued] or [AuthRef(bytes(32))]
    payment = pay(
        rng.randrange(9),
        rng.choice((A, B, C)),
        rng.choice((A, B, C)),
        rng.choice(("USD", "USD", None, "EUR")),
    )
    chance = rng.randrange(20)
    if chance < 6:
        return who, payment
    if chance < 9:
        made = grant(
            rng.choice((ANN, BOB, bytes(A))),
            allowed_stream_ids=rng.choice((WIDE, WIDE, NARROW)),
            expiry_time=UnixTime(NOON + rng.randrange(-2, 40)),
            maximum_amount=rng.choice((None, rng.randrange(12))),
            maximum_rate_per_second=rng.choice((None, rng.randrange(3))),
            currency_code=rng.choice((None, "USD")),
        )
        if made.expiry_time >= at:
            issued.append((who, at, made))
        return who, made
    if chance < 10:
        target = rng.choice((None, rng.choice(refs)))
        subject = IdentityId(rng.choice((ANN, BOB)))
        return who, AccessRevoke(subject_identity=subject, target_capability_reference=target)
    if chance < 14:
        chain = tuple(rng.choice(refs) for _ in range(rng.choice((1, 2, 2))))
        if chance < 13:  # a chain that may well be valid
            first = [
                r
                for r, (i, _, g) in zip(refs, issued, strict=False)
                if (i, g.subject_identity) == (ADMIN, ANN)
            ]
            second = [
                r for r, (i, _, g) in zip(refs, issued, strict=False) if (i, g.subject_identity) == (ANN, BOB)
            ]
            if first and second:
                chain, who = (rng.choice(first), rng.choice(second)), BOB
        return who, execution(*chain, what=rng.choice((payment, grant(EVE), open_(1))))
    if chance < 15:
        return who, domain(
            negative_balances=rng.random() < 0.5,
            grants_required=rng.random() < 0.3,
            currency_code=rng.choice((None, "USD")),
        )
    if chance < 19:
        n = rng.randrange(3)
        return who, rng.choice(
            (open_(n), Deposit(wallet_id=WALLETS[n], amount=rng.randrange(20), ts=UnixTime(at)))
        )
    return who, Freeze(wallet_id=WALLETS[2], ts=UnixTime(at))


@pytest.mark.parametrize("seed", range(40))
def test_the_folds_agree_with_a_plain_interpreter(seed: int) -> None:
    rng, issued, signed = random.Random(seed), list[tuple[bytes, int, AccessGrant]](), list[Signed]()
    signed.append((ADMIN, NOON, domain()))
    for n in range(120):
        at = NOON + n // 3
        who, record = drawn(rng, issued, at)
        signed.append((who, at, record))
    world = World()
    for n, (signer, at, record) in enumerate(signed, start=1):
        world.take(n, signer, at, record)
    messages = log(*signed)
    assert {r["account_id"]: r["balance"] for r in view(ACCOUNTS, messages)} == world.balance
    operations = [r for r in signed if not r[2].NAME.startswith("wallet.")]
    expected = dict(zip([id(r) for r in operations], world.outcomes, strict=True))
    payments = [r for r in operations if _is_payment(r[2])]
    assert [row["outcome"] for row in view(PAYMENTS, messages)] == [expected[id(r)] for r in payments]
    delegated = [r for r in operations if isinstance(r[2], DelegatedExecution)]
    assert [row["outcome"] for row in view(EXECUTIONS, messages)] == [expected[id(r)] for r in delegated]
    told = sorted((each.seq, each.ref, each.spent) for each in world.grants)
    assert [(r["stream_seq"], r["auth_ref"], r["spent"]) for r in view(GRANTS, messages)] == told


def _is_payment(record: Record) -> bool:
    embedded = isinstance(record, DelegatedExecution) and record.operation_schema == PaidOperation.SCHEMA
    return embedded or isinstance(record, PaidOperation)


def test_the_interpreter_meets_every_kind_of_outcome() -> None:
    """Otherwise the comparison above would prove little."""
    met = set()
    for seed in range(40):
        rng, issued, world = random.Random(seed), list[tuple[bytes, int, AccessGrant]](), World()
        world.take(1, ADMIN, NOON, domain())
        for n in range(120):
            at = NOON + n // 3
            world.take(n + 2, *_flat(at, drawn(rng, issued, at)))
        met |= set(world.outcomes)
    assert met >= {
        "applied",
        "A1: issuer",
        "expired",
        "revoked",
        "same-account",
        "currency",
        "frozen",
        "funds",
    }
    assert met >= {"no-grant", "amount", "rate", "D2: unknown capability", "D2: principal", "D2: agent"}
    assert met >= {"D2: broken chain", "D2: wider scope"}


def _flat(at: int, signed: tuple[bytes, Record]) -> tuple[bytes, int, Record]:
    return signed[0], at, signed[1]


@settings(max_examples=40)
@given(log_=logs(LEDGER))
def test_without_operations_accounts_are_those_of_the_wallet_ledger(log_: list[Message]) -> None:
    wallets = LEDGER.view(LEDGER.fold(log_).inner)
    accounts = {row.pop("account_id"): row for row in view(ACCOUNTS, log_)}
    assert {
        key: {k: v for k, v in row.items() if k != "currency_code"}
        for key, row in accounts.items()
        if row["exists"]
    } == {key: row for key, row in wallets.items() if row["exists"]}


@given(data=st.data())
@settings(max_examples=30)
def test_a_range_that_starts_later_is_a_function_of_the_state_before(data: st.DataObject) -> None:
    messages = data.draw(logs(PAYMENTS))
    cut = data.draw(st.integers(0, len(messages)))
    early, late = messages[:cut], messages[cut:]
    seen: Any = MemorySeenKeys()
    first, second = PAYMENTS.fold(early, seen), PAYMENTS.fold(late, seen)
    assert PAYMENTS.encode(PAYMENTS.combine(first, second)) == PAYMENTS.encode(PAYMENTS.fold(messages))
    assert not first.inner.events or not early


# --- paid operations (spec-3 §2)


def test_a_payment_moves_money_between_the_accounts_of_wallets() -> None:
    assert balances(*FUNDED, (ANN, NOON, pay(4))) == {A: 6, B: 4}


def test_a_payment_that_would_overdraw_is_refused_and_a_later_smaller_one_is_not() -> None:
    payments = (ANN, NOON, pay(11)), (ANN, NOON, pay(7)), (ANN, NOON, pay(7))
    assert outcomes(*FUNDED, *payments) == ["funds", "applied", "funds"]
    assert balances(*FUNDED, *payments) == {A: 3, B: 7}


def test_a_domain_may_allow_negative_balances() -> None:
    allowed = (ADMIN, NOON, domain(negative_balances=True))
    assert balances(*FUNDED, allowed, (ANN, NOON, pay(11)))[A] == -1


def test_only_an_authority_changes_the_domain() -> None:
    changed = (EVE, NOON, domain(negative_balances=True, authorities=(IdentityId(EVE),)))
    assert outcomes(*FUNDED, changed, (ANN, NOON, pay(11))) == ["funds"]


def test_a_replay_and_a_mirrored_copy_are_paid_once() -> None:
    """P1: once per (label, stream_seq), however often the message arrives."""
    messages = log(*FUNDED, (ANN, NOON, pay(4)))
    copy = messages[-1]._replace(seq=6, msg_id=H(b"elsewhere"), parent_id=messages[-1].msg_id)
    rows = view(PAYMENTS, [*messages, copy, messages[-1]._replace(seq=7)])
    assert [row["operation_id"] for row in rows] == [operation_id(messages[-1].msg_id)]


def test_a_second_operation_under_the_same_operation_id_has_no_effect() -> None:
    """P1, P2: a forged parent cannot make another operation of the same id count."""
    messages = log(*FUNDED, (ANN, NOON, pay(4)), (EVE, NOON, pay(6)))
    forged = messages[-1]._replace(parent_id=messages[-2].msg_id)
    assert [row["amount"] for row in view(PAYMENTS, [*messages[:-1], forged])] == [4]


LIMIT = Limit(wallet_id=WalletId(A), daily_limit=5, ts=UnixTime(NOON))
FREEZE = Freeze(wallet_id=WalletId(A), ts=UnixTime(NOON))
CAPPED = grant(ANN, maximum_amount=5)
PAYMENT_CASES: dict[str, tuple[tuple[Signed, ...], Signed, str]] = {
    "same account": ((), (ANN, NOON, pay(1, A, A)), Refusal.SAME_ACCOUNT),
    "another unit": ((), (ANN, NOON, pay(1, unit="EUR")), Refusal.CURRENCY),
    "no unit and no default": ((), (ANN, NOON, pay(1, unit=None)), Refusal.CURRENCY),
    "the domain's unit": (
        ((ADMIN, NOON, domain(currency_code="USD")),),
        (ANN, NOON, pay(1, unit=None)),
        "applied",
    ),
    "frozen": (((ADMIN, NOON, FREEZE),), (ANN, NOON, pay(1)), Refusal.FROZEN),
    "over the daily limit": (((ADMIN, NOON, LIMIT),), (ANN, NOON, pay(6)), Refusal.DAILY_LIMIT),
    "within the daily limit": (((ADMIN, NOON, LIMIT),), (ANN, NOON, pay(5)), "applied"),
    "a grant is required": (
        ((ADMIN, NOON, domain(grants_required=True)),),
        (ANN, NOON, pay(1)),
        Refusal.NO_GRANT,
    ),
    "more than granted": (((ADMIN, NOON, CAPPED),), (ANN, NOON, pay(6)), Refusal.AMOUNT),
    "as granted": (((ADMIN, NOON, CAPPED),), (ANN, NOON, pay(5)), "applied"),
    "granted to the account": (
        ((ADMIN, NOON, grant(A, maximum_amount=5)),),
        (EVE, NOON, pay(6)),
        Refusal.AMOUNT,
    ),
    "granted in another unit": (
        ((ADMIN, NOON, grant(ANN, maximum_amount=5, currency_code="EUR")),),
        (ANN, NOON, pay(1)),
        Refusal.NO_GRANT,
    ),
    "granted by nobody's authority": (((EVE, NOON, CAPPED),), (ANN, NOON, pay(6)), "applied"),
    "the grant has expired": (((ADMIN, NOON, CAPPED),), (ANN, NOON + 101, pay(1)), Refusal.NO_GRANT),
    "in the grant's last second": (((ADMIN, NOON, CAPPED),), (ANN, NOON + 100, pay(1)), "applied"),
    "the grant is revoked": (
        ((ADMIN, NOON, CAPPED), (ADMIN, NOON, AccessRevoke(subject_identity=IdentityId(ANN)))),
        (ANN, NOON, pay(1)),
        Refusal.NO_GRANT,
    ),
    "revoked by nobody's authority": (
        ((ADMIN, NOON, CAPPED), (EVE, NOON, AccessRevoke(subject_identity=IdentityId(ANN)))),
        (ANN, NOON, pay(1)),
        "applied",
    ),
    "faster than granted": (
        ((ADMIN, NOON, grant(ANN, maximum_amount=9, maximum_rate_per_second=1)), (ANN, NOON, pay(1))),
        (ANN, NOON, pay(1)),
        Refusal.RATE,
    ),
    "a second later": (
        ((ADMIN, NOON, grant(ANN, maximum_amount=9, maximum_rate_per_second=1)), (ANN, NOON, pay(1))),
        (ANN, NOON + 1, pay(1)),
        "applied",
    ),
}


@pytest.mark.parametrize("case", PAYMENT_CASES)
def test_rules_of_payments(case: str) -> None:
    before, last, expected = PAYMENT_CASES[case]
    assert outcomes(*FUNDED, *before, last)[-1] == expected


# --- grants (spec-3 §3)


def test_a_grant_gives_the_token_that_spec_3_describes() -> None:
    given_ = grant(BOB, maximum_rate_per_second=3, maximum_burst=9)
    token = cap_token(given_, ADMIN, NOON)
    assert (token.issuer_pk, token.subject_pk, token.allow.stream_ids) == (ADMIN, BOB, WIDE)
    assert (token.allow.ttl, token.expires_at(UnixTime(NOON))) == (100, given_.expiry_time)
    assert token.allow.rate is not None
    assert (token.allow.rate.per_sec, token.allow.rate.burst, token.sig_chain) == (3, 9, ())


def test_a_revocation_ends_the_grants_before_it_and_not_a_later_one() -> None:
    revoke = AccessRevoke(subject_identity=IdentityId(BOB))
    rows = view(
        GRANTS,
        log(
            (ADMIN, NOON, domain()),
            (ADMIN, NOON, grant(BOB)),
            (ADMIN, NOON, revoke),
            (ADMIN, NOON + 1, grant(BOB)),
        ),
    )
    assert [row["revoked_at"] for row in rows] == [3, None]


def test_a_revocation_of_one_capability_leaves_the_others() -> None:
    first, second = grant(BOB), grant(BOB, allowed_stream_ids=NARROW)
    revoke = AccessRevoke(subject_identity=IdentityId(BOB), target_capability_reference=ref(ADMIN, first))
    rows = view(
        GRANTS,
        log((ADMIN, NOON, domain()), (ADMIN, NOON, first), (ADMIN, NOON, second), (ADMIN, NOON, revoke)),
    )
    assert [row["revoked_at"] for row in rows] == [4, None]


# --- delegated executions (spec-3 §4)

ROOT, LEAF = grant(ANN), grant(BOB, allowed_stream_ids=NARROW)
CHAIN: tuple[Signed, ...] = (*FUNDED, (ADMIN, NOON, ROOT), (ANN, NOON, LEAF))
REFS = ref(ADMIN, ROOT), ref(ANN, LEAF)


def executed(signed: Signed, *before: Signed) -> str:
    rows = view(EXECUTIONS, log(*CHAIN, *before, signed))
    paid = {r["account_id"]: r["balance"] for r in view(ACCOUNTS, log(*CHAIN, *before, signed))}[B]
    outcome: str = rows[-1]["outcome"]
    assert paid == (5 if outcome == "applied" else 0), "D2: a refused execution applies nothing"
    assert tuple(rows[-1]["delegation_chain"]) == signed[2].delegation_chain, "D3"  # type: ignore[attr-defined]
    return outcome


def test_an_agent_pays_with_the_authority_of_its_principal() -> None:
    assert executed((BOB, NOON, execution(*REFS))) == "applied"


DELEGATION_CASES: dict[str, tuple[tuple[Signed, ...], Signed, str]] = {
    "an unknown capability": (
        (),
        (BOB, NOON, execution(REFS[0], AuthRef(bytes(32)))),
        Refusal.UNKNOWN_CAPABILITY,
    ),
    "another principal": ((), (BOB, NOON, execution(*REFS, principal=EVE)), Refusal.PRINCIPAL),
    "not the agent": ((), (EVE, NOON, execution(*REFS)), Refusal.AGENT),
    "the agent's name under another key": ((), (EVE, NOON, execution(*REFS, agent=EVE)), Refusal.AGENT),
    "a missing link": (
        ((EVE, NOON, grant(BOB)),),
        (BOB, NOON, execution(REFS[0], ref(EVE, grant(BOB)))),
        Refusal.BROKEN_CHAIN,
    ),
    "more than the principal has": (
        ((ADMIN, NOON, grant(ANN, allowed_stream_ids=NARROW)), (ANN, NOON, grant(BOB))),
        (BOB, NOON, execution(ref(ADMIN, grant(ANN, allowed_stream_ids=NARROW)), ref(ANN, grant(BOB)))),
        Refusal.WIDER_SCOPE,
    ),
    "a root without authority": (
        ((EVE, NOON, grant(ANN)),),
        (BOB, NOON, execution(ref(EVE, grant(ANN)), REFS[1])),
        Refusal.ISSUER,
    ),
    "the first capability has expired": ((), (BOB, NOON + 101, execution(*REFS)), Refusal.EXPIRED),
    "the principal has revoked the last one": (
        ((ANN, NOON, AccessRevoke(subject_identity=IdentityId(BOB))),),
        (BOB, NOON, execution(*REFS)),
        Refusal.REVOKED,
    ),
    "the first one is revoked": (
        ((ADMIN, NOON, AccessRevoke(subject_identity=IdentityId(ANN))),),
        (BOB, NOON, execution(*REFS)),
        Refusal.REVOKED,
    ),
    "not a record": (
        (),
        (BOB, NOON, replace(execution(*REFS), operation_body={"amount": 5})),
        Refusal.EMBEDDED,
    ),
    "more than the agent may spend": (
        ((ANN, NOON, grant(BOB, maximum_amount=4)),),
        (BOB, NOON, execution(REFS[0], ref(ANN, grant(BOB)))),
        Refusal.AMOUNT,
    ),
}


@pytest.mark.parametrize("case", DELEGATION_CASES)
def test_rules_of_delegation(case: str) -> None:
    before, last, expected = DELEGATION_CASES[case]
    assert executed(last, *before) == expected


def test_every_grant_of_a_chain_bounds_what_is_spent() -> None:
    capped = grant(BOB, allowed_stream_ids=NARROW, maximum_amount=4, reason="cards")
    chain = REFS[0], ref(ANN, capped, NOON + 1)
    assert executed((BOB, NOON + 1, execution(*chain)), (ANN, NOON + 1, capped)) == Refusal.AMOUNT


def test_a_grant_of_a_chain_in_another_unit_covers_nothing() -> None:
    capped = grant(BOB, allowed_stream_ids=NARROW, maximum_amount=99, currency_code="JPY", reason="cards")
    chain = REFS[0], ref(ANN, capped, NOON + 1)
    assert executed((BOB, NOON + 1, execution(*chain)), (ANN, NOON + 1, capped)) == Refusal.NO_GRANT


def test_an_embedded_operation_of_another_profile_is_kept_with_its_chain() -> None:
    call = replace(execution(*REFS), operation_schema=open_(0).schema_id, operation_body={"method": "x"})
    rows = view(EXECUTIONS, log(*CHAIN, (BOB, NOON, call)))
    assert (rows[0]["outcome"], rows[0]["operation_body"]) == ("applied", {"method": "x"})


def test_an_embedded_grant_counts_as_the_principals() -> None:
    given_ = grant(EVE)
    rows = view(GRANTS, log(*CHAIN, (BOB, NOON, execution(*REFS, what=given_))))
    assert (rows[-1]["issuer"], rows[-1]["auth_ref"]) == (ANN, ref(ANN, given_))
