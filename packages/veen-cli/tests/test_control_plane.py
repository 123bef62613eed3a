"""authority, revoke, label-class, schema: a realm's records, published and shown."""

from __future__ import annotations

import time

import pytest

from veen_cli.arguments import times
from veen_cli.frame.exits import Exit
from veen_core.ids import Epoch, HubId
from veen_core.stream import label as label_of
from veen_core.stream import routing_key, stream_id

from .conftest import Town


def test_the_authority_of_a_stream_is_the_earliest_record_in_force(square: Town) -> None:
    on = ("--realm", "fed", "--reader", square / "realm")
    first, second = square.hub_id, "22" * 32
    square.as_("alice", "authority", "set", "orders", "--primary", first, "--ttl", "1h", *on).ok()
    missing = square.as_("alice", "authority", "show", "invoices", *on).failed(Exit.USAGE)
    assert "no authority record for the stream invoices" in missing
    assert "--reader" in missing
    later = ("--primary", second, "--replica", first, "--ts", "+1h", "--ttl", "1h")
    assert square.as_("alice", "authority", "set", "orders", *later, *on, "--json").json["in_force"] is True
    now = square.as_("bob", "authority", "show", "orders", *on, "--json").json
    then = square.as_("bob", "authority", "show", "orders", "--at", "+90m", *on, "--json").json
    assert (now["primary_hub"], then["primary_hub"]) == (first, second)
    assert then["replica_hubs"] == [first]
    highest = "ff" * 32  # of one second the lowest would hold
    at_once = ("alice", "authority", "set", "orders", "--primary", highest, *on)
    assert "not in force yet: hub" in square.as_(*at_once).ok().out
    assert square.as_(*at_once, "--json").json["in_force"] is False
    unread = ("--realm", "fed", "--to", square / "realm", "--json")
    assert (
        square.as_("alice", "authority", "set", "orders", "--primary", first, *unread).json["in_force"]
        is None
    )


def test_records_take_effect_by_the_hubs_clock_not_the_local_one(
    square: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a local clock that is one hour ahead, a revocation would begin one hour too late."""
    monkeypatch.setattr(times, "now", lambda: int(time.time()) + 3_600)
    on = ("--realm", "ahead", "--reader", square / "realm", "--json")
    for args in (
        ("revoke", "client-id", "11" * 32),
        ("authority", "set", "orders", "--primary", "22" * 32),
        ("schema", "register", "shop.order.v1", "--version", "1"),
    ):
        told = square.as_("alice", *args, *on).json
        assert told["record"]["ts"] <= told["hub_ts"], args


def test_a_revocation_is_in_the_realms_stream(square: Town) -> None:
    on = ("--reader", square / "realm")
    told = square.as_(
        "alice", "revoke", "client-id", "11" * 32, "--realm", "fed", "--reason", "lost", *on, "--json"
    ).json
    state = square.as_("bob", "fold", "revocation", told["stream"], *on, "--json").json["state"]
    assert [(each["kind"], each["reason"]) for each in state] == [("client-id", "lost")]


def test_label_classes_and_schemas_are_published_and_shown(square: Town) -> None:
    on = ("--realm", "fed", "--reader", square / "realm")
    at = ("--at-hub", square.hub_id)
    told = square.as_(
        "alice", "label-class", "set", "orders", "bulk", *at, "--retention", "1d", *on, "--json"
    ).json
    shown = square.as_("bob", "label-class", "show", told["record"]["label"], *on)
    assert "is not a label in hex" in square.as_("bob", "label-class", "show", "orders", *on).failed(
        Exit.USAGE
    )
    assert "bulk" in shown.ok().out
    later = square.as_("alice", "label-class", "set", "orders", "log", *at, "--epoch", 7, *on, "--json").json
    wanted = label_of(routing_key(HubId.from_hex(square.hub_id)), stream_id("orders"), Epoch(7))
    assert later["record"]["label"] == wanted.hex(), "at a hub with epochs a label is one epoch's"
    assert "--at-hub" in square.as_("bob", "label-class", "show", "orders", "--epoch", 7, *on).failed(
        Exit.USAGE
    )
    assert square.as_("bob", "label-class", "show", "orders", *at, *on, "--json").json["class"] == "bulk"
    listed = square.as_("bob", "label-class", "list", *on, "--json").json["labels"]
    assert {each["label"]: each["class"] for each in listed} == {
        told["record"]["label"]: "bulk",
        later["record"]["label"]: "log",
    }
    assert "payloads are kept 1 day" in square.as_("bob", "label-class", "list", *on).ok().out
    made = square.as_("alice", "schema", "register", "shop.order.v1", "--version", "1", *on, "--json").json
    for name in ("shop.order.v1", made["record"]["schema_id"]):
        assert square.as_("bob", "schema", "show", name, *on, "--json").json["version"] == "1"
