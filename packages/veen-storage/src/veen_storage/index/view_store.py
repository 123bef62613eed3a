"""The store of an overlay view: an ordered map in one LMDB environment that survives restarts (core §3.4.1).

``ViewStore`` implements the protocol ``veen_overlays.Store`` (``get``, ``scan``, ``write``) without
importing it.

- ``write`` is one synced transaction: after a crash the store holds all of it, or nothing.
- Keys are ordered as byte strings and at most ``MAX_KEY`` bytes long, which LMDB demands.
- Several processes may open one store; LMDB lets one of them write at a time.
- The memory map grows by itself. A scan keeps no transaction open between two pages, so it never delays that.

Everything in a view is derived from logs: a damaged store may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar, cast

import lmdb

from veen_storage.errors import ClosedError, DamageError, StorageError
from veen_storage.index.lmdb_map import is_truncated, map_size

T = TypeVar("T")

FIRST_MAP_BYTES: Final = 16 * 1_048_576
"""Virtual size of a new map in bytes; it is doubled whenever it is full."""
MAX_KEY: Final = 510
"""One byte less than LMDB's bound: a prefix is added to each key, because LMDB refuses an empty one."""
PAGE_ENTRIES: Final = 512
"""Entries read in one transaction of a scan."""
_PREFIX: Final = b"\x00"


class ViewStore:
    """An open store; close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            env = lmdb.open(str(path), map_size=map_size(path, FIRST_MAP_BYTES), mode=0o600)
        except lmdb.Error as exc:
            raise self._damage(str(exc)) from exc
        self._env: lmdb.Environment | None = env
        if is_truncated(env, path):
            self.close()
            raise self._damage("is truncated")

    def _damage(self, what: str) -> DamageError:
        return DamageError(
            f"{self._path}/data.mdb", None, what, f"delete {self._path}; it is rebuilt from the log"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def get(self, key: bytes) -> bytes | None:
        if len(key) > MAX_KEY:
            return None
        return self._read(lambda txn: cast("bytes | None", txn.get(_PREFIX + key)))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries with ``start <= key < stop`` in ascending order of keys."""
        found = self._page(start, stop)
        while found:
            yield from found
            found = self._page(found[-1][0] + b"\x00", stop) if len(found) == PAGE_ENTRIES else []

    def _page(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        def read(txn: lmdb.Transaction) -> list[tuple[bytes, bytes]]:
            found: list[tuple[bytes, bytes]] = []
            cursor = txn.cursor()
            if cursor.set_range(_PREFIX + start):
                for key, value in cast("Iterator[tuple[bytes, bytes]]", iter(cursor)):
                    if key[1:] >= stop or len(found) == PAGE_ENTRIES:
                        break
                    found.append((key[1:], value))
            return found

        return self._read(read)

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """Delete, then put, in one synced transaction."""
        if any(len(key) > MAX_KEY for key in puts):
            raise StorageError(f"{self._path}: a key is longer than {MAX_KEY} bytes: choose a shorter one")
        deleted = [_PREFIX + key for key in deletes if len(key) <= MAX_KEY]

        def change(txn: lmdb.Transaction) -> None:
            for key in deleted:
                txn.delete(key)
            for key, value in puts.items():
                txn.put(_PREFIX + key, value)

        self._run(change, write=True)

    def _read(self, read: Callable[[lmdb.Transaction], T]) -> T:
        return self._run(read, write=False)

    def _run(self, work: Callable[[lmdb.Transaction], T], *, write: bool) -> T:
        """Run one transaction; run it again if the map had to grow, here or in another process."""
        env = self._env
        if env is None:
            raise ClosedError(f"{self._path} is closed", action="open it again")
        while True:
            try:
                with env.begin(write=write) as txn:
                    return work(txn)
            except lmdb.MapFullError:
                env.set_mapsize(2 * int(env.info()["map_size"]))
            except lmdb.MapResizedError:
                env.set_mapsize(0)  # adopt the size that the other process has set
            except (lmdb.CorruptedError, lmdb.PageNotFoundError) as exc:
                raise self._damage(str(exc)) from exc
            except lmdb.Error as exc:
                raise StorageError(
                    f"{self._path}: cannot be used ({exc})",
                    action="free space or fix the disk, then try again",
                ) from exc
