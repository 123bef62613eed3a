"""Structured logs: one JSON object a line on stderr, never a payload or a secret (OBS0.2, spec-4 §10.3)."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any

LOGGER = logging.getLogger("veen.hub")


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


def set_up(level: str, **always: str) -> None:
    """Everything that logs goes through one handler; libraries from warnings up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(**always))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOGGER.setLevel(level.upper())


def log(level: int, event: str, **fields: object) -> None:
    """One line. ``fields`` are identifiers, sizes, times and codes."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})
