"""Chores: work that the hub repeats on a schedule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from veen_core.errors import VeenError
from veen_hub.ops.logs import LOGGER, log


@dataclass(frozen=True, slots=True)
class Chore:
    """A task that is repeated until it is cancelled."""

    name: str
    do: Callable[[], Awaitable[object]]
    every_sec: float
    retry_sec: float | None = None
    """Pause after a failure; None: wait for the next regular time."""

    async def repeat(self) -> None:
        """Repeat for ever; failures are logged and never end the schedule."""
        pause = self.every_sec
        while True:
            await asyncio.sleep(pause)
            pause = self.every_sec
            try:
                await self.do()
            except VeenError as exc:
                log(logging.WARNING, "chore_failed", chore=self.name, error=str(exc))
                pause = self.retry_sec or pause
            except Exception:  # noqa: BLE001 - logged; a bug in one chore does not end it
                LOGGER.exception("chore_failed", extra={"fields": {"chore": self.name}})
