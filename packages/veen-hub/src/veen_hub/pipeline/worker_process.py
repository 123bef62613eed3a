"""A process apart: part of the hub's work on another core, while there is much of it.

Ed25519 runs outside the interpreter's lock; decoding and hashing around it do not, and whoever lets go of the
lock for a signature waits to get it back. So large groups are handed to a process. It starts with the first
of them, and until it is ready, or if it dies, the thread that asks does the work: nobody depends on it.

It reads its standard input until that ends, so it never outlives the hub. Frames are ``marshal`` of lists,
between two processes of the same interpreter.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from veen_core.errors import VeenError
from veen_hub.ops.garbage import collect_rarely
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.process_memory import protect_memory

WORTH_THE_WAY: Final = 16
"""Messages: below this a thread is faster than the way to a process and back."""
RESTART_SEC: Final = 5.0
_LENGTH: Final = struct.Struct(">I")


PIPE_BYTES: Final = 256 * 1_024
"""A group of messages fits into a pipe: else both sides wake each other for every part of it."""


def has_cores() -> bool:
    """Whether a process would have a core of its own: on one core it only costs."""
    return len(os.sched_getaffinity(0)) > 1


class EndedError(OSError):
    """The process ended, or does not answer."""


class Apart:
    """Belongs to one thread."""

    def __init__(self, module: str, *, enabled: bool, patience: float = 10.0) -> None:
        """``module`` is run, and calls ``serve``; not enabled, it never is.

        After so many seconds without a sign of it the process is given up.
        """
        self.patience = patience
        self._module = module
        self._enabled = enabled
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.ready = False
        """Whether its process takes questions."""

    def ask(self, opening: list[bytes], questions: list[bytes]) -> list[Any] | None:
        """An answer for each; None if the thread that asks must do the work."""
        return self.take(len(questions)) if self.post(opening, questions) else None

    def post(self, opening: list[bytes], questions: list[bytes]) -> bool:
        """Whether the process has them: then ``take`` gets its answers, in the order of posting.

        ``opening`` is what the process is told when it starts.
        """
        if not self._enabled or len(questions) < WORTH_THE_WAY or time.monotonic() < self._not_before:
            return False
        try:
            if not self._is_ready(opening):
                return False
            _send(self._fds()[0], questions, self.patience)
        except OSError as exc:  # gone
            self.give_up(str(exc))
            return False
        return True

    def take(self, count: int) -> list[Any] | None:
        """The answers to so many questions that were posted together; None if the process is lost."""
        if not self.ready:
            return None
        try:
            answers = _receive(self._fds()[1], self.patience)
        except (OSError, EOFError, TypeError, ValueError, VeenError) as exc:  # gone, or no sense in it
            self.give_up(str(exc))
            return None
        if len(answers) != count:
            self.give_up(f"{len(answers)} answers to {count} questions")
            return None
        return answers

    def give_up(self, why: str) -> None:
        """Whoever asks goes on without it, and tries again in a while."""
        log(logging.WARNING, "a process is lost: its thread does the work", process=self._module, error=why)
        self.close()
        self._not_before = time.monotonic() + RESTART_SEC

    def _is_ready(self, opening: list[bytes]) -> bool:
        """Start the process if there is none; it says hello when it has imported what it needs."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, and nothing of the working directory
                [sys.executable, "-P", "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pipesize=PIPE_BYTES,
                start_new_session=True,  # Ctrl-C is the hub's to handle
            )
            for fd in self._fds():
                os.set_blocking(fd, False)
            _send(self._fds()[0], opening, self.patience)
        if not self.ready and _is_readable(self._fds()[1]):
            _receive(self._fds()[1], self.patience)
            self.ready = True
        return self.ready

    def _fds(self) -> tuple[int, int]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdin.fileno(), process.stdout.fileno()

    def close(self) -> None:
        """The process ends, whatever it does at the moment."""
        if (process := self._process) is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._process, self.ready = None, False


def serve(open_with: Callable[[list[bytes]], Callable[[bytes], object]]) -> None:
    """The process: told how to answer, it answers until its input ends."""
    protect_memory()  # the signer's process is given the hub's key
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the hub's to handle; it ends our input
    LOGGER.disabled = True  # the hub says what there is to say
    questions, answers = sys.stdin.fileno(), sys.stdout.fileno()
    with contextlib.suppress(EndedError, BrokenPipeError):
        answer = open_with(_receive(questions))
        collect_rarely()
        _send(answers, [])
        while True:
            _send(answers, [answer(question) for question in _receive(questions)])


# --- frames, the same on both sides; without ``seconds`` a side waits for ever


def _send(fd: int, frame: list[Any], seconds: float | None = None) -> None:
    data = marshal.dumps(frame)
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    while rest:
        _wait(fd, select.POLLOUT, seconds)
        rest = rest[os.write(fd, rest) :]


def _receive(fd: int, seconds: float | None = None) -> list[Any]:
    (length,) = _LENGTH.unpack(_read(fd, _LENGTH.size, seconds))
    return marshal.loads(_read(fd, length, seconds))  # type: ignore[no-any-return]  # noqa: S302 - our own process


def _read(fd: int, length: int, seconds: float | None) -> bytes:
    parts = []
    while length:
        _wait(fd, select.POLLIN, seconds)
        if not (part := os.read(fd, length)):
            raise EndedError("it ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _wait(fd: int, event: int, seconds: float | None) -> None:
    if not _happens(fd, event, seconds):
        raise EndedError(f"no sign of it for {seconds} s")


def _is_readable(fd: int) -> bool:
    return _happens(fd, select.POLLIN, 0)


def _happens(fd: int, event: int, seconds: float | None) -> bool:
    poll = select.poll()  # a busy hub has more descriptors than ``select`` takes
    poll.register(fd, event)
    return bool(poll.poll(None if seconds is None else seconds * 1_000))
