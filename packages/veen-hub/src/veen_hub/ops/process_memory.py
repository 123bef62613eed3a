"""Memory protection of a hub's secrets: no core files, no access by other processes of the same user."""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Final

PR_SET_DUMPABLE: Final = 4


def protect_memory() -> None:
    """Forbid core files, and attaching to this process, before any key is read.

    A core file would hold the hub's private keys. The limit forbids core files that the kernel writes; a
    process that is not dumpable also writes none through a crash handler, and another process of the same
    user can neither attach to it nor read its memory. A new program in a child process starts without this
    protection and must call it again.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.uname().sysname != "Linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl(PR_SET_DUMPABLE): {os.strerror(ctypes.get_errno())}")
