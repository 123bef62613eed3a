"""Vectors of the export's own objects (spec-1 §15, ADR 0007) and of the registry (§14.1)."""

from __future__ import annotations

from veen_core import chunk, export
from veen_core.hashing import H
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_core.registry import Registry

from . import cast
from .case import Good, Object, decoded

LOG = cast.log()
RECEIPTS = [LOG.entry(seq).receipt for seq in range(1, 8)]


def _manifest(form: export.Form, from_seq: int, to_seq: int) -> bytes:
    first, last = RECEIPTS[from_seq - 1], RECEIPTS[to_seq - 1]
    return export.Manifest(
        form=form,
        hub_id=cast.HUB_ID,
        label=cast.LABEL,
        from_seq=StreamSeq(from_seq),
        to_seq=StreamSeq(to_seq),
        from_ts=first.hub_ts,
        to_ts=last.hub_ts,
        peaks_before=LOG.tree(from_seq - 1).peaks,
        peaks_after=LOG.tree(to_seq).peaks,
        pruned=(export.PrunedRange(start_seq=StreamSeq(2), end_seq=StreamSeq(3)),) if from_seq < 3 else (),
        files=(export.ExportedFile(name="receipts.cborseq", size=7, digest=export.FileHash(H(b"receipts"))),),
        before=RECEIPTS[from_seq - 2] if from_seq > 1 else None,
    ).encode()


EXPORT_MANIFEST = Object(
    name="export_manifest",
    judge=decoded(export.Manifest),
    wire=export.Manifest,
    good=(Good("set", _manifest("set", 1, 7)), Good("chunks", _manifest("chunks", 4, 6))),
)
INDEX_ROW = Object(
    name="index_row",
    judge=decoded(export.IndexRow),
    wire=export.IndexRow,
    good=(Good("first", export.IndexRow(offset=0, stream_seq=StreamSeq(1)).encode()),),
)
PRUNED_PAYLOAD = Object(
    name="pruned_payload",
    judge=decoded(export.PrunedPayload),
    wire=export.PrunedPayload,
    good=(Good("sixth", export.PrunedPayload(pruned=chunk.prune(LOG.entry(6))).encode()),),
)
AUTHORIZE_PAYLOAD = Object(
    name="authorize_payload",
    judge=decoded(export.AuthorizePayload),
    wire=export.AuthorizePayload,
    good=(Good("token", export.AuthorizePayload(authorize=cast.token().encode()).encode()),),
)
REGISTRY = Object(
    name="registry",
    judge=decoded(Registry),
    wire=Registry,
    good=(
        Good("default", Registry(hub_id=cast.HUB_ID).encode()),
        Good(
            "lowered",
            Registry(hub_id=cast.HUB_ID, limits=Limits(max_checkpoint_interval=8), zstd_level=3).encode(),
        ),
    ),
)
OBJECTS = (EXPORT_MANIFEST, INDEX_ROW, PRUNED_PAYLOAD, AUTHORIZE_PAYLOAD, REGISTRY)
