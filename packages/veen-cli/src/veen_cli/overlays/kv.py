"""``veen kv``: a map in a stream, in which the last write of a key counts (core §11.4)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from shlex import quote
from typing import Any, Final

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.overlay_stream import (
    OverlayAccess,
    OverlayStream,
    access_options,
    bytes_data,
    sent_data,
    text_or_hex,
)
from veen_core.entry import Entry
from veen_core.ids import Epoch, StreamSeq
from veen_overlays.fold.event import Event, MemorySeenKeys
from veen_overlays.kv import KV, Change, Delete, Put, change_of
from veen_overlays.kv import get as held
from veen_overlays.live import open_entry

COMMANDS: Final = {
    "get": LazyCommand("veen_cli.overlays.kv:get", "Show the value of a key."),
    "list": LazyCommand("veen_cli.overlays.kv:list_", "List all keys and their values."),
    "put": LazyCommand("veen_cli.overlays.kv:put", "Set a key."),
    "del": LazyCommand("veen_cli.overlays.kv:del_", "Remove a key."),
    "watch": LazyCommand("veen_cli.overlays.kv:watch", "Show each change as it happens, until Ctrl-C."),
}
kv = CommandGroup("kv", COMMANDS, path="kv", help="A map in a stream: get, list, put, delete, watch.")


@command("veen kv get colour --stream config", "veen kv get colour --stream config --quiet")
@click.argument("key")
@stream_option
@access_options
def get(out: Output, *, access: OverlayAccess, stream: str, key: str) -> Answer:
    """Show the value of a key.

    Ends with exit code 1 if the map does not have the key. With --quiet only the value is printed.
    """
    value = held(access.state(stream, KV), key.encode())
    if value is None:
        raise CommandFailed(
            f"{stream} has no key {key!r}",
            Exit.USAGE,
            action=f"run `veen kv list -s {quote(stream)}` to see all that you can read; if the "
            "stream has a shared reader key, name it with --reader",
        )
    if out.quiet and not out.as_json:
        click.echo(text_or_hex(value))
    return Answer({"stream": stream, "key": key, **bytes_data("value", value)}, [text_or_hex(value)])


@command("veen kv list --stream config", "veen kv list --stream config --json", name="list")
@stream_option
@access_options
def list_(out: Output, *, access: OverlayAccess, stream: str) -> Answer:
    """List all keys and their values.

    Keys are sorted by their bytes.
    """
    del out
    state = access.state(stream, KV)
    entries = {name: value for name in sorted(state) if (value := held(state, name)) is not None}
    data = [bytes_data("key", name) | bytes_data("value", value) for name, value in entries.items()]
    lines = [f"{text_or_hex(name)} = {text_or_hex(value)}" for name, value in entries.items()]
    return Answer(
        {"stream": stream, "entries": data},
        lines or [f"the map in {stream} is empty, or your keys do not open its records (--reader)"],
    )


@command("veen kv put colour green --stream config")
@click.argument("key")
@click.argument("value")
@stream_option
@access_options
def put(out: Output, *, access: OverlayAccess, stream: str, key: str, value: str) -> Answer:
    """Set a key.

    The value counts until a later message of the stream sets or removes the key.
    """
    del out
    record = Put(key=key.encode(), value=value.encode())
    receipt = access.send(stream, record)
    data = {**sent_data(record, receipt, stream), "key": key, "value": value}
    return Answer(data, [f"{key} = {value} (message {receipt.stream_seq} of {stream})"])


@command("veen kv del colour --stream config", name="del")
@click.argument("key")
@stream_option
@access_options
def del_(out: Output, *, access: OverlayAccess, stream: str, key: str) -> Answer:
    """Remove a key.

    Earlier values stay in the log.
    """
    del out
    record = Delete(key=key.encode())
    receipt = access.send(stream, record)
    data = {**sent_data(record, receipt, stream), "key": key}
    return Answer(data, [f"removed {key} (message {receipt.stream_seq} of {stream})"])


def _print_change(out: Output, change: Change) -> None:
    if out.as_json:
        value: dict[str, Any] = {"value": None}
        if change.value is not None:
            value = bytes_data("value", change.value)
        click.echo(json.dumps({"stream_seq": change.seq, **bytes_data("key", change.key), **value}))
    elif change.value is None:
        click.echo(f"{change.seq:>4}  {text_or_hex(change.key)} removed")
    else:
        click.echo(f"{change.seq:>4}  {text_or_hex(change.key)} = {text_or_hex(change.value)}")


async def _follow(source: OverlayStream, from_seq: int | None) -> AsyncGenerator[Entry, None]:
    """The entries of the stream as they arrive, from ``from_seq`` on or from the next one."""
    reader, epochs = source.hub.log_reader(), source.hub.epoch_labels(source.stream.id)
    if epochs is None:
        head = await source.stream.head()
        start = from_seq or (head.stream_seq if head is not None else 0) + 1
        async with aclosing(reader.follow(source.stream.label(), StreamSeq(start))) as entries:
            async for entry in entries:
                yield entry
        return
    if from_seq is not None:
        raise click.UsageError("--from cannot be used at a hub with epochs: each epoch has its own numbers.")
    before = {}
    for label in map(epochs.label_of, map(Epoch, epochs.window())):
        head = await reader.head(label)
        before[label] = head.stream_seq if head is not None else 0
    async with aclosing(source.stream.follow()) as messages:
        async for message in messages:
            if message.stream_seq > before.get(message.label, 0):
                yield message.entry


@command("veen kv watch --stream config", "veen kv watch colour --stream config --from 1 --count 3 --json")
@click.argument("key", required=False)
@stream_option
@click.option("--from", "from_seq", type=Integer(1), help="First message [default: the next one].")
@click.option("--count", type=Integer(1), help="End after this many changes.")
@access_options
def watch(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    key: str | None,
    from_seq: int | None,
    count: int | None,
) -> None:
    """Show each change as it happens, until Ctrl-C.

    With --json each change is one JSON object on a line.
    """

    async def work() -> None:
        seen, left = MemorySeenKeys(), count
        async with access.at(stream) as source, aclosing(_follow(source, from_seq)) as entries:
            async for entry in entries:
                event = KV.distinct(open_entry(entry, entry.receipt, source.keys), seen)
                if not isinstance(event, Event):
                    continue
                change = change_of(event)
                if key is None or change.key == key.encode():
                    _print_change(out, change)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    loop.run(work())
