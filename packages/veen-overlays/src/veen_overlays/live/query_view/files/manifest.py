"""The manifest of a view: the log prefixes it covers, and the files it has (core §11.3, RESOLUTIONS P13).

The manifest is the only file of a view that is replaced; replacing it is the commit point of every change.
It names each source with its size and root, and each data file with its hash. A file that the manifest does
not name is not part of the view. The manifest ends with its own SHA-256, so that a torn one is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from veen_core.errors import DecodeError, StateError
from veen_core.export import FileHash
from veen_core.hashing import HASH_SIZE, H
from veen_core.ids import ClientId, HubId, Label, MmrRoot, NodeHash
from veen_core.wire import Wire, array, text_map
from veen_overlays.live.private_files import replace

MANIFEST: Final = "manifest"
REBUILD: Final = (
    "rebuild the view from the log: run `veen query run` or `veen query serve` once with --rebuild"
)
"""The action of every error about a damaged view."""


class DamagedViewError(StateError):
    """A file of a view is missing, torn or altered. The log is unharmed; the view can be rebuilt from it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, action=REBUILD)


@array("query view: key link", section="P10")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLink(Wire):
    """A principal and a client_id that signed key continuity links."""

    principal_id: ClientId
    client_id: ClientId


@array("query view: source", section="P13")
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSource(Wire):
    """One label whose entries have rows in the view, up to ``size``."""

    stream: str
    """The name in the scope of a query."""
    hub_id: HubId
    label: Label
    epoch: int
    size: int
    """Entries of the label that the view covers, without a gap from the first."""
    mmr_root: MmrRoot
    peaks: tuple[NodeHash, ...]
    last_receipt: bytes
    """The RECEIPT of entry ``size``, which signs the root."""
    links: tuple[KeyLink, ...]
    """The keys that the entries so far have linked (P10)."""
    own: int
    """Entries that are not copies of another hub's events; a source without any is not queried."""

    @property
    def key(self) -> tuple[str, bytes, bytes]:
        """The identity of the source: stream, hub_id and label."""
        return self.stream, self.hub_id, self.label


@array("query view: rows of a source in a file", section="P13")
@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows(Wire):
    """The rows of one source in one data file: their range of seq, and how many have each kind."""

    hub_id: HubId
    label: Label
    from_seq: int
    to_seq: int
    kinds: tuple[int, ...]
    """Number of rows per kind, by the value of the kind."""


@array("query view: data file", section="P13")
@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile(Wire):
    """One Parquet file: its partition, its hash and the statistics that let a query skip it."""

    name: str
    """The file's name without suffix; unique in the view."""
    run: int
    """Files of one run are sorted by subject as a whole, in the order of their names."""
    stream: str
    day: int
    """UTC days since 1970 of hub_commit_time."""
    rows: int
    size: int
    """Bytes of the file."""
    hash: FileHash
    from_time: int
    to_time: int
    """The least and the greatest hub_commit_time in milliseconds."""
    types: tuple[str, ...] | None
    """All values of event_type; None if there are many."""
    subjects: FileHash
    """The hash of the file with the Bloom filter of all values of subject_id."""
    spans: tuple[FileRows, ...]


@array("query view: feed", section="P13")
@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPosition(Wire):
    """How far a log that the view reads is consumed; its entries may have rows under other sources."""

    name: str
    next_epoch: int
    """The first epoch whose label may still grow, or was not read."""


@array("query view: origin log", section="P7")
@dataclass(frozen=True, slots=True, kw_only=True)
class OriginLog(Wire):
    """How far a bridge's audit log is consumed: all origins up to ``size`` were matched with their events."""

    name: str
    label: Label
    size: int
    peaks: tuple[NodeHash, ...]


@array("query view: home", section="P13")
@dataclass(frozen=True, slots=True, kw_only=True)
class Home(Wire):
    """A stream that the view reads, and the hub that a coverage names while the stream is empty."""

    stream: str
    hub_id: HubId


@array("query view: waiting events", section="P7")
@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFile(Wire):
    """The file of the imported events that wait for an event before them."""

    name: str
    """The file's name without suffix; unique in the view."""
    size: int
    """Bytes of the file."""
    hash: FileHash


@text_map("query view manifest", section="P13")
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewManifest(Wire):
    """The complete content of a view. Two views with equal sources answer every query alike."""

    version: Literal[1] = 1
    sources: tuple[ViewSource, ...] = ()
    files: tuple[DataFile, ...] = ()
    feeds: tuple[FeedPosition, ...] = ()
    origin_logs: tuple[OriginLog, ...] = ()
    homes: tuple[Home, ...] = ()
    next_name: int = 0
    """Number of the next file: a name is used once."""
    waiting: WaitingFile | None = None


def save_manifest(folder: Path, manifest: ViewManifest) -> None:
    """Replace the manifest: the commit point of every change of a view."""
    content = manifest.encode()
    replace(folder / MANIFEST, content + H(content))


def load_manifest(folder: Path) -> ViewManifest | None:
    """Load the manifest; None if the view is new. Raise ``DamagedViewError`` if it is torn or altered."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body, digest = content[:-HASH_SIZE], content[-HASH_SIZE:]
    if H(body) != digest:
        raise DamagedViewError(f"{path}: the manifest does not have its own hash")
    try:
        return ViewManifest.decode(body)
    except DecodeError as exc:
        raise DamagedViewError(f"{path}: {exc.message}") from None
