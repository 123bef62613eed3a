"""Declarations of the nine identity records, and the streams they belong on (ID §6-§11)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from veen_core.ids import AuthRef, Coid, DhPublicKey, StreamId, UnixTime
from veen_core.wire import Wire, text_map
from veen_overlays.identifiers import (
    CtxId,
    DeviceId,
    DevicePk,
    GroupId,
    OrgId,
    PrincipalPk,
    RealmId,
    ctx_stream,
    device_id,
    handle_stream,
    org_stream,
    principal_stream,
)
from veen_overlays.operations.recovery_records import (
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_overlays.schema.record import Record, RecordRule, at_least_one_of, is_map, record

HANDLE: Final = re.compile(r"@?[a-z0-9]([a-z0-9._+-]{0,62}[a-z0-9])?(@[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?")
"""``@user``, ``user`` or ``user@example.com`` in lowercase ASCII: no two handles look alike (ID 10.1)."""


@record("id.principal.v1", section="ID 6.1", rules=(is_map("info"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class Principal(Record):
    """Publish a principal; a later record replaces ``info``."""

    principal_pk: PrincipalPk
    created_at: UnixTime
    info: Any | None = None


@text_map("id.device.v1 flags", section="ID 6.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFlags(Wire):
    """The flags of a device."""

    disabled: bool | None = None


_DEVICE_ID_MATCHES = RecordRule(
    "device_id is derived from device_pk", lambda r: r.device_id == device_id(r.device_pk)
)


@record("id.device.v1", section="ID 6.2", rules=(_DEVICE_ID_MATCHES,))
@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Record):
    """Publish a device of a principal; the last record of a device counts."""

    principal_pk: PrincipalPk
    device_id: DeviceId
    device_pk: DevicePk
    dh_pk: DhPublicKey
    label: str | None = None
    created_at: UnixTime
    expires_at: UnixTime | None = None
    flags: DeviceFlags | None = None

    @property
    def disabled(self) -> bool:
        return self.flags is not None and bool(self.flags.disabled)


@record("id.ctx.profile.v1", section="ID 7.1", rules=(is_map("prefs"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class CtxProfile(Record):
    """Publish the profile of an account in a realm."""

    ctx_id: CtxId
    realm_id: RealmId
    display_name: str | None = None
    avatar_coid: Coid | None = None
    prefs: Any | None = None
    updated_at: UnixTime


@record("id.org.profile.v1", section="ID 8.1", rules=(is_map("metadata"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class OrgProfile(Record):
    """Publish the profile of an organisation."""

    org_id: OrgId
    display_name: str | None = None
    metadata: Any | None = None
    created_at: UnixTime
    updated_at: UnixTime


@record("id.group.v1", section="ID 8.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Record):
    """Add members to a group, remove members, and name the group."""

    org_id: OrgId
    realm_id: RealmId | None = None
    group_id: GroupId
    name: str
    members_add: tuple[CtxId, ...] | None = None
    members_remove: tuple[CtxId, ...] | None = None
    updated_at: UnixTime


@record("id.role.v1", section="ID 8.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class Role(Record):
    """Give a role to accounts and groups; a role cannot be taken back."""

    org_id: OrgId
    realm_id: RealmId | None = None
    role: str
    targets_ctx: tuple[CtxId, ...] | None = None
    targets_group: tuple[GroupId, ...] | None = None
    ts: UnixTime


_IS_HANDLE = RecordRule(
    "handle is lowercase ASCII: @user, user or user@example.com",
    lambda r: HANDLE.fullmatch(r.handle) is not None,
)


@record("id.handlemap.v1", section="ID 10.1", rules=(_IS_HANDLE,))
@dataclass(frozen=True, slots=True, kw_only=True)
class HandleMap(Record):
    """Give a handle to an account or an organisation; the latest record of a handle counts."""

    realm_id: RealmId
    handle: str
    target_type: Literal["ctx", "org"]
    target_id: CtxId
    ts: UnixTime


@record(
    "id.external.v1", section="ID 10.2", rules=(at_least_one_of("ctx_id", "org_id"), is_map("attributes"))
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalLink(Record):
    """Link an account or organisation to a subject at an external provider."""

    realm_id: RealmId
    ctx_id: CtxId | None = None
    org_id: OrgId | None = None
    provider: str
    external_sub: str
    attributes: Any | None = None
    ts: UnixTime


@record(
    "id.revoke.v1",
    section="ID 11.1",
    rules=(at_least_one_of("device_id", "revoked_auth_ref", "ctx_id", "org_id"),),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke(Record):
    """Revoke a device, a capability, an account in a realm or an organisation."""

    principal_pk: PrincipalPk | None = None
    org_id: OrgId | None = None
    device_id: DeviceId | None = None
    revoked_auth_ref: AuthRef | None = None
    realm_id: RealmId | None = None
    ctx_id: CtxId | None = None
    reason: str | None = None
    ts: UnixTime


ID_RECORDS: tuple[type[Record], ...] = (
    Principal,
    Device,
    CtxProfile,
    OrgProfile,
    Group,
    Role,
    HandleMap,
    ExternalLink,
    Revoke,
)


def home_streams(record: Record) -> tuple[StreamId, ...]:
    """The streams that a record belongs on, by the ids it names (ID §6-§11)."""
    match record:
        case Principal(principal_pk=pk) | Device(principal_pk=pk):
            return (principal_stream(pk),)
        case CtxProfile(ctx_id=ctx, realm_id=realm):
            return (ctx_stream(ctx, realm),)
        case OrgProfile(org_id=org) | Group(org_id=org) | Role(org_id=org):
            return (org_stream(org),)
        case HandleMap(realm_id=realm):
            return (handle_stream(realm),)
        case ExternalLink(realm_id=realm, ctx_id=ctx, org_id=org):
            by_ctx = () if ctx is None else (ctx_stream(ctx, realm),)
            return by_ctx if org is None else (*by_ctx, org_stream(org))
        case Revoke(principal_pk=pk, org_id=org):
            by_pk = () if pk is None else (principal_stream(pk),)
            return by_pk if org is None else (*by_pk, org_stream(org))
        case (
            RecoveryPolicy(target_identity=target)
            | RecoveryRequest(target_identity=target)
            | RecoveryApproval(target_identity=target)
            | RecoveryExecution(target_identity=target)
        ):
            return (principal_stream(PrincipalPk(target)),)
    return ()
