"""Writing the content of a bundle: verified entries, and the attachments that the bridge can name (P6).

The hub does not know which attachments belong to a message: only the opened message lists them. So the bridge
fetches those of the messages that it can open, and counts the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from veen_bridge.bundles.part_writer import PartWriter
from veen_bridge.bundles.staging import ExportPlan, StagedBundle
from veen_bridge.exporting.resuming import WrittenParts
from veen_bridge.roles.session import RoleSession
from veen_core.bundle import AttachmentRule, BundleHeader
from veen_core.bundle.header import MAX_PARTS
from veen_core.bundle.part import FOOTER_SIZE, ROWS_RESERVE
from veen_core.entry import Entry
from veen_core.errors import ConfigError, DecodeError, OpenError, VerificationError
from veen_core.ids import Coid
from veen_core.keys import DhKey
from veen_hub.client import Message

Advance = Callable[[int], None]
UNLIMITED_BYTES = 2**62


class ContentWriter:
    """Writes the parts of one staged bundle, from where an earlier run stopped."""

    def __init__(
        self, session: RoleSession, staged: StagedBundle, plan: ExportPlan, written: WrittenParts
    ) -> None:
        self._session, self._staged, self._plan = session, staged, plan
        self._written = written
        """The parts that are complete, and the tree after them."""
        self._writer: PartWriter | None = None
        self._max_bytes = content_limit(plan)
        self._known: set[Coid] = set()
        """Attachments of the part that is being written."""

    async def write(self, advance: Advance) -> WrittenParts:
        """Write all entries that are missing; return the rows and counts of the whole bundle."""
        header, written = self._plan.draft, self._written
        try:
            if written.next_seq <= header.to_seq:
                async with aclosing(self._pages()) as pages:
                    async for entries, messages in pages:
                        if messages is None:
                            self._add_events(entries)
                        else:
                            for entry, message in zip(entries, messages, strict=True):
                                await self._add_opened(entry, message)
                        advance(len(entries))
            if self._writer is not None or not written.rows:
                self._finish_part()
        finally:
            if self._writer is not None:
                self._writer.close()
        self._check_end(header)
        return written

    async def _pages(self) -> AsyncGenerator[tuple[Sequence[Entry], Sequence[Message] | None], None]:
        """Yield verified entries, and the opened messages unless attachments are omitted."""
        header, hub = self._plan.draft, self._session.hub
        opens = header.attachments is AttachmentRule.OPENED
        reader, workers, keys = hub.log_reader(), hub.connection.workers, self._session.keys.opening
        async with aclosing(reader.pages(header.label, self._written.next_seq, header.to_seq)) as pages:
            async for entries in pages:
                if opens:
                    yield entries, await workers.run_sized(len(entries), open_messages, entries, keys)
                else:
                    yield entries, None

    def _add_events(self, entries: Sequence[Entry]) -> None:
        """Add events to the current part, and to as many further parts as they need."""
        while entries:
            added = self._part().add_events(entries)
            self._written.add(entries[:added])
            entries = entries[added:]
            if entries:
                if self._part().is_empty:
                    raise self._too_small(f"entry {entries[0].stream_seq}")
                self._finish_part()

    async def _add_opened(self, entry: Entry, message: Message) -> None:
        """Add an event and its attachments, or count it as unopened."""
        self._add_events([entry])
        if not message.is_open:
            self._part().unopened += 1
            return
        for ref in message.attachments:
            if ref.coid not in self._known:
                await self._attach(ref.coid)

    async def _attach(self, coid: Coid) -> None:
        ciphertext = await self._session.hub.fetch(coid)
        if not self._part().has_room_for(len(ciphertext)):
            self._finish_part()
            if not self._part().has_room_for(len(ciphertext)):
                raise self._too_small(f"attachment {coid.hex()} of {len(ciphertext)} bytes")
        self._part().add_attachment(coid, ciphertext)
        self._known.add(coid)

    def _part(self) -> PartWriter:
        if self._writer is None:
            number = len(self._written.rows) + 1
            if number > MAX_PARTS:
                raise self._too_small(f"a bundle of more than {MAX_PARTS} parts")
            self._writer = PartWriter(
                self._staged.part(number),
                self._max_bytes,
                self._written.next_seq,
                self._written.tree.peaks,
                self._written.hub_ts,
            )
        return self._writer

    def _finish_part(self) -> None:
        writer = self._part()
        row = writer.finish()
        self._staged.note_row(len(self._written.rows) + 1, row)
        self._written.complete(row, writer.unopened, writer.attachment_bytes)
        self._writer = None
        self._known.clear()

    def _too_small(self, what: str) -> ConfigError:
        return ConfigError(
            f"{what} does not fit into parts of {self._plan.part_size} bytes",
            action="choose a larger --part-size",
        )

    def _check_end(self, header: BundleHeader) -> None:
        """Refuse a hub whose log and hub log disagree; the client keeps the evidence (P1)."""
        written = self._written
        if written.next_seq != header.to_seq + 1:
            raise VerificationError(
                f"the hub's log ends before entry {written.next_seq}, but its hub log has {header.to_seq}"
            )
        head = header.head.head if header.head is not None else None
        if head is not None and head.upto_seq == header.to_seq and head.mmr_root != written.tree.root:
            raise VerificationError(
                f"the hub log has another root of label {header.label.hex()} at {header.to_seq} than the "
                "label's own log (RESOLUTIONS P1)"
            )


def open_messages(entries: Sequence[Entry], keys: Sequence[DhKey]) -> list[Message]:
    """Open each entry with the first key that fits."""
    return [_open(entry, keys) for entry in entries]


def _open(entry: Entry, keys: Sequence[DhKey]) -> Message:
    for key in keys:
        with contextlib.suppress(OpenError, DecodeError):
            return Message(entry, entry.msg.open(key), None)
    return Message(entry, None, None)


def content_limit(plan: ExportPlan) -> int:
    """Return how many bytes of content a part may have, so that trailer and footer fit too."""
    if plan.part_size is None:
        return UNLIMITED_BYTES
    reserve = len(plan.draft.encode()) + ROWS_RESERVE + FOOTER_SIZE + 256
    if plan.part_size <= reserve:
        raise ConfigError(
            f"parts of {plan.part_size} bytes are too small: header and part table need {reserve}",
            action=f"choose a --part-size of at least {2 * reserve}",
        )
    return plan.part_size - reserve
