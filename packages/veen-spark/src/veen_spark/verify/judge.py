"""The judge of one segment: every entry by itself, and the tree it grows from the peaks before it.

In the order of §4.8.1, §4.1, §7, §4.3, §5.1: frame and entry hash (``walk``), MSG, leaf, number, time, root,
signature of the hub under a key active at ``hub_ts`` (§8.4). A segment is judged up to its first fault.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen_core import cap
from veen_core import receipt as receipts
from veen_core.chunk import ChunkSummary, PrunedEntry, parse_chunk_name, summary_name
from veen_core.entry import FLAG_AUTHORIZE, FRAME_SIZE, Entry, entry_hash, verify_authorize
from veen_core.errors import InvariantError, SignatureError, VeenError
from veen_core.hub_identity import HubKey
from veen_core.ids import AuthRef, ClientId, EntryHash, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import verify
from veen_core.mmr import Mmr
from veen_core.msg import Msg, verify_msg
from veen_core.receipt import Receipt
from veen_spark.read.segment import Authorize, Damage, One, Pruned, Segment, singly
from veen_spark.read.walk import walk
from veen_spark.verify.artifacts import Mark, Reached
from veen_spark.verify.origin import Gone, Peaks, Terms
from veen_spark.verify.subtrees import Tile, Tiles

WRITERS: Final = 4_096
"""So many writers of a segment are reported, to be followed across segments; within it all of them are."""
TOKENS: Final = 65_536
"""Likewise of tokens that a control label authorizes (H5): as many as a chunk may have entries (§4.8.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The first thing that does not hold, and where."""

    seq: int
    file: str
    offset: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What a task found of a segment; small, whatever the segment's size."""

    segment: Segment
    entries: int = 0
    gone: Gone = field(default_factory=list)
    first_ts: int = 0
    last_ts: int = 0
    peaks: Peaks | None = None
    """After the last entry; None after a fault, or if those before the first entry are not known."""
    root: bytes | None = None
    """That the hub signed with the last entry that holds."""
    writers: dict[bytes, tuple[int, int]] | None = field(default_factory=dict)
    """First and last client_seq of each; None if there are too many."""
    tokens: dict[bytes, tuple[int, int]] | None = field(default_factory=dict)
    """Where each auth_ref is authorized: stream_seq and byte; None if there are too many."""
    hashes: list[Tile] | None = None
    """Subtrees over the entry hashes, if the chunk has a summary; and ``size``, that of its frames."""
    size: int = 0
    fault: Fault | None = None

    @property
    def last_seq(self) -> int:
        return self.segment.start_seq + self.entries - 1

    @property
    def pruned(self) -> int:
        return sum(end - start + 1 for start, end in self.gone)


class SegmentJudge:
    """The label as this segment makes it grow."""

    def __init__(
        self, segment: Segment, terms: Terms, peaks: Peaks | None, marks: Sequence[Mark] = ()
    ) -> None:
        self._segment = segment
        self._place = (segment.path, segment.begin)
        """What is judged: file and byte."""
        self._marks = deque(marks)
        self._terms = terms
        self._tree = None if peaks is None else Mmr(segment.start_seq - 1, peaks)
        self._summary = summary_of(segment)
        self._hashes = None if self._summary is None else Tiles(segment.start_seq - _chunk_start(segment))
        self._bytes = 0
        self._writers: dict[bytes, tuple[int, int]] = {}
        self._tokens: dict[bytes, tuple[int, int]] = {}
        self._keys: tuple[int, list[HubKey]] = (-1, [])
        self._next = segment.start_seq
        self.verdict = Verdict(segment=segment)

    def run(self) -> Verdict:
        verdict = self.verdict
        try:
            self._check_marks()
            for item in walk(self._segment):
                for one in singly(item):
                    self._place = (self._segment.path, one.offset)
                    self._judge(one)
                    self._check_marks()
            self._conclude()
        except (VeenError, OSError) as exc:
            file, offset = self._place
            reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
            verdict.fault = Fault(seq=self._next, file=file, offset=offset, reason=reason)
        if self._tree is not None and verdict.fault is None:
            verdict.peaks = self._tree.peaks
        verdict.writers = self._writers if len(self._writers) <= WRITERS else None
        verdict.tokens = self._tokens if len(self._tokens) <= TOKENS else None
        return verdict

    def _judge(self, one: One) -> None:
        if isinstance(one, Damage):
            raise InvariantError("§4.8.1", one.reason)
        if one.seq != self._next:
            raise InvariantError("I3", f"stream_seq {one.seq} follows {self._next - 1}")
        if isinstance(one, Pruned):
            kept = one.entry
            self._bind(kept.receipt, kept.leaf_hash)
            self._check_fields(kept)
            self._grow(kept.receipt, kept.receipt.encode())
            self._note(kept.entry_hash, one.size)
            self._prune(one.seq)
        elif isinstance(one, Authorize):
            entry = Entry(self._segment.label, StreamSeq(one.seq), one.token, one.receipt, FLAG_AUTHORIZE)
            token, receipt = verify_authorize(entry), entry.receipt
            cap.verify_token(token, self._terms.limits)
            self._bind(receipt, receipt.leaf_hash)
            self._authorize(token.auth_ref, one.offset)
            self._grow(receipt, one.receipt)
            self._note_entry(one.token, one.receipt)
        else:
            msg, leaf = verify_msg(one.msg, self._terms.limits)
            receipt = Receipt.decode(one.receipt)
            self._bind(receipt, leaf)
            if msg.label != self._segment.label:
                raise InvariantError("I2", "MSG.label is of another label")
            self._check_fields(msg)
            self._grow(receipt, one.receipt)
            self._note_entry(one.msg, one.receipt)

    def _bind(self, receipt: Receipt, leaf: LeafHash) -> None:
        """The RECEIPT is for this entry, at this place."""
        if receipt.label != self._segment.label:
            raise InvariantError("I2", "RECEIPT.label is of another label")
        if receipt.stream_seq != self._next:
            raise InvariantError("I3", f"stream_seq {receipt.stream_seq} follows {self._next - 1}")
        if receipt.leaf_hash != leaf:
            raise InvariantError("I2", "RECEIPT.leaf_hash is not that of the MSG")

    def _check_fields(self, msg: Msg | PrunedEntry) -> None:
        """What is left to check of a MSG's fields, pruned or not."""
        if self._terms.profile_id is not None and msg.profile_id != self._terms.profile_id:
            raise InvariantError("I4", "MSG.profile_id is not the registry's")
        if msg.prev_ack >= self._next:
            raise InvariantError("I6", f"prev_ack {msg.prev_ack} is ahead of the stream's {self._next - 1}")
        self._follow(msg.client_id, msg.client_seq)

    def _follow(self, client: ClientId, client_seq: int) -> None:
        first, last = self._writers.get(client, (client_seq, client_seq - 1))
        if client_seq != last + 1 or client_seq < 1:
            raise InvariantError("I9", f"client_seq {client_seq} does not follow {last}")
        self._writers[bytes(client)] = (first, client_seq)

    def _authorize(self, auth_ref: AuthRef, offset: int) -> None:
        """A hub that authorizes a token again would renew it."""
        if (before := self._tokens.get(auth_ref)) is not None:
            raise InvariantError("H5", authorized_before(auth_ref, before[0]))
        self._tokens[bytes(auth_ref)] = (self._next, offset)

    def _grow(self, receipt: Receipt, wire: bytes) -> None:
        """The tree with this leaf has the root that the hub signed, at a time that is not before the last."""
        verdict = self.verdict
        if verdict.entries and receipt.hub_ts < verdict.last_ts:
            raise InvariantError("H3", f"hub_ts {receipt.hub_ts} follows {verdict.last_ts}")
        if self._tree is not None:
            self._tree.add(receipt.leaf_hash)
            if self._tree.root != receipt.mmr_root:
                raise InvariantError("I3", "mmr_root is not that of the log with this leaf")
        self._check_signature(receipt, wire)
        if not verdict.entries:
            verdict.first_ts = receipt.hub_ts
        verdict.last_ts = receipt.hub_ts
        verdict.root = bytes(receipt.mmr_root)
        verdict.entries += 1
        self._next += 1

    def _prune(self, seq: int) -> None:
        gone = self.verdict.gone
        start = gone.pop()[0] if gone and gone[-1][1] == seq - 1 else seq
        gone.append((start, seq))

    def _check_signature(self, receipt: Receipt, wire: bytes) -> None:
        """As ``hub_identity.verify_receipt``; keys are chosen once a second, not once an entry."""
        if self._keys[0] != receipt.hub_ts:
            self._keys = (receipt.hub_ts, self._terms.identity.active_at(UnixTime(receipt.hub_ts)))
        digest = receipts.signing_digest(wire)
        for key in self._keys[1]:
            try:
                return verify(key.hub_pk, digest, receipt.hub_sig, "hub_sig")
            except SignatureError:
                continue
        raise SignatureError(
            f"RECEIPT.hub_sig §4.3: no key of the hub active at {receipt.hub_ts} made it (§8.4)"
        )

    def _check_marks(self) -> None:
        """What lies beside the log and is of the tree as it is now."""
        while self._marks and self._marks[0].seq < self._next and self._tree is not None:
            mark = self._marks.popleft()
            place, self._place = self._place, (mark.file, mark.offset)
            seen = self.verdict.entries
            hub_ts = UnixTime(self.verdict.last_ts) if seen else None
            chunk_start = _chunk_start(self._segment) if seen else None
            mark.judge(Reached(self._segment.label, self._tree, hub_ts, chunk_start), self._terms)
            self._place = place

    def _note_entry(self, msg: bytes, receipt: bytes) -> None:
        if self._hashes is not None:
            self._note(entry_hash(msg, receipt), FRAME_SIZE + len(msg) + len(receipt))

    def _note(self, digest: EntryHash, size: int) -> None:
        """For the chunk's summary."""
        if self._hashes is not None:
            self._hashes.add(digest)
            self._bytes += size

    def _conclude(self) -> None:
        segment, last = self._segment, self._next - 1
        if segment.end_seq is not None and last != segment.end_seq:
            raise InvariantError(
                "§4.8.3", f"ends at entry {last}, where {segment.end_seq} should be the last"
            )
        if self._marks and self._tree is not None:
            mark = self._marks[0]
            self._place = (mark.file, mark.offset)
            raise InvariantError("§4.8.3", f"is of entry {mark.seq}, where the log ends at entry {last}")
        if self._hashes is None:
            return
        self.verdict.hashes, self.verdict.size = self._hashes.tiles, self._bytes
        if segment.whole and self._summary is not None and self._tree is not None:
            check_summary(self._summary, segment.label, self._tree.root, [self.verdict])


def authorized_before(auth_ref: bytes, seq: int) -> str:
    return f"authorizes token {auth_ref.hex()} again, which entry {seq} did: nothing renews a token"


def check_summary(path: Path, label: Label, root: bytes, parts: Sequence[Verdict]) -> None:
    """The chunk that these are the parts of is what its summary says (§4.8.3)."""
    tree = Mmr()
    for height, node in (tile for part in parts for tile in part.hashes or ()):
        tree.append_subtree(height, node)
    held, sizes = ChunkSummary.decode(path.read_bytes()), {sum(part.size for part in parts)}
    if parts[0].segment.form == "pruned":
        sizes.add(os.path.getsize(parts[0].segment.path))  # an export counts what is left
    expected = ChunkSummary(
        label=label,
        start_seq=StreamSeq(parts[0].segment.start_seq),
        end_seq=StreamSeq(parts[-1].last_seq),
        mmr_root_end=MmrRoot(root),
        entry_count=tree.size,
        total_bytes=held.total_bytes,
        entry_hashes_root=tree.root,
    )
    if held != expected or held.total_bytes not in sizes:
        raise InvariantError("§4.8.3", f"{path.name} does not sum up its chunk")


def _chunk_start(segment: Segment) -> int:
    """The first entry of the chunk that the segment is a part of, by the file's name."""
    name = parse_chunk_name(Path(segment.path).name)
    return segment.start_seq if name is None else name.start


def summary_of(segment: Segment) -> Path | None:
    """The file that sums up the chunk, if there is one (§4.8.3)."""
    name = parse_chunk_name(Path(segment.path).name)
    if segment.form == "set" or name is None or name.end is None:
        return None
    path = Path(segment.path).with_name(summary_name(name.label, name.start, name.end))
    return path if path.is_file() else None
