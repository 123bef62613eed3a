"""``veen disc advertise``, ``retire`` and ``name``: publish records of services and overlays (spec-5 §4).

A hub advertises itself: see ``discovery`` in hub.yaml. ``expires_at`` is always written: the publisher has
signed it, while an expiry by ``ttl_sec`` alone starts anew where a bridge imports the record (P16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.discovery.directory_access import directory_option, link_publisher, state_of, stream_of
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.overlays.arguments import JsonMap
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, sent_data
from veen_core.errors import DecodeError, VeenError
from veen_core.hashing import U64_MAX
from veen_core.ids import ClientId, SchemaId, StreamId, UnixTime
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_overlays.discovery.identifiers import overlay_id, overlay_named, service_id
from veen_overlays.discovery.publishers import allowed_publishers
from veen_overlays.discovery.records import (
    AuthPolicy,
    DescribedId,
    Kind,
    Operator,
    OverlayAdvertise,
    OverlayId,
    OverlayRetire,
    Publishers,
    ServiceAdvertise,
    ServiceId,
    ServiceRetire,
    described,
)
from veen_overlays.discovery.state import claims_of
from veen_overlays.discovery.streams import public_reader
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record, schema_id

Make = Callable[[ClientId, UnixTime], Record]
"""Makes a record from the publisher's identity key and the hub's time."""


def _publish(
    access: OverlayAccess, kind: Kind, directory: str | None, make: Make, *, advertised: str | None = None
) -> tuple[Record, Receipt, str]:
    """Make a record and send it, unless another publisher owns the id.

    ``advertised`` is the name or id of a descriptor that must be in the directory already: a record about any
    other id would have no effect.
    """
    stream = stream_of(kind, directory)

    async def work() -> tuple[Record, Receipt]:
        async with access.streams(reader_of=public_reader) as at_stream:
            source = at_stream(stream)
            state = await state_of(source)
            own = access.identity.client_id
            record = make(own, source.now)
            about = described(record)
            id_ = (
                about[1] if about is not None else bytes(record.id) if isinstance(record, Publishers) else b""
            )
            allowed = allowed_publishers(claims_of(state, kind, id_))
            if advertised is not None and not allowed:
                raise CommandFailed(
                    f"{stream} has no {kind} {advertised} of yours; nothing was sent",
                    Exit.USAGE,
                    action=f"see `veen disc query {kind}`; name another publisher's {kind} by its id",
                )
            client = await link_publisher(source, state)
            if allowed and not allowed & {bytes(own), bytes(client)}:
                raise CommandFailed(
                    f"another publisher has advertised the {kind} {id_.hex()} first; nothing was sent",
                    Exit.POLICY,
                    action=f"choose another id, or have its publisher run `veen disc name {kind}`",
                )
            return record, await source.send(record)

    record, receipt = loop.run(work())
    return record, receipt, stream


def _answer(record: Record, receipt: Receipt, stream: str, id_: bytes, line: str) -> Answer:
    data = {**sent_data(record, receipt, stream), "id": id_.hex()}
    return Answer(data, [f"{line} (message {receipt.stream_seq} of {stream})"])


def _expiry(now: UnixTime, ttl: int) -> UnixTime:
    return UnixTime(min(now + ttl, U64_MAX))


def _shared_options(work: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--ttl",
            type=times.Duration(1),
            default="1h",
            show_default=True,
            help="Lifetime of the descriptor.",
        ),
        click.option(
            "--tag", "tags", multiple=True, help="Tag, such as public, beta or internal; repeatable."
        ),
        directory_option,
        access_options,
    ):
        work = option(work)
    return work


@command(
    "veen disc advertise service translator --method translate --uses translations --region eu",
    "veen disc advertise service shop --method pay --uses shop --auth cap_token --cap-name write --ttl 1d",
)
@click.argument("name")
@click.option("--method", "methods", multiple=True, help="A method that the service has; repeatable.")
@click.option("--uses", "streams", multiple=True, required=True, help="A stream of the service; repeatable.")
@click.option("--overlay", "overlay_", default="rpc", show_default=True, help="Name or id of its overlay.")
@click.option("--region", "regions", multiple=True, help="A preferred region; repeatable.")
@click.option("--cap-name", "caps", multiple=True, help="A capability that clients need, such as write.")
@click.option(
    "--auth", type=click.Choice(["cap_token", "mtls", "none", "other"]), help="How clients are admitted."
)
@click.option("--auth-details", type=JsonMap(), help="Details of the admission, as a JSON object.")
@click.option("--org", help="The organisation that operates the service.")
@click.option("--contact", help="Whom to ask, for example for a token.")
@click.option("--id", "id_", type=Hex(ServiceId), help="The service's id [default: from you and NAME].")
@_shared_options
def service(
    out: Output,
    *,
    access: OverlayAccess,
    directory: str | None,
    name: str,
    methods: tuple[str, ...],
    streams: tuple[str, ...],
    overlay_: str,
    regions: tuple[str, ...],
    caps: tuple[str, ...],
    auth: Any,
    auth_details: dict[str, Any] | None,
    org: str | None,
    contact: str | None,
    id_: ServiceId | None,
    tags: tuple[str, ...],
    ttl: int,
) -> Answer:
    """Publish the descriptor of a service, or renew it.

    The first publisher of an id owns it. A descriptor grants nothing: the hub still decides who may write.
    """
    del out
    if auth is None and auth_details is not None:
        raise click.UsageError("--auth-details needs --auth.")

    def make(publisher: ClientId, now: UnixTime) -> ServiceAdvertise:
        return ServiceAdvertise(
            service_id=id_ or service_id(publisher, name),
            name=name,
            overlay_id=overlay_named(overlay_),
            methods=methods,
            stream_ids=tuple(StreamId(stream_id(each)) for each in streams),
            regions=regions,
            required_caps=caps,
            auth_policy=None if auth is None else AuthPolicy(mode=auth, details=auth_details),
            operator=None if org is None and contact is None else Operator(org=org, contact=contact),
            tags=tags,
            ttl_sec=ttl,
            expires_at=_expiry(now, ttl),
        )

    record, receipt, stream = _publish(access, "service", directory, make)
    assert isinstance(record, ServiceAdvertise)
    line = f"service {name} {record.service_id.hex()} for {times.format_duration(ttl)}"
    return _answer(record, receipt, stream, record.service_id, line)


@command(
    "veen disc advertise overlay kv.map --ttl 30d",
    "veen disc advertise overlay shop --version 2 --schema shop.order.v1 --schema shop.paid.v1",
)
@click.argument("name")
@click.option("--version", default="0.0.1", show_default=True, help="Version of the overlay.")
@click.option(
    "--schema", "schemas", multiple=True, help="Name or id of a schema [default: those of VEEN's overlay]."
)
@click.option("--docs", help="Address of the documentation.")
@click.option("--id", "id_", type=Hex(OverlayId), help="The overlay's id [default: from NAME].")
@_shared_options
def overlay(
    out: Output,
    *,
    access: OverlayAccess,
    directory: str | None,
    name: str,
    version: str,
    schemas: tuple[str, ...],
    docs: str | None,
    id_: OverlayId | None,
    tags: tuple[str, ...],
    ttl: int,
) -> Answer:
    """Publish the descriptor of an overlay: its name, version and schemas.

    The command knows the schemas of every overlay that `veen fold` knows.
    """
    del out
    known = OVERLAYS[name].schema_ids if name in OVERLAYS else ()
    named = tuple(map(_schema, schemas)) or known
    if not named:
        raise click.UsageError(f"--schema is missing: {name} is not an overlay that `veen fold` knows.")

    def make(publisher: ClientId, now: UnixTime) -> OverlayAdvertise:
        del publisher
        return OverlayAdvertise(
            overlay_id=id_ or overlay_id(name),
            name=name,
            version=version,
            schemas=named,
            docs_url=docs,
            tags=tags,
            ttl_sec=ttl,
            expires_at=_expiry(now, ttl),
        )

    record, receipt, stream = _publish(access, "overlay", directory, make)
    assert isinstance(record, OverlayAdvertise)
    line = f"overlay {name} {record.overlay_id.hex()} for {times.format_duration(ttl)}"
    return _answer(record, receipt, stream, record.overlay_id, line)


def _schema(text: str) -> SchemaId:
    try:
        return SchemaId.from_hex(text.lower())
    except VeenError:
        return schema_id(text)


owned_argument = click.argument("kind", type=click.Choice(["service", "overlay"]))


def _id(kind: str, text: str, publisher: ClientId) -> bytes:
    """The id of a service or an overlay, from its id in hex or its name."""
    try:
        return bytes(DescribedId.from_hex(text.lower()))
    except DecodeError:
        return bytes(service_id(publisher, text) if kind == "service" else overlay_id(text))


@command("veen disc retire service translator --reason moved", "veen disc retire overlay OVERLAY_ID")
@owned_argument
@click.argument("named", metavar="NAME|ID")
@click.option("--reason", help="Why it is withdrawn.")
@directory_option
@access_options
def retire(
    out: Output, *, access: OverlayAccess, directory: str | None, kind: Any, named: str, reason: str | None
) -> Answer:
    """Withdraw the descriptor of a service or an overlay."""
    del out

    def make(publisher: ClientId, now: UnixTime) -> Record:
        del now
        id_ = _id(kind, named, publisher)
        if kind == "service":
            return ServiceRetire(service_id=ServiceId(id_), reason=reason)
        return OverlayRetire(overlay_id=OverlayId(id_), reason=reason)

    record, receipt, stream = _publish(access, kind, directory, make, advertised=named)
    about = described(record)
    assert about is not None
    return _answer(record, receipt, stream, about[1], f"{kind} {named} is retired")


@command("veen disc name service translator --publisher CLIENT_ID")
@owned_argument
@click.argument("named", metavar="NAME|ID")
@click.option(
    "--publisher",
    "publishers",
    multiple=True,
    type=Hex(ClientId),
    help="Identity key of a further publisher; repeatable. None withdraws all that you have named.",
)
@directory_option
@access_options
def name(
    out: Output,
    *,
    access: OverlayAccess,
    directory: str | None,
    kind: Any,
    named: str,
    publishers: tuple[ClientId, ...],
) -> Answer:
    """Name further publishers of a service or an overlay.

    They may renew and retire its descriptor, and name others. The list replaces your earlier one.
    """
    del out

    def make(publisher: ClientId, now: UnixTime) -> Record:
        del now
        listed = tuple(sorted(set(publishers)))
        return Publishers(kind=kind, id=DescribedId(_id(kind, named, publisher)), publishers=listed)

    record, receipt, stream = _publish(access, kind, directory, make, advertised=named)
    assert isinstance(record, Publishers)
    line = f"{plural(len(record.publishers), 'further publisher')} of the {kind} {named}"
    return _answer(record, receipt, stream, record.id, line)
