"""Import bundles one after the other: verify each whole, decide, write, report (AGB0 4.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_bridge.bulk_verification import bulk_verification
from veen_bridge.bundles import BundleFiles, in_chain_order, open_bundles, verify_bundle
from veen_bridge.importing.admission import accepted_source, plan_import
from veen_bridge.importing.audit import AuditLog, failure_code
from veen_bridge.importing.bundle_import import BundleImport, ImportedBundle
from veen_bridge.roles.config import SourceHub
from veen_bridge.roles.run_lock import only_run
from veen_bridge.roles.session import RoleSession
from veen_core.bundle import BundleTrust
from veen_core.errors import ConfigError, VeenError
from veen_core.ids import BundleId
from veen_core.tlog.policy import WitnessPolicy, parse_policy
from veen_hub.client import Refused, Unreachable
from veen_overlays import SummaryStore
from veen_overlays.bridge.imports import imported_bundle

LOCK: Final = ".veen-bridge-import.lock"
Progress = Callable[[str, int], None]
"""Called with the step, ``verify`` or ``import``, and the number of events done since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOutcome:
    """The result for one bundle, or for one file that is no part of any."""

    bundle_id: BundleId | None
    imported: ImportedBundle | None = None
    skipped: bool = False
    """Whether the bundle was left out because it was imported before."""
    failure: VeenError | None = None

    @property
    def code(self) -> str | None:
        return None if self.failure is None else failure_code(self.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRun:
    """One call of ``veen bridge import``."""

    session: RoleSession
    allow_gap: bool = False
    skip_imported: bool = False
    store: SummaryStore | None = None
    """Keeps the folded audit log between runs; it may be lost."""
    progress: Progress = lambda _step, _count: None

    async def run(self, paths: Sequence[Path]) -> list[ImportOutcome]:
        """Import all bundles among the files, in the order of their chains.

        A bundle that fails is reported in the audit log, and the next one is tried. A hub that cannot be
        reached, or that refuses the bridge's messages, ends the run. A second run with the same identity
        would report bundles that the first is importing, so it is refused.
        """
        folder = self.session.config.client
        with only_run(folder / LOCK, f"another import runs with the identity in {folder}"):
            return await self._all(paths)

    async def _all(self, paths: Sequence[Path]) -> list[ImportOutcome]:
        opened = await asyncio.to_thread(open_bundles, paths)
        audit = AuditLog(self.session, self.store)
        outcomes: list[ImportOutcome] = []
        for fault in opened.faults:
            await audit.report_failure(None, fault)
            outcomes.append(ImportOutcome(bundle_id=None, failure=fault))
        for files, _previous in in_chain_order(opened.bundles):
            # Helper processes verify the bundle's signatures, and then the target hub's receipts.
            with bulk_verification(files.header.counts.events):
                outcomes.append(await self._one(files, audit))
        return outcomes

    async def _one(self, files: BundleFiles, audit: AuditLog) -> ImportOutcome:
        bundle = files.bundle_id
        try:
            state = await audit.state()
            if self.skip_imported and imported_bundle(state, bundle) is not None:
                return ImportOutcome(bundle_id=bundle, skipped=True)
            source = accepted_source(self.session.config, files.header)
            await asyncio.to_thread(self._verify, files, source)
            plan = plan_import(
                bundle,
                files.header,
                self.session.config,
                state,
                root_at=lambda seq: next(files.events(seq)).receipt.mmr_root,
                allow_gap=self.allow_gap,
            )
            done = await BundleImport(self.session, plan, files, audit).run(
                lambda count: self.progress("import", count)
            )
        except Unreachable:
            raise
        except Refused as exc:
            with suppress(VeenError):  # the hub may refuse this report as well
                await audit.report_failure(bundle, exc)
            raise
        except VeenError as exc:
            await audit.report_failure(bundle, exc)
            return ImportOutcome(bundle_id=bundle, failure=exc)
        return ImportOutcome(bundle_id=bundle, imported=done)

    def _verify(self, files: BundleFiles, source: SourceHub) -> None:
        """Verify the whole bundle before the first event is written (AGB0 4.5 step 2)."""
        verify_bundle(files, trust_of(source), advance=lambda count: self.progress("verify", count))


def trust_of(source: SourceHub) -> BundleTrust:
    """Return the pins and the witness policy against which a source's bundles are verified."""
    policy = _policy(source.witnesses) if source.witnesses is not None else None
    return BundleTrust(pinned=source.hub_id, bridge=source.bridge_id, policy=policy, origin=source.log_origin)


def _policy(path: Path) -> WitnessPolicy:
    try:
        return parse_policy(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"witness policy {path} cannot be read: {exc.strerror}") from None
