"""Files with secrets: created for their owner only, and refused if others can read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veen_cli.frame.exits import CommandFailed, Exit
from veen_core.keystore import is_exposed

GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def private_umask() -> Iterator[None]:
    """Create files as 0600 and folders as 0700 inside this block; existing ones keep their mode."""
    before = os.umask(GROUP_AND_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def write(path: Path, content: bytes) -> None:
    """Write a file that is 0600 from its first byte on if it is new."""
    with private_umask(), path.open("wb") as file:
        file.write(content)


def refuse_if_shared(path: Path) -> None:
    """Refuse a file with a secret that other users can read; pipes and terminals are allowed."""
    found = path.stat()
    if stat.S_ISREG(found.st_mode) and is_exposed(found, os.geteuid(), (os.getegid(), *os.getgroups())):
        raise CommandFailed(
            f"{path} can be read by other users", Exit.POLICY, f"run `chmod 600 {path}` first"
        )
