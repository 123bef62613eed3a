"""Whose a chunk file is: this hub's, if a receipt in it carries the hub's signature (§8.4).

Files are mixed in whole, so one entry tells. Its root alone would not: of the same messages in the same order
two hubs make the same roots, and only the receipts differ. Each file is judged when it is first read, and the
chunk that grows before a label is first added to, so that nothing of another hub is shown or extended.
Opening judges the growing chunks of as many labels as it has time for (``opening``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veen_core import hub_identity
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry
from veen_core.errors import SignatureError
from veen_core.hub_identity import HubIdentity
from veen_core.receipt import Receipt
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.disk.identity_artifacts import read_artifacts
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, MismatchError, unreadable
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import LabelCursor, LabelNo, Location
from veen_storage.index.tables import ENTRIES

MOST_FILES: Final = 16_384
"""So many names are remembered, about 4 MB; with one more, all are forgotten and judged anew."""
MOVE_OUT: Final = (
    "another hub's files were mixed in; move it out and restore this hub's own from a clone: "
    "`veen hub fsck` names every such file"
)


class OriginCheck:
    """Judges the chunk files of one open data directory, each once. ``judge`` from any thread."""

    def __init__(self, layout: Layout, identity: HubIdentity, index: Index) -> None:
        self._layout = layout
        self._identity = identity
        self._index = index
        self._files: set[str] = set()
        """Names of files of which something was read."""
        self._labels = bytearray()
        """By number: 1 if the label's growing chunk was judged. From then on only this process adds to it."""

    def judge(self, name: str, read: Sequence[Entry | PrunedEntry]) -> None:
        """Raise unless what was read of a file is this hub's; nothing to do after the first time."""
        if name in self._files:
            return
        self._check_signed(name, read[-1].receipt)
        if len(self._files) >= MOST_FILES:
            self._files.clear()
        self._files.add(name)

    def judge_newest(self, cursor: LabelCursor) -> None:
        """Raise unless the label's last entry is where the index says, with its root (I3), and this hub's."""
        if not self._is_judged(cursor.number):
            with self._index.reading() as view:
                location = ENTRIES.require(view, (cursor.number, cursor.log.stream_seq))
            self._check_newest(cursor, location)
            self._labels[cursor.number] = 1

    def _is_judged(self, number: LabelNo) -> bool:
        if number >= len(self._labels):
            self._labels.extend(bytes(number + 1 - len(self._labels)))
        return bool(self._labels[number])

    def _check_newest(self, cursor: LabelCursor, place: Location) -> None:
        path = self._layout.chunk(cursor.label, place.chunk_start, None)
        try:
            with ChunkFile(path, compressed=False) as chunk:
                (entry,) = chunk.entries(place.offset, place.size)
        except FileNotFoundError:
            raise DamageError(path.name, None, "is missing", "restore it from a clone") from None
        except OSError as exc:
            raise unreadable(path.name, exc) from exc
        self._check_signed(path.name, entry.receipt)
        if entry.label != cursor.label or entry.receipt.mmr_root != cursor.log.root:
            what = f"does not hold the entry {cursor.log.size} that the index knows"
            raise DamageError(path.name, place.offset, what)

    def _check_signed(self, name: str, receipt: Receipt) -> None:
        try:
            hub_identity.verify_receipt(self._identity, receipt)
        except SignatureError:
            self._check_signed_since(name, receipt)

    def _check_signed_since(self, name: str, receipt: Receipt) -> None:
        """By a key that the hub got after this began to read beside it."""
        self._identity = read_artifacts(self._layout, self._identity.hub_id).identity
        try:
            hub_identity.verify_receipt(self._identity, receipt)
        except SignatureError as exc:
            raise MismatchError(f"{name}: {exc}: {MOVE_OUT}") from None
