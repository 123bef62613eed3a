"""agree, publish, recover, op: the real commands against a real hub."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from veen_cli.frame import loop
from veen_cli.frame.exits import Exit
from veen_cli.operations.party import position_at
from veen_core import cbor
from veen_overlays.operations.causality import OPERATIONS

from .conftest import STREAM, Town
from .running import veen


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    (tmp_path / "terms.txt").write_text("the rent is 900\n")
    return tmp_path / "terms.txt"


def shared(square: Town, stream: str) -> tuple[Any, ...]:
    return ("-s", stream, "--reader", square / "realm")


def propose(square: Town, terms: Path, on: tuple[Any, ...], *more: Any) -> Any:
    parties = ("--party", square / "alice", "--party", square / "bob")
    return square.as_("alice", "agree", "propose", "lease", terms, *parties, *more, *on)


def test_an_agreement_is_active_after_both_have_accepted_and_as_of_any_message(
    square: Town, terms: Path
) -> None:
    on = shared(square, "agree-one")
    propose(square, terms, on).ok()
    square.as_("alice", "agree", "accept", "lease", *on).ok()
    square.as_("bob", "agree", "accept", "lease", "--terms", terms, *on).ok()

    def active(*options: Any) -> Any:
        (found,) = square.as_("bob", "agree", "status", "lease", *options, *on, "--json").json["agreements"]
        return found["active_version"]

    assert active() == 1
    assert active("--upto", 4) is None, "before Bob's decision, which is message 5"
    assert active("--at", "+1d") == 1
    assert square.as_("bob", "agree", "withdraw", "lease", *on, "--json").json["decision"] == "withdraw"
    assert active() is None
    assert active("--upto", 5) == 1
    assert "no message from before" in square.as_(
        "bob", "agree", "status", "lease", "--at", "2020-01-01", *on
    ).failed(Exit.USAGE)


def test_what_the_rules_forbid_is_refused_before_it_is_sent(square: Town, terms: Path) -> None:
    on = shared(square, "agree-refused")
    propose(square, terms, on, "--version", 3).ok()
    assert "AGREEMENT.M2" in propose(square, terms, on, "--version", 3).failed(Exit.POLICY)
    wrong = terms.with_name("other.txt")
    wrong.write_text("the rent is 800\n")
    refused = square.as_("bob", "agree", "accept", "lease", "--terms", wrong, *on).failed(Exit.POLICY)
    assert "AGREEMENT.TERMS" in refused
    assert "AGREEMENT.PARTY" in square.as_("admin", "agree", "accept", "lease", *on).failed(Exit.POLICY)
    assert "no version 2" in square.as_("bob", "agree", "accept", "lease", "--version", 2, *on).failed(
        Exit.USAGE
    )
    folded = square.as_("bob", "fold", "operation.agreements", *on[:1], *on[1:]).failed(Exit.USAGE)
    assert "-s" in folded
    folded_data = square.as_("bob", "fold", "operation.agreements", "agree-refused", *on[2:], "--json").json
    assert folded_data["upto_seq"] == 2, "the link of Alice's key, and one definition"


def test_at_a_hub_with_tokens_the_identitys_own_key_signs_and_needs_no_link(town: Town, terms: Path) -> None:
    on = ("-s", STREAM)
    town.as_("alice", "agree", "propose", "solo", terms, "--party", town / "alice", *on).ok()
    town.as_("alice", "agree", "accept", "solo", *on).ok()
    (found,) = town.as_("alice", "agree", "status", "solo", *on, "--json").json["agreements"]
    assert found["active_version"] == 1
    definition, acceptance = town.as_("alice", "op", "list", *on, "--last", 2, "--json").json["operations"]
    assert acceptance["stream_seq"] == definition["stream_seq"] + 1, "no link between them"
    own = veen("id", "show", "--client", town / "alice", "--json").json["id_sign"]
    assert (definition["signer"], acceptance["signer"]) == (own, own)


@dataclass(frozen=True, slots=True)
class Times:
    """The part of a view that ``position_at`` reads."""

    hub_ts: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.hub_ts)

    async def state(self, upto: int) -> Any:
        return SimpleNamespace(receipt=SimpleNamespace(hub_ts=self.hub_ts[upto - 1]))


@pytest.mark.parametrize("count", range(8))
def test_the_position_at_a_time_is_that_of_the_last_receipt_until_then(count: int) -> None:
    times = (10, 10, 12, 15, 15, 15, 20)[:count]
    for time in range(8, 22):
        found = loop.run(position_at(Times(times), time))  # type: ignore[arg-type]
        assert found == sum(each <= time for each in times)


# --- publications


def test_files_are_compared_with_the_log_and_with_evidence_that_travels_alone(
    square: Town, tmp_path: Path
) -> None:
    on, data, proof = shared(square, "releases"), tmp_path / "data", tmp_path / "rates.evidence"
    (data / "sub").mkdir(parents=True)
    (data / "a.csv").write_text("1\n")
    (data / "sub/b.csv").write_text("2\n")
    square.as_("alice", "publish", "add", "rates", "v1", data, *on).ok()
    assert "PUBLICATION.P1" in square.as_("bob", "publish", "add", "rates", "v1", data, *on).failed(
        Exit.POLICY
    )
    square.as_("bob", "publish", "verify", "rates", data, *on).ok()
    square.as_("bob", "publish", "prove", "rates", "--out", proof, *on).ok()

    def check(*files: Any, evidence: Path = proof, trust: str = square.hub_id) -> Any:
        return veen(
            "publish", "check", evidence, *files, "--trust", trust, "--reader", square / "realm", "--json"
        )

    assert check(data).json["version"] == "v1"
    veen("verify", proof, "--trust", square.hub_id).ok()
    assert f"{data / 'a.csv'} is damaged" in check(data, evidence=data / "a.csv").failed(Exit.PROTOCOL)
    lost = square.as_("bob", "publish", "prove", "rates", "--out", tmp_path / "none" / "x", *on)
    assert f"no folder {tmp_path / 'none'}; make it first" in lost.failed(Exit.USAGE)
    unknown = square.as_("bob", "publish", "verify", "rates", data, "--version", "v9", *on)
    assert "has no version v9 of publication" in unknown.failed(Exit.USAGE)
    assert "another message" in check(data, evidence=_changed(proof, (0, 3))).failed(Exit.PROTOCOL)
    assert "no link of its key" in check(data, evidence=_changed(proof, (2, 3))).failed(Exit.PROTOCOL)
    assert "not a publication" in check(data, evidence=_changed(proof, (0, 1))).failed(Exit.PROTOCOL)
    assert "no sequence" in check(data, evidence=_changed(proof, (0, 1, 2))).failed(Exit.PROTOCOL)
    assert check(data, trust="ab" * 32).code == Exit.PROTOCOL
    (data / "a.csv").write_text("3\n")
    assert "are not v1" in check(data).failed(Exit.PROTOCOL)
    assert "are not v1" in square.as_("bob", "publish", "verify", "rates", data, *on).failed(Exit.PROTOCOL)


def _changed(proof: Path, parts: tuple[int, ...]) -> Path:
    items = list(cbor.split_sequence(proof.read_bytes()))
    assert len(items) == 4, "the link of the publisher's key and the publication, each with its evidence"
    changed = proof.with_suffix(".changed")
    changed.write_bytes(b"".join(items[n] for n in parts))
    return changed


def test_several_publishers_of_one_object_are_told_apart(square: Town, tmp_path: Path) -> None:
    on, file = shared(square, "rivals"), tmp_path / "a.csv"
    file.write_text("1\n")
    square.as_("alice", "publish", "add", "rates", "v1", file, *on).ok()
    square.as_("bob", "publish", "add", "rates", "v2", file, *on).ok()
    assert "2 identities" in square.as_("bob", "publish", "verify", "rates", file, *on).failed(Exit.USAGE)
    chosen = square.as_(
        "bob", "publish", "verify", "rates", file, "--publisher", square / "alice", *on, "--json"
    )
    assert chosen.json["version"] == "v1"


# --- recoveries


def test_guardians_replace_an_identity_and_the_tree_shows_how(square: Town, tmp_path: Path) -> None:
    on, new = shared(square, "recovery"), tmp_path / "new"
    veen("keygen", "--out", new, "--no-passphrase").ok()
    guardians = ("--guardian", square / "alice", "--guardian", square / "admin", "--threshold", 2)
    square.as_("bob", "recover", "policy", *guardians, "--executor", square / "admin", *on).ok()
    of = (square / "bob", "--new", new)
    assert "RECOVERY.8.3" in square.as_("alice", "recover", "approve", *of, *on).failed(Exit.POLICY)
    square.as_("alice", "recover", "request", *of, *on).ok()
    square.as_("alice", "recover", "approve", *of, *on).ok()
    assert "1 of 2" in square.as_("admin", "recover", "execute", *of, *on).failed(Exit.POLICY)
    assert "is not a guardian" in square.as_("bob", "recover", "approve", *of, *on).failed(Exit.POLICY)
    square.as_("admin", "recover", "approve", *of, *on).ok()
    assert "RECOVERY.R3" in square.as_("alice", "recover", "execute", *of, *on).failed(Exit.POLICY)
    done = square.as_("admin", "recover", "execute", *of, *on, "--json").json
    status = square.as_("bob", "recover", "status", square / "bob", *on, "--json").json
    assert list(status["replaced"].values()) == [
        veen("id", "show", "--client", new, "--json").json["id_sign"]
    ]
    tree = square.as_("bob", "op", "tree", done["operation_id"], *on, "--json").json["tree"]
    assert [(each["depth"], each["schema"], each["repeated"]) for each in tree] == [
        (0, "recovery.request.v1", False),
        (1, "recovery.approval.v1", False),
        (2, "recovery.execution.v1", False),
        (1, "recovery.approval.v1", False),
        (2, "recovery.execution.v1", True),
    ]


# --- op


@pytest.mark.parametrize("schema", OPERATIONS)
def test_an_operation_that_breaks_its_schema_is_refused_before_it_is_sealed(
    schema: str, square: Town
) -> None:
    said = square.as_("alice", "op", "send", schema, "--set", "no_such_field=1", "-s", "never-written")
    assert "nothing was sent" in said.failed(Exit.USAGE)


def test_a_shown_operation_can_be_sent_again_from_json(square: Town, terms: Path, tmp_path: Path) -> None:
    on = shared(square, "op-copies")
    propose(square, terms, on).ok()
    shown = square.as_("bob", "op", "show", 2, *on, "--json").json
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(shown["record"] | {"version": 7}))
    sent = square.as_("bob", "op", "send", shown["schema"], "--file", file, "--set", "version=8", *on).ok()
    assert "message 3" in sent.out
    again = square.as_("alice", "op", "show", 3, *on, "--json").json
    assert again["record"] == shown["record"] | {"version": 8}
    assert "has no parent_operation_id" in square.as_(
        "bob", "op", "send", shown["schema"], "--file", file, "--parent", 2, *on
    ).failed(Exit.USAGE)
    assert "no operation 9" in square.as_("bob", "op", "show", 9, *on).failed(Exit.USAGE)
    file.write_text("[]")
    assert "not a JSON object" in square.as_(
        "bob", "op", "send", shown["schema"], "--file", file, *on
    ).failed(Exit.USAGE)


def test_broken_bodies_of_operations_are_listed_with_the_reason(square: Town) -> None:
    on = ("-s", "op-broken")
    schema = OPERATIONS["recovery.request.v1"].SCHEMA.hex()
    square.as_("alice", "send", "no record", "--schema", schema, *on).ok()
    told = square.as_("alice", "op", "list", *on, "--json").json
    assert told["operations"] == []
    assert [each["stream_seq"] for each in told["undecodable"]] == [1]
