"""The complete parts of a bundle that is being written: rows, counts, and the tree after them.

After an interruption the complete parts are read again and verified like those of any bundle: every MSG,
RECEIPT and root. A part that does not verify, and those after it, are written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen_bridge.bundles.stable_file import BLOCK_BYTES
from veen_bridge.bundles.staging import StagedBundle
from veen_core.bundle import BundleCounts, BundleError, BundleHeader, PartIndex, PartRow
from veen_core.bundle.records import RecordParser
from veen_core.bundle.verifier import verify_events
from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.ids import StreamSeq, UnixTime
from veen_core.log_rules import LogTerms
from veen_core.log_verifier import LogVerifier
from veen_core.mmr import Mmr

NOT_YET: Final = UnixTime(0)


@dataclass(slots=True)
class WrittenParts:
    """The complete parts, and where the next event goes."""

    tree: Mmr
    next_seq: StreamSeq
    rows: list[PartRow] = field(default_factory=list)
    first_ts: UnixTime = NOT_YET
    hub_ts: UnixTime = NOT_YET
    """hub_ts of the last event."""
    event_bytes: int = 0
    attachments: int = 0
    attachment_bytes: int = 0
    unopened: int = 0

    def add(self, entries: Sequence[Entry]) -> None:
        """Count consecutive events, and extend the tree by them."""
        if not entries:
            return
        for entry in entries:
            self.tree.add(entry.receipt.leaf_hash)
            self.event_bytes += len(entry.msg_bytes) + len(entry.receipt_bytes)
        self.first_ts = self.first_ts or entries[0].receipt.hub_ts
        self.hub_ts = entries[-1].receipt.hub_ts
        self.next_seq = StreamSeq(entries[-1].stream_seq + 1)

    def complete(self, row: PartRow, unopened: int, attachment_bytes: int) -> None:
        """Count a part that is complete; its events were added."""
        self.rows.append(row)
        self.attachments += row.attachments
        self.attachment_bytes += attachment_bytes
        self.unopened += unopened

    @property
    def counts(self) -> BundleCounts:
        return BundleCounts(
            events=sum(row.last_seq - row.first_seq + 1 for row in self.rows),
            event_bytes=self.event_bytes,
            attachments=self.attachments,
            attachment_bytes=self.attachment_bytes,
            unopened=self.unopened,
        )


def read_written(staged: StagedBundle, draft: BundleHeader) -> WrittenParts:
    """Verify the complete parts of an interrupted export; return what is kept."""
    kept = WrittenParts(Mmr(draft.from_seq - 1, draft.peaks_before), draft.from_seq)
    terms = LogTerms(
        label=draft.label, identity=draft.identity, profile=draft.profile, origin=draft.label_origin
    )
    log = LogVerifier(terms, size=draft.from_seq - 1, peaks=draft.peaks_before)
    number = 1
    while (row := staged.row(number)) is not None:
        trial = WrittenParts(kept.tree.copy(), kept.next_seq, list(kept.rows), kept.first_ts, kept.hub_ts)
        trial.event_bytes, trial.attachments = kept.event_bytes, kept.attachments
        trial.attachment_bytes, trial.unopened = kept.attachment_bytes, kept.unopened
        try:
            _verify_part(staged.part(number), number, row, log, trial)
        except (VeenError, OSError):
            break
        kept, number = trial, number + 1
    staged.remove_rows_from(number)
    return kept


def _verify_part(path: Path, number: int, row: PartRow, log: LogVerifier, trial: WrittenParts) -> None:
    if row.first_seq != trial.next_seq:
        raise BundleError("the part does not continue the one before it", part=number)
    parser = RecordParser(number, row, log.terms.label)
    left = row.size - row.index_size
    before = trial.tree.peaks, trial.hub_ts
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            if events := parser.feed(block):
                verify_events(log, events, part=number)
                trial.add(events)
        parser.finish()
        encoded = file.read(row.index_size)
    parser.skip(encoded)
    index = PartIndex.decode(encoded)
    described = (index.peaks, index.hub_ts), index.offsets, index.attachments
    if parser.digest != row.digest or described != (before, tuple(parser.offsets), tuple(parser.attachments)):
        raise BundleError("the part is damaged", part=number)
    trial.complete(row, index.unopened, sum(each.size for each in index.attachments))
