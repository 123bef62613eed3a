"""A processor for structlog that records events (SDR0 3.2.1).

    recorder = RecorderProcessor(open_role("shop/recorder.yaml"))
    structlog.configure(processors=[recorder, structlog.processors.JSONRenderer()])
    structlog.get_logger().info("order placed", event_type="order.placed", subject_id="user:ann", order=17)

A processor is a callable, so structlog itself is not needed here. The processor passes every event dictionary
on unchanged. Dictionaries without an ``event_type`` are not recorded.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from veen_core.errors import VeenError
from veen_overlays.live.recorder.producer import ProducerRole, Recorder
from veen_overlays.recorder.events import plain_payload

logger = logging.getLogger(__name__)


class RecorderProcessor:
    """Records event dictionaries with an ``event_type``; see the module."""

    def __init__(
        self, source: ProducerRole | Recorder, *, default_subject: str | None = None, strict: bool = False
    ) -> None:
        """With ``strict`` a refused event raises in the log call; otherwise it is logged as an error."""
        self.recorder = source if isinstance(source, Recorder) else Recorder(source)
        self._default_subject = default_subject or f"service:{self.recorder.maker.origin}"
        self._strict = strict

    def __call__(
        self, _logger: Any, method: str, event_dict: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Record the event, and return the dictionary for the next processor."""
        event_type = event_dict.get("event_type")
        if event_type is None:
            return event_dict
        fields = {k: v for k, v in event_dict.items() if k not in ("event_type", "subject_id")}
        try:
            self.recorder.record(
                str(event_type),
                subject=str(event_dict.get("subject_id", self._default_subject)),
                payload=plain_payload({"level": method, **fields}),
            )
        except VeenError as exc:
            if self._strict:
                raise
            logger.error("recorder_event_refused", extra={"type": event_type, "reason": str(exc)})
        return event_dict
