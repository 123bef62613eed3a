"""What can go wrong with a data directory, by who can act.

VeenError
└── StorageError          anything about a data directory; says file, offset and what to do
    ├── DamageError       a file does not hold what it must: run fsck, then repair or restore
    │   └── LostError     an attachment was put and is missing (``attachments``)
    ├── LockedError       another process has the directory open
    ├── MismatchError     the directory is not the one that was asked for
    ├── ClosedError       the directory was closed: open it again
    ├── PoisonedError     a write or sync failed: nothing is acknowledged until it is reopened
    └── AbsentError       there is no such label, entry, checkpoint or attachment
        └── PrunedError   there was: its payload is pruned, its receipt is kept
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from veen_core.errors import VeenError


class StorageError(VeenError):
    """Anything about a data directory."""


class DamageError(StorageError):
    """A file does not hold what it must. Never skipped over."""

    def __init__(self, file: str, offset: int | None, what: str, remedy: str = "run `veen hub fsck`") -> None:
        at = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{file}{at}: {what}; {remedy}")
        self.file = file
        self.offset = offset
        self.what = what
        self.remedy = remedy


def unreadable(name: str, exc: OSError, offset: int | None = None) -> DamageError:
    """What the disk does not give: damage as well, if it is not a matter of permissions."""
    what = f"cannot be read ({exc.strerror or exc})"
    return DamageError(name, offset, what, "look at the disk and at permissions, or restore it from a clone")


@contextmanager
def reading(name: str, offset: int | None = None) -> Iterator[None]:
    """What the disk does not give is said with the file's name, which the system leaves out.

    A file that is not there is for the caller: it may have another name by now.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise unreadable(name, exc, offset) from exc


class Holder(NamedTuple):
    """A process that has a data directory open."""

    pid: int
    """0 if it does not say."""
    observable: bool
    """Whether others may read beside it (``observer``)."""


class LockedError(StorageError):
    """Another process has the directory open."""

    def __init__(self, root: Path, holder: Holder) -> None:
        super().__init__(f"{root} is in use by process {holder.pid or 'unknown'}: stop it first")
        self.holder = holder


class MismatchError(StorageError):
    """The directory is not the one that was asked for: another hub, format, registry or profile."""


class ClosedError(StorageError):
    """The directory was closed while somebody still read it."""


class PoisonedError(StorageError):
    """A write or sync failed; the page cache cannot be trusted, so nothing more is acknowledged."""


class AbsentError(StorageError):
    """There is no such label, entry, checkpoint or attachment."""


class PrunedError(AbsentError):
    """The payload was pruned by retention; receipt, leaf hash and proofs remain."""
