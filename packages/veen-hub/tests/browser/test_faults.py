"""The console against a hub that lies or dies: the affected part turns red, with a reason and evidence."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.ids import HubId

from ..serving import HubProcess
from .conftest import FAULTY_HUB, PROGRAM
from .test_console import go, veen_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

IN_THE_LOG = {
    "forges a root": "mmr_root is not the root with the new leaf",
    "commits to another leaf": "leaf_hash is not the leaf hash of the MSG",
    "signs with another key": "no key of the hub that was active",
    "turns its clock back": "hub_ts",
    "tells followers twice": "want",
    "forges a checkpoint": "is not the root of the log (core §4.4.1)",
}
"""Faults in what the hub writes, or sends to followers: rows turn red."""
WRITTEN = ("forges a root", "commits to another leaf", "signs with another key", "turns its clock back")
"""Faults that stay in the log: no query over it is answered."""

OF_A_PROOF = {
    "forges a proof": "mmr_proof",
    "proves at length": "mmr_proof",
    "leaves out the last entry": "the hub does not show entry 6, although it signed a head of 40 entries",
    "forges hub log proofs": "inclusion proof",
}
"""Faults in what proves one message."""

OF_THE_HUB_LOG = {
    "serves tiles of another tree": "does not have its hash in tile",
    "rolls the hub log back": "hub log",
    "writes roots in hex": "checkpoint (C2SP tlog-checkpoint)",
    "drops a label from the hub log": "",
}
"""Faults of the hub checkpoint and the hub log, which one reader sees."""

OF_THE_STATUS = {
    "shows a broken identity": "identity",
    "lives in another epoch": "status.epoch",
}
OF_COSIGNATURES = {
    "serves no cosignature": "no quorum",
    "renews no cosignature": "quorum older than 3 s",
}
"""Faults that a reader with a witness policy sees."""
OF_TWO_KEYS = {
    "witnesses with one key": "the signature of witness",
    "signs hub checkpoints with one key": "did not sign the hub checkpoint",
}
"""Faults while two keys of the hub are active."""

ALONE = (
    *("equivocates", "proves heads of no label", "counts nothing"),
    *("forks the hub log per client", "starts from a backup", "accepts messages after its handover"),
)
"""Faults with a test of their own."""

ADMISSION = "the hub's answers to writers and admins: a reader makes no such call"
FASTER = "how fast the hub is, or how much memory it uses: no call contradicts another"
ELSEWHERE = "a call, a header or a form of answer that the page does not ask for"
NOT_SEEN = {
    **dict.fromkeys(
        (
            *("skips rows", "accepts replays", "judges in another order", "takes any encoding"),
            *("takes any layout", "takes any version", "calls its caps a field", "asks for no work"),
            *("takes any token", "takes any issuer", "gives tokens longer", "reports another code"),
            *("reports another status", "names no request", "gives a place twice", "obeys anybody"),
            *("obeys twice", "opens its control label", "believes any evidence", "changes its mind"),
            *(
                "answers 500",
                "drops who comes after a bad one",
                "overlooks odd requests",
                "is of every version",
            ),
            *("stores no attachment", "takes unsigned attachments", "measures no attachment"),
        ),
        ADMISSION,
    ),
    **dict.fromkeys(
        ("is slow", "slows as it grows", "reads slowly", "tells followers late", "hoards memory"), FASTER
    ),
    **dict.fromkeys(
        (
            *(
                "reorders pages",
                "says something else in JSON",
                "lists no checkpoint",
                "rewrites its checkpoints",
            ),
            *("forges a consistency proof", "proves what is not there", "lets nobody keep tiles"),
            *("serves tiles that are not there", "makes no last hub checkpoint", "waits for its witnesses"),
        ),
        ELSEWHERE,
    ),
    "breaks the chain of epochs": "a hub that cannot derive the stream writes the same label_prev (H9)",
    "is late with its hub checkpoints": "no statement says when the next one is due; rows stay unconfirmed",
    "extends the hub log in reverse": "two hub checkpoints in a row add the same entries in that order (P1)",
    "claims to enforce everything": "the page says that enforcement is only claimed",
    "drops fsync": "a hub that lost entries shows less than it signed, as one that starts from a backup",
    "asks no memory": "the memory knows, and the reader does not ask it",
    "forgets what its primary sends": "the replica shows the prefix that it has, which holds",
    "calls a replica revoked": ADMISSION,
}


def test_every_fault_of_the_faulty_hub_is_seen_or_has_a_reason_why_not() -> None:
    source = FAULTY_HUB.read_text(encoding="utf-8")
    faults = set(re.findall(r'^@fault\("([^"]+)"\)', source, re.MULTILINE)) | {"starts from a backup"}
    seen = [*IN_THE_LOG, *OF_A_PROOF, *OF_THE_HUB_LOG, *OF_THE_STATUS, *OF_COSIGNATURES, *OF_TWO_KEYS, *ALONE]
    assert sorted([*seen, *NOT_SEEN]) == sorted(faults)


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
    assert page.get_by_text("verified and confirmed").count() == 0
    problem(page, OF_A_PROOF[fault])


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
        if seen_within(page, ".problem.lie", 4_000):
            break
    problem(page, reason)
    assert page.get_by_role("button", name="Download hub-checkpoint.txt").count() == 1
    assert page.locator("#state, .hub-name").inner_text().count("failed") == 1
    healthy.fault = ""
    go(page, "streams", healthy.label("orders"))
    page.get_by_text("40 of 40 rows").wait_for()


@pytest.mark.parametrize("fault", OF_THE_STATUS)
def test_a_status_that_contradicts_itself_turns_red(open_console: Any, healthy: Any, fault: str) -> None:
    page = open_console(healthy.url, fragment="#/trust")
    page.get_by_text("the first key").wait_for()
    healthy.fault = fault
    problem(page, OF_THE_STATUS[fault])
    page.get_by_role("button", name="Download status.cbor").wait_for()


def test_a_head_of_another_label_is_no_proof(open_console: Any, healthy: Any) -> None:
    """The hub's answer is that of "proves heads of no label", at a time that the test chooses."""
    healthy.submit_raw("longer", 8)
    page = open_console(healthy.url)
    asked = f'"label":"{healthy.label("orders")}"'
    other = f'"label":"{healthy.label("longer")}"'
    page.get_by_text("the list is complete").wait_for()
    page.route(
        "**/v1/hublog/proof",
        lambda route: route.continue_(post_data=(route.request.post_data or "").replace(asked, other)),
    )
    go(page, "message", healthy.label("orders"), 6)
    problem(page, "mmr_proof")
    page.locator(".checks li", has_text="the head is that of another label than the receipt").wait_for()


def test_a_hub_that_counts_nothing_is_red_and_shows_no_zeros(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url)
    page.locator(".stages").wait_for()
    healthy.fault = "counts nothing"
    page.locator(".card .badge.fails", has_text="no counters").nth(2).wait_for()
    assert "Refused since start" not in page.locator("main").inner_text()
    healthy.fault = ""
    page.locator(".stages").wait_for()


@pytest.mark.parametrize("fault", OF_COSIGNATURES)
def test_missing_cosignatures_turn_the_quorum_red(
    open_console: Any, healthy: Any, tmp_path: Path, fault: str
) -> None:
    policy = healthy.policy + "#veen max-age 3\n"
    with veen_console(healthy, tmp_path, policy, healthy.hub_id.hex()) as url:
        page = open_console(url, confirm=False, fragment="#/trust")
        page.get_by_role("button", name="Compare and open").click()
        page.locator(".badge.holds", has_text="1 of 1 witnesses").first.wait_for()
        healthy.fault = fault
        page.locator(".badge.fails", has_text=OF_COSIGNATURES[fault]).first.wait_for()
        go(page, "streams", healthy.label("orders"))
        page.locator(".message-row .badge.open", has_text="not confirmed").first.wait_for()


def test_a_reader_who_is_shown_another_history_than_before_sees_red(
    open_console: Any, healthy: Any, tmp_path: Path
) -> None:
    """The fault shows its second history to the second address, which the proxy connects from."""
    with (
        from_second_address(healthy.hub.url) as address,
        veen_console(healthy, tmp_path, healthy.policy, healthy.hub_id.hex(), hub=address) as url,
    ):
        page = open_console(url, confirm=False, fragment="#/trust")
        page.get_by_role("button", name="Compare and open").click()
        page.locator(".badge.holds", has_text="1 of 1 witnesses").first.wait_for()
        healthy.fault = "forks the hub log per client"
        problem(page, "hub log")


@contextmanager
def from_second_address(url: str) -> Iterator[str]:
    """Forward connections to a hub from the second address; yield the address of the proxy."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets = [listener]

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _address = listener.accept()
                hub = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
                open_sockets.extend((client, hub))
                for pair in ((client, hub), (hub, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    for each in open_sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def test_a_hub_that_dies_is_said_to_be_silent_and_what_was_shown_stays(
    open_console: Any, healthy: Any
) -> None:
    page = open_console(healthy.url, fragment=f"#/streams/{healthy.label('orders')}")
    page.get_by_text("40 of 40 rows").wait_for()
    with healthy.own._process.paused():
        page.locator(".problem.silence").wait_for(timeout=40_000)
        assert page.locator(".message-row").count() > 5
    page.locator(".problem.silence").wait_for(state="detached", timeout=40_000)


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[Any]:
    """A hub that this test may stop."""
    from .console_world import ConsoleWorld  # noqa: PLC0415 - veen-selftest is installed only here

    made = ConsoleWorld(tmp_path, PROGRAM)
    yield made
    made.close()


def test_a_rotation_of_the_hub_key_is_followed_and_one_key_alone_is_not_enough(
    open_console: Any, own_world: Any
) -> None:
    world = own_world
    page = open_console(world.url, fragment=f"#/streams/{world.label('orders')}")
    page.get_by_text("40 of 40 rows").wait_for()
    world.own.stop()
    world.own.rotate(300)
    world.witnessed.restart()
    world.hub = world.witnessed.hub
    page.wait_for_timeout(1_500)  # the next key is valid from the next second
    world.submit_raw("orders", 1)
    page.locator(".message-row .seq", has_text="41").wait_for()
    page.get_by_text(
        "confirmed by the hub checkpoint up to 41, by the label's checkpoint up to 41"
    ).wait_for()
    go(page, "message", world.label("orders"), 41)
    page.locator(".verdict-line .badge").first.wait_for()
    assert page.locator(".problem.lie, .badge.fails").all_inner_texts() == []
    for fault, screen in zip(OF_TWO_KEYS, (("streams", world.label("orders")), ("trust",)), strict=True):
        go(page, *screen)
        world.fault = fault
        world.submit_raw("orders", 1, f"writer under {fault}")
        problem(page, OF_TWO_KEYS[fault])


def test_a_hub_that_lost_what_it_signed_is_red(open_console: Any, own_world: Any) -> None:
    world = own_world
    page = open_console(world.url, fragment=f"#/streams/{world.label('orders')}")
    page.get_by_text("confirmed by the hub checkpoint up to 40").wait_for()
    world.own.kill()
    world.fault = "starts from a backup"
    world.witnessed.restart()
    problem(page, "although it signed")
    page.get_by_role("button", name="Download item-40.cbor").wait_for()
    go(page, "trust")
    problem(page, "the hub shows no hub log")


def test_a_hub_that_continues_after_its_handover_is_red(
    open_console: Any, own_world: Any, tmp_path: Path
) -> None:
    world = own_world
    page = open_console(world.url, fragment=f"#/streams/{world.label('orders')}")
    page.get_by_text("confirmed by the hub checkpoint up to 40").wait_for()
    replica = HubProcess(tmp_path / "replica", f"--replica-of={world.hub.url}")
    try:
        world.fault = "accepts messages after its handover"
        world.hand_over(HubId(bytes(range(32))))
        page.wait_for_timeout(2_000)  # what follows has a later time
        world.submit_raw("orders", 1)
        problem(page, "after the handover")
    finally:
        replica.kill()


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
    healthy.submit_raw(stream, 8, "another")  # two of them in one second, for the clock
    problem(page, IN_THE_LOG[fault])
    assert page.locator("#nav a.failing", has_text="Streams").count() == 1
    if fault != "forges a checkpoint":
        page.locator(".message-row.fails").first.wait_for()
    if fault in WRITTEN:
        go(page, "records", stream)
        page.get_by_text("does not hold:").last.wait_for()
        page.get_by_role("button", name="Run").click()
        page.get_by_role("alert").filter(has_text="does not hold:").last.wait_for()
        assert page.locator(".answer .badge.holds").count() == 0
    with page.expect_download() as download:
        page.locator(".problem.lie button").first.click()
    assert Path(download.value.path()).stat().st_size > 100
    healthy.fault = ""
    go(page, "overview")
    page.locator(".stages").wait_for()
