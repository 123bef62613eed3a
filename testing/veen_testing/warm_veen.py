"""A ``veen`` for the PATH of shells that tests start: its processes are forked from one that has loaded it.

A page of the documentation runs up to forty commands, and each needs a third of a second of CPU to load its
modules. ``warm_veen_server`` forks them, as ``warm_start`` does for what tests start themselves. The shell's
own child is a small program (``SHIM``): it hands its arguments, folder, environment and standard streams to
the server, passes signals on, and exits as the command does.

One command in ``COLD_EVERY`` is a new Python, the first of each server too, and so is each whose environment
holds other variables for the interpreter. ``VEEN_COLD_STARTS=1`` makes all cold.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest

from veen_testing.warm_start import PYTHON

LIBRARIES: Final = ("veen_hub.client.blocking", "veen_overlays.live.realm")
"""Loaded by the server besides every command."""
READY_SECONDS: Final = 60.0
SHIM: Final = """\
#!{python} -IS
import _signal, _socket, marshal, os, sys

PROGRAM = {program!r}
NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1")
PASSED_ON = [getattr(_signal, name) for name in NAMES]

def start_cold():
    os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])

def pass_on(number, _frame):
    connection.send(bytes([number]))

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
if connection.fileno() < 3:  # a standard stream is closed
    start_cold()
umask = os.umask(0)
os.umask(umask)
ignored = [number for number in PASSED_ON if _signal.getsignal(number) == _signal.SIG_IGN]
request = marshal.dumps(([PROGRAM, *sys.argv[1:]], os.getcwd(), dict(os.environ), umask, ignored))
standard = b"".join(fd.to_bytes(4, sys.byteorder) for fd in range(3))
connection.connect({socket!r})
connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, standard)])
for number in PASSED_ON:
    if number not in ignored:
        _signal.signal(number, pass_on)
if connection.recv(64) != b"started":
    start_cold()
code = int(connection.recv(64) or 137)
os._exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def warm_program(program: Path, folder: Path, package: str, *modules: str) -> Iterator[Path]:
    """Serve warm starts of a Python script; yield a folder for the PATH, which holds a shim of its name."""
    socket, shim = folder / "socket", folder / "bin" / program.name
    shim.parent.mkdir()
    shim.write_text(SHIM.format(python=PYTHON, program=str(program), socket=str(socket)))
    shim.chmod(0o755)
    server = subprocess.Popen(
        [PYTHON, "-P", Path(__file__).with_name("warm_veen_server.py"), socket, package, *modules],
        stdin=subprocess.PIPE,  # the server ends when it is closed
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n"
        yield shim.parent
    finally:
        server.stdin.close()
        server.wait(READY_SECONDS)
        server.stdout.close()


@pytest.fixture(scope="session")
def veen_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a ``veen`` for the PATH of shells; its processes start warm."""
    scripts = Path(sys.executable).parent
    cold = nullcontext(scripts)
    with (
        cold
        if os.environ.get("VEEN_COLD_STARTS")
        else warm_program(scripts / "veen", tmp_path_factory.mktemp("warm"), "veen_cli", *LIBRARIES) as folder
    ):
        yield folder
