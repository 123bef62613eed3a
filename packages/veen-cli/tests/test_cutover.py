"""``veen hub start --replica-of``, ``successor``, ``handover``, ``promote`` and ``lost`` (RESOLUTIONS P9)."""

from __future__ import annotations

import time
from pathlib import Path

from veen_cli.frame.exits import Exit

from .running import ending_hubs, veen

PATIENCE = 60.0


def test_a_planned_cutover_by_commands_loses_nothing(tmp_path: Path) -> None:
    for name in ("admin", "alice"):
        veen("keygen", "--out", tmp_path / name, "--no-passphrase").ok()
    made = veen("hub", "init", "-d", tmp_path / "hub", "--admin", tmp_path / "admin", "--json").json
    start = ("--port", "0", "--detach", "--log-level", "error", "--json")
    with ending_hubs(tmp_path):
        hub = veen("hub", "start", "-d", tmp_path / "hub", "--open", *start).json["url"]
        there = ("--hub", hub, "--trust", made["hub_id"])
        alice = ("--client", tmp_path / "alice", "--stream", "orders")
        receipt = tmp_path / "receipt.cbor"
        veen("send", "one", *alice, *there, "--receipt", receipt).ok()
        copy = veen("hub", "start", "-d", tmp_path / "replica", "--replica-of", hub, *start).json["url"]
        refused = veen("send", "two", *alice, "--hub", copy, "--trust", made["hub_id"])
        assert hub in refused.failed(Exit.REFUSED)

        keys, new = tmp_path / "keys", tmp_path / "new"
        new_hub = veen("hub", "successor", "--new-keys", keys, "--json").json["hub_id"]
        promote = ("hub", "promote", "-d", tmp_path / "replica", "--new-keys", keys, "--out", new)
        promote = (*promote, "--admin", tmp_path / "admin")
        assert "no handover record" in veen(*promote).failed(Exit.USAGE)
        record = tmp_path / "handover.cbor"
        veen("hub", "handover", "--client", tmp_path / "admin", *there, "--to", new_hub, "--out", record).ok()
        assert new_hub in veen("send", "two", *alice, *there).failed(Exit.REFUSED)
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / "replica" / "handover.cbor").exists():
            assert time.monotonic() < deadline, "the replica never got the handover"
            time.sleep(0.02)
        assert "the cutover is planned" in veen(*promote, "--unplanned").failed(Exit.USAGE)
        assert veen(*promote, "--json").json["planned"] is True
        found = veen("hub", "lost", "-d", new, "--receipts", receipt, "--json").json
        assert (found["kept"], found["missing"]) == (1, [])
        successor = veen("hub", "start", "-d", new, "--open", *start).json["url"]
        sent = veen("send", "two", *alice, "--hub", successor, "--trust", new_hub, "--json").json
        assert sent["stream_seq"] == 1
        both = ("--hub", hub, "--trust", made["hub_id"], "--successor", successor)
        assert veen("send", "three", *alice, *both, "--json").json["stream_seq"] == 2
        veen("hub", "stop", "-d", tmp_path / "hub").ok()
        assert veen("send", "four", *alice, *both, "--json").json["stream_seq"] == 3


def test_a_receipt_that_the_copy_lacks_is_listed_as_lost(tmp_path: Path) -> None:
    for name in ("admin", "alice"):
        veen("keygen", "--out", tmp_path / name, "--no-passphrase").ok()
    made = veen("hub", "init", "-d", tmp_path / "hub", "--admin", tmp_path / "admin", "--json").json
    start = ("--port", "0", "--detach", "--log-level", "error", "--json")
    with ending_hubs(tmp_path):
        hub = veen("hub", "start", "-d", tmp_path / "hub", "--open", *start).json["url"]
        alice = ("--client", tmp_path / "alice", "--stream", "orders", "--hub", hub)
        files = [tmp_path / f"{number}.cbor" for number in range(2)]
        veen("send", "one", *alice, "--trust", made["hub_id"], "--receipt", files[0]).ok()
        veen("hub", "clone", "-d", tmp_path / "hub", "--out", tmp_path / "copy").ok()
        veen("send", "two", *alice, "--trust", made["hub_id"], "--receipt", files[1]).ok()
    asked = [part for file in files for part in ("--receipts", file)]
    done = veen("hub", "lost", "-d", tmp_path / "copy", *asked)
    assert done.code == Exit.PROTOCOL
    assert "1 kept, 1 not" in done.out
    assert "entry 2: lost" in done.out
