"""The identity overlay: registers, sets and revocations in one summary (ID §6-§12).

``IDENTITY`` folds every identity record of a stream. ``on_stream`` folds one of the streams of ID 4.1 and
ignores records that belong on another stream: a principal cannot speak about another principal's devices.

The state contains the recoveries of the stream (spec-3 §8): the successor of every replaced principal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from veen_core import cbor
from veen_core.ids import StreamId
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import FIRST_WRITER, GROW_SET, LWW, Monoid, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, Table
from veen_overlays.identity import records as ids
from veen_overlays.operations.recovery import RECOVERY_MONOID, lift_recovery, recoveries, replaced_view
from veen_overlays.operations.recovery_records import RECOVERY_RECORDS
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.record import Record

Identity = Mapping[str, Any]

MEMBER: Final[Monoid[Mapping[str, Any]]] = product(added=LWW, removed=LWW)
"""The last addition and the last removal of one account (ID 8.2)."""

IDENTITY_MONOID: Final[Monoid[Identity]] = product(
    principals=map_of(LWW),
    devices=map_of(LWW),
    profiles=map_of(LWW),
    orgs=map_of(LWW),
    groups=map_of(product(name=LWW, members=map_of(MEMBER))),
    roles=map_of(GROW_SET),
    handles=map_of(LWW),
    links=map_of(LWW),
    revoked=map_of(FIRST_WRITER),
    recovery=RECOVERY_MONOID,
)


def _written(event: Event, ts: int) -> StampedValue:
    """The register value of an event's record; ``ts`` is 0 if only stream order counts."""
    return event.stamp(ts), event.record.encode()


def group_key(org: bytes, group: bytes) -> bytes:
    """The key of a group."""
    return org + group


def handle_key(realm: bytes, handle: str) -> bytes:
    """The key of a handle in a realm."""
    return realm + handle.encode()


def link_key(realm: bytes, provider: str, external_sub: str) -> bytes:
    """The key of an external subject in a realm."""
    return realm + cbor.encode([provider, external_sub])


def role_key(role: str, target: bytes, realm: bytes | None) -> bytes:
    """The key of one assignment of a role to an account or a group, in one realm or in all."""
    return cbor.encode([role, target, realm])


def _lift_group(event: Event, group: ids.Group) -> Identity:
    mark: StampedValue = (event.stamp(group.updated_at), b"")
    members: dict[bytes, dict[str, StampedValue]] = {}
    for kind, ignored in (("added", group.members_add), ("removed", group.members_remove)):
        for ctx in ignored or ():
            members.setdefault(bytes(ctx), {})[kind] = mark
    value: dict[str, Any] = {"name": (mark[0], group.name.encode())}
    if members:
        value["members"] = members
    return {"groups": {group_key(group.org_id, group.group_id): value}}


def _lift_role(role: ids.Role) -> Identity:
    targets = (*(role.targets_ctx or ()), *(role.targets_group or ()))
    if not targets:
        return {}
    realm = None if role.realm_id is None else bytes(role.realm_id)
    given = frozenset(role_key(role.role, bytes(target), realm) for target in targets)
    return {"roles": {bytes(role.org_id): given}}


def revocation_keys(revoke: ids.Revoke) -> list[bytes]:
    """The keys of everything that a record revokes; without a realm, an account is revoked in all realms."""
    keys = []
    if revoke.device_id is not None:
        keys.append(b"device" + revoke.device_id)
    if revoke.revoked_auth_ref is not None:
        keys.append(b"auth" + revoke.revoked_auth_ref)
    if revoke.ctx_id is not None:
        keys.append(b"ctx" + revoke.ctx_id + (revoke.realm_id or b""))
    if not keys and revoke.org_id is not None:
        keys.append(b"org" + revoke.org_id)
    return keys


def lift(event: Event) -> Identity:
    """The summary of one event."""
    match event.record:
        case ids.Principal(principal_pk=pk):
            return {"principals": {bytes(pk): _written(event, 0)}}
        case ids.Device(device_id=device):
            return {"devices": {bytes(device): _written(event, 0)}}
        case ids.CtxProfile(ctx_id=ctx, realm_id=realm, updated_at=ts):
            return {"profiles": {ctx + realm: _written(event, ts)}}
        case ids.OrgProfile(org_id=org, updated_at=ts):
            return {"orgs": {bytes(org): _written(event, ts)}}
        case ids.Group() as group:
            return _lift_group(event, group)
        case ids.Role() as role:
            return _lift_role(role)
        case ids.HandleMap(realm_id=realm, handle=handle, ts=ts):
            return {"handles": {handle_key(realm, handle): _written(event, ts)}}
        case ids.ExternalLink(realm_id=realm, provider=provider, external_sub=sub, ts=ts):
            return {"links": {link_key(realm, provider, sub): _written(event, ts)}}
        case ids.Revoke(ts=ts) as revoke:
            return {"revoked": {key: _written(event, ts) for key in revocation_keys(revoke)}}
        case record if isinstance(record, (*RECOVERY_RECORDS, KeyContinuity)):
            found = lift_recovery(event)
            return {"recovery": found} if found else {}
    raise AssertionError(f"not a record of this overlay: {event.record}")


def _bodies(registers: Mapping[bytes, StampedValue]) -> dict[bytes, Any]:
    return {key: cbor.decode(registers[key][1]) for key in sorted(registers)}


def is_member(marks: Mapping[str, Any]) -> bool:
    """Whether the last addition is not followed by a removal (ID 8.2); in one record the addition wins."""
    if "added" not in marks:
        return False
    return "removed" not in marks or bool(marks["added"][0] >= marks["removed"][0])


def _shown_group(group: Mapping[str, Any]) -> dict[str, Any]:
    members = group.get("members", {})
    return {
        "name": group["name"][1].decode(),
        "members": [ctx for ctx in sorted(members) if is_member(members[ctx])],
    }


def _view(state: Identity) -> dict[str, Any]:
    shown: dict[str, Any] = {
        name: _bodies(state[name])
        for name in ("principals", "devices", "profiles", "orgs", "handles", "links", "revoked")
        if name in state
    }
    if "groups" in state:
        shown["groups"] = {key: _shown_group(state["groups"][key]) for key in sorted(state["groups"])}
    if "roles" in state:
        roles = state["roles"]
        shown["roles"] = {org: [cbor.decode(given) for given in sorted(roles[org])] for org in sorted(roles)}
    if "recovery" in state and (replaced := replaced_view(recoveries(state["recovery"]))):
        shown["replaced"] = replaced
    return shown


def _overlay(lift_: Callable[[Event], Identity], scope: bytes = b"") -> Overlay[Identity]:
    return Overlay(
        name="id.directory",
        scope=scope,
        title="Principals, devices, accounts, organisations, groups, roles, handles, links, revocations.",
        schemas=(*ids.ID_RECORDS, *RECOVERY_RECORDS, KeyContinuity),
        monoid=IDENTITY_MONOID,
        lift=lift_,
        view=_view,
        reads_signer=True,
        table=Table(
            {"part": ColumnType.TEXT, "key": ColumnType.BYTES, "value": ColumnType.JSON},
            lambda view: ((part, key, value) for part, held in view.items() for key, value in held.items()),
        ),
    )


IDENTITY: Final = _overlay(lift)
"""Folds a stream that a deployment trusts as a whole (ID 4.1 allows merged streams)."""


def belongs(record: Record, stream: StreamId) -> bool:
    """Whether a record counts on a stream.

    It does if it names the stream's owner, and if it is a revocation or a key link that names no owner.
    """
    named = ids.home_streams(record)
    return stream in named or (isinstance(record, ids.Revoke | KeyContinuity) and not named)


def on_stream(stream: StreamId) -> Overlay[Identity]:
    """The overlay of one stream of ID 4.1, which ignores records of other streams."""
    return _overlay(lambda event: lift(event) if belongs(event.record, stream) else {}, stream)
