"""The export of streams into bundles: fold, plan, write, seal, record, publish (AGB0 4.4, 4.6; P6, P8).

    1. settle and fold bridge/online/log                      the only memory of a bridge (P8)
    2. finish what a killed export left in the target folder
    3. for each stream and label: plan, write the parts, seal the header
    4. record the bundle in bridge/online/log                 durable before the next step
    5. give the parts their final names

A kill at any point loses nothing and exports no range twice: before step 4 the fold does not have the bundle,
and the next run continues or repeats it; after step 4 the next run completes step 5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from veen_bridge.bulk_verification import bulk_verification
from veen_bridge.bundles.naming import staging_name
from veen_bridge.bundles.staging import ExportPlan, StagedBundle
from veen_bridge.exporting.audit_log import ExportAudit
from veen_bridge.exporting.content import ContentWriter
from veen_bridge.exporting.planning import BundlePlanner, ExportWishes
from veen_bridge.exporting.resuming import WrittenParts, read_written
from veen_bridge.roles.run_lock import only_run
from veen_bridge.roles.session import RoleSession
from veen_core.bundle import AttachmentRule, BundleHeader, PartTrailer, bundle_id, sign_bundle
from veen_core.ids import NO_BUNDLE, BundleId
from veen_core.stream import stream_id

LOCK: Final = ".veen-bridge-export.lock"


class ProgressBar(Protocol):
    """A progress bar."""

    def advance(self, by: int = 1) -> None: ...


Watch = Callable[[str, int], AbstractContextManager[ProgressBar]]
"""Shows progress: what is written, and how many entries there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedBundle:
    """A complete bundle: recorded in the audit log, and under its final names."""

    bundle_id: BundleId
    header: BundleHeader
    files: tuple[Path, ...]
    resumed: bool
    """Whether an earlier, interrupted export had begun it."""


class Exporter:
    """Exports streams of one source hub into one folder."""

    def __init__(self, session: RoleSession, out: Path, wishes: ExportWishes, watch: Watch) -> None:
        self._session, self._out, self._wishes, self._watch = session, out, wishes, watch
        self._audit = ExportAudit(session)

    async def export(self, streams: Sequence[str]) -> AsyncIterator[ExportedBundle]:
        """Export the streams; yield each bundle when it is complete."""
        self._out.mkdir(parents=True, exist_ok=True)
        with only_run(self._out / LOCK, f"another export writes to {self._out}"):
            await self._audit.load()
            resumed: set[str] = set()
            left = list(streams)
            for staged in self._left_behind():
                if (finished := await self._resume(staged, streams)) is not None:
                    resumed.add(finished.header.stream)
                    if finished.header.stream in left and self._is_wanted_range(finished.header):
                        left.remove(finished.header.stream)
                    yield finished
                    await self._audit.load()
            for stream in left:
                async for bundle in self._export_stream(stream, quiet=stream in resumed):
                    yield bundle

    async def _export_stream(self, stream: str, *, quiet: bool) -> AsyncIterator[ExportedBundle]:
        """Export all labels of a stream; ``quiet``: without a heartbeat if nothing is new."""
        planner = BundlePlanner(self._session, self._audit, self._wishes)
        epochs, written = await planner.epochs(stream), False
        for epoch in epochs:
            if (plan := await planner.plan(stream, epoch)) is not None:
                yield await self._begin(plan)
                await self._audit.load()
                written = True
        if written or quiet or not self._wishes.heartbeat or not epochs:
            return
        if (plan := await planner.heartbeat(stream, epochs[-1])) is not None:
            yield await self._begin(plan)
            await self._audit.load()

    # --- one bundle

    async def _begin(self, plan: ExportPlan) -> ExportedBundle:
        draft = plan.draft
        staged = StagedBundle(self._out / staging_name(draft.stream, draft.label, draft.from_seq))
        staged.begin(plan)
        return await self._complete(staged, plan, resumed=False)

    async def _complete(self, staged: StagedBundle, plan: ExportPlan, *, resumed: bool) -> ExportedBundle:
        sealed = staged.sealed()
        if sealed is None:
            written = await self._session.hub.connection.workers.run(read_written, staged, plan.draft)
            total = plan.draft.to_seq - plan.draft.from_seq + 1
            watch = self._watch(f"exporting {plan.draft.stream}", total)
            with bulk_verification(total), watch as progress:
                progress.advance(written.next_seq - plan.draft.from_seq)
                written = await ContentWriter(self._session, staged, plan, written).write(progress.advance)
            sealed = self._sealed(plan.draft, written)
            staged.seal(sealed)
        staged.append_trailers(sealed)
        name = bundle_id(sealed.header)
        if not self._audit.has(name):
            await self._audit.record(sealed.header)
        # The bundle is recorded durably (AGB0 4.6). Only now may it get its final names.
        files = staged.publish(sealed)
        return ExportedBundle(bundle_id=name, header=sealed.header, files=tuple(files), resumed=resumed)

    def _sealed(self, draft: BundleHeader, written: WrittenParts) -> PartTrailer:
        header = dataclasses.replace(
            draft, counts=written.counts, root_after=written.tree.root, parts=tuple(written.rows)
        )
        if not draft.is_heartbeat:
            header = dataclasses.replace(header, from_ts=written.first_ts, to_ts=written.hub_ts)
        key = self._session.keys.identity.signing_key
        return PartTrailer(number=1, header=header, signature=sign_bundle(key, header))

    # --- after an interruption

    def _left_behind(self) -> list[StagedBundle]:
        return [StagedBundle(path) for path in sorted(self._out.glob(".*.exporting")) if path.is_dir()]

    async def _resume(self, staged: StagedBundle, streams: Sequence[str]) -> ExportedBundle | None:
        """Finish an interrupted export of this bridge; discard it if other bundles were exported since."""
        plan = staged.plan()
        if plan is None:
            staged.discard()
            return None
        draft, sealed = plan.draft, staged.sealed()
        if (draft.hub_id, draft.bridge_id) != (self._session.hub.hub_id, self._session.keys.bridge_id):
            return None  # it belongs to another bridge
        if sealed is not None and self._audit.has(bundle_id(sealed.header)):
            return await self._complete(staged, plan, resumed=True)
        last = self._audit.last(stream_id(draft.stream))
        if draft.prev_bundle_id != (last.bundle_id if last is not None else NO_BUNDLE):
            staged.discard()  # this bundle was not recorded, and a later bundle continues the chain
            return None
        if draft.stream not in streams or not self._continues(plan):
            return None
        return await self._complete(staged, plan, resumed=True)

    def _is_wanted_range(self, header: BundleHeader) -> bool:
        """Return whether a bundle has exactly the range that the operator named; false if none was named."""
        wishes = self._wishes
        return wishes.from_seq == header.from_seq and wishes.to_seq in (None, header.to_seq)

    def _continues(self, plan: ExportPlan) -> bool:
        """Return whether an interrupted export has the range and options that the operator asks for now."""
        draft, wishes = plan.draft, self._wishes
        same_start = wishes.from_seq in (None, draft.from_seq)
        if wishes.attachments != (draft.attachments is AttachmentRule.OPENED):
            return False
        return same_start and wishes.to_seq in (None, draft.to_seq) and plan.part_size == wishes.part_size
