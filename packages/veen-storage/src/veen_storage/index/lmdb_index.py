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
from typing import Final, TypeVar, cast

import lmdb

from veen_storage.errors import ClosedError, DamageError, StorageError

T = TypeVar("T")

TABLES: Final = (
    "labels",  # label → number
    "heads",  # number → LabelCursor
    "clients",  # number, client_id → ClientCursor
    "entries",  # number, seq → Location
    "nodes",  # number, height > 0, index → hash; leaves are read from receipts
    "chunks",  # number, start → ChunkRecord
    "manifest",  # number, epoch, start, end → Segment
    "tombstones",  # number, start → end, pruned_at
    "times",  # number, hub_ts → first seq
    "all_times",  # hub_ts, number → first seq
    "caps",  # auth_ref or claims_ref → CapRecord
    "buckets",  # claims_ref, number → Bucket
    "checkpoints",  # number, upto_seq → CHECKPOINT
    "epochs",  # epoch, number, upto_seq → nothing
    "anchors",  # number, upto_seq → anchor_ref
    "attachments",  # coid → size
    "meta",  # name → value
)
YOUNGER: Final = frozenset({"attachments"})
"""Tables that an older directory has only once a hub has opened it; until then they count as empty."""
INDEX_FORMAT: Final = b"2"
"""Value of ``meta.format``. 2: buckets and issued_at are keyed by a token's claims."""
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
            if name not in YOUNGER:
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


class View:
    """One read transaction. Opened without buffers, so LMDB's rows are bytes.

    A table that is not there has no rows; LMDB must not see it: without a table it reads its own.
    """

    __slots__ = ("_tables", "_txn")

    def __init__(self, txn: lmdb.Transaction, tables: dict[str, lmdb._Database | None]) -> None:
        self._txn = txn
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        if (db := self._tables[table]) is None:
            return None
        return cast("bytes | None", self._txn.get(key, db=db))

    def scan(self, table: str, start: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows from ``start`` on, as long as their key has ``prefix``."""
        if (db := self._tables[table]) is None:
            return
        with self._txn.cursor(db) as cursor:
            if not cursor.set_range(start):
                return
            for key, value in cast("Iterator[tuple[bytes, bytes]]", cursor.iternext()):
                if not key.startswith(prefix):
                    return
                yield key, value

    def rows(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """All of them, as fast as LMDB gives them."""
        if (db := self._tables[table]) is not None:
            with self._txn.cursor(db) as cursor:
                yield from cast("Iterator[tuple[bytes, bytes]]", cursor.iternext())

    def last_before(self, table: str, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The last row with ``prefix`` whose key is at or before ``key``."""
        if (db := self._tables[table]) is None:
            return None
        with self._txn.cursor(db) as cursor:
            found = (cursor.key() == key or cursor.prev()) if cursor.set_range(key) else cursor.last()
            row = cast("tuple[bytes, bytes]", cursor.item())
            return row if found and row[0].startswith(prefix) else None

    def count(self, table: str) -> int:
        db = self._tables[table]
        return int(self._txn.stat(db)["entries"]) if db is not None else 0


class Transaction(View):
    """The write transaction of one apply round."""

    __slots__ = ()

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables[table])

    def put_many(self, table: str, rows: list[tuple[bytes, bytes]]) -> None:
        if rows:
            rows.sort()
            with self._txn.cursor(self._tables[table]) as cursor:
                cursor.putmulti(rows)

    def put_if_absent(self, table: str, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables[table], overwrite=False)

    def delete(self, table: str, key: bytes) -> None:
        self._txn.delete(key, db=self._tables[table])


def mark_index(txn: Transaction, hub_id: bytes) -> None:
    """Record in ``meta`` whose index this is and which format it has."""
    txn.put("meta", b"hub_id", hub_id)
    txn.put("meta", b"format", INDEX_FORMAT)
