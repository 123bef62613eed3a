"""Phase 3 of connect: find a token for a service, or say exactly what to ask for (spec-5 7.3).

A service whose operator issues tokens by a call says so in ``auth_policy.details``:

    {"issue": {"stream": STREAM, "method": METHOD}}

The method is called at the hub of the directory, on that stream, with the client's key and the streams of the
service. Its result has the token: ``{"token": bstr}``. Requests and replies are sealed to the public reader
key of the stream: a token is of use only to the key that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Any

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream
from veen_cli.rpc.access import stream_access
from veen_core.cap import CapToken, verify_token
from veen_core.errors import VeenError
from veen_core.ids import ClientId
from veen_core.stream import stream_id
from veen_hub.client import Hub
from veen_hub.client.tokens import held_tokens
from veen_overlays.discovery.records import ServiceAdvertise
from veen_overlays.discovery.streams import public_reader
from veen_overlays.live.rpc import connect_rpc


@dataclass(frozen=True, slots=True)
class TokenNeed:
    """A service whose hub asks for a token."""

    access: OverlayAccess
    directory: OverlayStream
    hub: Hub
    service: ServiceAdvertise
    given: CapToken | None

    @property
    def subject(self) -> ClientId:
        return self.access.identity.client_id


async def obtain_token(need: TokenNeed) -> tuple[CapToken, str]:
    """A token for the service's streams, and where it is from; without one, raise with what to ask for."""
    connection = need.hub.connection
    if need.given is not None:
        _check(need, need.given)
        return need.given, "from --token"
    for token in held_tokens(connection.store, need.hub.hub_id):
        if not _misfit(need, token):
            return token, "this identity holds it"
    issue = _issuer(need.service)
    if issue is None:
        raise _ask_operator(need)
    token = await _issued(need, *issue)
    _check(need, token)
    return token, f"issued by {issue[1]}"


def _misfit(need: TokenNeed, token: CapToken) -> str:
    """Why a token does not fit the service and this identity; empty if it does."""
    if token.subject_pk != need.subject:
        return f"it is for the key {token.subject_pk.hex()}"
    missing = set(need.service.stream_ids).difference(token.allow.stream_ids)
    return f"it does not allow the stream {min(missing).hex()}" if missing else ""


def _check(need: TokenNeed, token: CapToken) -> None:
    verify_token(token, need.hub.connection.limits)
    if why := _misfit(need, token):
        raise CommandFailed(f"the token {token.auth_ref.hex()} cannot be used: {why}", Exit.POLICY)


def _issuer(service: ServiceAdvertise) -> tuple[str, str] | None:
    """The stream and the method that issue tokens, if the descriptor names them."""
    details = None if service.auth_policy is None else service.auth_policy.details
    issue = details.get("issue") if isinstance(details, dict) else None
    if not isinstance(issue, dict):
        return None
    stream, method = issue.get("stream"), issue.get("method")
    return (stream, method) if isinstance(stream, str) and isinstance(method, str) else None


async def _issued(need: TokenNeed, stream: str, method: str) -> CapToken:
    source = OverlayStream(
        hub=need.directory.hub,
        stream=need.directory.hub.stream(stream, readers=[public_reader(stream_id(stream))]),
        keys=(public_reader(stream_id(stream)),),
        access=need.access,
        description=f"stream {stream}",
    )
    args: dict[str, Any] = {
        "subject": bytes(need.subject),
        "stream_ids": [bytes(each) for each in need.service.stream_ids],
        "required_caps": list(need.service.required_caps),
    }
    try:
        async with connect_rpc(stream_access(source)) as client:
            result = await client.call(method, args, timeout=10)
        return CapToken.decode(result["token"])
    except (VeenError, KeyError, TypeError) as exc:
        why = str(exc) if isinstance(exc, VeenError) else "its result has no token"
        raise CommandFailed(
            f"{method} on stream {stream} issued no token: {why}",
            Exit.REFUSED,
            action="ask the operator of the service for a token, and give it with --token",
        ) from None


def _ask_operator(need: TokenNeed) -> CommandFailed:
    """Say what to ask the operator for (7.3: an out-of-band cap_token)."""
    operator = need.service.operator
    whom = None if operator is None else operator.contact or operator.org
    streams = " ".join(f"--stream {each.hex()}" for each in need.service.stream_ids)
    caps = f" ({', '.join(need.service.required_caps)})" if need.service.required_caps else ""
    issue = (
        f"veen cap issue --issuer ADMIN --subject {need.subject.hex()} {streams} "
        f"--out {quote(need.service.name)}.cap"
    )
    return CommandFailed(
        f"hub {need.hub.hub_id.hex()} admits only clients with a token{caps}, and you hold none for "
        f"{need.service.name}",
        Exit.POLICY,
        action=f"ask {whom or 'its operator'} to run `{issue}`, then give the file with --token",
        reason="TOKEN",
    )
