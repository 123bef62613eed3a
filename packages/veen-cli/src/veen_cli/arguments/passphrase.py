"""The passphrase of a keystore: from a file, the environment or a terminal, never from a flag.

A flag's value would be visible in the list of processes and in the shell's history.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments.private_files import refuse_if_shared
from veen_cli.frame.exits import CommandFailed, Exit


@dataclass(frozen=True, slots=True)
class Passphrase:
    """The source of a passphrase: ``file``, else VEEN_PASSPHRASE, else a prompt."""

    file: Path | None = None

    def get(self, what: str, *, new: bool = False) -> bytes:
        """Return the passphrase for the keystore ``what``; prompt twice for a new one."""
        if (given := self._given()) is not None:
            if not given:
                raise CommandFailed("the passphrase is empty", Exit.POLICY, "choose a longer one")
            return given
        if not sys.stdin.isatty():
            raise CommandFailed(
                f"{what} needs a passphrase",
                Exit.POLICY,
                "set VEEN_PASSPHRASE, or name a file with --passphrase-file"
                + (", or give --no-passphrase" if new else ""),
            )
        typed = click.prompt(
            f"Passphrase for {what}", hide_input=True, confirmation_prompt=new, err=True, type=str
        )
        assert isinstance(typed, str)
        return typed.encode(errors="surrogateescape")

    def _given(self) -> bytes | None:
        """Return the content of the file without its last newline, else the variable's value."""
        if self.file is not None:
            refuse_if_shared(self.file)
            return self.file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
        value = os.environ.get("VEEN_PASSPHRASE")
        return value.encode(errors="surrogateescape") if value is not None else None


def passphrase_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--passphrase-file`` to a command."""
    return click.option(
        "--passphrase-file",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        envvar="VEEN_PASSPHRASE_FILE",
        show_envvar=True,
        help="File with the keystore's passphrase, mode 0600 (else VEEN_PASSPHRASE, else a prompt).",
    )(work)
