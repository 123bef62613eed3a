"""The invariants of spec-3 about logs: each has a log that obeys it and one that breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from generated_vectors import VECTORS, generator

from veen_core.errors import VerificationError
from veen_core.ids import MmrRoot
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.snapshot import StateCheckpoint, verify_snapshot

MADE = generator("invariants")
RULES = {
    *("2.5_P1", "2.5_P2", "A1", "A2", "D2", "D3", "M1", "M2", "6.4_P1"),
    *("S1", "S2", "R1", "R2", "R3", "F2"),
}
"""D1 is about one record, P2 of 6.4 is the reader's choice, A2, Q1 and F1 are also about programs."""
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in (VECTORS / "invariants").glob("*.json")}
LOGS = [
    pytest.param(case, id=f"{rule} {case['case']}")
    for rule, cases in sorted(FILES.items())
    for case in cases
    if "state" in case
]


def messages(case: dict[str, Any]) -> list[Message]:
    return [
        Message(
            each["seq"],
            bytes.fromhex(each["msg_id"]),
            bytes.fromhex(each["schema"]),
            bytes.fromhex(each["body"]),
            bytes.fromhex(each["parent_id"]) if "parent_id" in each else None,
            bytes.fromhex(each["signer"]),
            each["hub_ts"],
        )
        for each in case["log"]
    ]


def test_the_vectors_are_what_the_generator_makes() -> None:
    assert MADE.make() == MADE.on_disk(), "run: python packages/veen-overlays/tests/vectors/invariants.py"


def test_every_invariant_about_logs_is_obeyed_once_and_broken_once() -> None:
    assert FILES.keys() == RULES
    for rule, cases in FILES.items():
        assert {case["breaks"] for case in cases} == {True, False}, rule


@pytest.mark.parametrize("case", LOGS)
def test_a_log_has_the_state_of_its_vector(case: dict[str, Any]) -> None:
    overlay, log = OVERLAYS[case["overlay"]], messages(case)
    whole = overlay.fold(log)
    assert overlay.view_json(whole) == case["state"]
    assert overlay.state_hash(whole).hex() == case["state_hash"]
    assert case["names"] in json.dumps(case["state"])
    for cut in range(len(log)):
        seen = MemorySeenKeys()
        parts = overlay.fold(log[:cut], seen), overlay.fold(log[cut:], seen)
        assert overlay.state_hash(overlay.merge(parts)).hex() == case["state_hash"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in FILES["S2"]])
def test_a_snapshot_is_verified_or_refused_as_its_vector_says(case: dict[str, Any]) -> None:
    overlay = OVERLAYS[case["overlay"]]
    summary = overlay.fold(messages(case))
    claimed = StateCheckpoint.decode(bytes.fromhex(case["snapshot"]))
    root = MmrRoot(bytes.fromhex(case["mmr_root"]))
    if not case["breaks"]:
        verify_snapshot(claimed, overlay, summary, len(case["log"]), root)
        return
    with pytest.raises(VerificationError, match=case["names"]):
        verify_snapshot(claimed, overlay, summary, len(case["log"]), root)
