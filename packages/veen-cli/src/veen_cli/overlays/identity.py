"""``veen id principal``, ``device``, ``ctx``, ``org`` and others: publish identity records (ID §6-§11).

Each record is sent to the one stream it belongs on. The stream of handles is derived from the realm, every
other stream from the signing key of the acting identity, which is a principal or an organisation. Readers
need a reader key of the stream. Only the hub's tokens keep other writers out, because a fold does not check
signatures (core §11).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.identifiers import Hex
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output
from veen_cli.identity.identity_folder import card_named
from veen_cli.overlays.arguments import JsonMap, Realm, realm_option
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, sent_data
from veen_core.ids import AuthRef, Coid, StreamId, UnixTime
from veen_overlays.identifiers import (
    CtxId,
    DeviceId,
    DevicePk,
    GroupId,
    OrgId,
    OrgPk,
    PrincipalPk,
    RealmId,
    ctx_id,
    device_id,
    group_id,
    org_id,
)
from veen_overlays.identity import records as ids
from veen_overlays.identity.oidc import Provider, jwks_keys, verify_id_token
from veen_overlays.schema.record import Record


def _now() -> UnixTime:
    return UnixTime(times.now())


def principal_of(access: OverlayAccess) -> PrincipalPk:
    return PrincipalPk(access.identity.client_id)


def own_org(access: OverlayAccess) -> OrgId:
    return org_id(OrgPk(access.identity.client_id))


def _publish(
    access: OverlayAccess, record: Record, data: dict[str, Any], line: str, stream: StreamId | None = None
) -> Answer:
    """Send a record to the stream it belongs on (ID §6-§11) and describe it."""
    home = stream or ids.home_streams(record)[0]
    receipt = access.send(home, record)
    return Answer(
        {**sent_data(record, receipt, home.hex()), **data},
        [line, f"  message {receipt.stream_seq} of stream {home.hex()}"],
    )


@command('veen id principal --info \'{"name": "Bob"}\' --client bob')
@click.option("--info", type=JsonMap(), help="Public information about you, as a JSON object.")
@access_options
def principal(out: Output, *, access: OverlayAccess, info: dict[str, Any] | None) -> Answer:
    """Publish yourself as a principal: the root of devices and accounts.

    A later record replaces the information.
    """
    del out
    key = principal_of(access)
    record = ids.Principal(principal_pk=key, created_at=_now(), info=info)
    return _publish(access, record, {"principal_pk": key.hex()}, f"principal {key.hex()}")


@command(
    "veen id device phone.pub --label phone --expires +90d --client bob",
    "veen id device phone.pub --disable --client bob",
)
@click.argument("card", shell_complete=completions.files)
@click.option("--label", help="Name of the device.")
@click.option("--expires", type=times.Moment(future=True), help="Expiry: a time, or +90d.")
@click.option("--disable", is_flag=True, help="Disable the device.")
@access_options
def device(
    out: Output, *, access: OverlayAccess, card: str, label: str | None, expires: int | None, disable: bool
) -> Answer:
    """Publish one of your devices, or disable it.

    CARD is the folder or card of the device's own identity. The device signs with its own key, so your
    principal's key need not be on it.
    """
    del out
    found, key = card_named(card), principal_of(access)
    device_pk = DevicePk(found.id_sign)
    record = ids.Device(
        principal_pk=key,
        device_id=device_id(device_pk),
        device_pk=device_pk,
        dh_pk=found.id_dh,
        label=label,
        created_at=_now(),
        expires_at=UnixTime(expires) if expires is not None else None,
        flags=ids.DeviceFlags(disabled=True) if disable else None,
    )
    data = {"device_id": record.device_id.hex(), "device_pk": device_pk.hex(), "disabled": disable}
    return _publish(
        access, record, data, f"device {record.device_id.hex()}{' (disabled)' if disable else ''}"
    )


@command("veen id ctx --realm shop --name Bob --client bob")
@realm_option
@click.option("--name", "display_name", help="Display name.")
@click.option("--avatar", type=Hex(Coid), help="coid of the picture.")
@click.option("--prefs", type=JsonMap(), help="Preferences, as a JSON object.")
@access_options
def ctx(
    out: Output,
    *,
    access: OverlayAccess,
    realm: RealmId,
    display_name: str | None,
    avatar: Coid | None,
    prefs: dict[str, Any] | None,
) -> Answer:
    """Publish the profile of your account in a realm.

    The account's id is derived from your key and the realm; in another realm it is different.
    """
    del out
    account = ctx_id(principal_of(access), realm)
    record = ids.CtxProfile(
        ctx_id=account,
        realm_id=realm,
        display_name=display_name,
        avatar_coid=avatar,
        prefs=prefs,
        updated_at=_now(),
    )
    return _publish(
        access, record, {"ctx_id": account.hex(), "realm_id": realm.hex()}, f"account {account.hex()}"
    )


@command("veen id org --name 'Bakery' --client bakery")
@click.option("--name", "display_name", help="Display name.")
@click.option("--metadata", type=JsonMap(), help="Further information, as a JSON object.")
@access_options
def org(
    out: Output, *, access: OverlayAccess, display_name: str | None, metadata: dict[str, Any] | None
) -> Answer:
    """Publish the profile of an organisation.

    The acting identity is the organisation: the org_id is derived from its key. Every writer of the
    organisation's stream can change the profile, groups and roles.
    """
    del out
    found, now = own_org(access), _now()
    record = ids.OrgProfile(
        org_id=found, display_name=display_name, metadata=metadata, created_at=now, updated_at=now
    )
    return _publish(access, record, {"org_id": found.hex()}, f"organisation {found.hex()}")


@command("veen id group bakers --add CTX_ID --remove CTX_ID --client bakery")
@click.argument("name")
@click.option("--add", multiple=True, type=Hex(CtxId), help="Account to add; may be repeated.")
@click.option("--remove", multiple=True, type=Hex(CtxId), help="Account to remove; may be repeated.")
@click.option("--realm", type=Realm(), help="Realm of these accounts, for information only.")
@access_options
def group(
    out: Output,
    *,
    access: OverlayAccess,
    name: str,
    add: tuple[CtxId, ...],
    remove: tuple[CtxId, ...],
    realm: RealmId | None,
) -> Answer:
    """Add accounts to a group of your organisation, or remove them."""
    del out
    owner = own_org(access)
    found = group_id(owner, name)
    record = ids.Group(
        org_id=owner,
        realm_id=realm,
        group_id=found,
        name=name,
        members_add=add or None,
        members_remove=remove or None,
        updated_at=_now(),
    )
    data = {"org_id": owner.hex(), "group_id": found.hex(), "added": len(add), "removed": len(remove)}
    return _publish(access, record, data, f"group {found.hex()}: {len(add)} added, {len(remove)} removed")


@command("veen id role cashier --ctx CTX_ID --group GROUP_ID --realm shop --client bakery")
@click.argument("role")
@click.option(
    "--ctx", "accounts", multiple=True, type=Hex(CtxId), help="Account that gets the role; may be repeated."
)
@click.option(
    "--group", "groups", multiple=True, type=Hex(GroupId), help="Group that gets the role; may be repeated."
)
@click.option("--realm", type=Realm(), help="Realm in which the role counts [default: all].")
@access_options
def role(
    out: Output,
    *,
    access: OverlayAccess,
    role: str,
    accounts: tuple[CtxId, ...],
    groups: tuple[GroupId, ...],
    realm: RealmId | None,
) -> Answer:
    """Give a role of your organisation to accounts and groups.

    A role cannot be taken from an account directly: give roles to groups, and remove accounts from a group.
    """
    del out
    if not accounts and not groups:
        raise click.UsageError("name an account with --ctx or a group with --group.")
    owner = own_org(access)
    record = ids.Role(
        org_id=owner,
        realm_id=realm,
        role=role,
        targets_ctx=accounts or None,
        targets_group=groups or None,
        ts=_now(),
    )
    return _publish(access, record, {"org_id": owner.hex(), "role": role}, f"role {role} of {owner.hex()}")


@command("veen id handle @bob --ctx CTX_ID --realm shop --client registrar --reader realm")
@click.argument("handle")
@realm_option
@click.option("--ctx", "account", type=Hex(CtxId), help="Account that gets the handle [default: yours].")
@click.option("--org", "owner", type=Hex(OrgId), help="Organisation that gets the handle.")
@access_options
def handle(
    out: Output,
    *,
    access: OverlayAccess,
    handle: str,
    realm: RealmId,
    account: CtxId | None,
    owner: OrgId | None,
) -> Answer:
    """Give a handle of a realm to an account or an organisation.

    A handle is lowercase ASCII: @bob, bob or bob@example.com. The latest record counts, so every writer of
    the realm's handle stream can reassign handles.
    """
    del out
    if account is not None and owner is not None:
        raise click.UsageError("name --ctx or --org, not both.")
    target = CtxId(owner) if owner is not None else account or ctx_id(principal_of(access), realm)
    record = ids.HandleMap(
        realm_id=realm,
        handle=handle,
        target_type="org" if owner is not None else "ctx",
        target_id=target,
        ts=_now(),
    )
    data = {"handle": handle, "target_type": record.target_type, "target_id": target.hex()}
    return _publish(access, record, data, f"{handle} names {record.target_type} {target.hex()}")


@command(
    "veen id link --realm shop --provider example --sub 12345 --client bob",
    "veen id link --realm shop --provider example --id-token t.jwt --jwks keys.json"
    " --issuer https://id.example --audience shop",
)
@realm_option
@click.option("--provider", required=True, help="Name of the provider in this deployment.")
@click.option("--sub", help="Your subject id at the provider.")
@click.option(
    "--id-token", type=click.Path(path_type=Path, exists=True), help="File with an ID token of the provider."
)
@click.option(
    "--jwks", type=click.Path(path_type=Path, exists=True), help="File with the provider's key set."
)
@click.option("--issuer", help="Expected issuer of the token.")
@click.option("--audience", help="Expected audience of the token.")
@click.option("--nonce", help="Expected nonce of the token.")
@access_options
def link(
    out: Output,
    *,
    access: OverlayAccess,
    realm: RealmId,
    provider: str,
    sub: str | None,
    id_token: Path | None,
    jwks: Path | None,
    issuer: str | None,
    audience: str | None,
    nonce: str | None,
) -> Answer:
    """Link your account to a subject at an external provider.

    With an OpenID Connect ID token the subject is read from the token, after its signature, issuer, audience
    and times were verified with the given key set.
    """
    del out
    account = ctx_id(principal_of(access), realm)
    if (sub is None) == (id_token is None):
        raise click.UsageError("name either --sub or --id-token.")
    if id_token is not None:
        if jwks is None or issuer is None or audience is None:
            raise click.UsageError("--id-token needs --jwks, --issuer and --audience.")
        known = Provider(name=provider, issuer=issuer, audience=audience, keys=jwks_keys(jwks.read_bytes()))
        # A replacement character is not base64url, so the token is refused.
        token = id_token.read_bytes().decode("ascii", "replace").strip()
        subject = verify_id_token(token, known, _now(), nonce).sub
    else:
        assert sub is not None
        subject = sub
    record = ids.ExternalLink(
        realm_id=realm, ctx_id=account, provider=provider, external_sub=subject, ts=_now()
    )
    data = {"ctx_id": account.hex(), "provider": provider, "sub": subject, "verified": id_token is not None}
    return _publish(access, record, data, f"account {account.hex()} is {subject} at {provider}")


@command(
    "veen id revoke --device DEVICE_ID --reason lost --client bob", "veen id revoke --own-ctx --realm shop"
)
@click.option("--device", "device_", type=Hex(DeviceId), help="One of your devices.")
@click.option("--auth-ref", type=Hex(AuthRef), help="A token that you issued.")
@click.option("--own-ctx", is_flag=True, help="Your account in --realm.")
@click.option("--realm", type=Realm(), help="Realm of the account, with --own-ctx.")
@click.option("--own-org", "own_org_", is_flag=True, help="The organisation of the acting identity.")
@click.option("--reason", help="Reason, as text.")
@access_options
def revoke(
    out: Output,
    *,
    access: OverlayAccess,
    device_: DeviceId | None,
    auth_ref: AuthRef | None,
    own_ctx: bool,
    realm: RealmId | None,
    own_org_: bool,
    reason: str | None,
) -> Answer:
    """Revoke a device, a token, your account or your organisation.

    The revocation counts as soon as it is in the log, for everyone who reads your stream. To make hubs refuse
    a key or token, use `veen revoke`.
    """
    del out
    if own_ctx and realm is None:
        raise click.UsageError("--own-ctx needs --realm: an account belongs to a realm.")
    record = ids.Revoke(
        principal_pk=None if own_org_ else principal_of(access),
        org_id=own_org(access) if own_org_ else None,
        device_id=device_,
        revoked_auth_ref=auth_ref,
        realm_id=realm,
        ctx_id=ctx_id(principal_of(access), realm) if own_ctx and realm is not None else None,
        reason=reason,
        ts=_now(),
    )
    if record.broken_rule() is not None:
        raise click.UsageError("name what to revoke: --device, --auth-ref, --own-ctx or --own-org.")
    what = {"device_id": device_, "auth_ref": auth_ref, "ctx_id": record.ctx_id, "org_id": record.org_id}
    data = {name: value.hex() for name, value in what.items() if value is not None}
    return _publish(access, record, data, f"revoked {', '.join(f'{k} {v}' for k, v in data.items())}")
