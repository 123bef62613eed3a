"""Who has a data directory open: for whoever wants to stop that process, or to wait for it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from veen_storage.disk.directory_lock import read_holder
from veen_storage.disk.layout import Layout


def holder(root: Path) -> int | None:
    """The process that has it open; None if nobody has. 0 if somebody has and does not say who."""
    try:
        fd = os.open(Layout(root).lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return read_holder(fd).pid
    finally:
        os.close(fd)
    return None
