"""Lines of a file or of stdin, read in a thread as they arrive: the input of every ``--batch``."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar, overload

from veen_cli.frame.exits import CommandFailed, Exit
from veen_core.limits import DEFAULT_LIMITS

T = TypeVar("T")

READ_AHEAD_LINES: Final = 1_024
READ_BYTES: Final = 65_536
MAX_LINE_BYTES: Final = DEFAULT_LIMITS.max_msg_bytes
"""A longer line cannot be the body of a MSG (core §14.2)."""

Read = Callable[[], bytes]
"""Returns the next bytes of an input as soon as there are some; nothing at its end."""


@contextmanager
def open_input(file: Path | None) -> Iterator[Read]:
    """Open a file, or stdin; unbuffered, since a buffered reader cannot be closed while a thread reads it."""
    if file is None:
        yield _stdin()
        return
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield lambda: os.read(fd, READ_BYTES)
    finally:
        os.close(fd)


def _stdin() -> Read:
    try:
        fd = sys.stdin.fileno()
    except io.UnsupportedOperation:  # stdin is replaced by an object without a file
        return lambda: sys.stdin.buffer.read(READ_BYTES)
    return lambda: os.read(fd, READ_BYTES)


def split_lines(read: Read) -> Iterator[bytes]:
    """Yield whole lines; refuse a line as soon as it is too long, before all of it is in memory."""
    begun: list[bytes] = []
    while part := read():
        first, *others = part.split(b"\n")
        begun.append(first)
        for line in others:
            yield b"".join(begun)
            begun = [line]
        if sum(map(len, begun)) > MAX_LINE_BYTES:
            raise CommandFailed(
                f"a line is longer than {MAX_LINE_BYTES} bytes and too large to send",
                Exit.USAGE,
                "send less, or put it into a file and --attach it",
            )
    if rest := b"".join(begun):
        yield rest


async def _next(queue: asyncio.Queue[T], idle_sec: float | None) -> T:
    """Return the next item; raise ``TimeoutError`` if none comes in time."""
    try:
        return queue.get_nowait()  # most lines are there already, and a timer costs more than they do
    except asyncio.QueueEmpty:
        async with asyncio.timeout(idle_sec):
            return await queue.get()


@overload
def read_lines(read: Read) -> AsyncIterator[str | bytes]: ...
@overload
def read_lines(read: Read, *, idle_sec: float) -> AsyncIterator[str | bytes | None]: ...
async def read_lines(read: Read, *, idle_sec: float | None = None) -> AsyncIterator[str | bytes | None]:
    """Yield lines as they arrive, as text if they are UTF-8; None whenever none came for ``idle_sec``.

    A thread reads them, so that a slow input delays neither messages in flight nor Ctrl-C.
    """
    running, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | Exception | None](READ_AHEAD_LINES)

    def put(item: bytes | Exception | None) -> None:
        putting = queue.put(item)
        try:
            asyncio.run_coroutine_threadsafe(putting, running).result()
        except RuntimeError:  # the loop is closed
            putting.close()
            raise

    def pump() -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended
            try:
                for line in split_lines(read):
                    put(line)
                put(None)
            except (OSError, CommandFailed) as exc:
                put(exc)

    threading.Thread(target=pump, daemon=True, name="veen-lines").start()
    while True:
        try:
            line = await _next(queue, idle_sec)
        except TimeoutError:
            yield None
            continue
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        content = line.removesuffix(b"\r")
        try:
            yield content.decode()
        except UnicodeDecodeError:
            yield content
