"""Where a client keeps its state: named records per hub (RESYNC0.4).

The contract of a ``StateStore``:

- ``save`` replaces a record atomically, and by default durably. After ``durable=False`` a power cut may
  bring back the previous record, whole.
- ``commit`` replaces several locked records durably, in one step: after a crash either has its old or its new
  content.
- ``load`` returns the record that was saved last.
- ``lock`` gives a record to one holder at a time, across processes, until ``release`` or the holder's death.
- ``save_evidence`` writes evidence against a hub durably and never changes it afterwards.

A record's name is a word, a label in hex, or either of them in a folder (``epochs/…``). Records contain
secrets (seeds of client_ids): files have mode 0600 in folders of mode 0700.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from veen_core.errors import StateError
from veen_core.ids import HubId
from veen_hub.client.atomic_files import (
    SECRET_MODE,
    expand_user,
    make_folder,
    remove_stale_temporaries,
    replace_file,
)
from veen_hub.client.state.journal import ClientJournal, record_file, recover

LOCK_POLL_SECONDS: Final = 0.01
"""Time between two attempts to take a lock that another holder has."""
EVIDENCE_FOLDER: Final = "evidence"


class Lock(Protocol):
    """A lock on a record, held until ``release``."""

    def release(self) -> None: ...


@runtime_checkable
class StateStore(Protocol):
    """Durable storage of a client's records; the module docstring states the contract.

    Every method may be called from any thread.
    """

    def load(self, hub: HubId, name: str) -> bytes | None:
        """Return the record, or None if there is none."""

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        """Replace the record."""

    def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
        """Replace records that the caller has locked, durably."""

    def lock(self, hub: HubId, name: str) -> Lock | None:
        """Lock the record; None if another holder has it."""

    def save_evidence(self, hub: HubId, files: Mapping[str, bytes]) -> Path | None:
        """Write evidence against ``hub`` and return its folder; None if this store keeps no files."""


def update(
    store: StateStore, hub: HubId, name: str, change: Callable[[bytes | None], bytes], *, lock_timeout: float
) -> None:
    """Replace a record by ``change(record)``, under the record's lock. Blocks; run it in a thread."""
    until = time.monotonic() + lock_timeout
    while (lock := store.lock(hub, name)) is None:
        if time.monotonic() > until:
            raise StateError(
                f"another process has locked the record {name} of hub {hub.hex()} for {lock_timeout:g} s",
                action="let that process finish, or give this client a state folder of its own",
            )
        time.sleep(LOCK_POLL_SECONDS)
    try:
        store.save(hub, name, change(store.load(hub, name)))
    finally:
        lock.release()


class FileLock:
    """An ``flock`` on a lock file; the kernel releases it when the process dies."""

    __slots__ = ("_before", "_fd")

    def __init__(self, fd: int, before: Callable[[], None]) -> None:
        """``before`` is called before the lock is released; if it fails, the record stays locked."""
        self._fd = fd
        self._before = before

    def release(self) -> None:
        if self._fd >= 0:
            self._before()
            os.close(self._fd)
            self._fd = -1


class FileStateStore:
    """Records as files: ``root/<hub_id>/<name>.state`` and its lock ``<name>.lock``.

    A committed record is in this process's journal until its lock is released. Evidence against a hub is in
    ``root/<hub_id>/evidence/<digest>/``.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = expand_user(root)
        self._journals: dict[HubId, ClientJournal] = {}
        for pattern in ("*/*.state", "*/*/*.state"):  # temporary files hold keys too
            remove_stale_temporaries(self.root, pattern)

    def _folder(self, hub: HubId) -> Path:
        return self.root / hub.hex()

    def _journal(self, hub: HubId) -> ClientJournal:
        return self._journals.get(hub) or self._journals.setdefault(hub, ClientJournal(self._folder(hub)))

    def file(self, hub: HubId, name: str) -> Path:
        """Return the file of a record."""
        return record_file(self._folder(hub), name)

    def recover(self, hub: HubId) -> None:
        """Move all records from the journals of dead processes to the records' files."""
        recover(self._folder(hub))

    def load(self, hub: HubId, name: str) -> bytes | None:
        if (content := self._journal(hub).get(name)) is not None:
            return content
        path = self.file(hub, name)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StateError(f"{path}: the state cannot be read: {exc.strerror}") from exc

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        if name in self._journal(hub):
            self._journal(hub).append({name: content}, durable=durable)
        else:
            replace_file(self.file(hub, name), content, durable=durable)

    def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
        self._journal(hub).append(records, durable=True)

    def lock(self, hub: HubId, name: str) -> Lock | None:
        path = self._folder(hub) / f"{name}.lock"
        try:
            make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
        except OSError as exc:
            raise StateError(f"{path}: the lock file cannot be opened: {exc.strerror}") from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        try:
            self.recover(hub)  # the process that had the lock before may have died
        except BaseException:
            os.close(fd)
            raise
        return FileLock(fd, lambda: self._journal(hub).take_out(name))

    def save_evidence(self, hub: HubId, files: Mapping[str, bytes]) -> Path | None:
        """Write the files into a folder named by their digest: the same evidence is kept once."""
        digest = sha256(b"".join(files.values())).hexdigest()[:16]
        folder = self._folder(hub) / EVIDENCE_FOLDER / digest
        for name, content in files.items():
            replace_file(folder / name, content)
        return folder


class MemoryLock:
    """An entry in a dictionary of locks, keyed by hub and record name."""

    __slots__ = ("_key", "_locks")

    def __init__(self, locks: dict[tuple[HubId, str], MemoryLock], key: tuple[HubId, str]) -> None:
        self._locks = locks
        self._key = key

    def take(self) -> bool:
        """Take the lock if it is free; atomic, since several threads may try at once."""
        return self._locks.setdefault(self._key, self) is self

    def release(self) -> None:
        if self._locks.get(self._key) is self:
            del self._locks[self._key]


class MemoryStateStore:
    """Records in memory, for throwaway clients: a message pending when the process ends stays unsettled."""

    def __init__(self) -> None:
        self._records: dict[tuple[HubId, str], bytes] = {}
        self._locks: dict[tuple[HubId, str], MemoryLock] = {}

    def load(self, hub: HubId, name: str) -> bytes | None:
        return self._records.get((hub, name))

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        del durable
        self._records[hub, name] = content

    def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
        self._records |= {(hub, name): content for name, content in records.items()}

    def lock(self, hub: HubId, name: str) -> Lock | None:
        lock = MemoryLock(self._locks, (hub, name))
        return lock if lock.take() else None

    def save_evidence(self, hub: HubId, files: Mapping[str, bytes]) -> Path | None:
        del hub, files
        return None
