"""Helper processes for CPU-bound batches: another core examines or signs while the hub's thread waits.

Ed25519 runs outside the interpreter lock, but the decoding and hashing around it do not. Groups of at least
``MIN_QUESTIONS`` are therefore sent to a process while the hub is saturated. The process starts with the
first such group. Until it is ready, and whenever it fails, the calling thread does the work itself: the hub
never depends on it.

On two cores, without these processes the hub takes a third fewer messages per second in batches and a fifth
fewer one by one; without the signing process alone, a seventh and a fifth fewer.

The two sides share a ``multiprocessing`` pipe. The process ends when its side of the pipe is closed, so it
never outlives the hub.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from veen_hub.ops.garbage import collect_rarely
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.process_memory import protect_memory
from veen_hub.ops.stage_timers import start_if_asked

MIN_QUESTIONS: Final = 16
"""Smallest group that is sent to a process; below this the calling thread is faster."""
RESTART_SEC: Final = 5.0
"""Pause before a failed process is started again."""
PIPE_BYTES: Final = 256 * 1_024
"""Buffer of the pipe in each direction; large enough for a group of average messages."""
_PIPE_ERRORS: Final = (OSError, EOFError, pickle.UnpicklingError, ValueError)
"""Errors of a pipe whose process does not start, has ended, or sends invalid data."""


def cores() -> int:
    """Return on how many cores this process may run."""
    return len(os.sched_getaffinity(0))


def has_cores() -> bool:
    """Return whether this process may run on more than one core."""
    return cores() > 1


class WorkerProcess:
    """One helper process, used by one thread."""

    def __init__(self, module: str, *, enabled: Callable[[], bool], timeout_sec: float = 10.0) -> None:
        """Prepare to run ``module``, which must call ``serve``.

        The process is started and used while ``enabled`` returns True. If it neither reads nor answers for
        ``timeout_sec``, it is killed.
        """
        self.timeout_sec = timeout_sec
        self._module = module
        self._enabled = enabled
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._not_before = 0.0
        self.ready = False
        """Whether the process has started and takes questions."""

    def ask(self, opening: list[bytes], questions: list[bytes]) -> list[Any] | None:
        """Return an answer for each question, or None if the calling thread must do the work."""
        return self.take(len(questions)) if self.post(opening, questions) else None

    def post(self, opening: list[bytes], questions: list[bytes]) -> bool:
        """Send questions, and return whether they were sent; ``take`` then returns the answers.

        ``opening`` is sent once, when the process starts.
        """
        if len(questions) < MIN_QUESTIONS or time.monotonic() < self._not_before or not self._enabled():
            return False
        try:
            pipe = self._ready_pipe(opening)
            if pipe is None:
                return False
            pipe.send(questions)
        except _PIPE_ERRORS as exc:
            self.give_up(str(exc) or type(exc).__name__)
            return False
        return True

    def take(self, count: int) -> list[Any] | None:
        """Return the answers to ``count`` questions posted together; None if the process is lost."""
        if not self.ready or self._pipe is None:
            return None
        try:
            answers = self._pipe.recv()
        except _PIPE_ERRORS as exc:
            self.give_up(str(exc) or type(exc).__name__)
            return None
        if not isinstance(answers, list) or len(answers) != count:
            self.give_up(f"the process did not send {count} answers")
            return None
        return answers

    def give_up(self, why: str) -> None:
        """Kill the process; its thread works alone until a restart after ``RESTART_SEC``."""
        log(logging.WARNING, "worker_lost", module=self._module, error=why, fallback="thread")
        self.close()
        self._not_before = time.monotonic() + RESTART_SEC

    def _ready_pipe(self, opening: list[bytes]) -> Connection | None:
        """Start the process if there is none; None until it has reported that it is ready."""
        if self._pipe is None:
            self._start(opening)
        pipe = self._pipe
        if pipe is not None and not self.ready and pipe.poll():
            self.ready = pipe.recv() == []
        return pipe if self.ready else None

    def _start(self, opening: list[bytes]) -> None:
        ours, theirs = multiprocessing.Pipe()
        try:
            _bound_waits(ours, self.timeout_sec)
            self._process = subprocess.Popen(  # noqa: S603 - our own module, nothing from the working directory
                [sys.executable, "-P", "-m", self._module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the hub to handle
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._pipe = ours
        ours.send(opening)

    def close(self) -> None:
        """Kill the process and close the pipe."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        self.ready = False


def _bound_waits(pipe: Connection, seconds: float) -> None:
    """Let reads and writes on the pipe fail after ``seconds``, so that a stopped process blocks no thread."""
    timeout = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIPE_BYTES)


def serve(open_with: Callable[[list[bytes]], Callable[[bytes], object]]) -> None:
    """Run the process's side: receive the opening, then answer questions until the pipe is closed."""
    protect_memory()  # the signer is given the hub's key
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the hub handles it and closes the pipe
    LOGGER.disabled = True  # the hub logs failures
    start_if_asked("helper")
    pipe = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, ConnectionError):
        answer = open_with(pipe.recv())
        collect_rarely()
        pipe.send([])
        while True:
            pipe.send([answer(question) for question in pipe.recv()])
