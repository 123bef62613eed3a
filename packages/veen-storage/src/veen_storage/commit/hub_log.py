"""Extending the hub log: one entry for each label that moved, and the signed hub checkpoint (RESOLUTIONS P1).

An extension is an item of a batch like any other: entries and hub checkpoint become durable with the batch,
in one journal item. Its cost depends on the number of labels that moved, not on the length of the hub log:
the ledger keeps the tree as its complete subtrees, and the set of labels that moved.

Replaying an extension repeats the computation of the writer and compares. So an item whose entries are not
the heads at its place in the journal, or whose note has another root, is damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from veen_core import hub_log
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, UnixTime
from veen_core.tlog.note import Note, check_name
from veen_core.tlog.tiles import TILE_WIDTH, decode_bundle, encode_bundle
from veen_core.tlog.tree import leaf_hash
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_signed_head
from veen_storage.commit.changes import Changes, HubEntry, HubExtended, HubExtension, note_moved
from veen_storage.commit.ledger import Draft
from veen_storage.errors import StorageError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Transaction
from veen_storage.index.records import HubLogCursor, HubPlace, LabelNo

LENGTH_BYTES: Final = 2
"""Bytes of an entry's length in an entry bundle (C2SP tlog-tiles)."""


class NoteSigner(Protocol):
    """Signs notes with the hub's keys; ``HubKeys`` is the real one."""

    def sign_note(self, text: str, name: str, now: UnixTime) -> Note: ...


def extend(draft: Draft, origin: str, signer: NoteSigner, now: UnixTime) -> HubExtended | None:
    """Extend the hub log by every label that moved; None if none did. The draft changes only on success."""
    check_name(origin, "origin of the hub log (RESOLUTIONS P1)")
    if not (moved := draft.moved()):
        return None
    after, entries = lay_out(draft.hub_log, moved)
    head = TreeHead(origin, after.size, after.tree.root)
    signed = SignedHead(head, signer.sign_note(head.text, origin, now))
    bundle = encode_bundle(entry.data for entry in entries)
    step = HubExtended(entries, bundle, signed)
    draft.note_hub_extension(step, after)
    return step


def replay(draft: Draft, identity: HubIdentity, item: HubExtension) -> None:
    """Repeat an extension from the journal; raise unless it is exactly what the writer must have made."""
    after, entries = lay_out(draft.hub_log, draft.moved())
    _check_entries(decode_bundle(item.entries), entries)
    signed = parse_signed_head(item.checkpoint)
    if (signed.head.size, signed.head.root) != (after.size, after.tree.root):
        raise StorageError(
            f"the journal's hub checkpoint of size {signed.head.size} does not have size and root of the "
            f"hub log, which has {after.size} entries at this item (RESOLUTIONS P1)"
        )
    newest = max(LabelHead.decode(entry.data).hub_ts for entry in entries)
    hub_log.verify_hub_checkpoint(identity, signed, origin=signed.head.origin, since=newest)
    draft.note_hub_extension(HubExtended(entries, item.entries, signed), after)


def _check_entries(found: list[bytes], expected: tuple[HubEntry, ...]) -> None:
    """Raise unless an extension has one entry for each label that moved, with its head at that point."""
    if not expected or len(found) != len(expected):
        raise StorageError(
            f"an extension of the hub log has {len(found)} entries, but {len(expected)} labels moved before "
            "it (RESOLUTIONS P1)"
        )
    for data, entry in zip(found, expected, strict=True):
        if data != entry.data:
            raise StorageError(
                f"entry {entry.index} of the hub log is not the head of label {entry.label.hex()} at "
                f"{entry.upto_seq} (RESOLUTIONS P1)"
            )


def lay_out(
    before: HubLogCursor, moved: Iterable[tuple[LabelNo, LabelHead]]
) -> tuple[HubLogCursor, tuple[HubEntry, ...]]:
    """Append the heads of labels to a copy of the hub log's state."""
    tree, offset, entries = before.tree.copy(), before.entries_bytes, list[HubEntry]()
    for number, head in moved:
        data, index = head.encode(), tree.size
        nodes = tuple(node.hash for node in tree.append(leaf_hash(data)))
        entries.append(HubEntry(number, head.label, head.upto_seq, index, offset, data, nodes))
        offset += LENGTH_BYTES + len(data)
    return HubLogCursor(tree, offset), tuple(entries)


# --- the rows of the index


def index_extension(txn: Transaction, step: HubExtended) -> None:
    """Write the rows of an extension; ``index_moved`` follows at the end of the round."""
    index_entries(txn, step.entries)
    tables.META.put(txn, tables.HUB_CHECKPOINT, step.signed.encode())
    txn.clear(tables.HUB_MOVED.name)


def index_entries(txn: Transaction, entries: Sequence[HubEntry]) -> None:
    """Write the rows of entries of the hub log; fsck and repair derive them from the file."""
    heads = [((entry.number, entry.upto_seq), HubPlace(entry.index, entry.offset)) for entry in entries]
    nodes = [
        ((entry.index, height), node)
        for entry in entries
        for height, node in enumerate(entry.nodes)
        if height
    ]
    tables.HUB_HEADS.put_many(txn, heads)
    tables.HUB_NODES.put_many(txn, nodes)
    for entry in entries:
        if entry.index % TILE_WIDTH == 0:
            tables.HUB_BUNDLES.put(txn, entry.index // TILE_WIDTH, entry.offset)


def index_moved(txn: Transaction, changes: Iterable[Changes]) -> None:
    """Write which labels moved since the last hub checkpoint; each extension has emptied the table."""
    moved: set[Label] = set()
    for change in changes:
        note_moved(moved, change.steps)
    tables.HUB_MOVED.put_many(txn, [(label, b"") for label in moved])
