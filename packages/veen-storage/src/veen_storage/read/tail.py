"""The tail: what is durable in the journal and not yet applied, for readers (DESIGN, storage step 2).

Readers look here first and in the index second. The applier commits to the index first and drops from
here second, so whatever is durable is always found in one of the two.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from veen_core.checkpoint import Checkpoint
from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_storage.commit.changes import Anchor, Anchored, Changes, Checkpointed, Placed
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
    """Thread-safe; every answer is a snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels: dict[Label, _LabelTail] = {}
        self._bytes = 0
        self._room = threading.Condition(self._lock)

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

    def _of(self, label: Label, number: LabelNo) -> _LabelTail:
        if (held := self._labels.get(label)) is None:  # not setdefault: making one costs 2 µs an entry
            held = self._labels[label] = _LabelTail(number)
        return held

    def drop(self, changes: Changes) -> None:
        """The index holds these now."""
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
            for name in changes.heads:
                if (held := self._labels.get(name)) is not None and held.empty:
                    del self._labels[name]
            self._room.notify_all()

    def wait_for_room(self, most: int, timeout: float, given_up: Callable[[], bool]) -> bool:
        """Hold the writer back while the applier is behind by more than ``most`` bytes, and at work."""
        with self._lock:
            return self._room.wait_for(lambda: self._bytes <= most or given_up(), timeout)

    def wake(self) -> None:
        """The applier has given up: whoever waits for room looks again."""
        with self._lock:
            self._room.notify_all()

    @property
    def size(self) -> int:
        """Bytes of entries that are still to be applied."""
        with self._lock:
            return self._bytes

    def number(self, label: Label) -> LabelNo | None:
        with self._lock:
            held = self._labels.get(label)
            return held.number if held is not None else None

    def last(self, label: Label) -> Placed | None:
        with self._lock:
            held = self._labels.get(label)
            return held.placed[-1] if held is not None and held.placed else None

    def entries(self, label: Label, start: StreamSeq, end: StreamSeq) -> list[Placed]:
        """What the tail holds of ``start … end``, in order; it may begin later than ``start``."""
        with self._lock:
            held = self._labels.get(label)
            if held is None or not held.placed:
                return []
            first = held.placed[0].entry.stream_seq
            low, high = max(0, start - first), min(len(held.placed), end - first + 1)
            return [held.placed[at] for at in range(low, high)]

    def all_of(self, label: Label) -> list[Placed]:
        with self._lock:
            held = self._labels.get(label)
            return list(held.placed) if held is not None else []

    def checkpoints(self, label: Label) -> list[Checkpoint]:
        with self._lock:
            held = self._labels.get(label)
            return list(held.checkpoints) if held is not None else []

    def all_checkpoints(self) -> list[tuple[LabelNo, Checkpoint]]:
        """Of every label, with the label's number."""
        with self._lock:
            return [(held.number, made) for held in self._labels.values() for made in held.checkpoints]

    def anchor(self, label: Label, upto_seq: StreamSeq) -> bytes | None:
        """The newest for that checkpoint."""
        with self._lock:
            held = self._labels.get(label)
            found = [a.anchor_ref for a in held.anchors if a.upto_seq == upto_seq] if held is not None else []
            return found[-1] if found else None

    def anchored_upto(self, label: Label) -> StreamSeq:
        """The furthest checkpoint with an anchor; 0 if none has one."""
        with self._lock:
            held = self._labels.get(label)
            return (
                max((a.upto_seq for a in held.anchors), default=NO_ENTRIES)
                if held is not None
                else NO_ENTRIES
            )

    def node(self, label: Label, height: int, index: int) -> bytes | None:
        """It lies with the entry that completed it, at its height: leaf first, then what the leaf closed."""
        with self._lock:
            held = self._labels.get(label)
            if held is None or not held.placed:
                return None
            at = ((index + 1) << height) - held.placed[0].entry.stream_seq
            return held.placed[at].nodes[height].hash if 0 <= at < len(held.placed) else None

    def snapshot(self) -> list[Placed]:
        """Everything, label by label."""
        with self._lock:
            return [placed for label in self._labels.values() for placed in label.placed]

    def labels(self) -> list[Label]:
        with self._lock:
            return sorted(self._labels)


def receipt_of(placed: Placed) -> Receipt:
    return Receipt.decode(placed.entry.receipt_bytes)
