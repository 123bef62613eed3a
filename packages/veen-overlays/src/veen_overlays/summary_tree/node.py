"""The stored form of one node of a summary tree (core §11.3).

A node covers one perfect subtree of the label's MMR. It is bound to (class_id, label, upto_seq, mmr_root):
the overlay that wrote it, and the log up to its last leaf. The whole prefix matters, because an event that
repeats an earlier one does not count. The checksum detects damage; the binding detects a node of another
log, of another overlay or of another position.
"""

from __future__ import annotations

from dataclasses import dataclass

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.hashing import HASH_SIZE, Ht
from veen_core.ids import FixedBytes, Label, MmrRoot, NodeHash, StreamSeq
from veen_core.wire import Wire, array


class ClassId(FixedBytes):
    """The id of an overlay and its summary format (``Overlay.class_id``)."""

    __slots__ = ()


class Checksum(FixedBytes):
    """Checksum over all other fields of a stored node."""

    __slots__ = ()


@array("summary_node", section="11.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNode(Wire):
    """A stored node, or the tree's head: its ``node`` is the root, ``below`` the peaks, ``summary`` empty."""

    class_id: ClassId
    label: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot
    node: NodeHash
    """The hash of the subtree in the MMR."""
    below: bytes
    """The concatenated hashes of the two subtrees below; empty for the lowest stored nodes."""
    summary: bytes
    check: Checksum

    @property
    def hashes_below(self) -> list[bytes]:
        """``below``, split into hashes."""
        return [self.below[n : n + HASH_SIZE] for n in range(0, len(self.below), HASH_SIZE)]


@dataclass(frozen=True, slots=True)
class NodeBinding:
    """The overlay and the label that every node of a tree is bound to."""

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
        """Encode a node for the store."""
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
        """Decode a stored node; None if it is missing, damaged, or bound to another tree or position."""
        if data is None:
            return None
        try:
            stored = StoredNode.decode(data)
        except DecodeError:
            return None
        bound = (self.class_id, self.label, stored.upto_seq if upto_seq is None else upto_seq)
        if (stored.class_id, stored.label, stored.upto_seq) != bound:
            return None
        check = self._check(stored.upto_seq, stored.mmr_root, stored.node, stored.below, stored.summary)
        return stored if stored.check == check else None
