"""Authentication of a message in the steps of ID 9.2, and the rotation of a device (ID 11.2)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from veen_core.cap import CapToken, verify_token, verify_ttl
from veen_core.errors import VeenError
from veen_core.ids import AuthRef, StreamId, UnixTime
from veen_core.msg import Msg, verify_signature
from veen_overlays.identifiers import (
    CtxId,
    DeviceId,
    DevicePk,
    OrgId,
    PrincipalPk,
    RealmId,
    ctx_id,
    device_id,
)
from veen_overlays.identity.directory import IdentityDirectory
from veen_overlays.identity.records import Device, DeviceFlags, Revoke


class AuthenticationStep(enum.StrEnum):
    """The steps of authentication in order (ID 9.2, 11.1)."""

    SIGNATURE = "9.2.1 MSG.sig"
    TOKEN_PRESENT = "9.2.2 cap_token"  # noqa: S105 - a step's name
    TOKEN_CHAIN = "9.2.2 sig_chain"  # noqa: S105
    TOKEN_SUBJECT = "9.2.2 subject_pk"  # noqa: S105
    TOKEN_STREAMS = "9.2.2 allow.stream_ids"  # noqa: S105
    TOKEN_TTL = "9.2.2 ttl"  # noqa: S105
    TOKEN_REVOKED = "11.1 revoked_auth_ref"  # noqa: S105
    PRINCIPAL = "9.2.3 issuer_pk"
    CTX_REVOKED = "11.1 ctx_id"
    DEVICE_ACTIVE = "9.2.4 device"
    ROLES = "9.2.4 roles"


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The account that sent a message."""

    ctx_id: CtxId
    principal_pk: PrincipalPk
    device_id: DeviceId


@dataclass(frozen=True, slots=True)
class AuthenticationDenied:
    """The first step that failed, and why."""

    step: AuthenticationStep
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationInput:
    """The input of authentication: an accepted MSG, its token, and the required streams and roles."""

    msg: Msg
    wire: bytes
    """The encoded ``msg``."""
    token: CapToken | None
    issued_at: UnixTime | None
    """When the hub authorized the token (core §6); None if it never did."""
    realm: RealmId
    streams: Collection[StreamId]
    """Streams that the token must allow."""
    now: UnixTime
    org: OrgId | None = None
    """An organisation whose revocations count too (ID 11.1)."""
    roles: Collection[str] = ()
    """Roles of ``org`` that the account must have."""

    @property
    def device_pk(self) -> DevicePk:
        return DevicePk(self.msg.client_id)

    @property
    def principal(self) -> PrincipalPk:
        assert self.token is not None  # the step TOKEN_PRESENT has passed
        return PrincipalPk(self.token.issuer_pk)

    @property
    def ctx(self) -> CtxId:
        return ctx_id(self.principal, self.realm)


Check = Callable[[AuthenticationInput, IdentityDirectory], str | None]


def _raised(check: Callable[[], None]) -> str | None:
    try:
        check()
    except VeenError as exc:
        return str(exc)
    return None


def _signature(claim: AuthenticationInput, _directory: IdentityDirectory) -> str | None:
    return _raised(lambda: verify_signature(claim.msg, claim.wire))


def _token_present(claim: AuthenticationInput, _directory: IdentityDirectory) -> str | None:
    if claim.token is None:
        return "the message was sent without a cap_token"
    return (
        None
        if claim.msg.auth_ref == claim.token.auth_ref
        else "the auth_ref of the message names another token"
    )


def _token_chain(claim: AuthenticationInput, _directory: IdentityDirectory) -> str | None:
    token = claim.token
    assert token is not None
    return _raised(lambda: verify_token(token))


def _token_subject(claim: AuthenticationInput, _directory: IdentityDirectory) -> str | None:
    assert claim.token is not None
    return None if claim.token.subject_pk == claim.msg.client_id else "the token belongs to another device"


def _token_streams(claim: AuthenticationInput, _directory: IdentityDirectory) -> str | None:
    assert claim.token is not None
    missing = [stream for stream in claim.streams if stream not in claim.token.allow.stream_ids]
    return f"the token does not allow stream {missing[0].hex()}" if missing else None


def _token_ttl(claim: AuthenticationInput, _directory: IdentityDirectory) -> str | None:
    token, issued_at = claim.token, claim.issued_at
    assert token is not None
    if issued_at is None:
        return "the token was never authorized at this hub"
    return _raised(lambda: verify_ttl(token, issued_at, claim.now))


def _token_revoked(claim: AuthenticationInput, directory: IdentityDirectory) -> str | None:
    assert claim.token is not None
    revoked = directory.auth_ref_revoked(claim.principal, claim.token.auth_ref, claim.org)
    return "the token is revoked" if revoked else None


def _principal(claim: AuthenticationInput, directory: IdentityDirectory) -> str | None:
    known = directory.is_principal(claim.principal)
    return None if known else "the token's issuer has published neither a principal nor a device record"


def _ctx_revoked(claim: AuthenticationInput, directory: IdentityDirectory) -> str | None:
    revoked = directory.ctx_revoked(claim.principal, claim.ctx, claim.realm, claim.org)
    return "the account is revoked in this realm" if revoked else None


def _device_active(claim: AuthenticationInput, directory: IdentityDirectory) -> str | None:
    return directory.inactive(claim.principal, device_id(claim.device_pk), claim.now, claim.org)


def _roles(claim: AuthenticationInput, directory: IdentityDirectory) -> str | None:
    if not claim.roles:
        return None
    if claim.org is None:
        return "a role belongs to an organisation, and no organisation is named"
    accounts = directory.accounts(claim.principal, claim.realm)
    held = {role for ctx in accounts for role in directory.roles(claim.org, ctx, claim.realm)}
    missing = set(claim.roles) - held
    return f"the account lacks the role {', '.join(sorted(missing))}" if missing else None


STEPS: Final[tuple[tuple[AuthenticationStep, Check], ...]] = (
    (AuthenticationStep.SIGNATURE, _signature),
    (AuthenticationStep.TOKEN_PRESENT, _token_present),
    (AuthenticationStep.TOKEN_CHAIN, _token_chain),
    (AuthenticationStep.TOKEN_SUBJECT, _token_subject),
    (AuthenticationStep.TOKEN_STREAMS, _token_streams),
    (AuthenticationStep.TOKEN_TTL, _token_ttl),
    (AuthenticationStep.TOKEN_REVOKED, _token_revoked),
    (AuthenticationStep.PRINCIPAL, _principal),
    (AuthenticationStep.CTX_REVOKED, _ctx_revoked),
    (AuthenticationStep.DEVICE_ACTIVE, _device_active),
    (AuthenticationStep.ROLES, _roles),
)


def authenticate(
    claim: AuthenticationInput, directory: IdentityDirectory
) -> Authenticated | AuthenticationDenied:
    """The account that sent a message, or the first step that failed (ID 9.2)."""
    for step, check in STEPS:
        if (why := check(claim, directory)) is not None:
            return AuthenticationDenied(step, why)
    return Authenticated(claim.ctx, claim.principal, device_id(claim.device_pk))


def rotate_device(
    old: Device, new: Device, now: UnixTime, auth_ref: AuthRef | None = None
) -> tuple[Device, Revoke, Device]:
    """The records that replace a device, to publish in this order on the principal's stream (ID 11.2)."""
    revoke = Revoke(principal_pk=old.principal_pk, device_id=old.device_id, revoked_auth_ref=auth_ref, ts=now)
    fields = {f.name: getattr(old, f.name) for f in old.codec.fields}
    disabled = Device(**fields | {"flags": DeviceFlags(disabled=True)})
    return new, revoke, disabled
