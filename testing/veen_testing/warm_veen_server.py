"""A process that has loaded the modules of a program, and forks itself for each shim (``warm_veen``).

    python -P warm_veen_server.py SOCKET PACKAGE MODULE...

It loads all modules of the package. For each request it forks a keeper, which forks the program: the keeper
passes signals on to the program, kills it if the shim is gone, and tells the shim how the program ended. The
server ends when its stdin is closed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1]))
from veen_testing.warm_server import MAX_REQUEST_BYTES, STANDARD_FDS, become, is_clean, run

sys.path.pop()  # a program has no path of the tests

COLD_EVERY: Final = 16
STDIN: Final = 0
COLD: Final = b"cold"
STARTED: Final = b"started"
STARTS_THREADS: Final = ("config", "event_sources", "listener", "process")
"""Modules of ``veen_cli.query`` that load Arrow: a process with threads must not fork."""
READ_BY_INTERPRETER: Final = ("PYTHON", "LD_", "MALLOC")


def read_by_interpreter(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_BY_INTERPRETER)}


def keep(shim: socket.socket, program: int) -> None:
    """Pass signals on until the program has ended; tell the shim its exit code."""
    ended = os.pidfd_open(program)
    while ended not in (ready := select.select([shim, ended], [], [])[0]):
        numbers = shim.recv(64) if ready else b""
        for number in numbers or [signal.SIGKILL]:
            os.kill(program, number)
        if not numbers:
            break
    _, status = os.waitpid(program, 0)
    with contextlib.suppress(OSError):
        shim.send(str(os.waitstatus_to_exitcode(status)).encode())


def is_program(shim: socket.socket, listener: socket.socket, request: Any, fds: list[int]) -> bool:
    """Fork the keeper, and there the program; return True in the program."""
    if os.fork():
        return False
    listener.close()
    shim.send(STARTED)
    if program := os.fork():
        for fd in (*fds, *range(STANDARD_FDS)):  # else a pipe of the program would stay open
            os.close(fd)
        keep(shim, program)
        os._exit(0)
    shim.close()
    os.setpgid(0, 0)  # what it sends to its group is not for the server
    _words, folder, env, umask, ignored = request
    become({"new_session": False, "cwd": folder, "env": env}, fds)
    os.umask(umask)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    return True


def reap() -> None:
    """Wait for keepers that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def load(package: str, modules: Sequence[str]) -> None:
    """Load the modules, and all modules of a package."""
    for module in modules:
        importlib.import_module(module)
    skipped = {f"{package}.query.{name}" for name in STARTS_THREADS}
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if found.name not in skipped:
            importlib.import_module(found.name)


def main(path: str, package: str, *modules: str) -> None:
    load(package, modules)
    own, starts = read_by_interpreter(dict(os.environ)), 0
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    gc.collect()
    gc.freeze()
    os.write(1, b"ready\n")
    while STDIN not in select.select([listener, STDIN], [], [])[0]:
        shim, _ = listener.accept()
        data, fds, _flags, _address = socket.recv_fds(shim, MAX_REQUEST_BYTES, STANDARD_FDS)
        request = marshal.loads(data)
        starts += 1
        is_same = read_by_interpreter(request[2]) == own
        if starts % COLD_EVERY == 1 or not is_same or not is_clean([listener.fileno(), shim.fileno(), *fds]):
            shim.send(COLD)
        elif is_program(shim, listener, request, fds):
            run(request[0])
            return
        for fd in (*fds, shim.detach()):
            os.close(fd)
        reap()


if __name__ == "__main__":
    main(*sys.argv[1:])
