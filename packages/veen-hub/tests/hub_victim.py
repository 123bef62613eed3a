"""Starts hubs that a test kills: one process imports everything, then forks a hub per line.

    python hub_victim.py FLAGS-OF-VEEN-HUB…

Each line on stdin starts a hub; its process id is printed. The hubs write to stderr alone.
"""

from __future__ import annotations

import os
import signal
import sys

import veen_hub.replica.preparation  # noqa: F401 - only a replica imports it, when it starts
from veen_hub.main import main


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the hubs
    for _ in sys.stdin:
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a hub waits for its own helpers
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            os._exit(main(sys.argv[1:]))
        print(child, flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    serve()
