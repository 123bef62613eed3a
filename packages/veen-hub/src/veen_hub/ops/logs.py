"""Structured logs: one JSON object per line on stderr, never a payload or a secret (OBS0.2, spec-4 §10.3).

A log call never waits for the reader of stderr. Records go through a bounded queue (``QueueHandler``) to one
thread (``QueueListener``) that writes them. Records beyond the bound are dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import select
import sys
import threading
import time
import traceback
from logging.handlers import QueueHandler, QueueListener
from typing import Any, Final

LOGGER = logging.getLogger("veen.hub")

STDERR: Final = 2
MAX_WAITING_LINES: Final = 8_192
"""Lines in the queue; further ones are dropped."""
RESERVED_LINES: Final = 2_048
"""Room beyond ``MAX_WAITING_LINES`` for warnings and errors."""
CLOSE_SEC: Final = 2.0
"""Longest time a hub that ends waits for its last lines to be read."""


_KEY: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*(?=$|[ :])")


def _event(record: logging.LogRecord) -> dict[str, str]:
    """Return the stable key of a record, and its text if the record is a sentence of another library."""
    text, key = record.getMessage(), _KEY.match(record.getMessage())
    if key is None or (key[0] != text and "_" not in key[0]):
        return {"event": "message", "logger": record.name, "message": text}
    return {"event": key[0]} if key[0] == text else {"event": key[0], "message": text}


class JsonLines(logging.Formatter):
    """Formats a record as JSON: ``ts``, ``level``, ``component``, ``role``, ``event``, then its fields."""

    def __init__(self, **always: str) -> None:
        """``always``: fields of every line."""
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": {"WARNING": "warn"}.get(record.levelname, record.levelname.lower()),
            "component": "hub",
            **self._always,
            **_event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
            if frames := traceback.extract_tb(record.exc_info[2]):
                line["where"] = f"{frames[-1].filename}:{frames[-1].lineno}"
        return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


class LogQueue(QueueHandler):
    """Formats records in the calling thread and queues them; drops and counts those beyond the bound."""

    def __init__(self, formatter: JsonLines, descriptor: int = STDERR) -> None:
        self._lines: queue.Queue[Any] = queue.Queue()
        super().__init__(self._lines)
        self.setFormatter(formatter)
        self._refused = 0
        self._writer = DescriptorWriter(descriptor, self)
        self._listener = QueueListener(self._lines, self._writer)
        self._listener.start()

    @property
    def dropped(self) -> int:
        """Lines that were never written; each of the two counters belongs to one thread."""
        return self._refused + self._writer.unwritten

    def enqueue(self, record: logging.LogRecord) -> None:
        room = MAX_WAITING_LINES + (RESERVED_LINES if record.levelno >= logging.WARNING else 0)
        if self._lines.qsize() >= room:
            self._refused += 1
            return
        self._lines.put_nowait(record)

    def is_drained(self) -> bool:
        """Return whether no record waits to be written."""
        return self._lines.empty()

    def dropped_line(self, count: int) -> str:
        """Return the line that reports ``count`` dropped lines."""
        about = {"levelname": "WARNING", "msg": "log_lines_dropped", "fields": {"lines": count}}
        return self.format(logging.makeLogRecord(about))

    def stop(self, timeout_sec: float = CLOSE_SEC) -> bool:
        """Write the queued lines; return whether that succeeded in time and stderr accepts another line."""
        stopping = threading.Thread(target=self._listener.stop, daemon=True)  # it has no timeout
        stopping.start()
        stopping.join(timeout_sec)
        return not stopping.is_alive() and self._writer.takes_more()


class DescriptorWriter(logging.Handler):
    """Writes queued lines to a descriptor that may block for ever; runs in the listener's thread."""

    def __init__(self, descriptor: int, lines: LogQueue) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._queue = lines
        self._reported = 0
        self.unwritten = 0

    def createLock(self) -> None:  # noqa: N802 - logging's name
        """Use no lock: only the listener's thread emits, and an exit must not wait for a blocked write."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record without a lock; from Python 3.13 on, the inherited method needs one."""
        accepted = bool(self.filter(record))
        if accepted:
            self.emit(record)
        return accepted

    def emit(self, record: logging.LogRecord) -> None:
        if not self._write(record.getMessage()):
            self.unwritten += 1
        if self._queue.is_drained() and (missing := self._queue.dropped - self._reported):
            self._reported += missing
            self._write(self._queue.dropped_line(missing))

    def _write(self, line: str) -> bool:
        text = f"{line}\n".encode("utf-8", "backslashreplace")
        while text:
            try:
                text = text[os.write(self._descriptor, text) :]
            except BlockingIOError:  # another process made the shared descriptor non-blocking
                select.select([], [self._descriptor], [])
            except OSError:  # the reader is gone, or the disk is full
                return False
        return True

    def takes_more(self) -> bool:
        """Return whether a write would not block."""
        try:
            return bool(select.select([], [self._descriptor], [], 0)[1])
        except OSError:  # stderr is closed, so nothing waits for it
            return True


def set_up(level: str, **always: str) -> None:
    """Log to stderr: the hub from ``level`` up, libraries from warnings up; ``always`` is on every line."""
    logging.basicConfig(level=logging.WARNING, handlers=[LogQueue(JsonLines(**always))], force=True)
    LOGGER.setLevel(level.upper())


def _queues() -> list[LogQueue]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogQueue)]


def dropped() -> int:
    """Return the number of lines of this process that were never written."""
    return sum(handler.dropped for handler in _queues())


def finish() -> None:
    """Write the last lines, within ``CLOSE_SEC``; afterwards nothing is logged."""
    for handler in _queues():
        logging.getLogger().removeHandler(handler)
        if not handler.stop():
            # Nothing reads stderr: later writes by the interpreter must not block the exit.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends


def write_failure(error: Exception | str, **always: str) -> None:
    """Write the error that ends a process as its last log line, after ``finish`` or before ``set_up``."""
    about = {"levelname": "ERROR", "msg": "failed", "fields": {"error": str(error)}}
    sys.stderr.write(JsonLines(**always).format(logging.makeLogRecord(about)) + "\n")


def log(level: int, event: str, **fields: object) -> None:
    """Log one event: a stable snake_case key, with identifiers, sizes, times and codes as fields."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})
