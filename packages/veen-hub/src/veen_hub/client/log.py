"""``LogReader`` and ``LogWriter`` of a connected hub, by label; overlays and bridges use them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry
from veen_core.ids import Label, StreamSeq
from veen_core.msg import Msg
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.rejection import DUPLICATE
from veen_hub.client import reading
from veen_hub.client.errors import Misbehaved, Unavailable, Unreachable
from veen_hub.client.label import LabelLog
from veen_hub.client.sending.proof_of_work import ProofOfWork
from veen_hub.client.sending.searching import find
from veen_hub.client.wire.retry import is_retryable

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub


class HubLogReader:
    """Implements ``veen_core.LogReader``: verified entries of any label, still sealed."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def head(self, label: Label) -> Receipt | None:
        return await (await self._hub.log(label)).head()

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        """Return ``max_items`` entries, from several of the hub's pages; fewer mean the end of the log."""
        found: list[Entry] = []
        end = StreamSeq(max(1, from_seq) + max_items - 1)
        if max_items > 0:
            async with aclosing(reading.read(await self._hub.log(label), from_seq, end)) as pages:
                async for entries in pages:
                    found.extend(entries)
        return found

    async def pages(
        self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield verified pages up to ``to_seq`` or the end of the log; the next is verified meanwhile."""
        pages = reading.read(await self._hub.log(label), from_seq, to_seq, reading.BULK_PAGE_ENTRIES)
        async with aclosing(reading.one_ahead(pages)) as verified:
            async for entries in verified:
                yield entries

    async def follow(self, label: Label, from_seq: StreamSeq) -> AsyncGenerator[Entry, None]:
        async with aclosing(reading.follow(await self._hub.log(label), from_seq)) as pages:
            async for entries in pages:
                for entry in entries:
                    yield entry

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        return await (await self._hub.log(label)).receipt(stream_seq)

    async def proof(
        self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None
    ) -> MmrProof:
        return await (await self._hub.log(label)).proof(stream_seq, tree_size)

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        return await (await self._hub.log(label)).consistency(from_seq, to_seq)

    async def checkpoint(self, label: Label) -> Checkpoint | None:
        return await (await self._hub.log(label)).checkpoint()


class HubLogWriter:
    """Implements ``veen_core.LogWriter``: submits messages that the caller has sealed and numbered."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def submit(self, msg: Msg) -> Receipt:
        """Submit a MSG and return its verified receipt. Idempotent: a repetition returns the same receipt."""
        log, wire = await self._hub.log(msg.label), msg.encode()
        receipt = await self._submit(log, msg, wire)
        if (receipt.label, receipt.leaf_hash) != (msg.label, msg.leaf_hash):
            raise Misbehaved("the hub answered with a receipt of another message")
        await log.verify(receipt)
        return receipt

    async def _submit(self, log: LabelLog, msg: Msg, wire: bytes) -> Receipt:
        attempts, work, uncertain = log.connection.retry.begin(), ProofOfWork(log.connection), False
        while True:
            try:
                (outcome,) = await work.submit([wire], attempts)
            except Unreachable as exc:
                uncertain = True
                await attempts.wait(exc)
                continue
            if isinstance(outcome, Receipt):
                return outcome
            if is_retryable(outcome):
                uncertain = uncertain or isinstance(outcome, Unavailable)
                await attempts.wait(outcome)
                continue
            accepted = uncertain or outcome.detail_enum == DUPLICATE.detail
            if accepted and (found := await find(log, [msg.leaf_hash], msg.prev_ack)):
                return found[0]
            if not await work.is_wanted(outcome):
                raise outcome
