"""``veen revoke``, ``label-class``, ``schema``: a realm's control plane (spec-2; ``authority`` is beside it).

Records go to the realm's admin streams, sealed to whoever follows them: name the realm's reader key with
``--reader``, or its card with ``--to``. Hubs of a level read them with that key and enforce what they say.
"Now" is the hub's, not this machine's: by a clock that runs ahead a revocation would begin only later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import Group, LazyCommand
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.overlays.arguments import realm_option
from veen_cli.overlays.overlay_stream import Access, access_options, sent_data
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, HubId, Label, SchemaId, StreamId, UnixTime, VerifyKey
from veen_core.receipt import Receipt
from veen_core.stream import label as label_of
from veen_core.stream import routing_key, stream_id
from veen_overlays.control.records import (
    LabelClass,
    Revocation,
    RevokedId,
    SchemaDescriptor,
    label_class_stream,
    revocation_stream,
    schema_stream,
)
from veen_overlays.control.state import LABEL_CLASSES, SCHEMAS, class_of, schema_of
from veen_overlays.identifiers import RealmId
from veen_overlays.schema.record import Record, schema_id

_HERE: Final = "veen_cli.overlays.control"
LABEL_CLASS: Final = {
    "set": LazyCommand(f"{_HERE}:class_set", "Say what kind of traffic a label carries."),
    "show": LazyCommand(f"{_HERE}:class_show", "Show a label's class."),
}
SCHEMA: Final = {
    "register": LazyCommand(f"{_HERE}:schema_register", "Register what a schema id means."),
    "show": LazyCommand(f"{_HERE}:schema_show", "Show what is registered for a schema."),
}
label_class = Group(
    "label-class", LABEL_CLASS, path="label-class", help="What kind of traffic a label carries (LCLASS0)."
)
schema = Group("schema", SCHEMA, path="schema", help="What schema ids mean (META0+).")


def _publish(
    access: Access, stream: StreamId, make: Callable[[UnixTime], Record], line: Callable[[Any], str]
) -> Answer:
    """Make it for the hub's now, send it, and say so."""

    async def work() -> tuple[Record, Receipt]:
        async with access.at(stream) as source:
            record = make(source.now)
            return record, await source.send(record)

    record, receipt = loop.run(work())
    return published(record, receipt, stream, line(record))


def published(record: Record, receipt: Receipt, stream: StreamId, line: str) -> Answer:
    data = {**sent_data(record, receipt, stream.hex()), "record": fields_of(record)}
    return Answer(data, [f"{line} (message {receipt.stream_seq} of the realm's stream)"])


def fields_of(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in record.codec.fields:
        value = getattr(record, field.name)
        if isinstance(value, tuple):
            value = [each.hex() for each in value]
        found[str(field.key)] = value.hex() if isinstance(value, bytes) else value
    return {name: value for name, value in found.items() if value is not None}


def shown(record: Record | None, what: str) -> Answer:
    if record is None:
        raise CommandFailed(
            f"the realm says nothing of {what}, as far as your keys open it: check the name and --realm, or "
            "read with the realm's key (--reader)",
            Exit.USAGE,
        )
    data = fields_of(record)
    return Answer(data, fields(data))


@command(
    "veen revoke client-id CLIENT_ID --realm shop --reason 'device lost' --reader realm",
    "veen revoke auth-ref AUTH_REF --realm shop --ttl 1h --reader realm",
)
@click.argument("kind", type=click.Choice(["client-id", "auth-ref", "cap-token"]))
@click.argument("revoked", type=Hex(RevokedId), metavar="TARGET")
@realm_option
@click.option("--reason", help="Why; whoever is refused sees it.")
@click.option("--ttl", type=times.Duration(1), help="Until then only [default: for good].")
@click.option("--ts", type=times.Moment(), help="From when on [default: now].")
@access_options
def revoke(
    out: Output,
    *,
    access: Access,
    kind: Any,
    revoked: RevokedId,
    realm: RealmId,
    reason: str | None,
    ttl: int | None,
    ts: int | None,
) -> Answer:
    """Revoke a client key, a token's auth_ref or a token in a realm.

    Hubs of the levels hardened and meta refuse it from then on (E.CAP / REVOKED). What is revoked:
    `veen fold revocation` over the realm's stream.
    """
    del out

    def make(now: UnixTime) -> Record:
        at = UnixTime(ts) if ts is not None else now
        return Revocation(kind=kind, target=revoked, reason=reason, ts=at, ttl=ttl)

    return _publish(
        access,
        revocation_stream(realm),
        make,
        lambda record: f"{kind} {revoked.hex()} is revoked from {times.format_utc(record.ts)} on",
    )


def _label(text: str, hub_id: HubId | None, epoch: int | None) -> Label:
    """A label in hex; or a stream's, at a hub, in an epoch where it has any."""
    if hub_id is None and epoch is not None:
        raise click.UsageError("--epoch: of a stream at a hub; name that with --at-hub.")
    if hub_id is None:
        try:
            return Label.from_hex(text.lower())
        except DecodeError:
            raise click.UsageError(f"{text}: want a label in hex, or a stream's name and --at-hub.") from None
    return label_of(routing_key(hub_id), stream_id(text), Epoch(epoch or 0))


hub_option = click.option("--at-hub", type=Hex(HubId), help="LABEL is a stream's name, at this hub (hub_id).")
epoch_option = click.option("--epoch", type=Integer(0), help="With --at-hub, if it has epochs: in which one.")


@command(
    "veen label-class set LABEL bulk --realm shop --reader realm",
    "veen label-class set orders wallet --at-hub HUB_ID --realm shop --retention 30d --reader realm",
    name="set",
)
@click.argument("label")
@click.argument("class_", metavar="CLASS")
@hub_option
@epoch_option
@realm_option
@click.option("--sensitivity", help="As in low, medium, high.")
@click.option("--retention", type=times.Duration(), help="How long payloads should be kept.")
@access_options
def class_set(
    out: Output,
    *,
    access: Access,
    label: str,
    class_: str,
    at_hub: HubId | None,
    epoch: int | None,
    realm: RealmId,
    sensitivity: str | None,
    retention: int | None,
) -> Answer:
    """Say what kind of traffic a label carries.

    Known classes: user, wallet, log, metric, admin, control, bulk. Hubs of level meta pad, slow
    down and prune by it.
    """
    del out
    found = _label(label, at_hub, epoch)
    record = LabelClass(label=found, class_=class_, sensitivity=sensitivity, retention_hint=retention)
    line = f"label {found.hex()} is {class_}"
    return _publish(access, label_class_stream(realm), lambda _now: record, lambda _record: line)


@command("veen label-class show LABEL --realm shop --reader realm", name="show")
@click.argument("label")
@hub_option
@epoch_option
@realm_option
@access_options
def class_show(
    out: Output, *, access: Access, label: str, at_hub: HubId | None, epoch: int | None, realm: RealmId
) -> Answer:
    """Show a label's class.

    Ends with exit code 1 if it has none.
    """
    del out
    found = _label(label, at_hub, epoch)
    return shown(class_of(access.state(label_class_stream(realm), LABEL_CLASSES), found), f"label {label}")


def _schema(text: str, *, operation: bool) -> SchemaId:
    return (
        Hex(SchemaId).convert(text, None, None) if len(text) == 64 else schema_id(text, operation=operation)
    )


operation_option = click.option("--operation", is_flag=True, help="NAME is one of spec-3's operations (B14).")


@command(
    "veen schema register shop.order.v1 --version 1 --doc https://example.com/order --realm shop",
    name="register",
)
@click.argument("name")
@operation_option
@realm_option
@click.option("--version", required=True, help="Of the schema.")
@click.option("--doc", help="Where it is described.")
@click.option("--owner", type=Hex(VerifyKey), help="Whose it is: an Ed25519 key in hex.")
@access_options
def schema_register(
    out: Output,
    *,
    access: Access,
    name: str,
    operation: bool,
    realm: RealmId,
    version: str,
    doc: str | None,
    owner: VerifyKey | None,
) -> Answer:
    """Register what a schema id means.

    The id is the hash of the name. The latest registration holds.
    """
    del out
    found = schema_id(name, operation=operation)

    def make(now: UnixTime) -> Record:
        return SchemaDescriptor(
            schema_id_=found, name=name, version=version, doc_url=doc, owner=owner, ts=now
        )

    return _publish(access, schema_stream(realm), make, lambda _record: f"{name} is {found.hex()}")


@command("veen schema show shop.order.v1 --realm shop", name="show")
@click.argument("name", metavar="NAME|ID")
@operation_option
@realm_option
@access_options
def schema_show(out: Output, *, access: Access, name: str, operation: bool, realm: RealmId) -> Answer:
    """Show what is registered for a schema.

    Ends with exit code 1 if nothing is.
    """
    del out
    wanted = _schema(name, operation=operation)
    return shown(schema_of(access.state(schema_stream(realm), SCHEMAS), wanted), f"the schema {name}")
