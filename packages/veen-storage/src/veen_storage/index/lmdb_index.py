"""The index: an LMDB environment that finds everything in O(log n), rebuildable from the log (core §3.4.1).

The applier writes one synced transaction per round; any number of read transactions run meanwhile. The
memory map grows by itself. LMDB can resize it only while this process has no transaction open, which
``_gate`` waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from veen_storage.errors import REPAIR, ClosedError, DamageError, StorageError
from veen_storage.index.lmdb_map import is_truncated, map_size
from veen_storage.index.tables import ADDED_LATER, TABLES
from veen_storage.index.transactions import Transaction, View

__all__ = ["TABLES", "Index", "Transaction", "View"]

T = TypeVar("T")

FIRST_MAP_BYTES: Final = 64 * 1_048_576
"""Virtual size of a new map in bytes; it is doubled whenever half of it is used."""
OBSERVER_MAP_BYTES: Final = 1 << 40
"""Virtual size of an observer's map: more than the writing process will grow it to."""
CLOSE_TIMEOUT_SEC: Final = 10.0
"""Seconds that ``close`` waits for open transactions."""


class Index:
    """An open index. Use it from any thread."""

    def __init__(
        self, path: Path, *, readonly: bool = False, observing: bool = False, sync: bool = True
    ) -> None:
        """Open the index in a folder.

        ``readonly``: no process writes it. ``observing``: another process writes it, and LMDB's reader table
        tells that process about our transactions. Without ``sync`` a crash loses the index: for fsck's
        temporary one.
        """
        self._path = path
        size = map_size(path, OBSERVER_MAP_BYTES if observing else FIRST_MAP_BYTES)
        try:
            self._env = lmdb.open(
                str(path),
                map_size=size,
                max_dbs=len(TABLES),
                max_readers=1_024,
                readonly=readonly or observing,
                sync=sync,
                lock=not readonly,
            )
            if is_truncated(self._env, path):
                self._env.close()
                raise DamageError(f"{path.name}/data.mdb", None, "is truncated", REPAIR)
            self._tables = {name: self._table(name, create=not (readonly or observing)) for name in TABLES}
            if not readonly:
                self._env.reader_check()  # frees the slots of observers that were killed
        except lmdb.Error as exc:
            if "already open in this process" in str(exc):
                raise StorageError(
                    f"{path.parent} is already open in this process", action="use the open store"
                ) from exc
            raise DamageError("index/data.mdb", None, str(exc), REPAIR) from exc
        self._map_size = size
        self._gate = threading.Condition()
        self._mine = threading.local()
        """Number of transactions that the thread has open: a reader may open one inside another."""
        self._open = 0
        self._growing = False
        self._closed = False

    def _table(self, name: str, *, create: bool) -> lmdb._Database | None:
        """Open a table; None if an older directory lacks it."""
        try:
            return self._env.open_db(name.encode(), create=create)
        except lmdb.NotFoundError:
            if name not in ADDED_LATER:
                raise
            return None

    @contextmanager
    def reading(self) -> Iterator[View]:
        """Open a consistent view of all tables; close it soon, since the map cannot grow meanwhile."""
        with self._transaction():
            try:
                with self._env.begin(buffers=False) as txn:
                    yield View(txn, self._tables)
            except lmdb.Error as exc:
                raise DamageError("index/data.mdb", None, f"cannot be read ({exc})") from exc

    def write(self, change: Callable[[Transaction], T]) -> T:
        """Run ``change`` in one synced transaction; run it again from its start if the map had to grow."""
        self._grow(lambda: self._used() > self._map_size // 2)
        while True:
            size = self._map_size
            try:
                with self._transaction(), self._env.begin(write=True) as txn:
                    return change(Transaction(txn, self._tables))
            except lmdb.MapFullError:
                self._grow(partial(self._is_size, size))
            except lmdb.Error as exc:
                raise StorageError(
                    f"index/data.mdb: cannot be written ({exc})",
                    action="free space or fix the disk, then reopen the data directory",
                ) from exc

    def _used(self) -> int:
        info, stat = self._env.info(), self._env.stat()
        return int(info["last_pgno"]) * int(stat["psize"])

    def _is_size(self, size: int) -> bool:
        return self._map_size == size

    def _grow(self, needed: Callable[[], bool]) -> None:
        """Double the map if that is still needed once no other thread grows it."""
        with self._gate:
            self._gate.wait_for(lambda: not self._growing)
            if not needed():
                return
            self._growing = True
            try:
                self._gate.wait_for(lambda: self._open == 0)
                self._env.reader_check()  # slots of observers that were killed keep old pages in use
                self._env.set_mapsize(2 * self._map_size)
                self._map_size *= 2
            except lmdb.Error as exc:
                raise StorageError(
                    f"index/data.mdb: cannot grow ({exc})",
                    action="free memory, then reopen the data directory",
                ) from exc
            finally:
                self._growing = False
                self._gate.notify_all()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        depth = getattr(self._mine, "depth", 0)
        with self._gate:
            if not depth:  # inside another transaction waiting would never end
                self._gate.wait_for(lambda: not self._growing)
            if self._closed:
                raise ClosedError("the data directory is closed", action="open it again")
            self._open += 1
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            with self._gate:
                self._open -= 1
                if self._growing or self._closed:
                    self._gate.notify_all()

    def close(self) -> None:
        """Close after every transaction has ended, but after ``CLOSE_TIMEOUT_SEC`` at the latest."""
        with self._gate:
            self._closed = True
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._open == 0, CLOSE_TIMEOUT_SEC)
        self._env.close()
