"""A process that has loaded the project's modules, and forks itself for every program that a test starts.

    python -m veen_testing.warm_server CONTROL_FD MODULE...

It reads requests from a socket, each with the new process's stdin, stdout and stderr, and answers with a
process id. It runs no thread and has no open file, so that a forked process inherits loaded modules and
nothing else; it checks this before each fork and refuses otherwise. Each new process is forked twice: it is
then a child of the test's process, which waits for it and signals it like any other.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

MAX_REQUEST_BYTES: Final = 256 * 1_024
STANDARD_FDS: Final = 3
REFUSED: Final = b"refused"


def is_clean(known: Iterable[int]) -> bool:
    """Return whether this process has one thread, and no descriptors but the standard ones and ``known``."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]  # has the listing's own, closed by now
    found = {fd for fd in listed if Path(f"/proc/self/fd/{fd}").is_symlink()}
    return found <= {*range(STANDARD_FDS), *known} and len(os.listdir("/proc/self/task")) == 1


def forked(control: socket.socket, request: dict[str, Any], fds: list[int]) -> bool:
    """Fork; return True in the new process, and False here once the test's process is its parent."""
    between = os.fork()
    if between == 0:
        if pid := os.fork():
            control.send(str(pid).encode())
            os._exit(0)
        control.close()
        become(request, fds)
        return True
    os.waitpid(between, 0)
    control.send(b"ready")
    return False


def become(request: dict[str, Any], fds: list[int]) -> None:
    """Give this process the session, descriptors, folder and environment of the request."""
    if request["new_session"]:
        os.setsid()
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(STANDARD_FDS, max(fds) + 1)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        reopen(name, mode)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])


def reopen(name: str, mode: str) -> None:
    """Open a standard stream anew: the old one still knows whether the server's own file can seek."""
    old = getattr(sys, name)
    line_by_line = 1 if name == "stderr" else -1
    new = open(  # noqa: SIM115 - open until the process ends
        old.fileno(), mode, line_by_line, encoding=old.encoding, errors=old.errors, closefd=False
    )
    if mode == "w":
        new.reconfigure(write_through=old.write_through)
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


def run(words: list[str]) -> None:
    """Run ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …`` as Python would."""
    gc.unfreeze()
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* found in sys.modules after import", RuntimeWarning)
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


def main(control_fd: str, *modules: str) -> None:
    control = socket.socket(fileno=int(control_fd))
    for module in modules:
        with contextlib.suppress(ImportError):  # this environment may not have it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    while True:
        data, fds, _flags, _address = socket.recv_fds(control, MAX_REQUEST_BYTES, STANDARD_FDS)
        if not data:
            return
        request = json.loads(data)
        if not is_clean([control.fileno(), *fds]):
            control.send(REFUSED)
        elif forked(control, request, fds):
            run(request["words"])
            return
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    main(*sys.argv[1:])
