"""The directory of a sharded hub: resharding changes no byte of a log, fences, the joined hub log, fsck."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from veen_core.hashing import H
from veen_core.hub_log import LabelHead
from veen_core.ids import Coid, Label, StreamSeq
from veen_core.tlog.tree_head import TreeHead
from veen_storage import DamageError, Layout, LockedError, MismatchError, StorageError, Store
from veen_storage.copies.export import export, export_hub, verify_export, verify_hub_export
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.fsck import fsck
from veen_storage.index.view_store import ViewStore
from veen_storage.shards.check import fsck_sharded, repair_sharded
from veen_storage.shards.clone import clone_sharded, fork_hub
from veen_storage.shards.fence import Fence, FencedError, PartStore, raise_fence
from veen_storage.shards.joined_hub_log import JoinedHubLog, JoinedUpTo, heads_from
from veen_storage.shards.reshard import log_digests, reshard
from veen_storage.shards.seen_hub_log import SeenHubLog, write_seen
from veen_storage.shards.sharded_layout import (
    CONTROL,
    ShardedLayout,
    is_sharded,
    owner_of,
    part_name,
    part_numbers,
    part_origin,
    read_shard_map,
)
from veen_storage.shards.sharded_source import open_hub, open_sharded

from . import sample
from .conftest import MakeStore
from .faulty_files import FaultyFiles, When
from .sample import CONTROL as CONTROL_LABEL
from .sample import ORIGIN, Unsynced, at, send
from .scripted_run import memory_folder

COID = Coid(H(b"attached"))
LABELS = [sample.label(f"stream {number}") for number in range(8)]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where nothing waits for the disk."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def hub(make_store: MakeStore, tmp_path: Path) -> Path:
    """A stopped hub with one shard: eight labels, a token, checkpoints, chunks that ended, a hub log."""
    store = make_store()
    for number, label in enumerate(LABELS):
        send(store, label, 3 + 4 * number)
    token = sample.token("bob")
    batch = store.batch(at(1))
    batch.authorize(token, token.encode(), CONTROL_LABEL)
    store.commit(batch)
    sample.hub_checkpoint(store, at(1))
    send(store, LABELS[0], 2, now=at(2))  # after the newest hub checkpoint
    store.attachments.put(COID, iter([b"attached"]))
    store.apply()
    store.close()
    return tmp_path / "data"


@contextmanager
def opened(root: Path) -> Iterator[tuple[dict[int, Store], JoinedHubLog]]:
    """The parts of a sharded hub and its joined hub log, as its processes have them."""
    layout = ShardedLayout(root)
    count = read_shard_map(layout).count
    with ExitStack() as stack:
        stores = {
            number: stack.enter_context(
                Store(layout.part(number).root, keys_directory=layout.keys, part=True, files=Unsynced())
            )
            for number in part_numbers(count)
        }
        joined = JoinedHubLog(layout.joined, stores[CONTROL].identity)
        stack.callback(joined.close)
        yield stores, joined


def join(root: Path, stores: dict[int, Store], joined: JoinedHubLog, now: int) -> None:
    """Join the heads of all parts, as the coordinator does."""
    shards = read_shard_map(ShardedLayout(root))
    heads: dict[Label, LabelHead] = {}
    parts: dict[str, JoinedUpTo] = {}
    for number, store in stores.items():
        batch = store.batch(at(now))
        batch.hub_checkpoint(part_origin(store.identity.hub_id, shards, number))
        store.commit(batch)
        name, size = part_name(number), store.hub_log.size
        before = joined.joined_upto(name)
        for head in heads_from(store.hub_log, before.size if before else 0, size):
            owner = CONTROL if head.label == CONTROL_LABEL else owner_of(head.label, shards.count)
            if owner == number and head.upto_seq > joined.newest_seq(head.label):
                heads[head.label] = head
        parts[name] = JoinedUpTo(size, store.hub_log.root_at(size))
    joined.extend(
        [heads[label] for label in sorted(heads)], ORIGIN, stores[CONTROL].sign_hub_log_head, at(now), parts
    )
    newest = joined.reader.checkpoint
    assert newest is not None
    joined.publish(newest)


def move(source: Path, shards: int, name: str) -> Path:
    """Reshard into a new directory next to the source."""
    target = source.with_name(name)
    assert reshard(source, target, shards, files=Unsynced()) is not None
    return target


def test_resharding_changes_no_byte_of_a_log(hub: Path) -> None:
    before = log_digests(hub)
    two = move(hub, 2, "two")
    assert is_sharded(two)
    assert log_digests(two) == before
    assert fsck_sharded(two, processes=1).ok, str(fsck_sharded(two, processes=1))
    with opened(two) as (stores, joined):
        for number, store in stores.items():
            if number != CONTROL:
                found = {label for label in store.read.all_labels() if label != CONTROL_LABEL}
                assert found == {label for label in LABELS if owner_of(label, 2) == number}
                assert store.batch(at(9)).view.cap(sample.token("bob").auth_ref) is not None
        store = stores[owner_of(LABELS[0], 2)]
        send(store, LABELS[0], 2, now=at(3))
        join(two, stores, joined, 3)
    assert fsck_sharded(two, processes=1).ok, str(fsck_sharded(two, processes=1))
    grown = log_digests(two)
    three = move(two, 3, "three")
    assert log_digests(three) == grown
    assert fsck_sharded(three, processes=1).ok
    with opened(three) as (stores, joined):
        join(three, stores, joined, 4)  # every head is reported again, and none is joined twice
        assert fsck_of_hub_log(joined)
    one = move(three, 1, "one")
    report = fsck(one, processes=1)
    assert report.ok, str(report)
    assert log_digests(one) == grown
    with Store(one) as store:
        assert store.read.head(LABELS[0]).stream_seq == 7  # type: ignore[union-attr]
        assert list(store.attachments.coids()) == [COID]
        assert not store.hub_log.moved


def fsck_of_hub_log(joined: JoinedHubLog) -> bool:
    newest = joined.reader.checkpoint
    return newest is not None and joined.reader.root_at(newest.head.size) == newest.head.root


def test_a_resharded_directory_cannot_be_started_again(hub: Path) -> None:
    two = move(hub, 2, "two")
    with pytest.raises(StorageError, match="no data directory any more"):
        Store(hub)
    with pytest.raises(StorageError, match="no data directory any more"):
        fsck(hub, processes=1)
    with pytest.raises(MismatchError, match="several shards") as refused:
        Store(two)
    assert "veen hub clone" in (refused.value.action or "")
    with pytest.raises(MismatchError, match="one part of a sharded hub"):
        Store(two / "parts" / "shard-0")


def test_a_crash_between_the_two_renames_is_finished_by_the_same_command(hub: Path) -> None:
    two = move(hub, 2, "two")
    (two / "VERSION").rename(two / "VERSION.next")  # as if the last rename had not happened
    with pytest.raises(StorageError):
        is_sharded(two)
    assert reshard(hub, two, 2) is None
    assert is_sharded(two)


def test_an_unfinished_target_is_not_taken_over_once_the_source_lives(hub: Path, tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    (two / "VERSION.next").write_text("left over")
    with pytest.raises(StorageError, match="not empty"):
        reshard(hub, two, 2)
    Store(hub).close()


def test_a_clone_of_a_sharded_hub_has_one_shard_every_byte_of_the_log_and_no_key(
    hub: Path, tmp_path: Path
) -> None:
    two, copy = move(hub, 2, "two"), tmp_path / "copy"
    with opened(two) as (stores, joined):
        send(stores[owner_of(LABELS[0], 2)], LABELS[0], 2, now=at(3))
        join(two, stores, joined, 3)
        send(stores[owner_of(LABELS[1], 2)], LABELS[1], 2, now=at(4))  # after the newest hub checkpoint
    cut = clone_sharded(two, copy, files=Unsynced())
    assert {each.label for each in cut.labels} == {*LABELS, CONTROL_LABEL}
    report = fsck(copy, processes=1)
    assert [fault.what for fault in report.faults] == []
    assert log_digests(copy) == log_digests(two)
    assert not (copy / "keys").exists()
    assert is_sharded(two)
    with pytest.raises(StorageError, match="not empty"):
        clone_sharded(two, copy)


def grown(hub: Path) -> Path:
    """Reshard, and append after it: one label before the newest hub checkpoint, one after it."""
    two = move(hub, 2, "two")
    with opened(two) as (stores, joined):
        send(stores[owner_of(LABELS[0], 2)], LABELS[0], 2, now=at(3))
        join(two, stores, joined, 3)
        send(stores[owner_of(LABELS[1], 2)], LABELS[1], 2, now=at(4))
    return two


@pytest.mark.parametrize("form", ["set", "chunks"])
def test_an_export_of_a_sharded_hub_is_that_of_its_clone(
    hub: Path, tmp_path: Path, form: Literal["set", "chunks"]
) -> None:
    two, copy = grown(hub), tmp_path / "copy"
    clone_sharded(two, copy, files=Unsynced())
    with open_sharded(two) as parts, Store(copy, keys_directory=two / "keys") as store:
        made = export_hub(parts, tmp_path / "parts", form=form)
        export_hub(store, tmp_path / "whole", form=form)
        assert made.labels == len(LABELS) + 1
        for label in (LABELS[0], LABELS[5]):
            export(parts.of(label), label, StreamSeq(1), StreamSeq(3), tmp_path / label.hex(), form=form)
            verify_export(tmp_path / label.hex(), made.hub_id)
    assert sample.tree(tmp_path / "parts") == sample.tree(tmp_path / "whole")
    verified = verify_hub_export(tmp_path / "parts", made.hub_id)
    assert verified.manifest == made


def test_a_fork_of_a_sharded_hub_keeps_every_label_as_evidence(hub: Path, tmp_path: Path) -> None:
    two, target = grown(hub), tmp_path / "fork"
    record = fork_hub(two, target, sample.signing_key("successor"), at(5), files=Unsynced())
    assert record.labels == len(LABELS) + 1
    assert record.old_sig is not None
    assert log_digests(Layout(target).ancestor(record.old_hub)) == log_digests(two)
    report = fsck(target, processes=1)
    assert report.ok, str(report)


def test_the_labels_of_a_sharded_hub_are_those_of_all_parts_in_order(hub: Path) -> None:
    with open_hub(hub) as whole:
        expected = whole.labels()
    assert len(expected) == len(LABELS) + 1
    with open_hub(move(hub, 2, "two")) as parts:
        assert parts.labels() == expected
        assert parts.labels(expected[3]) == expected[4:]
        assert [each.label for each in parts.cut().labels] == expected


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_clone_is_complete_or_no_data_directory(hub: Path, memory: Path, when: When) -> None:
    two, copy = move(hub, 2, "two"), memory / "copy"
    counting = FaultyFiles(10**9)
    clone_sharded(two, copy, files=counting)
    most = len(counting.operations)
    for number in sorted({*range(1, most, 31), *range(most - 5, most + 1)}):
        shutil.rmtree(copy, ignore_errors=True)
        with pytest.raises(OSError, match="Input/output error"):
            clone_sharded(two, copy, files=FaultyFiles(number, when))
        if (copy / "VERSION").exists():
            assert fsck(copy, level="quick", processes=1).ok
        else:
            assert not startable(copy)


def startable(root: Path) -> bool:
    """Whether a hub could be started on a folder."""
    try:
        is_sharded(root)
    except StorageError:
        return False
    return True


@pytest.mark.parametrize("when", ["before", "after"])
def test_whatever_fails_one_of_two_directories_can_be_started_or_the_move_is_finished(
    hub: Path, memory: Path, when: When
) -> None:
    digests, source, target = log_digests(hub), memory / "source", memory / "target"
    counting = FaultyFiles(10**9)
    shutil.copytree(hub, source)
    reshard(source, target, 2, files=counting)
    most = len(counting.operations)
    seen = set()
    for number in sorted({*range(1, most, 23), *range(most - 11, most + 1)}):
        shutil.rmtree(source)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(hub, source)
        files = FaultyFiles(number, when)
        with pytest.raises(OSError, match="Input/output error"):
            reshard(source, target, 2, files=files)
        state = (startable(source), startable(target))
        seen.add(state)
        assert state != (True, True), files.failed
        if state == (True, False):
            shutil.rmtree(target, ignore_errors=True)
        if not startable(target):
            reshard(source, target, 2, files=Unsynced())
        assert (startable(source), startable(target)) == (False, True), files.failed
        assert log_digests(target) == digests, files.failed
    assert {(True, False), (False, False)} <= seen


def test_an_older_target_is_not_finished_once_the_hub_was_moved_elsewhere(hub: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(move(hub, 2, "two"), older)
    (older / "VERSION").rename(older / "VERSION.next")  # as a crash before step 5 left it
    with pytest.raises(StorageError, match="no data directory any more"):
        reshard(hub, older, 2)
    assert not startable(older)


@pytest.mark.parametrize("before", [1, 2])
def test_the_source_is_locked_until_it_cannot_be_started_any_more(
    hub: Path, tmp_path: Path, before: int
) -> None:
    source = hub if before == 1 else move(hub, before, "source")

    class Watched(Unsynced):
        def rename(self, source_: Path, target: Path) -> None:
            if target == source / "VERSION.moved":
                with pytest.raises(LockedError):
                    DirectoryLock(Layout(source))
            super().rename(source_, target)

    assert reshard(source, tmp_path / "target", 3, files=Watched()) is not None


def test_a_running_hub_is_not_resharded(hub: Path, tmp_path: Path) -> None:
    with Store(hub), pytest.raises(LockedError):
        reshard(hub, tmp_path / "two", 2)


def test_only_the_newest_process_of_a_part_commits(hub: Path) -> None:
    layout = ShardedLayout(move(hub, 2, "two"))
    path, label = layout.fence(0), next(each for each in LABELS if owner_of(each, 2) == 0)
    fence = Fence(path, raise_fence(path, Unsynced()))
    root = layout.part(0).root
    store = PartStore(root, fence, keys_directory=layout.keys)
    with pytest.raises(LockedError):
        PartStore(root, Fence(path, 1), keys_directory=layout.keys)
    send(store, label, now=at(5))
    before = store.read.head(label)
    assert raise_fence(path, Unsynced()) == 2
    with pytest.raises(FencedError, match="belongs to process 2"):
        send(store, label, now=at(6))
    assert store.read.head(label) == before
    assert store.poisoned is not None
    store.close()


def test_a_process_that_is_replaced_during_a_commit_acknowledges_nothing(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = ShardedLayout(move(hub, 2, "two"))
    path, label = layout.fence(0), next(each for each in LABELS if owner_of(each, 2) == 0)
    store = PartStore(
        layout.part(0).root, Fence(path, raise_fence(path, Unsynced())), keys_directory=layout.keys
    )
    append = store._journal.append

    def replaced_meanwhile(items: list[object]) -> int:
        number = append(items)  # type: ignore[arg-type]
        raise_fence(path, Unsynced())
        return number

    monkeypatch.setattr(store._journal, "append", replaced_meanwhile)
    with pytest.raises(FencedError):
        send(store, label, now=at(5))
    store.close()


@pytest.mark.parametrize("step", ["entries", "checkpoint"])
def test_a_crash_around_the_commit_of_the_joined_hub_log_loses_nothing(hub: Path, step: str) -> None:
    two = move(hub, 2, "two")
    layout = ShardedLayout(two).joined
    with opened(two) as (stores, joined):
        send(stores[owner_of(LABELS[1], 2)], LABELS[1], now=at(4))
        join(two, stores, joined, 4)
        newest = joined.reader.checkpoint
    if step == "entries":  # written, and not committed
        with layout.hub_log_entries.open("ab") as file:
            file.write(b"\x00\x10half an entry")
    else:  # committed, and the file not replaced
        layout.hub_log_checkpoint.unlink()
    with opened(two) as (_stores, joined):
        assert joined.reader.checkpoint == newest
        assert layout.hub_log_checkpoint.read_bytes() == newest.encode()  # type: ignore[union-attr]
    assert fsck_sharded(two, processes=1).ok


def test_fsck_finds_what_the_joined_hub_log_does_not_cover(hub: Path) -> None:
    two = move(hub, 2, "two")
    with opened(two) as (stores, joined):
        send(stores[owner_of(LABELS[1], 2)], LABELS[1], now=at(3))
        label = next(each for each in LABELS if owner_of(each, 2) != owner_of(LABELS[1], 2))
        store = stores[owner_of(label, 2)]
        send(store, label, now=at(9))
        head = store.read.head(label)
        assert head is not None
        newer = LabelHead(label=label, upto_seq=head.stream_seq, mmr_root=head.mmr_root, hub_ts=head.hub_ts)
        joined.extend([newer], ORIGIN, stores[CONTROL].sign_hub_log_head, at(9), {})
    report = fsck_sharded(two, processes=1)
    assert any("does not cover" in fault.what for fault in report.faults), str(report)


def test_fsck_finds_a_head_that_is_not_the_labels(hub: Path) -> None:
    two = move(hub, 2, "two")
    with opened(two) as (stores, joined):
        store = stores[owner_of(LABELS[1], 2)]
        send(store, LABELS[1], now=at(4))
        head = store.read.head(LABELS[1])
        assert head is not None
        wrong = LabelHead(
            label=LABELS[1], upto_seq=head.stream_seq, mmr_root=type(head.mmr_root)(bytes(32)), hub_ts=at(4)
        )
        joined.extend([wrong], ORIGIN, stores[CONTROL].sign_hub_log_head, at(4), {})
    report = fsck_sharded(two, processes=1)
    assert any("is not that of the label's RECEIPT" in fault.what for fault in report.faults)


def test_fsck_finds_a_label_in_a_part_that_does_not_own_it(hub: Path) -> None:
    two = move(hub, 2, "two")
    label = next(each for each in LABELS if owner_of(each, 2) == 0)
    with opened(two) as (stores, _joined):
        send(stores[1], label, now=at(4))
    report = fsck_sharded(two, processes=1)
    assert any("belongs into shard-0" in fault.what for fault in report.faults)


def test_fsck_finds_that_the_joined_hub_log_alone_was_restored(hub: Path) -> None:
    two = move(hub, 2, "two")
    joined_folder, older = two / "joined", two.with_name("older")
    shutil.copytree(joined_folder, older)
    with opened(two) as (stores, joined):
        send(stores[owner_of(LABELS[1], 2)], LABELS[1], now=at(4))
        join(two, stores, joined, 5)
        size = joined.reader.size
        with ViewStore(stores[0].layout.view("hub")) as state:
            write_seen(state, SeenHubLog(size, joined.reader.root_at(size)))
    assert fsck_sharded(two, processes=1).ok
    shutil.rmtree(joined_folder)
    older.rename(joined_folder)
    report = fsck_sharded(two, processes=1)
    (fault,) = report.faults
    assert fault.what == f"does not continue the {size} entries that shard-0 has seen"


def test_fsck_names_the_part_that_is_damaged(hub: Path) -> None:
    two = move(hub, 2, "two")
    chunk = next((two / "parts" / "shard-1" / "log").glob("chunk-*.open"))
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    report = fsck_sharded(two, processes=1)
    assert any(fault.file.startswith("parts/shard-1/chunk-") for fault in report.faults), str(report)


def test_repair_rebuilds_every_index(hub: Path) -> None:
    two = move(hub, 2, "two")
    shutil.rmtree(two / "joined" / "index")
    (two / "joined" / "index").mkdir()
    shutil.rmtree(two / "parts" / "shard-0" / "index")
    with pytest.raises(DamageError), opened(two):
        pass
    repair_sharded(two)
    assert fsck_sharded(two, processes=1).ok
    with opened(two) as (stores, joined):
        join(two, stores, joined, 5)


def test_a_joined_hub_log_that_failed_to_commit_signs_nothing_more(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = move(hub, 2, "two")
    with opened(two) as (stores, joined):
        send(stores[owner_of(LABELS[1], 2)], LABELS[1], now=at(4))

        def fail(*_: object) -> None:
            raise StorageError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(joined._index, "write", fail)
            with pytest.raises(StorageError, match="no space left"):
                join(two, stores, joined, 4)
        with pytest.raises(StorageError, match="start the hub again"):
            join(two, stores, joined, 4)
    with opened(two) as (stores, joined):
        join(two, stores, joined, 5)
    assert fsck_sharded(two, processes=1).ok


def test_a_head_is_signed_for_the_hub(hub: Path) -> None:
    with Store(hub) as store:
        head = TreeHead(ORIGIN, 1, bytes(32))
        assert store.sign_hub_log_head(head, at(3)).head == head
