"""The memory of a monitor about each hub: one table in LMDB, or in memory for a single run.

Keys begin with 16 bytes that stand for the hub's address, then one letter:

- ``r``: the hub's record: identity, name of the log, largest hub checkpoint, how many entries are checked;
- ``h`` + label: the newest checked head of the label and its index;
- ``n`` + height + index: nodes of the tree over the checked entries, as far as the last ``WINDOW_ENTRIES``
  need them. With them the monitor can prove a fork although the hub has thrown its longer log away;
- ``u`` + label + index: a step of a label that the hub could not prove, and the index of its later head;
- ``f`` + hash: a permanent finding.

One commit writes the heads, the nodes and the count of checked entries together. A crash repeats at most the
entries of one commit.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, Literal, ParamSpec, Protocol

from veen_core.errors import DecodeError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, UnixTime
from veen_core.mmr import Node
from veen_core.tlog.tree import Tree, tree_at
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, int_map
from veen_hub.monitor.findings import Finding, Key, OpenFinding
from veen_hub.monitor.rules import HeadPair, HeadPlace
from veen_storage import DamageError, ViewStore

P = ParamSpec("P")
WINDOW_ENTRIES: Final = 65_536
"""Newest entries of the hub log whose nodes are remembered, about 6 MiB."""
START_ANEW: Final = "move the folder away; a monitor without memory pins the hub anew and starts from entry 0"
NEVER: Final = UnixTime(0)
_INDEX_SIZE: Final = 8


class MonitorTable(Protocol):
    """Bytes by key, in order of keys; a write is one durable step."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]: ...
    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None: ...
    def close(self) -> None: ...


class MemoryTable:
    """A table that ends with the process."""

    def __init__(self) -> None:
        self._items: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._items.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        found = sorted(key for key in self._items if start <= key < stop)
        return iter([(key, self._items[key]) for key in found])

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        for key in deletes:
            self._items.pop(key, None)
        self._items |= puts

    def close(self) -> None:
        self._items.clear()


def open_table(folder: Path) -> ViewStore:
    """Open the table of a state folder, or make it."""
    path = folder / "memory"
    try:
        return ViewStore(path)
    except DamageError as exc:
        raise DamageError(exc.file, exc.offset, exc.what, START_ANEW) from exc


@int_map("monitored hub", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubRecord(Wire):
    """The facts about one hub that outlive a round."""

    ver: Literal[1] = 1
    url: str
    identity: HubIdentity
    origin: str
    checkpoint: bytes | None = None
    """The largest hub checkpoint that the hub has shown."""
    checked: int = 0
    """Entries of the hub log that have been read and checked."""
    labels: int = 0
    newest_ts: UnixTime = NEVER
    """The newest ``hub_ts`` among the checked entries."""
    quorum_at: UnixTime | None = None
    """When a quorum of witnesses last cosigned a hub checkpoint that the hub has shown."""


@int_map("monitored step", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Wire):
    """A step of a label that the hub could not prove."""

    ver: Literal[1] = 1
    earlier: LabelHead
    earlier_index: int
    later: LabelHead
    later_index: int


@int_map("monitor finding", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord(Wire):
    """A permanent finding."""

    ver: Literal[1] = 1
    check: str
    key: str
    subject: str
    message: str
    since: UnixTime
    file: str | None = None


async def write_to_end(write: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Write in a thread. A caller that is cancelled waits: the table must not be closed meanwhile."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *args, **kwargs))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


class HubMemory:
    """The part of the table that is about one hub; one event loop or thread uses it at a time."""

    def __init__(self, table: MonitorTable, url: str) -> None:
        self._table = table
        self._prefix = sha256(url.encode()).digest()[:16]
        content = table.get(self._key(b"r"))
        try:
            self.record = HubRecord.decode(content) if content is not None else None
            self.held = self._parse_held()
        except DecodeError as exc:
            raise DamageError("memory/data.mdb", None, str(exc), START_ANEW) from exc
        self.tree = tree_at(self.checked, self.node)
        """The tree over the checked entries."""

    def _key(self, kind: bytes, rest: bytes = b"") -> bytes:
        return self._prefix + kind + rest

    def _parse_held(self) -> SignedHead | None:
        record = self.record
        return parse_signed_head(record.checkpoint) if record and record.checkpoint is not None else None

    @property
    def known(self) -> HubRecord:
        """The record, once the hub is identified."""
        assert self.record is not None
        return self.record

    @property
    def checked(self) -> int:
        return self.record.checked if self.record is not None else 0

    # --- the record

    def save(self, record: HubRecord) -> None:
        """Replace the record."""
        self._table.write({self._key(b"r"): record.encode()})
        self._take(record)

    def hold(self, signed: SignedHead, quorum_at: UnixTime | None) -> None:
        """Remember a hub checkpoint that extends the one held, and when a quorum cosigned it."""
        newest = max(filter(None, (quorum_at, self.known.quorum_at)), default=None)
        changed = dataclasses.replace(self.known, checkpoint=signed.encode(), quorum_at=newest)
        if changed != self.record:
            self.save(changed)

    def _take(self, record: HubRecord) -> None:
        self.record = record
        self.held = self._parse_held()

    # --- entries

    def head(self, label: Label) -> HeadPlace | None:
        """Return the newest checked head of a label."""
        content = self._table.get(self._key(b"h", label))
        if content is None:
            return None
        index = int.from_bytes(content[:_INDEX_SIZE], "big")
        return HeadPlace(index, LabelHead.decode(content[_INDEX_SIZE:]))

    def node(self, height: int, index: int) -> bytes:
        """Return a node of the tree over the checked entries; raise ``KeyError`` if it is forgotten."""
        found = self._table.get(self._node_key(height, index))
        if found is None:
            raise KeyError((height, index))
        return found

    def _node_key(self, height: int, index: int) -> bytes:
        return self._key(b"n", bytes([height]) + index.to_bytes(_INDEX_SIZE, "big"))

    def commit(
        self,
        tree: Tree,
        nodes: Iterable[Node],
        heads: Mapping[Label, HeadPlace],
        unproven: Iterable[HeadPair],
    ) -> None:
        """Remember checked entries: the tree over all of them, its new nodes, and the heads that moved."""
        puts = {
            self._node_key(node.height, node.index): node.hash
            for node in nodes
            if node.index >= first_kept(node.height, tree.size)
        }
        puts |= {self._key(b"h", label): _encode_place(place) for label, place in heads.items()}
        puts |= {self._step_key(step): _encode_step(step) for step in unproven}
        new_labels = sum(self._table.get(self._key(b"h", label)) is None for label in heads)
        record = dataclasses.replace(
            self.known,
            checked=tree.size,
            labels=self.known.labels + new_labels,
            newest_ts=max([self.known.newest_ts, *(place.head.hub_ts for place in heads.values())]),
        )
        puts[self._key(b"r")] = record.encode()
        self._table.write(puts, self._forgotten(self.checked, tree.size))
        self._take(record)
        self.tree = tree

    def _forgotten(self, before: int, after: int) -> list[bytes]:
        """Return the keys of nodes that only cuts before the window need."""
        return [
            self._node_key(height, index)
            for height in range(before.bit_length())
            for index in range(first_kept(height, before), min(first_kept(height, after), before >> height))
        ]

    # --- steps that were not proved

    def unproven(self, limit: int) -> list[HeadPair]:
        """Return the first steps that the hub could not prove."""
        return [_decode_step(value) for value in islice(self._scan(b"u"), limit)]

    def settle_step(self, step: HeadPair) -> None:
        """Forget a step, because it is proved or the hub is convicted."""
        self._table.write({}, [self._step_key(step)])

    def is_unproven(self, label: Label) -> bool:
        """Return whether there is a step of this label that the hub could not prove."""
        return any(True for _ in self._scan(b"u", label))

    def _step_key(self, step: HeadPair) -> bytes:
        later = step.later
        return self._key(b"u", later.head.label + later.index.to_bytes(_INDEX_SIZE, "big"))

    # --- findings

    def findings(self) -> Iterator[OpenFinding]:
        """Yield the permanent findings of earlier runs."""
        for value in self._scan(b"f"):
            record = FindingRecord.decode(value)
            yield OpenFinding(
                finding=Finding(
                    key=Key(record.key), subject=record.subject, message=record.message, permanent=True
                ),
                check=record.check,
                since=record.since,
                file=Path(record.file) if record.file is not None else None,
                kept=True,
            )

    def keep(self, found: OpenFinding) -> None:
        """Remember a permanent finding."""
        finding = found.finding
        record = FindingRecord(
            check=found.check,
            key=finding.key.value,
            subject=finding.subject,
            message=finding.message,
            since=found.since,
            file=str(found.file) if found.file is not None else None,
        )
        name = sha256("\0".join(found.id).encode()).digest()[:16]
        self._table.write({self._key(b"f", name): record.encode()})

    def _scan(self, kind: bytes, label: bytes = b"") -> Iterator[bytes]:
        """Yield the values of one kind, or of one kind and label, in order of keys."""
        start = self._key(kind, label)
        stop = start + b"\xff" * (_INDEX_SIZE + 1) if label else self._key(bytes([kind[0] + 1]))
        for _key, value in self._table.scan(start, stop):
            yield value


def first_kept(height: int, size: int) -> int:
    """Return the first node of a height that a cut within the window of a tree of ``size`` may need.

    The tree at ``at`` entries has the peak ``(at >> height) - 1`` at each height, and ``at`` is at least
    ``size - WINDOW_ENTRIES``.
    """
    return max(0, ((size - WINDOW_ENTRIES) >> height) - 1) if size > WINDOW_ENTRIES else 0


def _encode_place(place: HeadPlace) -> bytes:
    return place.index.to_bytes(_INDEX_SIZE, "big") + place.head.encode()


def _encode_step(step: HeadPair) -> bytes:
    return StepRecord(
        earlier=step.earlier.head,
        earlier_index=step.earlier.index,
        later=step.later.head,
        later_index=step.later.index,
    ).encode()


def _decode_step(value: bytes) -> HeadPair:
    record = StepRecord.decode(value)
    return HeadPair(
        HeadPlace(record.earlier_index, record.earlier), HeadPlace(record.later_index, record.later)
    )
