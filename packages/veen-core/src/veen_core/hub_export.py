"""The files that tie exports to the hub log, and the export of a whole hub (RESOLUTIONS P1, ADR 0014).

The export of one label may have a head that leads to a hub checkpoint, ``hub-head.cbor``:

    last RECEIPT of the export ── consistency proof ── a head of the label ── its inclusion in the hub log
                               ── hub checkpoint ── cosignatures of witnesses

So the hub has committed to the exported range for every reader of that hub checkpoint. An export whose last
entry no hub checkpoint covers yet has no such file.

The export of a whole hub has every label, and the hub log that says which labels there are:

    hub-export.cbor       hub_id, number of labels, size of the hub log; written last
    hub-identity.cbor …   the hub's identity and registry
    hublog/               entries, checkpoint and published, as in a data directory
    labels/<label>/       an export of each label from its first entry on
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core import consistency, hub_log
from veen_core.consistency import MmrConsistency
from veen_core.errors import EvidenceError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import HubId, Label, MmrRoot, NodeHash, StreamSeq
from veen_core.tlog import tree
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, int_map

HUB_HEAD: Final = "hub-head.cbor"
HUB_EXPORT: Final = "hub-export.cbor"
LABELS: Final = "labels"
HUB_LOG: Final = "hublog"
HUB_LOG_ENTRIES: Final = "hublog/entries"
"""The entries in order, each with its length in two bytes: entry bundles without a gap (C2SP tlog-tiles)."""
HUB_LOG_CHECKPOINT: Final = "hublog/checkpoint"
"""The newest hub checkpoint, which covers all entries."""
HUB_LOG_PUBLISHED: Final = "hublog/published"
"""The hub checkpoint that the hub serves, with its cosignatures; the newest one or an older one."""


@int_map("exported hub head", section="ADR 0014")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubHead(Wire):
    """A head of the exported label, and every step from it to a hub checkpoint."""

    ver: Literal[1] = 1
    head: LabelHead
    """The first head that covers the last entry of the export."""
    index: int
    """Place of the head in the hub log."""
    proof: tuple[NodeHash, ...]
    """Inclusion of the head in the hub log."""
    checkpoint: bytes
    """The hub checkpoint, with its cosignatures."""
    consistency: MmrConsistency | None = None
    """From the last entry of the export to the head; None if the head is at that entry."""


@int_map("hub export", section="ADR 0014")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubManifest(Wire):
    """The manifest of an export of a whole hub; a folder without it is not one."""

    ver: Literal[1] = 1
    hub_id: HubId
    labels: int
    size: int
    """Size of the hub log."""


def verify_hub_head(
    found: HubHead, identity: HubIdentity, label: Label, to_seq: StreamSeq, root: MmrRoot
) -> SignedHead:
    """Verify every step from an export to its hub checkpoint, and return the hub checkpoint."""
    head, signed = found.head, parse_signed_head(found.checkpoint)
    if head.label != label:
        raise EvidenceError("the head is that of another label (RESOLUTIONS P1)")
    if found.consistency is None:
        if (head.upto_seq, head.mmr_root) != (to_seq, root):
            raise EvidenceError(f"the head is not that of the label at entry {to_seq} (RESOLUTIONS P1)")
    else:
        if (found.consistency.from_seq, found.consistency.to_seq) != (to_seq, head.upto_seq):
            raise EvidenceError(
                "the consistency proof does not lead from to_seq to the head (RESOLUTIONS P1)"
            )
        consistency.verify_consistency(found.consistency, root, head.mmr_root)
    leaf = tree.leaf_hash(head.encode())
    tree.verify_inclusion(leaf, found.index, signed.head.size, found.proof, signed.head.root)
    hub_log.verify_hub_checkpoint(identity, signed, origin=signed.head.origin, since=head.hub_ts)
    return signed
