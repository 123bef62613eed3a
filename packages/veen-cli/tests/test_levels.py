"""Hubs of each level, as processes of their own, following a realm on another hub (spec-2 §8)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from veen_cli.frame.exits import Exit
from veen_core.ids import Epoch, HubId
from veen_core.stream import label, routing_key, stream_id
from veen_overlays.control.records import revocation_stream
from veen_overlays.identifiers import realm_id
from veen_storage.shards.sharded_layout import owner_of
from veen_testing.ports import free_port

from .conftest import Town
from .running import SCRIPTS, ending_hubs, veen

STALE_AFTER = 2
MAX_SECONDS = 20.0
LAG = "veen_revocation_view_lag_seconds"

Start = Callable[..., Town]


@pytest.fixture
def start(square: Town, tmp_path: Path) -> Iterator[Start]:
    """Hubs that follow a realm; its streams are at the square's hub unless ``realm`` names another."""

    def run(level: str, *flags: object, shards: int = 1, **realm: object) -> Town:
        data = tmp_path / f"hub-{len([each for each in tmp_path.glob('hub-*') if each.is_dir()])}"
        profile = ("--profile", flags[flags.index("--profile") + 1]) if "--profile" in flags else ()
        flags = tuple(flag for flag in flags if flag not in profile)
        made = veen("hub", "init", "--data-dir", data, "--admin", square / "admin", *profile, "--json").json
        settings = {"id": tmp_path.name, "key": str(square / "realm" / "secrets.cbor")} | realm
        config = tmp_path / f"{data.name}.yaml"
        config.write_text(yaml.safe_dump({"level": level, "realm": settings, "shards": shards}))
        if shards > 1:
            whole, data = data, data.with_name(f"{data.name}-of-{shards}")
            veen("hub", "reshard", "--data-dir", whole, "--shards", shards, "--out", data).ok()
        place = ("--data-dir", data, "--config", config, "--log-level", "warning")
        if "--port" not in flags:
            flags = (*flags, "--port", free_port())
        told = veen("hub", "start", *place, "--open", "--detach", *flags, "--json").json
        return Town(square.root, told["url"], told["probes_url"], made["hub_id"])

    with ending_hubs(tmp_path):
        yield run


@pytest.fixture
def elsewhere(square: Town) -> dict[str, object]:
    return {"url": square.url, "pinned": square.hub_id}


def told(square: Town, *args: object, realm: str) -> None:
    square.as_("admin", *args, "--realm", realm, "--reader", square / "realm").ok()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not holds():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.02)


def same_ports(hub: Town) -> tuple[object, ...]:
    """Return the flags that restart a hub at its address."""
    port, probes_port = (url.rpartition(":")[2] for url in (hub.url, hub.probes_url))
    return ("--port", port, "--probes-port", probes_port)


def failures(log: Path) -> list[str]:
    """The reasons for which a hub could not follow its realm, as logged."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if "realm_follow_failed" in line]
    return [line["reason"] for line in lines]


def ready(hub: Town) -> bool:
    return veen("hub", "health", *hub.probes).code == Exit.OK


def lag(hub: Town) -> float:
    lines = veen("hub", "metrics", *hub.probes).ok().out.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{LAG} ")))


def level_of(hub: Town) -> str:
    shown: str = veen("hub", "status", "--hub", hub.url, "--trust", hub.hub_id, "--json").json["level"]
    return shown


@pytest.mark.parametrize("level", ["hardened", "meta"])
def test_a_revoked_device_is_refused_within_a_second(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path, level: str
) -> None:
    hub = start(level, **elsewhere)
    until(lambda: ready(hub))
    assert (level_of(hub), lag(hub) <= STALE_AFTER) == (level, True)
    device = hub.as_("alice", "id", "client-id", "-s", "orders", "--json").json["client_id"]
    hub.as_("alice", "send", "before", "-s", "orders").ok()
    told(square, "revoke", "client-id", device, "--reason", "lost", realm=tmp_path.name)
    revoked_at, accepted_after = time.monotonic(), 0.0
    while True:
        began = time.monotonic() - revoked_at
        done = hub.as_("alice", "send", "after", "-s", "orders")
        if done.code != Exit.OK:
            break
        accepted_after = began
        assert began < MAX_SECONDS, "the revoked device is never refused"
    assert "E.CAP / REVOKED" in done.failed(Exit.REFUSED)
    assert "lost" in done.err
    assert accepted_after < 1.0
    hub.as_("bob", "send", "another device", "-s", "orders").ok()


def shard_pid(log: Path, number: int) -> int:
    """The process id of a shard, from the last line that says that it serves."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if "shard_serves" in line]
    return int([line["pid"] for line in lines if line["part"] == f"shard-{number}"][-1])


def test_every_shard_refuses_revoked_devices_also_after_it_was_killed(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    hub = start("hardened", "--log-level", "info", shards=2, **elsewhere)
    until(lambda: ready(hub))
    assert (level_of(hub), lag(hub) <= STALE_AFTER) == ("hardened", True)
    log = tmp_path / "hub-0-of-2.log"
    streams = [f"stream {number}" for number in range(4)]
    routing = routing_key(HubId.from_hex(hub.hub_id))
    owners = {owner_of(label(routing, stream_id(stream), Epoch(0)), 2) for stream in streams}
    assert owners == {0, 1}, "the streams have labels at both shards"
    for stream in streams:
        hub.as_("alice", "send", "before", "-s", stream).ok()
        device = hub.as_("alice", "id", "client-id", "-s", stream, "--json").json["client_id"]
        told(square, "revoke", "client-id", device, "--reason", "lost", realm=tmp_path.name)
    for stream in streams:
        until(lambda stream=stream: hub.as_("alice", "send", "x", "-s", stream).code != Exit.OK)  # type: ignore[misc]
    victim = shard_pid(log, 1)
    os.kill(victim, signal.SIGKILL)
    until(lambda: shard_pid(log, 1) != victim)
    until(lambda: ready(hub))  # the new process has no view at first, and accepts nothing
    for stream in streams:
        assert "E.CAP / REVOKED" in hub.as_("alice", "send", "after", "-s", stream).failed(Exit.REFUSED)
        hub.as_("bob", "send", "another device", "-s", stream).ok()


def test_a_hub_with_shards_may_hold_its_realms_streams_itself(start: Start, tmp_path: Path) -> None:
    hub = start("hardened", shards=2)
    until(lambda: ready(hub))
    hub.as_("alice", "send", "before", "-s", "orders").ok()
    device = hub.as_("alice", "id", "client-id", "-s", "orders", "--json").json["client_id"]
    told(hub, "revoke", "client-id", device, "--reason", "lost", realm=tmp_path.name)
    until(lambda: hub.as_("alice", "send", "after", "-s", "orders").code != Exit.OK)
    assert "E.CAP / REVOKED" in hub.as_("alice", "send", "after", "-s", "orders").failed(Exit.REFUSED)
    veen("hub", "stop", "--data-dir", tmp_path / "hub-0-of-2").ok()


def test_a_replica_refuses_writes_to_a_stream_it_knows_only_from_the_record(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    replica = start("federated", **elsewhere)
    told(square, "authority", "set", "orders", "--primary", square.hub_id, realm=tmp_path.name)
    told(square, "authority", "set", "own", "--primary", replica.hub_id, realm=tmp_path.name)
    until(lambda: ready(replica))

    def refused() -> bool:
        return replica.as_("bob", "send", "x", "-s", "orders").code == Exit.REFUSED

    until(refused)
    said = replica.as_("alice", "send", "x", "-s", "orders").failed(Exit.REFUSED)
    assert "E.AUTH / NOT_PRIMARY" in said
    assert square.hub_id in said, "it says where to go"
    replica.as_("alice", "send", "x", "-s", "own").ok()
    replica.as_("alice", "send", "x", "-s", "nobody spoke of this one").ok()


def test_a_federated_hub_reads_no_revocations_and_a_core_hub_reads_nothing(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    told(square, "authority", "set", "orders", "--primary", square.hub_id, realm=tmp_path.name)
    core, federated = start("core", **elsewhere), start("federated", **elsewhere)
    device = federated.as_("alice", "id", "client-id", "-s", "other", "--json").json["client_id"]
    told(square, "revoke", "client-id", device, realm=tmp_path.name)
    until(lambda: ready(federated))
    core.as_("alice", "send", "x", "-s", "orders").ok()
    until(lambda: federated.as_("bob", "send", "x", "-s", "orders").code == Exit.REFUSED)
    federated.as_("alice", "send", "x", "-s", "other").ok()
    assert (level_of(core), level_of(federated)) == ("core", "federated")


def test_a_stale_view_accepts_nothing_until_it_is_renewed(start: Start, tmp_path: Path) -> None:
    home = start("core")
    elsewhere = {"url": home.url, "pinned": home.hub_id, "max_view_age_sec": STALE_AFTER}
    hub = start("hardened", **elsewhere)
    until(lambda: ready(hub))
    hub.as_("alice", "send", "fresh", "-s", "orders").ok()
    where = ("--data-dir", tmp_path / "hub-0")
    veen("hub", "stop", *where).ok()
    until(lambda: not ready(hub))
    assert lag(hub) > STALE_AFTER
    size = hub.as_("alice", "stream", "-s", "orders", "--json").json["count"]
    for who in ("alice", "bob"):
        said = hub.as_(who, "send", "stale", "-s", "orders", "--wait", "0.5")
        assert said.code in (Exit.REFUSED, Exit.NETWORK), said
    assert hub.as_("alice", "stream", "-s", "orders", "--json").json["count"] == size, "reading goes on"
    veen(
        "hub", "start", *where, *same_ports(home), "--open", "--detach", "--log-level", "error", "--json"
    ).ok()
    until(lambda: ready(hub))
    assert lag(hub) <= STALE_AFTER
    hub.as_("bob", "send", "fresh again", "-s", "orders").ok()


@pytest.mark.parametrize(
    ("there", "reason"),
    [("nobody", "unreachable"), ("another hub", "wrong_hub")],
    ids=["nobody", "another hub"],
)
def test_a_view_that_was_never_folded_is_not_shown_as_fresh(
    square: Town, start: Start, tmp_path: Path, there: str, reason: str
) -> None:
    url = square.url if there == "another hub" else "http://127.0.0.1:9"
    hub = start("federated", url=url, pinned="00" * 32)
    until(lambda: reason in failures(tmp_path / "hub-0.log"))
    assert lag(hub) == float("inf")
    assert not ready(hub)
    said = hub.as_("alice", "send", "x", "-s", "orders", "--wait", "0.5")
    assert said.code in (Exit.REFUSED, Exit.NETWORK), said


def test_a_hub_may_hold_its_realms_streams_itself(start: Start, tmp_path: Path) -> None:
    hub = start("hardened")
    until(lambda: ready(hub))
    device = hub.as_("alice", "id", "client-id", "-s", "orders", "--json").json["client_id"]
    told(hub, "revoke", "client-id", device, realm=tmp_path.name)
    until(lambda: hub.as_("alice", "send", "x", "-s", "orders").code == Exit.REFUSED)
    hub.as_("bob", "send", "x", "-s", "orders").ok()
    where = ("--data-dir", tmp_path / "hub-0")
    veen("hub", "stop", *where).ok()
    again = (*same_ports(hub), "--config", tmp_path / "hub-0.yaml", "--open", "--detach")
    veen("hub", "start", *where, *again, "--log-level", "error", "--json").ok()
    while not ready(hub):  # from its first moment on, before it has read its own streams
        assert hub.as_("alice", "send", "x", "-s", "orders", "--wait", "0").code != Exit.OK
    assert "REVOKED" in hub.as_("alice", "send", "x", "-s", "orders").failed(Exit.REFUSED)
    hub.as_("bob", "send", "x", "-s", "orders").ok()


def test_a_hub_whose_key_opens_no_record_of_its_realm_accepts_nothing(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    """Unreadable records may be revocations, so nothing is accepted; invalid records are ignored."""
    told(square, "revoke", "client-id", "11" * 32, realm=tmp_path.name)
    wrong = start("hardened", key=str(square / "bob" / "secrets.cbor"), **elsewhere)
    until(lambda: "wrong_key" in failures(tmp_path / "hub-0.log"))
    assert (ready(wrong), lag(wrong)) == (False, float("inf"))
    said = wrong.as_("alice", "send", "x", "-s", "orders", "--wait", "0.5")
    assert said.code in (Exit.REFUSED, Exit.NETWORK), said
    stream = revocation_stream(realm_id(tmp_path.name)).hex()
    body = ("--schema", "veen.revocation.v1", "--to", square / "realm")
    square.as_("admin", "send", "no record", "-s", stream, *body).ok()
    square.as_("admin", "send", "sealed to somebody else", "-s", stream, "--to", square / "bob").ok()
    right = start("hardened", **elsewhere)
    until(lambda: ready(right))
    right.as_("alice", "send", "x", "-s", "orders").ok()


def test_a_restarted_hub_continues_its_view_and_refuses_a_rolled_back_realm(
    start: Start, tmp_path: Path
) -> None:
    """The realm's hub is restored from a copy older than the revocation: the hub accepts nothing."""
    home = start("core")
    hub = start("hardened", url=home.url, pinned=home.hub_id)
    until(lambda: ready(hub))
    homes, hubs = (("--data-dir", tmp_path / f"hub-{n}") for n in (0, 1))

    def again(where: tuple[object, ...], town: Town, *flags: object) -> None:
        port = (*same_ports(town), "--open", "--detach", "--log-level", "warning")
        veen("hub", "start", *where, *port, *flags, "--json").ok()

    veen("hub", "stop", *homes).ok()
    shutil.copytree(tmp_path / "hub-0", tmp_path / "old")
    again(homes, home)
    device = hub.as_("alice", "id", "client-id", "-s", "orders", "--json").json["client_id"]
    told(home, "revoke", "client-id", device, realm=tmp_path.name)
    until(lambda: hub.as_("alice", "send", "x", "-s", "orders").code == Exit.REFUSED)
    veen("hub", "stop", *hubs).ok()
    again(hubs, hub, "--config", tmp_path / "hub-1.yaml")
    until(lambda: ready(hub))
    assert "REVOKED" in hub.as_("alice", "send", "x", "-s", "orders").failed(Exit.REFUSED)
    for where in (hubs, homes):
        veen("hub", "stop", *where).ok()
    shutil.rmtree(tmp_path / "hub-0")
    (tmp_path / "old").rename(tmp_path / "hub-0")
    again(homes, home)
    again(hubs, hub, "--config", tmp_path / "hub-1.yaml")
    until(lambda: "rolled_back" in failures(tmp_path / "hub-1.log"))
    assert not ready(hub)
    said = hub.as_("alice", "send", "x", "-s", "orders", "--wait", "0.2")
    assert said.code in (Exit.REFUSED, Exit.NETWORK), said


def test_a_realm_may_live_on_a_hub_with_epochs(start: Start, tmp_path: Path) -> None:
    """A hub follows the labels of all epochs, whether the realm's streams are its own or another hub's."""
    holder = start("hardened", "--profile", "rotating")
    other = start("hardened", url=holder.url, pinned=holder.hub_id)
    for hub in (holder, other):
        until(lambda hub=hub: ready(hub))  # type: ignore[misc]

    def cut_off(hub: Town) -> bool:
        """Revoke the current client_id; the next epoch has another."""
        device = hub.as_("alice", "id", "client-id", "-s", "orders", "--json").json["client_id"]
        told(holder, "revoke", "client-id", device, realm=tmp_path.name)
        return "REVOKED" in hub.as_("alice", "send", "x", "-s", "orders").err

    for hub in (other, holder):
        until(lambda hub=hub: cut_off(hub))  # type: ignore[misc]
        hub.as_("bob", "send", "x", "-s", "orders").ok()


# --- label classes (LCLASS0 6.2)


def classed(square: Town, hub: Town, stream: str, class_: str, *more: object, realm: str) -> None:
    """Set the class of a stream's label at a hub."""
    told(square, "label-class", "set", stream, class_, "--at-hub", hub.hub_id, *more, realm=realm)


def test_a_class_limits_the_rate_of_its_writers(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    hub = start("meta", rates={"bulk": {"per_sec": 1, "burst": 2}}, **elsewhere)
    until(lambda: ready(hub))
    classed(square, hub, "dump", "bulk", realm=tmp_path.name)
    lines = b"\n".join(b"%d" % n for n in range(40))

    def slowed() -> bool:
        """Send more messages than one burst allows; return whether the rate was refused."""
        done = hub.as_("alice", "send", "--batch", "-s", "dump", "--wait", "0.1", stdin=lines)
        return "E.RATE / CAP_RATE" in done.err

    until(slowed)
    hub.as_("alice", "send", "--batch", "-s", "free", stdin=lines).ok()
    shown = veen("hub", "status", "--hub", hub.url, "--trust", hub.hub_id, "--json").json["enforces"]
    assert [text for text in shown if "LCLASS0" in text or "KEX1+" in text or "AUTH1" in text] == shown[-3:]
    assert "client key bounds" in shown


def test_a_class_requires_padding(
    square: Town, start: Start, elsewhere: dict[str, object], tmp_path: Path
) -> None:
    bare, padded = start("meta", "--profile", "bulk", **elsewhere), start("meta", **elsewhere)
    for hub in (bare, padded):
        until(lambda hub=hub: ready(hub))  # type: ignore[misc]
        hub.as_("alice", "send", "x", "-s", "diary").ok()
        classed(square, hub, "diary", "user", realm=tmp_path.name)
    until(lambda: bare.as_("alice", "send", "x", "-s", "diary").code == Exit.REFUSED)
    assert "E.SIZE / PADDING" in bare.as_("bob", "send", "x", "-s", "diary").failed(Exit.REFUSED)
    bare.as_("bob", "send", "x", "-s", "another").ok()
    padded.as_("bob", "send", "x", "-s", "diary").ok()


@pytest.fixture
def small_chunks(square: Town, tmp_path: Path) -> Iterator[Callable[..., tuple[Town, tuple[str, ...]]]]:
    """Yield a function that runs a hub with four entries per chunk, because whole chunks are pruned."""

    def run(level: str, **settings: object) -> tuple[Town, tuple[str, ...]]:
        config, place = tmp_path / "hub.yaml", ("--data-dir", str(tmp_path / "hub"))
        limits = {"max_checkpoint_interval": 4}
        config.write_text(yaml.safe_dump({"level": level, "limits": limits, **settings}))
        flags = (*place, "--config", str(config))
        admin = veen("id", "show", "--client", square / "admin", "--json").json["id_sign"]
        made = subprocess.run(
            [SCRIPTS / "veen-hub", "--init", "--admin", admin, *flags],
            check=True,
            timeout=60,
            capture_output=True,
        )
        hub_id = re.findall(r"[0-9a-f]{64}", made.stdout.decode())[0]
        start = ("hub", "start", *flags, "--open", "--detach", "--log-level", "error", "--json")
        started = veen(*start, "--port", free_port()).json
        hub = Town(square.root, started["url"], started["probes_url"], hub_id)
        until(lambda: ready(hub))
        return hub, (*start, *same_ports(hub))

    with ending_hubs(tmp_path):
        yield run


NINE = b"1\n2\n3\n4\n5\n6\n7\n8\n9"


def pruned(hub: Town) -> int:
    """Wait until entries are pruned; return how many."""
    gone: list[int] = []

    def goes() -> bool:
        gone.append(hub.as_("admin", "hub", "retention", "--json").json["entries"])
        return sum(gone) > 0

    until(goes)
    return sum(gone)


def test_a_class_sets_the_retention_of_payloads(
    square: Town,
    elsewhere: dict[str, object],
    tmp_path: Path,
    small_chunks: Callable[..., tuple[Town, tuple[str, ...]]],
) -> None:
    realm = {"id": tmp_path.name, "key": str(square / "realm" / "secrets.cbor"), **elsewhere}
    hub, _ = small_chunks("meta", realm=realm)
    for stream in ("chatter", "orders"):
        hub.as_("alice", "send", "--batch", "-s", stream, stdin=NINE).ok()
    classed(square, hub, "chatter", "log", "--retention", "0s", realm=tmp_path.name)
    assert pruned(hub) == 8
    assert hub.as_("alice", "stream", "-s", "orders", "--json").json["count"] == 9


def test_a_short_default_retention_keeps_the_admin_streams(
    square: Town, tmp_path: Path, small_chunks: Callable[..., tuple[Town, tuple[str, ...]]]
) -> None:
    """If the default rule pruned them, the hub could not start again."""
    realm = {"id": tmp_path.name, "key": str(square / "realm" / "secrets.cbor")}
    hub, again = small_chunks("federated", realm=realm, retention={"default": {"max_age_sec": 0}})
    for n in range(5):
        told(hub, "authority", "set", f"stream {n}", "--primary", "22" * 32, realm=tmp_path.name)
    hub.as_("alice", "send", "--batch", "-s", "orders", stdin=NINE).ok()
    assert pruned(hub) == 8, "the four oldest authorities are as old"
    veen("hub", "stop", "--data-dir", tmp_path / "hub").ok()
    shutil.rmtree(tmp_path / "hub" / "views")
    veen(*again).ok()
    until(lambda: ready(hub))
    assert "NOT_PRIMARY" in hub.as_("bob", "send", "x", "-s", "stream 0").failed(Exit.REFUSED)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "needs a realm"),
        ({"realm": {"id": "r", "key": "missing", "url": "http://127.0.0.1:9"}}, "give both url and pin"),
        ({"realm": {"id": "r", "key": "missing"}}, "realm.key"),
        ({"realm": {"id": "r", "key": "open"}}, "other users can read"),
        ({"realm": {"id": "r", "key": "words"}}, "is not a file of secret keys"),
        ({"realm": {"id": "r", "key": "words"}, "policy": {"name": "other"}}, "one of the two settings"),
    ],
    ids=["no realm", "no pin", "no key", "an open key", "no secrets", "two policies"],
)
def test_a_hub_without_the_settings_of_its_level_does_not_start(
    square: Town, tmp_path: Path, config: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, mode in (("open", 0o644), ("words", 0o600)):
        (tmp_path / name).write_bytes(b"words")
        (tmp_path / name).chmod(mode)
    veen("hub", "init", "--data-dir", tmp_path / "hub", "--admin", square / "admin").ok()
    (tmp_path / "hub.yaml").write_text(yaml.safe_dump(config))
    place = ("--data-dir", tmp_path / "hub", "--config", tmp_path / "hub.yaml", "--port", 0)
    with ending_hubs(tmp_path):
        failed = veen("hub", "start", *place, "--level", "hardened", "--detach").failed(Exit.USAGE)
    assert said in failed
