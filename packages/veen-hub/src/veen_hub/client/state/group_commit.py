"""Group commit: records of all labels that wait to become durable are written in one step."""

from __future__ import annotations

import asyncio

from veen_core.ids import HubId
from veen_hub.client.state.store import StateStore
from veen_hub.client.wire.threads import Workers, finished


class GroupCommit:
    """Commits the records of one connection; while one group is written, the next one gathers."""

    def __init__(self, store: StateStore, hub: HubId, workers: Workers) -> None:
        self._store = store
        self._hub = hub
        self._workers = workers
        self._records: dict[str, bytes] = {}
        self._outcome: asyncio.Future[None] | None = None
        self._writing: asyncio.Task[None] | None = None

    async def commit(self, name: str, content: bytes) -> None:
        """Make a record durable. If cancelled, raise CancelledError only after the group was written."""
        if self._outcome is None:
            self._outcome = asyncio.get_running_loop().create_future()
        self._records[name] = content
        outcome = self._outcome
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await finished(outcome)

    async def _write(self) -> None:
        while (outcome := self._outcome) is not None:
            records, self._records, self._outcome = self._records, {}, None
            try:
                await self._workers.run(self._store.commit, self._hub, records)
                outcome.set_result(None)
            except BaseException as exc:  # noqa: BLE001 - raised in all that wait for it
                outcome.set_exception(exc)
        self._writing = None
