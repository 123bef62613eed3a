"""Where a client keeps its state: named records per hub (RESYNC0.4).

The contract of a ``StateStore``:

- ``save`` replaces a record atomically, and by default durably. After ``durable=False`` a power cut may
  bring back the previous record, whole.
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
from veen_hub.client.state.atomic_files import (
    FOLDER_MODE,
    SECRET_MODE,
    expand_user,
    remove_stale_temporaries,
    replace,
)

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

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileStateStore:
    """Records as files: ``root/<hub_id>/<name>.state`` and its lock ``<name>.lock``.

    Evidence against a hub is in ``root/<hub_id>/evidence/<digest>/``.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = expand_user(root)
        for pattern in ("*/*.state", "*/*/*.state"):  # temporary files hold keys too
            remove_stale_temporaries(self.root, pattern)

    def _path(self, hub: HubId, name: str, suffix: str) -> Path:
        return self.root / hub.hex() / f"{name}.{suffix}"

    def load(self, hub: HubId, name: str) -> bytes | None:
        path = self._path(hub, name, "state")
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StateError(f"{path}: the state cannot be read: {exc.strerror}") from exc

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        replace(self._path(hub, name, "state"), content, durable=durable)

    def lock(self, hub: HubId, name: str) -> Lock | None:
        path = self._path(hub, name, "lock")
        try:
            path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
        except OSError as exc:
            raise StateError(f"{path}: the lock file cannot be opened: {exc.strerror}") from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return FileLock(fd)

    def save_evidence(self, hub: HubId, files: Mapping[str, bytes]) -> Path | None:
        """Write the files into a folder named by their digest: the same evidence is kept once."""
        digest = sha256(b"".join(files.values())).hexdigest()[:16]
        folder = self.root / hub.hex() / EVIDENCE_FOLDER / digest
        for name, content in files.items():
            replace(folder / name, content)
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

    def lock(self, hub: HubId, name: str) -> Lock | None:
        lock = MemoryLock(self._locks, (hub, name))
        return lock if lock.take() else None

    def save_evidence(self, hub: HubId, files: Mapping[str, bytes]) -> Path | None:
        del hub, files
        return None
