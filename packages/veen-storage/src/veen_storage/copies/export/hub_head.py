"""Find the head that ties an export to the hub log: ``hub-head.cbor`` (RESOLUTIONS P1, ADR 0014).

``veen_core.hub_export`` declares the file and verifies it.
"""

from __future__ import annotations

from collections.abc import Sequence

from veen_core import hub_log
from veen_core.hub_export import HubHead
from veen_core.ids import Label, StreamSeq
from veen_core.tlog.tree_head import SignedHead
from veen_storage.errors import AbsentError
from veen_storage.opening.observer import Source


def find_hub_head(
    store: Source, label: Label, to_seq: StreamSeq, checkpoints: Sequence[SignedHead] | None = None
) -> HubHead | None:
    """Return the head that covers an entry; None if none of the hub checkpoints covers it.

    ``checkpoints`` are tried in order; by default the published one and the newest.
    """
    log = store.hub_log
    if checkpoints is None:
        checkpoints = [signed for signed in (log.published, log.checkpoint) if signed is not None]
    for signed in checkpoints:
        try:
            head, index = log.head_of(label, to_seq, signed.head.size)
        except AbsentError:
            continue
        later = store.read.consistency(label, to_seq, head.upto_seq) if head.upto_seq > to_seq else None
        return HubHead(
            head=head,
            index=index,
            proof=hub_log.hashes(log.prove_inclusion(index, signed.head.size)),
            checkpoint=signed.encode(),
            consistency=later,
        )
    return None
