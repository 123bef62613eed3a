"""The comparison with other servers runs with what is installed; speed is not tested here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from .conftest import processes_with

PEERS = Path(__file__).parents[1] / "benchmarks" / "peers.py"


def test_every_peer_is_measured_or_said_to_be_absent_with_what_to_install(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, PEERS, "--tiny", "--json", "--place", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
    assert processes_with(str(tmp_path)) == []
    *peers, disk = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [peer["peer"] for peer in peers] == ["VEEN", "NATS JetStream", "Redis streams", "PostgreSQL"]
    assert "absent" not in peers[0]
    for peer in peers:
        if "absent" in peer:
            assert "install" in peer["absent"] or "--place" in peer["absent"]
        else:
            assert peer["one_writer"] > 0
            assert peer["in_flight"] > 0
    assert disk["one_by_one"] > 0


def test_the_table_says_that_veen_does_more_than_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PEERS.parent)
    peers = import_module("peers")
    veen = peers.PeerRates("VEEN", "0.1.0", one_writer=[1.0, 1000.0, 3000.0], in_flight=[20000.0])
    absent = peers.PeerRates("Redis streams", absent="no redis: install it")
    heading, first, second, disk, more = peers.table([veen, absent], 4000.0, 256)
    assert heading.split()[-5:] == ["1", "writer", "256", "in", "flight"]
    assert first.split() == ["VEEN", "(0.1.0)", "1,000", "20,000"]
    assert second.split(maxsplit=2)[2] == "absent: no redis: install it"
    assert disk.endswith("4,000")
    assert more.startswith("VEEN does more per message than the others: ")


def test_interrupted_it_ends_its_servers_and_removes_its_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, PEERS, "--quick", "--place", tmp_path], stdout=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("*/veen/hub/data/journal/*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.terminate()  # it ends its servers
        process.wait()
    assert (process.returncode, said) == (130, "")
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
