"""How the story is told: one chapter a step, short, for somebody who sees VEEN for the first time."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, ConsoleDimensions
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from veen_cli.quickstart.story import ATTACHED_TO, TEXTS, TOKEN_TTL, Evidence, Read
from veen_cli.quickstart.tamper import Tampering
from veen_cli.quickstart.world import STREAM, Running, World
from veen_core.cap import CapToken
from veen_core.receipt import Receipt

WIDTH: Final = 100
DUMPED: Final = 3
"""Rows of a ciphertext that are shown."""
IN_A_ROW: Final = ((76, 16), (56, 8), (0, 4))
"""Bytes of it in one, by the columns that there are at least: what Bob reads must fit beside it."""
_DIGITS: Final = re.compile(r"[0-9a-f]{20,}")
ROLES: Final = {
    "admin": "decides who may write",
    "alice": "writes",
    "bob": "reads; his key never reaches the hub",
}


def short(value: bytes) -> str:
    return f"{value.hex()[:16]}…"


def dump(content: bytes, columns: int) -> str:
    """The beginning, as hex and as characters."""
    length = next(length for least, length in IN_A_ROW if columns >= least)
    rows = []
    for at in range(0, min(DUMPED * length, len(content)), length):
        row = content[at : at + length]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{row.hex(' ', 4)}  {shown}")
    more = len(content) - DUMPED * length
    return "\n".join([*rows, f"… and {more} bytes more"] if more > 0 else rows)


def shorten(text: str) -> str:
    """Names of files hold a label and a number in full; a reader needs neither."""
    return _DIGITS.sub(lambda found: f"{found[0][:8]}…", text)


class Paper(Console):
    """Where it is written; whoever reads it may leave, and ``frame`` says how that ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Narrator:
    """Speaks to a console; says nothing if it is told to be quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = Paper(quiet=quiet, highlight=False, soft_wrap=False)
        # Both numbers: with one of them rich still takes 80 for a terminal that calls itself dumb.
        columns, lines = shutil.get_terminal_size()
        width = min(WIDTH, columns) if self.console.is_terminal else WIDTH
        self.console.size = ConsoleDimensions(width, lines)
        self._chapter = 0

    def say(self, text: str) -> None:
        self.console.print(Padding(Text.from_markup(text), (0, 2), expand=False))

    def chapter(self, title: str, text: str) -> None:
        self._chapter += 1
        self.console.print()
        self.console.print(Rule(f"[bold cyan]{self._chapter}  {title}[/]", align="left", style="cyan"))
        self.say(text)

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        table = Table.grid(padding=(0, 2))
        for _ in rows[0]:
            table.add_column(overflow="fold")  # an id that is cut short cannot be compared
        for row in rows:
            table.add_row(*row)
        self.console.print(Padding(table, (0, 0, 0, 4), expand=False))

    def holds(self, text: str) -> None:
        self.console.print(Padding(Text.from_markup(f"[bold green]✓[/] {text}"), (0, 4), expand=False))

    # --- the chapters

    def opening(self, root: Path, *, kept: bool) -> None:
        stays = "It stays there for you." if kept else "It is removed at the end (--keep DIR leaves it)."
        self.console.print(
            Panel(
                "Alice and Bob are about to talk through a hub that neither of them trusts. You will see "
                "what the hub sees, what Bob can prove to a stranger, and what happens if somebody edits "
                "the past.\n"
                f"\n[dim]A real hub process on 127.0.0.1, its files in {escape(str(root))}. {stays}[/]",
                title="[bold]VEEN quickstart[/]",
                border_style="cyan",
                box=ROUNDED,
            )
        )

    def people(self, world: World) -> None:
        self.chapter(
            "Three identities",
            "An identity is a folder with two key pairs: one to sign with, one to receive with.",
        )
        self.rows(
            [
                (f"[bold]{name}[/]", f"signs as {short(key)}", ROLES[name])
                for name, key in world.keys().items()
            ]
        )

    def hub(self, world: World, hub: Running) -> None:
        self.chapter(
            "A hub",
            "A hub puts messages in order, makes them durable and signs a receipt for each. It never gets "
            "a key that opens one. Its hub_id is the hash of its first signing key: whoever pins it "
            "cannot be handed another hub.",
        )
        self.rows(
            [
                ("[bold]hub_id[/]", world.identity.hub_id.hex()),
                ("[bold]listens[/]", f"{hub.url} (process {hub.pid})"),
            ]
        )

    def token(self, token: CapToken) -> None:
        self.chapter(
            "Permission to write",
            "This hub asks writers for a token. The admin signs one for Alice: "
            f"stream '{STREAM}', {TOKEN_TTL // 60} minutes.",
        )
        self.rows([("[bold]token[/]", short(token.auth_ref)), ("[bold]for[/]", short(token.subject_pk))])

    def messages(self, receipts: Sequence[Receipt]) -> None:
        self.chapter(
            "Three messages",
            "Alice seals each one to Bob's key and sends it. The hub answers when it is safely on disk, "
            "with a receipt: the message's hash, its place, and a root that commits to [italic]everything[/] "
            "up to it.",
        )
        table = Table(box=SIMPLE_HEAD, header_style="dim", pad_edge=False)
        for name in ("place", "Alice writes", "message hash", "root after it"):
            table.add_column(name)
        for number, (text, receipt) in enumerate(zip(TEXTS, receipts, strict=True)):
            shown = f"{text} 📎" if number == ATTACHED_TO else text
            table.add_row(str(receipt.stream_seq), shown, short(receipt.leaf_hash), short(receipt.mmr_root))
        self.console.print(Padding(table, (0, 2), expand=False))

    def both_sides(self, found: Sequence[Read]) -> None:
        self.chapter(
            "What the hub saw, and what Bob reads",
            "On the left is what lies on the hub's disk. Only Bob's key turns it into the right.",
        )
        table = Table(box=ROUNDED, show_lines=True, border_style="dim")
        table.add_column("[bold red]the hub saw[/]", no_wrap=True)
        table.add_column("[bold green]Bob reads[/]")
        columns = self.console.width
        for each in found:
            table.add_row(
                f"[red]{escape(dump(each.ciphertext, columns))}[/]", f"[green]{escape(each.message.text)}[/]"
            )
            if each.attachment is not None and each.attachment_ciphertext is not None:
                table.add_row(
                    f"[red]{escape(dump(each.attachment_ciphertext, columns))}[/]",
                    f"[green]📎 {escape(each.attachment.decode())}[/]",
                )
        self.console.print(Padding(table, (0, 2), expand=False))
        self.say(
            "[dim]What the hub does learn: Alice's key and a hash of the stream's name (both stand in the "
            "token), the order, the times and the sizes. Not the text, and not for whom it is.[/]"
        )

    def evidence(self, evidence: Evidence, files: Sequence[Path]) -> None:
        upto, path = evidence.checkpoint.upto_seq, len(evidence.inclusion.path)
        peaks = len(evidence.inclusion.peaks_after)
        self.chapter(
            "Do not trust: verify",
            "Everything the hub claims, checked from bytes alone, as a court or an auditor would:",
        )
        self.holds(
            f"{len(evidence.receipts)} receipts are signed by the pinned hub, each for the message Bob holds"
        )
        self.holds(
            f"the checkpoint is signed, and covers messages 1 to {upto}: "
            f"root {short(evidence.checkpoint.mmr_root)}"
        )
        self.holds(f"inclusion: message 1 is in that checkpoint, proved with {path + peaks} hashes")
        self.holds(
            f"consistency: the log of 1 message is a prefix of the log of {upto}: nothing was rewritten"
        )
        self.say(
            f"[dim]{len(files)} files in {files[0].parent.name}/: "
            "`veen verify` repeats this without the hub.[/]"
        )

    def tampering(self, tampering: Tampering) -> None:
        self.chapter(
            "Somebody edits the past",
            "The hub is stopped and its folder copied. In the copy, one single bit of message 2 is flipped:",
        )
        self.rows(
            [
                ("[bold]file[/]", shorten(tampering.file)),
                ("[bold]byte[/]", f"{tampering.offset}: {tampering.before:#04x} → {tampering.after:#04x}"),
            ]
        )
        self.say("`veen hub fsck` derives every hash, root and signature again from the files:")
        self.holds(f"the original: {next(iter(reversed(list(tampering.original.lines()))))}")
        fault = tampering.copy.faults[0]
        self.console.print(
            Padding(Text.from_markup(f"[bold red]✗[/] the copy: {escape(shorten(str(fault)))}"), (0, 4))
        )
        self.say(
            "[dim]Nor could the hub make it fit again: the root that commits to message 2 stands in "
            "receipts that Alice and Bob hold, signed by the hub.[/]"
        )

    def closing(self, seconds: float, commands: Sequence[str]) -> None:
        self.console.print()
        self.console.print(Rule("[bold cyan]Go on by hand[/]", align="left", style="cyan"))
        self.say(f"That took {seconds:.1f} seconds. These commands go on from here:")
        self.console.print()
        for line in commands:
            self.console.print(f"    {line}", soft_wrap=True, markup=False)
        self.console.print()
        self.say("[dim]`veen --help` lists everything; `veen COMMAND --help` has examples.[/]")
