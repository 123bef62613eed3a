"""Overlays at a hub with epochs, where a stream has one label per epoch (core §12).

The hub is a real one with epochs of a second, a window of three, and a past that no longer takes messages.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from veen_cli.frame.exits import Exit
from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.limits import DEFAULT_LIMITS
from veen_core.profile import Profile
from veen_storage import store

from .conftest import Town
from .running import SCRIPTS, ending_hubs, environment, veen

EPOCH_SEC = 1
MAX_SECONDS = 60.0


class Past(NamedTuple):
    """A hub with messages in past epochs, whose labels accept no more messages."""

    town: Town
    wallet: str
    job: str
    epoch: int


def epoch_of(town: Town) -> int:
    told: int = veen("hub", "status", "--hub", town.url, "--trust", town.hub_id, "--json").json["epoch"]
    return told


def turn(town: Town, epochs: int) -> None:
    """Wait until this many epochs have passed."""
    end, wanted = time.monotonic() + MAX_SECONDS, epoch_of(town) + epochs
    while epoch_of(town) < wanted:
        assert time.monotonic() < end, "the hub's time stands still"
        time.sleep(0.05)


def new_town(root: Path) -> Town:
    """Start a hub without entries."""
    identity = store.create(
        root / "hub",
        SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE))),
        UnixTime(int(time.time())),
        profile=Profile(epoch_sec=EPOCH_SEC, pad_block=256),
        limits=replace(DEFAULT_LIMITS, max_epoch_skew_sec=EPOCH_SEC),
    )
    start = ("--port", 0, "--open", "--detach", "--log-level", "error", "--json")
    started = veen("hub", "start", "--data-dir", root / "hub", *start).json
    return Town(root, started["url"], started["probes_url"], identity.hub_id.hex())


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    root = tmp_path_factory.mktemp("turning")
    for name in ("ann", "ben", "readers"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    with ending_hubs(root):
        town = new_town(root)
        opened = town.as_("ann", "wallet", "open", "--realm", "r", "--currency", "EUR", "--json").json
        wallet = opened["wallet"]
        town.as_("ann", "wallet", "deposit", wallet, 100).ok()
        on = ("-s", "jobs", "--reader", root / "readers")
        job = town.as_("ann", "queue", "put", "sweep", *on, "--json").json["job"]
        town.as_("ann", "kv", "put", "colour", "red", "-s", "config").ok()
        epoch = epoch_of(town)
        turn(town, 5)
        yield Past(town, wallet, job, epoch)


def folded(town: Town, *args: object) -> Any:
    return town.as_("ann", "fold", *args, "--json").json


def test_a_wallet_continues_in_the_next_epoch(past: Past) -> None:
    """WAL §1: the labels of a stream have one order, and the balance covers all of them."""
    town, wallet = past.town, past.wallet
    assert town.as_("ann", "wallet", "withdraw", wallet, 30, "--json").json["balance"] == 70
    said = town.as_("ann", "wallet", "withdraw", wallet, 71).failed(Exit.POLICY)
    assert "WAL.INSUFFICIENT_FUNDS: the balance is 70" in said
    turn(town, 1)
    assert (
        town.as_("ann", "wallet", "adjust", wallet, "--by", -20, "--reason", "fee", "--json").json["balance"]
        == 50
    )
    told = town.as_("ann", "wallet", "ledger", wallet, "--json").json["events"]
    assert [(each["stream_seq"], each["schema"].split(".")[1]) for each in told] == [
        (1, "open"),
        (2, "deposit"),
        (3, "withdraw"),
        (4, "adjust"),
    ]
    assert town.as_("ann", "wallet", "verify", wallet, "--json").json == {
        "messages": 4,
        "unopened": 0,
        "holds": True,
        "violations": [],
    }


def test_a_transfer_between_streams_is_settled_across_epochs(past: Past) -> None:
    town, on = past.town, ("--reader", past.town / "readers")
    open_ = ("wallet", "open", "--realm", "two", "--currency", "EUR", *on, "--json")
    a, b = (town.as_(who, *open_).json["wallet"] for who in ("ann", "ben"))
    town.as_("ann", "wallet", "deposit", a, 10, *on).ok()
    turn(town, 1)
    paid = town.as_("ann", "wallet", "transfer", a, b, 4, *on, "--json").json
    turn(town, 4)
    again = ("--transfer-id", paid["transfer_id"])
    assert town.as_("ann", "wallet", "transfer", a, b, 4, *again, *on, "--json").json["balance"] == 6
    for wallet in (a, b):
        assert town.as_("ben", "wallet", "verify", wallet, "--across", *on, "--json").json["holds"] is True
    assert town.as_("ben", "wallet", "balance", b, *on, "-q").ok().out == "4\n"


def test_a_job_put_in_an_earlier_epoch_is_taken_once(past: Past) -> None:
    town, on = past.town, ("-s", "jobs", "--reader", past.town / "readers")
    taken = town.as_("ben", "queue", "take", *on, "--lease", "10m", "--json").json
    assert (taken["job"], taken["body"]) == (past.job, "sweep")
    turn(town, 1)
    assert town.as_("ann", "queue", "take", *on, "--json").json["job"] is None
    town.as_("ben", "queue", "ack", past.job, *on).ok()
    turn(town, 4)
    assert folded(town, "queue.jobs", "jobs", "--reader", past.town / "readers")["state"] == []


def test_a_fold_covers_all_epochs_and_can_show_an_earlier_state(past: Past) -> None:
    town = past.town
    town.as_("ann", "kv", "put", "colour", "green", "-s", "config").ok()
    last = town.as_("ann", "kv", "put", "size", "7", "-s", "config", "--json").json
    whole, first = folded(town, "kv.map", "config"), folded(town, "kv.map", "config", "--upto", 1)
    assert (whole["upto_seq"], whole["events"]) == (3, 3)
    assert whole["state"] == {b"colour".hex(): b"green".hex(), b"size".hex(): b"7".hex()}
    assert first["state"] == {b"colour".hex(): b"red".hex()}
    assert last["id"] in whole["receipt"]
    empty = town.as_("ann", "fold", "kv.map", "config", "--epoch", past.epoch - 50)
    assert f"stream config has no message in epoch {past.epoch - 50}" in empty.failed(Exit.USAGE)
    turn(town, 4)
    assert folded(town, "kv.map", "config") == whole, "the same when its labels take nothing any more"
    assert "3 messages" in town.as_("ann", "fold", "kv.map", "config", "--upto", 4).failed(Exit.USAGE)


def test_a_snapshot_at_a_hub_with_epochs_is_refused(past: Past) -> None:
    for args in (("publish", "kv.map", "config"), ("verify", "kv.map", "config")):
        said = past.town.as_("ann", "snapshot", *args).failed(Exit.POLICY)
        assert "a stream has a label per epoch" in said


def test_a_message_of_an_earlier_epoch_is_authenticated_by_its_epoch(past: Past) -> None:
    """The message is found; it was sent without a token, so ID 9.2 ends at its second step."""
    town, on = past.town, ("-s", "orders", "--seq", 1, "--realm", "r")
    sent_at = town.as_("ann", "send", "x", "-s", "orders", "--json").json["hub_ts"] // EPOCH_SEC
    turn(town, 3)
    assert "no message 1" in town.as_("ann", "id", "authenticate", *on).failed(Exit.USAGE)
    near = [town.as_("ann", "id", "authenticate", *on, "--epoch", sent_at + n).err for n in (-1, 0, 1)]
    assert len([said for said in near if "ID 9.2.2 cap_token" in said]) == 1, near


def test_calls_are_refused_before_anything_is_sent(past: Past) -> None:
    """Servers need one order of all messages, and the labels of a stream have none (ADR 0026)."""
    for words in (["call", "add", "[1, 2]"], ["serve", "--exec", "true", "--method", "add"]):
        refused = past.town.as_("ann", "rpc", *words, "-s", "calls").failed(Exit.USAGE)
        assert "with each epoch" in refused
        assert "default or bulk" in refused
    assert past.town.as_("ann", "read", "-s", "calls", "--json").json["messages"] == []


def test_a_watch_continues_in_the_next_epoch(past: Past, tmp_path: Path) -> None:
    town, on = past.town, ("-s", "watched")
    town.as_("ann", "kv", "put", "a", "before", *on).ok()
    assert "its own numbers" in town.as_("ann", "kv", "watch", *on, "--from", 1).failed(Exit.USAGE)
    flags = ["--hub", town.url, "--trust", town.hub_id, "--client", str(town / "ann")]
    watch = [SCRIPTS / "veen", "kv", "watch", *on, *flags, "--json"]
    with subprocess.Popen(watch, bufsize=0, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
        try:
            shown: list[str] = []
            while not shown:  # it shows only what comes after it has begun to look
                town.as_("ann", "kv", "put", "a", "early", *on).ok()
                shown += [change["value"] for change in changes(process, within=0.5)]
            turn(town, 3)
            town.as_("ann", "kv", "put", "a", "late", *on).ok()
            end = time.monotonic() + MAX_SECONDS
            while "late" not in shown:
                assert time.monotonic() < end, shown
                shown += [change["value"] for change in changes(process, within=0.5)]
        finally:
            process.terminate()
    assert "before" not in shown


def changes(process: subprocess.Popen[bytes], within: float) -> Iterator[Any]:
    """Return the output that appears within the timeout."""
    assert process.stdout is not None
    while select.select([process.stdout], [], [], within)[0]:
        line = process.stdout.readline()
        assert line, "it ended"
        yield json.loads(line)


def test_a_recorder_keeps_the_labels_of_every_epoch(tmp_path: Path) -> None:
    """``init`` works at a hub without entries; ``checkpoint`` publishes the label classes of later epochs."""
    (tmp_path / "recorder.yaml").write_text("profile: p\nrealm: r\nstreams: {record/app/a: [a]}\n")
    with ending_hubs(tmp_path):
        town = new_town(tmp_path)
        shared = ("--hub", town.url, "--trust", town.hub_id, "--no-passphrase")
        profile = ("--profile", tmp_path / "recorder.yaml")
        for role, own in (
            ("recorder_admin", ()),
            (
                "recorder_producer",
                ("-s", "record/app/a", "--origin", "a", "--to", tmp_path / "recorder_admin/identity"),
            ),
        ):
            veen("record", "init", "--role", role, "--out", tmp_path / role, *shared, *profile, *own).ok()
        admin = ("--config", tmp_path / "recorder_admin/recorder.yaml", "--json")
        turn(town, 4)
        veen(
            "record", "emit", "a", "--subject", "s", "--config", tmp_path / "recorder_producer/recorder.yaml"
        ).ok()
        covered = veen("record", "checkpoint", "--out", tmp_path / "checkpoints", *admin).json
        (written,) = (each["label"] for each in covered["streams"] if each["last_seq"])
        client = ("--hub", town.url, "--trust", town.hub_id, "--client", tmp_path / "recorder_admin/identity")
        found = veen("label-class", "show", written, "--realm", "r", "--json", *client).json
        assert (found["class"], found["retention_hint"]) == ("log", 2**63)
