"""The files of one hub log, on the driver: notes, manifest, and entries split into parts (RESOLUTIONS P1).

The notes are the newest hub checkpoint, which covers all entries, and the published one. In an export of a
whole hub, the manifest states the number of labels and the size of the hub log.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from veen_core.errors import VerificationError
from veen_core.hub_export import (
    HUB_EXPORT,
    HUB_HEAD,
    HUB_LOG,
    HUB_LOG_CHECKPOINT,
    HUB_LOG_ENTRIES,
    HUB_LOG_PUBLISHED,
    LABELS,
    HubHead,
    HubManifest,
)
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import IDENTITY, LOG
from veen_spark.verify.hub_log.entries import LENGTH_BYTES, EntriesPart
from veen_spark.verify.origin import blame, read_identity

READ_BYTES: Final = 4 * 1_048_576
CLONE: Final = "if the hub is running or was killed, verify a clone of its directory instead"


class TreeState(NamedTuple):
    """The tree of a hub log at one size."""

    root: bytes
    newest_ts: int
    """The newest hub_ts in the tree."""


@dataclass(slots=True)
class HubLogFolder:
    """A folder with a hub log, and the parts of it that were read so far."""

    home: Path
    identity: HubIdentity
    manifest: HubManifest | None = None
    """The manifest of an export of a whole hub; None for a data directory."""
    checkpoint: SignedHead | None = None
    published: SignedHead | None = None
    parts: list[EntriesPart] = field(default_factory=list)
    """The entries, split; empty if they cannot be read to the end."""
    trees: dict[int, TreeState] = field(default_factory=dict)
    """The tree at the size of each hub checkpoint that it is compared with."""
    faults: list[DamagedLog] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """The folder that a fault of the hub log is reported for."""
        return str(self.home / HUB_LOG)

    @property
    def entries(self) -> str:
        """The file of entries."""
        return str(self.home / HUB_LOG_ENTRIES)

    @property
    def size(self) -> int:
        """The size of the tree that the newest hub checkpoint states."""
        return self.checkpoint.head.size if self.checkpoint is not None else 0

    def folder_of(self, label: Label) -> str:
        """Return the folder in which a label must be."""
        return str(self.home / (LOG if self.manifest is None else f"{LABELS}/{label.hex()}"))

    def notes(self) -> Iterator[tuple[str, SignedHead]]:
        """Yield the hub checkpoints with their files."""
        for name, signed in ((HUB_LOG_CHECKPOINT, self.checkpoint), (HUB_LOG_PUBLISHED, self.published)):
            if signed is not None:
                yield str(self.home / name), signed


def read_folder(
    home: Path, identity: HubIdentity, manifest: HubManifest | None = None
) -> HubLogFolder | None:
    """Read the notes of a hub log; return None if the folder has no hub log, raise ``DamagedLog``."""
    checkpoint, published = (_read_note(home / name) for name in (HUB_LOG_CHECKPOINT, HUB_LOG_PUBLISHED))
    if checkpoint is None:
        stated = manifest is not None and manifest.size
        if stated or published is not None or _size_of(home / HUB_LOG_ENTRIES):
            raise DamagedLog(str(home / HUB_LOG_CHECKPOINT), 0, "the file is missing")
        return None
    if manifest is not None and manifest.size != checkpoint.head.size:
        reason = f"states size {manifest.size} of the hub log, but its checkpoint has {checkpoint.head.size}"
        raise DamagedLog(str(home / HUB_EXPORT), 0, reason)
    if published is not None and published.head.size > checkpoint.head.size:
        reason = f"has size {published.head.size}, but the hub log ends at {checkpoint.head.size}"
        raise DamagedLog(str(home / HUB_LOG_PUBLISHED), 0, reason)
    return HubLogFolder(home, identity, manifest, checkpoint, published)


def read_hub_export(
    home: Path, pinned: Collection[HubId], given: HubIdentity | None
) -> tuple[HubIdentity, HubManifest]:
    """Read identity and manifest of an export of a whole hub; raise ``DamagedLog``."""
    with blame(home / IDENTITY):
        identity = read_identity(home, pinned, given)
    with blame(home / HUB_EXPORT):
        try:
            manifest = HubManifest.decode((home / HUB_EXPORT).read_bytes())
        except FileNotFoundError:
            raise VerificationError("the file is missing, so the export of the hub is incomplete") from None
        if manifest.hub_id != identity.hub_id:
            raise VerificationError(f"the hub_id differs from the one in {IDENTITY}")
    return identity, manifest


def check_label_heads(labels: Iterable[str], hub_log: HubLogFolder | None) -> None:
    """Raise ``DamagedLog`` if an exported label leads to a newer hub checkpoint than the hub log has.

    Without this check, a label could be hidden by leaving out the hub log, or by exporting an older one.
    """
    size = hub_log.size if hub_log is not None else 0
    for folder in labels:
        path = Path(folder, HUB_HEAD)
        if not path.is_file():
            continue
        with blame(path):
            shown = parse_signed_head(HubHead.decode(path.read_bytes()).checkpoint).head
            if shown.size > size:
                raise VerificationError(
                    f"P1: leads to a hub log of {shown.size} entries, but the export has one of {size}"
                )


def _read_note(path: Path) -> SignedHead | None:
    with blame(path):
        try:
            return parse_signed_head(path.read_bytes())
        except FileNotFoundError:
            return None


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# --- the entries


def split_entries(
    folder: HubLogFolder, number: int, max_bytes: int, cuts: Collection[int]
) -> list[EntriesPart]:
    """Split the entries that the hub checkpoint covers into parts of about ``max_bytes``.

    A part ends at each size in ``cuts``, so that the root at that size is known. Raise ``DamagedLog`` if the
    file has fewer entries than the hub checkpoint, or more.
    """
    path, size, parts = folder.entries, folder.size, list[EntriesPart]()
    if not size and not Path(path).exists():
        return parts
    count = index = begin = end = 0
    with blame(Path(path)), open(path, "rb") as file:
        for count, end in enumerate(islice(_ends(file), size), 1):
            if end - begin >= max_bytes or count in cuts or count == size:
                parts.append(
                    EntriesPart(
                        path=path, hub_log=number, index=index, count=count - index, begin=begin, end=end
                    )
                )
                index, begin = count, end
        length = os.fstat(file.fileno()).st_size
    if count < size:
        reason = f"ends within or after entry {count}, but the hub checkpoint covers {size} entries"
        raise DamagedLog(path, end, reason)
    if end < length:
        reason = f"has bytes after the {size} entries that the hub checkpoint covers; {CLONE}"
        raise DamagedLog(path, end, reason)
    return parts


def _ends(file: BinaryIO) -> Iterator[int]:
    """Yield where each entry ends, by the lengths alone, until the file ends."""
    base, rest = 0, b""
    while window := file.read(READ_BYTES):
        data, at = rest + window, 0
        while at + LENGTH_BYTES <= len(data):
            end = at + LENGTH_BYTES + (data[at] << 8 | data[at + 1])
            if end > len(data):
                break
            at = end
            yield base + at
        base, rest = base + at, data[at:]
