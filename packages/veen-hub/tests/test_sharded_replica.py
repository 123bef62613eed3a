"""A replica of a hub with several shards: one directory with every byte of the hub's log (RESOLUTIONS P9)."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from veen_core.handover import Handover, verify_handover
from veen_core.hashing import H
from veen_core.ids import HubPk
from veen_core.keys import SigningKey, SigningSeed
from veen_core.limits import Limits
from veen_core.status import HandoverRequest
from veen_core.stream import hub_id
from veen_hub.shards.forwarding import PartClient, socket_path
from veen_storage import Layout, Store
from veen_storage.copies.promote import promote
from veen_storage.fsck import fsck
from veen_storage.shards.check import fsck_sharded
from veen_storage.shards.reshard import log_digests
from veen_storage.shards.sharded_layout import ShardedLayout

from .people import Writer, admin_headers
from .replicas import catch_up, hand_over, published_size, ready
from .serving import CBOR, HubProcess, until
from .sharded import SHARDS, Load, ShardedHub, Start, check_receipts, new_directory, wait_for_head

SMALL = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536, max_checkpoint_interval=4)
StartReplica = Callable[[ShardedHub], HubProcess]


@pytest.fixture
def start_replica(place: Path) -> Iterator[StartReplica]:
    """``start_replica(hub)`` starts the one replica of a hub, on a new directory or where it stopped."""
    started: list[HubProcess] = []

    def start(hub: ShardedHub) -> HubProcess:
        started.append(HubProcess(place / "replica", f"--replica-of={hub.url}", log=place / "replica.log"))
        return started[-1]

    yield start
    for replica in started:
        replica.kill()


def assert_same_log(hub: ShardedHub, replica: HubProcess, place: Path) -> None:
    """Stop both, and compare every file of every label, of the hub log, and of the attachments."""
    wanted = published_size(hub)
    until(lambda: published_size(replica) >= wanted > 0, "the replica serves the hub checkpoint")
    assert hub.stop() == 0
    assert replica.stop() == 0
    assert log_digests(place / "replica") == log_digests(hub.root)
    report = fsck(place / "replica", processes=1)
    assert report.ok, str(report)


def test_a_replica_copies_all_shards_follows_them_and_ends_with_the_same_bytes(
    start_sharded: Start, start_replica: StartReplica, place: Path
) -> None:
    hub = start_sharded()
    writers = [hub.writer_of(0), hub.writer_of(1), hub.writer_of(0), hub.writer_of(1)]
    for writer in writers[:2]:
        for _ in range(5):
            hub.accept(writer.next())
    wait_for_head(hub, writers[0].label, 5)
    replica = start_replica(hub)
    for writer in writers:
        for _ in range(5):
            hub.accept(writer.next())
    content = b"attached"
    path = f"/v1/attachment/{H(content).hex()}"
    assert hub.call("PUT", path, content, writers[0].attachment_headers(content)).status == 200
    hub.admin("/tooling/checkpoint")
    labels = [writer.label for writer in writers]
    catch_up(hub, replica, hub.status().control_label, *labels)
    until(lambda: replica.get(path).body == content, "the replica has the attachment")
    until(lambda: ready(replica) is None, "the replica is ready")
    for label in labels:
        wait_for_head(hub, label, 5)
        wait_for_head(replica, label, 5)
    assert replica.status().identity == hub.status().identity
    assert replica.submit(writers[0].message(99)).detail == "NOT_PRIMARY"
    assert_same_log(hub, replica, place)


def test_a_replica_follows_under_load_while_shards_the_hub_and_the_replica_are_killed(
    start_sharded: Start, start_replica: StartReplica, place: Path
) -> None:
    hub = start_sharded()
    loads = [Load(hub, hub.writer_of(0)), Load(hub, hub.writer_of(1))]
    for load in loads:
        load.start()
    replica = start_replica(hub)  # its first copy is made under load
    until(lambda: all(len(load.receipts) > 10 for load in loads), "both shards write")
    catch_up(hub, replica, *(load.receipts[0].label for load in loads))
    for round_ in range(4):
        victim = hub.shard_pid(round_ % SHARDS)
        os.kill(victim, signal.SIGKILL)
        if round_ == 1:
            replica.kill()
            replica = start_replica(hub)
        until(lambda: hub.shard_pid(round_ % SHARDS) != victim, "the shard is started again")  # noqa: B023
        if round_ == 2:
            hub.kill()
            hub = start_sharded(hub.root, port=hub.port)
    until(lambda: hub.get("/readyz").status == 200, "the hub is ready again")
    check_receipts(hub, loads)
    late = hub.writer_of(1)
    hub.accept(late.next())
    labels = [load.receipts[0].label for load in loads]
    catch_up(hub, replica, hub.status().control_label, late.label, *labels)
    wait_for_head(hub, late.label, 1)
    copied = [line for line in replica.lines if line["event"] == "replica_copied"]
    assert len(copied) == 1, "it was copied once, at the first start"
    assert not [line for line in replica.lines if line["event"] == "primary_diverged"]
    assert_same_log(hub, replica, place)


def test_a_replica_prunes_what_the_shards_prune(
    start_sharded: Start, start_replica: StartReplica, place: Path
) -> None:
    root = new_directory(place, limits=SMALL)
    hub = start_sharded(root, settings="retention: {default: {max_bytes: 1}, every_sec: 1}\n")
    writers = [hub.writer_of(0), hub.writer_of(1)]
    for writer in writers:
        hub.accept(writer.next())
    replica = start_replica(hub)
    catch_up(hub, replica, *(writer.label for writer in writers))
    for writer in writers:
        for _ in range(9):
            hub.accept(writer.next())
    until(lambda: len(list((place / "replica" / "log").glob("*.pruned"))) == 4, "the replica has pruned")
    catch_up(hub, replica, *(writer.label for writer in writers))
    wait_for_head(hub, writers[1].label, 10)
    assert_same_log(hub, replica, place)


SUCCESSOR = SigningKey(SigningSeed(bytes([7] * 32)))
NEW_HUB = hub_id(HubPk(SUCCESSOR.public))


def is_refused(hub: ShardedHub, writer: Writer) -> bool:
    """Whether a message is refused because the hub is no primary; a shard that starts answers later."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer = hub.submit(writer.message(999))
        assert answer.status in {403, 503}, answer
        return answer.status == 403 and answer.detail == "NOT_PRIMARY"
    return False


def test_a_hub_with_shards_hands_over_under_load_and_nothing_acknowledged_is_lost(
    start_sharded: Start, start_replica: StartReplica, place: Path
) -> None:
    hub = start_sharded()
    loads = [Load(hub, hub.writer_of(0)), Load(hub, hub.writer_of(1))]
    replica = start_replica(hub)
    for load in loads:
        load.start()
    until(lambda: all(len(load.receipts) > 10 for load in loads), "both shards write")
    record = Handover.decode(hand_over(hub, NEW_HUB))
    until(lambda: all(403 in load.refused for load in loads), "both shards refuse")
    for load in loads:
        load.ended.set()
        load.join()
    signed = verify_handover(record, hub.status().identity)
    assert hub.status().handover == record
    assert Handover.decode(hand_over(hub, NEW_HUB, later=1)) == record
    until(lambda: replica.status().handover == record, "the replica has the record")
    victim = hub.shard_pid(1)
    os.kill(victim, signal.SIGKILL)
    until(lambda: hub.shard_pid(1) != victim, "the shard is started again")
    writers = [hub.writer_of(0, gated=False), hub.writer_of(1, gated=False)]
    for writer in writers:
        until(lambda writer=writer: is_refused(hub, writer), "the hub refuses")  # type: ignore[misc]
    assert hub.stop() == 0
    again = start_sharded(hub.root, port=hub.port)
    assert again.status().handover == record
    for writer in writers:
        until(lambda writer=writer: is_refused(again, writer), "the hub refuses after a restart")  # type: ignore[misc]
    assert published_size(again) == signed.head.size
    assert_same_log(again, replica, place)
    made = promote(place / "replica", place / "successor", SUCCESSOR, record.hub_ts, handover=record)
    assert made.new_hub == NEW_HUB
    with Store(Layout(place / "successor").ancestor(hub.hub_id)) as ancestor:
        for load in loads:
            assert load.receipts
            for receipt in load.receipts:
                assert ancestor.read.receipt(receipt.label, receipt.stream_seq) == receipt


def test_a_handover_during_which_a_shard_is_silent_fails_and_the_hub_stays_primary(
    start_sharded: Start,
) -> None:
    hub = start_sharded()
    writers = [hub.writer_of(0), hub.writer_of(1)]
    for writer in writers:
        hub.accept(writer.next())
    silent = hub.shard_pid(1)
    status = hub.status()
    os.kill(silent, signal.SIGSTOP)
    try:
        request = HandoverRequest(new_hub=NEW_HUB, url="").encode()
        signed = admin_headers(hub.hub_id, "/tooling/handover", request, status.hub_ts)
        assert asyncio.run(ask_coordinator(hub, "/tooling/handover", request, signed)) == 503
    finally:
        os.kill(silent, signal.SIGCONT)
    for writer in writers:
        wire = writer.next()
        until(lambda wire=wire: is_accepted(hub, wire), "the shard accepts again")  # type: ignore[misc]
    assert hub.status().handover is None
    assert hub.stop() == 0
    report = fsck_sharded(hub.root, processes=1)
    assert report.ok, str(report)


async def ask_coordinator(hub: ShardedHub, path: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of a request to the coordinator: a connection to the hub may reach the silent shard."""
    client = PartClient(socket_path(ShardedLayout(hub.root).sockets, "control"), "control")
    try:
        url = f"http://part{path}"
        async with client.session.post(url, data=body, headers={"Content-Type": CBOR, **headers}) as answer:
            return answer.status
    finally:
        await client.close()


def is_accepted(hub: ShardedHub, wire: bytes) -> bool:
    """Whether a message is in the log."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer = hub.submit(wire)
        return answer.status == 200 or answer.detail == "DUPLICATE"
    return False
