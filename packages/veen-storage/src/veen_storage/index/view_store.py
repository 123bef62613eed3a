"""A view's store: an ordered map in one LMDB environment, for whoever folds logs and restarts (§3.4.1).

It has the shape of ``veen_overlays.Store``, which is not imported: ``get``, ``scan``, ``write``.

- ``write`` is one synced transaction: all of it is there, also after a crash, or nothing is.
- Keys are ordered as byte strings, and are at most ``MAX_KEY`` bytes long; LMDB sets that bound.
- Several processes may open one store; LMDB lets one of them write at a time.
- The map grows by itself. A scan keeps no transaction open between two pages, so it never holds that up.

What lies here is derived. A store that is damaged may be removed: the log has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar, cast

import lmdb

from veen_storage.errors import ClosedError, DamageError, StorageError

T = TypeVar("T")

FIRST_MAP: Final = 16 * 1_048_576
"""Virtual size of a new map; doubled whenever it is full."""
MAX_KEY: Final = 510
"""One byte less than LMDB's: it is put before each key, because LMDB takes no empty one."""
PAGE: Final = 512
"""Entries read in one transaction of a scan."""
_BEFORE: Final = b"\x00"


class ViewStore:
    """An open store; close it, or use it in ``with``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = path / "data.mdb"
        on_disk = data.stat().st_size if data.exists() else 0
        size = FIRST_MAP
        while size < 2 * on_disk:
            size *= 2
        try:
            env = lmdb.open(str(path), map_size=size, mode=0o600)
        except lmdb.Error as exc:
            raise self._damage(str(exc)) from exc
        self._env: lmdb.Environment | None = env
        # A map over a file that was cut short would end the process at the first touch of a lost page.
        if on_disk and on_disk < (int(env.info()["last_pgno"]) + 1) * int(env.stat()["psize"]):
            self.close()
            raise self._damage("is cut short")

    def _damage(self, what: str) -> DamageError:
        return DamageError(f"{self._path}/data.mdb", None, what, f"remove {self._path}: the log has it all")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the files go; doing it twice does no harm."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def get(self, key: bytes) -> bytes | None:
        if len(key) > MAX_KEY:
            return None
        return self._read(lambda txn: cast("bytes | None", txn.get(_BEFORE + key)))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``start <= key < stop``, ascending."""
        found = self._page(start, stop)
        while found:
            yield from found
            found = self._page(found[-1][0] + b"\x00", stop) if len(found) == PAGE else []

    def _page(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        def read(txn: lmdb.Transaction) -> list[tuple[bytes, bytes]]:
            found: list[tuple[bytes, bytes]] = []
            cursor = txn.cursor()
            if cursor.set_range(_BEFORE + start):
                for key, value in cast("Iterator[tuple[bytes, bytes]]", iter(cursor)):
                    if key[1:] >= stop or len(found) == PAGE:
                        break
                    found.append((key[1:], value))
            return found

        return self._read(read)

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """Delete, then put, in one synced transaction."""
        if any(len(key) > MAX_KEY for key in puts):
            raise StorageError(f"{self._path}: a key is longer than {MAX_KEY} bytes: choose a shorter one")
        gone = [_BEFORE + key for key in deletes if len(key) <= MAX_KEY]

        def change(txn: lmdb.Transaction) -> None:
            for key in gone:
                txn.delete(key)
            for key, value in puts.items():
                txn.put(_BEFORE + key, value)

        self._run(change, write=True)

    def _read(self, read: Callable[[lmdb.Transaction], T]) -> T:
        return self._run(read, write=False)

    def _run(self, work: Callable[[lmdb.Transaction], T], *, write: bool) -> T:
        """One transaction; again from its start if the map had to grow, here or in another process."""
        env = self._env
        if env is None:
            raise ClosedError(f"{self._path} is closed: open it again")
        while True:
            try:
                with env.begin(write=write) as txn:
                    return work(txn)
            except lmdb.MapFullError:
                env.set_mapsize(2 * int(env.info()["map_size"]))
            except lmdb.MapResizedError:
                env.set_mapsize(0)  # what the other process made it
            except (lmdb.CorruptedError, lmdb.PageNotFoundError) as exc:
                raise self._damage(str(exc)) from exc
            except lmdb.Error as exc:
                raise StorageError(
                    f"{self._path}: failed ({exc}): free space or fix the disk, then go on"
                ) from exc
