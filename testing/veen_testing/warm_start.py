"""Start the project's own programs from a process that has loaded them already.

A hub needs a third of a second of CPU to load its modules, and the suites start a thousand. While tests run,
``subprocess.Popen`` therefore forks the programs of ``PROGRAMS``, ``SCRIPTS`` and ``CONSOLE_SCRIPTS`` from
``warm_server``. The process that a test gets is real: it has its own process id, session, descriptors,
environment and memory, and it is a child of the test, which waits for it and signals it. It did not execute
Python anew; that is the only difference.

Some starts stay cold, so that loading is tested too: the first of each program, one in ``COLD_EVERY`` of the
others, and every start with an option that the server does not know. ``VEEN_COLD_STARTS=1`` makes all cold.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAMS: Final = {
    ("-m", "veen_hub.main"),
    ("-m", "veen_hub.witness.main"),
    ("-m", "veen_cli.hub.detached"),
    ("-m", "veen_selftest.command.start"),
    ("-c", "from veen_cli.frame.start import main; main()"),
    ("-c", "from veen_cli.query.serve import main; main()"),
}
SCRIPTS: Final = {
    "client_victim.py",
    "cutover_client.py",
    "faulty_hub.py",
    "faulty_query.py",
    "faulty_veen.py",
    "hub_victim.py",
    "import_ledger.py",
    "log_ledger.py",
    "mirror_victim.py",
    "operation_victim.py",
    "query_victim.py",
    "rpc_victim.py",
}
"""Programs of the tests, by the names of their files."""
CONSOLE_SCRIPTS: Final = {"veen", "veen-hub", "veen-query", "veen-witness"}
"""Commands of this environment, by path or by name."""
MODULES: Final = (
    "veen_hub.main",
    "veen_hub.witness.main",
    "veen_hub.client.blocking",
    "veen_cli.frame.start",
    "veen_cli.frame.main",
    "veen_cli.commands.send",
    "veen_cli.record.session",
    "veen_cli.query.serve",
    "veen_overlays.live.realm",
    "veen_bridge.commands.export",
    "veen_bridge.commands.import_",
    "veen_bridge.commands.reconcile",
    "veen_selftest.hubs.http_hub",
    "veen_selftest.command.selftest",
)
"""Loaded by the server, if they are installed."""
COLD_EVERY: Final = 16
PYTHON: Final = sys.executable
"""This Python; a test may set ``sys.executable`` to a program of its own."""
PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
"""Names of descriptors in ``subprocess``."""
PR_SET_CHILD_SUBREAPER: Final = 36
READY_SECONDS: Final = 60.0

_popen = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_popen)


def words_of(command: Any, env: Mapping[str, str]) -> list[str] | None:
    """Return a command's words after the interpreter and its ``-P``; None if it is not this Python."""
    if not isinstance(command, list | tuple) or any(isinstance(word, bytes) for word in command):
        return None
    words = [os.fspath(word) for word in command]
    if words and Path(words[0]).name in CONSOLE_SCRIPTS:
        found = shutil.which(words[0], path=env.get("PATH"))
        return [found, *words[1:]] if found and Path(found).parent == Path(PYTHON).parent else None
    if not words or words[0] != PYTHON:
        return None
    return words[2:] if words[1:2] == ["-P"] else words[1:]


def program_of(words: list[str], programs: Collection[tuple[str, str]]) -> str | None:
    """Return the name of the program if it is one that can be started warm."""
    if tuple(words[:2]) in programs:
        return words[1]
    return words[0] if words and Path(words[0]).name in SCRIPTS | CONSOLE_SCRIPTS else None


def is_plain(given: dict[str, Any]) -> bool:
    """Return whether the process needs nothing but descriptors, a folder, an environment and a session."""
    unset = ("preexec_fn", "pass_fds", "shell", "gid", "gids", "uid", "startupinfo")
    env = os.environ if given["env"] is None else given["env"]
    return (
        not any(given[name] for name in unset)
        and given["umask"] == -1
        and given["process_group"] in (None, -1)
        and given["close_fds"]
        and _read_by_interpreter(env) == _read_by_interpreter(os.environ)
    )


def _read_by_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(("PYTHON", "LD_", "MALLOC"))}


class WarmStarts:
    """The server of this test process, and the starts that it has made."""

    def __init__(
        self, programs: Collection[tuple[str, str]] = PROGRAMS, modules: Sequence[str] = MODULES
    ) -> None:
        self._programs = programs
        self._modules = modules
        self._starts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def start(self, popen: Any, given: dict[str, Any]) -> bool:
        """Start the process of a ``Popen`` warm; False: it must be started cold."""
        env = os.environ if given["env"] is None else given["env"]
        words = words_of(given["args"], env)
        program = program_of(words, self._programs) if words is not None else None
        if program is None or os.getpid() != self._owner or not is_plain(given):
            return False
        with self._lock:
            self._starts[program] += 1
            if self._starts[program] % COLD_EVERY == 1:
                return False
            request = {
                "words": words,
                "cwd": os.fspath(given["cwd"] or Path.cwd()),
                "env": {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
                "new_session": bool(given["start_new_session"]),
            }
            pipes = (given["p2cread"], given["c2pwrite"], given["errwrite"])
            fds = [own if fd == -1 else fd for own, fd in enumerate(pipes)]
            pid = self._fork(request, fds)
        if pid is None:
            return False
        popen.pid, popen._child_created = pid, True
        popen._close_pipe_fds(*(given[name] for name in PIPES))
        return True

    def _fork(self, request: dict[str, Any], fds: list[int]) -> int | None:
        control = self._control or self._start_server()
        # Only while it forks does this process adopt: other orphans go where they always go.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(control, [json.dumps(request).encode()], fds)
            answer = control.recv(64)
            if not answer.isdigit():
                return None
            assert control.recv(64) == b"ready"
            return int(answer)
        finally:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _start_server(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(READY_SECONDS)
        program = [
            sys.executable,
            "-P",
            str(Path(__file__).with_name("warm_server.py")),
            str(theirs.fileno()),
        ]
        self._server = subprocess.Popen(
            [*program, *self._modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        return ours

    def close(self) -> None:
        """End the server; what it has started belongs to the tests."""
        if self._control is not None and self._server is not None:
            self._control.close()
            self._server.wait()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Start programs warm; end the server afterwards."""

        def execute_child(popen: Any, *args: Any, **named: Any) -> None:
            if not self.start(popen, _signature.bind(popen, *args, **named).arguments):
                _popen(popen, *args, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess.Popen, "_execute_child", execute_child)
            yield
        self.close()


@pytest.fixture(autouse=True, scope="session")
def _warm_starts() -> Iterator[None]:
    """Start programs warm while the tests of this process run."""
    with nullcontext() if os.environ.get("VEEN_COLD_STARTS") else WarmStarts().active():
        yield
