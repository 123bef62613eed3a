"""Heads of a hub log against the RECEIPTs of parts of labels, in one task (RESOLUTIONS P1).

The signatures and roots of the parts were verified before, and root and hub_ts of each part's last entry are
known. A part is read once more only if the hub log has a head at another of its entries. Memory grows with
the entries of the part that is read, not with the heads: a hub log may have the same head many times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veen_core.errors import VeenError, VerificationError
from veen_core.receipt import Receipt
from veen_spark.read import field_layout
from veen_spark.read.field_layout import Ints, Mask
from veen_spark.read.segment import ControlEntry, Damage, Item, Span
from veen_spark.read.walk import walk
from veen_spark.verify.hub_log.placement import LabelPart
from veen_spark.verify.report import PartKey, part_key
from veen_spark.verify.tasks import Records, runs

Hashes = npt.NDArray[np.bytes_]
"""Hashes as strings of 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFault:
    """A head that contradicts the log: its entry, its index in the hub log, and the reason."""

    seq: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHeads:
    """The heads of the hub log in one part of a label."""

    key: PartKey
    first_seq: int
    """The first entry with a head, and the index of that head in the hub log."""
    first_index: int
    last_seq: int
    last_index: int
    last_offset: int
    next_ts: int | None
    """hub_ts of the entry after the last head; None if that entry is not in this part."""
    fault: HeadFault | None


def compare_heads(parts: list[LabelPart], batches: Iterator[Records]) -> list[PartHeads]:
    """Compare heads with the parts of labels that have their entries."""
    comparisons: dict[int, _Comparison] = {}
    for heads in batches:
        ordered = heads[np.argsort(heads["part"], kind="stable")]
        for number, of_part in runs(ordered["part"], ordered):
            if number not in comparisons:
                comparisons[number] = _Comparison(parts[number])
            comparisons[number].add(of_part)
    return [comparison.result() for _, comparison in sorted(comparisons.items())]


class _Comparison:
    """One part of a label, and the heads that the hub log has for its entries."""

    def __init__(self, part: LabelPart) -> None:
        self._part = part
        self._first = part.segment.start_seq
        self._faults: list[HeadFault] = []
        self._index = np.full(part.entries, -1, dtype=np.int64)
        """Index of the head at each entry; -1 for entries without a head."""
        self._offset = np.zeros(part.entries, dtype=np.int64)
        self._receipts: tuple[Ints, Hashes] | None = None
        """hub_ts and root of each entry, once the part was read."""

    def add(self, heads: Records) -> None:
        """Compare more heads."""
        heads = heads[np.lexsort((heads["index"], heads["seq"]))]
        at = heads["seq"] - self._first
        for head in heads[self._differ(heads, at)][:1]:
            reason = f"P1: entry {head['index']} of the hub log has another root or hub_ts than the RECEIPT"
            self._fault(int(head["seq"]), int(head["offset"]), reason)
        twice = (self._index[at] >= 0) | (np.diff(at, prepend=-1) == 0)
        for place, offset in zip(at[twice][:1], heads["offset"][twice][:1], strict=True):
            later = max(int(offset), int(self._offset[place]))
            self._fault(self._first + int(place), later, "P1: the hub log has two heads at this entry")
        self._index[at] = np.maximum(self._index[at], heads["index"])
        self._offset[at] = np.maximum(self._offset[at], heads["offset"])

    def _differ(self, heads: Records, at: Ints) -> Mask:
        """Return for each head whether its root or hub_ts differs from that of its entry."""
        part = self._part
        if self._receipts is None and at[0] == part.entries - 1:  # all heads are at the last entry
            last: Mask = (heads["root"] != part.last_root) | (heads["hub_ts"] != part.last_ts)
            return last
        if self._receipts is None:
            self._receipts = self._read()
        hub_ts, roots = self._receipts
        differ: Mask = (heads["root"] != roots[at]) | (heads["hub_ts"] != hub_ts[at])
        return differ

    def _read(self) -> tuple[Ints, Hashes]:
        """Read hub_ts and root of all entries; after an error, no head agrees with them."""
        try:
            return _receipts(self._part)
        except (VeenError, OSError) as exc:
            self._fault(self._first, 0, f"cannot be read again to compare it with the hub log: {exc}")
            return np.full(self._part.entries, -1), np.zeros(self._part.entries, dtype="S32")

    def result(self) -> PartHeads:
        """Return the summary of the part, with the first fault if a head contradicts the log."""
        at = np.flatnonzero(self._index >= 0)
        for number in np.flatnonzero(np.diff(self._index[at]) < 0)[:1].tolist():
            held, back = int(at[number + 1]), int(at[number])
            self._faults.append(goes_back(self._first + held, self._first + back, int(self._offset[back])))
        last, next_ts = int(at[-1]), None
        if self._receipts is not None and last + 1 < self._part.entries:
            next_ts = int(self._receipts[0][last + 1])
        return PartHeads(
            key=part_key(self._part.segment),
            first_seq=self._first + int(at[0]),
            first_index=int(self._index[at[0]]),
            last_seq=self._first + last,
            last_index=int(self._index[last]),
            last_offset=int(self._offset[last]),
            next_ts=next_ts,
            fault=min(self._faults, key=lambda fault: (fault.seq, -fault.offset), default=None),
        )

    def _fault(self, seq: int, offset: int, reason: str) -> None:
        self._faults.append(HeadFault(seq=seq, offset=offset, reason=reason))


def goes_back(held: int, back: int, offset: int) -> HeadFault:
    """Return the fault of a label whose heads go from entry ``held`` back to an earlier one."""
    reason = f"P1: upto_seq of the label does not grow in the hub log: {held}, then {back}"
    return HeadFault(seq=back, offset=offset, reason=reason)


# --- root and hub_ts of the RECEIPTs


def _receipts(part: LabelPart) -> tuple[Ints, Hashes]:
    """Return hub_ts and root of the RECEIPT of each entry of a part."""
    times, roots = np.zeros(part.entries, dtype=np.int64), np.zeros(part.entries, dtype="S32")
    done = 0
    for item in walk(part.segment):
        hub_ts, root = _receipts_of(item)
        fits = min(len(hub_ts), part.entries - done)
        times[done : done + fits], roots[done : done + fits] = hub_ts[:fits], root[:fits]
        done += fits
        if done == part.entries:
            return times, roots
    raise VerificationError(f"the file now has {done} entries instead of {part.entries}")


def _receipts_of(item: Item) -> tuple[Ints, Hashes]:
    if isinstance(item, Span):
        data = np.frombuffer(item.data, dtype=np.uint8)
        found = field_layout.receipts(data, item.receipt_at, item.end - item.receipt_at)
        if found.ok.all():
            return found.hub_ts, field_layout.fixed(data, found.root_at).view("S32").ravel()
        raise VerificationError("a RECEIPT is not canonical")
    if isinstance(item, Damage):
        raise VerificationError(item.reason)
    receipt = Receipt.decode(item.receipt) if isinstance(item, ControlEntry) else item.entry.receipt
    return np.array([receipt.hub_ts]), np.array([bytes(receipt.mmr_root)], dtype="S32")
