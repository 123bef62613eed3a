"""The hub log at one moment: extensions that wait to be applied, on top of index and ``hublog/entries``.

Entries below ``applied`` are in the file and their inner nodes in the index; later ones are in the tail. What
is read from the file is compared with the nodes of the index, so that a damaged file is an error and not
a wrong answer.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Final

from veen_core.errors import DecodeError
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, StreamSeq
from veen_core.tlog.tiles import TILE_WIDTH
from veen_core.tlog.tree import leaf_hash, node_hash
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage.commit.changes import HubEntry, HubExtended
from veen_storage.commit.hub_log import LENGTH_BYTES
from veen_storage.disk.files import read_exactly
from veen_storage.disk.layout import HUB_LOG_ENTRIES, Layout
from veen_storage.errors import FSCK, RESTORE, DamageError, reading
from veen_storage.index import tables
from veen_storage.index.lmdb_index import View
from veen_storage.index.records import LabelNo

MAX_HEAD_BYTES: Final = 90
"""The most bytes that an entry of the hub log has with its length: a ``LabelHead`` has at most 88."""
_BY_LABEL: Final = attrgetter("label")

parse_checkpoint = lru_cache(maxsize=64)(parse_signed_head)
"""Parse a hub checkpoint; cached, because many readers ask for the same one."""


@dataclass(frozen=True, slots=True)
class FoundHead:
    """A label's head in the hub log: its place, and its bytes if it waits to be applied."""

    upto_seq: StreamSeq
    index: int
    offset: int
    data: bytes | None = None


class HubLogView:
    """The hub log as of one index transaction and the extensions that were in the tail before it began."""

    def __init__(self, layout: Layout, waiting: tuple[HubExtended, ...], view: View) -> None:
        self._path = layout.hub_log_entries
        self._waiting = waiting
        self._view = view
        cursor = tables.read_hub_log(view)
        self._applied, self._applied_bytes = cursor.size, cursor.entries_bytes
        self._last_leaf = cursor.tree.subtrees[-1] if cursor.size % 2 else None
        """Hash of the last applied entry, if it has no sibling yet and so no parent in the index."""

    @property
    def checkpoint(self) -> SignedHead | None:
        """The newest durable hub checkpoint; None before the first."""
        if self._waiting:
            newest = self._waiting[-1].signed
            if newest.head.size > self._applied:
                return newest
        note = tables.META.get(self._view, tables.HUB_CHECKPOINT)
        return parse_checkpoint(note) if note is not None else None

    @property
    def size(self) -> int:
        """Number of entries: the size of the newest hub checkpoint."""
        waiting = self._waiting[-1].signed.head.size if self._waiting else 0
        return max(self._applied, waiting)

    # --- nodes and entries

    def node(self, height: int, index: int) -> bytes:
        """Return the hash of a complete node; the caller checks that the tree has it."""
        if height == 0:
            return self._leaf(index)
        last = tables.last_leaf(height, index)
        if last < self._applied:
            return tables.HUB_NODES.require(self._view, (last, height))
        return self._entry_waiting(last).nodes[height]

    def nodes(self, height: int, start: int, end: int) -> list[bytes]:
        """Return the nodes ``start`` to ``end - 1`` of one height."""
        if height == 0:
            return [leaf_hash(data) for data in self.entries(start, end)]
        return [self.node(height, index) for index in range(start, end)]

    def _leaf(self, index: int) -> bytes:
        """Return a leaf; it is read with its sibling, so that both are checked against their parent."""
        start = index & ~1
        return leaf_hash(self.entries(start, index + 1)[-1])

    def _entry_waiting(self, index: int) -> HubEntry:
        for step in self._waiting:
            first = step.entries[0].index
            if first <= index < first + len(step.entries):
                return step.entries[index - first]
        raise DamageError("index/data.mdb", None, f"has no entry {index} of the hub log", FSCK)

    def entries(self, start: int, end: int) -> list[bytes]:
        """Return the entries ``start`` to ``end - 1`` of one bundle; ``start`` is even."""
        stored = min(end, self._applied)
        found = self._stored(start, stored) if start < stored else []
        return found + [self._entry_waiting(index).data for index in range(max(start, stored), end)]

    def _stored(self, start: int, end: int) -> list[bytes]:
        """Read entries from the file and check their hashes; ``start`` is even.

        An entry without its sibling cannot be checked, so one more is read if ``end`` is odd.
        """
        number, skipped = divmod(start, TILE_WIDTH)
        offset, checked = tables.HUB_BUNDLES.require(self._view, number), min(end + end % 2, self._applied)
        most = (checked - number * TILE_WIDTH) * MAX_HEAD_BYTES
        data = read_part(self._path, offset, min(offset + most, self._applied_bytes))
        places = list(_places(data, skipped, checked - start))
        if len(places) != checked - start:
            raise damaged(offset, f"does not have entries {start} to {checked - 1} in this bundle")
        found = [data[first:last] for first, last in places]
        self._check_hashes(start, found, offset + places[0][0] - LENGTH_BYTES)
        return found[: end - start]

    def _check_hashes(self, start: int, entries: list[bytes], offset: int) -> None:
        """Raise unless the complete nodes over these entries are those of the index."""
        for at, height, found in _complete_nodes(start, entries):
            if found != (self.node(height, at >> height) if height else self._last_leaf):
                raise damaged(offset, f"entries {at} to {at + (1 << height) - 1} do not have their hash")

    # --- heads

    def find(self, label: Label, stream_seq: StreamSeq | None, limit: int) -> FoundHead | None:
        """Find a label's newest head among the first ``limit`` entries, or the first that covers an entry."""
        number, waiting = tables.LABELS.get(self._view, label), self._waiting_heads(label)
        if stream_seq is None:
            newest = next((head for head in reversed(waiting) if head.index < limit), None)
            return newest or (self._newest_below(number, limit) if number is not None else None)
        rows = tables.HUB_HEADS.scan_label(self._view, number, stream_seq) if number is not None else iter(())
        stored = (FoundHead(upto, place.index, place.offset) for (_number, upto), place in islice(rows, 1))
        covering = chain(stored, (head for head in waiting if head.upto_seq >= stream_seq))
        first = next(covering, None)
        return first if first is not None and first.index < limit else None

    def _waiting_heads(self, label: Label) -> list[FoundHead]:
        """Return the label's heads in the tail; the entries of an extension are in order of labels."""
        found: list[FoundHead] = []
        for step in self._waiting:
            at = bisect_left(step.entries, label, key=_BY_LABEL)
            if at < len(step.entries) and (entry := step.entries[at]).label == label:
                found.append(FoundHead(entry.upto_seq, entry.index, entry.offset, entry.data))
        return found

    def _newest_below(self, number: LabelNo, limit: int) -> FoundHead | None:
        """Return the newest head with an index below ``limit``: a binary search, since both grow together."""
        found, low, high = None, 1, 2**64 - 1
        middle = high  # the newest head is the likely answer
        while low <= high:
            row = tables.HUB_HEADS.last_of_label(self._view, number, middle)
            if row is None:
                low = middle + 1
            elif row[1].index < limit:
                found, low = FoundHead(row[0][1], row[1].index, row[1].offset), middle + 1
            else:
                high = row[0][1] - 1
            middle = (low + high) // 2
        return found

    def head(self, label: Label, found: FoundHead) -> LabelHead:
        """Return the head that was found; raise if the file has another one at its offset."""
        data = found.data
        if data is None:
            end = min(found.offset + MAX_HEAD_BYTES, self._applied_bytes)
            part = read_part(self._path, found.offset, end)
            data = part[LENGTH_BYTES : LENGTH_BYTES + int.from_bytes(part[:LENGTH_BYTES], "big")]
        try:
            head = LabelHead.decode(data)
        except DecodeError as exc:
            raise damaged(found.offset, str(exc)) from exc
        if (head.label, head.upto_seq) != (label, found.upto_seq):
            what = f"entry {found.index} is not the head of label {label.hex()} at {found.upto_seq}"
            raise damaged(found.offset, what)
        return head


def _complete_nodes(start: int, entries: list[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield first leaf, height and hash of the largest complete nodes over consecutive entries."""
    at, rest = start, [leaf_hash(data) for data in entries]
    while rest:
        height = min(len(rest).bit_length() - 1, (at & -at).bit_length() - 1 if at else 64)
        level, rest = rest[: 1 << height], rest[1 << height :]
        while len(level) > 1:
            level = [node_hash(level[pair], level[pair + 1]) for pair in range(0, len(level), 2)]
        yield at, height, level[0]
        at += 1 << height


# --- the file


def damaged(offset: int, what: str) -> DamageError:
    return DamageError(HUB_LOG_ENTRIES, offset, what, FSCK)


def read_part(path: Path, start: int, end: int) -> bytes:
    """Read bytes ``start`` to ``end - 1`` of ``hublog/entries``; raise if the file is shorter."""
    try:
        with reading(HUB_LOG_ENTRIES, start):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = read_exactly(fd, end - start, start)
            finally:
                os.close(fd)
    except FileNotFoundError:
        raise DamageError(HUB_LOG_ENTRIES, None, "is missing", RESTORE) from None
    if len(data) < end - start:
        raise damaged(start + len(data), f"ends here, but the index includes its bytes up to {end}")
    return data


def _places(data: bytes, skipped: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of ``count`` entries in a part of the file, fewer if the part ends before."""
    at = 0
    for number in range(skipped + count):
        start = at + LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            return
        if number >= skipped:
            yield start, at


def read_entry(file: BinaryIO) -> bytes | None:
    """Return the next entry; None at the end of the file, or if the file ends within the entry."""
    length = file.read(LENGTH_BYTES)
    data = file.read(int.from_bytes(length, "big"))
    return data if len(length) == LENGTH_BYTES and len(data) == int.from_bytes(length, "big") else None
