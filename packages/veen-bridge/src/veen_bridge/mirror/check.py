"""The consistency check of a mirrored stream: target records against the source's receipts (spec-3 10.4).

Each mirror record, and each wrapped copy, is compared with the receipt that the source shows now for the same
label and position. The source's log is read in pages, and verified, so the check costs one pass over both
logs, and its memory is bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, HubId, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client import Hub, Message, NotFound, Stream
from veen_overlays.bridge import ImportedEvent
from veen_overlays.federation import Mirror

PAGE_ENTRIES: Final = 250
MAX_LISTED_FAULTS: Final = 100
"""Faults that a result lists; ``faulty`` counts all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFault:
    """A record of the target that the source does not confirm."""

    target_seq: StreamSeq
    source_label: Label
    source_seq: StreamSeq
    why: str


@dataclass(slots=True, kw_only=True)
class StreamCheck:
    """The result of checking one stream."""

    checked: int = 0
    """Mirror records and wrapped copies of the source."""
    repeated: int = 0
    """Records of a source entry that has an earlier record already (F2)."""
    faulty: int = 0
    faults: list[MirrorFault] = field(default_factory=list)
    missing: int = 0
    """Source entries without a record: after the last one, or left out between two."""

    @property
    def ok(self) -> bool:
        return not self.faulty

    def add_fault(self, fault: MirrorFault) -> None:
        self.faulty += 1
        if len(self.faults) < MAX_LISTED_FAULTS:
            self.faults.append(fault)


class SourceReceipts:
    """Receipts of the source by label and position; a page is read at a time."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._page: dict[tuple[Label, int], Receipt] = {}

    async def get(self, label: Label, seq: StreamSeq) -> Receipt | None:
        """Return the verified receipt, or None if the source has no such entry."""
        if (label, seq) not in self._page:
            self._page = {(label, int(e.stream_seq)): e.receipt for e in await self._read(label, seq)}
        return self._page.get((label, seq))

    async def _read(self, label: Label, seq: StreamSeq) -> Sequence[Entry]:
        try:
            return await self._hub.log_reader().page(label, seq, PAGE_ENTRIES)
        except NotFound:
            return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    label: Label
    seq: StreamSeq
    record: Mirror | ImportedEvent

    def agrees_with(self, receipt: Receipt) -> bool:
        if isinstance(self.record, Mirror):
            return self.record.agrees_with(receipt)
        return self.record.origin_receipt == receipt.encode()


def _claim(message: Message, source: HubId, names: frozenset[str]) -> _Claim | None:
    """Return what a message of the target says about an entry of this source, or None."""
    if not message.is_open:
        return None
    try:
        if message.schema == Mirror.SCHEMA:
            mirror = Mirror.decode(message.body)
            if mirror.source_hub_identifier not in names:
                return None
            return _Claim(label=mirror.source_label, seq=mirror.source_stream_seq, record=mirror)
        if message.schema == ImportedEvent.SCHEMA:
            event = ImportedEvent.decode(message.body)
            if event.source_hub_id != source:
                return None
            return _Claim(label=event.source_label, seq=event.source_stream_seq, record=event)
    except DecodeError:
        return None
    return None


async def check_stream(source: Hub, source_stream: Stream, target: Hub, target_stream: Stream) -> StreamCheck:
    """Compare all records of a target stream with the source; raises if either hub cannot be verified."""
    result, receipts = StreamCheck(), SourceReceipts(source)
    names = frozenset((source.hub_id.hex(), source.url))
    held: dict[Label, int] = {}
    async for message in _messages(target, target_stream):
        if (claim := _claim(message, source.hub_id, names)) is None:
            continue
        result.checked += 1
        before = held.get(claim.label, 0)
        if claim.seq <= before:
            result.repeated += 1
        else:
            result.missing += claim.seq - before - 1
            held[claim.label] = claim.seq
        receipt = await receipts.get(claim.label, claim.seq)
        if receipt is None or not claim.agrees_with(receipt):
            why = "the source has no such entry" if receipt is None else "the source's receipt differs"
            result.add_fault(
                MirrorFault(
                    target_seq=message.stream_seq, source_label=claim.label, source_seq=claim.seq, why=why
                )
            )
    for label in {*held, *([source_stream.label()] if not _has_epochs(source) else [])}:
        head = await source.log_reader().head(label)
        result.missing += max(0, (head.stream_seq if head is not None else 0) - held.get(label, 0))
    return result


def _has_epochs(hub: Hub) -> bool:
    return bool(hub.connection.profile.epoch_sec)


async def _messages(hub: Hub, stream: Stream) -> AsyncIterator[Message]:
    """Yield all messages of a stream, over all its labels."""
    labels = hub.epoch_labels(stream.id)
    epochs = range(1) if labels is None else range(labels.since, (await labels.confirmed()).stop)
    for epoch in epochs:
        async for message in stream.read(epoch=Epoch(epoch)):
            yield message
