"""``veen op``: send operations of any kind, list them, and show what led to what (spec-3 §1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.numbers import Integer, parse_unsigned
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.operations.party import party_view, unknown
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, sent_data
from veen_core.errors import DecodeError, VeenError
from veen_core.ids import OperationId
from veen_core.msg import operation_id
from veen_core.receipt import Receipt
from veen_hub.client import NotFound, Stream
from veen_overlays.operations.agreement import AGREEMENTS
from veen_overlays.operations.causality import OPERATIONS, CausalTree, Operation
from veen_overlays.schema.record import Record

_HERE: Final = "veen_cli.operations.op"
COMMANDS: Final = {
    "send": LazyCommand(f"{_HERE}:send", "Send an operation, after checking its rules."),
    "list": LazyCommand(f"{_HERE}:list_", "List the operations of a stream."),
    "show": LazyCommand(f"{_HERE}:show", "Show one operation with all its fields."),
    "tree": LazyCommand(f"{_HERE}:tree", "Show what an operation follows from, and what followed from it."),
}
op = CommandGroup("op", COMMANDS, path="op", help="Operations of any kind, and which operation led to which.")

schema_choice = click.Choice(list(OPERATIONS))
operation_argument = click.argument("operation", metavar="OPERATION")


@command(
    "veen op send agreement.definition.v1 --file definition.json --stream contracts",
    "veen op send data.publication.v1 --set publication_id=HASH --set publisher_identity=BOB"
    " --set content_root=HASH --set content_class=dataset --set version=v3 --stream releases",
    "veen op send agreement.confirmation.v1 --file confirmation.json --parent 2 --stream contracts",
)
@click.argument("schema", type=schema_choice, metavar="SCHEMA")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON file with the record; byte strings are lowercase hex.",
)
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set a field, also over --file: JSON, or text where JSON does not fit; may be repeated.",
)
@click.option("--parent", help="The operation that this one follows from: its message number or id.")
@stream_option
@access_options
def send(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    schema: str,
    file: Path | None,
    values: tuple[str, ...],
    parent: str | None,
) -> Answer:
    """Send an operation, after checking its rules.

    The record is checked before it is sealed: a missing field, a wrong type or a broken rule is refused, and
    nothing is sent. `veen op show --json` prints records in the form that --file reads. Rules that need the
    whole stream, such as enough approvals, are checked by the commands of each profile and by every reader.
    """
    del out
    item = _item(file, values)

    _check_offline(OPERATIONS[schema], item, parent)

    async def work() -> tuple[Record, Receipt]:
        async with party_view(access, stream, AGREEMENTS) as party:
            if parent is not None:
                item["parent_operation_id"] = (await _parent_id(party.source.stream, parent)).hex()
            record = _record(OPERATIONS[schema], item)
            names_sender = any(getattr(record, each.name) == party.identity for each in record.codec.fields)
            return record, await (party if names_sender else party.source).send(record)

    record, receipt = loop.run(work())
    operation = operation_id(receipt.leaf_hash).hex()
    data = {**sent_data(record, receipt, stream), "operation_id": operation}
    line = f"sent {schema} (message {receipt.stream_seq} of {stream})"
    return Answer(data, [line, f"  operation {operation}"])


def _check_offline(shape: type[Record], item: Mapping[str, Any], parent: str | None) -> None:
    """Refuse a wrong record before connecting."""
    if parent is not None and not any(each.key == "parent_operation_id" for each in shape.codec.fields):
        raise click.UsageError(f"{shape.NAME} has no parent_operation_id (spec-3): leave --parent out.")
    _record(shape, item)


def _item(file: Path | None, values: tuple[str, ...]) -> dict[str, Any]:
    """The record as JSON, from the file and the options."""
    item: Any = {}
    if file is not None:
        try:
            item = json.loads(file.read_bytes())
        except ValueError as exc:
            raise click.UsageError(f"--file {file} is not JSON: {exc}") from None
        if type(item) is not dict:
            raise click.UsageError(f"--file {file} is not a JSON object.")
    for each in values:
        name, found, value = each.partition("=")
        if not found:
            raise click.UsageError(f"--set {each}: write FIELD=VALUE.")
        item[name] = _value(value)
    return dict(item)


def _value(text: str) -> Any:
    """A value of ``--set``: JSON, or else the text itself; hex digits are text even if all are decimal."""
    try:
        return json.loads(text) if len(text) != 2 * OperationId.SIZE else text
    except ValueError:
        return text


def _record(shape: type[Record], item: Mapping[str, Any]) -> Record:
    """The record of a JSON object, with all rules of its schema (spec-3 §11)."""
    try:
        record: Record = shape.codec.read_json(item)
        record.encode()
    except VeenError as exc:
        raise CommandFailed(
            f"{exc}; nothing was sent", Exit.USAGE, f"see the fields of {shape.NAME} in the records reference"
        ) from None
    return record


async def _parent_id(stream: Stream, text: str) -> OperationId:
    """The operation that is named by its id, or by the number of its message in the stream."""
    if not (seq := parse_unsigned(text)):
        return _operation_id(text)
    try:
        return operation_id((await stream.receipt(seq)).leaf_hash)
    except NotFound:
        raise CommandFailed(
            f"--parent {text}: the stream has no such message", Exit.USAGE, "see `veen op list`"
        ) from None


def _operation_id(text: str) -> OperationId:
    try:
        return OperationId.from_hex(text.lower())
    except DecodeError:
        raise click.UsageError(f"{text} is neither a message number nor an operation_id in hex.") from None


# --- reading


async def _causal_tree(access: OverlayAccess, stream: str) -> CausalTree:
    """The operations of a stream, which is verified from its start."""
    async with access.at(stream) as source:
        found, seen = CausalTree(), False
        async for message, _msg in source.signed(AGREEMENTS):
            seen = True
            found.add(message)
        if not seen:
            raise source.missing()
        return found


def _chosen(found: CausalTree, text: str, stream: str) -> Operation:
    seq = parse_unsigned(text)
    chosen = found.at(seq) if seq else found.find(_operation_id(text))
    if chosen is None:
        raise unknown(f"operation {text}", stream, "veen op list")
    return chosen


def _data(each: Operation) -> dict[str, Any]:
    return {
        "stream_seq": each.seq,
        "operation_id": each.operation_id.hex(),
        "schema": each.record.NAME,
        "signer": None if each.client_id is None else each.client_id.hex(),
        "hub_ts": each.hub_ts,
        "parents": [parent.hex() for parent in each.parents],
        "record": each.record.codec.write_json(each.record),
    }


def _line(each: Operation) -> str:
    when = "" if each.hub_ts is None else times.format_utc(each.hub_ts)
    return f"{each.seq:>4}  {when}  {each.record.NAME}  {each.operation_id.hex()[:16]}…"


@command(
    "veen op list --stream contracts",
    "veen op list --schema agreement.confirmation.v1 --last 10 --stream contracts --json",
    name="list",
)
@click.option("--schema", type=schema_choice, metavar="SCHEMA", help="List operations of this schema only.")
@click.option("--last", type=Integer(1), help="List the newest N operations only.")
@stream_option
@access_options
def list_(out: Output, *, access: OverlayAccess, stream: str, schema: str | None, last: int | None) -> Answer:
    """List the operations of a stream.

    Messages with the schema of an operation and an invalid body are counted, and listed with the reason.
    """
    del out
    tree_ = loop.run(_causal_tree(access, stream))
    chosen = [each for each in tree_.operations.values() if schema in (None, each.record.NAME)]
    chosen = chosen[-last:] if last is not None else chosen
    wrong = [{"stream_seq": seq, "why": why} for seq, why in tree_.undecodable]
    lines = [_line(each) for each in chosen]
    lines += [f"{each['stream_seq']:>4}  invalid: {each['why']}" for each in wrong]
    data = {"stream": stream, "operations": [_data(each) for each in chosen], "undecodable": wrong}
    return Answer(data, lines or [f"{stream} has no operation"])


@command("veen op show 3 --stream contracts", "veen op show OPERATION_ID --stream contracts --json")
@operation_argument
@stream_option
@access_options
def show(out: Output, *, access: OverlayAccess, stream: str, operation: str) -> Answer:
    """Show one operation with all its fields.

    OPERATION is the number of its message, or its operation_id in hex.
    """
    del out
    found = loop.run(_causal_tree(access, stream))
    chosen = _chosen(found, operation, stream)
    data = {"stream": stream, **_data(chosen)}
    head = {"operation": data["operation_id"], "schema": data["schema"], "message": chosen.seq}
    record = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in data["record"].items()
    }
    signer = {"signer": data["signer"] or "unknown"}
    parents = {"parents": ", ".join(data["parents"]) or None}
    children = ", ".join(str(each.seq) for each in found.children(chosen))
    return Answer(data, fields({**head, **signer, **parents, "led to": children or None, **record}))


@command("veen op tree 3 --stream contracts", "veen op tree OPERATION_ID --stream contracts --json")
@operation_argument
@stream_option
@access_options
def tree(out: Output, *, access: OverlayAccess, stream: str, operation: str) -> Answer:
    """Show what an operation follows from, and what followed from it.

    The tree starts at the first operation of the chain of parents in this stream. An operation with several
    parents appears under each of them.
    """
    del out
    found = loop.run(_causal_tree(access, stream))
    chosen = _chosen(found, operation, stream)
    lines, nodes = [], []
    for depth, each, repeated in found.walk(found.root(chosen)):
        mark = ", as above" if repeated else " <" if each.seq == chosen.seq else ""
        lines.append(f"{'  ' * depth}{each.record.NAME} (message {each.seq}){mark}")
        absent = [parent.hex() for parent in each.parents if found.find(parent) is None]
        lines += [f"{'  ' * depth}  follows from {parent}, which is in another stream" for parent in absent]
        nodes.append({"depth": depth, "repeated": repeated, **_data(each)})
    return Answer({"stream": stream, "operation_id": chosen.operation_id.hex(), "tree": nodes}, lines)
