"""Every check of the suite ``overlays`` can fail: each catches a wrong fold or a wrong server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from veen_overlays.discovery import publishers
from veen_overlays.discovery import state as directories
from veen_overlays.operations import grants
from veen_overlays.operations.grants import Grant
from veen_overlays.rpc.call_table import Answers
from veen_overlays.wallet import rules
from veen_selftest.hubs.fleet import OwnFleet
from veen_selftest.runner.suite import CheckOutcome, checks_of

from .conftest import run_check

Patch = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, tuple[str, Patch]] = {
    "runs a repeated call again": (
        "overlay.calls",
        lambda patch: patch.setattr(Answers, "get", lambda _self, _key: None),
    ),
    "lets every signer speak for an id": (
        "overlay.directory",
        lambda patch: patch.setattr(publishers, "_owner_rule", lambda _known: lambda _signer: ""),
    ),
    "lists what has expired": (
        "overlay.directory",
        lambda patch: patch.setattr(directories, "expiry", lambda _found, _hub_ts: 2**63),
    ),
    "charges no grant": (
        "overlay.operations",
        lambda patch: patch.setattr(Grant, "charged", lambda self, _amount, _hub_ts: self),
    ),
    "forgets revocations": (
        "overlay.operations",
        lambda patch: patch.setattr(grants, "revoked_at", lambda *_about: None),
    ),
    "reports no forbidden payment": (
        "overlay.wallets",
        lambda patch: patch.setattr(rules, "_source_violations", lambda *_about: iter(())),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_catches_the_fault(healthy: OwnFleet, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    check, install = FAULTS[fault]
    install(monkeypatch)
    result = run_check(check, healthy)
    assert result.outcome is CheckOutcome.FAILED, f"{check} did not notice a program that {fault}"
    assert "the check crashed" not in result.why
    assert result.why


def test_every_check_has_a_fault() -> None:
    assert {check for check, _install in FAULTS.values()} == {each.name for each in checks_of("overlays")}
