"""Cutovers: nothing is lost if it is planned, and every loss is named if it is not (P9)."""

from __future__ import annotations

import http.client
import os
import threading
from contextlib import suppress
from pathlib import Path

from veen_core import stream
from veen_core.api import SubmitResponse
from veen_core.handover import Handover
from veen_core.hashing import H
from veen_core.ids import HubPk, UnixTime
from veen_core.receipt import Receipt
from veen_storage.copies.promote import lost_receipts, promote
from veen_testing.forks import check_fork
from veen_testing.ports import free_port

from .conftest import StartProcess
from .people import ADMIN, Writer, signing_key
from .replicas import assert_sound, catch_up, hand_over, head, send
from .serving import HubProcess, until

NEW_KEY = signing_key("successor")
SUCCESSOR = stream.hub_id(HubPk(NEW_KEY.public))
KILLS = int(os.environ.get("VEEN_KILL_ROUNDS", "8"))
KILL_STEP_SEC = 0.004


class Sender(threading.Thread):
    """Keeps sending until it is refused; remembers every receipt."""

    def __init__(self, hub: HubProcess, writer: Writer) -> None:
        super().__init__()
        self.hub = hub
        self.writer = writer
        self.receipts: list[Receipt] = []
        self.refused = ""

    def run(self) -> None:
        while not self.refused:
            try:
                answer = self.hub.submit(self.writer.next())
            except (OSError, http.client.HTTPException):
                self.refused = "gone"
                return
            if answer.status == 200:
                self.receipts.append(answer.read(SubmitResponse).receipt)
            else:
                self.refused = str(answer.detail)


def test_a_planned_cutover_under_load_loses_nothing_and_the_successor_goes_on(
    start_process: StartProcess, tmp_path: Path
) -> None:
    primary = start_process("primary", "--open")
    hub_id = primary.status().identity.hub_id
    content = b"an attachment"
    alice = Writer("alice", hub_id)
    path = f"/v1/attachment/{H(content).hex()}"
    assert primary.call("PUT", path, content, alice.attachment_headers(content)).status == 200
    replica = HubProcess(tmp_path / "replica", f"--replica-of={primary.url}")
    senders = [Sender(primary, Writer(f"sender {n}", hub_id)) for n in range(3)]
    try:
        for sender in senders:
            sender.start()
        until(lambda: all(len(sender.receipts) > 20 for sender in senders), "there is load")
        record = Handover.decode(hand_over(primary, SUCCESSOR, "http://127.0.0.1:1"))
        for sender in senders:
            sender.join()
            assert sender.refused == "NOT_PRIMARY"
        until(lambda: replica.status().handover == record, "the replica has the handover")
        until(lambda: replica.get(path).body == content, "the replica has the attachment")
        primary.kill()  # a planned cutover does not need it any more
        promote(
            tmp_path / "replica",
            tmp_path / "new",
            NEW_KEY,
            UnixTime(record.hub_ts + 1),
            handover=record,
            admin_pk=ADMIN.public,
        )
    finally:
        replica.kill()
    check_fork(tmp_path / "new")
    receipts = [receipt for sender in senders for receipt in sender.receipts]
    fates = [fate.fate for fate in lost_receipts(tmp_path / "new", receipts)]
    assert fates == ["kept"] * len(receipts)
    successor = start_process("new", "--open")
    assert successor.status().identity.hub_id == SUCCESSOR
    again = Writer("sender 0", SUCCESSOR)
    assert again.label != senders[0].writer.label, "no hub continues another hub's label"
    until(lambda: successor.status().hub_ts > record.hub_ts, "the new key is valid")
    assert [receipt.stream_seq for receipt in send(successor, again, 3)] == [1, 2, 3]
    assert successor.stop() == 0
    assert_sound(tmp_path / "new")
    assert_sound(tmp_path / "new" / "ancestry" / hub_id.hex())


def test_after_an_unplanned_cutover_every_lost_message_is_named(
    start_process: StartProcess, tmp_path: Path
) -> None:
    primary = start_process("primary", "--open")
    alice = Writer("alice", primary.status().identity.hub_id)
    kept = send(primary, alice, 30)
    replica = HubProcess(tmp_path / "replica", f"--replica-of={primary.url}")
    try:
        catch_up(primary, replica, alice.label)
        assert replica.stop() == 0
        lost = send(primary, alice, 7)  # acknowledged while the replica was away
        primary.kill()
    finally:
        replica.kill()
    now = UnixTime(lost[-1].hub_ts + 1)
    promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, now, handover=None, admin_pk=ADMIN.public)
    fates = list(lost_receipts(tmp_path / "new", [*kept, *lost]))
    assert [fate.fate for fate in fates] == ["kept"] * 30 + ["lost"] * 7
    assert {fate.upto_seq for fate in fates} == {30}
    successor = start_process("new", "--open")
    assert head(successor, alice.label) == 0
    assert successor.stop() == 0


def test_kill_9_of_a_primary_during_its_handover_leaves_a_state_from_which_it_can_be_repeated(
    start_process: StartProcess, tmp_path: Path
) -> None:
    """Each kill comes a little later after the request; a hub that has not handed over accepts messages."""
    port = free_port()
    primary = start_process("primary", "--open", f"--port={port}")
    alice = Writer("alice", primary.status().identity.hub_id)
    receipts = send(primary, alice, 20)
    replica = HubProcess(tmp_path / "replica", f"--replica-of={primary.url}")
    try:
        for round_ in range(KILLS):
            asking = threading.Thread(target=ask_for_handover, args=(primary, round_))
            asking.start()
            asking.join(round_ * KILL_STEP_SEC)  # the moment of the kill is what differs
            primary.kill()
            asking.join()
            primary = start_process("primary", "--open", f"--port={port}")
            if primary.status().handover is None:
                receipts += send(primary, alice, 3)
            else:
                assert primary.submit(alice.message(alice.seq + 1)).detail == "NOT_PRIMARY"
        record = Handover.decode(hand_over(primary, SUCCESSOR, later=KILLS + 1))
        until(lambda: replica.status().handover == record, "the replica has the handover")
        promote(
            tmp_path / "replica",
            tmp_path / "new",
            NEW_KEY,
            UnixTime(record.hub_ts + 1),
            handover=record,
            admin_pk=ADMIN.public,
        )
    finally:
        replica.kill()
    fates = [fate.fate for fate in lost_receipts(tmp_path / "new", receipts)]
    assert fates == ["kept"] * len(receipts)


def ask_for_handover(hub: HubProcess, later: int) -> None:
    """Send the request of a hub that is killed meanwhile."""
    with suppress(OSError, http.client.HTTPException, AssertionError):
        hand_over(hub, SUCCESSOR, later=later)
