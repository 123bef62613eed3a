"""The exit codes of ``veen``, and the exception with which a command chooses one."""

from __future__ import annotations

import enum

import click


class Exit(enum.IntEnum):
    """An exit code; scripts branch on it."""

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
    """128 + SIGPIPE, as shells report it."""


MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.USAGE: "wrong usage, or a file, folder or program on this machine is missing or unusable",
    Exit.NETWORK: "the hub cannot be reached",
    Exit.PROTOCOL: "an object, proof, file or hub violates the protocol, or cannot be verified",
    Exit.REFUSED: "the hub refused the request; `veen explain CODE` says why",
    Exit.SELFTEST: "a selftest failed",
    Exit.POLICY: "a local rule forbids it: no hub pinned, no passphrase, a client_id used up",
    Exit.BUG: "a bug in VEEN",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.PIPE: "the program that read the output has ended",
}


class CommandFailed(click.ClickException):
    """An expected failure of a command.

    ``message`` says what failed, on which object and why; ``action`` is the next step for the user, as an
    imperative phrase, or None. ``reason`` is a stable key for programs (a hub's refusal code, say); by
    default it is the name of the exit code.
    """

    def __init__(
        self, message: str, code: Exit, action: str | None = None, *, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.action = action
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message}; {self.action}" if self.action else self.message
