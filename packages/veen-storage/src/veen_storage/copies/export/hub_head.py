"""Find the head that ties an export to the hub log: ``hub-head.cbor`` (RESOLUTIONS P1, ADR 0014).

``veen_core.hub_export`` declares the file and verifies it.
"""

from __future__ import annotations

from veen_core import hub_log
from veen_core.hub_export import HubHead
from veen_core.ids import Label, StreamSeq
from veen_storage.errors import AbsentError
from veen_storage.read.observer import Source


def find_hub_head(store: Source, label: Label, to_seq: StreamSeq) -> HubHead | None:
    """Return the head that covers an entry; None if no hub checkpoint covers it.

    The hub checkpoint is the published one or, if it does not cover the entry, the newest.
    """
    log = store.hub_log
    for signed in (log.published, log.checkpoint):
        if signed is None:
            continue
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
