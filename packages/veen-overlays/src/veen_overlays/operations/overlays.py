"""The overlays of payments, grants and delegated executions: four views of one state (spec-3 §2 to §4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

from veen_overlays.fold.course import Course, course
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import int_to_item
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.domain.advance import advance, from_the_start
from veen_overlays.operations.domain.delegated import embedded_of
from veen_overlays.operations.domain.state import NOTHING, RECORDS, DomainState, dump, load
from veen_overlays.operations.frequent_record import bulk_course
from veen_overlays.operations.grants import revoked_at
from veen_overlays.operations.payment import PaidOperation
from veen_overlays.schema.record import Record, plain_fields
from veen_overlays.wallet.ledger import wallet_keys

DomainCourse = Course[DomainState]

_COURSE: Final = course(RECORDS, advance, dump, load)
APPLIED: Final = "applied"
"""The outcome of an operation that had its effect; any other outcome is a ``Refusal``."""


def state_after(found: DomainCourse) -> DomainState:
    """The state of a prefix."""
    return found.after(NOTHING, advance)


def account_rows(state: DomainState) -> list[dict[str, Any]]:
    """One row per account, in the order of their ids."""
    return [
        {"account_id": key, "currency_code": account.currency, **account.state.item()}
        for key, account in sorted(state.accounts.items())
    ]


def grant_rows(state: DomainState) -> list[dict[str, Any]]:
    """One row per grant, in stream order."""
    grants = sorted(grant for held in state.grants.values() for grant in held)
    return [
        {
            "auth_ref": grant.auth_ref,
            "stream_seq": grant.seq,
            "issuer": grant.issuer,
            "hub_ts": grant.hub_ts,
            **_fields(grant.record),
            "spent": int_to_item(grant.spent),
            "authority": grant.issuer in state.authorities,
            "revoked_at": revoked_at(grant, state.revocations, state.authorities),
        }
        for grant in grants
    ]


def _fields(record: Record) -> dict[str, Any]:
    """The fields of a decoded record, which need no check."""
    found = [(str(field.key), getattr(record, field.name)) for field in record.codec.fields]
    return {key: list(value) if type(value) is tuple else value for key, value in found if value is not None}


def operation_rows(state: DomainState) -> list[dict[str, Any]]:
    """One row per paid operation, in stream order."""

    def embedded(body: bytes) -> dict[str, Any] | None:
        if plain_fields(body)["operation_schema"] != PaidOperation.SCHEMA:
            return None
        found = embedded_of(DelegatedExecution.decode(body))
        return _fields(found) if isinstance(found, PaidOperation) else None

    return _outcome_rows(state, {PaidOperation.NAME: plain_fields, DelegatedExecution.NAME: embedded})


def execution_rows(state: DomainState) -> list[dict[str, Any]]:
    """One row per delegated execution, in stream order, each with its whole chain (D3)."""
    return _outcome_rows(state, {DelegatedExecution.NAME: plain_fields})


def _outcome_rows(
    state: DomainState, shown: Mapping[str, Callable[[bytes], dict[str, Any] | None]]
) -> list[dict[str, Any]]:
    """The rows of the operations whose record ``shown`` names, with what it reads from the body."""
    rows = []
    for key, outcome in sorted(state.operations.items(), key=itemgetter(1)):  # by position
        seq, name, body, signer, refusal = outcome
        if name in shown and (fields := shown[name](body)) is not None:
            row = {"operation_id": key, "stream_seq": seq, "signer": signer, **fields}
            row["outcome"] = refusal or APPLIED
            rows.append(row)
    return rows


def _lift(event: Event) -> DomainCourse:
    return Course(None, (event,))


def _overlay(
    name: str,
    title: str,
    rows: Callable[[DomainState], list[dict[str, Any]]],
    columns: Mapping[str, ColumnType],
) -> Overlay[DomainCourse]:
    return Overlay(
        name=name,
        title=title,
        schemas=RECORDS,
        monoid=_COURSE,
        lift=_lift,
        view=lambda found: rows(state_after(found)),
        keys=wallet_keys,
        bulk=bulk_course(RECORDS, wallet_keys, from_the_start),
        reads_signer=True,
        reads_time=True,
        start=Course(NOTHING),
        table=table_of_maps(columns),
    )


_T: Final = ColumnType

ACCOUNTS: Final = _overlay(
    "paid.accounts",
    "Balances after wallet records and paid operations, which are refused where a rule forbids them.",
    account_rows,
    {
        "account_id": _T.BYTES,
        "currency_code": _T.TEXT,
        "exists": _T.BOOL,
        "closed": _T.BOOL,
        "balance": _T.INTEGER,
        "frozen": _T.BOOL,
        "daily_limit": _T.UINT,
        "pending_daily_spent": _T.INTEGER,
        "last_limit_reset_ts": _T.UINT,
    },
)

PAYMENTS: Final = _overlay(
    "paid.operations",
    "Paid operations, direct or delegated, and why each was refused, if it was (spec-3 §2).",
    operation_rows,
    {
        "operation_id": _T.BYTES,
        "stream_seq": _T.UINT,
        "signer": _T.BYTES,
        "operation_type": _T.TEXT,
        "operation_args": _T.JSON,
        "payer_account": _T.BYTES,
        "payee_account": _T.BYTES,
        "amount": _T.UINT,
        "currency_code": _T.TEXT,
        "operation_reference": _T.BYTES,
        "parent_operation_id": _T.BYTES,
        "ttl_seconds": _T.UINT,
        "metadata": _T.JSON,
        "outcome": _T.TEXT,
    },
)

GRANTS: Final = _overlay(
    "access.grants",
    "Access grants: the capability of each, what was spent by it, and whether it was revoked (spec-3 §3).",
    grant_rows,
    {
        "auth_ref": _T.BYTES,
        "stream_seq": _T.UINT,
        "issuer": _T.BYTES,
        "hub_ts": _T.UINT,
        "subject_identity": _T.BYTES,
        "subject_label": _T.TEXT,
        "allowed_stream_ids": _T.BYTES_LIST,
        "expiry_time": _T.UINT,
        "maximum_rate_per_second": _T.UINT,
        "maximum_burst": _T.UINT,
        "maximum_amount": _T.UINT,
        "currency_code": _T.TEXT,
        "reason": _T.TEXT,
        "parent_operation_id": _T.BYTES,
        "spent": _T.INTEGER,
        "authority": _T.BOOL,
        "revoked_at": _T.UINT,
    },
)

EXECUTIONS: Final = _overlay(
    "delegated.executions",
    "Delegated executions with their delegation chains, and why each was refused, if it was (spec-3 §4).",
    execution_rows,
    {
        "operation_id": _T.BYTES,
        "stream_seq": _T.UINT,
        "signer": _T.BYTES,
        "principal_identity": _T.BYTES,
        "agent_identity": _T.BYTES,
        "delegation_chain": _T.BYTES_LIST,
        "operation_schema": _T.BYTES,
        "operation_body": _T.JSON,
        "parent_operation_id": _T.BYTES,
        "metadata": _T.JSON,
        "outcome": _T.TEXT,
    },
)

OVERLAYS: Final = (ACCOUNTS, PAYMENTS, GRANTS, EXECUTIONS)
