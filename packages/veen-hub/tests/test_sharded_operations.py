"""Copies, retention, status and metrics of a hub with several shards: those of one hub."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from veen_core import cbor
from veen_core.hashing import H
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.limits import Limits
from veen_core.status import CheckpointsResponse
from veen_hub.ops.anchors import GENESIS, AnchorHash, LedgerLine
from veen_storage import Store
from veen_storage.copies.export import export, export_hub, verify_export, verify_hub_export
from veen_storage.fsck import fsck
from veen_storage.shards.check import fsck_sharded
from veen_storage.shards.clone import clone_sharded, fork_hub
from veen_storage.shards.sharded_layout import ShardedLayout
from veen_storage.shards.sharded_source import open_hub

from .serving import until
from .sharded import SHARDS, Load, Start, check_receipts, new_directory, wait_for_head

SMALL = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536, max_checkpoint_interval=4)


def test_a_hub_that_accepts_messages_is_cloned_exported_and_forked(start_sharded: Start, place: Path) -> None:
    hub = start_sharded()
    loads = [Load(hub, hub.writer_of(0)), Load(hub, hub.writer_of(1))]
    for load in loads:
        load.start()
    until(lambda: all(len(load.receipts) > 5 for load in loads), "both shards write")
    acknowledged = [load.receipts[-1] for load in loads]
    first = acknowledged[0].label
    wait_for_head(hub, first, 3)
    clone_sharded(hub.root, place / "copy")
    fork_hub(hub.root, place / "fork", SigningKey(SigningSeed(bytes(32))), hub.status().hub_ts)
    with open_hub(hub.root) as source:
        export_hub(source, place / "whole")
        export(source.of(first), first, StreamSeq(1), StreamSeq(3), place / "range", form="chunks")
    check_receipts(hub, loads)
    assert verify_hub_export(place / "whole", hub.hub_id).manifest.size > 0
    assert verify_export(place / "range", hub.hub_id).hub_checkpoint is not None
    for copy in (place / "copy", place / "fork" / "ancestry" / hub.hub_id.hex()):
        report = fsck(copy, processes=1)
        assert report.ok, str(report)
        with Store(copy) as store:
            for receipt in acknowledged:
                assert store.read.receipt(receipt.label, receipt.stream_seq) == receipt


def pruned_files(root: Path, label: Label) -> int:
    """The number of a label's chunks whose payloads were removed."""
    return len([path for path in root.rglob("*.pruned") if label.hex() in path.name])


def test_retention_prunes_the_labels_of_every_shard_also_after_one_was_killed(
    start_sharded: Start, place: Path
) -> None:
    root = new_directory(place, limits=SMALL)
    layout = ShardedLayout(root)
    hub = start_sharded(root, settings="retention: {default: {max_bytes: 1}, every_sec: 1}\n")
    writers = [hub.writer_of(0), hub.writer_of(1)]
    for writer in writers:
        for _ in range(10):  # chunks of four entries: two end
            hub.accept(writer.next())

    def are_pruned(chunks: int) -> bool:
        logs = (layout.part(number).log for number in range(SHARDS))
        found = [pruned_files(log, writer.label) for log, writer in zip(logs, writers, strict=True)]
        return found == [chunks, chunks]

    until(lambda: are_pruned(2), "the chunks that ended are pruned")
    victim = hub.shard_pid(1)
    os.kill(victim, signal.SIGKILL)
    until(lambda: hub.shard_pid(1) != victim, "the shard is started again")
    until(lambda: hub.get("/readyz").status == 200, "the hub is ready again")
    for writer in writers:
        for _ in range(4):
            hub.accept(writer.next())
    until(lambda: are_pruned(3), "the next chunks are pruned")
    assert hub.admin("/tooling/retention").status == 200
    assert hub.stop() == 0
    report = fsck_sharded(root, processes=1)
    assert report.ok, str(report)
    with open_hub(root) as source:
        export_hub(source, place / "whole")
    assert verify_hub_export(place / "whole", hub.hub_id).manifest.labels == 3


def test_metrics_are_totals_over_all_shards_and_never_go_back(start_sharded: Start) -> None:
    hub = start_sharded()
    writers = [hub.writer_of(0), hub.writer_of(1)]
    for seq, writer in enumerate(writers, start=1):
        for _ in range(3 * seq):
            hub.accept(writer.next())
    tokens = 2 * (1 + SHARDS)  # each shard has a copy
    assert hub.metric("veen_submit_ok_total") == 9
    assert hub.metric("veen_stage_entries", stage="accepted") == 9 + tokens
    assert hub.submit(b"\xff").status == 400
    victim = hub.shard_pid(1)
    os.kill(victim, signal.SIGKILL)
    until(lambda: hub.shard_pid(1) != victim, "the shard is started again")
    assert hub.metric("veen_submit_ok_total") == 9
    hub.accept(writers[1].next())
    assert hub.metric("veen_submit_ok_total") == 10
    status = hub.status()
    assert status.identity.hub_id == hub.hub_id
    assert status.not_signing is None
    for _ in range(4):  # whichever shard answers
        again = hub.status()
        assert again.identity == status.identity
        assert again.control_label == status.control_label
        assert again.hub_ts >= status.hub_ts


def anchored(ledger: Path) -> Counter[Label]:
    """How often each label is in a ledger, whose hash chain is checked."""
    content = ledger.read_bytes()
    lines, offset, previous = list(cbor.split_sequence(content)), 0, GENESIS
    for line in lines:
        found = LedgerLine.decode(line)
        assert (found.offset, found.previous) == (offset, previous)
        offset, previous = offset + len(line), AnchorHash(H(line))
    return Counter(LedgerLine.decode(line).root.label for line in lines)


def test_labels_of_every_shard_are_anchored_once_also_after_one_was_killed(
    start_sharded: Start, place: Path
) -> None:
    ledger = place / "ledger"
    settings = (
        f"anchor: {{backend: file, path: {ledger}, every_sec: 0}}\n"
        "hub_log: {memories: {anchors: false}}\n"
        "checkpoints: {every_sec: 0}\n"
    )
    hub = start_sharded(settings=settings)
    control, now = hub.status().control_label, hub.status().hub_ts
    writers = [hub.writer_of(0), hub.writer_of(1)]
    labels = {writer.label for writer in writers}
    for writer in writers:
        hub.accept(writer.next())
    assert hub.admin("/tooling/checkpoint").status == 200
    made = hub.admin("/tooling/anchor").read(CheckpointsResponse).checkpoints
    assert {one.label_curr for one in made} == {control, *labels}
    assert anchored(ledger) == Counter([control, *labels])
    victim = hub.shard_pid(1)
    os.kill(victim, signal.SIGKILL)
    until(lambda: hub.shard_pid(1) != victim, "the shard is started again")
    until(lambda: hub.get("/readyz").status == 200, "the hub is ready again")
    for writer in writers:
        hub.accept(writer.next())
    later = UnixTime(now + 30)  # another request than before
    assert hub.admin("/tooling/checkpoint", at=later).status == 200
    made = hub.admin("/tooling/anchor", at=later).read(CheckpointsResponse).checkpoints
    assert {one.label_curr for one in made} == labels
    assert anchored(ledger) == Counter({control: 1, **dict.fromkeys(labels, 2)})
    ledger.unlink()
    ledger.mkdir()  # a ledger that cannot be written
    hub.accept(writers[1].next())
    assert hub.admin("/tooling/checkpoint", at=UnixTime(now + 40)).status == 200
    refused = hub.admin("/tooling/anchor", at=UnixTime(now + 40))
    assert (refused.status, refused.error.code) == (503, "E.UNAVAILABLE")
    assert hub.stop() == 0
    report = fsck_sharded(hub.root, processes=1)
    assert report.ok, str(report)
    with open_hub(hub.root) as source:
        for label in (control, *labels):
            assert source.of(label).read.anchored_upto(label) > 0


def test_the_proof_of_work_that_is_asked_for_follows_the_longest_queue_of_all_shards(
    start_sharded: Start,
) -> None:
    hub = start_sharded(settings="pow: {max_difficulty: 16}\nmax_waiting: 4\n")
    busy = [hub.writer_of(1) for _ in range(6)]
    assert hub.status().pow_difficulty == 0
    loads = [Load(hub, writer) for writer in busy]
    for load in loads:
        load.start()
    until(lambda: hub.status().pow_difficulty >= 4, "a message waits in shard 1")
    until(lambda: any(status != 503 for load in loads for status in load.refused), "it is asked for")
    victim = hub.shard_pid(1)
    os.kill(victim, signal.SIGKILL)
    until(lambda: hub.shard_pid(1) != victim, "the shard is started again")
    for load in loads:
        load.ended.set()
        load.join()
    until(lambda: hub.status().pow_difficulty == 0, "nothing waits")
