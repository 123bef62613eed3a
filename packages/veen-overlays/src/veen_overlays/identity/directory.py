"""The directory: answers questions about devices, accounts, groups, roles and handles (ID §6-§11).

An ``IdentityDirectory`` has the folded state of each identity stream. It answers each question from the
stream of the owner: about a device from its principal's stream, about a group from its organisation's stream.
A revocation may be on a principal's or on an organisation's stream (ID 11.1). A caller that names an
organisation gets the revocations on that organisation's stream too.

A principal whose key was lost is replaced on its own stream (spec-3 §8). Its devices are then inactive, and
its successor acts for its accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from veen_core import cbor
from veen_core.ids import AuthRef, StreamId
from veen_core.utc import format_utc
from veen_overlays.identifiers import (
    CtxId,
    DeviceId,
    GroupId,
    OrgId,
    PrincipalPk,
    RealmId,
    ctx_id,
    ctx_stream,
    handle_stream,
    org_stream,
    principal_stream,
)
from veen_overlays.identity import state as folded
from veen_overlays.identity.records import CtxProfile, Device, ExternalLink, HandleMap, OrgProfile
from veen_overlays.identity.state import Identity
from veen_overlays.operations.recovery import recoveries

EMPTY: Final[Identity] = {}


@dataclass(frozen=True, slots=True)
class IdentityDirectory:
    """The folded identity streams; ``merged`` is used for a stream that was not folded on its own."""

    streams: Mapping[StreamId, Identity] = field(default_factory=dict)
    merged: Identity = field(default_factory=dict)
    _replaced: Mapping[PrincipalPk, PrincipalPk] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        merged = _replacements(self.merged)
        found = {old: new for old, new in merged.items() if principal_stream(old) not in self.streams}
        for stream, state in self.streams.items():
            found |= {
                old: new for old, new in _replacements(state).items() if principal_stream(old) == stream
            }
        object.__setattr__(self, "_replaced", found)

    def _at(self, stream: StreamId, part: str) -> Mapping[bytes, Any]:
        state = self.streams.get(stream, self.merged)
        found: Mapping[bytes, Any] = state.get(part, EMPTY)
        return found

    # --- principals and devices (ID §6)

    def is_principal(self, principal: PrincipalPk) -> bool:
        """Whether the principal's stream has a record of it, or of one of its devices."""
        stream = principal_stream(principal)
        if bytes(principal) in self._at(stream, "principals"):
            return True
        devices = self._at(stream, "devices").values()
        return any(Device.decode(held[1]).principal_pk == principal for held in devices)

    def device(self, principal: PrincipalPk, device: DeviceId) -> Device | None:
        """The last record of a principal's device, or None."""
        held = self._at(principal_stream(principal), "devices").get(bytes(device))
        found = None if held is None else Device.decode(held[1])
        return found if found is not None and found.principal_pk == principal else None

    def inactive(
        self, principal: PrincipalPk, device: DeviceId, now: int, org: OrgId | None = None
    ) -> str | None:
        """Why a device is not ACTIVE; None if it is. Revocations by ``org`` count too (ID 6.2, 11.1)."""
        if (after := self._replaced.get(principal)) is not None:
            return f"the principal was replaced by {after.hex()} (spec-3 §8)"
        found = self.device(principal, device)
        if found is None:
            return "the principal has published no such device"
        if found.disabled:
            return "the device is disabled"
        if found.expires_at is not None and now > found.expires_at:
            return f"the device expired at {format_utc(found.expires_at)}"
        if self._revoked(b"device" + device, principal, org):
            return "the device is revoked"
        return None

    # --- recovery (spec-3 §8)

    def successor(self, principal: PrincipalPk) -> PrincipalPk:
        """The principal that has replaced this one; this principal itself if it was never replaced."""
        found, seen = principal, {principal}
        while (after := self._replaced.get(found)) is not None and after not in seen:
            seen.add(after)
            found = after
        return found

    def accounts(self, principal: PrincipalPk, realm: RealmId) -> tuple[CtxId, ...]:
        """The accounts that a principal acts for: its own, and those of principals that it has replaced."""
        if principal in self._replaced:
            return ()
        before = sorted(old for old in self._replaced if self.successor(old) == principal)
        return tuple(ctx_id(each, realm) for each in (principal, *before))

    # --- revocation (ID §11)

    def _revoked(self, key: bytes, principal: PrincipalPk | None, org: OrgId | None) -> bool:
        """Whether ``key`` is revoked on the stream of the principal or of the organisation."""
        of_principal = principal is not None and key in self._at(principal_stream(principal), "revoked")
        return of_principal or (org is not None and key in self._at(org_stream(org), "revoked"))

    def auth_ref_revoked(self, principal: PrincipalPk, auth_ref: AuthRef, org: OrgId | None = None) -> bool:
        """Whether the issuer of a token, or ``org``, has revoked the token."""
        return self._revoked(b"auth" + auth_ref, principal, org)

    def ctx_revoked(
        self, principal: PrincipalPk, ctx: CtxId, realm: RealmId, org: OrgId | None = None
    ) -> bool:
        """Whether an account is revoked, in this realm or in all realms."""
        return any(self._revoked(b"ctx" + ctx + where, principal, org) for where in (realm, b""))

    def org_revoked(self, org: OrgId) -> bool:
        """Whether an organisation has revoked itself."""
        return self._revoked(b"org" + org, None, org)

    # --- accounts and organisations (ID §7, §8)

    def profile(self, ctx: CtxId, realm: RealmId) -> CtxProfile | None:
        """The profile of an account, or None."""
        held = self._at(ctx_stream(ctx, realm), "profiles").get(ctx + realm)
        return None if held is None else CtxProfile.decode(held[1])

    def org(self, org: OrgId) -> OrgProfile | None:
        """The profile of an organisation, or None."""
        held = self._at(org_stream(org), "orgs").get(bytes(org))
        return None if held is None else OrgProfile.decode(held[1])

    def members(self, org: OrgId, group: GroupId) -> frozenset[CtxId]:
        """The members of a group (ID 8.2)."""
        held = self._at(org_stream(org), "groups").get(folded.group_key(org, group), EMPTY)
        members = held.get("members", EMPTY)
        return frozenset(CtxId(ctx) for ctx, marks in members.items() if folded.is_member(marks))

    def roles(self, org: OrgId, ctx: CtxId, realm: RealmId) -> frozenset[str]:
        """The roles that an account and its groups have in this realm or in all realms (ID 8.3)."""
        if self.org_revoked(org):
            return frozenset()
        given = self._at(org_stream(org), "roles").get(bytes(org), frozenset())
        found = set()
        for role, target, scope in map(_role, given):
            in_realm = scope is None or scope == bytes(realm)
            if in_realm and (target == bytes(ctx) or ctx in self.members(org, GroupId(target))):
                found.add(role)
        return frozenset(found)

    # --- names (ID §10)

    def resolve(self, realm: RealmId, handle: str) -> CtxId | OrgId | None:
        """The account or organisation that the latest record of a handle names, or None (ID 10.1)."""
        held = self._at(handle_stream(realm), "handles").get(folded.handle_key(realm, handle))
        if held is None:
            return None
        found = HandleMap.decode(held[1])
        return OrgId(found.target_id) if found.target_type == "org" else found.target_id

    def linked(self, stream: StreamId, realm: RealmId, provider: str, sub: str) -> ExternalLink | None:
        """The link of an external subject on a trusted stream, or None (ID 10.2)."""
        held = self._at(stream, "links").get(folded.link_key(realm, provider, sub))
        return None if held is None else ExternalLink.decode(held[1])


def _replacements(state: Identity) -> dict[PrincipalPk, PrincipalPk]:
    """The principals that a state replaces, each with its direct successor."""
    if "recovery" not in state:
        return {}
    pairs = recoveries(state["recovery"]).replaced.items()
    return {PrincipalPk(target): PrincipalPk(new) for target, new in pairs}


def _role(given: bytes) -> tuple[str, bytes, bytes | None]:
    item: Any = cbor.decode(given)  # as role_key wrote it
    role, target, realm = item
    return role, target, realm
