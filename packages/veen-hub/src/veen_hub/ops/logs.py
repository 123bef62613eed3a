"""Structured logs: one JSON object a line on stderr, never a payload or a secret (OBS0.2, spec-4 §10.3).

Whoever logs never waits for whoever reads stderr: lines go to one thread that writes them, in order, and what
it cannot get rid of is dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

LOGGER = logging.getLogger("veen.hub")

STDERR: Final = 2
WAITING_BYTES: Final = 4 * 2**20
"""Lines that wait to be written; from then on they are dropped."""
RESERVED_BYTES: Final = 2**20
"""Beyond that, for warnings and errors."""
PATIENCE_SEC: Final = 2.0
"""How long a hub that ends waits for its last lines to be taken."""


class JsonLines(logging.Formatter):
    """``ts``, ``level``, ``component``, ``role`` on every line; the rest as the call gave it."""

    def __init__(self, **always: str) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": {"WARNING": "warn"}.get(record.levelname, record.levelname.lower()),
            "component": "hub",
            **self._always,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
            if frames := traceback.extract_tb(record.exc_info[2]):
                line["where"] = f"{frames[-1].filename}:{frames[-1].lineno}"
        return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


class LineWriter:
    """One thread writes lines to a descriptor that may block for ever.

    ``put`` is called by one thread at a time and never waits. ``lost`` makes the line that says how many are
    missing, which is written once everything before them is out.
    """

    def __init__(
        self,
        descriptor: int,
        lost: Callable[[int], str],
        *,
        most: int = WAITING_BYTES,
        reserved: int = RESERVED_BYTES,
    ) -> None:
        self._descriptor = descriptor
        self._lost = lost
        self._most = most
        self._reserved = reserved
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._taken = 0
        self._written = 0
        self._told = 0
        self._unwritten = 0
        self._refused = 0
        # A daemon: while it waits for a reader that never comes, the process can still end.
        self._thread = threading.Thread(target=self._run, name="veen-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that nobody will see; each of the two is counted in one thread only."""
        return self._refused + self._unwritten

    def put(self, line: str, *, matters: bool) -> None:
        """``matters``: it may use what is reserved."""
        text = f"{line}\n".encode("utf-8", "backslashreplace")
        room = self._most + (self._reserved if matters else 0)
        if self._taken - self._written + len(text) > room:
            self._refused += 1
            return
        self._taken += len(text)
        self._lines.put(text)

    def close(self, patience: float = PATIENCE_SEC) -> bool:
        """Whether everything came out in that time, and there is room for one line more."""
        self._lines.put(None)
        self._thread.join(patience)
        if self._thread.is_alive():
            return False
        try:
            return bool(select.select([], [self._descriptor], [], 0)[1])
        except OSError:  # there is no stderr: nothing waits for it either
            return True

    def _run(self) -> None:
        line = self._lines.get()
        while line is not None:
            piece, count = line, 1
            line = self._next()
            # Whole lines, no more than others who write to the same pipe cannot break up.
            while line and len(piece) + len(line) <= select.PIPE_BUF:
                piece, count = piece + line, count + 1
                line = self._next()
            self._write(piece, count)
            self._written += len(piece)
            if line == b"":
                self._tell()
                line = self._lines.get()
        self._tell()

    def _next(self) -> bytes | None:
        """Empty if none waits."""
        try:
            return self._lines.get_nowait()
        except queue.Empty:
            return b""

    def _tell(self) -> None:
        if missing := self.dropped - self._told:
            self._told += missing
            self._write(f"{self._lost(missing)}\n".encode(), 0)

    def _write(self, text: bytes, lines: int) -> None:
        while text:
            try:
                text = text[os.write(self._descriptor, text) :]
            except BlockingIOError:  # somebody who shares it made it so
                select.select([], [self._descriptor], [])
            except OSError:  # nobody is there any more, or a full disk
                self._unwritten += lines
                return


class Handler(logging.Handler):
    """Formats where the call is made, so that a line says what was so then."""

    def __init__(self, formatter: JsonLines) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writer = LineWriter(STDERR, self._lost)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.writer.put(self.format(record), matters=record.levelno >= logging.WARNING)
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)

    def _lost(self, count: int) -> str:
        about = {"levelname": "WARNING", "msg": "lines of the log are lost: stderr did not take them"}
        return self.format(logging.makeLogRecord({**about, "fields": {"lines": count}}))


def set_up(level: str, **always: str) -> None:
    """Everything that logs goes through one handler; libraries from warnings up."""
    logging.basicConfig(level=logging.WARNING, handlers=[Handler(JsonLines(**always))], force=True)
    LOGGER.setLevel(level.upper())


def _handlers() -> list[Handler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, Handler)]


def dropped() -> int:
    """Lines of this process that nobody will see."""
    return sum(handler.writer.dropped for handler in _handlers())


def finish() -> None:
    """The last lines, as far as somebody takes them; afterwards nothing is logged."""
    for handler in _handlers():
        logging.getLogger().removeHandler(handler)
        if not handler.writer.close():
            # Nobody reads: whatever else is said on the way out, by whomever, must not wait either.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends


def log(level: int, event: str, **fields: object) -> None:
    """One line. ``fields`` are identifiers, sizes, times and codes."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})
