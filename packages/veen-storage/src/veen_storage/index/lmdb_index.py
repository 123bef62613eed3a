"""The index: LMDB tables that find everything in O(log n), rebuildable from the log (§3.4, §3.4.1).

One write transaction per apply round, fully synced; any number of read transactions beside it.
The map grows by itself: growing needs a moment without transactions, which ``_gate`` waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from veen_storage.errors import ClosedError, DamageError, StorageError
from veen_storage.index.tables import ADDED_LATER, TABLES
from veen_storage.index.transactions import Transaction, View

__all__ = ["TABLES", "Index", "Transaction", "View"]

T = TypeVar("T")

FIRST_MAP: Final = 64 * 1_048_576
"""Virtual size of a new map; doubled whenever half of it is used."""
BESIDE_MAP: Final = 1 << 40
"""Virtual size of the map of who only reads: more than the process that writes will grow it to meanwhile."""
LAST_READS: Final = 10.0
"""Seconds that closing waits for readers."""


class Index:
    """The open LMDB environment."""

    def __init__(
        self, path: Path, *, readonly: bool = False, beside: bool = False, sync: bool = True
    ) -> None:
        """``readonly`` while no process writes, ``beside`` while one does: it is told of our transactions.

        ``sync`` off is for an index that nobody needs after a crash: fsck's own.
        """
        self._path = path
        on_disk = (path / "data.mdb").stat().st_size if (path / "data.mdb").exists() else 0
        size = BESIDE_MAP if beside else FIRST_MAP
        while size < 2 * on_disk:
            size *= 2
        try:
            self._env = lmdb.open(
                str(path),
                map_size=size,
                max_dbs=len(TABLES),
                max_readers=1_024,
                readonly=readonly or beside,
                sync=sync,
                lock=not readonly,
            )
            self._check_size(path)
            self._tables = {name: self._table(name, create=not (readonly or beside)) for name in TABLES}
            if not readonly:
                self._env.reader_check()  # observers that were killed keep their places
        except lmdb.Error as exc:
            if "already open in this process" in str(exc):
                raise StorageError(
                    f"{path.parent} is open in this process already: read what is open"
                ) from exc
            raise DamageError("index/data.mdb", None, str(exc), "run `veen hub repair`") from exc
        self._map_size = size
        self._gate = threading.Condition()
        self._mine = threading.local()
        """How many transactions the thread has open: one may look again inside a view."""
        self._open = 0
        self._growing = False
        self._closed = False

    def _table(self, name: str, *, create: bool) -> lmdb._Database | None:
        """None for one that may be missing and is."""
        try:
            return self._env.open_db(name.encode(), create=create)
        except lmdb.NotFoundError:
            if name not in ADDED_LATER:
                raise
            return None

    def _check_size(self, path: Path) -> None:
        """A map over a file that was cut short would end the process at the first touch of a lost page."""
        pages = int(self._env.info()["last_pgno"]) + 1
        on_disk = (path / "data.mdb").stat().st_size
        if on_disk and on_disk < pages * int(self._env.stat()["psize"]):
            self._env.close()
            raise DamageError(f"{path.name}/data.mdb", on_disk, "is cut short", "run `veen hub repair`")

    @contextmanager
    def reading(self) -> Iterator[View]:
        """A consistent view; do not keep it open longer than one answer takes."""
        with self._transaction():
            try:
                with self._env.begin(buffers=False) as txn:
                    yield View(txn, self._tables)
            except lmdb.Error as exc:
                raise DamageError("index/data.mdb", None, f"cannot be read ({exc})") from exc

    def write(self, change: Callable[[Transaction], T]) -> T:
        """Run ``change`` in one synced transaction; again from the start if the map had to grow."""
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
                    f"index/data.mdb: was not written ({exc}): free space or fix the disk, then reopen"
                ) from exc

    def _used(self) -> int:
        info, stat = self._env.info(), self._env.stat()
        return int(info["last_pgno"]) * int(stat["psize"])

    def _is_size(self, size: int) -> bool:
        return self._map_size == size

    def _grow(self, needed: Callable[[], bool]) -> None:
        """One thread at a time, and only if it is still needed by then."""
        with self._gate:
            self._gate.wait_for(lambda: not self._growing)
            if not needed():
                return
            self._growing = True
            try:
                self._gate.wait_for(lambda: self._open == 0)
                self._env.reader_check()  # views of observers that were killed keep old pages in use
                self._env.set_mapsize(2 * self._map_size)
                self._map_size *= 2
            except lmdb.Error as exc:
                raise StorageError(f"index/data.mdb: cannot grow ({exc}): free memory, then reopen") from exc
            finally:
                self._growing = False
                self._gate.notify_all()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        depth = getattr(self._mine, "depth", 0)
        with self._gate:
            if not depth:  # else growing waits for this very thread
                self._gate.wait_for(lambda: not self._growing)
            if self._closed:
                raise ClosedError("the data directory is closed: open it again")
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
        """Once every transaction has ended; a view that is kept for long is not waited for."""
        with self._gate:
            self._closed = True
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._open == 0, LAST_READS)
        self._env.close()
