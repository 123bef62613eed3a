"""An object in a file: decoded, or refused with the file's name; what is written, and when it cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TypeVar

import click

from veen_cli.frame.exits import CommandFailed, Exit
from veen_core.errors import DecodeError
from veen_core.wire import Wire

W = TypeVar("W", bound=Wire)


def read_object(kind: type[W], path: Path, remedy: str = "") -> W:
    """The one object that the file must hold."""
    try:
        return kind.decode(path.read_bytes())
    except DecodeError as exc:
        remedy = remedy or f"see what it is with `veen inspect {quote(str(path))}`"
        raise CommandFailed(f"{path} holds no {kind.codec.name}: {exc}; {remedy}", Exit.PROTOCOL) from None


def must_be_writable(path: Path) -> None:
    """For a file that is written after something that cannot be undone: refused before it, not after."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written: choose a file in a folder that is yours")


def writable(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """The same, as an option is read."""
    if path is not None:
        must_be_writable(path)
    return path


def write_new(path: Path, content: bytes) -> None:
    """To a file that is not there yet."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise CommandFailed(
            f"{path} exists already: choose another name for --out, or remove it first", Exit.USAGE
        ) from None
