"""Owners of wallets: the account that opened each wallet, and who has taken it over (WAL 2.3; spec-3 §8).

A wallet_id is derived from the account that opens the wallet, and never changes. If the owner's key is lost,
the wallet stays, and a recovery of the owner's principal in the same stream makes the new identity its owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import FIRST_WRITER, Monoid, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.identifiers import PrincipalPk, RealmId, ctx_id
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.recovery import RECOVERY_MONOID, Recoveries, lift_recovery, recoveries
from veen_overlays.operations.recovery_records import RECOVERY_RECORDS
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.wallet.records import Open

OwnerState = Mapping[str, Any]

OWNER_MONOID: Final[Monoid[OwnerState]] = product(opened=map_of(FIRST_WRITER), recovery=RECOVERY_MONOID)
"""The first ``wallet.open.v1`` of each wallet, and the recoveries of the stream."""


def _lift(event: Event) -> OwnerState:
    if isinstance(event.record, Open):
        return {"opened": {bytes(event.record.wallet_id): (event.stamp(0), event.record.encode())}}
    found = lift_recovery(event)
    return {"recovery": found} if found else {}


def replaced_accounts(found: Recoveries, realm: RealmId) -> dict[bytes, IdentityId]:
    """The successor of every replaced principal, by the account that the principal had in a realm."""
    return {bytes(ctx_id(PrincipalPk(each), realm)): found.current(each) for each in found.replaced}


def _view(state: OwnerState) -> dict[bytes, Any]:
    found = recoveries(state.get("recovery", {}))
    held = state.get("opened", {})
    opened = {wallet: Open.decode(held[wallet][1]) for wallet in sorted(held)}
    realms = {each.realm_id for each in opened.values()} if found.replaced else ()
    replaced = {realm: replaced_accounts(found, realm) for realm in realms}
    return {wallet: _owner(each, replaced.get(each.realm_id, {})) for wallet, each in opened.items()}


def _owner(opened: Open, replaced: Mapping[bytes, IdentityId]) -> dict[str, Any]:
    new = replaced.get(opened.ctx_id)
    return {
        "realm_id": bytes(opened.realm_id),
        "ctx_id": bytes(opened.ctx_id),
        "currency": opened.currency,
        **({} if new is None else {"replaced_by": bytes(new)}),
    }


OWNERS: Final[Overlay[OwnerState]] = Overlay(
    name="wallet.owners",
    title="The account that opened each wallet, and the identity that has taken it over (spec-3 §8).",
    schemas=(Open, *RECOVERY_RECORDS, KeyContinuity),
    monoid=OWNER_MONOID,
    lift=_lift,
    view=_view,
    reads_signer=True,
    table=table_of_maps(
        {
            "wallet_id": ColumnType.BYTES,
            "realm_id": ColumnType.BYTES,
            "ctx_id": ColumnType.BYTES,
            "currency": ColumnType.TEXT,
            "replaced_by": ColumnType.BYTES,
        },
        key="wallet_id",
    ),
)
