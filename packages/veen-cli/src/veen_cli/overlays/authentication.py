"""``veen id whois`` and ``veen id authenticate``: resolve handles, authenticate messages (ID §9, §10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.overlays.arguments import describe_realm, realm_option
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, access_options
from veen_core.cap import CapToken
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, StreamId, StreamSeq
from veen_core.stream import stream_id
from veen_hub.client import NotFound
from veen_overlays.identifiers import (
    CtxId,
    OrgId,
    PrincipalPk,
    RealmId,
    ctx_stream,
    handle_stream,
    org_stream,
    principal_stream,
)
from veen_overlays.identity.authentication import Authenticated, AuthenticationDenied, AuthenticationInput
from veen_overlays.identity.authentication import authenticate as by_path
from veen_overlays.identity.directory import IdentityDirectory
from veen_overlays.identity.state import on_stream

Streams = Callable[[str | StreamId], OverlayStream]


async def directory(at_stream: Streams, *streams: StreamId) -> IdentityDirectory:
    """Fold these identity streams into a directory; records on the wrong stream are ignored."""
    return IdentityDirectory({stream: await at_stream(stream).state(on_stream(stream)) for stream in streams})


def _id(text: str) -> CtxId | None:
    try:
        return CtxId.from_hex(text)
    except DecodeError:
        return None


async def _whois(at_stream: Streams, realm: RealmId, who: str) -> dict[str, Any]:
    target: CtxId | OrgId | None = _id(who)
    if target is None:
        handles = handle_stream(realm)
        state = await at_stream(handles).state(on_stream(handles), must_exist=True)
        target = IdentityDirectory({handles: state}).resolve(realm, who)
        if target is None:
            raise CommandFailed(
                f"no record that your keys open in this realm has the handle {who}",
                Exit.USAGE,
                action="check the spelling and --realm, or read with the realm's key (--reader)",
            )
    if isinstance(target, OrgId):
        org = (await directory(at_stream, org_stream(target))).org(target)
        name = org.display_name if org is not None else None
        return {"handle": who, "org_id": target.hex(), "display_name": name}
    profile = (await directory(at_stream, ctx_stream(target, realm))).profile(target, realm)
    found: dict[str, Any] = {"ctx_id": target.hex()} if _id(who) else {"handle": who, "ctx_id": target.hex()}
    return {
        **found,
        "display_name": profile.display_name if profile is not None else None,
        "updated_at": profile.updated_at if profile is not None else None,
    }


@command("veen id whois @bob --realm shop --reader realm", "veen id whois CTX_ID --realm shop")
@click.argument("who", metavar="HANDLE|CTX_ID")
@realm_option
@access_options
def whois(out: Output, *, access: OverlayAccess, who: str, realm: RealmId) -> Answer:
    """Show the account or organisation that has a handle.

    The profile of an account is shown too. Ends with exit code 1 if no record has the handle.
    """
    del out

    async def work() -> dict[str, Any]:
        async with access.streams(describe_realm(realm)) as at_stream:
            return await _whois(at_stream, realm, who)

    data = loop.run(work())
    updated = data.get("updated_at")
    return Answer(data, fields({**data, "updated_at": updated and times.format_utc(updated)}))


async def _authenticate(
    at_stream: Streams,
    stream: str,
    seq: int,
    *,
    epoch: Epoch | None,
    token: CapToken | None,
    realm: RealmId,
    org: OrgId | None,
    roles: Any,
) -> Authenticated | AuthenticationDenied:
    source = at_stream(stream)
    entries = await source.hub.log_reader().page(source.stream.label(epoch), StreamSeq(seq), 1)
    if not entries or entries[0].is_authorize:
        raise CommandFailed(
            f"{stream} has no message {seq}",
            Exit.USAGE,
            action=f"run `veen stream --stream {quote(stream)}` to list the messages",
        )
    entry, issued_at, streams = entries[0], None, []
    if token is not None:
        try:
            issued_at = (await source.hub.cap_status(token.auth_ref)).issued_at
        except NotFound:
            issued_at = None  # the step TOKEN_TTL reports that the token was never authorized
        streams.append(principal_stream(PrincipalPk(token.issuer_pk)))
    if org is not None:
        streams.append(org_stream(org))
    claim = AuthenticationInput(
        msg=entry.msg,
        wire=entry.msg.encode(),
        token=token,
        issued_at=issued_at,
        realm=realm,
        streams=(stream_id(stream),),
        now=source.now,
        org=org,
        roles=roles,
    )
    return by_path(claim, await directory(at_stream, *streams))


@command(
    "veen id authenticate --stream orders --seq 7 --token phone.cap --realm shop --reader bob",
    "veen id authenticate --stream till --seq 7 --token phone.cap --realm shop --org ORG_ID --role cashier"
    " --reader realm",
)
@stream_option
@click.option("--seq", type=Integer(1), required=True, help="Number of the message.")
@click.option("--epoch", type=Integer(0), help="Epoch of the message [default: the current one].")
@click.option(
    "--token",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Token that the message was sent with.",
)
@realm_option
@click.option("--org", type=Hex(OrgId), help="Organisation whose roles and revocations count.")
@click.option("--role", "roles", multiple=True, help="Role that the account must have; may be repeated.")
@access_options
def authenticate(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    seq: int,
    epoch: int | None,
    token: Path | None,
    realm: RealmId,
    org: OrgId | None,
    roles: tuple[str, ...],
) -> Answer:
    """Show which account sent a message, or why it cannot be authenticated.

    Checks signature, token, principal, device and roles in the order of ID 9.2. Ends with exit code 6 and
    names the step if one fails. You need keys that open the principal's stream.
    """
    del out
    decoded = CapToken.decode(token.read_bytes()) if token is not None else None

    async def work() -> Authenticated | AuthenticationDenied:
        async with access.streams() as at_stream:
            at = Epoch(epoch) if epoch is not None else None
            return await _authenticate(
                at_stream, stream, seq, epoch=at, token=decoded, realm=realm, org=org, roles=roles
            )

    found = loop.run(work())
    if isinstance(found, AuthenticationDenied):
        raise CommandFailed(f"not authenticated: step ID {found.step.value}: {found.why}", Exit.POLICY)
    data = {
        "ctx_id": found.ctx_id.hex(),
        "principal_pk": found.principal_pk.hex(),
        "device_id": found.device_id.hex(),
    }
    return Answer(data, fields(data))
