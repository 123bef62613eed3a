"""The tail: entries that are durable in the journal and not yet applied, for readers.

Readers look in the tail first and in the index second. The applier commits to the index first and drops from
the tail second. So every durable entry is found in one of the two.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from veen_core.checkpoint import Checkpoint
from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_storage.commit.changes import Anchor, Anchored, Changes, Checkpointed, HubExtended, Placed
from veen_storage.index.records import LabelNo


@dataclass(slots=True)
class _LabelTail:
    number: LabelNo
    placed: deque[Placed] = field(default_factory=deque)
    checkpoints: deque[Checkpoint] = field(default_factory=deque)
    anchors: deque[Anchor] = field(default_factory=deque)

    @property
    def empty(self) -> bool:
        return not self.placed and not self.checkpoints and not self.anchors


class Tail:
    """The durable batches that are not applied; thread-safe, and every result is a copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels: dict[Label, _LabelTail] = {}
        self._bytes = 0
        self._room = threading.Condition(self._lock)
        self.hub_log: tuple[HubExtended, ...] = ()
        """Extensions of the hub log in order. Never changed, only replaced, so that reading needs no lock."""

    def add(self, changes: Changes) -> None:
        with self._lock:
            for step in changes.steps:
                match step:
                    case Placed():
                        label = self._of(step.entry.label, step.number)
                        label.placed.append(step)
                        self._bytes += len(step.frame)
                    case Checkpointed():
                        label = self._of(step.checkpoint.label_curr, step.number)
                        label.checkpoints.append(step.checkpoint)
                    case Anchored():
                        label = self._of(step.anchor.label, step.number)
                        label.anchors.append(step.anchor)
                    case HubExtended():
                        self.hub_log = (*self.hub_log, step)
                        self._bytes += step.size

    def _of(self, label: Label, number: LabelNo) -> _LabelTail:
        if (tail := self._labels.get(label)) is None:  # not setdefault: making one costs 2 µs an entry
            tail = self._labels[label] = _LabelTail(number)
        return tail

    def drop(self, changes: Changes) -> None:
        """Drop the changes of one batch, which the index includes now."""
        with self._lock:
            for step in changes.steps:
                match step:
                    case Placed():
                        self._labels[step.entry.label].placed.popleft()
                        self._bytes -= len(step.frame)
                    case Checkpointed():
                        self._labels[step.checkpoint.label_curr].checkpoints.popleft()
                    case Anchored():
                        self._labels[step.anchor.label].anchors.popleft()
                    case HubExtended():
                        self.hub_log = self.hub_log[1:]
                        self._bytes -= step.size
            for name in changes.heads:
                if (tail := self._labels.get(name)) is not None and tail.empty:
                    del self._labels[name]
            self._room.notify_all()

    def wait_for_room(self, max_bytes: int, timeout: float, failed: Callable[[], bool]) -> bool:
        """Wait while more than ``max_bytes`` wait to be applied; return False after ``timeout`` seconds."""
        with self._lock:
            return self._room.wait_for(lambda: self._bytes <= max_bytes or failed(), timeout)

    def wake(self) -> None:
        """Wake the writer that waits for room, because the applier has failed."""
        with self._lock:
            self._room.notify_all()

    @property
    def size(self) -> int:
        """Bytes of entries that wait to be applied."""
        with self._lock:
            return self._bytes

    def number(self, label: Label) -> LabelNo | None:
        with self._lock:
            tail = self._labels.get(label)
            return tail.number if tail is not None else None

    def last(self, label: Label) -> Placed | None:
        with self._lock:
            tail = self._labels.get(label)
            return tail.placed[-1] if tail is not None and tail.placed else None

    def entries(self, label: Label, start: StreamSeq, end: StreamSeq) -> list[Placed]:
        """Return the entries of ``start`` to ``end`` that are in the tail; they may begin after ``start``."""
        with self._lock:
            tail = self._labels.get(label)
            if tail is None or not tail.placed:
                return []
            first = tail.placed[0].entry.stream_seq
            low, high = max(0, start - first), min(len(tail.placed), end - first + 1)
            return [tail.placed[at] for at in range(low, high)]

    def all_of(self, label: Label) -> list[Placed]:
        with self._lock:
            tail = self._labels.get(label)
            return list(tail.placed) if tail is not None else []

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        with self._lock:
            tail = self._labels.get(label)
            return list(tail.checkpoints) if tail is not None else []

    def all_checkpoints(self) -> list[tuple[LabelNo, Checkpoint]]:
        """Return the checkpoints of every label, each with the label's number."""
        with self._lock:
            return [(tail.number, made) for tail in self._labels.values() for made in tail.checkpoints]

    def anchor(self, label: Label, upto_seq: StreamSeq) -> bytes | None:
        """Return the newest anchor of a checkpoint."""
        with self._lock:
            tail = self._labels.get(label)
            found = [a.anchor_ref for a in tail.anchors if a.upto_seq == upto_seq] if tail is not None else []
            return found[-1] if found else None

    def anchored_upto(self, label: Label) -> StreamSeq:
        """Return ``upto_seq`` of the last checkpoint with an anchor; 0 if none has one."""
        with self._lock:
            tail = self._labels.get(label)
            return (
                max((a.upto_seq for a in tail.anchors), default=NO_ENTRIES)
                if tail is not None
                else NO_ENTRIES
            )

    def node(self, label: Label, height: int, index: int) -> bytes | None:
        """Return an MMR node: it is stored with the entry that completed it, at the index of its height."""
        with self._lock:
            tail = self._labels.get(label)
            if tail is None or not tail.placed:
                return None
            at = ((index + 1) << height) - tail.placed[0].entry.stream_seq
            return tail.placed[at].nodes[height].hash if 0 <= at < len(tail.placed) else None

    def snapshot(self) -> list[Placed]:
        """Return all entries, label by label."""
        with self._lock:
            return [placed for label in self._labels.values() for placed in label.placed]

    def labels(self) -> list[Label]:
        with self._lock:
            return sorted(self._labels)


def receipt_of(placed: Placed) -> Receipt:
    return Receipt.decode(placed.entry.receipt_bytes)
