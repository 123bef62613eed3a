"""``Store``: an open data directory, to append to and to read from. ``opening.creation`` creates one.

One process at a time has a directory open, with one writer thread and any number of reader threads; other
processes may read next to it (``opening.observer``). The time to open is bounded by the size of the journal,
not by the length of the log: the index knows how long each file was at its last transaction, and only later
batches of the journal are applied.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from veen_core.cap import CapToken
from veen_core.errors import DecodeError
from veen_core.handover import Handover
from veen_core.ids import Label, Signature, UnixTime
from veen_core.keys import SigningKey
from veen_core.limits import Limits
from veen_core.profile import Profile
from veen_core.tlog.tree import EMPTY_ROOT
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_storage.chunks import retention
from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.commit.applier import NOTHING_TO_FINISH, Applier
from veen_storage.commit.apply_queue import ApplyQueue
from veen_storage.commit.changes import Changes, Prune, Pruned
from veen_storage.commit.journal import Journal, JournalBatch
from veen_storage.commit.journal_format import PRUNE
from veen_storage.commit.kept_segments import JournalKeeping, KeptSegments
from veen_storage.commit.ledger import Ledger
from veen_storage.commit.recovery import Recovery
from veen_storage.commit.replicated_batch import RefusedBatchError, ReplicatedBatch
from veen_storage.commit.tail import Tail
from veen_storage.commit.writer import Batch, BatchSigner, PreviousLabel
from veen_storage.disk import hub_keys
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.hub_keys import HubKeys, SignMany
from veen_storage.disk.identity_artifacts import Artifacts
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import check_limits, check_profile, read_registry
from veen_storage.errors import (
    FSCK,
    REPAIR,
    RESTORE,
    DamageError,
    MismatchError,
    PoisonedError,
    StorageError,
    read_file,
)
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index
from veen_storage.opening import hub_log_start, open_checks
from veen_storage.opening.creation import create
from veen_storage.read.attachments import Attachments
from veen_storage.read.hub_log import StoredHubLog
from veen_storage.read.journal_feed import JournalFeed
from veen_storage.read.reader import Reader

__all__ = ["Store", "create"]

MAX_TAIL_BYTES: Final = 32 * 1_048_576
"""The writer waits while more than this is durable and not applied; this bounds memory and the time to open.

A byte of small messages takes 3.5 bytes of memory, so twice this size would take 230 MB.
"""
APPLY_TIMEOUT_SEC: Final = 60.0
"""Seconds that the writer waits for the applier before it gives up."""
LOGGER: Final = logging.getLogger("veen_storage")


class Store:
    """An open data directory. Use ``read`` from any thread, ``batch`` and ``commit`` from one thread."""

    def __init__(
        self,
        root: Path,
        *,
        signer: BatchSigner | None = None,
        keys_directory: Path | None = None,
        limits: Limits | None = None,
        profile: Profile | None = None,
        previous_label: PreviousLabel = lambda _label: None,
        keeping: JournalKeeping | None = None,
        files: Files | None = None,
        background: bool = True,
        part: bool = False,
    ) -> None:
        """Open a data directory; ``limits`` and ``profile``, if given, must equal the directory's.

        ``keeping`` says how much of the applied journal is kept for replicas; without it, nothing is kept.
        Without ``background`` nothing is applied until ``apply`` is called, which tests use.
        ``part``: open a part of a sharded hub (``shards``), which nothing else may open.
        """
        self.layout = Layout(root)
        self._files = files or Files()
        self._kept = KeptSegments(self._files, self.layout.kept_journal, keeping or JournalKeeping())
        self.registry = read_registry(self.layout, part=part)
        if limits is not None:
            check_limits(self.registry, limits)
        if profile is not None:
            check_profile(self.registry, profile)
        self.notices: list[str] = []
        """Messages for the operator, such as a torn batch that was dropped; each notice is also logged."""
        self._lock = DirectoryLock(self.layout, observable=True)
        try:
            open_checks.check_names(self.layout)
            hub_keys.finish_identity(self._files, self.layout, self.registry.hub_id)
            self.identity = hub_keys.read_identity(self.layout, self.registry.hub_id)
            secrets = hub_keys.read_keys(keys_directory or self.layout.keys, self.identity)
            self._signer = signer or HubKeys(self.identity, secrets)
            self._previous_label = previous_label
            self._index = Index(self.layout.index)
            try:
                self._open_index()
            except BaseException:
                self._index.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        if background:
            self._queue.start()

    # --- opening

    def _open_index(self) -> None:
        with self._index.reading() as view:
            stored = tables.META.get(view, tables.HUB_ID)
            index_format = tables.META.get(view, tables.FORMAT)
            self._applied = tables.read_number(view, tables.APPLIED)
            finishing = tables.META.get(view, tables.UNFINISHED)
        if stored != self.registry.hub_id:
            raise MismatchError("index/data.mdb belongs to another hub, or is empty", action=REPAIR)
        if index_format not in (tables.INDEX_FORMAT, tables.FORMAT_WITHOUT_HUB_LOG):
            raise MismatchError("index/data.mdb has the format of another veen version", action=REPAIR)
        open_checks.check_journal(self.layout, self._applied)
        zstd_level = self.registry.zstd_level
        self._pruner = retention.Pruner(self.layout, self._index, zstd_level is not None, self._notice)
        self._applier = Applier(self._files, self.layout, self._index, zstd_level, self._pruner)
        self._applier.finish(finishing if finishing is not None else NOTHING_TO_FINISH, after_crash=True)
        origin = OriginCheck(self.layout, self.identity, self._index)
        open_checks.check_newest_entries(origin, self._index)
        if index_format == tables.FORMAT_WITHOUT_HUB_LOG:
            hub_log_start.start_hub_log(self._files, self.layout, self._index)
        hub_log_start.check_entries_file(self.layout, self._index)
        self._ledger = Ledger(self._index, self.registry, origin.check_newest)
        self._tail = Tail()
        self._applied_entries = 0
        self.read = Reader(self.layout, self.registry, self._index, self._tail, origin)
        self.attachments = Attachments(
            self._files, self.layout, self.registry.limits.max_attachment_bytes, self._index
        )
        recovery = Recovery(self.layout, self._files, self.identity, self._ledger, self._notice, self._kept)
        last = recovery.run(self._applied, self._apply_round)
        self.hub_log = StoredHubLog(
            self.layout, self._index, self._tail, moved=lambda: len(self._ledger.moved)
        )
        hub_log_start.check_checkpoints(self.layout, self.identity, self._index, self.hub_log)
        self._journal = Journal(self.layout.journal, self._files, last + 1, self._kept)
        self._queue = ApplyQueue(
            self._tail, self._apply_waiting, poison=self._journal.poison, poisoned=lambda: self.poisoned
        )
        self._publishing = threading.Lock()

    def _notice(self, what: str) -> None:
        if what not in self.notices:
            self.notices.append(what)
        LOGGER.warning("storage_notice: %s", what)

    def _apply_round(self, changes: list[Changes]) -> None:
        self._applier.apply(changes)
        self._applied = changes[-1].batch
        self._applied_entries += sum(change.entries for change in changes)
        self._ledger.shrink(self._applied)

    def _apply_waiting(self, changes: list[Changes]) -> None:
        """Apply a round of waiting batches, then free what held them: tail, journal, pruned payloads."""
        self._apply_round(changes)
        for change in changes:
            self._tail.drop(change)
        self._journal.trim(self._applied)
        self._forget_pruned(changes)

    # --- writing

    def batch(self, now: UnixTime) -> Batch:
        """Start a group commit; a batch that is not committed changes nothing."""
        return Batch(self._ledger, self._signer, self._previous_label, now)

    def commit(self, batch: Batch | ReplicatedBatch) -> None:
        """Make a batch durable. When this returns, its receipts may leave and readers see its entries."""
        batch.sign()
        if not batch.items and isinstance(batch, Batch):  # the primary's numbers are the replica's
            return
        if batch.made_after != self._ledger.adopted:
            raise StorageError("another batch was committed after this one was started: start a new batch")
        if self._queue.thread is not None and self.poisoned is None:
            self._wait_for_room()
        try:
            number = self._journal.append(batch.items)  # the commit point is in here
            changes = batch.finish(number)
            self._ledger.adopt(changes)
            self._tail.add(changes)
            self._queue.put(changes)
        except BaseException as exc:  # the batch may be durable although memory lacks it: accept no other
            if self.poisoned is None:
                self._journal.poison(f"memory did not follow the journal: {exc!r}")
            raise

    # --- replication (RESOLUTIONS P9)

    @property
    def last_batch(self) -> int:
        """Number of the last durable batch."""
        return self._journal.last

    def journal_feed(self, after: int) -> JournalFeed:
        """Return the feed of the batches after ``after``, for a replica."""
        return JournalFeed(self.layout, lambda: self._journal.last, after)

    def trim_kept_journal(self) -> None:
        """Remove kept journal segments that are too old."""
        self._kept.trim()

    def replicate(self, batch: JournalBatch) -> ReplicatedBatch:
        """Verify the primary's next batch and make it durable; raise ``RefusedBatchError`` unless it fits.

        Call from one thread, in a directory that nothing else writes to.
        """
        if batch.number != self._journal.last + 1:
            raise RefusedBatchError(
                batch.number, f"the replica's next batch is {self._journal.last + 1}", None
            )
        if any(item.kind == PRUNE for item in batch.items):
            # The primary decided when its index had the chunk: apply everything, so that this index has it.
            self._queue.apply_all(APPLY_TIMEOUT_SEC)
        replicated = ReplicatedBatch(self._ledger, self.identity, batch)
        self.commit(replicated)
        return replicated

    def read_handover(self) -> Handover | None:
        """Return the hub's handover to its successor; None if it has not handed over."""
        if not self.layout.handover.exists():
            return None
        try:
            return Handover.decode(read_file(self.layout.handover))
        except DecodeError as exc:
            raise DamageError(self.layout.handover.name, None, str(exc), RESTORE) from exc

    def record_handover(self, record: Handover) -> None:
        """Make a handover durable: the hub signs nothing after it."""
        self._files.replace(self.layout.handover, record.encode())

    def publish(self, signed: SignedHead) -> None:
        """Make a hub checkpoint, with its cosignatures, the one that is served; durable when this returns.

        Raise unless it is a durable hub checkpoint of this hub log, and no older than the published one. Call
        from any thread.
        """
        with self._publishing:
            self.hub_log.check_publishable(signed)
            self._files.replace(self.layout.hub_log_published, signed.encode())
            self.hub_log.set_published(signed)

    def _wait_for_room(self) -> None:
        if not self._tail.wait_for_room(MAX_TAIL_BYTES, APPLY_TIMEOUT_SEC, lambda: self.poisoned is not None):
            self._journal.poison("the applier has not caught up")
            raise PoisonedError(
                f"the applier has not caught up within {APPLY_TIMEOUT_SEC:.0f} s: check the disk, then "
                "reopen the data directory"
            )

    @property
    def index(self) -> Index:
        """The index, for retention, clone and export, which read several tables in one transaction."""
        return self._index

    @property
    def applied_entries(self) -> int:
        """Number of entries applied since the directory was opened, recovery included."""
        return self._applied_entries

    def set_previous_label(self, previous_label: PreviousLabel) -> None:
        """Set how to derive the label of the previous epoch (RESOLUTIONS H9); call before the first batch."""
        self._previous_label = previous_label

    def set_sign_many(self, sign_many: SignMany) -> None:
        """Set the function that signs receipts with the directory's keys; call before the first batch."""
        if isinstance(self._signer, HubKeys):
            self._signer.sign_many = sign_many

    def signing_key(self, now: UnixTime) -> SigningKey | None:
        """Return the key that signs at a time; None if the keys are not in this process (core §8.4)."""
        return self._signer.key_at(now) if isinstance(self._signer, HubKeys) else None

    @property
    def hub_ts(self) -> UnixTime:
        """The last hub_ts issued; the next one is never smaller (RESOLUTIONS H3)."""
        return self._ledger.hub_ts

    @property
    def identity_signature(self) -> Signature:
        """Content of hub-identity.sig (core §8.4)."""
        return Signature(self.layout.identity_signature.read_bytes())

    def artifacts(self) -> Artifacts:
        """Return the identity record with its signature (core §8.4)."""
        return Artifacts(self.identity, self.identity_signature)

    def tokens(self) -> list[CapToken]:
        """Return every capability token that was ever authorized."""
        with self._index.reading() as view:
            found = [record.token for _auth_ref, record in tables.CAPS.scan(view)]
        return [token for token in found if token is not None]

    def due(self, policy: retention.PrunePolicy, now: UnixTime, *, keep: Label) -> list[Prune]:
        """Return the chunks that the rules prune now; chunks of the label ``keep`` are never among them.

        A damaged chunk is left out, so that the evidence of damage is kept.
        """
        labels = (label for label in self.read.all_labels() if label != keep)
        return self._pruner.due(labels, policy, now)

    def check_signing(self, now: UnixTime) -> None:
        """Raise if the hub cannot sign a receipt at this time, for example because a key file is missing."""
        self._signer.sign_receipt(bytes(32), now)

    def sign(self, digest: bytes, now: UnixTime | None = None) -> Signature | None:
        """Sign with the hub's key at a time, by default the last hub_ts; None if the key is not available."""
        try:
            return self._signer.sign_receipt(digest, self.hub_ts if now is None else now)
        except StorageError:
            return None

    def sign_empty_hub_log(self, origin: str, now: UnixTime) -> SignedHead:
        """Sign the head of an empty hub log, to ask a witness what it remembers (RESOLUTIONS P3).

        It contradicts no other head, and is neither stored nor published.
        """
        head = TreeHead(origin, 0, EMPTY_ROOT)
        return SignedHead(head, self._signer.sign_note(head.text, origin, UnixTime(max(now, self.hub_ts))))

    def sign_hub_log_head(self, head: TreeHead, now: UnixTime) -> SignedHead:
        """Sign a head of the hub log that joins this hub's shards (``shards.joined_hub_log``)."""
        return SignedHead(head, self._signer.sign_note(head.text, head.origin, now))

    def sign_with_active_keys(self, signed: SignedHead, now: UnixTime) -> SignedHead:
        """Add the signatures of hub keys that became active after a hub checkpoint was made (RESOLUTIONS P1).

        The text is one that this hub has signed before, so nothing new is stated. Nothing is stored.
        """
        text, name = signed.note.text, signed.head.origin
        made = self._signer.sign_note(text, name, UnixTime(max(now, self.hub_ts)))
        return SignedHead(signed.head, signed.note.with_signatures(made.signatures))

    def check_access(self) -> None:
        """Raise unless the directory can still be read and the index answers."""
        self.layout.registry.stat()
        with self._index.reading() as view:
            if tables.META.get(view, tables.HUB_ID) != self.registry.hub_id:
                raise DamageError("index/data.mdb", None, "no longer contains this hub's id", FSCK)

    @property
    def poisoned(self) -> str | None:
        """The reason why nothing is acknowledged any more, or None. Reads continue."""
        return self._journal.poisoned

    # --- applying

    def apply(self) -> None:
        """Apply one round of waiting batches, as the background thread does."""
        self._queue.apply()

    def _forget_pruned(self, taken: list[Changes]) -> None:
        """Remove from the kept journal what this round has pruned from the log (COMP0.1)."""
        steps = [step for change in taken for step in change.steps if isinstance(step, Pruned)]
        if steps and (last_ts := retention.newest_pruned(self._index, steps)) is not None:
            self._kept.forget_payloads(last_ts, self.layout.journal)

    def settle(self, timeout: float = APPLY_TIMEOUT_SEC) -> bool:
        """Wait until everything committed so far is applied; return whether it is."""
        return self._queue.settle(timeout)

    @property
    def lag(self) -> int:
        """Bytes of entries that are durable and not yet applied."""
        return self._tail.size

    def close(self) -> None:
        """Apply the waiting batches and release the directory. Safe to call twice."""
        self._queue.close()
        self._journal.close()
        self._index.close()
        self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
