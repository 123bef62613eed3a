"""The audit log of the target zone: what was imported, and what was refused (AGB0 4.5, 4.6; P8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veen_bridge.importing.admission import BundleRefusedError, ImportPlan
from veen_bridge.roles.folding import folded
from veen_bridge.roles.session import RoleSession
from veen_bridge.transfer import settle_pending
from veen_core.bundle import BundleError
from veen_core.errors import VeenError
from veen_core.ids import BundleId, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_overlays import MemoryStore, SummaryStore
from veen_overlays.bridge import IMPORTS, Imported, ImportFailed, ImportGap, ImportMapping, TargetRange
from veen_overlays.bridge.imports import ImportState

MAX_REASON_CHARACTERS: Final = 2_000
"""Longest reason in an audit record."""


class AuditLog:
    """bridge/offline/log of a connected bridge_offline."""

    def __init__(self, session: RoleSession, store: SummaryStore | None = None) -> None:
        """``store`` keeps the folded state; it may be lost, and is checked against the log."""
        self._session = session
        self._store: SummaryStore = MemoryStore() if store is None else store

    async def state(self) -> ImportState:
        """Settle what a killed import left unsent; return the imported bundles, folded from the log (P8)."""
        session = self._session
        await settle_pending(session.audit)
        view = await folded(IMPORTS, session.hub, session.audit, session.keys.opening, self._store)
        return (await view.state()).summary.inner

    @property
    def now(self) -> UnixTime:
        return self._session.hub.connection.time.now()

    async def report_gap(self, plan: ImportPlan) -> None:
        """Report an allowed gap before the first event is written."""
        assert plan.skipped_from is not None
        await self._session.audit.send(
            ImportGap(
                bundle_id=plan.bundle_id,
                missing_bundle_id=plan.header.prev_bundle_id,
                skipped_from=plan.skipped_from,
                import_time=self.now,
                bridge_id=self._session.keys.bridge_id,
                operator=self._session.config.operator,
            )
        )

    async def report_mapping(self, plan: ImportPlan) -> None:
        """Report the import stream of a source stream before its first event is written."""
        await self._session.audit.send(
            ImportMapping(
                source_hub_id=plan.header.hub_id,
                source_stream_id=plan.header.stream_id,
                source_stream=plan.header.stream,
                target_stream_id=plan.target_id,
                target_stream=plan.target,
                import_time=self.now,
                bridge_id=self._session.keys.bridge_id,
                operator=self._session.config.operator,
            )
        )

    async def report_success(self, plan: ImportPlan, targets: Sequence[TargetRange]) -> Receipt:
        """Report a bundle whose events are all durable."""
        header = plan.header
        record = Imported(
            bundle_id=plan.bundle_id,
            prev_bundle_id=header.prev_bundle_id,
            source_hub_id=header.hub_id,
            source_bridge_id=header.bridge_id,
            source_stream_id=header.stream_id,
            source_label=header.label,
            from_seq=header.from_seq,
            to_seq=header.to_seq,
            events=header.counts.events,
            root_before=header.root_before,
            peaks_before=header.peaks_before,
            root_after=header.root_after,
            mode=self._session.config.mode,
            targets=tuple(targets),
            skipped_from=plan.skipped_from,
            import_time=self.now,
            bridge_id=self._session.keys.bridge_id,
            operator=self._session.config.operator,
        )
        return await self._session.audit.send(record)

    async def report_failure(self, bundle: BundleId | None, failure: VeenError) -> None:
        """Report a bundle that was refused or could not be imported completely."""
        position = failure.position if isinstance(failure, BundleRefusedError) else StreamSeq(0)
        if isinstance(failure, BundleError) and failure.seq is not None:
            position = StreamSeq(failure.seq)
        await self._session.audit.send(
            ImportFailed(
                bundle_id=bundle,
                position=position,
                code=failure_code(failure),
                reason=failure.message[:MAX_REASON_CHARACTERS],
                import_time=self.now,
                bridge_id=self._session.keys.bridge_id,
                operator=self._session.config.operator,
            )
        )


def failure_code(failure: VeenError) -> str:
    """The stable key of a failure in audit records and in JSON."""
    if isinstance(failure, BundleRefusedError):
        return failure.code
    return "INVALID_BUNDLE" if isinstance(failure, BundleError) else type(failure).__name__.upper()
