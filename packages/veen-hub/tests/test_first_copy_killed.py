"""Kill -9 of a replica during its first copy, and of a promotion: starting again is enough (P9).

``VEEN_KILL_ROUNDS`` sets the number of kills per test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from veen_core.hashing import H
from veen_core.keys import SigningKey, SigningSeed
from veen_storage.copies.promote import make_successor_key
from veen_storage.fsck import fsck

from .conftest import StartProcess
from .people import Writer
from .replicas import assert_same_log, assert_sound, catch_up, send
from .serving import HubProcess, until

ROUNDS = int(os.environ.get("VEEN_KILL_ROUNDS", "5"))


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


PROMOTE = """
import sys
from pathlib import Path
from veen_core.ids import UnixTime
from veen_storage.copies.promote import promote, read_successor_key
replica, target, keys = map(Path, sys.argv[1:])
promote(replica, target, read_successor_key(keys), UnixTime(2_000_000_000), handover=None)
"""


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill_when(process: subprocess.Popen[bytes], folder: Path, size: int) -> None:
    """Kill the process once the folder has this many bytes, unless it has ended."""

    def due() -> bool:
        try:
            return process.poll() is not None or bytes_below(folder) >= size
        except FileNotFoundError:
            return False

    until(due, f"{folder} has {size} bytes")
    process.kill()
    process.wait(60)


@pytest.fixture
def primary(start_process: StartProcess) -> HubProcess:
    hub = start_process("primary", "--open")
    alice = Writer("alice", hub.status().identity.hub_id)
    for _ in range(10):
        send(hub, alice, 200)
    return hub


def test_kill_9_of_a_replica_at_any_moment_of_its_first_copy_is_mended_by_starting_it_again(
    primary: HubProcess, tmp_path: Path
) -> None:
    root, whole = tmp_path / "replica", bytes_below(tmp_path / "primary" / "log")
    for number in range(ROUNDS):
        started = begin(
            "-m", "veen_hub.main", f"--data-dir={root}", "--port=0", f"--replica-of={primary.url}"
        )
        kill_when(started, root, 1 + whole * number // ROUNDS)
    replica = HubProcess(root, f"--replica-of={primary.url}")
    try:
        alice = Writer("alice", primary.status().identity.hub_id)
        catch_up(primary, replica, alice.label)
        assert primary.stop() == 0
        assert replica.stop() == 0
    finally:
        replica.kill()
    assert_same_log(tmp_path / "primary", root)
    assert_sound(root)


def test_kill_9_of_a_promotion_leaves_no_hub_or_a_whole_one(primary: HubProcess, tmp_path: Path) -> None:
    replica = HubProcess(tmp_path / "replica", f"--replica-of={primary.url}")
    try:
        catch_up(primary, replica, Writer("alice", primary.status().identity.hub_id).label)
        assert replica.stop() == 0
    finally:
        replica.kill()
    make_successor_key(tmp_path / "keys", SigningKey(SigningSeed(H(b"successor"))))
    target, whole = tmp_path / "new", bytes_below(tmp_path / "replica" / "log")
    command = ["-c", PROMOTE, *map(str, (tmp_path / "replica", target, tmp_path / "keys"))]
    for number in range(ROUNDS):
        kill_when(begin(*command), tmp_path / "new", 1 + whole * number // ROUNDS)
        if (target / "VERSION").exists():
            assert_sound(target)
        shutil.rmtree(target)  # the operator's part: promote never removes a folder
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert fsck(target).faults == []
