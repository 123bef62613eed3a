"""The origins of resealed events, from a bridge's audit log (RESOLUTIONS P4, P7).

A resealed copy has the schema and body of its original and names it as ``parent_id``. The audit log lists
the origin receipt of each. The list is written after the copies, so a copy whose origin is not listed waits,
until the bridge has reported the bundle as imported. Every origin receipt is verified under the identity of
its hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from veen_core.entry import Entry
from veen_core.errors import DecodeError, StateError, VerificationError
from veen_core.ids import ClientId, Label, StreamSeq
from veen_core.keys import DhKey
from veen_core.mmr import Mmr
from veen_core.protocols import LogReader
from veen_overlays.bridge.records import Imported, ImportedEvent
from veen_overlays.live.label import PAGE_ENTRIES, extend
from veen_overlays.live.opening import open_msg
from veen_overlays.live.query_view.feed.opened_entries import CommitPlace, EntryOpener
from veen_overlays.live.query_view.files.manifest import OriginLog
from veen_overlays.live.query_view.view import QueryView

MAX_LISTED_ORIGINS: Final = 65_536
"""Most listed origins whose copies were not read yet."""
MARK_ENTRIES: Final = 1_024
"""Entries between two sizes at which reading can resume."""
_IMPORTED_EVENT: Final = bytes(ImportedEvent.SCHEMA)
_REPORT: Final = bytes(Imported.SCHEMA)


class ListedOrigin(NamedTuple):
    """Where a resealed event was first committed, and the key that signed it."""

    place: CommitPlace
    client: ClientId | None
    """The signing key, which the origin's receipt proves; None if the record has no ``origin_leaf``."""


def audited(entry: Entry, keys: Sequence[DhKey], opener: EntryOpener) -> ListedOrigin | Imported | None:
    """Return what an entry of the audit log says: the origin of an event, or an imported bundle.

    None for every other entry, and for an origin that ``opener`` does not prove to be of its stream.
    """
    opened = None if entry.is_authorize else open_msg(entry.msg, keys)
    if opened is None:
        return None
    try:
        if opened.header.schema == _REPORT:
            return Imported.decode(opened.body)
        if opened.header.schema != _IMPORTED_EVENT:
            return None
        record = ImportedEvent.decode(opened.body)
        if record.origin_msg is not None:
            return None
        place = opener.verified_place(record.source_hub_id, record.origin_receipt)
    except (DecodeError, VerificationError):
        return None
    leaf = record.origin_leaf
    return ListedOrigin(place, None if leaf is None else leaf.client_id)


class OriginLogReader:
    """Reads one audit log of a bridge, for one feed. Call ``catch_up`` before the feed is read."""

    def __init__(
        self, label: Label, reader: LogReader, *, keys: Sequence[DhKey], opener: EntryOpener, stream: str
    ) -> None:
        """``opener`` belongs to the feed and knows the pinned hubs; ``stream`` is the name in queries."""
        self.label, self._reader, self._keys = label, reader, keys
        self._opener, self._stream = opener, stream
        self._name = f"{stream}/{label.hex()}"
        self._mmr = Mmr()
        self._marks: list[Mmr] = [Mmr()]
        self._listed: dict[bytes, tuple[int, ListedOrigin]] = {}
        self._complete: dict[Label, int] = {}
        self._started = False

    def take(self, leaf: bytes) -> ListedOrigin | None:
        """Return the origin of a copy, by the msg_id of the original, and forget it."""
        found = self._listed.pop(leaf, None)
        return None if found is None else found[1]

    def is_complete(self, label: Label, seq: int) -> bool:
        """Return whether all origins of an import stream up to an entry are listed."""
        return seq <= self._complete.get(label, 0)

    async def catch_up(self, view: QueryView) -> None:
        """Read the audit log to its end; each root is checked before the entry is opened."""
        if not self._started:
            self._resume(view)
        while entries := await self._reader.page(self.label, StreamSeq(self._mmr.size + 1), PAGE_ENTRIES):
            for entry in entries:
                self._mmr = extend(self._mmr, entry, None)
                self._read(view, entry)
                if self._mmr.size % MARK_ENTRIES == 0:
                    self._marks.append(self._mmr)

    def _resume(self, view: QueryView) -> None:
        if (kept := view.origin_log(self._name)) is not None:
            if kept.label != self.label:
                raise StateError("the view was made with another audit log", action="rebuild the view")
            self._mmr = Mmr(kept.size, kept.peaks)
            self._marks = [self._mmr]
        self._started = True

    def note(self, view: QueryView) -> None:
        """Store the entry to resume from.

        It is the last mark before the first listed origin whose copy was not read yet.
        """
        mark = self._mmr
        if self._listed:
            first = min(seq for seq, _ in self._listed.values())
            mark = [each for each in self._marks if each.size < first][-1]
        self._marks = [mark, *(each for each in self._marks if each.size > mark.size)]
        view.note_origin_log(OriginLog(name=self._name, label=self.label, size=mark.size, peaks=mark.peaks))

    def _read(self, view: QueryView, entry: Entry) -> None:
        found = audited(entry, self._keys, self._opener)
        if isinstance(found, ListedOrigin):
            self._list(view, entry.stream_seq, found)
        elif found is not None:
            for target in found.targets:
                known = self._complete.get(target.label, 0)
                self._complete[target.label] = max(known, target.to_seq)

    def _list(self, view: QueryView, at: int, listed: ListedOrigin) -> None:
        place = listed.place
        source = view.source(self._stream, place.hub_id, place.label, place.epoch)
        seq = place.receipt.stream_seq
        if seq <= source.size or seq in source.waiting:
            return  # its copy has a row already
        if len(self._listed) >= MAX_LISTED_ORIGINS:
            raise StateError(
                f"audit log {self.label.hex()} lists {MAX_LISTED_ORIGINS} origins whose copies stream "
                f"{self._stream} does not have",
                action="check that the view reads the stream that the bridge writes to",
            )
        self._listed[bytes(place.receipt.leaf_hash)] = at, listed
