"""A handler of Python's ``logging`` that records events (SDR0 3.2.1).

    log = logging.getLogger("shop")
    log.addHandler(RecorderHandler(open_role("shop/recorder.yaml")))
    log.info("order placed", extra={"event_type": "order.placed", "subject_id": "user:ann", "order": 17})

A log record with an ``event_type`` is an event; ``subject_id`` names its actor. Message, level, logger and
all other extra fields become the payload; floats and unknown objects become text. A log record without an
``event_type`` is an event of ``default_type``, if one is given; otherwise the handler ignores it.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from veen_overlays.live.recorder.process_exit import report_lost
from veen_overlays.live.recorder.producer import ProducerRole, Recorder
from veen_overlays.recorder.events import plain_payload

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes that every log record has; others come from ``extra``."""
_OWN_LOGGERS: Final = ("veen_hub", "veen_overlays", "aiohttp", "asyncio")
"""Loggers that sending an event may call: their records would make new events for ever."""

logger = logging.getLogger(__name__)


class RecorderHandler(logging.Handler):
    """Records log records with an ``event_type``; see the module."""

    def __init__(
        self,
        source: ProducerRole | Recorder,
        *,
        default_type: str | None = None,
        default_subject: str | None = None,
        level: int = logging.NOTSET,
    ) -> None:
        """``source`` is a connected role, or a recorder that several handlers share."""
        super().__init__(level)
        self.recorder = source if isinstance(source, Recorder) else Recorder(source)
        self._default_type = default_type
        self._default_subject = default_subject or f"service:{self.recorder.maker.origin}"

    def emit(self, record: logging.LogRecord) -> None:
        """Record a log record; a refused event is reported as ``logging`` reports errors of handlers."""
        if record.name.partition(".")[0] in _OWN_LOGGERS:
            return
        event_type = getattr(record, "event_type", self._default_type)
        if event_type is None:
            return
        try:
            self.recorder.record(
                str(event_type),
                subject=str(getattr(record, "subject_id", self._default_subject)),
                payload=self._payload(record),
                event_time=int(record.created * 1_000),
            )
        except Exception:  # noqa: BLE001 - a log call must not raise; handleError shows the error
            self.handleError(record)

    def _payload(self, record: logging.LogRecord) -> dict[str, Any]:
        extra = {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and name not in ("event_type", "subject_id")
        }
        payload = {"message": record.getMessage(), "level": record.levelname, "logger": record.name, **extra}
        if record.exc_info:
            payload["exception"] = logging.Formatter().formatException(record.exc_info)
        found = plain_payload(payload)
        assert isinstance(found, dict)
        return found

    def flush(self) -> None:
        """Wait until all recorded events are durable, for at most the recorder's ``close_seconds``."""
        if not self.recorder.flush(self.recorder.close_seconds) and not self.recorder.is_closed:
            logger.error("recorder_flush_incomplete", extra={"events": self.recorder.pending})

    def close(self) -> None:
        """Send what is queued, and close the connection; report on stderr how many events were not sent."""
        if not self.recorder.is_closed and self.recorder.close():
            report_lost(self.recorder)
        super().close()
