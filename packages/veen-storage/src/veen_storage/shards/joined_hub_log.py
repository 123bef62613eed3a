"""The hub log of a sharded hub: one tree over the heads of all parts' labels (RESOLUTIONS P1).

Each part keeps a hub log of its own, under a name of its own, that no client ever sees. Its entries are
the heads that wait to be joined. One process extends the joined hub log:

1. the entries are appended to ``hublog/entries`` and synced;
2. one synced transaction of the index records the entries, their tree, the signed hub checkpoint, and how far
   each part's own hub log was read: **the commit point**;
3. ``hublog/checkpoint`` is replaced.

Opening removes the entries of an extension that did not reach step 2, and repeats step 3. The files are those
of a hub with one shard, byte for byte. The index knows every label of the hub, under numbers of its own, and
no entries.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import HeadTable, LabelHead, verify_hub_checkpoint
from veen_core.ids import Label, UnixTime
from veen_core.tlog.tiles import ENTRIES, TILE_WIDTH, Tile, decode_bundle, encode_bundle
from veen_core.tlog.tree import Tree
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_signed_head
from veen_storage.commit.changes import HubEntry, HubExtended, HubExtension
from veen_storage.commit.hub_log import index_extension, lay_out
from veen_storage.commit.tail import Tail
from veen_storage.copies.consistent_prefix import HubLogCut
from veen_storage.disk.files import Files, read_exactly
from veen_storage.disk.layout import HUB_LOG_CHECKPOINT, HUB_LOG_ENTRIES, Layout
from veen_storage.errors import (
    REPAIR,
    RESTORE,
    DamageError,
    MismatchError,
    PoisonedError,
    StorageError,
    read_file,
)
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import HubLogCursor, LabelNo
from veen_storage.opening.hub_log_start import check_checkpoints
from veen_storage.read.hub_log import StoredHubLog
from veen_storage.read.hub_log_view import read_entry
from veen_storage.shards.joined_rounds import KeptRound, Round, drop_rounds, put_round, rounds_after

REBUILD_ENTRIES: Final = 4_096
"""Entries that are written to a new index in one transaction."""
_PLACE: Final = struct.Struct(">Q32s")


class HeadSigner(Protocol):
    """Signs a head of the joined hub log; ``Store.sign_hub_log_head`` is the real one."""

    def __call__(self, head: TreeHead, now: UnixTime) -> SignedHead: ...


@dataclass(frozen=True, slots=True)
class JoinedUpTo:
    """How far a part's own hub log was joined: its size and root then."""

    size: int
    root: bytes


class JoinedHubLog:
    """The open joined hub log. ``extend`` and ``publish`` are called from one thread; ``reader`` from any."""

    def __init__(self, layout: Layout, identity: HubIdentity, files: Files | None = None) -> None:
        self._layout = layout
        self._files = files or Files()
        self._failed = False
        """Whether a commit failed: the disk may be ahead of memory then, until the log is opened again."""
        self.keep_rounds_sec = 0
        """How long the rounds are kept, for replicas; 0 keeps none."""
        self._index = Index(layout.index)
        try:
            self._open(identity)
        except BaseException:
            self._index.close()
            raise

    def _open(self, identity: HubIdentity) -> None:
        with self._index.reading() as view:
            hub, self._cursor = tables.META.get(view, tables.HUB_ID), tables.read_hub_log(view)
            note = tables.META.get(view, tables.HUB_CHECKPOINT)
            self._next_number = tables.read_number(view, tables.NEXT_LABEL)
            self.hub_ts = UnixTime(tables.read_number(view, tables.HUB_TS))
            """The newest time of a head in the log."""
        if hub != identity.hub_id:
            raise MismatchError("joined/index belongs to another hub, or is empty", action=REPAIR)
        self._cut_entries()
        if note is not None and not _has(self._layout, note):
            self._files.replace(self._layout.hub_log_checkpoint, note)
        self.reader = StoredHubLog(self._layout, self._index, Tail())
        check_checkpoints(self._layout, identity, self._index, self.reader)

    def _cut_entries(self) -> None:
        """Remove the entries after the last committed one: a crash left them, and no client has seen them."""
        path, expected = self._layout.hub_log_entries, self._cursor.entries_bytes
        length = path.stat().st_size if path.exists() else 0
        if length < expected:
            what = f"ends here, but the index includes its bytes up to {expected}"
            raise DamageError(HUB_LOG_ENTRIES, length, what, RESTORE)
        if length > expected:
            fd = self._files.open_append(path)
            try:
                self._files.truncate(fd, expected)
                self._files.sync(fd)
            finally:
                os.close(fd)

    # --- reading

    def joined_upto(self, part: str) -> JoinedUpTo | None:
        """Return how far a part's own hub log was joined; None before the first time."""
        with self._index.reading() as view:
            row = tables.META.get(view, _part_key(part))
        return JoinedUpTo(*_PLACE.unpack(row)) if row is not None else None

    def newest_seq(self, label: Label) -> int:
        """Return the last entry of a label that the log covers; 0 for a label without a head."""
        with self._index.reading() as view:
            number = tables.LABELS.get(view, label)
            row = tables.HUB_HEADS.last_of_label(view, number) if number is not None else None
        return row[0][1] if row is not None else 0

    # --- rounds

    @property
    def size(self) -> int:
        """Size of the log at its last commit."""
        return self._cursor.size

    def cut(self) -> HubLogCut | None:
        """Return the log up to its newest hub checkpoint, for a copy; None if it is empty."""
        newest = self.reader.checkpoint
        if newest is None:
            return None
        return HubLogCut(self._cursor.size, self._cursor.entries_bytes, newest.encode())

    def rounds_after(self, size: int) -> list[Round]:
        """Return the rounds that are kept and whose size is greater, in order."""
        with self._index.reading() as view:
            return [kept.round for kept in rounds_after(view, size)]

    def round_extension(self, size: int) -> bytes | None:
        """Return the extension that made the log this long, as a journal item; None if it is not kept."""
        with self._index.reading() as view:
            kept = next(rounds_after(view, size - 1), None)
        if kept is None or kept.round.size != size:
            return None
        with self._layout.hub_log_entries.open("rb") as file:
            bundle = read_exactly(file.fileno(), kept.end - kept.start, kept.start)
        return HubExtension(entries=bundle, checkpoint=kept.checkpoint).encode()

    # --- writing

    def extend(
        self,
        heads: Sequence[LabelHead],
        origin: str,
        sign: HeadSigner,
        now: UnixTime,
        parts: Mapping[str, JoinedUpTo],
        *,
        batches: Mapping[int, int] | None = None,
    ) -> SignedHead | None:
        """Append heads in order of labels, sign the tree, and make both durable; None if there are none.

        ``parts`` says how far the parts' own hub logs were read, and ``batches`` how far their journals. The
        hub checkpoint must not leave before this has returned.
        """
        if self._failed:
            raise PoisonedError("a write to the joined hub log failed; start the hub again")
        if not heads:
            if parts:
                self._commit(lambda txn: _put_parts(txn, parts))
            return None
        numbers = self._numbers(heads)
        after, entries = lay_out(self._cursor, [(numbers[head.label], head) for head in heads])
        signed = sign(TreeHead(origin, after.size, after.tree.root), now)
        step = HubExtended(entries, encode_bundle(entry.data for entry in entries), signed)
        self._failed = True  # until the commit has succeeded
        self._append(step.bundle)
        newest = max(self.hub_ts, *(head.hub_ts for head in heads))

        def write(txn: Transaction) -> None:
            _index(txn, step, after, newest)
            _put_parts(txn, parts)
            if batches is not None and self.keep_rounds_sec:
                place = Round(self._cursor.size, after.size, batches)
                span = (self._cursor.entries_bytes, after.entries_bytes)
                put_round(txn, KeptRound(place, *span, now, signed.encode()))
                drop_rounds(txn, now - self.keep_rounds_sec)

        self._commit(write)
        self._cursor, self.hub_ts = after, newest
        self._next_number = max(self._next_number, max(numbers.values()) + 1)
        self._files.replace(self._layout.hub_log_checkpoint, signed.encode())
        return signed

    def _commit(self, write: Callable[[Transaction], None]) -> None:
        """Run the transaction that is the commit point; after a failure nothing is known to be committed."""
        self._failed = True
        self._index.write(write)
        self._failed = False

    def _numbers(self, heads: Sequence[LabelHead]) -> dict[Label, LabelNo]:
        """Return the number of each label; a new label gets the next one."""
        numbers: dict[Label, LabelNo] = {}
        following = self._next_number
        with self._index.reading() as view:
            for head in heads:
                if (number := tables.LABELS.get(view, head.label)) is None:
                    number, following = LabelNo(following), following + 1
                numbers[head.label] = number
        return numbers

    def _append(self, bundle: bytes) -> None:
        is_new = not self._layout.hub_log_entries.exists()
        fd = self._files.open_append(self._layout.hub_log_entries)
        try:
            self._files.write(fd, bundle, self._cursor.entries_bytes)
            self._files.sync(fd)
        finally:
            os.close(fd)
        if is_new:
            self._files.sync_directory(self._layout.hub_log)

    def publish(self, signed: SignedHead) -> None:
        """Make a hub checkpoint with its cosignatures the one that is served; durable when this returns."""
        self.reader.check_publishable(signed)
        self._files.replace(self._layout.hub_log_published, signed.encode())
        self.reader.set_published(signed)

    def close(self) -> None:
        self._index.close()


def heads_from(reader: StoredHubLog, start: int, end: int) -> Iterator[LabelHead]:
    """Yield the entries ``start`` to ``end - 1`` of a part's own hub log."""
    at = start
    while at < end:
        number, skipped = divmod(at, TILE_WIDTH)
        width = min(TILE_WIDTH, end - number * TILE_WIDTH)
        entries = decode_bundle(reader.bundle(Tile(ENTRIES, number, width)))
        yield from map(LabelHead.decode, entries[skipped:])
        at = number * TILE_WIDTH + width


def create_joined(layout: Layout, identity: HubIdentity, files: Files) -> None:
    """Build the index of a joined hub log from its files, which are missing in a new one."""
    files.make_directories(layout.root)
    files.make_directory(layout.hub_log)
    shutil.rmtree(layout.index, ignore_errors=True)
    files.make_directory(layout.index)
    index = Index(layout.index)
    try:
        _rebuild(layout, identity, index)
    finally:
        index.close()
    for folder in (layout.index, layout.hub_log, layout.root):
        files.sync_directory(folder)


def read_entries(layout: Layout) -> Iterator[tuple[bytes, LabelHead]]:
    """Yield the entries of ``hublog/entries``, each as it is and decoded; raise where one is damaged."""
    offset, table = 0, HeadTable()
    try:
        file = layout.hub_log_entries.open("rb")
    except FileNotFoundError:
        return
    with file:
        while (data := read_entry(file)) is not None:
            try:
                head = LabelHead.decode(data)
                table.add(head)
            except VeenError as exc:
                raise DamageError(HUB_LOG_ENTRIES, offset, str(exc), RESTORE) from exc
            yield data, head
            offset = file.tell()
    if offset != layout.hub_log_entries.stat().st_size:
        raise DamageError(HUB_LOG_ENTRIES, offset, "ends within an entry", RESTORE)


def _rebuild(layout: Layout, identity: HubIdentity, index: Index) -> None:
    signed = _read_checkpoint(layout, identity)
    size = signed.head.size if signed is not None else 0
    cursor, waiting, numbers, newest = HubLogCursor(Tree(), 0), list[HubEntry](), dict[Label, LabelNo](), 0

    def flush() -> None:
        if waiting:
            assert signed is not None
            step, at, ts = HubExtended(tuple(waiting), b"", signed), cursor, UnixTime(newest)
            index.write(lambda txn: _index(txn, step, at, ts))
            waiting.clear()

    for _data, head in read_entries(layout):
        if cursor.size == size:
            break
        number = numbers.setdefault(head.label, LabelNo(len(numbers)))
        cursor, (entry,) = lay_out(cursor, [(number, head)])
        waiting.append(entry)
        newest = max(newest, head.hub_ts)
        if len(waiting) >= REBUILD_ENTRIES:
            flush()
    flush()
    if signed is not None and (cursor.size, cursor.tree.root) != (size, signed.head.root):
        what = f"has {cursor.size} entries with another root than the hub checkpoint at size {size}"
        raise DamageError(HUB_LOG_ENTRIES, None, what, RESTORE)
    index.write(lambda txn: tables.mark_index(txn, identity.hub_id))


def _read_checkpoint(layout: Layout, identity: HubIdentity) -> SignedHead | None:
    if not layout.hub_log_checkpoint.exists():
        if layout.hub_log_entries.exists() and layout.hub_log_entries.stat().st_size:
            raise DamageError(HUB_LOG_CHECKPOINT, None, "is missing", RESTORE)
        return None
    try:
        signed = parse_signed_head(read_file(layout.hub_log_checkpoint, name=HUB_LOG_CHECKPOINT))
        verify_hub_checkpoint(identity, signed, origin=signed.head.origin)
    except StorageError:
        raise
    except VeenError as exc:
        raise DamageError(HUB_LOG_CHECKPOINT, None, str(exc), RESTORE) from exc
    return signed


def _has(layout: Layout, note: bytes) -> bool:
    return layout.hub_log_checkpoint.exists() and layout.hub_log_checkpoint.read_bytes() == note


def _index(txn: Transaction, step: HubExtended, after: HubLogCursor, newest: UnixTime) -> None:
    """Write the rows of an extension, of its labels, and of the tree after it."""
    index_extension(txn, step)
    following = tables.META.get(txn, tables.NEXT_LABEL)
    number = int.from_bytes(following, "big") if following is not None else 0
    for entry in step.entries:
        tables.LABELS.put_if_absent(txn, entry.label, entry.number)
        number = max(number, entry.number + 1)
    tables.write_number(txn, tables.NEXT_LABEL, number)
    tables.write_number(txn, tables.HUB_TS, newest)
    tables.META.put(txn, tables.HUB_LOG, after.pack())


def _part_key(part: str) -> bytes:
    return b"joined/" + part.encode()


def _put_parts(txn: Transaction, parts: Mapping[str, JoinedUpTo]) -> None:
    for part, upto in parts.items():
        tables.META.put(txn, _part_key(part), _PLACE.pack(upto.size, upto.root))
