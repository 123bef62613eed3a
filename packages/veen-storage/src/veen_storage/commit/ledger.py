"""The ledger: the state that appending needs, cached in memory over the index (core §3.4.1).

A ``Draft`` is the state of one batch that is being prepared. It copies each cursor that the batch changes and
decides the location of every entry. Nothing outside the draft changes until ``adopt``, which comes after the
journal's commit point. Recovery sends the journal's entries through the same draft.

Cursors that the applier has not yet written stay in memory; all others are a bounded cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from veen_core import stream
from veen_core.cap import ClaimsRef
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import CheckpointIndexEntry, ChunkSummary, peaks_name, rolls
from veen_core.entry import Entry
from veen_core.hub_identity import CheckpointBinding
from veen_core.hub_log import LabelHead
from veen_core.ids import AuthRef, ClientId, ClientSeq, EntryHash, Label, StreamSeq, UnixTime
from veen_core.mmr import Node
from veen_core.rate import Bucket
from veen_storage.commit.changes import (
    Anchor,
    Anchored,
    Changes,
    Checkpointed,
    HubExtended,
    Placed,
    Prune,
    Pruned,
    Sealed,
    note_moved,
)
from veen_storage.commit.cursor_cache import CursorCache
from veen_storage.disk.registry import Registry
from veen_storage.errors import AbsentError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import (
    CapRecord,
    ClientCursor,
    HubLogCursor,
    LabelCursor,
    LabelNo,
    Location,
    packed_head,
)
from veen_storage.index.tables import (
    BUCKETS,
    CAPS,
    CHECKPOINTS,
    CHUNKS,
    CLIENTS,
    HEADS,
    LABELS,
    Table,
    read_cursor,
)

K = TypeVar("K")
V = TypeVar("V")


class Ledger:
    """The current state of every label: cached cursors over the rows of the index."""

    def __init__(
        self,
        index: Index,
        registry: Registry,
        check_label: Callable[[LabelCursor], None] = lambda _cursor: None,
    ) -> None:
        """``check_label`` raises if a label must not be appended to (``chunks.chunk_origin_check``)."""
        self._index = index
        self._check_label = check_label
        self.registry = registry
        self.adopted = 0
        """Number of batches that became durable since the directory was opened."""
        self._labels: CursorCache[Label, LabelCursor] = CursorCache()
        self._clients: CursorCache[tuple[LabelNo, ClientId], ClientCursor] = CursorCache()
        self._caps: CursorCache[AuthRef | ClaimsRef, CapRecord] = CursorCache()
        self._buckets: CursorCache[tuple[ClaimsRef, LabelNo], Bucket] = CursorCache()
        self._checkpoints: CursorCache[tuple[LabelNo, StreamSeq], bool] = CursorCache()
        with index.reading() as view:
            self._next_label = tables.read_number(view, tables.NEXT_LABEL)
            self.hub_ts = UnixTime(tables.read_number(view, tables.HUB_TS))
            self.binding_bytes = tables.read_number(view, tables.BINDING_BYTES)
            self.hub_log = tables.read_hub_log(view)
            self.moved = {label for label, _empty in tables.HUB_MOVED.scan(view)}
            """Labels with entries since the last hub checkpoint."""

    def label(self, label: Label) -> LabelCursor | None:
        """Return the label's cursor, or None if the label has no entries."""
        if (cached := self._labels.get(label)) is not None:
            return cached
        with self._index.reading() as view:
            cursor = read_cursor(view, label)
        if cursor is None:
            return None
        self._check_label(cursor)
        self._labels.put(label, cursor, 0)
        return cursor

    def heads(self, labels: Iterable[Label]) -> dict[Label, tuple[LabelNo, LabelHead]]:
        """Return numbers and heads of many labels; nothing is cached, and no file is checked."""
        cached = {label: self._labels.get(label) for label in labels}
        found = {label: (held.number, held.head) for label, held in cached.items() if held is not None}
        with self._index.reading() as view:  # after the cache: a cursor that was evicted is in the index
            for label in cached.keys() - found.keys():
                number = LABELS.require(view, label)
                found[label] = (number, packed_head(HEADS.require(view, number)))
        return found

    def client(self, number: LabelNo, client: ClientId) -> ClientCursor | None:
        return self._cached(self._clients, CLIENTS, (number, client))

    def cap(self, ref: AuthRef | ClaimsRef) -> CapRecord | None:
        return self._cached(self._caps, CAPS, ref)

    def bucket(self, claims: ClaimsRef, number: LabelNo) -> Bucket | None:
        return self._cached(self._buckets, BUCKETS, (claims, number))

    def _cached(self, cache: CursorCache[K, V], table: Table[K, V], key: K) -> V | None:
        if (cached := cache.get(key)) is not None:
            return cached
        with self._index.reading() as view:
            stored = table.get(view, key)
        if stored is not None:
            cache.put(key, stored, 0)
        return stored

    def next_label(self, already_drafted: int) -> LabelNo:
        return LabelNo(self._next_label + already_drafted)

    def adopt(self, changes: Changes) -> None:
        """Take over the changes of a batch; call this only after the batch is durable."""
        self.adopted += 1
        self._next_label = max(self._next_label, *(number + 1 for number in changes.new_labels.values()), 0)
        self.hub_ts = changes.hub_ts
        self.binding_bytes = changes.binding_bytes
        for label, cursor in changes.heads.items():
            self._labels.put(label, cursor, changes.batch)
        for client, client_cursor in changes.clients.items():
            self._clients.put(client, client_cursor, changes.batch)
        for auth_ref, record in changes.caps.items():
            self._caps.put(auth_ref, record, changes.batch)
        for bucket, tokens in changes.buckets.items():
            self._buckets.put(bucket, tokens, changes.batch)
        if changes.hub_log is not None:
            self.hub_log = changes.hub_log
        note_moved(self.moved, changes.steps)
        for step in changes.steps:
            if isinstance(step, Checkpointed):
                self._checkpoints.put((step.number, step.checkpoint.upto_seq), True, changes.batch)

    def has_checkpoint(self, number: LabelNo, upto: StreamSeq) -> bool:
        """Return whether the label has a checkpoint at exactly ``upto``."""
        if self._checkpoints.get((number, upto)) is not None:
            return True
        with self._index.reading() as view:
            return CHECKPOINTS.get(view, (number, upto)) is not None

    def check_prune(self, decision: Prune) -> None:
        """Raise unless the decision names a sealed chunk that may be pruned."""
        with self._index.reading() as view:
            number, chunk = LABELS.get(view, decision.label), None
            if number is not None and not tables.is_control_label(view, number):
                chunk = CHUNKS.get(view, (number, decision.start_seq))
        if chunk is None or chunk.end != decision.end_seq:
            where = f"{decision.start_seq} to {decision.end_seq} of label {decision.label.hex()}"
            raise AbsentError(f"entries {where} cannot be pruned: they are not one sealed chunk")

    def shrink(self, applied: int) -> None:
        """Evict cursors that the index includes up to batch ``applied``, beyond the cache's size."""
        for cache in (self._labels, self._clients, self._caps, self._buckets, self._checkpoints):
            cache.shrink(applied)


class Draft:
    """The state of one batch that is being prepared: the ledger with this batch's changes on top."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.changes = Changes(hub_ts=ledger.hub_ts, binding_bytes=ledger.binding_bytes)
        self._reserved: dict[LabelNo, int] = {}
        """Entries of the growing chunk that have a location and are not signed yet, so not hashed."""
        self._caps: dict[AuthRef | ClaimsRef, CapRecord] = {}
        """Tokens read in this batch: each message looks its token up twice."""

    def label(self, label: Label) -> LabelCursor | None:
        """Return the cursor for reading; the caller must not change it."""
        return self.changes.heads.get(label) or self.ledger.label(label)

    def client(self, label: Label, client: ClientId) -> ClientCursor | None:
        cursor = self.label(label)
        if cursor is None:
            return None
        key = (cursor.number, client)
        return self.changes.clients.get(key) or self.ledger.client(*key)

    def cap(self, ref: AuthRef | ClaimsRef) -> CapRecord | None:
        """Return the record of one token, or of the claims that several tokens share."""
        if (known := self.changes.caps.get(ref) or self._caps.get(ref)) is not None:
            return known
        if (found := self.ledger.cap(ref)) is not None:
            self._caps[ref] = found
        return found

    def issued_at(self, record: CapRecord) -> UnixTime:
        """Return when the token's claims were first authorized or used, in any chain (core §6, H5)."""
        claims = record.claims_ref
        shared = self.cap(claims) if claims is not None else None
        return min(record.issued_at, shared.issued_at) if shared is not None else record.issued_at

    def bucket(self, auth_ref: AuthRef, label: Label) -> Bucket | None:
        """Return the rate bucket of the token's claims at this label (H8); None if they are unused there."""
        cursor, record = self.label(label), self.cap(auth_ref)
        claims = record.claims_ref if record is not None else None
        if cursor is None or claims is None:
            return None
        key = (claims, cursor.number)
        return self.changes.buckets.get(key) or self.ledger.bucket(*key)

    def has_checkpoint(self, label: Label, upto: StreamSeq) -> bool:
        cursor = self.label(label)
        if cursor is None or upto > cursor.checkpointed:
            return False
        made = ((s.number, s.checkpoint.upto_seq) for s in self.changes.steps if isinstance(s, Checkpointed))
        return (cursor.number, upto) in made or self.ledger.has_checkpoint(cursor.number, upto)

    def own(self, label: Label) -> LabelCursor:
        """Return a cursor that may be changed: this batch's copy, or the cursor of a new label."""
        if (cursor := self.changes.heads.get(label)) is not None:
            return cursor
        if (current := self.ledger.label(label)) is not None:
            cursor = current.copy()
        else:
            number = self.ledger.next_label(len(self.changes.new_labels))
            self.changes.new_labels[label] = number
            cursor = LabelCursor.fresh(label, number)
        self.changes.heads[label] = cursor
        return cursor

    def must_roll(self, cursor: LabelCursor, frame_size: int) -> bool:
        entries = cursor.hashes.size + self._reserved.get(cursor.number, 0)
        return rolls(cursor.chunk_bytes, entries, frame_size, self.ledger.registry.limits)

    def seal_chunk(self, cursor: LabelCursor) -> None:
        """End the growing chunk; the next entry starts a new one (core §4.8.2)."""
        summary = ChunkSummary(
            label=cursor.label,
            start_seq=cursor.chunk_start,
            end_seq=cursor.log.stream_seq,
            mmr_root_end=cursor.log.root,
            entry_count=cursor.hashes.size,
            total_bytes=cursor.chunk_bytes,
            entry_hashes_root=cursor.hashes.root,
        )
        epoch = stream.epoch_at(cursor.hub_ts, self.ledger.registry.profile.epoch_sec)
        self.changes.steps.append(Sealed(cursor.number, summary, epoch, cursor.hub_ts))
        cursor.chunk_start = StreamSeq(cursor.log.size + 1)
        cursor.chunk_bytes = 0
        cursor.hashes = type(cursor.hashes)()

    def place(
        self, cursor: LabelCursor, entry: Entry, frame: bytes, nodes: list[Node], digest: EntryHash
    ) -> None:
        """Append an entry, whose leaf is already in ``cursor.log``, to the growing chunk."""
        location = self.reserve(cursor, len(frame))
        self.fill(cursor, Placed(cursor.number, entry, frame, location, cursor.hub_ts, nodes), digest)

    def reserve(self, cursor: LabelCursor, frame_size: int) -> Location:
        """Reserve a location in the growing chunk for an entry whose leaf is already in ``cursor.log``."""
        location = Location(cursor.chunk_start, cursor.chunk_bytes, frame_size)
        cursor.chunk_bytes += frame_size
        self._reserved[cursor.number] = self._reserved.get(cursor.number, 0) + 1
        return location

    def fill(self, cursor: LabelCursor, placed: Placed, digest: EntryHash) -> None:
        """Add an entry at its reserved location, in the order of reservations."""
        self.changes.steps.append(placed)
        cursor.hashes.add(digest)
        self._reserved[cursor.number] -= 1
        self.changes.hub_ts = max(self.changes.hub_ts, placed.hub_ts)

    def note_client(self, cursor: LabelCursor, client: ClientId, client_seq: ClientSeq) -> None:
        key = (cursor.number, client)
        before = self.changes.clients.get(key) or self.ledger.client(*key)
        first_seen = before.first_seen if before is not None else cursor.hub_ts
        self.changes.clients[key] = ClientCursor(client_seq, first_seen)

    def note_use(self, cursor: LabelCursor, auth_ref: AuthRef) -> None:
        """Record one use of a token: the first sets issued_at (core §6), each takes from the bucket (H8)."""
        record = self.cap(auth_ref)
        if record is None:
            self.changes.caps[auth_ref] = CapRecord(cursor.hub_ts, StreamSeq(0), b"")
            return
        token, claims = record.token, record.claims_ref
        if token is None or claims is None or (rate := token.allow.rate) is None:
            return
        bucket = self.bucket(auth_ref, cursor.label) or Bucket.full(rate, cursor.hub_ts)
        self.changes.buckets[claims, cursor.number] = bucket.at(rate, cursor.hub_ts).take()

    def note_token(self, auth_ref: AuthRef, token_bytes: bytes, control: LabelCursor) -> None:
        """Record a token that was authorized on the control label: its receipt's hub_ts is issued_at (H5).

        If a MSG used the token before, that MSG has set issued_at (core §6), which does not change.
        """
        seen = self.cap(auth_ref)
        issued_at = seen.issued_at if seen is not None else control.hub_ts
        self.changes.caps[auth_ref] = CapRecord(issued_at, control.log.stream_seq, token_bytes)
        self.note_claims(self.changes.caps[auth_ref])
        self.changes.controls.add(control.number)

    def note_claims(self, record: CapRecord) -> None:
        """Lower the issued_at of the token's claims to this record's, if it is earlier."""
        claims = record.claims_ref
        if claims is None:
            return
        shared = self.cap(claims)
        if shared is None or record.issued_at < shared.issued_at:
            self.changes.caps[claims] = CapRecord(record.issued_at, StreamSeq(0), b"")

    @property
    def hub_log(self) -> HubLogCursor:
        return self.changes.hub_log or self.ledger.hub_log

    def moved(self) -> list[tuple[LabelNo, LabelHead]]:
        """Return the labels with entries since the last hub checkpoint, in order of labels."""
        moved, own = set(self.ledger.moved), self.changes.heads
        note_moved(moved, self.changes.steps)
        found = self.ledger.heads(moved - own.keys())
        found |= {label: (own[label].number, own[label].head) for label in moved & own.keys()}
        return [found[label] for label in sorted(moved)]

    def note_hub_extension(self, step: HubExtended, after: HubLogCursor) -> None:
        self.changes.steps.append(step)
        self.changes.hub_log = after

    def note_anchor(self, anchor: Anchor) -> None:
        self.changes.steps.append(Anchored(self.own(anchor.label).number, anchor))

    def note_prune(self, decision: Prune) -> None:
        self.changes.steps.append(Pruned(self.own(decision.label).number, decision))

    def note_checkpoint(
        self, cursor: LabelCursor, checkpoint: Checkpoint, binding: CheckpointBinding
    ) -> None:
        """Record a checkpoint up to the label's last entry."""
        upto = checkpoint.upto_seq
        line = CheckpointIndexEntry(
            upto_seq=upto,
            mmr_root=checkpoint.mmr_root,
            chunk_start=cursor.chunk_start,
            chunk_end=upto,
            peaks_ref=peaks_name(cursor.label, upto),
        )
        self.changes.steps.append(
            Checkpointed(
                cursor.number,
                checkpoint,
                upto - cursor.checkpointed,
                cursor.log.peaks,
                line,
                cursor.index_bytes,
                binding,
                self.changes.binding_bytes,
            )
        )
        cursor.checkpointed = upto
        cursor.index_bytes += len(line.encode())
        self.changes.binding_bytes += len(binding.encode())
