"""The commands get, show and verify of ``veen receipt``, ``proof``, ``checkpoint`` and ``consistency``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import click

from veen_cli.arguments import completions
from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import rendering
from veen_cli.evidence.recognition.recognize import read
from veen_cli.evidence.verify import TrustOptions, print_verdicts, trust_options, verify_files
from veen_cli.frame import loop
from veen_cli.frame.command_class import Command, command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import Target
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_core.errors import DecodeError
from veen_core.ids import Epoch
from veen_core.wire import Wire
from veen_hub.client import NotFound, Stream

W = TypeVar("W", bound=Wire)
epoch_option = click.option(
    "--epoch", type=Integer(0), help="Epoch of the log, at a hub with epochs [default: the current one]."
)
file_option = click.option(
    "--out",
    "-o",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the object to this file.",
)


def _article(what: str) -> str:
    return "an" if what[0] in "aeiou" else "a"


def group(noun: str, what: str, cls: type[CommandGroup] = CommandGroup, more: str = "") -> CommandGroup:
    """Make the group ``veen NOUN get|show|verify``; the commands are in the module of that name.

    ``more`` is a paragraph of the help after its first line.
    """
    module, article = f"veen_cli.evidence.fetch.{noun}", _article(what)
    own = {
        "get": LazyCommand(f"{module}:get", f"Fetch {article} {what} from the hub and verify it."),
        "show": LazyCommand(f"{module}:show", f"Show the content of {article} {what}."),
        "verify": LazyCommand(f"{module}:verify", f"Verify {article} {what} from files, without a hub."),
    }
    first = f"{what[0].upper()}{what[1:]}s: fetch, show, verify."
    return cls(noun, own, path=noun, help=f"{first}\n\n{more}" if more else first)


def fetch(
    target: Target, stream: str, epoch: int | None, ask: Callable[[Stream, Epoch | None], Awaitable[W]]
) -> W:
    """Fetch evidence of a stream; needs no keys, since evidence is public to readers of the label."""

    async def work() -> W:
        at = Epoch(epoch) if epoch is not None else None
        async with target.connect(anonymous=True) as hub:
            try:
                return await ask(hub.stream(stream), at)
            except NotFound as exc:
                raise CommandFailed(
                    f"the hub has no such entry of stream {stream} ({exc.code.value})",
                    Exit.REFUSED,
                    "check the number, --stream and --epoch; `veen stream` lists the messages",
                    reason=exc.code.value,
                ) from None

    return loop.run(work())


def answer(found: Wire, file: Path | None, *lines: str, **more: Any) -> Answer:
    """Return the verified object, and write it to the file if one is given."""
    wire = found.encode()
    if file is not None:
        file.write_bytes(wire)
    return Answer(
        {**rendering.as_dict(found), **more, "bytes": wire.hex(), "file": str(file) if file else None},
        [*rendering.as_lines(found), *lines, *([f"wrote {file}"] if file else [])],
    )


def make_show(kind: type[Wire], noun: str, what: str) -> Command:
    @command(
        f"veen {noun} show {noun}.cbor", name="show", help=f"Show the content of {_article(what)} {what}."
    )
    @click.argument("file", metavar="FILE", shell_complete=completions.files)
    def show(out: Output, *, file: str) -> Answer:
        del out
        try:
            found = kind.decode(read(file))
        except DecodeError as exc:
            raise CommandFailed(
                f"{file} does not hold {_article(what)} {what}: {exc}",
                Exit.PROTOCOL,
                f"run `veen inspect {quote(file)}` to see what the file is",
            ) from None
        return Answer({"file": file, **rendering.as_dict(found)}, rendering.as_lines(found))

    return show


def make_verify(kind: type[Wire], noun: str, what: str, *others: str) -> Command:
    @command(
        f"veen {noun} verify {noun}.cbor {' '.join(others)} --trust HUB_ID",
        name="verify",
        help=f"Verify {_article(what)} {what} from files, without a hub.\n\n"
        f"Also give the files that the verification needs: {', '.join(others)}. This is `veen verify`, but "
        f"the first file must be {_article(what)} {what}.",
    )
    @click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=completions.files)
    @trust_options
    def verify(out: Output, *, files: tuple[str, ...], against: TrustOptions) -> Answer:
        return print_verdicts(out, verify_files(out, files, against, kind))

    return verify
