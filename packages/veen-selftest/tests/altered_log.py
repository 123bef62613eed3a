"""A hub log that a faulty hub shows: other entries, and the tree, proofs and signature that go with them.

Each view is consistent in itself, so that only a comparison with another view, or with receipts, shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veen_core.hashing import H
from veen_core.hub_log import LabelHead
from veen_core.ids import MmrRoot
from veen_core.tlog import tree
from veen_core.tlog.note import Note
from veen_core.tlog.tiles import ENTRIES, TILE_WIDTH, Tile, decode_bundle, encode_bundle
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_storage import AbsentError
from veen_storage.read.hub_log import StoredHubLog

Entries = list[bytes]
Alteration = Callable[[Entries], Entries]
SignNote = Callable[[str, str], Note]


def read_entries(log: StoredHubLog, size: int) -> Entries:
    """Return the first ``size`` entries of the true hub log."""
    entries: Entries = []
    for index in range(-(-size // TILE_WIDTH)):
        width = min(TILE_WIDTH, size - index * TILE_WIDTH)
        entries += decode_bundle(log.bundle(Tile(ENTRIES, index, width)))
    return entries


class AlteredLog:
    """Takes the place of ``StoredHubLog`` for one answer."""

    def __init__(self, origin: str, entries: Entries, sign: SignNote) -> None:
        self._entries = entries
        self._nodes: dict[tuple[int, int], bytes] = {}
        grown = tree.Tree()
        for entry in entries:
            for node in grown.append(tree.leaf_hash(entry)):
                self._nodes[node.height, node.index] = node.hash
        head = TreeHead(origin, grown.size, grown.root)
        self.published = SignedHead(head, sign(head.text, origin))

    def _node(self, height: int, index: int) -> bytes:
        return self._nodes[height, index]

    def tile(self, tile: Tile) -> bytes:
        return b"".join(self._node(tile.height, tile.start + place) for place in range(tile.width))

    def bundle(self, tile: Tile) -> bytes:
        return encode_bundle(self._entries[tile.start : tile.start + tile.width])

    def prove_inclusion(self, index: int, size: int) -> list[bytes]:
        return tree.prove_inclusion(self._node, index, size)

    def prove_consistency(self, old: int, new: int) -> list[bytes]:
        return tree.prove_consistency(self._node, old, new)

    def head_of(self, label: Any, stream_seq: Any, size: int) -> tuple[LabelHead, int]:
        heads = [
            (head, index)
            for index, entry in enumerate(self._entries[:size])
            if (head := LabelHead.decode(entry)).label == label
            and (stream_seq is None or head.upto_seq >= stream_seq)
        ]
        if not heads:
            raise AbsentError("no such head")
        return heads[0 if stream_seq is not None else -1]


def fork(entries: Entries) -> Entries:
    """Another history: the newest head has another root."""
    head = LabelHead.decode(entries[-1])
    other = LabelHead(
        label=head.label,
        upto_seq=head.upto_seq,
        mmr_root=MmrRoot(H(head.mmr_root)),
        hub_ts=head.hub_ts,
    )
    return [*entries[:-1], other.encode()]


def drop_labels(entries: Entries) -> Entries:
    """Every third label is not there."""
    labels = list(dict.fromkeys(LabelHead.decode(entry).label for entry in entries))
    hidden = set(labels[2::3])
    return [entry for entry in entries if LabelHead.decode(entry).label not in hidden]


class RollBack:
    """After three more entries the hub continues from where it was when the fault began."""

    LOST = 3

    def __init__(self) -> None:
        self.began_at: int | None = None

    def __call__(self, entries: Entries) -> Entries:
        if self.began_at is None:
            self.began_at = len(entries)
        old, new = entries[: self.began_at], entries[self.began_at :]
        return [*old, *new] if len(new) < self.LOST else [*old, *new[self.LOST :]]
