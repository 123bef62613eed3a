"""Files that hold one wire object: read and decoded, or written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeVar

import click

from veen_cli.frame.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from veen_core.wire import Wire

    W = TypeVar("W", bound=Wire)

NO_HARD_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Error numbers of file systems that have no hard links."""


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
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written: choose a file in a folder that you own")


def writable(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Check a file option as click parses it (a click callback)."""
    if path is not None:
        must_be_writable(path)
    return path


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise CommandFailed(
            f"{path} exists", Exit.USAGE, "choose another name for --out, or remove it first"
        ) from None


def write_whole(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file at once: after a crash it has its old or its new content. ``force`` replaces a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(path)
        else:
            _publish(temporary, path)
    except FileExistsError:
        raise CommandFailed(
            f"{path} exists", Exit.USAGE, "choose another name for --out, or replace it with --force"
        ) from None
    except OSError as error:
        error.filename = str(path)  # the user does not know the temporary name
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _publish(temporary: Path, path: Path) -> None:
    """Give a new file its name; raise FileExistsError if there is one of that name."""
    try:
        path.hardlink_to(temporary)
    except OSError as exc:
        if exc.errno not in NO_HARD_LINKS:
            raise
        path.touch(exist_ok=False)  # reserves the name
        temporary.replace(path)
