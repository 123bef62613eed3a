"""Write the events of one bundle to its import stream, each exactly once, and report it (AGB0 4.5, P7, P8).

The order of writes, each durable before the next:

1. the report of an allowed gap, and of the import stream if it is the first bundle of a source stream;
2. the attachments, under their own coids; putting one again changes nothing (H17);
3. the events that the import stream does not hold yet, in order;
4. in mode reseal, the origin of each resealed event, to the audit log (P7);
5. the report of success. From here on the bundle is imported.

After an interruption anywhere the same steps run again. The import stream itself shows which events it holds,
so a bridge with an empty disk continues as well (P8). With its disk, the messages that the client still holds
are delivered before the stream is read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from veen_bridge.bundles import BundleFiles
from veen_bridge.importing.admission import ImportPlan, mapping_changed, mapping_collision
from veen_bridge.importing.audit import AuditLog
from veen_bridge.roles.folding import folded
from veen_bridge.roles.session import RoleSession
from veen_bridge.transfer import (
    CopyMaker,
    Landing,
    Mode,
    OriginCursor,
    OriginEntry,
    find_held,
    settle_pending,
)
from veen_core.bundle import BundleError, PartIndex
from veen_core.ids import Epoch, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client import Message, Outgoing, Stream
from veen_overlays import MemoryStore
from veen_overlays.bridge import ORIGINS, Imported, ImportedEvent, TargetRange
from veen_overlays.bridge.origins import runs_of
from veen_overlays.bridge.records import leaf_of

Advance = Callable[[int], None]
"""Called with the number of events that became durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedBundle:
    """A bundle that is imported completely."""

    plan: ImportPlan
    written: int
    """Events that this run wrote."""
    found: int
    """Events that an earlier, interrupted run wrote."""
    attachments: int
    targets: tuple[TargetRange, ...]
    report: Receipt
    """The receipt of the report in bridge/offline/log."""


class BundleImport:
    """The import of one verified bundle by a connected bridge_offline."""

    def __init__(self, session: RoleSession, plan: ImportPlan, files: BundleFiles, audit: AuditLog) -> None:
        self._session, self._plan, self._files, self._audit = session, plan, files, audit
        self._stream = session.stream(plan.target)
        self._maker = CopyMaker(
            mode=Mode(session.config.mode),
            bridge_id=session.keys.bridge_id,
            limits=session.hub.connection.limits,
            readers=session.keys.source_readers,
            bundle_id=plan.bundle_id,
        )
        self._ranges: dict[Label, tuple[StreamSeq, StreamSeq]] = {}

    async def run(self, advance: Advance) -> ImportedBundle:
        """Import the bundle; the steps are those of the module."""
        plan = self._plan
        landing = Landing(self._stream, self._maker)
        landing.check_readable()
        if plan.wanted:
            await self._check_contested()
        if plan.skipped_from is not None and not plan.gap_reported:
            await self._audit.report_gap(plan)
        if plan.wanted and not plan.mapping_reported:
            await self._audit.report_mapping(plan)
        attachments = await self._put_attachments()
        found = written = 0
        if plan.wanted:
            await settle_pending(self._stream)
            cursor = OriginCursor(plan.header.label, plan.wanted[0].from_seq - 1, self._origins())
            found = await self._find(cursor, advance)
            async with aclosing(landing.send(cursor.rest())) as sending:
                async for sent in sending:
                    self._note(sent.receipt.label, sent.receipt.stream_seq)
                    written += 1
                    advance(1)
            if self._maker.mode is Mode.RESEAL:
                await self._report_origins()
        targets = tuple(
            TargetRange(stream_id=self._stream.id, label=label, from_seq=low, to_seq=high)
            for label, (low, high) in self._ranges.items()
        )
        report = await self._audit.report_success(plan, targets)
        return ImportedBundle(
            plan=plan, written=written, found=found, attachments=attachments, targets=targets, report=report
        )

    def _note(self, label: Label, seq: StreamSeq) -> None:
        low, high = self._ranges.get(label, (seq, seq))
        self._ranges[label] = min(low, seq), max(high, seq)

    async def _put_attachments(self) -> int:
        """Store every attachment of the bundle, one in memory at a time; returns their number."""
        count = 0
        for number in sorted(self._files.parts):
            part = self._files.parts[number]
            index = PartIndex.decode(part.index_bytes())
            with part.open() as file:
                for each in index.attachments:
                    file.seek(each.offset)
                    if await self._stream.store_attachment(file.read(each.size)) != each.coid:
                        raise BundleError(
                            f"attachment {each.coid.hex()} was changed after it was verified", part=number
                        )
                    count += 1
        return count

    # --- the import stream

    async def _check_contested(self) -> None:
        """Refuse the bundle if the import stream of a contested mapping has an event (admission rule 3).

        An interrupted import may have reported its mapping and then written no event.
        """
        plan, session = self._plan, self._session
        for mapping in plan.contested:
            stream = session.hub.stream(mapping.target_stream_id.hex(), readers=session.keys.readers)
            await settle_pending(stream)
            if not await self._has_copies(stream):
                continue
            if mapping.target_stream_id == plan.target_id:
                raise mapping_collision(plan.target, mapping.source_hub_id, mapping.source_stream)
            raise mapping_changed(plan.header, mapping.target_stream, plan.target)

    async def _has_copies(self, stream: Stream) -> bool:
        """Return whether a stream has an imported event: every copy names its original as parent (P4)."""
        async with aclosing(self._messages(stream, None)) as messages:
            async for message in messages:
                if message.is_open and message.header.parent_id is not None:
                    return True
        return False

    # --- the events of the bundle

    async def _origins(self) -> AsyncGenerator[OriginEntry, None]:
        """Yield the wanted events of the verified files.

        Nothing is verified again: ``stable_file`` compares every block with the one that was verified.
        """
        header = self._plan.header
        wanted = iter(self._plan.wanted)
        span = next(wanted, None)
        for entry in self._files.events(self._plan.wanted[0].from_seq):
            while span is not None and entry.stream_seq > span.to_seq:
                span = next(wanted, None)
            if span is None:
                return
            if entry.stream_seq >= span.from_seq:
                yield OriginEntry(hub_id=header.hub_id, entry=entry)

    # --- the events that the import stream holds

    async def _find(self, cursor: OriginCursor, advance: Advance) -> int:
        """Move the cursor past the events that an interrupted run wrote; returns their number."""
        found = 0

        async def watched() -> AsyncIterator[Message]:
            nonlocal found
            async for message in self._messages(self._stream, self._plan.after):
                before = cursor.held
                yield message
                if cursor.held != before:
                    self._note(message.receipt.label, message.stream_seq)
                    found += 1
                    advance(1)

        await find_held(watched(), [cursor], readers=self._session.keys.source_readers)
        return found

    async def _messages(self, stream: Stream, after: Imported | None) -> AsyncGenerator[Message, None]:
        """The messages of an import stream in order, from the end of bundle ``after`` or from its start."""
        hub = self._session.hub
        epochs = hub.epoch_labels(stream.id)
        if epochs is None:
            label = stream.label()
            ends = [each.to_seq for each in after.targets if each.label == label] if after else []
            async for message in stream.read(max(ends, default=0) + 1):
                yield message
            return
        first = epochs.since if after is None else max(epochs.since, hub.epoch_at(after.import_time) - 1)
        for epoch in range(first, (await epochs.confirmed()).stop):
            async for message in stream.read(epoch=Epoch(epoch)):
                yield message

    # --- mode reseal

    async def _report_origins(self) -> None:
        """Write the origins of resealed events to the audit log, from the first that is not there (P7)."""
        session, header = self._session, self._plan.header
        view = await folded(ORIGINS, session.hub, session.audit, session.keys.opening, MemoryStore())
        runs = runs_of((await view.state()).summary.inner, header.hub_id, header.label)
        done = max((run.to_seq for run in runs if run.bundle_id == self._plan.bundle_id), default=0)

        async def records() -> AsyncIterator[Outgoing]:
            async for origin in self._origins():
                now = self._audit.now
                copy = self._maker.copy(origin, target_label=self._stream.label(), now=now)
                if origin.seq > done and copy.mode is Mode.RESEAL:
                    yield Outgoing(body=self._origin_record(origin), parent=origin.msg_id)

        sending = session.audit.send_many(records())
        async with aclosing(sending):
            async for _receipt in sending:
                pass

    def _origin_record(self, origin: OriginEntry) -> ImportedEvent:
        return ImportedEvent(
            bundle_id=self._plan.bundle_id,
            source_hub_id=origin.hub_id,
            source_label=origin.label,
            source_stream_seq=origin.seq,
            origin_receipt=origin.entry.receipt_bytes,
            import_time=self._audit.now,
            bridge_id=self._session.keys.bridge_id,
            origin_leaf=leaf_of(origin.entry.msg),
        )
