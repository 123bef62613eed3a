"""fsck of the hub log: entries, tree and notes agree with each other, with the labels and with the index."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core.hub_log import LabelHead
from veen_core.ids import MmrRoot, StreamSeq, UnixTime
from veen_core.tlog.note import Note, sign_note
from veen_core.tlog.tiles import decode_bundle, encode_bundle
from veen_core.tlog.tree import Tree, leaf_hash
from veen_core.tlog.tree_head import TreeHead, parse_signed_head
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError
from veen_storage.fsck import Fault, RefusedError, Report, fsck, hub_log_fold, repair
from veen_storage.store import Store, create

from .oracle import drop, index_read_here
from .sample import BORN, HUB_KEY, INVOICES, ORDERS, ORIGIN, SMALL, Unsynced, at, hub_checkpoint, label, send
from .test_fsck import the_fault
from .test_repair import rows

NEWS = label("news")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three labels, several hub checkpoints, the last but one published, one label moved since."""
    root = tmp_path_factory.mktemp("hub-log") / "data"
    create(root, HUB_KEY, BORN, limits=SMALL, files=Unsynced())
    with Store(root, background=False, files=Unsynced()) as store:
        for second in range(8):
            send(store, ORDERS, 3, now=at(second))
            if second % 2:
                send(store, INVOICES, now=at(second))
            if second == 7:
                send(store, NEWS, now=at(second))
            signed = hub_checkpoint(store, at(second))
            if second == 6:
                assert signed is not None
                store.publish(signed)
        send(store, ORDERS, now=at(9))
    Store(root, background=False).close()
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "data"))


def check(root: Path) -> Report:
    with index_read_here():
        return fsck(root, processes=1)


def test_the_unchanged_directory_is_clean(root: Path) -> None:
    report = check(root)
    assert report.ok, str(report)
    assert report.counters.hub_log_entries == 13
    assert "13 hub log entries" in str(report)
    assert report.notes == []


# --- a hub that lies: every signature is right, and the content is not


def rewrite(root: Path, change: Callable[[list[LabelHead]], list[LabelHead]]) -> None:
    """Replace the entries, and sign the tree over them as the hub would."""
    layout = Layout(root)
    old = [LabelHead.decode(entry) for entry in decode_bundle(layout.hub_log_entries.read_bytes())]
    entries, tree = [head.encode() for head in change(old)], Tree()
    for entry in entries:
        tree.append(leaf_hash(entry))
    layout.hub_log_entries.write_bytes(encode_bundle(entries))
    text = TreeHead(ORIGIN, tree.size, tree.root).text
    layout.hub_log_checkpoint.write_bytes(Note(text, (sign_note(HUB_KEY, ORIGIN, text),)).encode())
    layout.hub_log_published.unlink()
    shutil.rmtree(layout.index)
    repair_or_nothing(root)


def repair_or_nothing(root: Path) -> None:
    """Give the directory the index of its files, if repair accepts them."""
    with contextlib.suppress(RefusedError):
        repair(root)


def fault_of(root: Path, file: str) -> Fault:
    """Return the one fault about a file."""
    (fault,) = [fault for fault in check(root).faults if fault.file == file]
    return fault


def replaced(at_index: int, **fields: object) -> Callable[[list[LabelHead]], list[LabelHead]]:
    def change(heads: list[LabelHead]) -> list[LabelHead]:
        changed = dataclasses.replace(heads[at_index], **fields)  # type: ignore[arg-type]
        return [*heads[:at_index], changed, *heads[at_index + 1 :]]

    return change


LIES = {"another root": {"mmr_root": MmrRoot(bytes(32))}, "another time": {"hub_ts": UnixTime(BORN + 8)}}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_head_that_is_not_the_receipt_of_its_entry_is_found(root: Path, lie: dict[str, object]) -> None:
    heads = [LabelHead.decode(e) for e in decode_bundle((root / "hublog" / "entries").read_bytes())]
    rewrite(root, replaced(12, **lie))
    fault = fault_of(root, "hublog/entries")
    assert "root or time is not that of the label's RECEIPT" in fault.what
    assert (fault.label, fault.seq) == (heads[12].label, heads[12].upto_seq)
    with pytest.raises(RefusedError, match="hublog/entries"):
        repair(root)


def test_every_head_is_compared_and_not_only_the_newest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_log_fold, "ROWS_AT_ONCE", 2)
    whole = [LabelHead.decode(e) for e in decode_bundle((root / "hublog" / "entries").read_bytes())]
    kept = Path(shutil.copytree(root, root.with_name("kept")))
    for index, head in enumerate(whole):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        rewrite(root, replaced(index, mmr_root=MmrRoot(bytes(32))))
        fault = fault_of(root, "hublog/entries")
        assert (fault.label, fault.seq) == (head.label, head.upto_seq)


def test_a_label_that_goes_back_in_the_hub_log_is_found(root: Path) -> None:
    rewrite(root, lambda heads: [*heads, heads[0]])
    fault = fault_of(root, "hublog/entries")
    assert "does not grow" in fault.what
    assert fault.offset is not None


def test_a_head_beyond_the_end_of_its_label_names_the_label(root: Path) -> None:
    rewrite(root, lambda heads: [*heads, dataclasses.replace(heads[-1], upto_seq=StreamSeq(99))])
    fault = fault_of(root, "log")
    assert "has its head at entry 99" in fault.what
    assert fault.label is not None


def test_a_label_that_the_log_does_not_have_names_the_label(root: Path) -> None:
    hidden = label("hidden")
    rewrite(root, lambda heads: [*heads, dataclasses.replace(heads[0], label=hidden)])
    fault = fault_of(root, "log")
    assert "the label has no entries in log/, but the hub log has its head at" in fault.what
    assert fault.label == hidden


def test_a_label_that_the_hub_left_out_of_its_hub_log_is_named(root: Path) -> None:
    """Its entries are older than the newest head, so the hub had them when it signed."""
    rewrite(root, lambda heads: [head for head in heads if head.label != INVOICES])
    fault = fault_of(root, "hublog/entries")
    assert "does not cover entry 1 of label" in fault.what
    assert (fault.label, fault.seq) == (INVOICES, 1)


def test_a_label_that_the_hub_did_not_extend_in_time_is_named(root: Path) -> None:
    rewrite(root, lambda heads: [head for head in heads if head.label != ORDERS or head.upto_seq < 21])
    fault = fault_of(root, "hublog/entries")
    assert "does not cover entry 19 of label" in fault.what
    assert (fault.label, fault.seq) == (ORDERS, 19)


# --- lost labels


@pytest.mark.parametrize("with_index", [True, False], ids=["with its index", "without an index"])
def test_a_label_whose_files_are_gone_is_named(root: Path, with_index: bool) -> None:
    for path in (root / "log").glob(f"*{NEWS.hex()}*"):
        path.unlink()
    if not with_index:
        shutil.rmtree(root / "index")
    fault = fault_of(root, "log")
    assert fault.label == NEWS
    assert "has no entries in log/, but the hub log has its head at entry 1" in fault.what
    with pytest.raises(RefusedError, match="the hub log has its head"):
        repair(root)


def test_a_label_that_was_cut_back_is_named_even_without_an_index(root: Path) -> None:
    """Without the hub log, repair would take the rest of the label for all of it."""
    (path,) = (root / "log").glob(f"chunk-{INVOICES.hex()}-*.open")
    with Store(root, background=False) as store:
        last = store.read.entry(INVOICES, StreamSeq(4))
    path.write_bytes(path.read_bytes()[: -len(last.encode())])
    shutil.rmtree(root / "index")
    fault = fault_of(root, "log")
    assert fault.label == INVOICES
    assert "ends at entry 3, but the hub log has its head at entry 4" in fault.what
    with pytest.raises(RefusedError):
        repair(root)


# --- names, notes, rows


def test_a_file_that_does_not_belong_into_the_folder_is_a_fault(root: Path) -> None:
    (root / "hublog" / "notes.txt").write_text("x")
    (root / "hublog" / "published.tmp").write_text("x")
    report = check(root)
    assert the_fault(report).file == "hublog/notes.txt"
    assert report.notes == ["hublog/published.tmp is left over from an interrupted write and may be removed"]


def test_a_hub_checkpoint_of_an_earlier_size_is_a_fault(root: Path) -> None:
    """The entries after it could not be told from others that the hub signs later."""
    shutil.copy(root / "hublog" / "published", root / "hublog" / "checkpoint")
    report = check(root)
    assert the_fault(report).file == "hublog/entries"
    assert "neither index nor journal" in the_fault(report).what
    with pytest.raises(RefusedError):
        repair(root)
    with pytest.raises(DamageError, match="hublog/checkpoint"):
        Store(root)


def test_repair_rebuilds_the_rows_of_the_hub_log(root: Path) -> None:
    before = rows(root)
    shutil.rmtree(root / "index")
    repair(root)
    after = rows(root)
    for table in ("hub_nodes", "hub_bundles", "hub_heads", "hub_moved", "meta"):
        assert after[table] == before[table], table
    assert list(after["hub_moved"]) == [bytes(ORDERS)]


@pytest.mark.parametrize("applied", [False, True], ids=["nothing applied", "files written, index not"])
def test_repair_after_a_kill_keeps_extensions_that_only_the_journal_holds(
    root: Path, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(root, background=False)
    send(store, NEWS, now=at(20))
    hub_checkpoint(store, at(20))
    send(store, ORDERS, now=at(21))
    signed = hub_checkpoint(store, at(21))
    assert signed is not None
    store.publish(signed)
    if applied:
        monkeypatch.setattr(store._index, "write", no_write)
        with pytest.raises(OSError, match="no power"):
            store.apply()
    drop(store)
    report = check(root)
    assert report.ok, str(report)
    shutil.rmtree(root / "index")
    repair(root)
    report = check(root)
    assert report.ok, str(report)
    with Store(root, background=False) as again:
        assert again.hub_log.checkpoint == signed == again.hub_log.published
        assert again.hub_log.moved == 0
    assert parse_signed_head((root / "hublog" / "checkpoint").read_bytes()) == signed


def no_write(*_: object) -> None:
    raise OSError("no power")


def test_a_published_hub_checkpoint_that_nothing_accounts_for_is_a_fault_while_batches_wait(
    root: Path,
) -> None:
    store = Store(root, background=False)
    send(store, NEWS, now=at(20))
    signed = hub_checkpoint(store, at(20))
    drop(store)
    assert signed is not None
    for size, known in ((signed.head.size, True), (signed.head.size + 1, False)):
        text = dataclasses.replace(signed.head, size=size, root=signed.head.root).text
        note = Note(text, (sign_note(HUB_KEY, ORIGIN, text),))
        (root / "hublog" / "published").write_bytes(note.encode())
        report = check(root)
        assert report.ok == known
        if not known:
            assert "its newest entries are lost" in the_fault(report).what


def test_a_published_hub_checkpoint_is_no_fault_while_damage_hides_its_batch(root: Path) -> None:
    """The batch may be after the damage: only the damage of the journal is reported."""
    store = Store(root, background=False)
    send(store, NEWS, now=at(20))
    signed = hub_checkpoint(store, at(20))
    assert signed is not None
    store.publish(signed)
    drop(store)
    (segment,) = (root / "journal").glob("*.wal")
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    assert the_fault(check(root)).file == segment.name
