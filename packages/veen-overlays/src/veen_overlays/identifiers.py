"""Identifiers and streams of identity and wallets, and how they are derived (ID §3, §4; WAL §2, §3.1)."""

from __future__ import annotations

from veen_core.errors import DecodeError, EncodeError
from veen_core.hashing import Ht, u64be
from veen_core.ids import ClientId, ClientSeq, FixedBytes, StreamId, VerifyKey


class RealmId(FixedBytes):
    """The id of a realm, in which accounts live (ID 3.1)."""

    __slots__ = ()


class PrincipalPk(VerifyKey):
    """The root key of a human or a service (ID §1)."""

    __slots__ = ()


class PrincipalId(FixedBytes):
    """The id of a principal; informative (ID 3.2)."""

    __slots__ = ()


class CtxId(FixedBytes):
    """The id of an account: a principal in a realm (ID 3.3)."""

    __slots__ = ()


class DevicePk(VerifyKey):
    """The signing key of a device; on the wire it is the client_id (ID 3.4)."""

    __slots__ = ()


class DeviceId(FixedBytes):
    """The id of a device in identity records (ID 3.4)."""

    __slots__ = ()


class OrgPk(VerifyKey):
    """The root key of an organisation (ID 3.5)."""

    __slots__ = ()


class OrgId(FixedBytes):
    """The id of an organisation, or of an organisation in a realm (ID 3.5)."""

    __slots__ = ()


class GroupId(FixedBytes):
    """The id of a group of an organisation (ID 3.6)."""

    __slots__ = ()


class WalletId(FixedBytes):
    """The id of a wallet, derived from realm, owner and currency (WAL 2.3)."""

    __slots__ = ()


class TransferId(FixedBytes):
    """The id of a transfer, the same in both streams (WAL 5.5, RESOLUTIONS B15)."""

    __slots__ = ()


def realm_id(name: str) -> RealmId:
    """``Ht("id/realm", name)`` (ID 3.1)."""
    return RealmId(Ht("id/realm", name.encode()))


def parse_realm(text: str) -> RealmId:
    """The id of a realm that is given by its name, or by its id in hex."""
    try:
        return RealmId.from_hex(text.lower())
    except DecodeError:
        return realm_id(text)


def principal_id(principal: PrincipalPk) -> PrincipalId:
    """``Ht("id/principal", principal_pk)`` (ID 3.2)."""
    return PrincipalId(Ht("id/principal", principal))


def ctx_id(principal: PrincipalPk, realm: RealmId) -> CtxId:
    """``Ht("id/ctx", principal_pk || realm_id)``: stable in a realm, not linkable across realms (ID 3.3)."""
    return CtxId(Ht("id/ctx", principal + realm))


def device_id(device: DevicePk) -> DeviceId:
    """``Ht("id/device", device_pk)`` (ID 3.4)."""
    return DeviceId(Ht("id/device", device))


def org_id(org: OrgPk) -> OrgId:
    """``Ht("id/org", org_pk)`` (ID 3.5)."""
    return OrgId(Ht("id/org", org))


def scoped_org_id(org: OrgId, realm: RealmId) -> OrgId:
    """``Ht("id/org/realm", org_id || realm_id)``: an organisation's id in one realm (ID 3.5)."""
    return OrgId(Ht("id/org/realm", org + realm))


def group_id(org: OrgId, local_name: str) -> GroupId:
    """``Ht("id/group", org_id || name)`` (ID 3.6)."""
    return GroupId(Ht("id/group", org + local_name.encode()))


def principal_stream(principal: PrincipalPk) -> StreamId:
    """The stream of a principal's own and device records (ID 4.1)."""
    return StreamId(Ht("id/stream/principal", principal))


def ctx_stream(ctx: CtxId, realm: RealmId) -> StreamId:
    """The stream of an account's profile and external links (ID 4.1)."""
    return StreamId(Ht("id/stream/ctx", ctx + realm))


def org_stream(org: OrgId) -> StreamId:
    """The stream of an organisation's profile, groups and roles (ID 4.1)."""
    return StreamId(Ht("id/stream/org", org))


def handle_stream(realm: RealmId) -> StreamId:
    """The stream of a realm's handles (ID 4.1)."""
    return StreamId(Ht("id/stream/handle", realm))


def wallet_id(realm: RealmId, ctx: CtxId, currency: str) -> WalletId:
    """``Ht("wallet/id", realm_id || ctx_id || ascii(currency))`` (WAL 2.3)."""
    try:
        return WalletId(Ht("wallet/id", realm + ctx + currency.encode("ascii")))
    except UnicodeEncodeError:
        raise EncodeError(f"the currency code {currency!r} is not ASCII (WAL 2.2)") from None


def wallet_stream(wallet: WalletId) -> StreamId:
    """The stream of a wallet: ``Ht("wallet/stream", wallet_id)`` (WAL 3.1)."""
    return StreamId(Ht("wallet/stream", wallet))


def transfer_id(wallet: WalletId, to: WalletId, client_seq: ClientSeq, client: ClientId) -> TransferId:
    """A transfer_id that a producer may derive instead of drawing 32 random bytes (RESOLUTIONS B15)."""
    return TransferId(Ht("wallet/xfer", wallet + to + u64be(client_seq) + client))


def approval_hash(wallet: WalletId, to: WalletId, amount: int, ts: int, transfer: TransferId) -> bytes:
    """The hash that approvers of a transfer sign; amount and ``ts`` as u64be (WAL §9)."""
    return Ht("wallet/approval", wallet + to + u64be(amount) + u64be(ts) + transfer)
