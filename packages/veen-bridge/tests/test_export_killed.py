"""An export that is killed at any write, sync or rename: the next run leaves no gap, doubles no range (P8).

A forked process exports and kills itself with SIGKILL right before or after its n-th system call that makes
something durable. ``VEEN_CRASH_ROUNDS`` is the number of kills; they are spread over all such calls.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from .source_zone import SMALL_PARTS, STREAM, SourceZone

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "25"))
DURABLE = ("fsync", "fdatasync", "rename", "unlink", "truncate")
NEVER = 10**9
ENTRIES = 14
"""New entries per round: a bundle of two parts."""


class Executioner:
    """Counts durable calls of this process, and kills it at one of them."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.calls, self._at, self._after = 0, at, after
        for name in DURABLE:
            setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            now = self.calls == self._at
            if now and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **kwargs)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return watched


def export_and_die(zone: SourceZone, at: int, *, after: bool = False) -> tuple[bool, int]:
    """Export in a forked process; return whether it was killed, and how many durable calls it made."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            executioner = Executioner(at, after=after)
            zone.export(part_size=SMALL_PARTS, heartbeat=False)
            os.write(writing, str(executioner.calls).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True, 0
    assert os.WEXITSTATUS(status) == 0
    return False, int(told)


def test_a_killed_export_loses_no_entry_and_exports_none_twice(zone: SourceZone) -> None:
    for _ in range(2):  # the first export also creates the bridge's state
        zone.send(ENTRIES)
        killed, calls = export_and_die(zone, NEVER)
        assert not killed
    kills = 0
    for at in range(ROUNDS):
        zone.send(ENTRIES)
        killed, _ = export_and_die(zone, 1 + at * calls // ROUNDS, after=at % 2 == 1)
        kills += killed
        zone.export(part_size=SMALL_PARTS, heartbeat=False)
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
