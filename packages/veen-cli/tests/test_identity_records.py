"""id: principals, devices, accounts, organisations, names; and as whom a message speaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_cli.exits import Exit

from .conftest import Town
from .running import veen


@pytest.fixture(scope="session")
def reader(square: Town) -> tuple[str, Path]:
    return "--reader", square / "realm"


def test_a_handle_leads_to_an_account_and_its_profile(square: Town, reader: tuple[str, Path]) -> None:
    realm = ("--realm", "names")
    account = square.as_("bob", "id", "ctx", *realm, "--name", "Bob", *reader, "--json").json["ctx_id"]
    square.as_("bob", "id", "handle", "@bob", *realm, *reader).ok()
    told = square.as_("alice", "id", "whois", "@bob", *realm, *reader, "--json").json
    assert (told["ctx_id"], told["display_name"]) == (account, "Bob")
    assert (
        square.as_("alice", "id", "whois", account, *realm, *reader, "--json").json["display_name"] == "Bob"
    )
    assert "nobody" in square.as_("alice", "id", "whois", "@carol", *realm, *reader).failed(Exit.USAGE)
    assert "lowercase" in square.as_("bob", "id", "handle", "Bob!", *realm, *reader).failed(Exit.USAGE)


def test_an_organisation_has_a_handle_too(square: Town, reader: tuple[str, Path]) -> None:
    org = square.as_("admin", "id", "org", "--name", "Bakery", *reader, "--json").json["org_id"]
    square.as_("admin", "id", "handle", "bakery", "--org", org, "--realm", "names", *reader).ok()
    told = square.as_("alice", "id", "whois", "bakery", "--realm", "names", *reader, "--json").json
    assert (told["org_id"], told["display_name"]) == (org, "Bakery")


def test_a_link_says_who_one_is_elsewhere(square: Town, reader: tuple[str, Path]) -> None:
    told = square.as_(
        "bob", "id", "link", "--realm", "names", "--provider", "example", "--sub", "17", *reader, "--json"
    ).json
    state = square.as_("alice", "fold", "id.directory", told["stream"], *reader, "--json").json["state"]
    assert [each["external_sub"] for each in state["links"].values()] == ["17"]
    said = square.as_("bob", "id", "link", "--realm", "names", "--provider", "example", *reader)
    assert "--sub" in said.failed(Exit.USAGE)


def test_a_message_speaks_as_an_account_until_its_device_is_revoked(
    square: Town, reader: tuple[str, Path]
) -> None:
    """The hub's admin is the principal here, so that the hub takes its tokens."""
    realm = ("--realm", "till")
    veen("keygen", "--out", square / "phone", "--no-passphrase").ok()
    square.as_("admin", "id", "principal", "--info", '{"name": "Ada"}', *reader).ok()
    device = square.as_("admin", "id", "device", square / "phone", "--label", "phone", *reader, "--json").json
    token = square / "phone.cap"
    issue = ("--issuer", square / "admin", "--subject", square / "phone", "--stream", "till", "--out", token)
    veen("cap", "issue", *issue).ok()
    square.as_("phone", "cap", "authorize", token).ok()
    at = square.as_("phone", "send", "hello", "-s", "till", "--cap", token, "--json").json["stream_seq"]

    ask = ("id", "authenticate", "-s", "till", "--seq", at, "--token", token, *realm, *reader)
    told = square.as_("alice", *ask, "--json").json
    assert told["device_id"] == device["device_id"]

    account, org = told["ctx_id"], square.as_("admin", "id", "org", *reader, "--json").json["org_id"]
    cashier = ("--org", org, "--role", "cashier")
    assert "lacks cashier" in square.as_("alice", *ask, *cashier).failed(Exit.POLICY)
    group = square.as_("admin", "id", "group", "staff", "--add", account, *reader, "--json").json["group_id"]
    square.as_("admin", "id", "role", "cashier", "--group", group, *reader).ok()
    square.as_("alice", *ask, *cashier).ok()
    square.as_("admin", "id", "group", "staff", "--remove", account, *reader).ok()
    assert "9.2.4 roles" in square.as_("alice", *ask, *cashier).failed(Exit.POLICY)

    without = ("id", "authenticate", "-s", "till", "--seq", at, *realm, *reader)
    assert "9.2.2 cap_token" in square.as_("alice", *without).failed(Exit.POLICY)
    square.as_("admin", "id", "revoke", "--device", device["device_id"], *reader).ok()
    assert "the device is revoked" in square.as_("alice", *ask).failed(Exit.POLICY)
    assert "--device" in square.as_("admin", "id", "revoke", *reader).failed(Exit.USAGE)
