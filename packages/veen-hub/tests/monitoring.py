"""A monitor whose rounds a test makes one by one, and its findings as a third party sees them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veen_core.errors import DecodeError
from veen_core.hub_fork import HubLogFork, LabelFork, verify_hub_log_fork, verify_label_fork
from veen_core.ids import HubId, UnixTime
from veen_core.tlog.policy import WitnessPolicy
from veen_hub.monitor.evidence_files import EvidenceFiles
from veen_hub.monitor.findings import FindingChange, Key, OpenFinding
from veen_hub.monitor.hub_identification import HubTrust
from veen_hub.monitor.hub_monitor import HubMonitor, MonitorSettings
from veen_hub.monitor.monitor import Monitor, MonitorState
from veen_hub.monitor.sightings import SeenFiles

from .forged_hub import HUB_ID
from .people import BORN


@dataclass
class Watch:
    """A monitor whose rounds a test makes one by one."""

    place: Path
    policy: WitnessPolicy | None = None
    pins: Sequence[str] = (HUB_ID.hex(),)
    grace: float = 0.0
    now: int | None = BORN + 1_000
    """The time on the monitor's clock; None is the real one."""
    seen: list[Path] = field(default_factory=list)
    has_state: bool = True
    waits: bool = False
    """Whether a round is repeated until the grace period is over, as ``--once`` does."""
    changes: list[FindingChange] = field(default_factory=list)

    def settings(self) -> MonitorSettings:
        return MonitorSettings(
            trust=HubTrust(pins=frozenset(self.pins), policy=self.policy),
            evidence=EvidenceFiles(self.place / "evidence"),
            grace_sec=self.grace,
            now=lambda: UnixTime(self.now if self.now is not None else int(time.time())),
        )

    def round(self, *urls: str, times: int = 1) -> list[OpenFinding]:
        """Start a monitor on the kept state, make rounds, stop it, and return the open findings."""

        async def run() -> list[OpenFinding]:
            def report(_hub: HubMonitor, change: FindingChange) -> None:
                self.changes.append(change)

            with MonitorState(self.place / "state" if self.has_state else None) as state:
                monitor = Monitor(urls, state, self.settings(), seen=SeenFiles(self.seen), report=report)
                try:
                    for _ in range(times):
                        await (monitor.run_once() if self.waits else monitor.round())
                    self.checked = [hub.memory.checked for hub in monitor.hubs]
                    self.unclaimed = monitor.unclaimed
                    return [each for hub in monitor.hubs for each in hub.findings]
                finally:
                    await monitor.close()

        return asyncio.run(run())

    def keep(self, name: str, content: bytes) -> Path:
        """Write a file that a client kept."""
        path = self.place / "seen" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        self.seen = [self.place / "seen"]
        return path


def keys(found: Sequence[OpenFinding]) -> list[Key]:
    return [each.finding.key for each in found]


def convicted(found: Sequence[OpenFinding], key: Key, hub: HubId = HUB_ID) -> HubLogFork | LabelFork:
    """The evidence of the one finding, read from its file and verified as a third party does."""
    assert keys(found) == [key], [each.finding.message for each in found]
    file = found[0].file
    assert file is not None
    data = file.read_bytes()
    try:
        log_fork = HubLogFork.decode(data)
    except DecodeError:
        label_fork = LabelFork.decode(data)
        verify_label_fork(label_fork, pinned=hub)
        return label_fork
    verify_hub_log_fork(log_fork, pinned=hub)
    return log_fork
