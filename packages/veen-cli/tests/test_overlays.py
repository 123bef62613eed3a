"""fold, kv, crdt, queue, snapshot: the real command against a real hub."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from veen_cli.frame.exits import Exit
from veen_cli.overlays.overlay_stream import OverlayStream
from veen_core.receipt import Receipt
from veen_overlays.schema.record import Record

from .conftest import Town
from .running import SCRIPTS, environment, process, veen


def test_a_key_has_its_last_value_until_it_is_removed(square: Town) -> None:
    on = ("-s", "kv-one")
    square.as_("alice", "kv", "put", "colour", "red", *on).ok()
    square.as_("alice", "kv", "put", "colour", "green", *on).ok()
    square.as_("alice", "kv", "put", "size", "7", *on).ok()
    assert square.as_("alice", "kv", "get", "colour", *on, "-q").ok().out == "green\n"
    told = square.as_("alice", "kv", "list", *on, "--json").json
    assert told["entries"] == [{"key": "colour", "value": "green"}, {"key": "size", "value": "7"}]
    assert square.as_("alice", "kv", "del", "colour", *on, "--json").json["schema"] == "kv.delete.v1"
    assert "no key 'colour'" in square.as_("alice", "kv", "get", "colour", *on).failed(Exit.USAGE)


def test_a_reader_whose_keys_open_no_record_is_told_so(square: Town) -> None:
    on = ("-s", "kv-sealed")
    square.as_("alice", "kv", "put", "colour", "red", *on).ok()
    assert "your keys do not open its records (--reader)" in square.as_("bob", "kv", "list", *on).ok().out
    assert "--reader" in square.as_("bob", "kv", "get", "colour", *on).failed(Exit.USAGE)


def test_a_map_is_shared_by_all_holders_of_its_reader_key(square: Town) -> None:
    on = ("-s", "kv-shared", "--reader", square / "realm")
    square.as_("alice", "kv", "put", "from", "alice", *on).ok()
    square.as_("bob", "kv", "put", "to", "bob", *on).ok()
    assert len(square.as_("bob", "kv", "list", *on, "--json").json["entries"]) == 2
    # Without the reader key the message does not open, and a view is stored per set of keys.
    assert square.as_("bob", "kv", "list", "-s", "kv-shared", "--json").json["entries"] == []
    assert len(square.as_("bob", "kv", "list", *on, "--json").json["entries"]) == 2


def test_watching_shows_each_change_as_it_happens(square: Town, tmp_path: Path) -> None:
    on = ("-s", "kv-watched")
    square.as_("alice", "kv", "put", "a", "1", *on).ok()
    seen = square.as_("alice", "kv", "watch", *on, "--from", 1, "--count", 1, "--json").json
    assert seen == {"stream_seq": 1, "key": "a", "value": "1"}
    flags = ["--hub", square.url, "--trust", square.hub_id, "--client", str(square / "alice")]
    watch = ["kv", "watch", "a", *on, *flags, "--from", "2", "--count", "2", "--json"]
    with subprocess.Popen(
        [SCRIPTS / "veen", *watch], stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as process:
        square.as_("alice", "kv", "put", "b", "2", *on).ok()
        square.as_("alice", "kv", "put", "a", "3", *on).ok()
        square.as_("alice", "kv", "del", "a", *on).ok()
        told, _ = process.communicate(timeout=30)
    assert [json.loads(line)["value"] for line in told.splitlines()] == ["3", None]


def test_registers_sets_and_counters_converge(square: Town) -> None:
    both = ("-s", "crdts", "--reader", square / "realm")
    square.as_("alice", "crdt", "lww", "set", "motd", "late", "--ts", 2_000, *both).ok()
    square.as_("bob", "crdt", "lww", "set", "motd", "early", "--ts", 1_000, *both).ok()
    assert square.as_("bob", "crdt", "lww", "get", "motd", *both, "--json").json["value"] == "late"
    assert "no register" in square.as_("bob", "crdt", "lww", "get", "other", *both).failed(Exit.USAGE)

    square.as_("alice", "crdt", "set", "add", "milk", *both).ok()
    square.as_("bob", "crdt", "set", "add", "milk", *both).ok()
    square.as_("bob", "crdt", "set", "add", "bread", *both).ok()
    assert square.as_("alice", "crdt", "set", "remove", "milk", *both, "--json").json["removed"] == 2
    assert square.as_("bob", "crdt", "set", "show", *both).ok().out == "bread\n"
    assert "nothing was sent" in square.as_("bob", "crdt", "set", "remove", "milk", *both).failed(Exit.POLICY)

    square.as_("alice", "crdt", "counter", "add", 3, *both).ok()
    square.as_("bob", "crdt", "counter", "add", 4, *both).ok()
    told = square.as_("alice", "crdt", "counter", "show", *both, "--json").json
    assert (told["total"], sorted(told["shards"].values())) == (7, [3, 4])


def test_a_job_is_taken_by_one_worker_and_done_when_it_is_acknowledged(square: Town) -> None:
    on = ("-s", "jobs", "--reader", square / "realm")
    first = square.as_("alice", "queue", "put", "resize 17.png", *on, "--json").json["job"]
    second = square.as_("alice", "queue", "put", "resize 18.png", *on, "--json").json["job"]
    taken = square.as_("alice", "queue", "take", *on, "--lease", "10m", "--json").json
    assert (taken["job"], taken["body"]) == (first, "resize 17.png")
    assert square.as_("bob", "queue", "take", *on, "--quiet").ok().out == "resize 18.png\n"
    assert square.as_("bob", "queue", "take", *on, "--json").json["job"] is None
    square.as_("alice", "queue", "ack", first, *on).ok()
    assert "QUEUE.DONE" in square.as_("bob", "queue", "ack", first, *on).failed(Exit.POLICY)
    assert "QUEUE.NO_JOB" in square.as_("bob", "queue", "ack", "00" * 32, *on).failed(Exit.POLICY)
    assert "hex digits" in square.as_("bob", "queue", "ack", "zz", *on).failed(Exit.USAGE)
    open_jobs = square.as_("bob", "fold", "queue.jobs", *on[1:], "--json").json["state"]
    assert [job["job"] for job in open_jobs] == [second]


@pytest.mark.parametrize("names", [("aa" * 32, "bb" * 32), ("aa" * 32, "aa" * 32)], ids=["two", "one"])
def test_one_of_two_concurrent_takes_gets_the_job_even_with_one_worker_id(
    square: Town, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bob's process takes the job after Alice has read the queue and before she sends."""
    mine, theirs = names
    on = ("-s", f"race-{theirs[:2]}", "--reader", square / "realm")
    jobs = [square.as_("alice", "queue", "put", body, *on, "--json").json["job"] for body in "xy"]
    send, taken = OverlayStream.send, []

    async def late(source: OverlayStream, record: Record, **options: object) -> Receipt:
        if not taken:
            flags = ("--hub", square.url, "--trust", square.hub_id, "--client", square / "bob", "--json")
            taken.append(process(tmp_path, "queue", "take", *on, "--worker", theirs, *flags).json["job"])
        return await send(source, record, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(OverlayStream, "send", late)
    taken.append(square.as_("alice", "queue", "take", *on, "--worker", mine, "--json").json["job"])
    assert taken == jobs


def test_a_job_whose_lease_ends_can_be_taken_by_another_worker(square: Town) -> None:
    on = ("-s", "short-jobs", "--reader", square / "realm")
    job = square.as_("alice", "queue", "put", "x", *on, "--json").json["job"]
    square.as_("alice", "queue", "take", *on, "--lease", "0s").ok()
    assert square.as_("bob", "queue", "take", *on, "--lease", "10m", "--json").json["job"] == job


def test_a_fold_prints_the_logs_root_and_can_show_an_earlier_state(square: Town) -> None:
    on = ("-s", "folded")
    for n in range(3):
        last = square.as_("alice", "kv", "put", "k", n, *on, "--json").json
    square.as_("alice", "send", "a stranger's message", *on).ok()
    now = square.as_("alice", "fold", "kv.map", "folded", "--json").json
    assert (now["events"], now["foreign"], now["upto_seq"]) == (3, 1, 4)
    before = square.as_("alice", "fold", "kv.map", "folded", "--upto", 3, "--json").json
    assert (before["mmr_root"], before["state_hash"]) == (last["mmr_root"], now["state_hash"])
    first = square.as_("alice", "fold", "kv.map", "folded", "--upto", 1, "--json").json
    assert first["state"] == {b"k".hex(): b"0".hex()}
    assert "4 messages" in square.as_("alice", "fold", "kv.map", "folded", "--upto", 9).failed(Exit.USAGE)
    assert '"6b": "32"' in square.as_("alice", "fold", "kv.map", "folded").ok().out


def test_a_fold_is_stored_and_continued(square: Town) -> None:
    lines = "".join(f"{n}\n" for n in range(130)).encode()
    square.as_("bob", "send", "--batch", "-s", "long", stdin=lines).ok()
    fresh = square.as_("bob", "fold", "kv.map", "long", "--json").json
    stores = list((square / "bob" / "views").glob("*/data.mdb"))
    assert stores
    assert square.as_("bob", "fold", "kv.map", "long", "--json").json == fresh
    for store in stores:
        store.write_bytes(b"\x55" * 9_000)
    assert "delete" in square.as_("bob", "fold", "kv.map", "long").failed(Exit.PROTOCOL)
    for store in stores:
        for file in store.parent.iterdir():
            file.unlink()
    assert square.as_("bob", "fold", "kv.map", "long", "--json").json == fresh


def test_a_snapshot_is_published_and_verified_by_folding_the_log(square: Town) -> None:
    on = ("-s", "snapped", "--reader", square / "realm")
    square.as_("alice", "kv", "put", "k", "1", *on).ok()
    named = ("kv.map", "snapped", "--reader", square / "realm")
    assert "no such snapshot" in square.as_("bob", "snapshot", "verify", *named).failed(Exit.USAGE)
    claim = square.as_("alice", "snapshot", "publish", *named, "--into", "claims", "--json").json
    square.as_("alice", "kv", "put", "k", "2", *on).ok()
    square.as_("alice", "snapshot", "publish", *named, "--into", "claims").ok()
    told = square.as_("bob", "snapshot", "verify", *named, "--into", "claims", "--json").json
    assert [each["upto_seq"] for each in told["snapshots"]] == [1, 2]
    assert told["snapshots"][0]["state_hash"] == claim["state_hash"]


def test_a_stream_or_epoch_that_does_not_exist_is_a_usage_error(square: Town) -> None:
    said = square.as_("alice", "snapshot", "publish", "kv.map", "never written").failed(Exit.USAGE)
    assert "no such stream" in said
    said = square.as_("alice", "fold", "kv.map", "never written", "--epoch", 3).failed(Exit.USAGE)
    assert "no epochs" in said


@pytest.mark.parametrize(
    "info", ['{"x": 1.5}', '{"x": NaN}', f'{{"x": {2**64}}}', '{"x": "\\ud800"}', "[1]", "{"]
)
def test_a_json_value_that_no_record_can_hold_is_a_usage_error(square: Town, info: str) -> None:
    assert "--info" in square.as_("alice", "id", "principal", "--info", info).failed(Exit.USAGE)


def test_a_snapshot_of_another_state_is_refused(square: Town) -> None:
    """A snapshot under this stream's state_id has the state hash of another stream."""
    reader = ("--reader", square / "realm")
    for stream, value in (("honest", "1"), ("forged", "2")):
        square.as_("alice", "kv", "put", "k", value, "-s", stream, *reader).ok()
    honest = square.as_("alice", "snapshot", "publish", "kv.map", "honest", *reader, "--json").json[
        "state_id"
    ]
    lie = ("--into", "lies", "--state-id", honest, *reader)
    square.as_("alice", "snapshot", "publish", "kv.map", "forged", *lie).ok()
    said = square.as_("bob", "snapshot", "verify", "kv.map", "honest", *lie).failed(Exit.PROTOCOL)
    assert "mmr_root" in said


@pytest.mark.parametrize(
    "args",
    [("kv", "list"), ("fold", "kv.map", "x"), ("wallet", "balance", "00" * 32)],
    ids=lambda args: " ".join(args[:2]),
)
def test_without_an_identity_the_error_names_the_missing_flag(square: Town, args: tuple[str, ...]) -> None:
    on = ("-s", "x") if args[0] == "kv" else ()
    assert "--client" in veen(*args, *on, "--hub", square.url, "--trust", square.hub_id).failed(Exit.USAGE)


@pytest.mark.parametrize(
    "args",
    [
        ("kv", "get", "colour", "-s", "confg"),
        ("kv", "list", "-s", "confg"),
        ("crdt", "lww", "get", "motd", "-s", "confg"),
        ("crdt", "set", "show", "-s", "confg"),
        ("crdt", "counter", "show", "-s", "confg"),
        ("fold", "kv.map", "confg"),
        ("snapshot", "verify", "kv.map", "confg"),
        ("wallet", "balance", "--ledger", "confg"),
        ("wallet", "ledger", "--ledger", "confg"),
        ("wallet", "verify", "--ledger", "confg"),
        ("authority", "show", "orders", "--realm", "confg"),
        ("label-class", "show", "00" * 32, "--realm", "confg"),
        ("schema", "show", "shop.order.v1", "--realm", "confg"),
        ("id", "whois", "@bob", "--realm", "confg"),
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_reading_a_misspelt_stream_is_an_error_and_creates_nothing(
    square: Town, args: tuple[str, ...]
) -> None:
    square.as_("alice", "kv", "put", "colour", "red", "-s", "config").ok()
    square.as_("alice", "kv", "list", "-s", "config").ok()

    def files() -> set[Path]:
        """Files of the identities; the hub may still apply earlier messages."""
        hub = square / "hub"
        return {path for path in square.root.rglob("*") if path.is_file() and hub not in path.parents}

    before = files()
    said = square.as_("alice", *args).failed(Exit.USAGE)
    assert ("no such realm" if "--realm" in args else "no such stream confg") in said
    assert files() == before
