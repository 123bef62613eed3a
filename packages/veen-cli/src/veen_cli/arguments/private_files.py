"""What only this user may read: folders and files made so, and files of others' making looked at first."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veen_cli.frame.exits import CommandFailed, Exit

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
OWNER: Final = 0o600


@contextmanager
def privately() -> Iterator[None]:
    """Whatever is made inside is 0700 or 0600; what is there already keeps its mode."""
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def write(path: Path, content: bytes) -> None:
    """A file that is new is 0600 from its first byte on."""
    with privately(), path.open("wb") as file:
        file.write(content)


def refuse_if_shared(path: Path) -> None:
    """A secret that others can read is none; pipes and terminals are nobody else's."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) and mode & OTHERS:
        raise CommandFailed(f"{path} can be read by others: `chmod 600 {path}` first", Exit.POLICY)
