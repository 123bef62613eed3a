"""``veen hub start --replica-of``, ``successor``, ``handover``, ``promote`` and ``lost`` (RESOLUTIONS P9)."""

from __future__ import annotations

import json
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
        to_copy = ("send", "two", *alice, "--hub", copy, "--trust", made["hub_id"])
        deadline = time.monotonic() + PATIENCE
        while (refused := veen(*to_copy)).code == Exit.NETWORK:  # the replica has not caught up yet
            assert time.monotonic() < deadline, refused
        assert hub in refused.failed(Exit.REFUSED)

        keys, new = tmp_path / "keys", tmp_path / "new"
        new_hub = veen("hub", "successor", "--new-keys", keys, "--json").json["hub_id"]
        promote = ("hub", "promote", "-d", tmp_path / "replica", "--new-keys", keys, "--out", new)
        promote = (*promote, "--admin", tmp_path / "admin")
        assert "no handover record" in veen(*promote).failed(Exit.USAGE)
        record = tmp_path / "handover.cbor"
        veen(
            "hub", "handover", "--client", tmp_path / "admin", *there, "--new-hub", new_hub, "--out", record
        ).ok()
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


def federated(folder: Path, home: dict[str, str], realm_key: Path) -> Path:
    """Write the configuration of a hub that follows the realm ``shop`` at its home hub."""
    named = {
        "id": "shop",
        "key": str(realm_key / "secrets.cbor"),
        "url": home["url"],
        "pinned": home["hub_id"],
        "refresh_ms": 50,
    }
    config = folder / "hub.yaml"
    config.write_text(json.dumps({"level": "federated", "realm": named}))
    return config


def follows_its_realm(started: dict[str, str], hub_id: str) -> str:
    """Wait until a hub has the view of its realm; return its address."""
    probes = ("--hub", started["url"], "--trust", hub_id, "--probes", started["probes_url"])
    deadline = time.monotonic() + PATIENCE
    while veen("hub", "health", *probes).code != Exit.OK:
        assert time.monotonic() < deadline, "the hub never became ready"
    return started["url"]


def test_a_successor_takes_the_authority_of_the_old_hub_when_the_handover_is_published(
    tmp_path: Path,
) -> None:
    """AUTH1 and H7: the record that names the old hub lasts for 30 days, and the cutover does not wait."""
    for name in ("admin", "alice", "realm"):
        veen("keygen", "--out", tmp_path / name, "--no-passphrase").ok()
    hub, home = (
        veen("hub", "init", "-d", tmp_path / name, "--admin", tmp_path / "admin", "--json").json
        for name in ("hub", "home")
    )
    start = ("--open", "--port", "0", "--detach", "--log-level", "error", "--json")
    with ending_hubs(tmp_path):
        home["url"] = veen("hub", "start", "-d", tmp_path / "home", *start).json["url"]
        config = ("--config", federated(tmp_path, home, tmp_path / "realm"))
        there = ("--hub", home["url"], "--trust", home["hub_id"], "--client", tmp_path / "admin")
        realm = ("--realm", "shop", "--reader", tmp_path / "realm", *there)
        veen("authority", "set", "orders", "--primary", hub["hub_id"], *realm).ok()

        started = veen("hub", "start", "-d", tmp_path / "hub", *config, *start).json
        old = follows_its_realm(started, hub["hub_id"])
        alice = ("--client", tmp_path / "alice", "--stream", "orders")
        veen("send", "one", *alice, "--hub", old, "--trust", hub["hub_id"]).ok()
        veen("hub", "start", "-d", tmp_path / "replica", "--replica-of", old, *start).ok()
        keys, new = tmp_path / "keys", tmp_path / "new"
        new_hub = veen("hub", "successor", "--new-keys", keys, "--json").json["hub_id"]
        at_old = ("--hub", old, "--trust", hub["hub_id"], "--client", tmp_path / "admin")
        veen("hub", "handover", *at_old, "--new-hub", new_hub).ok()
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / "replica" / "handover.cbor").exists():
            assert time.monotonic() < deadline, "the replica never got the handover"
            time.sleep(0.02)
        promote = ("hub", "promote", "-d", tmp_path / "replica", "--new-keys", keys, "--out", new)
        assert "veen authority handover" in veen(*promote, "--admin", tmp_path / "admin").ok().out

        successor = follows_its_realm(veen("hub", "start", "-d", new, *config, *start).json, new_hub)
        at_new = (*alice, "--hub", successor, "--trust", new_hub)
        refused = veen("send", "two", *at_new).failed(Exit.REFUSED)
        assert "NOT_PRIMARY" in refused
        assert hub["hub_id"] in refused
        empty = veen("authority", "handover", tmp_path / "home", *realm)
        assert "has no handover record" in empty.failed(Exit.USAGE)
        veen("authority", "handover", new, *realm).ok()
        assert veen("authority", "show", "orders", *realm, "--json").json["primary_hub"] == new_hub
        deadline = time.monotonic() + PATIENCE
        while "NOT_PRIMARY" in (sent := veen("send", "two", *at_new)).err:
            assert time.monotonic() < deadline, "the successor never saw the record"
        assert "message 1 of orders" in sent.ok().out


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
    done = veen("hub", "lost", "-d", tmp_path / "copy", *asked, "--receipts", files[0])
    assert done.code == Exit.PROTOCOL
    assert "1 kept, 1 not" in done.out
    assert "entry 2: lost" in done.out
    (tmp_path / "none").touch()
    done = veen("hub", "lost", "-d", tmp_path / "copy", "--receipts", tmp_path / "none")
    assert done.code == Exit.USAGE
    assert "no receipt" in done.err
