"""Logs made of records, numbered as a hub numbers messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from veen_core.hashing import H, u64be
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.schema.record import Record


def log_of(*records: Record, start: int = 1) -> list[Message]:
    return [
        Message(n, H(b"msg" + u64be(n)), r.SCHEMA, r.encode()) for n, r in enumerate(records, start=start)
    ]


def state_of(overlay: Overlay[Any], records: Iterable[Record]) -> Any:
    """The view of the state after these records."""
    return overlay.view(overlay.fold(log_of(*records)).inner)
