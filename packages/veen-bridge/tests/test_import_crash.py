"""Import killed with SIGKILL at any step, with its disk or with an empty one: none lost, none doubled (P8).

``VEEN_CRASH_ROUNDS`` sets the number of kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .source_zone import SourceZone
from .target_zone import TARGET, OfflineBridge, target_hub

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "25"))
EVENTS_PER_BUNDLE = 40
BUNDLES = 4


def ledger(bridge: OfflineBridge) -> dict[int, int]:
    """Count the imported events in a process that shares no state with the bridge."""
    script = Path(__file__).with_name("import_ledger.py")
    hub = bridge.hub
    command = [
        sys.executable,
        str(script),
        hub.url,
        hub.hub_id.hex(),
        str(bridge.root / "identity"),
        TARGET,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {int(seq): times for seq, times in json.loads(done.stdout).items()}


def kill_import(bridge: OfflineBridge, media: Path, step: int) -> int:
    """Start an import that kills itself with SIGKILL before its ``step``-th write; returns its exit code."""
    script = (
        "import asyncio, os, signal, sys\n"
        "from veen_hub.client.wire import transport\n"
        "left = int(sys.argv.pop(1))\n"
        "call = transport.Transport.call\n"
        "async def counted(self, method, path, *args, **kwargs):\n"
        "    global left\n"
        "    if method in ('POST', 'PUT'):\n"
        "        left -= 1\n"
        "        if left == 0:\n"
        "            if os.environ['AFTER'] == '1':\n"
        "                await call(self, method, path, *args, **kwargs)\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return await call(self, method, path, *args, **kwargs)\n"
        "transport.Transport.call = counted\n"
        "from veen_cli.frame.start import main\n"
        "main()\n"
    )
    flags = ["--config", str(bridge.root / "bridge.yaml"), "--skip-imported", "-q", str(media)]
    command = [sys.executable, "-c", script, str(step), "bridge", "import", *flags]
    environment = {**os.environ, "AFTER": str(step % 2)}
    return subprocess.run(command, env=environment, capture_output=True, timeout=90, check=False).returncode


@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_an_import_killed_at_any_request_loses_and_doubles_nothing(tmp_path: Path, disk: str) -> None:
    """Each round kills one import before or after one of its requests, then another one continues."""
    source = SourceZone(tmp_path / "z1")
    draw = random.Random(disk)
    try:
        with target_hub(tmp_path / "z2") as hub:
            bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id)
            total = kills = 0
            for number in range(BUNDLES):
                source.send(EVENTS_PER_BUNDLE)
                total += EVENTS_PER_BUNDLE
                media = tmp_path / f"media-{number}"
                source.export(out=media)
                for _ in range(max(1, ROUNDS // 2 // BUNDLES)):
                    code = kill_import(bridge, media, draw.randint(1, 14))
                    kills += code == -signal.SIGKILL
                    assert code in (0, -signal.SIGKILL)
                    if disk == "lost":
                        bridge.lose_disk()
                done = bridge.import_command("--skip-imported", str(media))
                assert done.returncode == 0, done.stdout + done.stderr
                assert ledger(bridge) == dict.fromkeys(range(1, total + 1), 1)
            assert kills
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
            assert ledger(bridge) == dict.fromkeys(range(1, 31), 1)
    finally:
        source.stop()
