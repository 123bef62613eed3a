"""A lock file that admits one run of a bridge at a time; the kernel releases it when the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen_core.errors import StateError


@contextmanager
def only_run(path: Path, running: str) -> Iterator[None]:
    """Hold the lock file ``path``; raise ``StateError`` with ``running`` if another process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(running, action="wait until it has ended") from None
        yield
    finally:
        os.close(fd)
