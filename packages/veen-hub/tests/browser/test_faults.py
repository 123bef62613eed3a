"""The console against a hub that lies or dies: the affected part turns red, with a reason and evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core.equivocation import Equivocation, verify_evidence

from .conftest import PROGRAM
from .test_console import go

if TYPE_CHECKING:
    from playwright.sync_api import Page

IN_THE_LOG = {
    "forges a root": "mmr_root is not the root with the new leaf",
    "commits to another leaf": "leaf_hash is not the leaf hash of the MSG",
    "signs with another key": "no key of the hub that was active",
    "turns its clock back": "hub_ts",
    "tells followers twice": "want",
    "forges a checkpoint": "is not the root that the receipt",
}
"""Faults in what the hub writes, or sends to followers: rows turn red."""

OF_A_PROOF = {
    "forges a proof": "mmr_proof",
    "proves at length": "mmr_proof",
    "reorders pages": None,
    "forges hub log proofs": "inclusion proof",
    "leaves out the last entry": None,
}
"""Faults in what proves one message; None: that nothing is shown is enough."""

OF_THE_HUB_LOG = {
    "serves tiles of another tree": "does not have its hash in tile",
    "serves tiles that are not there": None,
    "rolls the hub log back": "hub log",
    "writes roots in hex": "checkpoint (C2SP tlog-checkpoint)",
    "drops a label from the hub log": "",
}
"""Faults of the hub checkpoint and the log below it; None: the reader never asks for what is not there.

Not here: a hub that forks its log per client shows each reader one history, and only witnesses find it.
"""


def problem(page: Page, text: str) -> str:
    """Wait for the red panel that says so; return all that it says."""
    panel = page.locator(".problem.lie").first
    panel.wait_for()
    said = panel.inner_text()
    assert text in said, said
    return said


def seen_within(page: Page, selector: str, milliseconds: int) -> bool:
    from playwright.sync_api import TimeoutError as TooLate  # noqa: PLC0415

    try:
        page.locator(selector).first.wait_for(timeout=milliseconds)
    except TooLate:
        return False
    return True


def test_equivocation_is_shown_with_evidence_that_convicts_the_hub(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url)
    healthy.fault = "equivocates"
    go(page, "message", healthy.label("orders"), 5)
    problem(page, "the hub signed two receipts for stream_seq 5")
    page.locator(".verdict-line .badge.fails", has_text="does not hold").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download equivocation-5.cbor").click()
    evidence = Equivocation.decode(Path(download.value.path()).read_bytes())
    verify_evidence(evidence, healthy.hub.known.identity)


@pytest.mark.parametrize("fault", OF_A_PROOF)
def test_a_wrong_proof_is_never_shown_as_verified(open_console: Any, healthy: Any, fault: str) -> None:
    healthy.submit_raw("another", 1)  # so that the hub log has a proof of more than nothing
    page = open_console(healthy.url)
    healthy.fault = fault
    go(page, "message", healthy.label("orders"), 6)  # the hub caches proofs that it made while it lied
    page.locator(".screen.message :is(.checks, .problem)").first.wait_for()
    assert page.get_by_text("verified and confirmed").count() == 0 or OF_A_PROOF[fault] is None
    if (reason := OF_A_PROOF[fault]) is not None:
        problem(page, reason)


@pytest.mark.parametrize("fault", OF_THE_HUB_LOG)
def test_a_wrong_hub_log_turns_trust_red_and_leaves_streams_usable(
    open_console: Any, healthy: Any, fault: str
) -> None:
    healthy.submit_raw("growing", 1, f"grower of {fault}")
    page = open_console(healthy.url, fragment="#/trust")
    page.get_by_text("in this session, each verified").wait_for()
    healthy.fault = fault
    reason = OF_THE_HUB_LOG[fault]
    page.wait_for_timeout(3_500)  # a rollback shows only to a reader who saw what is gone
    for writer, entries in enumerate((1, 4, 1, 1)):
        for entry in range(entries):
            healthy.submit_raw("growing", 1, f"{writer} {entry} of {fault}")
        if seen_within(page, ".problem.lie", 4_000) or reason is None:
            break
    if reason is None:
        return
    problem(page, reason)
    assert page.get_by_role("button", name="Download hub-checkpoint.txt").count() == 1
    assert page.locator("#state, .hub-name").inner_text().count("failed") == 1
    healthy.fault = ""
    go(page, "streams", healthy.label("orders"))
    page.get_by_text("40 of 40 rows").wait_for()


def test_a_broken_identity_turns_red(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, fragment="#/trust")
    page.get_by_text("the first key").wait_for()
    healthy.fault = "shows a broken identity"
    problem(page, "identity")
    page.get_by_role("button", name="Download status.cbor").wait_for()


def test_a_hub_that_dies_is_said_to_be_silent_and_what_was_shown_stays(
    open_console: Any, healthy: Any
) -> None:
    page = open_console(healthy.url, fragment=f"#/streams/{healthy.label('orders')}")
    page.get_by_text("40 of 40 rows").wait_for()
    with healthy.own._process.paused():
        page.locator(".problem.silence").wait_for(timeout=40_000)
        assert page.locator(".message-row").count() > 5
    page.locator(".problem.silence").wait_for(state="detached", timeout=40_000)


def test_a_rotation_of_the_hub_key_is_followed_and_called_no_lie(open_console: Any, tmp_path: Path) -> None:
    from .console_world import ConsoleWorld  # noqa: PLC0415 - veen-selftest is installed only here

    world = ConsoleWorld(tmp_path, PROGRAM)
    try:
        page = open_console(world.url, fragment=f"#/streams/{world.label('orders')}")
        page.get_by_text("40 of 40 rows").wait_for()
        world.own.stop()
        world.own.rotate(30)
        world.witnessed.restart()
        world.hub = world.witnessed.hub
        page.wait_for_timeout(1_500)  # the next key is valid from the next second
        world.submit_raw("orders", 1)
        page.locator(".message-row .seq", has_text="41").wait_for()
        go(page, "message", world.label("orders"), 41)
        page.locator(".verdict-line .badge").wait_for()
        assert page.locator(".problem.lie, .badge.fails").all_inner_texts() == []
    finally:
        world.close()


# What such a hub has written stays wrong: these tests are the last.


@pytest.mark.parametrize("fault", IN_THE_LOG)
def test_a_forged_row_is_red_and_its_bytes_can_be_downloaded(
    open_console: Any, healthy: Any, fault: str
) -> None:
    stream = fault.replace(" ", "-")
    healthy.submit_raw(stream, 2)
    page = open_console(healthy.url, fragment=f"#/streams/{healthy.label(stream)}")
    page.locator(".message-row").nth(1).wait_for()
    healthy.fault = fault
    healthy.submit_raw(stream, 4, "another")
    problem(page, IN_THE_LOG[fault])
    assert page.locator("#nav a.failing", has_text="Streams").count() == 1
    if fault != "forges a checkpoint":
        page.locator(".message-row.fails").first.wait_for()
    with page.expect_download() as download:
        page.locator(".problem.lie button").first.click()
    assert Path(download.value.path()).stat().st_size > 100
    healthy.fault = ""
    go(page, "overview")
    page.locator(".stages").wait_for()
