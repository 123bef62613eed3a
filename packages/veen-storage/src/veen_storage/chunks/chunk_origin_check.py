"""The check that this hub signed a chunk file, made when the file is first used (core §8.4).

Files of two hubs can only be mixed up file by file, so one receipt per file is enough. The MMR root is not
enough: two hubs that accepted the same messages in the same order have the same roots, but different
receipts. A file is checked when it is first read, and a growing chunk before its label is first appended to,
so that no entry of another hub is shown or extended. Opening checks the growing chunks of a fixed number of
labels (``opening.open_checks``).
"""

from __future__ import annotations

from typing import Final

from veen_core import hub_identity
from veen_core.errors import SignatureError
from veen_core.hub_identity import HubIdentity
from veen_core.receipt import Receipt
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.disk.identity_artifacts import read_artifacts
from veen_storage.disk.layout import Layout
from veen_storage.errors import RESTORE, DamageError, MismatchError, unreadable
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import LabelCursor, LabelNo, Location
from veen_storage.index.tables import ENTRIES

MAX_CHECKED_FILES: Final = 16_384
"""File names that are cached, about 4 MB; beyond that the cache is emptied and files are checked again."""
MOVE_OUT: Final = (
    "move the file out and restore this hub's own from a clone; `veen hub fsck` names every such file"
)


class OriginCheck:
    """Checks each chunk file of one open data directory once. Call ``check_read`` from any thread."""

    def __init__(self, layout: Layout, identity: HubIdentity, index: Index) -> None:
        self._layout = layout
        self._identity = identity
        self._index = index
        self._files: set[str] = set()
        """Names of the files that were checked."""
        self._labels = bytearray()
        """By label number: 1 if its growing chunk was checked. Later only this process appends to it."""

    def is_checked(self, name: str) -> bool:
        """Return whether the file was checked already."""
        return name in self._files

    def check_read(self, name: str, newest: Receipt) -> None:
        """Raise unless this hub signed the newest receipt read from a file; later calls for it do nothing."""
        if name in self._files:
            return
        self._check_signed(name, newest)
        if len(self._files) >= MAX_CHECKED_FILES:
            self._files.clear()
        self._files.add(name)

    def check_newest(self, cursor: LabelCursor) -> None:
        """Raise unless the label's last entry is at its location, with its root, and this hub signed it."""
        if not self._is_checked(cursor.number):
            with self._index.reading() as view:
                location = ENTRIES.require(view, (cursor.number, cursor.log.stream_seq))
            self._check_newest(cursor, location)
            self._labels[cursor.number] = 1

    def _is_checked(self, number: LabelNo) -> bool:
        if number >= len(self._labels):
            self._labels.extend(bytes(number + 1 - len(self._labels)))
        return bool(self._labels[number])

    def _check_newest(self, cursor: LabelCursor, location: Location) -> None:
        path = self._layout.chunk(cursor.label, location.chunk_start, None)
        try:
            with ChunkFile(path, compressed=False) as chunk:
                (entry,) = chunk.entries(location.offset, location.size)
        except FileNotFoundError:
            raise DamageError(path.name, None, "is missing", RESTORE) from None
        except OSError as exc:
            raise unreadable(path.name, exc) from exc
        self._check_signed(path.name, entry.receipt)
        if entry.label != cursor.label or entry.receipt.mmr_root != cursor.log.root:
            what = f"does not contain entry {cursor.log.size}, which is in the index"
            raise DamageError(path.name, location.offset, what)

    def _check_signed(self, name: str, receipt: Receipt) -> None:
        try:
            hub_identity.verify_receipt(self._identity, receipt)
        except SignatureError:
            self._check_signed_by_new_key(name, receipt)

    def _check_signed_by_new_key(self, name: str, receipt: Receipt) -> None:
        """Check again with the identity on disk: the hub may have rotated its key since it was read."""
        self._identity = read_artifacts(self._layout, self._identity.hub_id).identity
        try:
            hub_identity.verify_receipt(self._identity, receipt)
        except SignatureError as exc:
            raise MismatchError(
                f"{name}: {exc}: another hub's files were mixed in", action=MOVE_OUT
            ) from None
