"""Identifiers and streams of the identity and wallet overlays (ID §3, §4; WAL §2, §3.1)."""

from __future__ import annotations

from veen_core.errors import EncodeError
from veen_core.hashing import Ht, u64be
from veen_core.ids import ClientId, ClientSeq, FixedBytes, StreamId, VerifyKey


class RealmId(FixedBytes):
    """A scope of context identities (ID 3.1)."""

    __slots__ = ()


class PrincipalPk(VerifyKey):
    """The root key of a human or a service (ID §1)."""

    __slots__ = ()


class PrincipalId(FixedBytes):
    """A reference to a principal; informative (ID 3.2)."""

    __slots__ = ()


class CtxId(FixedBytes):
    """An account in a realm (ID 3.3)."""

    __slots__ = ()


class DevicePk(VerifyKey):
    """The key a device signs with; on the wire it is the client_id (ID 3.4)."""

    __slots__ = ()


class DeviceId(FixedBytes):
    """A device, inside identity records (ID 3.4)."""

    __slots__ = ()


class OrgPk(VerifyKey):
    """The root key of an organisation (ID 3.5)."""

    __slots__ = ()


class OrgId(FixedBytes):
    """An organisation, or one scoped to a realm (ID 3.5)."""

    __slots__ = ()


class GroupId(FixedBytes):
    """A group of an organisation (ID 3.6)."""

    __slots__ = ()


class WalletId(FixedBytes):
    """A wallet: realm, owner and currency (WAL 2.3)."""

    __slots__ = ()


class TransferId(FixedBytes):
    """One transfer, wherever its event is seen (WAL 5.5, B15)."""

    __slots__ = ()


def realm_id(name: str) -> RealmId:
    """``Ht("id/realm", name)`` (ID 3.1)."""
    return RealmId(Ht("id/realm", name.encode()))


def principal_id(principal: PrincipalPk) -> PrincipalId:
    """``Ht("id/principal", principal_pk)`` (ID 3.2)."""
    return PrincipalId(Ht("id/principal", principal))


def ctx_id(principal: PrincipalPk, realm: RealmId) -> CtxId:
    """``Ht("id/ctx", principal_pk || realm_id)``: stable in a realm, unlinkable across realms (ID 3.3)."""
    return CtxId(Ht("id/ctx", principal + realm))


def device_id(device: DevicePk) -> DeviceId:
    """``Ht("id/device", device_pk)`` (ID 3.4)."""
    return DeviceId(Ht("id/device", device))


def org_id(org: OrgPk) -> OrgId:
    """``Ht("id/org", org_pk)`` (ID 3.5)."""
    return OrgId(Ht("id/org", org))


def scoped_org_id(org: OrgId, realm: RealmId) -> OrgId:
    """``Ht("id/org/realm", org_id || realm_id)``; where it is used, groups and roles name it (ID 3.5)."""
    return OrgId(Ht("id/org/realm", org + realm))


def group_id(org: OrgId, local_name: str) -> GroupId:
    """``Ht("id/group", org_id || name)`` (ID 3.6)."""
    return GroupId(Ht("id/group", org + local_name.encode()))


def principal_stream(principal: PrincipalPk) -> StreamId:
    """Principal and device records (ID 4.1)."""
    return StreamId(Ht("id/stream/principal", principal))


def ctx_stream(ctx: CtxId, realm: RealmId) -> StreamId:
    """Context profiles and external links (ID 4.1)."""
    return StreamId(Ht("id/stream/ctx", ctx + realm))


def org_stream(org: OrgId) -> StreamId:
    """Organisation profiles, groups and roles (ID 4.1)."""
    return StreamId(Ht("id/stream/org", org))


def handle_stream(realm: RealmId) -> StreamId:
    """The handles of a realm (ID 4.1)."""
    return StreamId(Ht("id/stream/handle", realm))


def wallet_id(realm: RealmId, ctx: CtxId, currency: str) -> WalletId:
    """``Ht("wallet/id", realm_id || ctx_id || ascii(currency))`` (WAL 2.3)."""
    try:
        return WalletId(Ht("wallet/id", realm + ctx + currency.encode("ascii")))
    except UnicodeEncodeError:
        raise EncodeError(f"a currency code is ASCII (WAL 2.2), {currency!r} is not") from None


def wallet_stream(wallet: WalletId) -> StreamId:
    """``Ht("wallet/stream", wallet_id)`` (WAL 3.1)."""
    return StreamId(Ht("wallet/stream", wallet))


def transfer_id(wallet: WalletId, to: WalletId, client_seq: ClientSeq, client: ClientId) -> TransferId:
    """What a producer may derive instead of drawing 32 random bytes (B15)."""
    return TransferId(Ht("wallet/xfer", wallet + to + u64be(client_seq) + client))


def approval_hash(wallet: WalletId, to: WalletId, amount: int, ts: int, transfer: TransferId) -> bytes:
    """What the approvers of a transfer sign, ``ts`` as u64be like the amount (WAL §9)."""
    return Ht("wallet/approval", wallet + to + u64be(amount) + u64be(ts) + transfer)
