"""An export that is killed at any of its effects: the next run leaves no gap, and doubles no range (P8).

A forked process exports and kills itself right before or after its n-th effect. ``VEEN_CRASH_ROUNDS`` is the
number of kills; they are spread over all effects.
"""

from __future__ import annotations

import json
from itertools import pairwise

from .kill_points import NEVER, crash_rounds, run_and_die
from .source_zone import SMALL_PARTS, STREAM, SourceZone

ROUNDS = crash_rounds(50)
ENTRIES = 14
"""New entries per round: a bundle of two parts."""


def test_a_killed_export_loses_no_entry_and_exports_none_twice(zone: SourceZone) -> None:
    def export() -> None:
        zone.export(part_size=SMALL_PARTS, heartbeat=False)

    for _ in range(2):  # the first export also creates the bridge's state
        zone.send(ENTRIES)
        killed, effects = run_and_die(export, NEVER)
        assert not killed
    kills = 0
    for round_ in range(ROUNDS):
        zone.send(ENTRIES)
        killed, _ = run_and_die(export, 1 + round_ * effects // ROUNDS, after=round_ % 2 == 1)
        kills += killed
        export()
    assert kills >= ROUNDS * 9 // 10
    assert list(zone.out.glob(".*.exporting")) == []
    check_ledger(zone, ENTRIES * (ROUNDS + 2))


def check_ledger(zone: SourceZone, entries: int) -> None:
    """Verify every bundle in another process; their ranges cover each entry once, in one chain."""
    done = zone.command("verify", str(zone.out), "--hub", zone.hub_id.hex(), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    bundles = json.loads(done.stdout)["bundles"]
    assert {each["stream"] for each in bundles} == {STREAM}
    covered = sorted((each["from_seq"], each["to_seq"]) for each in bundles)
    assert covered[0][0] == 1
    assert covered[-1][1] == entries
    assert all(after[0] == before[1] + 1 for before, after in pairwise(covered))
    ids = [each["bundle_id"] for each in bundles]
    assert [each["prev_bundle_id"] for each in bundles] == ["00" * 32, *ids[:-1]]
