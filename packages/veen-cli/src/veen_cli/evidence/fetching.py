"""What ``veen receipt``, ``proof``, ``checkpoint`` and ``consistency`` share: get, show, verify."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import click

from veen_cli.arguments import completions
from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import view
from veen_cli.evidence.recognize import read
from veen_cli.evidence.verify import judge, report, trust_options
from veen_cli.frame import loop
from veen_cli.frame.command_class import Command, command
from veen_cli.frame.command_groups import Group, LazyCommand
from veen_cli.frame.connection import Target
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_core.errors import DecodeError
from veen_core.ids import Epoch
from veen_core.wire import Wire
from veen_hub.client import NotFound, Stream

W = TypeVar("W", bound=Wire)
epoch_option = click.option(
    "--epoch", type=Integer(0), help="Of this epoch's label [default: the current one's]."
)
file_option = click.option(
    "--out", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write its bytes to this file."
)


def group(noun: str, what: str) -> Group:
    """``veen NOUN get|show|verify``; the commands stand in the module of that name."""
    module = f"veen_cli.evidence.{noun}"
    article = "an" if what[0] in "aeiou" else "a"
    own = {
        "get": LazyCommand(f"{module}:get", f"Fetch {article} {what} from the hub, and verify it."),
        "show": LazyCommand(f"{module}:show", f"Show what {article} {what} says."),
        "verify": LazyCommand(f"{module}:verify", f"Verify {article} {what} from files, without a hub."),
    }
    return Group(noun, own, path=noun, help=f"{what[0].upper()}{what[1:]}s: fetch, show, verify.")


def fetch(
    target: Target, stream: str, epoch: int | None, ask: Callable[[Stream, Epoch | None], Awaitable[W]]
) -> W:
    """Ask, as nobody in particular: evidence is public to whoever can read the stream's label."""

    async def work() -> W:
        at = Epoch(epoch) if epoch is not None else None
        async with target.connect(anonymous=True) as hub:
            place = hub.stream(stream)
            try:
                return await ask(place, at)
            except NotFound as exc:
                # The hub speaks of a label: whoever asked knows the stream's name.
                said = exc.hub_message.replace(f"label {place.label(at).hex()}", stream)
                raise CommandFailed(
                    f"the hub refused, {exc.code.value}: {said}; check the number, --stream and --epoch",
                    Exit.REFUSED,
                ) from None

    return loop.run(work())


def answer(found: Wire, file: Path | None, **more: Any) -> Answer:
    """The object, verified; its bytes go to the file, if one was named."""
    wire = found.encode()
    if file is not None:
        file.write_bytes(wire)
    return Answer(
        {**view.told(found), **more, "bytes": wire.hex(), "file": str(file) if file else None},
        [*view.lines(found), *([f"wrote {file}"] if file else [])],
    )


def make_show(kind: type[Wire], noun: str, what: str) -> Command:
    article = "an" if what[0] in "aeiou" else "a"

    @command(f"veen {noun} show {noun}.cbor", name="show", help=f"Show what {article} {what} says.")
    @click.argument("file", metavar="FILE", shell_complete=completions.files)
    def show(out: Output, *, file: str) -> Answer:
        del out
        try:
            found = kind.decode(read(file))
        except DecodeError as exc:
            raise CommandFailed(
                f"{file} holds no {what}: {exc}; see what it is with `veen inspect {quote(file)}`",
                Exit.PROTOCOL,
            ) from None
        return Answer({"file": file, **view.told(found)}, view.lines(found))

    return show


def make_verify(kind: type[Wire], noun: str, what: str, *others: str) -> Command:
    article = "an" if what[0] in "aeiou" else "a"
    beside = " ".join(others)

    @command(
        f"veen {noun} verify {noun}.cbor {beside} --trust HUB_ID",
        name="verify",
        help=f"Verify {article} {what} from files, without a hub.\n\n"
        f"Give what it is to be judged by as well: {', '.join(others)}. As `veen verify`, but the first file "
        f"must be {article} {what}.",
    )
    @click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=completions.files)
    @trust_options
    def verify(out: Output, *, files: tuple[str, ...], trust: str | None, client: str | None) -> Answer:
        return report(out, judge(out, files, trust, client, kind))

    return verify
