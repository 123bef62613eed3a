"""Errors about a data directory, in families by who can act.

VeenError
└── StorageError          any error about a data directory; names file, offset and next step
    ├── DamageError       the content of a file is wrong: run fsck, then repair or restore
    │   └── LostError     an attachment was stored and is missing (``read.attachments``)
    ├── LockedError       another process has the directory open
    ├── MismatchError     the directory belongs to another hub, format, registry or profile
    ├── ClosedError       the directory was closed: open it again
    ├── PoisonedError     a write or sync failed: nothing is acknowledged until the directory is reopened
    └── AbsentError       no such label, entry, checkpoint or attachment exists
        └── PrunedError   retention removed the payload; the receipt is kept
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from veen_core.errors import VeenError

FSCK: Final = "run `veen hub fsck`"
REPAIR: Final = "run `veen hub repair`"
RESTORE: Final = "restore it from a clone"
SEGMENT_BACK: Final = "put the segment back, or run `veen hub repair` to continue without its batches"
JOURNAL_BACK: Final = "put journal/ back as it was, or run `veen hub repair` to continue without its batches"
REPAIRABLE: Final = frozenset({REPAIR, SEGMENT_BACK, JOURNAL_BACK})
"""The actions for damage that does not keep `veen hub repair` from its work."""


class StorageError(VeenError):
    """Any error about a data directory."""


class DamageError(StorageError):
    """The content of a file is wrong. Damage is reported and never skipped."""

    action: str

    def __init__(self, file: str, offset: int | None, what: str, action: str = FSCK) -> None:
        at = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{file}{at}: {what}", action=action)
        self.file = file
        self.offset = offset
        self.what = what


def unreadable(name: str, exc: OSError, offset: int | None = None) -> DamageError:
    """Return the ``DamageError`` for a file that the operating system does not let us read."""
    action = "check the disk and the file's permissions, or restore it from a clone"
    return DamageError(name, offset, f"cannot be read ({exc.strerror or exc})", action)


@contextmanager
def reading(name: str, offset: int | None = None) -> Iterator[None]:
    """Turn a read error inside the block into a ``DamageError`` that names the file.

    ``FileNotFoundError`` passes through: the caller may find the file under another name.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise unreadable(name, exc, offset) from exc


def read_file(path: Path, *, name: str | None = None, missing: str = RESTORE) -> bytes:
    """Read a file that must exist; raise ``DamageError`` if it is missing or unreadable.

    ``missing`` is the action to name if the file does not exist.
    """
    name = name if name is not None else path.name
    try:
        with reading(name):
            return path.read_bytes()
    except FileNotFoundError:
        raise DamageError(name, None, "is missing", missing) from None


class LockOwner(NamedTuple):
    """The process that has a data directory open."""

    pid: int
    """0 if unknown."""
    observable: bool
    """Whether other processes may read the directory meanwhile (``opening.observer``)."""


class LockedError(StorageError):
    """Another process has the directory open."""

    def __init__(self, root: Path, owner: LockOwner) -> None:
        super().__init__(
            f"the folder {root} is in use by process {owner.pid or 'unknown'}",
            action=f"stop it (`veen hub stop -d {root}`), or name another folder",
        )
        self.owner = owner


class MismatchError(StorageError):
    """The directory belongs to another hub, format, registry or profile than the caller asked for."""


class ClosedError(StorageError):
    """The directory was closed while a reader still used it."""


class PoisonedError(StorageError):
    """A write or sync failed, so the page cache cannot be trusted: nothing more is acknowledged."""


class AbsentError(StorageError):
    """No such label, entry, checkpoint or attachment exists."""


class PrunedError(AbsentError):
    """Retention removed the payload; receipt, leaf hash and proofs remain."""
