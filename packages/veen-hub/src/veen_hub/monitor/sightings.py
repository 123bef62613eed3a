"""Statements of hubs in the files of clients (``--seen``): receipts and hub checkpoints.

A file is read for every RECEIPT and hub checkpoint in it: receipts, hub evidence, notes, the records of a
client's state folder and of its journals, and evidence of forks. Other files of a folder are skipped.
Nothing is verified here: which hub signed a statement is decided by its signature.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen_core import cbor
from veen_core.api import ReceiptResponse
from veen_core.equivocation import Equivocation
from veen_core.errors import ConfigError, DecodeError, StateError
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_fork import HubLogFork, LabelFork, LabelStatement
from veen_core.hub_log import HubProofResponse
from veen_core.receipt import Receipt
from veen_core.tlog.note import MAX_NOTE_BYTES
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire
from veen_hub.client.state.journal import SUFFIX as JOURNAL
from veen_hub.client.state.journal import replay
from veen_hub.client.state.records import HubCheckpointRecord, LabelRecord

MAX_FILE_BYTES: Final = 64 * 1_048_576
"""Largest file that is read; larger ones are skipped."""


class SeenBy(enum.StrEnum):
    """The kind of party that has seen a hub checkpoint."""

    CLIENT = "client"
    """A client: the hub had published the hub checkpoint."""
    WITNESS = "witness"
    """A witness: it cosigned the hub checkpoint, before the hub published it."""
    ADDRESS = "address"
    """Another address of the same hub, which shows the hub checkpoint."""


@dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """A hub checkpoint that someone else has seen."""

    signed: SignedHead
    seen_by: SeenBy
    name: str
    """The witness, file or address."""


@dataclass(frozen=True, slots=True)
class SeenReceipt:
    """A receipt that a client has."""

    receipt: Receipt
    name: str
    """The file."""


@dataclass(slots=True)
class Seen:
    """The receipts and hub checkpoints found in files of clients."""

    receipts: list[SeenReceipt] = field(default_factory=list)
    checkpoints: list[SeenCheckpoint] = field(default_factory=list)

    def add(self, thing: Wire | SignedHead, name: str) -> None:
        """Add the statements that an object contains."""
        match thing:
            case SignedHead():
                self.checkpoints.append(SeenCheckpoint(thing, SeenBy.CLIENT, name))
            case Receipt():
                self.receipts.append(SeenReceipt(thing, name))
            case HubEvidence() | HubProofResponse() | HubCheckpointRecord():
                self._add_note(thing.checkpoint, name)
                if isinstance(thing, HubEvidence):
                    self.add(thing.receipt, name)
            case LabelRecord():
                if thing.state.head is not None:
                    self.add(thing.state.head, name)
            case ReceiptResponse():
                self.add(thing.receipt, name)
            case Equivocation():
                self.add(thing.first.receipt, name)
                self.add(thing.second.receipt, name)
            case HubLogFork():
                self._add_note(thing.earlier, name)
                self._add_note(thing.later, name)
            case LabelFork():
                self._add_stated(thing.earlier, name)
                self._add_stated(thing.later, name)

    def _add_note(self, note: bytes, name: str) -> None:
        self.add(parse_signed_head(note), name)

    def _add_stated(self, statement: LabelStatement, name: str) -> None:
        if statement.receipt is not None:
            self.add(statement.receipt, name)
        if statement.checkpoint is not None:
            self._add_note(statement.checkpoint, name)

    def extend(self, other: Seen) -> None:
        self.receipts += other.receipts
        self.checkpoints += other.checkpoints

    def __bool__(self) -> bool:
        return bool(self.receipts or self.checkpoints)


KINDS: Final[tuple[type[Wire], ...]] = (
    Receipt,
    HubEvidence,
    LabelRecord,
    HubCheckpointRecord,
    Equivocation,
    HubLogFork,
    LabelFork,
    HubProofResponse,
    ReceiptResponse,
)


def read_statements(path: Path) -> Seen:
    """Return the statements in one file; empty if it is not a file of a kind above."""
    found = Seen()
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return found
        data = path.read_bytes()
    except OSError:  # replaced meanwhile: it is read again in the next round
        return found
    reading = _read_journal if path.suffix == JOURNAL else _read_note if b"\n\n" in data else _read_objects
    for read in (reading, _read_objects):
        try:
            for thing in read(path, data):
                found.add(thing, str(path))
        except (DecodeError, StateError):
            continue
        if found:
            break
    return found


def _read_note(_path: Path, data: bytes) -> Iterator[SignedHead]:
    if len(data) <= MAX_NOTE_BYTES:
        yield parse_signed_head(data)


def _read_objects(_path: Path, data: bytes) -> Iterator[Wire]:
    """Yield the objects of a CBOR sequence."""
    for item in cbor.split_sequence(data):
        if (thing := _decode(item)) is not None:
            yield thing


def _read_journal(path: Path, data: bytes) -> Iterator[Wire]:
    records: dict[str, bytes] = {}
    replay(data, path, records)
    for content in records.values():
        if (thing := _decode(content)) is not None:
            yield thing


def _decode(data: bytes) -> Wire | None:
    for kind in KINDS:
        try:
            return kind.decode(data)
        except DecodeError:
            continue
    return None


class SeenFiles:
    """The files that ``--seen`` names; only files that have changed are read again."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._known: dict[Path, tuple[tuple[int, int, int], Seen]] = {}

    def check(self) -> None:
        """Raise ``ConfigError`` if a path does not exist, or if a single file has no statement."""
        for path in self._paths:
            if not path.exists():
                raise ConfigError(f"--seen {path}: there is no such file or folder", action="check the name")
            if path.is_file() and not read_statements(path):
                raise ConfigError(
                    f"--seen {path}: has no receipt and no hub checkpoint",
                    action="give files of receipts or evidence, or a client's folder",
                )

    def read(self) -> Seen:
        """Return the statements in all files as they are now."""
        known, found = self._known, Seen()
        self._known = {}
        for path in self._paths:
            for file in _files_in(path):
                if (at := _version_of(file)) is None:
                    continue
                before = known.get(file)
                seen = before[1] if before is not None and before[0] == at else read_statements(file)
                self._known[file] = at, seen
                found.extend(seen)
        return found


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file does; None if the file is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _files_in(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
    else:
        yield path
