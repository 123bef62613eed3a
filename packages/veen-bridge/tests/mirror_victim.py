"""Starts mirrors that a test kills: one process imports everything, then forks a mirror per line.

    python mirror_victim.py ARGUMENTS-OF-VEEN-BRIDGE…

Each line on stdin starts a mirror; its process id is printed.
"""

from __future__ import annotations

import os
import signal
import sys

from veen_bridge.commands.mirror import mirror
from veen_cli.frame import run_command


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the mirrors
    for _ in sys.stdin:
        if (child := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            os._exit(run_command(mirror, name="veen-bridge"))
        print(child, flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
