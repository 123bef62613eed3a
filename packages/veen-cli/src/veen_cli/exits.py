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


class CommandFailed(click.ClickException):
    """A command fails on purpose: one line for a person, one code for a script."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code
