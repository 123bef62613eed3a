"""The changes of one batch: the ledger decides them, the applier writes them, the tail shows them to readers.

``Anchor``, ``Prune`` and ``HubExtension`` are journal records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from veen_core.cap import ClaimsRef
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import CheckpointIndexEntry, ChunkSummary
from veen_core.entry import Entry
from veen_core.hub_identity import CheckpointBinding
from veen_core.ids import AuthRef, ClientId, Epoch, Label, NodeHash, StreamSeq, UnixTime
from veen_core.mmr import Node
from veen_core.rate import Bucket
from veen_core.tlog.tree_head import SignedHead
from veen_core.wire import Wire, int_map
from veen_storage.index.records import CapRecord, ClientCursor, HubLogCursor, LabelCursor, LabelNo, Location

BEGINNING: Final = UnixTime(0)


@int_map("anchor", section="ANCHOR0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor(Wire):
    """The anchor of a checkpoint: a journal record, and the content of the file next to the checkpoint."""

    label: Label
    upto_seq: StreamSeq
    anchor_ref: bytes


@int_map("prune", section="COMP0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Prune(Wire):
    """The decision to prune the payloads of one sealed chunk: a journal record."""

    label: Label
    start_seq: StreamSeq
    end_seq: StreamSeq
    pruned_at: UnixTime


@int_map("hub extension", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubExtension(Wire):
    """An extension of the hub log: a journal record. Replaying it needs no earlier entry of the hub log."""

    entries: bytes
    """The new entries, each with its length in two bytes, as in an entry bundle."""
    checkpoint: bytes
    """The hub checkpoint: the signed note over the tree that ends with these entries."""


@dataclass(slots=True)
class Placed:
    """An entry, its location in the chunk, and the nodes it added to the label's MMR."""

    number: LabelNo
    entry: Entry
    frame: bytes
    location: Location
    hub_ts: UnixTime
    nodes: list[Node]
    """The leaf first, then the inner nodes that the leaf completed."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A chunk that ended, because the next entry starts a new one (core §4.8.2)."""

    number: LabelNo
    summary: ChunkSummary
    epoch: Epoch
    last_ts: UnixTime


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint, its line in the checkpoint index and its binding; ``…_at`` are offsets in their files."""

    number: LabelNo
    checkpoint: Checkpoint
    covered: int
    """Entries of the label since its previous checkpoint."""
    peaks: tuple[NodeHash, ...]
    line: CheckpointIndexEntry
    index_at: int
    binding: CheckpointBinding
    binding_at: int


@dataclass(frozen=True, slots=True)
class Anchored:
    """A checkpoint that was anchored (ANCHOR0.2)."""

    number: LabelNo
    anchor: Anchor


@dataclass(frozen=True, slots=True)
class Pruned:
    """A sealed chunk whose payloads are to be removed."""

    number: LabelNo
    decision: Prune


@dataclass(frozen=True, slots=True)
class HubEntry:
    """One entry of the hub log: a label's head, its place, and the nodes it added to the tree."""

    number: LabelNo
    label: Label
    upto_seq: StreamSeq
    index: int
    offset: int
    """Offset of its length in ``hublog/entries``."""
    data: bytes
    """The encoded ``LabelHead``."""
    nodes: tuple[bytes, ...]
    """Hashes of the nodes that it completed, by height: the leaf first."""


@dataclass(frozen=True, slots=True)
class HubExtended:
    """An extension of the hub log by the heads that moved, in order of labels, and its hub checkpoint."""

    entries: tuple[HubEntry, ...]
    """At least one."""
    bundle: bytes
    """The bytes to append to ``hublog/entries``, at the offset of the first entry."""
    signed: SignedHead

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.bundle) + len(self.signed.note.text)


Step = Placed | Sealed | Checkpointed | Anchored | Pruned | HubExtended


@dataclass(slots=True)
class Changes:
    """Everything that one batch changes, in the order in which it is applied."""

    batch: int = 0
    steps: list[Step] = field(default_factory=list)
    new_labels: dict[Label, LabelNo] = field(default_factory=dict)
    heads: dict[Label, LabelCursor] = field(default_factory=dict)
    clients: dict[tuple[LabelNo, ClientId], ClientCursor] = field(default_factory=dict)
    caps: dict[AuthRef | ClaimsRef, CapRecord] = field(default_factory=dict)
    buckets: dict[tuple[ClaimsRef, LabelNo], Bucket] = field(default_factory=dict)
    controls: set[LabelNo] = field(default_factory=set)
    """Labels that hold capability tokens, which retention must keep (RESOLUTIONS H5)."""
    hub_ts: UnixTime = BEGINNING
    binding_bytes: int = 0
    hub_log: HubLogCursor | None = None
    """The hub log after the batch; None if the batch does not extend it."""

    @property
    def entries(self) -> int:
        """Number of entries in the batch."""
        return sum(isinstance(step, Placed) for step in self.steps)

    @property
    def size(self) -> int:
        """Size of the framed entries and of hub log extensions, in bytes."""
        extensions = sum(step.size for step in self.hub_extensions)
        return extensions + sum(len(step.frame) for step in self.steps if isinstance(step, Placed))

    @property
    def hub_extensions(self) -> list[HubExtended]:
        if self.hub_log is None:
            return []
        return [step for step in self.steps if isinstance(step, HubExtended)]


def note_moved(moved: set[Label], steps: Iterable[Step]) -> None:
    """Update the set of labels with entries since the last hub checkpoint, which covered all labels (P1)."""
    for step in steps:
        if isinstance(step, Placed):
            moved.add(step.entry.label)
        elif isinstance(step, HubExtended):
            moved.clear()
