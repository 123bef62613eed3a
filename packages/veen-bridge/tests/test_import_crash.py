"""Import killed with SIGKILL at any effect, with its disk or with an empty one: none lost, none doubled (P8).

A forked process imports and kills itself right before or after its n-th effect. ``VEEN_CRASH_ROUNDS`` is the
number of kills; they are spread over all effects.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .import_ledger import imported_positions
from .kill_points import NEVER, crash_rounds, run_and_die
from .source_zone import SourceZone
from .target_zone import TARGET, OfflineBridge, target_hub

ROUNDS = crash_rounds(52) // 2
"""Kills per test."""
EVENTS_PER_BUNDLE = 20


def ledger(bridge: OfflineBridge) -> list[int]:
    """Read the imported events in a process that shares no state with the bridge."""
    hub = bridge.hub
    return imported_positions(hub.url, hub.hub_id.hex(), bridge.root / "identity", TARGET)


@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_an_import_killed_at_any_effect_loses_and_doubles_nothing(tmp_path: Path, disk: str) -> None:
    """Each round kills the import of a new bundle, every third round twice; then another run continues."""
    source = SourceZone(tmp_path / "z1")
    media = tmp_path / "media"
    try:
        with target_hub(tmp_path / "z2") as hub:
            bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id)

            def carry() -> Path:
                source.send(EVENTS_PER_BUNDLE)
                (bundle,) = source.export(out=media)
                return bundle.files[0]

            def import_(path: Path, at: int = NEVER, *, after: bool = False) -> tuple[bool, int]:
                def work() -> None:
                    (outcome,) = bridge.import_(path, skip_imported=True)
                    assert outcome.failure is None

                died = run_and_die(work, at, after=after)
                if disk == "lost":
                    bridge.lose_disk()
                return died

            import_(carry())
            _, effects = import_(carry())
            kills = 0
            for round_ in range(ROUNDS):
                path, at = carry(), 1 + round_ * effects // ROUNDS
                kills += import_(path, at, after=round_ % 2 == 1)[0]
                if round_ % 3 == 2:
                    import_(path, 1 + (at * 7 + round_) % effects, after=round_ % 4 == 1)
                assert import_(path)[0] is False
            assert kills >= ROUNDS * 9 // 10
            assert ledger(bridge) == list(range(1, EVENTS_PER_BUNDLE * (ROUNDS + 2) + 1))
    finally:
        source.stop()


def test_a_bridge_with_an_empty_disk_continues_a_stream(tmp_path: Path) -> None:
    source = SourceZone(tmp_path / "z1")
    try:
        with target_hub(tmp_path / "z2") as hub:
            bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id)
            for number in range(3):
                source.send(10)
                source.export(out=tmp_path / f"media-{number}")
                assert bridge.import_command(str(tmp_path / f"media-{number}")).returncode == 0
                bridge.lose_disk()
            assert ledger(bridge) == list(range(1, 31))
    finally:
        source.stop()
