"""The heads of one label in a hub log, compared with the label's exported entries (RESOLUTIONS P1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veen_core.errors import InvariantError
from veen_core.hub_log import LabelHead, check_uncovered
from veen_core.ids import Label, MmrRoot, StreamSeq, UnixTime


@dataclass(frozen=True, slots=True)
class ExportedHeads:
    """The heads of one label in a hub log, by ``upto_seq``."""

    heads: Mapping[StreamSeq, LabelHead]
    newest_ts: UnixTime
    """The newest hub_ts in the hub log, of any label."""

    @property
    def covered(self) -> int:
        """The last entry that the hub log covers; 0 if it does not have the label."""
        return max(self.heads, default=0)

    def check(self, label: Label, seq: StreamSeq, root: MmrRoot, hub_ts: UnixTime) -> None:
        """Raise ``InvariantError`` if an entry contradicts its head, or should be covered and is not."""
        head = self.heads.get(seq)
        if head is not None and (head.mmr_root, head.hub_ts) != (root, hub_ts):
            raise InvariantError("P1", "root or hub_ts is not that of the label's head in the hub log")
        if seq == self.covered + 1:
            check_uncovered(label, seq, hub_ts, self.newest_ts)
