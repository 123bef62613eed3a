"""The log events of the service."""

from __future__ import annotations

import logging
from typing import Final

LOGGER: Final = logging.getLogger("veen.hub.query")


def log(level: int, event: str, **fields: object) -> None:
    """Log one event: a stable key and its fields; never a row, a filter value or a token."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})
