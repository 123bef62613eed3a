"""``veen record`` against real hubs, gated and open (SDR0; RESOLUTIONS P1, P10)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from veen_cli.commands.line_input import read_lines
from veen_cli.record.emitting import IDLE_SECONDS, EventBatches
from veen_core.errors import ConfigError
from veen_core.hashing import H
from veen_core.ids import ClientId, MmrRoot, NodeHash
from veen_hub.client.roles import open_role
from veen_overlays.live.recorder import RecorderHandler, RecorderProcessor
from veen_overlays.recorder.checkpoint import RecorderCheckpoint, parse_checkpoint
from veen_overlays.recorder.events import EventMaker
from veen_overlays.recorder.profile import parse_profile

from .conftest import Town
from .running import SCRIPTS, Done, ending_hubs, veen
from .test_levels import until

PROFILE = """\
profile: shop
realm: shop
max_payload_bytes: 1000
checkpoints: {every_sec: 300, every_events: 10000}
streams:
  record/security/auth: [login, logout]
  record/app/orders: [order.placed, order.paid]
"""
ROOT = Path(__file__).parents[3]
AUTH, ORDERS, CHANGES = "record/security/auth", "record/app/orders", "record/infrastructure/changes"


@dataclass(frozen=True)
class Recorder:
    """A recorder at a hub: its administrator, and one producer for all event streams."""

    town: Town
    root: Path

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def admin(self, command: str, *args: object) -> Done:
        return veen("record", command, *args, "--config", self / "admin" / "recorder.yaml")

    def emit(self, *args: object, stdin: bytes = b"", who: str = "shop") -> Done:
        return veen("record", "emit", *args, "--config", self / who / "recorder.yaml", stdin=stdin)

    def init(self, role: str, name: str, *args: object, gated: bool = True) -> Done:
        where = ("--hub", self.town.url, "--trust", self.town.hub_id, "--out", self / name)
        issuer = ("--issuer", self.town / "admin") if gated else ()
        profile = ("--profile", self / "recorder.yaml", "--no-passphrase")
        return veen("record", "init", "--role", role, *where, *issuer, *profile, *args)

    def producer(self, name: str, *args: object, gated: bool = True) -> Done:
        to = ("--to", self / "admin" / "identity", "--origin", name)
        return self.init("recorder_producer", name, *to, *args, gated=gated)

    def rows(self, *args: object) -> list[dict[str, Any]]:
        done = self.admin("replay", *args)
        assert done.code == 0, done
        return [json.loads(line) for line in done.out.splitlines()]

    def checkpoint(self, folder: str) -> RecorderCheckpoint:
        made = self.admin("checkpoint", "--out", self / folder, "--json").json
        return parse_checkpoint(Path(made["file"]).read_bytes())


def recorder_at(town: Town, root: Path, *, gated: bool) -> Recorder:
    made = Recorder(town, root)
    (root / "recorder.yaml").write_text(PROFILE, encoding="utf-8")
    made.init("recorder_admin", "admin", gated=gated).ok()
    made.producer("shop", "--stream", AUTH, "--stream", ORDERS, gated=gated).ok()
    return made


@pytest.fixture(scope="module")
def gated(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return recorder_at(town, tmp_path_factory.mktemp("gated"), gated=True)


@pytest.fixture(scope="module")
def open_(square: Town, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return recorder_at(square, tmp_path_factory.mktemp("open"), gated=False)


def lines(*events: dict[str, Any]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in events).encode()


def order(number: int, **changed: Any) -> dict[str, Any]:
    return {"event_type": "order.placed", "subject_id": "user:bob", "payload": {"order": number}, **changed}


# --- recording


def test_an_event_is_recorded_in_the_stream_of_its_type(gated: Recorder) -> None:
    sent = gated.emit("login", "--subject", "user:ann", "--payload", '{"ok": true}', "--json").json
    assert sent["stream"] == AUTH
    (row,) = gated.rows(AUTH, "--from", sent["stream_seq"], "--upto", sent["stream_seq"])[1:-1]
    assert (row["kind"], row["subject_id"], row["payload"]) == ("event", "user:ann", {"ok": True})
    assert row["principal_id"] == row["client_id"]
    assert row["attributed"] is True
    assert row["receipt"] == sent["receipt"]


def test_json_lines_are_recorded_in_order_across_streams(gated: Recorder) -> None:
    login = {"event_type": "login", "subject_id": "user:cleo", "event_time": 5, "origin": "door"}
    sent = gated.emit("--batch", "--json", stdin=lines(order(1), login, order(2)) + b"\n").json
    assert (sent["sent"], sent["missing_lines"]) == (3, [])
    rows = [row for row in gated.rows(ORDERS) if row.get("event_type") == "order.placed"]
    assert [row["payload"]["order"] for row in rows][-2:] == [1, 2]
    door = next(row for row in gated.rows(AUTH) if row.get("subject_id") == "user:cleo")
    assert (door["event_time"], door["origin"]) == (5, "door")


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (order(1, payload="x" * 1001), "more than max_payload_bytes = 1000"),
        (order(1, payload={"price": 1.5}), "payload.price is a float"),
        (order(1, event_type="unknown"), "belongs to no stream"),
        (order(1, subject_id=""), "subject_id must have"),
        (order(1, severity=1), "unknown key"),
        (order(1, event_time=-1), "event_time"),
        (order(1, payload={"n": 2**64}), "cannot be encoded"),
        ([1], "must be a JSON object"),
    ],
    ids=["large", "float", "type", "subject", "key", "time", "integer", "array"],
)
def test_a_wrong_event_is_refused_with_its_line_before_any_of_its_batch_is_sent(
    gated: Recorder, event: Any, why: str
) -> None:
    before = len(gated.rows(ORDERS))
    done = gated.emit("--batch", "--json", stdin=lines(order(1)) + lines(event))
    assert done.code == 1
    assert "line 2" in done.err
    assert why in done.err
    assert len(gated.rows(ORDERS)) == before
    said = json.loads(done.out.splitlines()[0])
    assert (said["sent"], said["missing_lines"], said["next_line"]) == (0, [1], 2)


def test_an_event_does_not_wait_for_the_next_line() -> None:
    maker = EventMaker(
        profile=parse_profile(yaml.safe_load(PROFILE)), principal=ClientId(bytes(32)), origin="shop"
    )
    read, write = os.pipe()  # stays open, as the output of `tail -f`

    async def first_batches() -> list[list[int]]:
        batches = EventBatches(maker, lambda: 0)
        incoming = batches.read(read_lines(lambda: os.read(read, 65_536), idle_sec=IDLE_SECONDS))
        found = []
        async with aclosing(incoming):
            for number in (1, 2):
                os.write(write, lines(order(number)))
                found.append([each.line for each in await anext(incoming)])
                assert batches.unsent == []
        return found

    try:
        assert asyncio.run(asyncio.wait_for(first_batches(), 30)) == [[1], [2]]
    finally:
        os.close(write)
        os.close(read)


def test_a_dash_names_stdin(gated: Recorder) -> None:
    sent = gated.emit("--batch", "--file", "-", "--json", stdin=lines(order(1), order(2))).json
    assert sent["sent"] == 2


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (("unknown", "--subject", "user:ann"), "belongs to no stream"),
        (("login", "--subject", "user:ann", "--payload", "1.5"), "is a float"),
        (("login", "--subject", "user:ann", "--payload", "NaN"), "--payload is not JSON: NaN is not JSON"),
        (("login", "--subject", "u", "--payload", '{"a": 1, "a": 2}'), "a key is given twice"),
    ],
    ids=["type", "float", "nan", "doubled"],
)
def test_the_error_of_a_single_event_names_no_line(gated: Recorder, event: tuple[str, ...], why: str) -> None:
    message = gated.emit(*event).failed(1)
    assert why in message
    assert "line" not in message


def test_a_producer_cannot_write_to_a_stream_beyond_its_token(gated: Recorder) -> None:
    gated.producer("door", "--stream", AUTH).ok()
    gated.emit("login", "--subject", "user:dan", who="door").ok()
    refused = gated.emit("order.placed", "--subject", "user:dan", who="door")
    assert "CAP" in refused.failed(4)


def test_a_migration_is_recorded_by_the_administrator_only(gated: Recorder) -> None:
    moved = ("--old", ORDERS, "--new", "record/app/cart", "--reason", "split")
    gated.admin("migrate", *moved).ok()
    row = gated.rows(CHANGES)[-2]
    assert (row["kind"], row["from"], row["to"]) == ("migration", [ORDERS], ["record/app/cart"])
    done = veen("record", "migrate", *moved, "--config", gated / "shop" / "recorder.yaml")
    assert "needs a recorder.yaml with role recorder_admin" in done.failed(1)


# --- roles


def test_init_sets_label_classes_with_retention_long_term(gated: Recorder) -> None:
    at = ("--realm", "shop", "--hub", gated.town.url, "--trust", gated.town.hub_id)
    own = (*at, "--client", gated / "admin" / "identity")
    done = veen("label-class", "show", AUTH, "--at-hub", gated.town.hub_id, *own, "--json").json
    assert (done["class"], done["retention_hint"]) == ("log", 2**63)
    listed = veen("label-class", "list", *own, "--json").json["labels"]
    assert [each["retention_hint"] for each in listed] == [2**63] * 3
    assert veen("label-class", "list", *own).ok().out.count("payloads are kept for ever") == 3


@pytest.mark.parametrize(
    ("role", "who", "why"),
    [
        ("recorder_admin", "shop", "records events, so it may not be recorder_admin"),
        ("recorder_producer", "admin", "is recorder_admin, so it may not record events"),
    ],
)
def test_no_identity_administers_and_produces(gated: Recorder, role: str, who: str, why: str) -> None:
    gated.emit("login", "--subject", "user:ann").ok()  # authorizes the producer's token
    own = ("--identity", gated / who / "identity")
    extra = (
        ()
        if role == "recorder_admin"
        else ("--stream", AUTH, "--origin", "x", "--to", gated / "admin/identity")
    )
    assert why in gated.init(role, "both", *own, *extra).failed(1)
    assert not (gated / "both").exists()


def test_a_producer_that_has_recorded_nothing_yet_cannot_become_administrator(gated: Recorder) -> None:
    gated.producer("idle", "--stream", AUTH).ok()
    done = gated.init("recorder_admin", "both", "--identity", gated / "idle" / "identity")
    assert "records events, so it may not be recorder_admin" in done.failed(1)
    assert not (gated / "both").exists()


def test_no_identity_has_both_roles_at_a_hub_without_tokens(open_: Recorder) -> None:
    own = ("--identity", open_ / "shop" / "identity")
    done = open_.init("recorder_admin", "both", *own, gated=False)
    assert "records events, so it may not be recorder_admin" in done.failed(1)
    own = ("--identity", open_ / "admin" / "identity", "--stream", AUTH)
    assert "is recorder_admin, so it may not record events" in open_.producer("x", *own, gated=False).failed(
        1
    )


def test_a_producer_that_the_profile_lists_cannot_become_administrator(open_: Recorder) -> None:
    keys = open_ / "keys only"  # without the state that says which role the identity was given
    shutil.copytree(open_ / "shop" / "identity", keys, ignore=shutil.ignore_patterns("state"))
    card = veen("id", "show", "--client", keys, "--json").json
    profile = open_ / "listed.yaml"
    profile.write_text(PROFILE + f"producers: ['{card['id_sign']}']\n", encoding="utf-8")
    done = veen(
        *("record", "init", "--role", "recorder_admin", "--profile", profile, "--out", open_ / "twice"),
        *("--hub", open_.town.url, "--trust", open_.town.hub_id, "--identity", keys),
    )
    assert "may not be recorder_admin" in done.failed(1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("surprise: 1\n", "unknown setting surprise"),
        ("max_payload_bytes: 0\n", "max_payload_bytes must be an integer"),
        ("checkpoints: {}\n", "checkpoints must be a mapping"),
        ("streams: {record/app/a: [x], record/app/b: [x]}\n", "event type x belongs to record/app/a and to"),
        ("streams: {app/a: [x]}\n", "no recorder stream"),
        ("streams: {record/app/*: [x]}\n", "no recorder stream"),
        ("streams: {record/infrastructure/changes: [x]}\n", "carries migrations only"),
        ("streams: {record/app/a: ['x y']}\n", "no event type"),
        ("streams: {record/app/a: []}\n", "list of event types"),
        ("profile: shop\n", "given twice"),
    ],
    ids=["key", "bound", "cadence", "doubled", "namespace", "pattern", "changes", "type", "empty", "twice"],
)
def test_a_wrong_profile_is_refused(gated: Recorder, tmp_path: Path, text: str, why: str) -> None:
    kept = [line for line in PROFILE.splitlines() if not line.startswith(text.partition(":")[0])]
    base = PROFILE if text.startswith("profile") else "\n".join(kept) + "\n"
    if text.startswith("streams"):
        base = PROFILE.partition("streams:")[0]
    profile = tmp_path / "recorder.yaml"
    profile.write_text(base + text, encoding="utf-8")
    done = veen(
        *("record", "init", "--role", "recorder_admin", "--profile", profile, "--out", tmp_path / "out"),
        *("--hub", gated.town.url, "--trust", gated.town.hub_id),
    )
    assert why in done.failed(1)
    assert not (tmp_path / "out").exists()


# --- checkpoints


def test_a_checkpoint_covers_every_event_and_validates(gated: Recorder) -> None:
    gated.emit("--batch", stdin=lines(*map(order, range(5)))).ok()
    made = gated.admin("checkpoint", "--out", gated / "points", "--json").json
    heads = {each["stream"]: each["last_seq"] for each in made["streams"]}
    assert heads[ORDERS] == gated.rows(ORDERS)[0]["ranges"][0]["to_seq"]
    assert set(heads) == {AUTH, ORDERS, CHANGES}
    assert made["hub_public"]
    assert made["profile_id"]
    assert len(made["log_root"]) == 64
    found = gated.admin("validate", gated / "points", "--full", "--json").json
    assert found["valid"]
    assert sum(each["read"] for each in found["findings"]) == made["events"]
    assert gated.admin("validate", gated / "points", "--offline", "--json").json["valid"]


def test_checkpoints_are_made_by_time_and_by_volume(gated: Recorder) -> None:
    gated.emit("login", "--subject", "user:ann").ok()
    for flags in (("--every", "1s"), ("--every-events", "1")):
        folder = gated / f"go-on{flags[0]}"
        done = gated.admin("checkpoint", "--out", folder, *flags, "--count", "1", "--json").json
        assert Path(done["file"]).parent == folder


def tampered(found: RecorderCheckpoint, how: str) -> RecorderCheckpoint:
    at = next(n for n, each in enumerate(found.streams) if each.head is not None)
    each = found.streams[at]
    assert each.head is not None
    assert each.proof is not None
    match how:
        case "root":
            changed = replace(each, head=replace(each.head, mmr_root=MmrRoot(H(b"other"))))
        case "shortened":
            changed = replace(
                each, head=replace(each.head, upto_seq=type(each.head.upto_seq)(each.last_seq - 1))
            )
        case "hidden":
            changed = replace(each, head=None)
        case "proof":
            changed = replace(each, proof=(*each.proof[:-1], NodeHash(H(b"other"))))
        case _:
            changed = replace(each, stream=CHANGES)
    return replace(found, streams=(*found.streams[:at], changed, *found.streams[at + 1 :]))


@pytest.mark.parametrize("how", ["root", "shortened", "hidden", "proof", "renamed"])
def test_a_changed_checkpoint_is_refused(gated: Recorder, tmp_path: Path, how: str) -> None:
    gated.emit("login", "--subject", "user:ann").ok()
    wrong = tampered(gated.checkpoint("to-change"), how)
    path = tmp_path / "wrong.veenrc"
    path.write_bytes(wrong.encode())
    gated.admin("validate", path, "--offline").failed(3)


def test_a_checkpoint_of_another_profile_or_hub_is_refused(gated: Recorder, open_: Recorder) -> None:
    open_.emit("login", "--subject", "user:ann").ok()
    open_.checkpoint("foreign")
    gated.admin("validate", open_ / "foreign", "--offline").failed(3)


def test_the_safe_window_ends_before_the_newest_head(gated: Recorder) -> None:
    gated.emit("login", "--subject", "user:ann").ok()
    first = gated.checkpoint("window-1")
    gated.emit("login", "--subject", "user:ann").ok()
    second = gated.checkpoint("window-2")
    window = gated.admin("safe-window", gated / "window-2", "--json").json
    assert window["to_time"] == second.covered_until
    after = next((gated / "window-1").iterdir())
    later = gated.admin("safe-window", gated / "window-2", "--after", after, "--json").json
    auth = next(each for each in later["streams"] if each["stream"] == AUTH)
    before = next(each for each in first.streams if each.stream == AUTH)
    assert (auth["from_seq"], auth["to_seq"]) == (before.last_seq + 1, before.last_seq + 1)
    newest = next((gated / "window-2").iterdir())
    gated.admin("safe-window", gated / "window-1", "--after", newest).failed(3)


def test_that_a_head_is_the_newest_of_its_stream_is_named_as_the_hubs_claim(
    gated: Recorder, tmp_path: Path
) -> None:
    """A file with an older head of one stream verifies; the help and the guide say so."""
    gated.emit("login", "--subject", "user:ann").ok()
    gated.checkpoint("older-head")
    gated.emit("login", "--subject", "user:ann").ok()
    role = open_role(gated / "admin" / "recorder.yaml")
    try:
        while True:  # both answers must lead to one hub checkpoint
            found = gated.checkpoint("newer-head")
            each = next(each for each in found.streams if each.stream == AUTH)
            older = role.hub.label_head(each.label, each.last_seq - 1)
            if older.checkpoint == found.checkpoint:
                break
    finally:
        role.close()
    changed = replace(each, head=older.head, index=older.index, proof=older.proof)
    assert changed.last_seq < each.last_seq
    path = tmp_path / "older.veenrc"
    path.write_bytes(
        replace(found, streams=tuple(changed if one is each else one for one in found.streams)).encode()
    )
    gated.admin("validate", path, "--offline").ok()
    help_text = " ".join(veen("record", "safe-window", "--help").out.split())
    claim = "hub claims that the file has the newest head of each stream; the file does not prove it"
    assert claim in help_text
    guide = " ".join((ROOT / "docs/guides/recorder.md").read_text("utf-8").split())
    assert "that a head is the newest of its stream, are the hub's claims" in guide


# --- replay


def test_a_replay_over_streams_is_in_order_of_commit_time(gated: Recorder) -> None:
    gated.emit("--batch", stdin=lines(order(7), {"event_type": "login", "subject_id": "u"}, order(8))).ok()
    rows = gated.rows()
    assert rows[0]["kind"] == "replay"
    times = [row["hub_commit_time"] for row in rows[1:-1]]
    assert times == sorted(times)
    for name in (AUTH, ORDERS):
        seqs = [row["seq"] for row in rows[1:-1] if row["stream"] == name]
        assert seqs == list(range(1, len(seqs) + 1))
    assert rows[-1]["rows"] == len(rows) - 2


def test_a_replay_says_if_entries_that_it_was_asked_for_do_not_exist(gated: Recorder) -> None:
    size = len(gated.rows(ORDERS)) - 2
    asked = gated.admin("replay", ORDERS, "--from", 1, "--upto", size + 9)
    assert (asked.code, asked.err) == (0, f"the hub has {size} entries of {ORDERS}, not {size + 9}\n")
    for start, first, end, last in (
        ("--from", 2, "--upto", 1),
        ("--since", "2026-01-02", "--until", "2026-01-01"),
    ):
        refused = gated.admin("replay", ORDERS, start, first, end, last)
        assert (refused.code, f"{end} is before {start}" in refused.err) == (1, True)


def test_a_time_window_has_the_events_of_that_time_only(gated: Recorder) -> None:
    gated.emit("login", "--subject", "user:ann").ok()
    rows = gated.rows()[1:-1]
    start, end = rows[0]["hub_commit_time"] // 1000, rows[-1]["hub_commit_time"] // 1000
    assert len(gated.rows("--since", start, "--until", end)) == len(rows) + 2
    middle = rows[len(rows) // 2]["hub_commit_time"]
    expected = [row["seq"] for row in rows if row["hub_commit_time"] <= middle]
    found = [row["seq"] for row in gated.rows("--since", start, "--until", middle // 1000)[1:-1]]
    assert found == expected
    assert len(gated.rows("--since", end + 1000)) == 2


@pytest.mark.parametrize("verify", ["none", "spot", "full"])
def test_proofs_are_fetched_as_asked_for(gated: Recorder, verify: str) -> None:
    gated.emit("--batch", stdin=lines(order(1), order(2))).ok()
    gated.checkpoint("proved")
    rows = gated.rows(ORDERS, "--verify", verify, "--checkpoint", gated / "proved")[1:-1]
    proved = sum("proof" in row for row in rows)
    assert {"none": proved == 0, "spot": 2 <= proved <= len(rows), "full": proved == len(rows)}[verify]


def test_what_another_reader_sealed_or_wrote_appears_as_such(open_: Recorder) -> None:
    """I2: nothing is left out silently."""
    open_.emit("order.placed", "--subject", "user:bob").ok()
    open_.town.as_("alice", "send", "no event", "--stream", ORDERS, "--to", open_ / "admin" / "identity").ok()
    open_.town.as_("alice", "send", "sealed to bob", "--stream", ORDERS, "--to", open_.town / "bob").ok()
    broken = ("--schema", "record.event.v1", "--to", open_ / "admin" / "identity")
    open_.town.as_("alice", "send", "not CBOR", "--stream", ORDERS, *broken).ok()
    kinds = [row["kind"] for row in open_.rows(ORDERS)[1:-1]]
    assert kinds[-3:] == ["other", "unopened", "undecodable"]
    assert kinds[:2] == ["link", "event"]


@pytest.fixture
def pruning(square: Town, tmp_path: Path) -> Iterator[Recorder]:
    """A recorder at an open hub that keeps no payload of a full chunk of four entries."""
    data, config = ("--data-dir", tmp_path / "hub"), tmp_path / "hub.yaml"
    config.write_text("limits: {max_checkpoint_interval: 4}\nretention: {default: {max_age_sec: 0}}\n")
    admin = veen("id", "show", "--client", square / "admin", "--json").json["id_sign"]
    program = (SCRIPTS / "veen-hub", "--init", "--admin", admin, *data, "--config", config)
    made = subprocess.run(program, check=True, timeout=60, capture_output=True, text=True).stdout
    hub_id = re.findall(r"[0-9a-f]{64}", made)[0]
    with ending_hubs(tmp_path):
        start = ("hub", "start", *data, "--config", config, "--port", "0", "--open", "--detach")
        started = veen(*start, "--log-level", "error", "--json").json
        town = Town(square.root, started["url"], started["probes_url"], hub_id)
        yield recorder_at(town, tmp_path, gated=False)


def test_pruned_entries_appear_with_their_receipts_and_proofs(pruning: Recorder) -> None:
    """I2: retention removes payloads, not entries."""
    pruning.emit("--batch", stdin=lines(*map(order, range(9)))).ok()
    gone: list[int] = []

    def all_gone() -> bool:
        gone.append(pruning.town.as_("admin", "hub", "retention", "--json").json["entries"])
        return sum(gone) >= 8

    until(all_gone)
    until(lambda: pruning.town.as_("admin", "stream", "-s", ORDERS).code != 0)  # applied after the decision
    pruning.checkpoint("points")
    rows = pruning.rows(ORDERS, "--verify", "full", "--checkpoint", pruning / "points")[1:-1]
    assert [row["seq"] for row in rows] == list(range(1, 11)), "nine events after the link"
    kinds = [row["kind"] for row in rows]
    assert kinds == ["pruned"] * 8 + ["event"] * 2
    assert all("receipt" in row and "proof" in row for row in rows)
    found = pruning.admin("validate", pruning / "points", "--full", "--json").json
    assert found["valid"]
    assert sum(each["pruned"] for each in found["findings"]) >= 8


def test_a_hub_that_came_back_from_an_old_copy_contradicts_the_checkpoint(
    square: Town, tmp_path: Path
) -> None:
    data, old = tmp_path / "hub", tmp_path / "old"
    made = veen("hub", "init", "--data-dir", data, "--admin", square / "admin", "--json").json
    start = ("hub", "start", "--data-dir", data, "--open", "--detach", "--log-level", "error", "--json")
    start += ("--probes-port", "0")  # otherwise the port after a chosen one, which may be taken
    with ending_hubs(tmp_path):
        started = veen(*start, "--port", "0").json
        town = Town(square.root, started["url"], started["probes_url"], made["hub_id"])
        recorder = recorder_at(town, tmp_path, gated=False)
        recorder.emit("--batch", stdin=lines(*map(order, range(3)))).ok()
        veen("hub", "stop", "--data-dir", data).ok()
        shutil.copytree(data, old)
        port = started["url"].rpartition(":")[2]
        veen(*start, "--port", port).json  # noqa: B018 - checks that it starts
        recorder.emit("--batch", stdin=lines(*map(order, range(3)))).ok()
        recorder.checkpoint("points")
        veen("hub", "stop", "--data-dir", data).ok()
        shutil.rmtree(data)
        shutil.copytree(old, data)
        veen(*start, "--port", port).json  # noqa: B018
        shutil.rmtree(recorder / "admin" / "identity" / "state")  # a verifier that remembers nothing
        done = recorder.admin("validate", recorder / "points", "--json")
        assert done.code == 3
        found = json.loads(done.out)
        assert not found["valid"]
        assert any("the hub has 4 entries, but the checkpoint covers" in each for each in found["faults"])
        refused = recorder.admin("replay", "--checkpoint", recorder / "points")
        assert refused.code == 3


@pytest.mark.parametrize("verify", ["spot", "full"])
def test_a_replay_is_resumed_where_it_was_cut(gated: Recorder, tmp_path: Path, verify: str) -> None:
    gated.emit("--batch", stdin=lines(*map(order, range(20)))).ok()
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    gated.admin("replay", "--out", whole, "--verify", verify).ok()
    content = whole.read_bytes()
    for size in (len(content) // 2, len(content.splitlines()[0]) + 1, len(content) - 3):
        cut.write_bytes(content[:size])
        gated.admin("replay", "--out", cut, "--resume").ok()
        assert cut.read_bytes() == content
    assert "is complete" in gated.admin("replay", "--out", cut, "--resume").failed(1)
    assert "exists" in gated.admin("replay", "--out", cut).failed(1)


OTHER_LINES = {
    "empty": b"",
    "array": b"[1]\n",
    "number": b"17\n",
    "string": b'"kind"\n',
    "object": b'{"event_type": "login"}\n',
    "binary": b"\xff\xfe\n",
    "deep": b"[" * 100_000 + b"\n",
    "header-without-ranges": b'{"kind": "replay", "hub_id": "00", "verify": "none"}\n',
    "range-of-text": b'{"kind": "replay", "hub_id": "00", "verify": "none", "ranges": ["x"]}\n',
}


@pytest.mark.parametrize("what", OTHER_LINES)
def test_a_file_that_is_no_replay_is_neither_resumed_nor_changed(
    gated: Recorder, tmp_path: Path, what: str
) -> None:
    content = OTHER_LINES[what] + b"the last line is not whole"
    path = tmp_path / "notes.jsonl"
    path.write_bytes(content)
    assert "holds no replay to resume" in gated.admin("replay", "--out", path, "--resume").failed(1)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "row",
    ["[1]", "{}", '{"kind": "event"}', '{"kind": "event", "stream": "x", "epoch": 0}'],
    ids=["array", "empty", "kind-only", "other-stream"],
)
def test_a_replay_with_a_row_of_something_else_is_not_resumed(
    gated: Recorder, tmp_path: Path, row: str
) -> None:
    whole = tmp_path / "whole.jsonl"
    gated.admin("replay", "--out", whole).ok()
    header = whole.read_text("utf-8").splitlines()[0]
    whole.write_text(f"{header}\n{row}\n", "utf-8")
    assert "holds no replay to resume" in gated.admin("replay", "--out", whole, "--resume").failed(1)


def test_a_folder_that_is_no_replay_is_not_resumed(gated: Recorder, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    resume = ("replay", "--format", "parquet", "--out", tmp_path, "--resume")
    assert "replay.json is missing" in gated.admin(*resume).failed(1)
    (tmp_path / "replay.json").write_text("[]", "utf-8")
    assert "holds no replay to resume" in gated.admin(*resume).failed(1)
    whole = tmp_path / "whole.jsonl"
    gated.admin("replay", "--out", whole).ok()
    (tmp_path / "replay.json").write_text(whole.read_text("utf-8").splitlines()[0], "utf-8")
    (tmp_path / "part-000000.parquet").write_text("no table", "utf-8")
    assert "part-000000.parquet is not Parquet" in gated.admin(*resume).failed(1)


def test_parquet_has_the_rows_of_the_json_lines(gated: Recorder) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    gated.emit("--batch", stdin=lines(*map(order, range(5)))).ok()
    rows = gated.rows(ORDERS, "--verify", "full")[1:-1]
    gated.admin("replay", ORDERS, "--verify", "full", "--format", "parquet", "--out", gated / "table").ok()
    table = parquet.read_table(gated / "table" / "part-000000.parquet").to_pylist()
    assert [(row["seq"], row["kind"], row["receipt"], row["proof"]) for row in table] == [
        (row["seq"], row["kind"], row["receipt"], row["proof"]) for row in rows
    ]
    assert [json.loads(row["payload"]) for row in table] == [row["payload"] for row in rows]
    assert json.loads((gated / "table" / "end.json").read_text("utf-8"))["rows"] == len(rows)


# --- actors and producers


def test_actors_lists_who_caused_what(gated: Recorder) -> None:
    gated.emit("logout", "--subject", "user:eve").ok()
    found = gated.admin("actors", "--subject", "user:eve", "--json").json["actors"]
    assert [(row["event_type"], row["events"], row["attributed"]) for row in found] == [("logout", 1, True)]
    assert gated.admin("actors", "--unattributed", "--json").json["actors"] == []


def test_events_of_an_open_hub_are_attributed_by_a_signed_link(open_: Recorder) -> None:
    sent = open_.emit("login", "--subject", "user:flo", "--json").json
    row = open_.rows(AUTH, "--from", sent["stream_seq"])[1]
    assert row["principal_id"] != row["client_id"]
    assert row["attributed"] is True
    found = open_.admin("actors", "--subject", "user:flo", "--json").json["actors"]
    assert [each["attributed"] for each in found] == [True]


@pytest.fixture
def log(gated: Recorder) -> Iterator[logging.Logger]:
    logger = logging.Logger("shop")
    handler = RecorderHandler(open_role(gated / "shop" / "recorder.yaml"))
    logger.addHandler(handler)
    yield logger
    handler.close()


def test_a_log_call_becomes_an_event(gated: Recorder, log: logging.Logger) -> None:
    extra = {"event_type": "order.paid", "subject_id": "user:gus", "order": 9, "price": 1.5}
    log.info("paid %s", "cash", extra=extra)
    log.info("not an event")
    log.handlers[0].flush()
    row = next(row for row in gated.rows(ORDERS) if row.get("subject_id") == "user:gus")
    assert row["payload"] == {
        "message": "paid cash",
        "level": "INFO",
        "logger": "shop",
        "order": 9,
        "price": "1.5",
    }
    assert row["origin"] == "shop"


def test_a_log_call_with_a_wrong_event_is_reported_and_does_not_raise(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log.info("x", extra={"event_type": "unknown"})
    assert "belongs to no stream" in capsys.readouterr().err


def test_a_structlog_processor_records_and_passes_on(gated: Recorder) -> None:
    processor = RecorderProcessor(open_role(gated / "shop" / "recorder.yaml"))
    try:
        with structlog.testing.capture_logs(processors=[processor]) as passed_on:
            shop = structlog.get_logger().bind(subject_id="user:hal")
            shop.info("paid", event_type="order.paid", n=1)
            shop.info("plain")
            shop.info("refused", event_type="unknown")
        assert [each["event"] for each in passed_on] == ["paid", "plain", "refused"]
        assert processor.recorder.flush(30)
    finally:
        assert processor.recorder.close() == 0
    rows = [row for row in gated.rows(ORDERS) if row.get("subject_id") == "user:hal"]
    assert [row["payload"] for row in rows] == [{"level": "info", "event": "paid", "n": 1}]


def test_a_strict_structlog_processor_raises_in_the_log_call(gated: Recorder) -> None:
    processor = RecorderProcessor(open_role(gated / "shop" / "recorder.yaml"), strict=True)
    try:
        log = structlog.testing.capture_logs(processors=[processor])
        with log, pytest.raises(ConfigError, match="belongs to no stream"):
            structlog.get_logger().info("refused", event_type="unknown")
    finally:
        processor.recorder.close()
