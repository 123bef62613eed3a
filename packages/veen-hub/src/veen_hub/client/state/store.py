"""Where a client keeps what must survive: per hub, named pieces of bytes (RESYNC0.4).

Contract of a ``StateStore``: ``save`` replaces a piece atomically, and durably unless told otherwise: then a
power cut may bring back the piece before it, whole;
``load`` gives the last one saved; ``lock`` gives a piece to one holder at a time, across processes, until
``release`` or the holder's death. A piece's name is a word, a label in hex, or one in a folder
(``epochs/…``). Contents are secret (client_id seeds): files are 0600 in folders of 0700.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from veen_core.errors import StateError
from veen_core.ids import HubId
from veen_hub.client.state.atomic_files import FOLDER, SECRET, expand_user, remove_stale_temporaries, replace

POLL: Final = 0.01
"""Seconds between two looks at a lock that somebody else holds."""


class Lock(Protocol):
    """Held until released."""

    def release(self) -> None: ...


@runtime_checkable
class StateStore(Protocol):
    """See the module's contract; every method may be called from any thread."""

    def load(self, hub: HubId, name: str) -> bytes | None: ...
    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None: ...
    def lock(self, hub: HubId, name: str) -> Lock | None:
        """None if somebody else holds it."""


def update(
    store: StateStore, hub: HubId, name: str, change: Callable[[bytes | None], bytes], patience: float
) -> None:
    """Replace a piece that several processes change by what ``change`` makes of it; for a thread."""
    until = time.monotonic() + patience
    while (lock := store.lock(hub, name)) is None:
        if time.monotonic() > until:
            raise StateError(f"another process holds {name} of hub {hub.hex()} in this state store")
        time.sleep(POLL)
    try:
        store.save(hub, name, change(store.load(hub, name)))
    finally:
        lock.release()


class FileLock:
    """``flock`` on a file of its own: the kernel lets go of it when the process dies."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileStateStore:
    """``root/<hub_id>/<name>.state``, with ``<name>.lock`` beside it; a slash in a name makes a folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = expand_user(root)
        for pattern in ("*/*.state", "*/*/*.state"):  # keys are in them
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
            path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET)
        except OSError as exc:
            raise StateError(f"{path}: cannot be opened: {exc.strerror}") from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return FileLock(fd)


class MemoryLock:
    """Whoever is under a name in a dictionary holds it."""

    __slots__ = ("_held", "_name")

    def __init__(self, held: dict[tuple[HubId, str], MemoryLock], name: tuple[HubId, str]) -> None:
        self._held = held
        self._name = name

    def take(self) -> bool:
        """In one step, since threads may ask at once."""
        return self._held.setdefault(self._name, self) is self

    def release(self) -> None:
        if self._held.get(self._name) is self:
            del self._held[self._name]


class MemoryStateStore:
    """For throwaway clients: forgets everything with the process, and cannot settle what that left open."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[HubId, str], bytes] = {}
        self._held: dict[tuple[HubId, str], MemoryLock] = {}

    def load(self, hub: HubId, name: str) -> bytes | None:
        return self._pieces.get((hub, name))

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        del durable
        self._pieces[hub, name] = content

    def lock(self, hub: HubId, name: str) -> Lock | None:
        lock = MemoryLock(self._held, (hub, name))
        return lock if lock.take() else None
