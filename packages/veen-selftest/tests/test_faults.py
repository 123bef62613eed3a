"""Every check can fail: for each there is a faulty hub, or a faulty `veen` command, that it catches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from veen_core import rejection
from veen_core.rejection import TABLE
from veen_selftest.runner.suite import CheckOutcome, CheckResult

from .conftest import ALL, FaultyFleet, run_check
from .faulty_hub import BACKUP, FAULTS, SKIPPED
from .faulty_veen import FAULTS as VEEN_FAULTS

CAUGHT_BY = {
    "accepts replays": ["scenario.B", "invariant.I8", "mmr.append-once"],
    "judges in another order": [
        "admission.order",
        "admission.order.CAP_TTL",
        "admission.order.EPOCH",
        "admission.order.strict",
    ],
    "takes any encoding": ["admission.CBOR_INVALID", "invariant.I10", "codec.unique"],
    "takes any layout": ["admission.FIELD_SIZE", "invariant.I11"],
    "takes any version": ["admission.VERSION"],
    "calls its caps a field": ["admission.SIZE_PREFILTER"],
    "asks for no work": ["admission.PREFILTER_REJECT"],
    "takes any token": ["admission.CAP_INVALID", "cap.rules", "cap.chain"],
    "takes any issuer": ["admission.CAP_ISSUER"],
    "gives tokens longer": ["cap.receipt", "cap.status"],
    "reports another code": ["admission.DUPLICATE", "api.sequence"],
    "reports another status": ["admission.SIG_INVALID", "api.errors"],
    "names no request": ["api.errors", "api.answers", "fuzz.read"],
    "forges a root": ["invariant.I3", "scenario.A", "mmr.roots", "hub.clients"],
    "commits to another leaf": ["invariant.I2", "codec.json"],
    "signs with another key": ["invariant.signatures"],
    "turns its clock back": ["scenario.A"],
    "reorders pages": [
        "scenario.A",
        "api.pages",
        "equivocation.one-history",
        "codec.round-trip",
        "recorder.order",
    ],
    "leaves out the last entry": [
        "api.pages",
        "cap.replayable",
        "resync.client",
        "recorder.attribution",
        "authority.records",
        "overlay.directory",
        "overlay.operations",
        "overlay.wallets",
        "goal.core-pipeline",
    ],
    "equivocates": ["equivocation.one-history", "resync.from-checkpoint"],
    "gives a place twice": ["equivocation.distinct"],
    "tells followers twice": ["api.follow"],
    "forges a proof": [
        "proof.own-receipt",
        "proof.any-later-root",
        "proof.page",
        "mmr.inclusion",
        "hub-log.evidence",
    ],
    "proves at length": ["proof.deterministic"],
    "proves what is not there": ["proof.absent", "proof.consistency.bounds"],
    "forges a consistency proof": ["proof.consistency", "checkpoint.chain", "mmr.consistency"],
    "forges a checkpoint": ["checkpoint.now"],
    "rewrites its checkpoints": ["checkpoint.fetch"],
    "lists no checkpoint": ["checkpoint.range"],
    "breaks the chain of epochs": ["scenario.C", "epoch.roll"],
    "lives in another epoch": ["epoch.status"],
    "obeys anybody": ["checkpoint.orders"],
    "obeys twice": ["checkpoint.orders"],
    "opens its control label": ["cap.control-label"],
    "stores no attachment": ["attachment.round-trip", "attachment.named-by-content", "invariant.I5"],
    "takes unsigned attachments": ["attachment.auth"],
    "measures no attachment": ["attachment.size"],
    "shows a broken identity": ["identity.chain"],
    "is of every version": ["api.version"],
    "overlooks odd requests": ["api.requests"],
    "says something else in JSON": ["api.json"],
    "believes any evidence": ["equivocation.report"],
    "counts nothing": ["api.probes"],
    "answers 500": ["fuzz.submit", "fuzz.read", "fuzz.tooling", "fuzz.attachment", "codec.tokens"],
    "drops who comes after a bad one": ["fuzz.garbage", "fuzz.half-sent", "fuzz.idle", "fuzz.announced"],
    "claims to enforce everything": ["admission.ATT_ROOT"],
    "changes its mind": ["admission.deterministic"],
    "forks the hub log per client": ["hub-log.one-view", "witness.one-view"],
    "rolls the hub log back": ["hub-log.append-only", "hub-log.kills"],
    "drops a label from the hub log": ["hub-log.heads"],
    "is late with its hub checkpoints": ["hub-log.heads"],
    "extends the hub log in reverse": ["hub-log.order"],
    "writes roots in hex": ["hub-log.note"],
    "serves tiles of another tree": ["hub-log.tiles"],
    "lets nobody keep tiles": ["hub-log.tiles.immutable"],
    "serves tiles that are not there": ["hub-log.tiles.absent"],
    "forges hub log proofs": ["hub-log.proof", "hub-log.consistency", "recorder.stability"],
    "proves heads of no label": ["hub-log.proof"],
    "serves no cosignature": ["witness.cosigned", "witness.confirm"],
    "renews no cosignature": ["witness.cosigned"],
    "waits for its witnesses": ["witness.off-path"],
    "is slow": ["hub.single", "hub.batch", "hub.p50"],
    "slows as it grows": ["hub.growth"],
    "reads slowly": ["hub.read"],
    "tells followers late": ["hub.follow_p99_ms"],
    "hoards memory": ["hub.rss_mb"],
    "forgets what its primary sends": ["dr.replica", "goal.dr-cutover"],
    "calls a replica revoked": ["dr.replica"],
    "accepts messages after its handover": ["dr.planned-cutover"],
}
"""Which checks see it, of those that are meant to."""

ROWS = {
    rejection.PROFILE: ["invariant.I4"],
    rejection.CT_HASH: ["invariant.I1"],
    rejection.SIG_INVALID: ["codec.bit-flips"],
    rejection.NOT_PRIMARY: [],
    rejection.CAP_MISSING: ["scenario.D", "authority.closed"],
    rejection.AUTH_REF: [],
    rejection.REVOKED: [],
    rejection.CLIENT_BOUNDS: [],
    rejection.CAP_SCOPE: ["bridge.one-way", "recorder.isolation"],
    rejection.CAP_TTL: [],
    rejection.PADDING: [],
    rejection.CAP_RATE: ["invariant.I7", "cap.rate"],
    rejection.PREV_ACK: ["invariant.I6"],
    rejection.DUPLICATE: [],
    rejection.CLIENT_SEQ: ["invariant.I9"],
    rejection.EPOCH: ["invariant.I12", "epoch.window", "epoch.roll"],
}
"""Rows that a hub may leave out; its own check sees each, and these."""
LEFT_OUT = {SKIPPED + row.detail: [f"admission.{row.detail}", *others] for row, others in ROWS.items()}
OVER_A_RESTART = {
    "drops fsync": ["crash.at-once", "crash.under-load"],
    BACKUP: ["identity.restart"],
    "makes no last hub checkpoint": ["hub-log.restart"],
    "signs hub checkpoints with one key": ["hub-log.restart"],
    "asks no memory": ["memory.witness", "memory.heads-file", "goal.audit-anchor"],
    SKIPPED + rejection.CAP_ISSUER.detail: ["admission.CAP_ISSUER.withdrawn"],
    "witnesses with one key": ["identity.rotation"],
}
BY_THE_OPERATOR = {
    "loses the last event of a bundle": ["bridge.one-to-one"],
    "changes the receipts of origins": ["bridge.one-to-one", "goal.disposable-mesh"],
    "overlooks gaps between bundles": ["bridge.no-silent-loss"],
    "finds no difference between zones": ["bridge.no-silent-loss"],
    "verifies no bundle": ["bridge.damaged-bundle"],
    "records no refusal": ["bridge.damaged-bundle"],
    "sees no way back": ["bridge.one-way"],
    "promotes without a handover": ["dr.unplanned-cutover"],
    "calls lost receipts kept": ["dr.unplanned-cutover"],
}
"""Faults of the `veen` command with which the checks operate their hubs."""
CASES = [
    (fault, check)
    for table in (CAUGHT_BY, LEFT_OUT, OVER_A_RESTART, BY_THE_OPERATOR)
    for fault, names in table.items()
    for check in names
]


@pytest.mark.parametrize(("fault", "check"), CASES, ids=[f"{f} - {c}" for f, c in CASES])
def test_the_check_catches_the_fault(
    with_fault: Callable[[str, str], CheckResult], fault: str, check: str
) -> None:
    result = with_fault(fault, check)
    assert result.outcome is CheckOutcome.FAILED, f"{check} did not notice a hub that {fault}: {result.why}"
    for words in ("the check crashed", "did not start", " failed: ", "no answer from the hub: "):
        if (fault, words) != ("drops fsync", "did not start"):  # it may lose what it cannot start without
            assert words not in result.why
    assert result.why


@pytest.mark.parametrize("check", sorted({check for _fault, check in CASES if not check.startswith("hub.")}))
def test_the_same_hub_passes_while_its_fault_is_inactive(faulty: FaultyFleet, check: str) -> None:
    """But for the figures: whether those are reached is the machine's business."""
    result = run_check(check, faulty)
    assert (result.outcome, result.why) == (CheckOutcome.PASSED, "")


def test_every_check_has_a_fault_that_it_catches() -> None:
    elsewhere = {name for name in ALL if name.startswith("query.")}  # see test_query_faults
    elsewhere.add("overlay.calls")  # see test_overlay_faults
    assert {check for _fault, check in CASES} == set(ALL) - elsewhere


def test_every_fault_is_caught_by_a_check() -> None:
    assert set(FAULTS) == set(CAUGHT_BY) | {"skips rows"} | (set(OVER_A_RESTART) & set(FAULTS))
    assert set(VEEN_FAULTS) == set(BY_THE_OPERATOR)
    assert {row for row in TABLE if SKIPPED + row.detail in LEFT_OUT} == set(ROWS)
