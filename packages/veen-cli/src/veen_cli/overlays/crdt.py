"""``veen crdt``: registers, sets and counters with concurrent writers (CRDT0, spec-1 §25)."""

from __future__ import annotations

import os
from typing import Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.overlays.overlay_stream import (
    OverlayAccess,
    access_options,
    bytes_data,
    refused,
    sent_data,
    text_or_hex,
)
from veen_core.ids import UnixTime
from veen_core.receipt import Receipt
from veen_overlays.crdt import (
    G_COUNTER,
    LWW_REGISTERS,
    OR_SET,
    AddId,
    CounterAdd,
    LwwWrite,
    OrSetAdd,
    OrSetRemove,
    ShardId,
    live_adds,
)

_MODULE: Final = "veen_cli.overlays.crdt"
LWW: Final = {
    "set": LazyCommand(f"{_MODULE}:lww_set", "Write a register."),
    "get": LazyCommand(f"{_MODULE}:lww_get", "Show a register, or all of them."),
}
SET: Final = {
    "add": LazyCommand(f"{_MODULE}:set_add", "Add an element."),
    "remove": LazyCommand(f"{_MODULE}:set_remove", "Remove an element."),
    "show": LazyCommand(f"{_MODULE}:set_show", "Show the elements, in the order of their bytes."),
}
COUNTER: Final = {
    "add": LazyCommand(f"{_MODULE}:counter_add", "Add to a counter."),
    "show": LazyCommand(f"{_MODULE}:counter_show", "Show the total and the part of each shard."),
}
lww = CommandGroup("lww", LWW, path="crdt.lww", help="Registers: the latest write counts.")
set_ = CommandGroup("set", SET, path="crdt.set", help="Sets: a concurrent addition wins over a removal.")
counter = CommandGroup("counter", COUNTER, path="crdt.counter", help="Counters that only grow.")
COMMANDS: Final = {
    "lww": LazyCommand(f"{_MODULE}:lww", "Registers: the latest write counts."),
    "set": LazyCommand(f"{_MODULE}:set_", "Sets: a concurrent addition wins over a removal."),
    "counter": LazyCommand(f"{_MODULE}:counter", "Counters that only grow."),
}
crdt = CommandGroup(
    "crdt", COMMANDS, path="crdt", help="Registers, sets and counters with concurrent writers."
)


@command("veen crdt lww set motd hello --stream board", name="set")
@click.argument("key")
@click.argument("value")
@click.option("--ts", type=times.Moment(), help="Time of the write [default: now].")
@stream_option
@access_options
def lww_set(
    out: Output, *, access: OverlayAccess, stream: str, key: str, value: str, ts: int | None
) -> Answer:
    """Write a register.

    A write with an earlier time than the current value changes nothing.
    """
    del out
    at = UnixTime(ts if ts is not None else times.now())
    record = LwwWrite(key=key.encode(), ts=at, value=value.encode())
    receipt = access.send(stream, record)
    data = {**sent_data(record, receipt, stream), "key": key, "value": value, "ts": at}
    return Answer(data, [f"{key} = {value}, written at {times.format_utc(at)}"])


@command("veen crdt lww get motd --stream board", name="get")
@click.argument("key", required=False)
@stream_option
@access_options
def lww_get(out: Output, *, access: OverlayAccess, stream: str, key: str | None) -> Answer:
    """Show a register, or all of them.

    Ends with exit code 1 if the register was never written.
    """
    del out
    state = access.state(stream, LWW_REGISTERS)
    written = {name: value[1] for name, value in sorted(state.items()) if value is not None}
    if key is None:
        data = [bytes_data("key", name) | bytes_data("value", value) for name, value in written.items()]
        lines = [f"{text_or_hex(name)} = {text_or_hex(value)}" for name, value in written.items()]
        return Answer({"stream": stream, "registers": data}, lines or [f"{stream} has no register"])
    if (value := written.get(key.encode())) is None:
        raise CommandFailed(
            f"{stream} has no register {key!r}",
            Exit.USAGE,
            action="run `veen crdt lww get` without a key to see all registers",
        )
    return Answer({"stream": stream, "key": key, **bytes_data("value", value)}, [text_or_hex(value)])


@command("veen crdt set add milk --stream shopping", name="add")
@click.argument("element")
@stream_option
@access_options
def set_add(out: Output, *, access: OverlayAccess, stream: str, element: str) -> Answer:
    """Add an element.

    An addition wins over a concurrent removal.
    """
    del out
    record = OrSetAdd(id=AddId(os.urandom(AddId.SIZE)), elem=element.encode())
    receipt = access.send(stream, record)
    data = {**sent_data(record, receipt, stream), "element": element, "add_id": record.id.hex()}
    return Answer(data, [f"added {element} (message {receipt.stream_seq} of {stream})"])


@command("veen crdt set remove milk --stream shopping", name="remove")
@click.argument("element")
@stream_option
@access_options
def set_remove(out: Output, *, access: OverlayAccess, stream: str, element: str) -> Answer:
    """Remove an element.

    Removes the additions that you have read; a concurrent addition stays. Ends with exit code 6, and sends
    nothing, if the element is not in the set.
    """
    del out

    async def work() -> tuple[OrSetRemove, Receipt]:
        async with access.at(stream) as source:
            adds = live_adds(await source.state(OR_SET), element.encode())
            if not adds:
                raise refused("CRDT0.2", f"{element!r} is not in the set {stream}")
            record = OrSetRemove(tomb=adds)
            return record, await source.send(record)

    record, receipt = loop.run(work())
    data = {**sent_data(record, receipt, stream), "element": element, "removed": len(record.tomb)}
    removed = plural(len(record.tomb), "addition")
    return Answer(data, [f"removed {element} ({removed})"])


@command("veen crdt set show --stream shopping", name="show")
@stream_option
@access_options
def set_show(out: Output, *, access: OverlayAccess, stream: str) -> Answer:
    """Show the elements, in the order of their bytes."""
    del out
    elements = OR_SET.view(access.state(stream, OR_SET))
    data = [bytes_data("element", each) for each in elements]
    return Answer({"stream": stream, "elements": data}, [text_or_hex(each) for each in elements])


@command("veen crdt counter add 3 --stream visits", name="add")
@click.argument("delta", type=Integer(0))
@click.option("--shard", type=Hex(ShardId), help="Id of the shard in hex [default: your identity's key].")
@stream_option
@access_options
def counter_add(
    out: Output, *, access: OverlayAccess, stream: str, delta: int, shard: ShardId | None
) -> Answer:
    """Add to a counter.

    The counter never decreases: DELTA is at least 0. Each shard has its own part of the total.
    """
    del out
    own = shard or ShardId(access.identity.client_id)
    record = CounterAdd(shard=own, delta=delta)
    receipt = access.send(stream, record)
    data = {**sent_data(record, receipt, stream), "shard": own.hex(), "delta": delta}
    return Answer(data, [f"added {delta} (message {receipt.stream_seq} of {stream})"])


@command("veen crdt counter show --stream visits", name="show")
@stream_option
@access_options
def counter_show(out: Output, *, access: OverlayAccess, stream: str) -> Answer:
    """Show the total and the part of each shard."""
    del out
    state = access.state(stream, G_COUNTER)
    shards = {shard.hex(): state[shard] for shard in sorted(state)}
    total = sum(shards.values())
    lines = [str(total), *(f"  {amount:>12}  {shard}" for shard, amount in shards.items())]
    return Answer({"stream": stream, "total": total, "shards": shards}, lines)
