"""Direction (AGB0 4.3, J3, RESOLUTIONS P5): configurations, tokens and the check of paths back."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from veen_bridge.roles.config import OFFLINE, ONLINE, BridgeConfig, load_config, parse_config
from veen_bridge.roles.mapping import MappingRule, NamePattern, StreamMapping, check_one_to_one
from veen_bridge.roles.path_check import check_paths
from veen_bridge.roles.session import RoleKeys, check_one_side, check_own_hub
from veen_bridge.roles.templates import issue_token
from veen_core.cap import mint
from veen_core.errors import ConfigError
from veen_core.hashing import H
from veen_core.ids import ClientId, HubId, HubPk
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.stream import hub_id, stream_id
from veen_hub.client import Identity

from .source_zone import VEEN

ISSUER = SigningKey(SigningSeed(H(b"issuer")))
BRIDGE_KEY = SigningKey(SigningSeed(H(b"bridge")))
ONLINE_KEY = SigningKey(SigningSeed(H(b"online")))
BRIDGE_ID = ClientId(BRIDGE_KEY.public)
ONLINE_ID = ClientId(ONLINE_KEY.public)
HUB_PK = HubPk(ISSUER.public)
HUB_1, HUB_2 = HubId(H(b"hub 1")), HubId(H(b"hub 2"))


def settings(role: str, **more: Any) -> dict[str, Any]:
    common = {"role": role, "hub": "http://127.0.0.1:1", "trust": HUB_2.hex(), "client": "identity"}
    if role == OFFLINE:
        common |= {"sources": [{"hub_id": HUB_1.hex(), "bridge_id": ONLINE_ID.hex()}]}  # type: ignore[dict-item]
    return {**common, **more}


def config(role: str, base: Path = Path("/bridge"), **more: Any) -> BridgeConfig:
    return parse_config(settings(role, **more), base)


@pytest.mark.parametrize(
    ("role", "more"),
    [
        (ONLINE, {"sources": [{"hub_id": HUB_1.hex()}]}),
        (ONLINE, {"mode": "wrap"}),
        (OFFLINE, {"witnesses": "policy"}),
        ("both", {}),
        (OFFLINE, {"unknown": 1}),
    ],
    ids=["online with sources", "online with a mode", "offline with the source's key", "both", "unknown"],
)
def test_a_configuration_has_one_direction(role: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        config(role, **more)


def test_the_target_hub_is_no_source() -> None:
    with pytest.raises(ConfigError, match="lead back"):
        config(OFFLINE, sources=[{"hub_id": HUB_2.hex()}])


def test_a_hub_is_known_by_its_hub_id() -> None:
    with pytest.raises(ConfigError, match="lead back"):
        config(OFFLINE, trust=bytes(HUB_PK).hex(), sources=[{"hub_id": hub_id(HUB_PK).hex()}])
    given = config(OFFLINE, trust=bytes(HUB_PK).hex())
    with pytest.raises(ConfigError, match="is a hub_pk"):
        check_own_hub(given, hub_id(HUB_PK))
    check_own_hub(config(OFFLINE), HUB_2)


@pytest.mark.parametrize("stream", ["export/zone2/back", "bridge/online/log", "import/*"])
def test_a_configuration_lists_no_stream_beyond_the_role(stream: str) -> None:
    with pytest.raises(ConfigError, match="may not write"):
        config(OFFLINE, streams=["import/a", stream])


@pytest.mark.parametrize(
    "stream", ["record/*", "record/app/*", "import/zone1/orders", "bridge/online/log", "*", "exports/a"]
)
def test_bridge_online_exports_streams_below_export_and_named_recorder_streams(stream: str) -> None:
    with pytest.raises(ConfigError, match="may not export"):
        config(ONLINE, streams=["export/a", stream])
    streams = ["export/a", "export/zone1/*", "record/query/results", stream_id("export/b").hex()]
    assert config(ONLINE, streams=streams).streams == tuple(streams)


def test_a_setting_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bridge.yaml"
    path.write_text(yaml.safe_dump(settings(ONLINE)) + "role: bridge_online\n")
    with pytest.raises(ConfigError, match="twice"):
        load_config(path)


@given(st.text("ab/", min_size=1, max_size=6), st.text("ab/", max_size=3), st.text("ab/", max_size=3))
def test_a_pattern_matches_what_it_fills(text: str, prefix: str, suffix: str) -> None:
    pattern = NamePattern(f"{prefix}*{suffix}")
    assert pattern.match(pattern.fill(text)) == text


PATTERNS = st.tuples(st.text("ab", max_size=2), st.booleans(), st.text("ab", max_size=2)).map(
    lambda parts: NamePattern(f"{parts[0]}*{parts[2]}" if parts[1] else f"{parts[0]}{parts[2]}" or "a")
)


@given(PATTERNS, PATTERNS, st.text("ab", min_size=1, max_size=6))
def test_patterns_that_match_one_name_overlap(a: NamePattern, b: NamePattern, name: str) -> None:
    if a.match(name) is not None and b.match(name) is not None:
        assert a.overlaps(b)
        assert b.overlaps(a)


@pytest.mark.parametrize(
    "rules",
    [
        [("export/a", "import/x"), ("export/b", "import/x")],
        [("export/a/*", "import/*"), ("export/b/*", "import/*")],
        [("export/special", "import/orders"), ("export/*", "import/*")],
    ],
    ids=["same target", "same pattern", "a name inside a pattern"],
)
def test_rules_that_may_lead_to_one_stream_are_refused(rules: list[tuple[str, str]]) -> None:
    mapping = StreamMapping(rules=tuple(MappingRule.of(*rule) for rule in rules))
    with pytest.raises(ConfigError, match="one-to-one"):
        check_one_to_one([(HUB_1, mapping)])


def test_a_rule_may_not_merge_streams() -> None:
    with pytest.raises(ConfigError, match="several streams would become one"):
        MappingRule.of("export/*", "import/all")


def test_two_sources_need_targets_of_their_own() -> None:
    with pytest.raises(ConfigError, match="two source hubs"):
        config(OFFLINE, sources=[{"hub_id": HUB_1.hex()}, {"hub_id": H(b"hub 3").hex()}])


@pytest.mark.parametrize(
    "stream", ["export/a", "record/a", "import/*", "bridge/online/log", "import/other/x"]
)
def test_no_token_permits_more_than_the_role_needs(stream: str) -> None:
    given = config(
        OFFLINE, sources=[{"hub_id": HUB_1.hex(), "mapping": [{"from": "e/*", "to": "import/z/*"}]}]
    )
    with pytest.raises(ConfigError, match="may not write"):
        issue_token(ISSUER, OFFLINE, BRIDGE_ID, [stream], given.sources, ttl=60)


def test_the_token_of_bridge_online_is_for_its_audit_stream_alone() -> None:
    token = issue_token(ISSUER, ONLINE, ONLINE_ID, ["export/*"], (), ttl=60)
    assert token.allow.stream_ids == (stream_id("bridge/online/log"),)


def test_one_key_never_serves_both_zones() -> None:
    given = config(OFFLINE).sources
    with pytest.raises(ConfigError, match="same key"):
        issue_token(ISSUER, OFFLINE, ONLINE_ID, ["import/a"], given, ttl=60)


DH_KEY = DhKey(DhSecret(H(b"reader")))
KEYS = RoleKeys(identity=Identity(signing_key=BRIDGE_KEY, dh_keys=(DH_KEY,)), readers=(), source_readers=())
ONLINE_KEYS = dataclasses.replace(KEYS, identity=Identity(signing_key=ONLINE_KEY, dh_keys=(DH_KEY,)))


def failing(given: BridgeConfig, keys: RoleKeys = KEYS, **more: Any) -> list[str]:
    return [each.check for each in check_paths(given, keys, **more) if not each.ok]


def test_the_doctor_names_a_token_that_permits_more(tmp_path: Path) -> None:
    fine = issue_token(ISSUER, OFFLINE, BRIDGE_ID, ["import/a"], config(OFFLINE).sources, ttl=60)
    (tmp_path / "fine.cap").write_bytes(fine.encode())
    wide = mint(ISSUER, BRIDGE_ID, [stream_id("import/a"), stream_id("export/a")], 60)
    (tmp_path / "wide.cap").write_bytes(wide.encode())
    foreign = mint(ISSUER, ONLINE_ID, [stream_id("import/a")], 60)
    (tmp_path / "foreign.cap").write_bytes(foreign.encode())
    tokens = ["fine.cap", "wide.cap", "foreign.cap"]
    given = config(OFFLINE, tmp_path, tokens=tokens, streams=["import/a"])
    assert failing(given) == ["token wide.cap", "token foreign.cap"]


def test_the_doctor_names_one_key_in_both_zones_and_a_mapping_that_leads_on() -> None:
    mapping = [{"from": "export/*", "to": "export/again/*"}]
    sources = [{"hub_id": HUB_1.hex(), "bridge_id": BRIDGE_ID.hex(), "mapping": mapping}]
    assert failing(config(OFFLINE, sources=sources)) == [
        "tokens",
        f"source {HUB_1.hex()[:8]}",
        "mapping to export/again/*",
    ]
    given = config(ONLINE)
    online = dataclasses.replace(given, access=dataclasses.replace(given.access, trust=HUB_1.hex()))
    tokens = ["bridge_offline: tokens", "bridge_online: tokens"]
    assert failing(config(OFFLINE), other=(online, ONLINE_KEYS)) == tokens
    assert failing(config(OFFLINE), other=(online, KEYS)) == [*tokens, "two keys"]
    in_pk = dataclasses.replace(given, access=dataclasses.replace(given.access, trust=bytes(HUB_PK).hex()))
    assert "two hubs" in failing(config(OFFLINE, trust=hub_id(HUB_PK).hex()), other=(in_pk, ONLINE_KEYS))


def test_the_doctor_names_what_the_other_role_could_write(tmp_path: Path) -> None:
    wide = mint(ISSUER, ONLINE_ID, [stream_id("export/a")], 60)
    (tmp_path / "wide.cap").write_bytes(wide.encode())
    online = config(ONLINE, tmp_path, tokens=["wide.cap"], trust=HUB_1.hex())
    found = failing(config(OFFLINE), other=(online, ONLINE_KEYS))
    assert found == ["bridge_offline: tokens", "bridge_online: token wide.cap"]


@pytest.mark.parametrize("role", [ONLINE, OFFLINE])
def test_the_doctor_does_not_vouch_for_a_role_without_a_token(role: str) -> None:
    (finding,) = [each for each in check_paths(config(role), KEYS) if each.check == "tokens"]
    assert not finding.ok
    assert "every stream" in finding.detail


def test_no_session_opens_with_one_key_on_both_sides() -> None:
    sources = [{"hub_id": HUB_1.hex(), "bridge_id": BRIDGE_ID.hex()}]
    with pytest.raises(ConfigError, match="may not serve both zones"):
        check_one_side(config(OFFLINE, sources=sources), KEYS)
    check_one_side(config(OFFLINE), KEYS)


def test_a_source_reader_that_signs_as_bridge_online_is_refused() -> None:
    given = config(OFFLINE, source_readers=["online", "reader"], mode="reseal")
    ids = (ONLINE_ID, ClientId(ISSUER.public))
    keys = dataclasses.replace(KEYS, source_readers=(DH_KEY, DH_KEY), source_reader_ids=ids)
    with pytest.raises(ConfigError, match="signing key of the bridge_online"):
        check_one_side(given, keys)
    assert failing(given, keys) == ["tokens", "source reader online"]
    unnamed = config(OFFLINE, source_readers=["online", "reader"], sources=[{"hub_id": HUB_1.hex()}])
    online = config(ONLINE)
    online = dataclasses.replace(online, access=dataclasses.replace(online.access, trust=HUB_1.hex()))
    assert "bridge_offline: source reader online" in failing(unnamed, keys, other=(online, ONLINE_KEYS))


def veen(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*VEEN, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_init_writes_what_doctor_accepts_and_a_wider_token_fails(tmp_path: Path) -> None:
    admin, reader = tmp_path / "admin", tmp_path / "reader"
    for folder in (admin, reader):
        assert veen("keygen", "--out", str(folder), "--no-passphrase", "-q").returncode == 0
    made = veen(
        *("bridge", "init", "--role", OFFLINE, "--out", str(tmp_path / "z2"), "--hub", "http://127.0.0.1:1"),
        *("--trust", HUB_2.hex(), "--issuer", str(admin), "--source", HUB_1.hex(), "--no-passphrase"),
        *("--source-bridge", ONLINE_ID.hex(), "--stream", "import/a", "--reader", str(reader), "--json"),
    )
    assert made.returncode == 0, made.stderr
    assert load_config(tmp_path / "z2" / "bridge.yaml").access.readers == (reader,)
    assert json.loads(made.stdout)["writes_to"] == ["import/a", "bridge/offline/log"]
    check = ("bridge", "doctor", "--config", str(tmp_path / "z2" / "bridge.yaml"), "--json")
    assert json.loads(veen(*check).stdout)["one_way"] is True
    bridge = ClientId.from_hex(json.loads(made.stdout)["bridge_id"])
    wide = mint(ISSUER, bridge, [stream_id("export/a")], 60)
    (tmp_path / "z2" / "role.cap").write_bytes(wide.encode())
    refused = veen(*check)
    assert refused.returncode == 6
    assert json.loads(refused.stdout)["one_way"] is False


def test_init_refuses_a_stream_outside_the_role(tmp_path: Path) -> None:
    admin = tmp_path / "admin"
    veen("keygen", "--out", str(admin), "--no-passphrase", "-q")
    made = veen(
        *("bridge", "init", "--role", OFFLINE, "--out", str(tmp_path / "z2"), "--hub", "http://127.0.0.1:1"),
        *("--trust", HUB_2.hex(), "--issuer", str(admin), "--source", HUB_1.hex(), "--no-passphrase"),
        *("--stream", "record/app"),
    )
    assert made.returncode != 0
    assert "may not write to stream record/app" in made.stderr
    assert not (tmp_path / "z2").exists()


@pytest.mark.parametrize(
    "command", [("export", "--out", "media"), ("import", "bridge.yaml")], ids=["export", "import"]
)
def test_export_and_import_refuse_the_configuration_of_the_other_role(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    role = OFFLINE if command[0] == "export" else ONLINE
    path = tmp_path / "bridge.yaml"
    path.write_text(yaml.safe_dump(settings(role)))
    arguments = [argument.replace("bridge.yaml", str(path)) for argument in command]
    identity = tmp_path / "identity"
    veen("keygen", "--out", str(identity), "--no-passphrase", "-q")
    done = veen("bridge", *arguments, "--config", str(path))
    assert done.returncode == 1, done.stderr
    assert "one direction" in done.stderr
