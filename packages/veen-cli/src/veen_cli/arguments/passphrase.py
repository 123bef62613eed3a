"""The passphrase of a keystore: from a file, the environment, or a terminal; never from a flag.

A flag's value would show in the list of processes and stay in the shell's history.
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
    """Where to get it from; asked for once, when it is needed."""

    file: Path | None = None

    def get(self, what: str, *, new: bool = False) -> bytes:
        """The passphrase for ``what``; a new one is asked for twice."""
        if (given := self._given()) is not None:
            if not given:
                raise CommandFailed("an empty passphrase seals nothing: choose a longer one", Exit.POLICY)
            return given
        if not sys.stdin.isatty():
            raise CommandFailed(
                f"{what} needs a passphrase: set VEEN_PASSPHRASE, or name a file with --passphrase-file"
                + (", or say --no-passphrase" if new else ""),
                Exit.POLICY,
            )
        typed = click.prompt(
            f"Passphrase for {what}", hide_input=True, confirmation_prompt=new, err=True, type=str
        )
        assert isinstance(typed, str)
        return typed.encode(errors="surrogateescape")

    def _given(self) -> bytes | None:
        """From a file, without its last newline, or from the environment."""
        if self.file is not None:
            refuse_if_shared(self.file)
            return self.file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
        value = os.environ.get("VEEN_PASSPHRASE")
        return value.encode(errors="surrogateescape") if value is not None else None


def passphrase_option(work: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--passphrase-file",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        envvar="VEEN_PASSPHRASE_FILE",
        show_envvar=True,
        help="File with the keystore's passphrase, 0600 (else VEEN_PASSPHRASE, else a prompt).",
    )(work)
