"""``veen pow``: the proof of work that a hub under load may ask for (spec-1 SH1+ 5.2, RESOLUTIONS H13)."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote
from typing import Final

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.hub.status import fetch
from veen_core import pow as work
from veen_core.errors import VeenError
from veen_core.msg import Msg
from veen_core.pow import PowCookie

COMMANDS: Final = {
    "solve": LazyCommand("veen_cli.commands.pow:solve", "Find a proof-of-work cookie for a message."),
}
pow_ = CommandGroup("pow", COMMANDS, path="pow", help="Proof of work, for hubs that ask for it.")
NONCES_PER_UPDATE: Final = 4_096
"""Nonces tried between two updates of the progress bar."""


def search(challenge: bytes, difficulty: int, out: Output) -> PowCookie:
    """Solve as ``veen_core.pow.solve`` does, with progress; takes about ``2**difficulty`` hashes."""
    start = 0
    with out.progress(f"searching {difficulty} bits", 2**difficulty) as progress:
        while True:
            for nonce in range(start, start + NONCES_PER_UPDATE):
                if work.work_of(challenge, nonce) >= difficulty:
                    return PowCookie(challenge=challenge, nonce=nonce, difficulty=difficulty)
            start += NONCES_PER_UPDATE
            progress.update(start)


@command(
    "veen pow solve --msg message.cbor --hub http://127.0.0.1:8080",
    "veen pow solve --msg m.cbor --difficulty 12",
)
@click.option(
    "--msg",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the sealed MSG that the cookie is for.",
)
@click.option(
    "--difficulty", type=Integer(0, 40), help="Difficulty in bits [default: the hub's current one]."
)
@connects
def solve(out: Output, *, target: Target, msg: Path, difficulty: int | None) -> Answer:
    """Find a proof-of-work cookie for a message.

    `veen send` does this by itself. Use this command for messages that you submit by other means, and put
    the hex into the VEEN-PoW header.
    """
    wire = msg.read_bytes()
    try:
        Msg.decode(wire)
    except VeenError as exc:
        raise CommandFailed(
            f"{msg} does not hold a MSG: {exc}",
            Exit.PROTOCOL,
            f"run `veen inspect {quote(str(msg))}` to see what the file is",
        ) from None
    status, _pinned = loop.run(fetch(target))
    bits = difficulty if difficulty is not None else status.pow_difficulty
    started = time.monotonic()
    cookie = search(work.challenge(status.pow_salt, wire), bits, out)
    seconds = time.monotonic() - started
    encoded = cookie.encode().hex()
    if out.quiet and not out.as_json:
        click.echo(encoded)
    return Answer(
        {"cookie": encoded, "nonce": cookie.nonce, "difficulty": bits, "seconds": round(seconds, 3)},
        [f"VEEN-PoW: {encoded}"],
    )
