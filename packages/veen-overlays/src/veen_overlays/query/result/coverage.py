"""Coverage: which part of which log a result rests on, and how many entries it has (RESOLUTIONS P13).

A *source* is one label of one hub: a stream in one epoch. Its *prefix* is the range of entries that a query
reads, with the root that the hub signed at its end. Entries are contiguous under a signed root, so nothing
between ``from_seq`` and ``to_seq`` can be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from veen_core.ids import HubId, Label, MmrRoot


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The entries of one source that a query reads: ``from_seq`` to ``to_seq``, both included.

    ``from_seq`` is 1: a query reads every source from its first entry, and a verifier refuses any other
    coverage. A source without entries has ``to_seq`` = ``from_seq`` - 1 and no root.
    """

    stream: str
    hub_id: HubId
    label: Label
    epoch: int
    from_seq: int = 1
    to_seq: int
    mmr_root: MmrRoot | None
    """The root at ``to_seq``, which the RECEIPT of ``to_seq`` signs; None without entries."""
    checkpoint: str | None = None
    """Text of the origin hub's checkpoint, three lines (P1).

    Neither ``result_id`` nor ``evidence_hash`` depends on it: two zones that have the same prefix may know
    different checkpoints of the same hub (ADR 0020).
    """

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.to_seq - self.from_seq + 1

    def order(self, scope: Sequence[str]) -> tuple[int, bytes, int]:
        """Return the sort key of sources: index in the scope, origin hub, epoch (P11)."""
        return scope.index(self.stream), self.hub_id, self.epoch

    def committed_json(self) -> dict[str, Any]:
        """Return the part that ``result_id`` commits to: everything but the checkpoint."""
        return {
            "stream": self.stream,
            "hub_id": self.hub_id.hex(),
            "label": self.label.hex(),
            "epoch": self.epoch,
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "mmr_root": None if self.mmr_root is None else self.mmr_root.hex(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCoverage(Prefix):
    """A prefix and the counts of its entries: ``scanned`` = ``opened`` + ``unopened`` + ``pruned``."""

    scanned: int
    """All entries of the prefix."""
    opened: int
    """Entries that opened, whether they are recorder events or other messages."""
    unopened: int
    pruned: int
    matched: int
    """Events that the filter selects."""

    @property
    def prefix(self) -> Prefix:
        """The prefix without its counts."""
        return Prefix(
            stream=self.stream,
            hub_id=self.hub_id,
            label=self.label,
            epoch=self.epoch,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            mmr_root=self.mmr_root,
            checkpoint=self.checkpoint,
        )

    def counts_json(self) -> dict[str, Any]:
        """Return the part that ``evidence_hash`` commits to: everything but the checkpoint."""
        counts = ("scanned", "opened", "unopened", "pruned", "matched")
        return self.committed_json() | {name: getattr(self, name) for name in counts}

    def as_json(self) -> dict[str, Any]:
        """Return one element of ``ResultDigest.coverage`` (P13)."""
        return self.counts_json() | {"checkpoint": self.checkpoint}


def covered(
    prefix: Prefix, *, opened: int, unopened: int = 0, pruned: int = 0, matched: int = 0
) -> SourceCoverage:
    """Return the coverage of a prefix with these counts."""
    return SourceCoverage(
        stream=prefix.stream,
        hub_id=prefix.hub_id,
        label=prefix.label,
        epoch=prefix.epoch,
        from_seq=prefix.from_seq,
        to_seq=prefix.to_seq,
        mmr_root=prefix.mmr_root,
        checkpoint=prefix.checkpoint,
        scanned=opened + unopened + pruned,
        opened=opened,
        unopened=unopened,
        pruned=pruned,
        matched=matched,
    )


def in_order(prefixes: Iterable[Prefix], scope: Sequence[str]) -> tuple[Prefix, ...]:
    """Return prefixes in the order of P11: index in the scope, origin hub, epoch; then label."""
    return tuple(sorted(prefixes, key=lambda prefix: (*prefix.order(scope), prefix.label)))
