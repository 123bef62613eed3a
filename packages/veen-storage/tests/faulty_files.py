"""``Files`` that fail, and ``Files`` that forget: what stands in for a bad disk and for a power cut.

``FaultyFiles`` counts every operation and lets one of them fail: before it takes effect, after it has,
or half way through. ``ForgettingFiles`` knows at every moment what a power cut would leave:

- a file's content as it was when the file was last synced;
- a folder's names as they were when the folder was last synced, with any of the changes since;
- the index as it was when ``Index.write`` last returned, since LMDB syncs itself.

Everything else is lost, or any part of it survives: both are for the test to choose.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

from veen_storage.disk.files import PUBLIC_MODE, SECRET_MODE, Files, read_exactly
from veen_storage.index.lmdb_index import Index

T = TypeVar("T")
SECTOR = 512
When = Literal["before", "after", "torn"]
OPERATIONS = frozenset(
    {
        "open",
        "write",
        "sync",
        "sync_many",
        "truncate",
        "rename",
        "remove",
        "make_directory",
        "sync_directory",
    }
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that was asked of the file system."""

    number: int
    name: str
    path: str
    size: int = 0

    def __str__(self) -> str:
        return f"operation {self.number}: {self.name} {self.path}" + (
            f" ({self.size} bytes)" if self.size else ""
        )


class CountingFiles(Files):
    """Passes everything through ``_do``, which numbers it. Threads take turns."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._paths: dict[int, Path] = {}
        self._turn = threading.RLock()

    def _do(self, name: str, path: Path, act: Callable[[], T], size: int = 0) -> T:
        with self._turn:
            operation = Operation(len(self.operations) + 1, name, str(path), size)
            self.operations.append(operation)
            return self._perform(operation, act)

    def _perform(self, operation: Operation, act: Callable[[], T]) -> T:  # noqa: ARG002
        return act()

    def open_append(self, path: Path, mode: int = PUBLIC_MODE) -> int:
        fd = self._do("open", path, lambda: Files.open_append(self, path, mode))
        self._paths[fd] = path
        return fd

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self._do("write", self._paths[fd], lambda: Files.write(self, fd, data, offset), len(data))

    def sync(self, fd: int) -> None:
        self._do("sync", self._paths[fd], lambda: Files.sync(self, fd))

    def sync_many(self, fds: list[int]) -> None:
        self._do("sync_many", self._paths[fds[0]].parent, lambda: Files.sync_many(self, fds))

    def truncate(self, fd: int, length: int) -> None:
        self._do("truncate", self._paths[fd], lambda: Files.truncate(self, fd, length))

    def rename(self, source: Path, target: Path) -> None:
        self._do("rename", target, lambda: Files.rename(self, source, target))

    def remove(self, path: Path) -> None:
        self._do("remove", path, lambda: Files.remove(self, path))

    def make_directory(self, path: Path, mode: int = 0o755) -> None:
        self._do("make_directory", path, lambda: Files.make_directory(self, path, mode))

    def sync_directory(self, path: Path) -> None:
        self._do("sync_directory", path, lambda: Files.sync_directory(self, path))


class FaultyFiles(CountingFiles):
    """Lets operation ``fail_at`` fail, once or from then on."""

    def __init__(
        self,
        fail_at: int,
        when: When = "before",
        error: int = errno.EIO,
        *,
        sectors: int = 0,
        for_ever: bool = False,
    ) -> None:
        super().__init__()
        self.failed: Operation | None = None
        self.fail_at = fail_at
        self.when = when
        self._error = error
        self._sectors = sectors
        self._for_ever = for_ever

    def _perform(self, operation: Operation, act: Callable[[], T]) -> T:
        if operation.number < self.fail_at or (operation.number > self.fail_at and not self._for_ever):
            return act()
        self.failed = self.failed or operation
        if self.when == "after":
            self._let_it_happen(operation, act)
        raise OSError(self._error, os.strerror(self._error), operation.path)

    def _let_it_happen(self, operation: Operation, act: Callable[[], object]) -> None:
        done = act()
        if operation.name == "open" and isinstance(done, int):
            os.close(done)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Torn: the first sectors reach the file, the rest does not."""
        if self.when == "torn" and len(self.operations) + 1 == self.fail_at:
            Files.write(self, fd, data[: self._sectors * SECTOR], offset)
        super().write(fd, data, offset)


# --- power cuts

Forgets = Callable[[str, Path], bool]
"""Whether a sync of a path is not done: to see that somebody notices."""


@dataclass(frozen=True, slots=True)
class Change:
    """Of one folder's names, atomic: a name comes, goes, or takes another's place."""

    gone: str | None
    come: str | None
    number: int | None
    """The file's id; None for a folder."""

    def happen(self, names: dict[str, int | None]) -> None:
        if self.gone is not None:
            names.pop(self.gone, None)
        if self.come is not None:
            names[self.come] = self.number


@dataclass(frozen=True, slots=True)
class Cut:
    """What the disk and the page cache held at one moment."""

    before: Operation
    promised: int
    """How much the test had been promised by then."""
    names: dict[Path, dict[str, int | None]]
    """Durable: a folder's names, each a file's id, or None for a folder."""
    content: dict[int, bytes]
    index: bytes | None
    pending: dict[Path, tuple[Change, ...]]
    """Changes of names since then, any of which may have reached the disk, in any order."""
    cached: dict[int, bytes]
    """Contents as a process sees them, any part of which may have reached the disk."""

    def key(self) -> tuple[object, ...]:
        """Two cuts that leave the same need to be looked at once."""
        names = tuple((path, tuple(sorted(held.items()))) for path, held in sorted(self.names.items()))
        used = {number for held in self.names.values() for number in held.values() if number is not None}
        return names, tuple(sorted((n, self.content.get(n, b"")) for n in used)), self.index

    def leave(self, base: Path, target: Path, chance: random.Random | None = None) -> None:
        """Write what is left of ``base`` to ``target``: the least, or with ``chance`` anything beyond."""
        chosen = {path: dict(held) for path, held in self.names.items()}
        for path, changes in self.pending.items() if chance is not None else ():
            held = chosen.setdefault(path, {})
            for change in changes:
                if chance is not None and chance.getrandbits(1):
                    change.happen(held)
        self._leave(base, target, chosen, chance)

    def _leave(
        self,
        source: Path,
        target: Path,
        names: dict[Path, dict[str, int | None]],
        chance: random.Random | None,
    ) -> None:
        target.mkdir()
        if source.name == "index" and self.index is not None:
            (target / "data.mdb").write_bytes(self.index)
            return
        for name, number in names.get(source, {}).items():
            if number is None:
                self._leave(source / name, target / name, names, chance)
            else:
                (target / name).touch(SECRET_MODE if source.name == "keys" else PUBLIC_MODE)
                (target / name).write_bytes(self._content(number, chance))

    def _content(self, number: int, chance: random.Random | None) -> bytes:
        durable = self.content.get(number, b"")
        cached = self.cached.get(number, durable)
        if chance is None or cached == durable:
            return durable
        match chance.randrange(4):
            case 0:
                return durable
            case 1:
                return cached
            case 2:
                return cached[: max(len(durable), chance.randrange(0, len(cached) + SECTOR, SECTOR))]
            case _:
                return _with_holes(durable, cached, chance)


def _with_holes(durable: bytes, cached: bytes, chance: random.Random) -> bytes:
    """As long as in the cache; beyond what was durable, some pieces never arrived.

    Pieces end where sectors end, and at a few other bytes: not every file system writes whole sectors.
    """
    start, end = len(durable), len(cached)
    sectors = range((start // SECTOR + 1) * SECTOR, end, SECTOR)
    edges = sorted({start, *sectors, *(chance.randint(start, end) for _ in range(4)), end})
    pieces = (cached[a:b] if chance.getrandbits(1) else bytes(b - a) for a, b in pairwise(edges))
    return cached[:start] + b"".join(pieces)


@dataclass
class _Disk:
    names: dict[Path, dict[str, int | None]] = field(default_factory=dict)
    content: dict[int, bytes] = field(default_factory=dict)
    index: bytes | None = None


class KilledError(BaseException):
    """The process is gone; its page cache is not."""


class ForgettingFiles(CountingFiles):
    """Records, before each operation, what a power cut then would leave of ``base``."""

    def __init__(
        self, base: Path, promised: Callable[[], int], forgets: Forgets = lambda _name, _path: False
    ) -> None:
        super().__init__()
        self.cuts: list[Cut] = []
        self.dies_at: int | None = None
        """Before which operation the process is killed; no cuts are recorded then."""
        self._base = base
        self._promised = promised
        self._forgets = forgets
        self._disk = _Disk()
        self._pending: dict[Path, tuple[Change, ...]] = {}
        self._ids: dict[Path, int] = {}
        self._next_id = 0

    def _perform(self, operation: Operation, act: Callable[[], T]) -> T:
        if operation.number == self.dies_at:
            raise KilledError(operation)
        if self.dies_at is None:
            self._record(operation)
        return act()

    def _record(self, operation: Operation) -> None:
        promised = self._promised()  # first: what is promised later may not be on this disk yet
        cached = self._cache()
        disk = self._disk
        names = {path: dict(held) for path, held in disk.names.items()}
        self.cuts.append(
            Cut(operation, promised, names, dict(disk.content), disk.index, dict(self._pending), cached)
        )

    def finish(self) -> list[Cut]:
        """Every cut, and one after everything."""
        with self._turn:
            self._record(Operation(len(self.operations) + 1, "the end", ""))
        return self.cuts

    def _cache(self) -> dict[int, bytes]:
        paths = (Path(folder, name) for folder, _folders, names in os.walk(self._base) for name in names)
        return {self._id(path): path.read_bytes() for path in paths if path.parent.name != "index"}

    def _change(self, folder: Path, gone: str | None, come: str | None, number: int | None) -> None:
        self._pending[folder] = (*self._pending.get(folder, ()), Change(gone, come, number))

    def _list(self, folder: Path) -> dict[str, int | None]:
        with os.scandir(folder) as found:
            return {e.name: None if e.is_dir() else self._id(folder / e.name) for e in found}

    def _id(self, path: Path) -> int:
        if path not in self._ids:
            self._ids[path] = self._next_id
            self._next_id += 1
        return self._ids[path]

    def note_index(self, path: Path) -> None:
        with self._turn:
            if path.is_relative_to(self._base):
                self._disk.index = (path / "data.mdb").read_bytes()

    # --- what moves names

    def open_append(self, path: Path, mode: int = PUBLIC_MODE) -> int:
        with self._turn:
            new = not path.exists()
            if new:
                self._ids.pop(path, None)
            fd = super().open_append(path, mode)
            if new:
                self._change(path.parent, None, path.name, self._id(path))
            return fd

    def rename(self, source: Path, target: Path) -> None:
        with self._turn:
            super().rename(source, target)
            self._ids[target] = self._ids.pop(source)
            self._change(target.parent, source.name, target.name, self._ids[target])

    def remove(self, path: Path) -> None:
        with self._turn:
            super().remove(path)
            if self._ids.pop(path, None) is not None:
                self._change(path.parent, path.name, None, None)

    def make_directory(self, path: Path, mode: int = 0o755) -> None:
        with self._turn:
            new = [folder for folder in (path, *path.parents) if not folder.exists()]
            super().make_directory(path, mode)
            for folder in reversed(new):
                self._change(folder.parent, None, folder.name, None)

    # --- what makes things durable

    def sync(self, fd: int) -> None:
        with self._turn:
            super().sync(fd)
            path = self._paths[fd]
            if not self._forgets("sync", path):
                self._disk.content[self._id(path)] = read_exactly(fd, os.fstat(fd).st_size, 0)

    def sync_directory(self, path: Path) -> None:
        with self._turn:
            super().sync_directory(path)
            if not self._forgets("sync_directory", path):
                self._disk.names[path] = self._list(path)
                self._pending.pop(path, None)


@contextmanager
def noting_the_index(files: ForgettingFiles) -> Iterator[None]:
    """While this holds, every ``Index.write`` that returns is durable in ``files``' eyes."""
    write = Index.write

    def write_and_note(self: Index, change: Callable[..., T]) -> T:
        done = write(self, change)
        files.note_index(self._path)
        return done

    Index.write = write_and_note  # type: ignore[method-assign]
    try:
        yield
    finally:
        Index.write = write  # type: ignore[method-assign]
