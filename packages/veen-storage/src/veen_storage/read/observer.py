"""A data directory that another process has open, read from beside it: what is applied, and nothing else.

LMDB keeps readers of several processes apart from its one writer, and files below an applied batch change
only as ``cut`` says. So whoever clones or exports need not stop the hub. What was durable when it began is
waited for, since appliers take their time. Nothing in the directory is written but LMDB's ``lock.mdb``.
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
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.hub_keys import HubKeys
from veen_storage.disk.identity_artifacts import Artifacts, read_artifacts
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, read_registry
from veen_storage.errors import DamageError, LockedError, MismatchError, StorageError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index
from veen_storage.read.attachments import Attachments
from veen_storage.read.reader import Reader
from veen_storage.read.tail import Tail
from veen_storage.store import Store

_SETTLE: Final = 30.0
"""Seconds for what is durable to be applied; a hub that is still behind then is in trouble."""
_PAUSE: Final = 1.0
"""For a store that is open here: while others write to it, it may never be idle, and takes what there is."""
_LOOK_AGAIN: Final = 0.02


class Source(Protocol):
    """What clone, fork and export need: an open store, or the view of one that is open elsewhere."""

    layout: Layout
    registry: Registry
    identity: HubIdentity
    read: Reader
    attachments: Attachments

    @property
    def index(self) -> Index: ...
    def artifacts(self) -> Artifacts: ...
    def sign(self, digest: bytes) -> Signature | None: ...


class Observer:
    """Reads beside the process that has the directory open. A context manager."""

    def __init__(self, root: Path, keys_directory: Path | None = None) -> None:
        self.layout = Layout(root)
        self.registry = read_registry(self.layout)
        self.identity = read_artifacts(self.layout, self.registry.hub_id).identity
        self._keys = keys_directory or self.layout.keys
        self.index = Index(self.layout.index, beside=True)
        try:
            with self.index.reading() as view:
                if tables.META.get(view, tables.HUB_ID) != self.registry.hub_id:
                    raise MismatchError("index/data.mdb belongs to another hub: run `veen hub repair`")
        except BaseException:
            self.index.close()
            raise
        self.attachments = Attachments(
            Files(), self.layout, self.registry.limits.max_attachment_bytes, self.index
        )
        origin = OriginCheck(self.layout, self.identity, self.index)
        self.read = Reader(self.layout, self.registry, self.index, Tail(), origin)

    def settle(self, timeout: float) -> bool:
        """Wait until everything is applied that the journal holds now."""
        wanted, deadline = self._last_batch(), time.monotonic() + timeout
        while self._meta(tables.APPLIED) < wanted:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_AGAIN)
        return True

    def _last_batch(self) -> int:
        """The last whole batch of the newest segment; what follows it is being written."""
        last = 0
        try:
            for path in journal.list_segments(self.layout.journal)[-1:]:
                for _offset, batch in journal.read_segment(path, last=True):
                    last = batch.number
        except (DamageError, FileNotFoundError):
            pass  # it is being written, or all of it is applied and it went
        return last

    def _meta(self, name: bytes) -> int:
        with self.index.reading() as view:
            return tables.read_number(view, name)

    def artifacts(self) -> Artifacts:
        """As they are now: what is signed from here on is signed by a key of theirs."""
        found = read_artifacts(self.layout, self.registry.hub_id)
        self.identity = found.identity
        return found

    def sign(self, digest: bytes) -> Signature | None:
        """By the hub's present key; None if that is not here."""
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
def open_source(source: Store | Path, keys_directory: Path | None = None) -> Iterator[Source]:
    """The store itself; of a directory the store, or what shows beside the process that has it open."""
    if isinstance(source, Store):
        if source.lag:
            source.settle(_PAUSE)
        yield source
        return
    try:
        store = Store(source, keys_directory=keys_directory)
    except LockedError as exc:
        if not exc.owner.observable or exc.owner.pid == os.getpid():
            raise  # it is being repaired, say; or is open here, and LMDB must not be opened twice
        with Observer(source, keys_directory) as observer:
            if not observer.settle(_SETTLE):
                raise StorageError(
                    f"{source}: the hub has not applied within {_SETTLE:.0f} s what it acknowledged: "
                    "try again, or stop it first"
                ) from None
            yield observer
        return
    with store:
        yield store
