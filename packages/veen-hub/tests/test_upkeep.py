"""Upkeep: checkpoints, anchors and retention continue after failures."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from veen_core.checkpoint import Checkpoint
from veen_core.ids import Epoch, HubId, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.limits import Limits
from veen_core.profile import PROFILES
from veen_core.status import CheckpointsResponse, LabelRequest, RetentionResponse
from veen_hub.ops.anchors import AnchoredRoot, AnchorError, FileLedger
from veen_storage.read.entry_reader import EntryReader

from .conftest import StartHub
from .faults import SetPolicy
from .serving import RunningHub, SetClock, until

SMALL = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536, max_checkpoint_interval=4)


def root(number: int) -> AnchoredRoot:
    return AnchoredRoot(
        hub_id=HubId(bytes(32)),
        label=Label(bytes(32)),
        upto_seq=StreamSeq(number),
        mmr_root=MmrRoot(bytes([number]) * 32),
        epoch=Epoch(0),
        ts=UnixTime(number),
    )


def publish(path: Path, *numbers: int) -> list[bytes]:
    async def run() -> list[bytes]:
        ledger = FileLedger(path)
        return [await ledger.publish(root(number)) for number in numbers]

    return asyncio.run(run())


def holds(path: Path, number: int, reference: bytes) -> bool:
    return asyncio.run(FileLedger(path).verify(root(number), reference))


# --- the file ledger


def test_a_ledger_truncates_only_an_unfinished_last_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    references = publish(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    references += publish(path, 3)
    assert all(holds(path, number, ref) for number, ref in enumerate(references, start=1))


@pytest.mark.parametrize("line", [0, 2, 4])
def test_a_damaged_ledger_is_refused_and_left_as_it_is(tmp_path: Path, line: int) -> None:
    path = tmp_path / "ledger"
    publish(path, 1, 2, 3, 4, 5)
    size = path.stat().st_size // 5
    for damage in (0xFF, 0x9B, 0x00):
        data = bytearray(path.read_bytes())
        data[line * size] = damage
        path.write_bytes(data)
        with pytest.raises(AnchorError, match="damaged at byte"):
            publish(path, 6)
        assert path.read_bytes() == data


def test_a_file_that_is_no_ledger_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("Something that somebody wants to keep. " * 10)
    with pytest.raises(AnchorError, match=r"set anchor\.path to another one"):
        publish(path, 1)
    assert path.read_text().startswith("Something")


def test_two_hubs_may_share_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    async def both() -> list[bytes]:
        one, other = FileLedger(path), FileLedger(path)
        return [await (one, other)[number % 2].publish(root(number)) for number in range(1, 7)]

    references = asyncio.run(both())
    assert all(holds(path, number, ref) for number, ref in enumerate(references, start=1))


def test_a_line_that_a_full_disk_truncated_is_not_an_anchor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    (first,) = publish(path, 1)
    whole, pwrite = path.read_bytes(), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, line, offset: pwrite(fd, line[:-5], offset))
    with pytest.raises(AnchorError, match="could be written"):
        publish(path, 2)
    assert path.read_bytes() == whole
    monkeypatch.undo()
    (second,) = publish(path, 2)
    assert holds(path, 1, first)
    assert holds(path, 2, second)


# --- chores


class Scripted:
    """An anchor that does what the test says."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.published: list[AnchoredRoot] = []
        self.during = asyncio.Event()
        self.go_on: asyncio.Event | None = None

    async def publish(self, root: AnchoredRoot) -> bytes:
        if self.failures:
            raise self.failures.pop()
        self.published.append(root)
        if self.go_on is not None:
            self.during.set()
            await self.go_on.wait()
        return root.encode()

    async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
        return root.encode() == anchor_ref


@pytest.mark.parametrize("failure", [AnchorError("down"), RuntimeError("a bug")], ids=["down", "bug"])
def test_a_chore_that_fails_is_repeated(start_hub: StartHub, failure: Exception) -> None:
    anchor = Scripted()
    anchor.failures = [failure]
    hub = start_hub(anchor=anchor, anchor__every_sec=1, anchor__retry_sec=1)
    hub.accept(hub.writer().next())
    hub.admin("/tooling/checkpoint")
    until(lambda: anchor.published, "it is anchored after all")


def test_labels_whose_checkpoint_failed_are_not_forgotten(start_hub: StartHub) -> None:
    policy = SetPolicy()
    hub = start_hub(policy=policy)
    alice = hub.writer()
    hub.accept(alice.next())
    policy.says_stale = "the view is old"
    assert hub.admin("/tooling/checkpoint").status == 503
    policy.says_stale = None
    hub.clock.time += 1
    made = hub.admin("/tooling/checkpoint").read(CheckpointsResponse).checkpoints
    assert alice.label in {checkpoint.label_curr for checkpoint in made}


def test_a_hub_that_starts_with_a_stale_view_makes_checkpoints_once_the_view_is_fresh(
    start_hub: StartHub,
) -> None:
    policy = SetPolicy()
    policy.says_stale = "the authority stream was never folded"
    hub = start_hub(policy=policy)
    policy.says_stale = None
    alice = hub.writer()
    hub.accept(alice.next())
    made = hub.admin("/tooling/checkpoint").read(CheckpointsResponse).checkpoints
    assert alice.label in {checkpoint.label_curr for checkpoint in made}


def test_a_checkpoint_that_is_made_while_another_is_being_anchored_is_anchored_too(
    start_hub: StartHub,
) -> None:
    anchor = Scripted()
    hub = start_hub(anchor=anchor)
    alice = hub.writer()
    hub.accept(alice.next())
    hub.admin("/tooling/checkpoint")
    anchor.go_on = asyncio.Event()

    async def meanwhile() -> list[Checkpoint]:
        upkeep = hub.hub.upkeep
        anchoring = asyncio.create_task(upkeep.anchor(alice.label))
        await anchor.during.wait()
        assert anchor.go_on is not None
        await upkeep.checkpoint(alice.label)
        anchor.go_on.set()
        return await anchoring

    hub.accept(alice.next())
    (first,) = hub.run(meanwhile())
    assert first.upto_seq == 1
    hub.clock.time += 1
    again = hub.admin("/tooling/anchor", LabelRequest().encode()).read(CheckpointsResponse).checkpoints
    assert [c.upto_seq for c in again if c.label_curr == alice.label] == [2]


# --- retention


def test_a_streams_rule_reaches_its_labels_of_past_epochs(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(
        profile=PROFILES["rotating"],
        clock=clock,
        limits=SMALL,
        retention__default={"max_age_sec": 10},
        retention__streams={"orders": {"long_term": True}, "chatter": {"max_age_sec": 10}},
    )
    orders, chatter = hub.writer("alice"), hub.writer("bob", to="chatter")
    for _ in range(9):
        hub.accept(orders.next())
        hub.accept(chatter.next())
    assert hub.store.settle()
    clock.time += 7_200
    gone = hub.admin("/tooling/retention").read(RetentionResponse)
    assert (gone.chunks, gone.entries) == (2, 8)
    assert hub.store.settle()
    assert hub.store.read.readable_from(orders.label, StreamSeq(1)) == 1
    assert hub.store.read.readable_from(chatter.label, StreamSeq(1)) == 9


def test_a_policys_retention_replaces_only_the_default_rule(start_hub: StartHub) -> None:
    """LCLASS0 6.2: a hint selects the default window; what the configuration says of a stream counts."""
    clock, policy = SetClock(), SetPolicy()
    hub = start_hub(
        clock=clock, limits=SMALL, policy=policy, retention__streams={"orders": {"long_term": True}}
    )
    orders, chatter, quiet = hub.writer("alice"), hub.writer("bob", to="chatter"), hub.writer("bob", to="q")
    for _ in range(9):
        for writer in (orders, chatter, quiet):
            hub.accept(writer.next())
    assert hub.store.settle()
    clock.time += 100
    policy.says_retention = {orders.label: 10, chatter.label: 10, hub.hub.admission.control_label: 1}
    gone = hub.admin("/tooling/retention").read(RetentionResponse)
    assert (gone.chunks, gone.entries) == (2, 8)
    assert hub.store.settle()
    kept = [hub.store.read.readable_from(writer.label, StreamSeq(1)) for writer in (orders, chatter, quiet)]
    assert kept == [1, 9, 1]


# --- what it says of itself


def test_healthz_names_the_newest_entry_also_after_a_restart(start_hub: StartHub) -> None:
    hub: RunningHub = start_hub()
    alice = hub.writer()
    for _ in range(3):
        hub.clock.time += 1
        last = hub.accept(alice.next())
    before = hub.get("/healthz").body
    assert last.mmr_root.hex().encode() in before
    hub.stop()
    assert start_hub().get("/healthz").body == before


# --- the backlog of the last run


def test_labels_that_could_not_be_read_at_the_start_get_checkpoints_later(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = start_hub()
    alice = hub.writer()
    hub.accept(alice.next())
    hub.stop()
    failed, labels = threading.Event(), EntryReader.labels

    def fails_once(self: EntryReader, after: Label | None = None, limit: int = 1_000) -> list[Label]:
        if not failed.is_set():
            failed.set()
            raise OSError("the disk does not answer")
        return labels(self, after, limit)

    monkeypatch.setattr(EntryReader, "labels", fails_once)
    hub = start_hub()
    assert failed.wait(60)
    until(lambda: hub.admin("/tooling/checkpoint").status == 200, "the labels are read again")
    assert hub.store.read.latest_checkpoint(alice.label) is not None


def test_a_hub_starts_and_accepts_before_it_has_read_every_label(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 60,000 labels reading them takes seconds; their checkpoints wait for it, messages do not."""
    hub = start_hub()
    alice, bob = hub.writer("alice"), hub.writer("bob", to="invoices")
    hub.accept(alice.next())
    hub.accept(bob.next())
    hub.stop()
    may_read, labels = threading.Event(), EntryReader.labels

    def labels_later(self: EntryReader, after: Label | None = None, limit: int = 1_000) -> list[Label]:
        assert may_read.wait(60)
        return labels(self, after, limit)

    monkeypatch.setattr(EntryReader, "labels", labels_later)
    hub = start_hub()
    hub.accept(alice.next())
    may_read.set()
    hub.admin("/tooling/checkpoint")
    for writer in (alice, bob):
        head, last = hub.store.read.head(writer.label), hub.store.read.latest_checkpoint(writer.label)
        assert head is not None
        assert last is not None
        assert last.upto_seq == head.stream_seq
