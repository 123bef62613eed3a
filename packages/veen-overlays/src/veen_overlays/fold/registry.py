"""Every overlay of this package, by name: what ``veen fold`` offers and the law tests run over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from veen_overlays.control.state import AUTHORITIES, LABEL_CLASSES, REVOCATIONS, SCHEMAS
from veen_overlays.crdt import G_COUNTER, LWW_REGISTERS, OR_SET
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identity.state import IDENTITY
from veen_overlays.kv import KV
from veen_overlays.queue import QUEUE
from veen_overlays.snapshot import SNAPSHOTS
from veen_overlays.wallet.ledger import LEDGER

OVERLAYS: Final[Mapping[str, Overlay[Any]]] = {
    overlay.name: overlay
    for overlay in (
        *(LWW_REGISTERS, OR_SET, G_COUNTER, KV, QUEUE, LEDGER, IDENTITY),
        *(AUTHORITIES, REVOCATIONS, LABEL_CLASSES, SCHEMAS, SNAPSHOTS),
    )
}
