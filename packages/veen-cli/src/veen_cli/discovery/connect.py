"""``veen connect``: from the name of a service to a context for ``veen rpc call`` (spec-5 §7).

Phase 1 and 2 choose a hub and a service from the directory. The hub is then pinned: it must prove the hub_id
of its descriptor, and the user must trust that hub_id. Phase 3 obtains a token and authorizes it. Phase 4
writes the context. Nothing is sent to the chosen hub before it is pinned, and no hint is used unchecked.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.object_files import read_object
from veen_cli.discovery.directory_access import stream_of
from veen_cli.discovery.tokens import TokenNeed, obtain_token
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import TOKEN_LIFE
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.frame.settings import SavedContext
from veen_cli.identity.hub_records import CheckedStateStore, hub_folders
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, access_options
from veen_core.cap import CapToken
from veen_core.errors import VeenError
from veen_core.ids import ClientId, HubId
from veen_core.profile import PROFILES
from veen_hub.client import Retry
from veen_hub.client import connect as connect_hub
from veen_overlays.discovery.connecting import (
    Judgement,
    choose_hubs,
    choose_services,
    descriptor_lie,
    endpoints_of,
)
from veen_overlays.discovery.directory import NO_CONDITIONS
from veen_overlays.discovery.records import (
    ADVERTISE,
    Descriptor,
    HubAdvertise,
    Kind,
    OverlayAdvertise,
    ServiceAdvertise,
)
from veen_overlays.discovery.state import DISCOVERY
from veen_overlays.discovery.streams import public_reader
from veen_overlays.live.discovery import LiveDirectory
from veen_storage import Files

CONNECTIONS_FILE: Final = "connections.json"
"""The file of an identity's folder that keeps what `veen connect` has set up (spec-5 7.3)."""


@dataclass(slots=True)
class ChoiceExplanation:
    """What was considered in which phase, and why it was taken or refused."""

    out: Output
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, phase: int, candidate: str, taken: bool, why: str) -> None:
        self.steps.append({"phase": phase, "candidate": candidate, "taken": taken, "why": why})
        self.out.note(f"phase {phase}: {candidate}: {'taken' if taken else 'refused'}, {why}")

    def judged(self, phase: int, found: list[Judgement[Any]]) -> None:
        """Add the refused candidates of a phase."""
        for each in found:
            if not each.accepted:
                self.add(phase, _name(each.descriptor), False, each.why)


def _name(found: Descriptor) -> str:
    if isinstance(found, HubAdvertise):
        return f"hub {found.hub_id.hex()}"
    if isinstance(found, OverlayAdvertise):
        return f"overlay {found.name}"
    return f"service {found.name} {found.service_id.hex()}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for."""

    service: str | None
    method: str | None
    region: str | None
    tags: tuple[str, ...]
    publisher: ClientId | None
    trust_hub: HubId | None
    directories: dict[Kind, str | None]


class PinnedHub(NamedTuple):
    """A hub that has proved its descriptor and that the user trusts, and its address."""

    hub: HubAdvertise
    url: str
    explained: ChoiceExplanation


async def _listed(source: OverlayStream, kind: Kind) -> list[tuple[Any, bytes]]:
    """The unexpired descriptors of a kind by the hub's time, each with its publisher's identity key."""
    async with source.view(DISCOVERY) as view:
        live = LiveDirectory(view)
        await live.refresh()
        found = live.directory.matching(kind, NO_CONDITIONS, source.now)
        identity_of = live.directory.identity_of
        return [(ADVERTISE[kind].decode(each.body), identity_of(each.publisher)) for each in found]


def _first(found: list[Judgement[Any]], what: str) -> list[Any]:
    accepted = [each.descriptor for each in found if each.accepted]
    if not accepted:
        raise CommandFailed(
            f"no {what} can be used" if found else f"the directory lists no {what}",
            Exit.POLICY,
            action="loosen the conditions, or see what is listed with `veen disc query`",
        )
    return accepted


def _is_trusted(access: OverlayAccess, hub: HubAdvertise, wanted: Wanted) -> str:
    """Why the hub is trusted; empty if the user has to decide."""
    if wanted.trust_hub is not None:
        return "--trust-hub names it" if wanted.trust_hub == hub.hub_id else ""
    known = {hub_id for hub_id, _ in hub_folders(access.folder)}
    return "this identity has used it before" if hub.hub_id in known else ""


def _ask_trust(hub: HubAdvertise, url: str) -> None:
    """Ask for an explicit trust decision (8.1); without a terminal it is a refusal."""
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"hub {hub.hub_id.hex()} at {url} is new to this identity; nothing was sent to it",
            Exit.POLICY,
            action=f"compare the hub_id with its operator, then give --trust-hub {hub.hub_id.hex()}",
        )
    click.echo(f"new hub at {url}\n  hub_id  {hub.hub_id.hex()}\n  hub_pk  {hub.hub_pk.hex()}", err=True)
    if not click.confirm("Have you compared this hub_id with the hub's operator, and trust it?", err=True):
        raise CommandFailed("the hub was not trusted; nothing was sent to it", Exit.POLICY)


async def _proven(access: OverlayAccess, hub: HubAdvertise, explained: ChoiceExplanation) -> str | None:
    """An endpoint where the hub proves the hub_id, key and profile of its descriptor, or None."""
    target = access.target
    for url in endpoints_of(hub):
        try:
            where = settings.parse_hub_url(url, "the endpoint")
            retry = Retry(max_attempts=2, deadline=target.wait)
            async with connect_hub(where, None, trust=hub.hub_id, tls=target.tls, retry=retry) as reached:
                status = reached.connection.status
                keys = [key.hub_pk for key in status.identity.active_at(status.hub_ts)]
                lie = descriptor_lie(hub, keys, reached.connection.profile.profile_id)
        except (VeenError, click.UsageError) as exc:
            message = exc.format_message() if isinstance(exc, click.UsageError) else str(exc)
            explained.add(1, f"{_name(hub)} at {url}", False, message)
            continue
        if lie:
            explained.add(1, f"{_name(hub)} at {url}", False, lie)
            return None
        return where
    return None


async def _pinned(
    access: OverlayAccess, hubs: list[HubAdvertise], wanted: Wanted, explained: ChoiceExplanation
) -> PinnedHub:
    """The first hub that proves its descriptor and that the user trusts, and its address."""
    for hub in hubs:
        if wanted.trust_hub is not None and wanted.trust_hub != hub.hub_id:
            explained.add(1, _name(hub), False, "--trust-hub names another hub")
            continue
        if (url := await _proven(access, hub, explained)) is None:
            continue
        why = _is_trusted(access, hub, wanted)
        if not why:
            _ask_trust(hub, url)
            why = "you trust it"
        explained.add(1, f"{_name(hub)} at {url}", True, f"it proved its descriptor, and {why}")
        return PinnedHub(hub, url, explained)
    hubs_refused = [each for each in explained.steps if each["phase"] == 1 and not each["taken"]]
    refused = "; ".join(f"{each['candidate']}: {each['why']}" for each in hubs_refused)
    raise CommandFailed(
        f"no hub could be pinned ({refused})",
        Exit.PROTOCOL,
        action="report the hub whose descriptor is wrong to the operator of the directory",
    )


def _connections(access: OverlayAccess) -> dict[str, Any]:
    """What `veen connect` has set up for this identity; a damaged file is refused, never overwritten."""
    path = access.folder.root / CONNECTIONS_FILE
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict) or not all(isinstance(each, dict) for each in known.values()):
        raise CommandFailed(
            f"{path} is not a list of connections; nothing was sent",
            Exit.USAGE,
            "repair it, or move it away: your contexts and tokens do not need it",
        )
    return known


def _check_context(access: OverlayAccess, name: str, service: ServiceAdvertise) -> None:
    """Refuse to replace a context that connect has not made for this service."""
    context = settings.load().named.get(name)
    if context is None:
        return
    made = _connections(access).get(name, {})
    if made.get("service_id") != service.service_id.hex() or made.get("hub") != context.hub:
        raise CommandFailed(
            f"there is a context {name} already, which is not for this service; nothing was changed",
            Exit.POLICY,
            "give the new context another name with --name",
        )


def _store_connection(access: OverlayAccess, name: str, data: dict[str, Any]) -> None:
    path = access.folder.root / CONNECTIONS_FILE
    known = _connections(access)
    known[name] = data
    Files().replace(path, json.dumps(known, indent=1, sort_keys=True).encode() + b"\n")


async def _bind(
    access: OverlayAccess,
    directory: OverlayStream,
    pinned: PinnedHub,
    service: ServiceAdvertise,
    token_file: Path | None,
) -> dict[str, Any]:
    """Phases 3 and 4: authorize a token at the hub if it asks for one, and describe the connection."""
    hub, url, explained = pinned
    target = access.target
    connecting = connect_hub(
        url,
        target.secrets(),
        trust=hub.hub_id,
        state=CheckedStateStore(access.folder.state),
        tls=target.tls,
        retry=Retry(max_attempts=1_000, deadline=target.wait),
        bounds=TOKEN_LIFE,
    )
    async with connecting as reached:
        data: dict[str, Any] = {
            "service_id": service.service_id.hex(),
            "service": service.name,
            "methods": list(service.methods),
            "hub": url,
            "hub_id": hub.hub_id.hex(),
            "stream_ids": [each.hex() for each in service.stream_ids],
            "auth_ref": None,
            "expires_at": None,
        }
        for stream in service.stream_ids:
            head = await reached.stream(stream.hex()).head()
            size = 0 if head is None else head.stream_seq
            found = f"verified to the newest: {plural(size, 'message')}"
            explained.add(2, f"stream {stream.hex()}", True, found)
        if not reached.connection.status.gating:
            explained.add(3, "token", True, "the hub is open and asks for none")
            return data
        given = None if token_file is None else read_object(CapToken, token_file)
        token, why = await obtain_token(TokenNeed(access, directory, reached, service, given))
        receipt = await reached.authorize(token)
        expires = token.expires_at(receipt.hub_ts)
        explained.add(
            3, f"token {token.auth_ref.hex()}", True, f"{why}; valid until {times.format_utc(expires)}"
        )
        return data | {"auth_ref": token.auth_ref.hex(), "expires_at": int(expires)}


@command(
    "veen connect --service translator --method translate --region eu --trust-hub HUB_ID",
    "veen connect --method pay --token shop.cap --name shop --use",
)
@click.option("--service", "service_name", help="Name of the service.")
@click.option("--method", help="A method that the service must have.")
@click.option("--region", help="Prefer hubs and services of this region.")
@click.option("--tag", "tags", multiple=True, help="A tag that the service must have; repeatable.")
@click.option("--publisher", type=Hex(ClientId), help="Identity key of the service's publisher.")
@click.option("--trust-hub", type=Hex(HubId), help="hub_id that you trust for the service [default: ask].")
@click.option(
    "--token",
    "token_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Token file of the operator [default: one that you hold, or the service's issuer].",
)
@click.option("--name", "context_name", help="Name of the context [default: the name of the service].")
@click.option("--use", "use_it", is_flag=True, help="Make it the current context.")
@click.option("--hubs", metavar="STREAM", help="Stream of hub descriptors [default: disc.hubs.v1].")
@click.option("--services", metavar="STREAM", help="Stream of services [default: disc.services.v1].")
@click.option("--overlays", metavar="STREAM", help="Stream of overlays [default: disc.overlays.v1].")
@access_options
def connect(
    out: Output,
    *,
    access: OverlayAccess,
    service_name: str | None,
    method: str | None,
    region: str | None,
    tags: tuple[str, ...],
    publisher: ClientId | None,
    trust_hub: HubId | None,
    token_file: Path | None,
    context_name: str | None,
    use_it: bool,
    hubs: str | None,
    services: str | None,
    overlays: str | None,
) -> Answer:
    """Find a service, check its hub, and set up a connection to it.

    --hub and --trust name the hub of the directory. Each candidate is taken or refused with its reason. A hub
    that is new to you is used only after you have trusted its hub_id, here or with --trust-hub. The result is
    a context, which `veen --context NAME rpc call` uses.
    """
    if service_name is None and method is None:
        raise click.UsageError("--service or --method is missing: say what to connect to.")
    named: dict[Kind, str | None] = {"hub": hubs, "service": services, "overlay": overlays}
    wanted = Wanted(service_name, method, region, tags, publisher, trust_hub, named)
    explained = ChoiceExplanation(out)
    _connections(access)
    data = loop.run(_connect(access, wanted, token_file, explained, context_name))
    name = context_name or data["service"]
    _store_connection(access, name, data)
    context = SavedContext(
        hub=data["hub"],
        trust=data["hub_id"],
        client=str(access.folder.root.absolute()),
        stream=data["stream_ids"][0],
    )
    contexts = settings.load().with_one(name, context)
    if use_it or contexts.current is None:
        contexts = settings.Contexts(current=name, named=contexts.named)
    settings.save(contexts)
    explained.add(4, f"context {name}", True, f"stream {data['stream_ids'][0]}")
    lines = [f"connected to {data['service']} at {data['hub']} as context {name}"]
    return Answer({"context": name, **data, "steps": explained.steps}, lines)


async def _connect(
    access: OverlayAccess,
    wanted: Wanted,
    token_file: Path | None,
    explained: ChoiceExplanation,
    context_name: str | None,
) -> dict[str, Any]:
    async with access.streams(reader_of=public_reader) as at_stream:
        sources = {kind: at_stream(stream_of(kind, name)) for kind, name in wanted.directories.items()}
        listed = {kind: await _listed(source, kind) for kind, source in sources.items()}
        judged = choose_services(
            listed["service"],
            [each for each, _ in listed["overlay"]],
            name=wanted.service,
            method=wanted.method,
            region=wanted.region,
            tags=wanted.tags,
            publisher=wanted.publisher,
        )
        explained.judged(2, judged)
        service, *others = _first(judged, "service")
        signers = {id(each): signer.hex() for each, signer in listed["service"]}
        _check_context(access, context_name or service.name, service)
        candidates = choose_hubs(
            [each for each, _ in listed["hub"]],
            profiles=[each.profile_id for each in PROFILES.values()],
            region=wanted.region,
            overlay=service.overlay_id,
            pinned=[hub_id for hub_id, _ in hub_folders(access.folder)],
        )
        explained.judged(1, candidates)
        pinned = await _pinned(access, _first(candidates, "hub"), wanted, explained)
        why = next(each.why for each in judged if each.accepted)
        explained.add(2, _name(service), True, f"{why}; its publisher is {signers[id(service)]}")
        for other in others:
            publisher = signers[id(other)]
            explained.add(
                2, _name(other), False, f"another was taken first; --publisher {publisher} asks for this one"
            )
        data = await _bind(access, sources["service"], pinned, service, token_file)
        return data | {"publisher": signers[id(service)]}
