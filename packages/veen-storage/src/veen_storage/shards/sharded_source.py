"""A sharded hub as the source of a clone, a fork or an export; the hub may run meanwhile.

The order makes what is read complete:

1. the newest hub checkpoint of the joined hub log is read; later ones are ignored;
2. the parts are opened, and each applies what was durable then. So every label reaches its head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final

from veen_core.ids import Label, Signature
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage.commit.tail import Tail
from veen_storage.copies.consistent_prefix import Cut, HubLogCut, take_cut
from veen_storage.copies.hub_source import HubSource
from veen_storage.disk.identity_artifacts import Artifacts
from veen_storage.disk.layout import Layout
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index
from veen_storage.opening.observer import Source, open_source
from veen_storage.read.hub_log import StoredHubLog
from veen_storage.shards.sharded_layout import (
    CONTROL,
    ShardedLayout,
    control_label_of,
    is_sharded,
    owner_of,
    part_numbers,
    read_shard_map,
)

PAGE_LABELS: Final = 1_000


class JoinedPrefix(StoredHubLog):
    """The joined hub log up to the hub checkpoint that was the newest when this object was made."""

    def __init__(self, layout: Layout, index: Index) -> None:
        super().__init__(layout, index, Tail())  # reads the published hub checkpoint, which is not newer
        with index.reading() as view:
            cursor, note = tables.read_hub_log(view), tables.META.get(view, tables.HUB_CHECKPOINT)
        self.cut = HubLogCut(cursor.size, cursor.entries_bytes, note) if note is not None else None
        self._newest = parse_signed_head(note) if note is not None else None

    @property
    def checkpoint(self) -> SignedHead | None:
        return self._newest

    @property
    def size(self) -> int:
        return self.cut.size if self.cut is not None else 0


class PartSource:
    """A part of a sharded hub, with the hub log of the whole hub."""

    def __init__(self, part: Source, hub_log: StoredHubLog) -> None:
        self._part = part
        self.layout = part.layout
        self.registry = part.registry
        self.identity = part.identity
        self.read = part.read
        self.attachments = part.attachments
        self.hub_log = hub_log

    @property
    def index(self) -> Index:
        return self._part.index

    def artifacts(self) -> Artifacts:
        return self._part.artifacts()

    def sign(self, digest: bytes) -> Signature | None:
        return self._part.sign(digest)


class ShardedSource(HubSource):
    """The parts of a sharded hub by number, and its joined hub log."""

    def __init__(self, parts: Mapping[int, Source], joined: JoinedPrefix) -> None:
        self.parts = {number: PartSource(part, joined) for number, part in parts.items()}
        super().__init__(self.parts[CONTROL])
        self._joined = joined
        self._control_label = control_label_of(self.main.registry.hub_id)

    def of(self, label: Label) -> Source:
        return self.parts[self._owner(label)]

    def _owner(self, label: Label) -> int:
        return CONTROL if label == self._control_label else owner_of(label, len(self.parts) - 1)

    def cut(self) -> Cut:
        found = {number: self.cut_of(number) for number in sorted(self.parts, reverse=True)}
        labels = (each for cut in found.values() for each in cut.labels)
        return Cut(tuple(sorted(labels, key=lambda each: each.label)), 0, self._joined.cut)

    def cut_of(self, number: int) -> Cut:
        """Return the end of every label that a part owns."""
        cut = take_cut(self.parts[number].index)
        labels = tuple(each for each in cut.labels if self._owner(each.label) == number)
        return Cut(labels, cut.binding_bytes, None, cut.batch)

    def labels(self, after: Label | None = None) -> list[Label]:
        pages = (self._labels_of(number, after) for number in self.parts)
        return list(islice(merge(*pages), PAGE_LABELS))

    def _labels_of(self, number: int, after: Label | None) -> Iterator[Label]:
        page = self.parts[number].read.labels(after)
        while page:
            yield from (label for label in page if self._owner(label) == number)
            page = self.parts[number].read.labels(page[-1])


@contextmanager
def open_sharded(root: Path, keys_directory: Path | None = None) -> Iterator[ShardedSource]:
    """Open a sharded hub for reading, whether it runs or not."""
    layout = ShardedLayout(root)
    count = read_shard_map(layout).count
    keys = keys_directory or layout.keys
    with ExitStack() as opened:
        index = Index(layout.joined.index, observing=True)
        opened.callback(index.close)
        joined = JoinedPrefix(layout.joined, index)
        parts = {
            number: opened.enter_context(open_source(layout.part(number).root, keys, part=True))
            for number in part_numbers(count)
        }
        yield ShardedSource(parts, joined)


@contextmanager
def open_hub(root: Path, keys_directory: Path | None = None) -> Iterator[HubSource]:
    """Open a hub for reading, whether it runs or not, and however many shards it has."""
    if is_sharded(root):
        with open_sharded(root, keys_directory) as hub:
            yield hub
        return
    with open_source(root, keys_directory) as store:
        yield HubSource(store)
