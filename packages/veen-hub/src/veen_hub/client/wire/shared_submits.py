"""Streams that send at the same time share requests.

Messages that come while requests are under way leave with the next one, as one sequence (H14). A message that
is alone leaves at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.outcomes import Outcomes

MAX_UNDER_WAY: Final = 2
"""Requests under way at once: while the hub works on one, the next one is on its way."""
MAX_REQUEST_BYTES: Final = 4 * 1_048_576
"""Bytes of messages in one request; the hub accepts 8 MiB."""


class SharedSubmits:
    """The submits of one connection."""

    def __init__(self, api: Endpoints, max_messages: int) -> None:
        self._api = api
        self._max_messages = max_messages
        self._waiting: deque[tuple[Sequence[bytes], asyncio.Future[Outcomes]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._scheduled = False

    async def submit(self, wires: Sequence[bytes]) -> Outcomes:
        """Return an outcome for each message, in order; raises if the whole request is refused or lost.

        If this is cancelled, messages that have not left do not leave. A request under way continues if other
        messages share it.
        """
        outcomes: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self._waiting.append((wires, outcomes))
        self._schedule()
        return await outcomes

    def _schedule(self) -> None:
        """Start requests once all tasks that are ready now have added their messages."""
        if not self._scheduled and self._waiting and len(self._under_way) < MAX_UNDER_WAY:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        taken: list[tuple[Sequence[bytes], asyncio.Future[Outcomes]]] = []
        count = size = 0
        while self._waiting:
            wires, outcomes = self._waiting[0]
            if outcomes.done():  # cancelled
                self._waiting.popleft()
                continue
            count, size = count + len(wires), size + sum(map(len, wires))
            if taken and (count > self._max_messages or size > MAX_REQUEST_BYTES):
                break
            taken.append(self._waiting.popleft())
        if not taken:
            return
        task = asyncio.create_task(self._submit(taken))

        def end_if_unwanted(_: object) -> None:
            if all(outcomes.cancelled() for _, outcomes in taken):
                task.cancel()

        for _, outcomes in taken:
            outcomes.add_done_callback(end_if_unwanted)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        self._schedule()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._schedule()

    async def _submit(self, taken: Sequence[tuple[Sequence[bytes], asyncio.Future[Outcomes]]]) -> None:
        try:
            found = await self._api.submit([wire for wires, _ in taken for wire in wires])
        except BaseException as exc:  # noqa: BLE001 - raised in all that share the request
            for _, outcomes in taken:
                if not outcomes.done():
                    outcomes.set_exception(exc)
            return
        at = 0
        for wires, outcomes in taken:
            if not outcomes.done():  # cancelled
                outcomes.set_result(found[at : at + len(wires)])
            at += len(wires)
