"""What the quickstart prints: one short chapter per step, for a reader who sees VEEN for the first time."""

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

MAX_COLUMNS: Final = 100
DUMP_ROWS: Final = 3
"""Rows of a ciphertext that are shown."""
BYTES_PER_ROW: Final = ((76, 16), (56, 8), (0, 4))
"""Minimum terminal columns, and the bytes per row of a ciphertext for them."""
_DIGITS: Final = re.compile(r"[0-9a-f]{20,}")
ROLES: Final = {
    "admin": "decides who may write",
    "alice": "writes",
    "bob": "reads; his key never reaches the hub",
}


def short(value: bytes) -> str:
    return f"{value.hex()[:16]}…"


def dump(content: bytes, columns: int) -> str:
    """Return the first bytes in hex and as characters."""
    length = next(length for least, length in BYTES_PER_ROW if columns >= least)
    rows = []
    for at in range(0, min(DUMP_ROWS * length, len(content)), length):
        row = content[at : at + length]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{row.hex(' ', 4)}  {shown}")
    more = len(content) - DUMP_ROWS * length
    return "\n".join([*rows, f"… and {more} bytes more"] if more > 0 else rows)


def shorten(text: str) -> str:
    """Shorten the hex and numbers in file names."""
    return _DIGITS.sub(lambda found: f"{found[0][:8]}…", text)


class QuietPipeConsole(Console):
    """A console that raises on a broken pipe, so that ``frame`` ends the command as usual."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Narrator:
    """Prints the chapters to a console; prints nothing if ``quiet``."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = QuietPipeConsole(quiet=quiet, highlight=False, soft_wrap=False)
        # Set both: with only the width, rich assumes 80 columns for TERM=dumb.
        columns, lines = shutil.get_terminal_size()
        width = min(MAX_COLUMNS, columns) if self.console.is_terminal else MAX_COLUMNS
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
            table.add_column(overflow="fold")  # an abbreviated id could not be compared
        for row in rows:
            table.add_row(*row)
        self.console.print(Padding(table, (0, 0, 0, 4), expand=False))

    def check_mark(self, text: str) -> None:
        self.console.print(Padding(Text.from_markup(f"[bold green]✓[/] {text}"), (0, 4), expand=False))

    # --- the chapters

    def opening(self, root: Path, *, kept: bool) -> None:
        stays = "They are kept." if kept else "They are removed at the end (--keep DIR keeps them)."
        self.console.print(
            Panel(
                "Alice writes to Bob through a hub that neither of them trusts. You will see what the hub "
                "sees, what Bob can prove to a third party, and what happens if an old message is changed.\n"
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
            "a key that opens them. Its hub_id is the hash of its first signing key: a client that pins "
            "the hub_id notices if another hub answers.",
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
            "This hub accepts messages only with a token. The admin signs one for Alice: "
            f"stream '{STREAM}', {TOKEN_TTL // 60} minutes.",
        )
        self.rows([("[bold]token[/]", short(token.auth_ref)), ("[bold]for[/]", short(token.subject_pk))])

    def messages(self, receipts: Sequence[Receipt]) -> None:
        self.chapter(
            "Three messages",
            "Alice seals each message to Bob's key and sends it. When the message is on disk, the hub "
            "answers with a signed receipt: the message's hash, its number, and a root, which commits to "
            "[italic]all[/] messages so far.",
        )
        table = Table(box=SIMPLE_HEAD, header_style="dim", pad_edge=False)
        for name in ("number", "Alice writes", "message hash", "root"):
            table.add_column(name)
        for number, (text, receipt) in enumerate(zip(TEXTS, receipts, strict=True)):
            shown = f"{text} 📎" if number == ATTACHED_TO else text
            table.add_row(str(receipt.stream_seq), shown, short(receipt.leaf_hash), short(receipt.mmr_root))
        self.console.print(Padding(table, (0, 2), expand=False))

    def both_sides(self, found: Sequence[Read]) -> None:
        self.chapter(
            "What the hub saw, and what Bob reads",
            "On the left is what the hub stores. Only Bob's key decrypts it to the text on the right.",
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
            "[dim]The hub learns Alice's key and a hash of the stream's name (both are in the token), the "
            "order, the times and the sizes. It learns neither the text nor the reader.[/]"
        )

    def evidence(self, evidence: Evidence, files: Sequence[Path]) -> None:
        upto, path = evidence.checkpoint.upto_seq, len(evidence.inclusion.path)
        peaks = len(evidence.inclusion.peaks_after)
        self.chapter(
            "Verify instead of trust",
            "Every claim of the hub is checked from bytes alone, as an auditor would:",
        )
        self.check_mark(
            f"{len(evidence.receipts)} receipts are signed by the pinned hub, each for a message that Bob has"
        )
        self.check_mark(
            f"the checkpoint is signed, and covers messages 1 to {upto}: "
            f"root {short(evidence.checkpoint.mmr_root)}"
        )
        self.check_mark(f"inclusion: message 1 is in that checkpoint, proved with {path + peaks} hashes")
        self.check_mark(
            f"consistency: the log of 1 message is a prefix of the log of {upto}: nothing was rewritten"
        )
        self.say(
            f"[dim]{len(files)} files in {files[0].parent.name}/: "
            "`veen verify` repeats these checks without the hub.[/]"
        )

    def tampering(self, tampering: Tampering) -> None:
        self.chapter(
            "An old message is changed",
            "The hub is stopped and its folder is copied. In the copy, one bit of message 2 is flipped:",
        )
        self.rows(
            [
                ("[bold]file[/]", shorten(tampering.file)),
                ("[bold]byte[/]", f"{tampering.offset}: {tampering.before:#04x} → {tampering.after:#04x}"),
            ]
        )
        self.say("`veen hub fsck` recomputes every hash, root and signature from the files:")
        self.check_mark(f"the original: {next(iter(reversed(list(tampering.original.lines()))))}")
        fault = tampering.copy.faults[0]
        self.console.print(
            Padding(Text.from_markup(f"[bold red]✗[/] the copy: {escape(shorten(str(fault)))}"), (0, 4))
        )
        self.say(
            "[dim]The hub cannot hide the change: the root that commits to message 2 is in signed receipts "
            "that Alice and Bob have.[/]"
        )

    def closing(self, seconds: float, commands: Sequence[str]) -> None:
        self.console.print()
        self.console.print(Rule("[bold cyan]Continue by hand[/]", align="left", style="cyan"))
        self.say(f"That took {seconds:.1f} seconds. Continue with these commands:")
        self.console.print()
        for line in commands:
            self.console.print(f"    {line}", soft_wrap=True, markup=False)
        self.console.print()
        self.say("[dim]`veen --help` lists all commands; `veen COMMAND --help` shows examples.[/]")
