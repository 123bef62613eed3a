"""One node of a summary tree as it is stored: bound to what it summarises (§11.3).

A node covers the leaves of one perfect subtree of the label's MMR. It is bound to (class, label,
upto_seq, mmr_root): which overlay wrote it, and the log up to its last leaf, on which it depends whole,
since duplicates are settled against everything before. ``check`` finds damage; what a node is bound to
finds a node of another log, another overlay or another place.
"""

from __future__ import annotations

from dataclasses import dataclass

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.hashing import HASH_SIZE, Ht
from veen_core.ids import FixedBytes, Label, MmrRoot, NodeHash, StreamSeq
from veen_core.wire import Wire, array


class ClassId(FixedBytes):
    """``Overlay.class_id``."""

    __slots__ = ()


class Checksum(FixedBytes):
    """Over everything else in a stored object."""

    __slots__ = ()


@array("summary_node", section="11.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNode(Wire):
    """A node, or the head: then ``node`` is the root, ``below`` the peaks, and there is no summary."""

    class_id: ClassId
    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot
    node: NodeHash
    """The MMR's own hash of the subtree."""
    below: bytes
    """The hashes of the two subtrees below, or nothing."""
    summary: bytes
    check: Checksum

    @property
    def hashes_below(self) -> list[bytes]:
        return [self.below[n : n + HASH_SIZE] for n in range(0, len(self.below), HASH_SIZE)]


@dataclass(frozen=True, slots=True)
class NodeBinding:
    """Whose nodes they are: every node of a tree is bound to it."""

    class_id: ClassId
    label: Label

    def _check(self, upto_seq: int, root: bytes, node: bytes, below: bytes, summary: bytes) -> Checksum:
        return Checksum(
            Ht(
                "veen/summary-node",
                cbor.encode([self.class_id, self.label, upto_seq, root, node, below, summary]),
            )
        )

    def seal(self, upto_seq: int, root: bytes, node: bytes, below: bytes, summary: bytes) -> bytes:
        """The bytes to store."""
        return StoredNode(
            class_id=self.class_id,
            label=self.label,
            upto_seq=StreamSeq(upto_seq),
            mmr_root=MmrRoot(root),
            node=NodeHash(node),
            below=below,
            summary=summary,
            check=self._check(upto_seq, root, node, below, summary),
        ).encode()

    def open(self, data: bytes | None, upto_seq: int | None = None) -> StoredNode | None:
        """What belongs there; None if it is missing, damaged, of another place or of another tree."""
        if data is None:
            return None
        try:
            held = StoredNode.decode(data)
        except DecodeError:
            return None
        bound = (self.class_id, self.label, held.upto_seq if upto_seq is None else upto_seq)
        if (held.class_id, held.label, held.upto_seq) != bound:
            return None
        check = self._check(held.upto_seq, held.mmr_root, held.node, held.below, held.summary)
        return held if held.check == check else None
