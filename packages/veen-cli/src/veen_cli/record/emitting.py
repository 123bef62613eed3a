"""Send recorder events: one batch per stream, with the link that attributes them at an open hub (P10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from veen_cli.record.session import RecorderSession
from veen_core.errors import ConfigError, VeenError
from veen_core.ids import ClientId
from veen_core.receipt import Receipt
from veen_hub.client import Stream
from veen_overlays.recorder.events import EventError, EventMaker, RoutedEvent
from veen_overlays.recorder.records import sign_continuity

BATCH_LINES: Final = 512
"""Lines that are checked before any of them is sent."""
IDLE_SECONDS: Final = 0.2
"""Longest time that a line waits for the next one before it is sent."""
SETTLE_SECONDS: Final = 5.0
"""Longest time that an interrupted batch waits for answers to events in flight."""


class NumberedEvent(NamedTuple):
    """An event and the number of its line, from 1."""

    line: int
    routed: RoutedEvent


def parse_line(maker: EventMaker, number: int, line: str | bytes, now: int) -> NumberedEvent:
    """Return the event of a JSON line; an error names the line."""
    try:
        item = parse_json(line)
    except (ValueError, RecursionError) as exc:
        raise EventError(f"line {number} is not JSON: {exc}") from None
    try:
        return NumberedEvent(number, maker.from_json(item, now=now))
    except (EventError, ConfigError) as exc:
        raise EventError(f"line {number}: {exc.message}", action=exc.action) from None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON without NaN, infinities and repeated keys; raise ``ValueError`` or ``RecursionError``."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


@dataclass(slots=True)
class Emitter:
    """Sends events of one producer, and counts those that are durable."""

    session: RecorderSession
    receipts: dict[str, Receipt] = field(default_factory=dict)
    """The last receipt of each stream."""
    sent: int = 0
    missing: list[int] = field(default_factory=list)
    """After a failure: the lines of the last batch that are not known to be durable."""
    _linked: dict[str, ClientId] = field(default_factory=dict)

    async def send(self, events: Sequence[NumberedEvent]) -> None:
        """Send events, in order within each stream; ``missing`` is exact after an error or Ctrl-C."""
        by_stream: dict[str, list[NumberedEvent]] = {}
        for each in events:
            by_stream.setdefault(each.routed.stream, []).append(each)
        self.missing = [each.line for each in events]
        for name, mine in by_stream.items():
            await self._send_stream(name, mine)

    async def _send_stream(self, name: str, events: Sequence[NumberedEvent]) -> None:
        stream = self.session.stream(name)
        await self._link(name, stream)
        sending = stream.send_many([each.routed.event for each in events])
        try:
            async for _ in sending:
                pass
        except (Exception, asyncio.CancelledError):
            with suppress(VeenError, TimeoutError, OSError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await sending.settle()
            raise
        finally:
            durable = {each.line for each in events[: sending.acknowledged]}
            self.sent += len(durable)
            self.missing = [line for line in self.missing if line not in durable]
            if sending.last is not None:
                self.receipts[name] = sending.last

    async def _link(self, name: str, stream: Stream) -> None:
        """Link the key that signs events to the identity, before the first event, if it is another key."""
        hub = self.session.hub
        if self.session.file.access.tokens and hub.connection.status.gating:
            return
        client = await stream.client_id()
        if self._linked.get(name) != client:
            await stream.send(sign_continuity(self.session.identity.signing_key, client))
            self._linked[name] = client


class EventBatches:
    """Checked batches of the events of JSON lines."""

    def __init__(self, maker: EventMaker, now: Callable[[], int]) -> None:
        """``now`` returns milliseconds."""
        self._maker, self._now = maker, now
        self.unsent: list[int] = []
        """Lines that were read and are in no batch yet."""
        self.next_line = 1
        """The first line that was not read, or that is wrong."""

    async def read(self, lines: AsyncIterator[str | bytes | None]) -> AsyncGenerator[list[NumberedEvent]]:
        """Yield a batch when it is full, and when no line came for a while (None); skip blank lines."""
        batch = list[NumberedEvent]()
        async for line in lines:
            if line is not None:
                if line.strip():
                    batch.append(parse_line(self._maker, self.next_line, line, self._now()))
                    self.unsent.append(self.next_line)
                self.next_line += 1
            if len(batch) >= BATCH_LINES or (line is None and batch):
                self.unsent = []
                yield batch
                batch = []
        if batch:
            self.unsent = []
            yield batch
