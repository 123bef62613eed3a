"""``veen revoke``, ``veen label-class`` and ``veen schema``: a realm's control plane (spec-2).

Records are published on the realm's admin streams, sealed to the realm's reader key: name it with
``--reader``, or its card with ``--to``. Hubs above level core read the records with that key and enforce
them. "Now" is the hub's time: with a local clock that is ahead, a revocation would begin too late.
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
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.overlays.arguments import describe_realm, realm_option
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, sent_data
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, HubId, Label, SchemaId, StreamId, UnixTime, VerifyKey
from veen_core.receipt import Receipt
from veen_core.stream import label as label_of
from veen_core.stream import routing_key, stream_id
from veen_overlays.control.policy import FOREVER_SEC
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
    "set": LazyCommand(f"{_HERE}:class_set", "Classify the traffic of a label."),
    "list": LazyCommand(f"{_HERE}:class_list", "Show the class of every label of a realm."),
    "show": LazyCommand(f"{_HERE}:class_show", "Show a label's class."),
}
SCHEMA: Final = {
    "register": LazyCommand(f"{_HERE}:schema_register", "Register the meaning of a schema id."),
    "show": LazyCommand(f"{_HERE}:schema_show", "Show the registration of a schema."),
}
label_class = CommandGroup(
    "label-class", LABEL_CLASS, path="label-class", help="The traffic class of a label (LCLASS0)."
)
schema = CommandGroup("schema", SCHEMA, path="schema", help="The meaning of schema ids (META0+).")


def _publish(
    access: OverlayAccess, stream: StreamId, make: Callable[[UnixTime], Record], line: Callable[[Any], str]
) -> Answer:
    """Make a record with the hub's time, send it, and return the command's answer."""

    async def work() -> tuple[Record, Receipt]:
        async with access.at(stream) as source:
            record = make(source.now)
            return record, await source.send(record)

    record, receipt = loop.run(work())
    return published(record, receipt, stream, line(record))


def published(record: Record, receipt: Receipt, stream: StreamId, line: str) -> Answer:
    """The answer of a command that published a record."""
    data = {**sent_data(record, receipt, stream.hex()), "record": fields_of(record)}
    return Answer(data, [f"{line} (message {receipt.stream_seq} of the realm's stream)"])


def fields_of(record: Record) -> dict[str, Any]:
    """The JSON of a record's fields."""
    found: dict[str, Any] = {}
    for field in record.codec.fields:
        value = getattr(record, field.name)
        if isinstance(value, tuple):
            value = [each.hex() for each in value]
        found[str(field.key)] = value.hex() if isinstance(value, bytes) else value
    return {name: value for name, value in found.items() if value is not None}


def show(record: Record | None, missing: str) -> Answer:
    """The answer of a command that shows a record; times and durations in words for a person."""
    if record is None:
        raise CommandFailed(
            f"the realm has {missing} that your keys open",
            Exit.USAGE,
            action="check the name and --realm, or read with the realm's key (--reader)",
        )
    data = fields_of(record)
    formats = {"ts": times.format_utc, "ttl": times.format_duration, "retention_hint": _retention}
    return Answer(data, fields({name: formats.get(name, _same)(value) for name, value in data.items()}))


def _retention(seconds: int) -> str:
    return "for ever" if seconds >= FOREVER_SEC else times.format_duration(seconds)


def _same(value: Any) -> Any:
    return value


@command(
    "veen revoke client-id CLIENT_ID --realm shop --reason 'device lost' --reader realm",
    "veen revoke auth-ref AUTH_REF --realm shop --ttl 1h --reader realm",
)
@click.argument("kind", type=click.Choice(["client-id", "auth-ref", "cap-token"]))
@click.argument("revoked", type=Hex(RevokedId), metavar="TARGET")
@realm_option
@click.option("--reason", help="Reason; refused clients see it.")
@click.option("--ttl", type=times.Duration(1), help="Duration of the revocation [default: for ever].")
@click.option("--ts", type=times.Moment(), help="Start time [default: now].")
@access_options
def revoke(
    out: Output,
    *,
    access: OverlayAccess,
    kind: Any,
    revoked: RevokedId,
    realm: RealmId,
    reason: str | None,
    ttl: int | None,
    ts: int | None,
) -> Answer:
    """Revoke a client key, a token's auth_ref or a token in a realm.

    Hubs of the levels hardened and meta then refuse the key or token with E.CAP / REVOKED. To see all
    revocations, fold the realm's stream with `veen fold revocation`.
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
    """Parse a label in hex; or, with a hub, derive the label of a stream name."""
    if hub_id is None and epoch is not None:
        raise click.UsageError("--epoch needs --at-hub: it selects the label of a stream at a hub.")
    if hub_id is None:
        try:
            return Label.from_hex(text.lower())
        except DecodeError:
            raise click.UsageError(
                f"{text} is not a label in hex; for a stream's name add --at-hub."
            ) from None
    return label_of(routing_key(hub_id), stream_id(text), Epoch(epoch or 0))


hub_option = click.option(
    "--at-hub", type=Hex(HubId), help="hub_id of a hub; LABEL is then the name of a stream."
)
epoch_option = click.option("--epoch", type=Integer(0), help="Epoch of the label, with --at-hub.")


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
@click.option("--sensitivity", help="Such as low, medium or high.")
@click.option("--retention", type=times.Duration(), help="How long payloads are kept.")
@access_options
def class_set(
    out: Output,
    *,
    access: OverlayAccess,
    label: str,
    class_: str,
    at_hub: HubId | None,
    epoch: int | None,
    realm: RealmId,
    sensitivity: str | None,
    retention: int | None,
) -> Answer:
    """Classify the traffic of a label.

    Known classes: user, wallet, log, metric, admin, control, bulk. Hubs of level meta derive padding, rates
    and retention from the class.
    """
    del out
    found = _label(label, at_hub, epoch)
    record = LabelClass(label=found, class_=class_, sensitivity=sensitivity, retention_hint=retention)
    line = f"label {found.hex()} has class {class_}"
    return _publish(access, label_class_stream(realm), lambda _now: record, lambda _record: line)


@command("veen label-class show LABEL --realm shop --reader realm", name="show")
@click.argument("label")
@hub_option
@epoch_option
@realm_option
@access_options
def class_show(
    out: Output, *, access: OverlayAccess, label: str, at_hub: HubId | None, epoch: int | None, realm: RealmId
) -> Answer:
    """Show a label's class.

    Ends with exit code 1 if the label has none.
    """
    del out
    found = _label(label, at_hub, epoch)
    state = access.state(label_class_stream(realm), LABEL_CLASSES, describe_realm(realm))
    return show(class_of(state, found), f"no class record for the label {label}")


@command("veen label-class list --realm shop --reader realm", name="list")
@realm_option
@access_options
def class_list(out: Output, *, access: OverlayAccess, realm: RealmId) -> Answer:
    """Show the class of every label of a realm."""
    del out
    state = access.state(label_class_stream(realm), LABEL_CLASSES, describe_realm(realm))
    records = [class_of(state, Label(label)) for label in sorted(state)]
    data = [fields_of(record) for record in records if record is not None]
    return Answer({"labels": data}, [_class_line(each) for each in data] or ["no label has a class"])


def _class_line(data: dict[str, Any]) -> str:
    kept = data.get("retention_hint")
    words = [data["label"], data["class"], data.get("sensitivity", "")]
    words.append("" if kept is None else f"payloads are kept {_retention(kept)}")
    return "  ".join(filter(None, words))


def _schema(text: str, *, operation: bool) -> SchemaId:
    return (
        Hex(SchemaId).convert(text, None, None) if len(text) == 64 else schema_id(text, operation=operation)
    )


operation_option = click.option("--operation", is_flag=True, help="NAME is an operation of spec-3.")


@command(
    "veen schema register shop.order.v1 --version 1 --doc https://example.com/order --realm shop",
    name="register",
)
@click.argument("name")
@operation_option
@realm_option
@click.option("--version", required=True, help="Version of the schema.")
@click.option("--doc", help="Address of the schema's documentation.")
@click.option("--owner", type=Hex(VerifyKey), help="Owner's Ed25519 key in hex.")
@access_options
def schema_register(
    out: Output,
    *,
    access: OverlayAccess,
    name: str,
    operation: bool,
    realm: RealmId,
    version: str,
    doc: str | None,
    owner: VerifyKey | None,
) -> Answer:
    """Register the meaning of a schema id.

    The id is the hash of the name. The latest registration counts.
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
def schema_show(out: Output, *, access: OverlayAccess, name: str, operation: bool, realm: RealmId) -> Answer:
    """Show the registration of a schema.

    Ends with exit code 1 if there is none.
    """
    del out
    wanted = _schema(name, operation=operation)
    state = access.state(schema_stream(realm), SCHEMAS, describe_realm(realm))
    return show(schema_of(state, wanted), f"no registration of the schema {name}")
