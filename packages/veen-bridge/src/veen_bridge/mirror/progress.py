"""The position of one mirrored stream, and its cache in the client's state store (RESOLUTIONS P8).

The target's log is the state. The cache only says how far that log was already compared with the source's, so
that a restart does not read both logs again. Losing or restoring the cache loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from veen_core.errors import DecodeError
from veen_core.hashing import Ht
from veen_core.ids import Epoch, HubId, Label, StreamId, StreamSeq
from veen_core.wire import Wire, int_map
from veen_hub.client import StateStore

FOLDER: Final = "mirror"


@int_map("mirrored_label", section="RESOLUTIONS P8")
@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredLabel(Wire):
    """A source label, and the last of its entries that the target holds."""

    label: Label
    seq: StreamSeq


@int_map("mirror_position", section="RESOLUTIONS P8")
@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPosition(Wire):
    """How far a target's log was compared with the source's: a position in each, of the same moment."""

    ver: Literal[1] = 1
    source_epoch: Epoch
    """All labels of earlier epochs are closed, and the target holds them whole."""
    labels: tuple[MirroredLabel, ...]
    target_epoch: Epoch
    target_seq: StreamSeq
    """The last entry of the target's label of ``target_epoch`` that was compared."""


@dataclass(slots=True, kw_only=True)
class MirrorProgress:
    """The position of one stream in memory."""

    held: dict[Label, int] = field(default_factory=dict)
    """By open source label: its last entry of which the target has a copy."""
    source_epoch: int = 0
    target_epoch: int = 0
    target_seq: int = 0
    ends: dict[int, tuple[Label, int]] = field(default_factory=dict)
    """By epoch: a closed source label and its last entry."""

    def position(self) -> MirrorPosition:
        """Return the position as it is stored; closed labels that the target holds whole are left out."""
        while (end := self.ends.get(self.source_epoch)) is not None and self.held.get(end[0], 0) >= end[1]:
            del self.ends[self.source_epoch]
            self.held.pop(end[0], None)
            self.source_epoch += 1
        return MirrorPosition(
            source_epoch=Epoch(self.source_epoch),
            labels=tuple(MirroredLabel(label=k, seq=StreamSeq(v)) for k, v in sorted(self.held.items())),
            target_epoch=Epoch(self.target_epoch),
            target_seq=StreamSeq(self.target_seq),
        )

    @classmethod
    def at(cls, stored: MirrorPosition) -> MirrorProgress:
        return cls(
            held={each.label: each.seq for each in stored.labels},
            source_epoch=stored.source_epoch,
            target_epoch=stored.target_epoch,
            target_seq=stored.target_seq,
        )

    def reached(self, epoch: int, seq: int) -> None:
        """Note that the target was compared up to this entry."""
        self.target_epoch, self.target_seq = epoch, seq


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCache:
    """The stored position of one pair of streams."""

    store: StateStore
    target: HubId
    name: str

    @classmethod
    def of(
        cls, store: StateStore, source: HubId, source_stream: StreamId, target: HubId, target_stream: StreamId
    ) -> PositionCache:
        pair = Ht("veen/mirror-position", source + source_stream + target_stream)
        return cls(store=store, target=target, name=f"{FOLDER}/{pair.hex()}")

    def load(self, since: tuple[int, int]) -> MirrorProgress:
        """Return the stored position, or the beginning: the first epochs of source and target.

        A damaged record is ignored, since the logs say the same.
        """
        content = self.store.load(self.target, self.name)
        if content is not None:
            try:
                return MirrorProgress.at(MirrorPosition.decode(content))
            except DecodeError:
                pass
        return MirrorProgress(source_epoch=since[0], target_epoch=since[1])

    def save(self, progress: MirrorProgress) -> None:
        """Store the position; a crash may bring back an earlier one, which costs only reading."""
        self.store.save(self.target, self.name, progress.position().encode(), durable=False)
