"""Hubs of each level, as processes of their own, following a realm on another hub (spec-2 §8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from veen_cli.exits import Exit

from .conftest import Town
from .running import ending_hubs, veen

STALE_AFTER = 2
PATIENCE = 20.0
LAG = "veen_revocation_view_lag_seconds"

Start = Callable[..., Town]


@pytest.fixture
def start(square: Town, tmp_path: Path) -> Iterator[Start]:
    """Hubs beside the square's, which holds the realm's streams unless ``realm`` says otherwise."""

    def run(level: str, *flags: object, **realm: object) -> Town:
        data = tmp_path / f"hub-{len(list(tmp_path.glob('hub-*')))}"
        made = veen("hub", "init", "--data-dir", data, "--admin", square / "admin", "--json").json
        settings = {"id": tmp_path.name, "key": str(square / "realm" / "secrets.cbor"), **realm}
        config = tmp_path / f"{data.name}.yaml"
        config.write_text(yaml.safe_dump({"level": level, "realm": settings}))
        place = ("--data-dir", data, "--config", config, "--log-level", "warning")
        if "--port" not in flags:
            flags = (*flags, "--port", 0)
        told = veen("hub", "start", *place, "--open", "--detach", *flags, "--json").json
        return Town(square.root, told["url"], made["hub_id"])

    with ending_hubs(tmp_path):
        yield run


@pytest.fixture
def elsewhere(square: Town) -> dict[str, object]:
    return {"url": square.url, "pinned": square.hub_id}


def told(square: Town, *args: object, realm: str) -> None:
    square.as_("admin", *args, "--realm", realm, "--reader", square / "realm").ok()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.02)


def ready(hub: Town) -> bool:
    return veen("hub", "health", "--hub", hub.url).code == Exit.OK


def lag(hub: Town) -> float:
    lines = veen("hub", "metrics", "--hub", hub.url).ok().out.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{LAG} ")))


def level_of(hub: Town) -> str:
    shown: str = veen("hub", "status", "--hub", hub.url, "--trust", hub.hub_id, "--json").json["level"]
    return shown


@pytest.mark.parametrize("level", ["hardened", "meta"])
def test_a_revoked_device_is_cut_off_within_a_second(
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
        assert began < PATIENCE, "it is never cut off"
    assert "E.CAP / REVOKED" in done.failed(Exit.REFUSED)
    assert "lost" in done.err
    assert accepted_after < 1.0
    hub.as_("bob", "send", "another device", "-s", "orders").ok()


def test_a_replica_refuses_writes_to_a_stream_it_was_never_told_of(
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


def test_a_federated_hub_asks_for_no_revocations_and_a_core_hub_for_nothing(
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
    port = home.url.rpartition(":")[2]
    veen("hub", "start", *where, "--port", port, "--open", "--detach", "--log-level", "error", "--json").ok()
    until(lambda: ready(hub))
    assert lag(hub) <= STALE_AFTER
    hub.as_("bob", "send", "fresh again", "-s", "orders").ok()


@pytest.mark.parametrize("there", ["nobody", "another hub"])
def test_a_view_that_was_never_folded_is_not_shown_as_fresh(
    square: Town, start: Start, tmp_path: Path, there: str
) -> None:
    url = square.url if there == "another hub" else "http://127.0.0.1:9"
    hub = start("federated", url=url, pinned="00" * 32)
    until(lambda: "cannot be followed" in (tmp_path / "hub-0.log").read_text())
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


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "needs a realm"),
        ({"realm": {"id": "r", "key": "missing", "url": "http://127.0.0.1:9"}}, "go together"),
        ({"realm": {"id": "r", "key": "missing"}}, "realm.key"),
        ({"realm": {"id": "r", "key": "open"}}, "can be read by others"),
        ({"realm": {"id": "r", "key": "words"}}, "does not hold secrets"),
        ({"realm": {"id": "r", "key": "words"}, "policy": {"name": "other"}}, "leave one of the two out"),
    ],
    ids=["no realm", "no pin", "no key", "an open key", "no secrets", "two policies"],
)
def test_a_level_without_what_it_needs_does_not_start(
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
