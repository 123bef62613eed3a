"""The online bridge's memory: bridge/online/log, folded at every export (AGB0 4.6, RESOLUTIONS P8)."""

from __future__ import annotations

from veen_bridge.roles.folding import folded
from veen_bridge.roles.session import RoleSession
from veen_bridge.transfer import settle_pending
from veen_core.bundle import BundleHeader, bundle_id
from veen_core.hashing import H
from veen_core.ids import BundleId, Label, StreamId
from veen_core.receipt import Receipt
from veen_overlays.bridge.exports import EXPORTS, ExportState, exported_bundles, last_exported
from veen_overlays.bridge.records import CheckpointHash, Exported, PartsHash
from veen_overlays.live import EpochView, Materializer
from veen_overlays.summary_tree.store import MemoryStore


class ExportAudit:
    """Every bundle that this bridge has recorded, and the means to record another."""

    def __init__(self, session: RoleSession) -> None:
        self._session = session
        self._state: ExportState = {}
        self._view: Materializer[ExportState] | EpochView[ExportState] | None = None

    async def load(self) -> None:
        """Settle what a killed export left unsent, then fold the log to its end."""
        if self._view is None:
            # A record that was handed to the client before a kill is delivered now, not after the next one.
            await settle_pending(self._session.audit)
            session = self._session
            self._view = await folded(
                EXPORTS, session.hub, session.audit, session.keys.opening, MemoryStore()
            )
        else:
            await self._view.catch_up()
        self._state = (await self._view.state()).summary.inner

    def last(self, stream: StreamId) -> Exported | None:
        """Return the newest bundle of a stream that this bridge has recorded."""
        return last_exported(self._state, self._session.hub.hub_id, stream, self._session.keys.bridge_id)

    def last_in_label(self, label: Label) -> Exported | None:
        """Return the bundle that reaches furthest in a label; of several, the newest."""
        furthest: Exported | None = None
        for each in exported_bundles(self._state):
            mine = (
                each.source_hub_id == self._session.hub.hub_id
                and each.bridge_id == self._session.keys.bridge_id
            )
            if mine and each.label == label and (furthest is None or each.to_seq >= furthest.to_seq):
                furthest = each
        return furthest

    def ending_at(self, label: Label, seq: int) -> Exported | None:
        """Return the newest bundle that ends at an entry of a label."""
        found = [
            each
            for each in exported_bundles(self._state)
            if (each.label, each.to_seq, each.bridge_id) == (label, seq, self._session.keys.bridge_id)
        ]
        return found[-1] if found else None

    def has(self, bundle: BundleId) -> bool:
        return any(each.bundle_id == bundle for each in exported_bundles(self._state))

    async def record(self, header: BundleHeader) -> Receipt:
        """Write the audit record of a bundle; it is durable when this returns (AGB0 4.6)."""
        session = self._session
        entry = Exported(
            bundle_id=bundle_id(header),
            prev_bundle_id=header.prev_bundle_id,
            parts_hash=PartsHash(H(b"".join(row.digest for row in header.parts))),
            source_hub_id=header.hub_id,
            stream_id=header.stream_id,
            stream=header.stream,
            label=header.label,
            from_seq=header.from_seq,
            to_seq=header.to_seq,
            events=header.counts.events,
            root_before=header.root_before,
            peaks_before=header.peaks_before,
            root_after=header.root_after,
            checkpoint=CheckpointHash(H(header.checkpoint)),
            ts=header.exported_at,
            bridge_id=header.bridge_id,
            operator=session.config.operator,
        )
        return await session.audit.send(entry)
