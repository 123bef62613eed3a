"""Read and write transactions of the index, on raw bytes; ``tables`` gives them types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import lmdb


class View:
    """One read transaction: a consistent snapshot of every table.

    The transaction is opened without buffers, so that LMDB returns ``bytes``. A table that an older directory
    lacks is None and has no rows. Never pass None to LMDB: it would read its main database.
    """

    __slots__ = ("_tables", "_txn")

    def __init__(self, txn: lmdb.Transaction, tables: Mapping[str, lmdb._Database | None]) -> None:
        self._txn = txn
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        if (db := self._tables[table]) is None:
            return None
        return cast("bytes | None", self._txn.get(key, db=db))

    def scan(self, table: str, start: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield rows in key order from ``start`` on, while the key has ``prefix``."""
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
        """Yield every row of a table in LMDB's order."""
        if (db := self._tables[table]) is not None:
            with self._txn.cursor(db) as cursor:
                yield from cast("Iterator[tuple[bytes, bytes]]", cursor.iternext())

    def last_before(self, table: str, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the last row with ``prefix`` whose key is at or before ``key``."""
        if (db := self._tables[table]) is None:
            return None
        with self._txn.cursor(db) as cursor:
            found = (cursor.key() == key or cursor.prev()) if cursor.set_range(key) else cursor.last()
            row = cast("tuple[bytes, bytes]", cursor.item())
            return row if found and row[0].startswith(prefix) else None

    def count(self, table: str) -> int:
        """Return the number of rows, in constant time."""
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

    def clear(self, table: str) -> None:
        """Delete every row of a table."""
        if (db := self._tables[table]) is not None:
            self._txn.drop(db, delete=False)
