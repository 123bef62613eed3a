"""Reading a data directory that another process has open, so that clone and export need not stop the hub.

An observer sees applied batches only. LMDB isolates readers in several processes from its one writer, and
files that an applied batch refers to change only as ``copies.consistent_prefix`` describes. An observer
first waits until everything is applied that was durable when it started. It writes nothing but LMDB's
``lock.mdb``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from veen_core.hub_identity import HubIdentity
from veen_core.ids import Signature, UnixTime
from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.commit import journal
from veen_storage.commit.tail import Tail
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.hub_keys import HubKeys
from veen_storage.disk.identity_artifacts import Artifacts, read_artifacts
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, read_registry
from veen_storage.errors import REPAIR, DamageError, LockedError, MismatchError, StorageError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index
from veen_storage.read.attachments import Attachments
from veen_storage.read.hub_log import StoredHubLog
from veen_storage.read.reader import Reader
from veen_storage.store import Store

OBSERVER_TIMEOUT_SEC: Final = 30.0
"""Seconds that an observer waits for the hub to apply what is durable."""
STORE_TIMEOUT_SEC: Final = 1.0
"""Seconds to wait for a store of this process: while it is written to, it may never be idle."""
POLL_SECONDS: Final = 0.02


class Source(Protocol):
    """The source of a clone, fork or export: an open ``Store``, or an ``Observer`` of another process's."""

    layout: Layout
    registry: Registry
    identity: HubIdentity
    read: Reader
    hub_log: StoredHubLog
    attachments: Attachments

    @property
    def index(self) -> Index: ...
    def artifacts(self) -> Artifacts: ...
    def sign(self, digest: bytes) -> Signature | None: ...


class Observer:
    """Reads a directory that another process has open. A context manager."""

    def __init__(self, root: Path, keys_directory: Path | None = None, *, part: bool = False) -> None:
        """``part``: the directory is a part of a sharded hub (``shards``)."""
        self.layout = Layout(root)
        self.registry = read_registry(self.layout, part=part)
        self.identity = read_artifacts(self.layout, self.registry.hub_id).identity
        self._keys = keys_directory or self.layout.keys
        self.index = Index(self.layout.index, observing=True)
        try:
            with self.index.reading() as view:
                if tables.META.get(view, tables.HUB_ID) != self.registry.hub_id:
                    raise MismatchError("index/data.mdb belongs to another hub", action=REPAIR)
        except BaseException:
            self.index.close()
            raise
        self.attachments = Attachments(
            Files(), self.layout, self.registry.limits.max_attachment_bytes, self.index
        )
        origin = OriginCheck(self.layout, self.identity, self.index)
        tail = Tail()
        self.read = Reader(self.layout, self.registry, self.index, tail, origin)
        self.hub_log = StoredHubLog(self.layout, self.index, tail)

    def settle(self, timeout: float) -> bool:
        """Wait until everything is applied that the journal holds now; return False after ``timeout``."""
        wanted, deadline = self._last_batch(), time.monotonic() + timeout
        while self._meta(tables.APPLIED) < wanted:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _last_batch(self) -> int:
        """Return the last complete batch of the newest segment; bytes after it are being written."""
        last = 0
        try:
            for path in journal.list_segments(self.layout.journal)[-1:]:
                for _offset, batch in journal.read_segment(path, last=True):
                    last = batch.number
        except (DamageError, FileNotFoundError):
            pass  # the segment is being written, or was applied and removed
        return last

    def _meta(self, name: bytes) -> int:
        with self.index.reading() as view:
            return tables.read_number(view, name)

    def artifacts(self) -> Artifacts:
        """Read the identity artifacts again: the hub may have rotated its key."""
        found = read_artifacts(self.layout, self.registry.hub_id)
        self.identity = found.identity
        return found

    def sign(self, digest: bytes) -> Signature | None:
        """Sign with the hub's current key; None if the key is not available."""
        hub_ts = UnixTime(self._meta(tables.HUB_TS))
        keys = HubKeys(self.identity, hub_keys.read_keys(self._keys, self.identity))
        try:
            return keys.sign_receipt(digest, hub_ts)
        except StorageError:
            return None

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.index.close()


@contextmanager
def open_source(
    source: Store | Path, keys_directory: Path | None = None, *, part: bool = False
) -> Iterator[Source]:
    """Yield the source of a copy: the given store, the directory's store, or an observer if it is in use.

    ``part``: the directory is a part of a sharded hub (``shards``).
    """
    if isinstance(source, Store):
        if source.lag:
            source.settle(STORE_TIMEOUT_SEC)
        yield source
        return
    try:
        store = Store(source, keys_directory=keys_directory, part=part)
    except LockedError as exc:
        if not exc.owner.observable or exc.owner.pid == os.getpid():
            raise  # it is being repaired, or is open in this process, and LMDB must not be opened twice
        with Observer(source, keys_directory, part=part) as observer:
            if not observer.settle(OBSERVER_TIMEOUT_SEC):
                raise StorageError(
                    f"{source}: the hub did not apply all its batches within {OBSERVER_TIMEOUT_SEC:.0f} s",
                    action="try again, or stop the hub first",
                ) from None
            yield observer
        return
    with store:
        yield store
