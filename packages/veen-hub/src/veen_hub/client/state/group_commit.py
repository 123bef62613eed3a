"""Group commit: records of all labels that wait to become durable are written in one step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from veen_core.ids import HubId
from veen_hub.client.state.store import StateStore
from veen_hub.client.wire.threads import Workers, WorkOutcome


class GroupCommit:
    """Commits the records of one connection; while one group is written, the next one gathers."""

    def __init__(self, store: StateStore, hub: HubId, workers: Workers) -> None:
        self._store = store
        self._hub = hub
        self._workers = workers
        self._records: dict[str, bytes] = {}
        self._waiting: list[WorkOutcome[None]] = []
        self._is_writing = False

    async def commit(self, records: Mapping[str, bytes]) -> None:
        """Make records durable. If cancelled, raise CancelledError only after the group was written."""
        outcome: WorkOutcome[None] = WorkOutcome()
        self._records |= records
        self._waiting.append(outcome)
        if not self._is_writing:
            self._write()
        await outcome.wait()

    def _write(self) -> None:
        """Write the records that have gathered, in a thread."""
        records, self._records = self._records, {}
        group, self._waiting = self._waiting, []
        self._is_writing = True
        try:
            self._workers.start_commit(
                lambda: self._store.commit(self._hub, records), partial(self._end, group)
            )
        except BaseException as exc:  # noqa: BLE001 - raised in all that wait for it
            self._end(group, None, exc)

    def _end(self, group: list[WorkOutcome[None]], _: None, failure: BaseException | None) -> None:
        for outcome in group:
            outcome.set(None, failure)
        self._is_writing = False
        if self._waiting:
            self._write()
