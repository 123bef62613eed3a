"""What the exit code of ``veen`` tells a script."""

from __future__ import annotations

import enum

import click


class Exit(enum.IntEnum):
    """The exit codes."""

    OK = 0
    USAGE = 1
    NETWORK = 2
    PROTOCOL = 3
    REFUSED = 4
    SELFTEST = 5
    POLICY = 6
    BUG = 70
    INTERRUPTED = 130
    """128 + SIGINT, as shells report it."""
    PIPE = 141
    """128 + SIGPIPE: whoever read the output has left."""


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.USAGE: "wrong usage, or something it needs is missing on this machine",
    Exit.NETWORK: "the hub cannot be reached",
    Exit.PROTOCOL: "an object, proof, file or hub breaks the protocol",
    Exit.REFUSED: "the hub refused; `veen explain CODE` says why",
    Exit.SELFTEST: "a selftest failed",
    Exit.POLICY: "a rule on this side forbids it: no hub pinned, keys without a passphrase, bounds used up",
    Exit.BUG: "a bug in VEEN",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.PIPE: "whoever read the output has left",
}


class CommandFailed(click.ClickException):
    """A command fails on purpose: one line for a person, one code for a script."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code
