"""Files that hold one wire object: read and decoded, or written."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

import click

from veen_cli.frame.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from veen_core.wire import Wire

    W = TypeVar("W", bound=Wire)


def read_object(kind: type[W], path: Path, action: str = "") -> W:
    """Decode the one object that a file holds; name the file if it does not decode."""
    from veen_core.errors import DecodeError  # noqa: PLC0415 - `writable` below must not load the protocol

    try:
        return kind.decode(path.read_bytes())
    except DecodeError as exc:
        raise CommandFailed(
            f"{path} does not hold a {kind.codec.name}: {exc}",
            Exit.PROTOCOL,
            action or f"run `veen inspect {quote(str(path))}` to see what the file is",
        ) from None


def must_be_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before work that cannot be undone."""
    if not path.parent.is_dir():
        raise click.BadParameter(f"{path} cannot be written: no folder {path.parent}; make it first")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written: choose a file in a folder that you own")


def writable(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Check a file option as click parses it (a click callback)."""
    if path is not None:
        must_be_writable(path)
    return path


def write_new(path: Path, content: bytes, *, instead: str = "remove it first") -> None:
    """Write a file that must not exist yet, at once. ``instead``: what replaces an existing one."""
    from veen_hub.client import create_file  # noqa: PLC0415 - `writable` must not load the protocol

    must_be_writable(path)
    if not create_file(path, content, shared=True):
        raise CommandFailed(f"{path} exists", Exit.USAGE, f"choose another name for --out, or {instead}")


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file at once: after a crash it has its old or its new content."""
    from veen_hub.client import replace_file  # noqa: PLC0415 - `writable` must not load the protocol

    must_be_writable(path)
    replace_file(path, content, shared=True)
