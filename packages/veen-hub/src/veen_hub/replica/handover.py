"""Handing over: the hub drains, closes its log with a hub checkpoint, and names its successor (P9).

Order:

1. The signing gate closes for good: every write is refused with E.AUTH / NOT_PRIMARY from now on.
2. Uploads in progress end.
3. In the sequencer's thread, after every batch that was accepted: the last hub checkpoint is committed.
4. The record is signed and written to ``handover.cbor``: **the commit point**. The hub is handed over, also
   after a restart.

A failure before step 4 opens the gate again: the hub stays primary. The gate stays closed if the file exists
although writing it failed, or if the request was cancelled and the sequencer may still write it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Final

from veen_core import handover as handovers
from veen_core.errors import ApiError
from veen_core.handover import Handover
from veen_core.ids import UnixTime
from veen_core.rejection import Code
from veen_core.status import HandoverRequest
from veen_hub.ops.logs import log
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.pipeline.uploads import Uploads
from veen_storage import StorageError, Store

UPLOAD_SEC: Final = 30.0
"""Longest time that a handover waits for uploads in progress."""


def refusal_after(record: Handover) -> str:
    """Say to whom a hub has handed over, for clients."""
    where = f" at {record.url}" if record.url else ""
    return f"this hub has handed over to hub {record.new_hub.hex()}{where}"


class HandoverService:
    """Hands one hub over; used from the event loop."""

    def __init__(
        self,
        store: Store,
        access: LogAccess,
        gate: SigningGate,
        uploads: Uploads,
        *,
        origin: str,
        hub_ts: Callable[[], int],
    ) -> None:
        self._store = store
        self._access = access
        self._gate = gate
        self._uploads = uploads
        self._origin = origin
        self._hub_ts = hub_ts

    async def hand_over(self, request: HandoverRequest) -> Handover:
        """Carry out steps 1 to 4 and return the record."""
        if request.new_hub == self._store.identity.hub_id:
            raise ApiError(Code.BAD_REQUEST, "a hub cannot hand over to itself")
        self._gate.check()  # a hub that may not sign cannot make its last hub checkpoint
        self._gate.write_elsewhere(f"this hub is handing over to hub {request.new_hub.hex()}")
        try:
            await self._wait_for_uploads()
            record = await self._close(request)
        except Exception:
            if not self._store.layout.handover.exists():
                self._gate.cancel_handover()
            raise
        self._gate.write_elsewhere(refusal_after(record))
        log(
            logging.WARNING,
            "handed_over",
            new_hub=record.new_hub.hex(),
            url=record.url,
            size=record.signed_head.head.size,
        )
        return record

    async def _wait_for_uploads(self) -> None:
        try:
            async with asyncio.timeout(UPLOAD_SEC):
                await self._uploads.drain()
        except TimeoutError:
            raise ApiError(
                Code.UNAVAILABLE,
                "attachments are still being uploaded: hand over again later",
                retry_after=10,
            ) from None

    async def _close(self, request: HandoverRequest) -> Handover:
        """Make the last hub checkpoint and the record, while the gate is closed."""
        return await self._access.act(lambda _batch: self._commit_last(request), reads=True)

    def _commit_last(self, request: HandoverRequest) -> Handover:
        """In the sequencer's thread: commit the last batch, then the record."""
        store = self._store
        last = store.batch(self._hub_ts())  # type: ignore[arg-type]
        last.hub_checkpoint(self._origin)
        store.commit(last)
        return self._record(request, store.hub_ts)

    def _record(self, request: HandoverRequest, hub_ts: UnixTime) -> Handover:
        """Sign the record about the newest hub checkpoint, and make it durable."""
        store = self._store
        signed = store.hub_log.checkpoint
        if signed is None:
            raise ApiError(Code.NOT_FOUND, "this hub has no entries: there is nothing to hand over")
        coids = list(store.attachments.coids())
        record = Handover(
            old_hub=store.identity.hub_id,
            new_hub=request.new_hub,
            hub_ts=hub_ts,
            checkpoint=signed.encode(),
            attachments=len(coids),
            attachments_hash=handovers.attachments_hash(coids),
            url=request.url,
            sig=handovers.UNSIGNED,
        )
        if (sig := store.sign(record.digest, hub_ts)) is None:
            raise StorageError("the hub's key is not available, so it cannot sign its handover")
        record = dataclasses.replace(record, sig=sig)
        store.record_handover(record)  # the commit point
        return record
