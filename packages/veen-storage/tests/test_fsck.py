"""fsck reports every damage with file, offset and remedy, and reports nothing else."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest

from veen_core.chunk import parse_chunk_name
from veen_core.entry import Entry, decode_frame, unframe
from veen_core.ids import Coid, Label, StreamSeq
from veen_core.keys import SigningKey
from veen_core.limits import Limits
from veen_core.msg import sign_msg
from veen_core.profile import PROFILES
from veen_core.receipt import Receipt, sign_receipt
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.chunks.pruned_chunk import read_pruned_chunk
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.disk.hub_keys import KeyFile
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry
from veen_storage.errors import LockedError, StorageError
from veen_storage.fsck import Fault, Report, fsck
from veen_storage.fsck.files.attachments import check_attachment
from veen_storage.index.lmdb_index import TABLES, Index
from veen_storage.store import Store, create

from .oracle import index_read_here
from .sample import (
    BORN,
    CONTROL,
    HUB_KEY,
    INVOICES,
    ORDERS,
    SMALL,
    Rate,
    at,
    authorize,
    checkpoint,
    ciphertext,
    compose,
    hub_checkpoint,
    label,
    send,
    signing_key,
    token,
)

NEW = label("new")
SIXTEEN = "\u0660" * 18 + "\u0661\u0666"
"""The number 16 in Arabic-Indic digits, which file names must not use."""


def fill(store: Store) -> None:
    """Write labels with several chunks, checkpoints, an anchor, a pruned chunk, an attachment, a hub log."""
    given = token(rate=Rate(per_sec=1, burst=1_000))
    authorize(store, given)
    authorize(store, token(who="bob"), at(1))
    for second in range(6):
        send(store, ORDERS, 5, now=at(second), auth_ref=given.auth_ref)
        send(store, INVOICES, 3, who="bob", now=at(second))
        if second == 2:
            checkpoint(store, INVOICES, at(second))
            hub_checkpoint(store, at(second))
    store.apply()
    batch = store.batch(at(60))
    batch.anchor(ORDERS, StreamSeq(16), b"where it was anchored")
    for decision in due(store.index, ORDERS, PruneRule(max_age_sec=0), at(60))[:1]:
        batch.prune(decision)
    store.commit(batch)
    store.apply()
    store.attachments.put(Coid(sha256(b"attached").digest()), [b"attached"])


def abandon(store: Store) -> None:
    """Close the files without applying anything, as a kill does."""
    store._journal.close()
    store._index.close()
    store._lock.release()


def make(root: Path, zstd_level: int | None = None) -> Path:
    create(root, HUB_KEY, BORN, limits=SMALL, zstd_level=zstd_level)
    store = Store(root, background=False)
    fill(store)
    store.close()
    Store(root, background=False).close()  # opening applies and empties the journal
    return root


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("plain") / "data")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("zstd") / "data", zstd_level=3)


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """A copy of a healthy directory, for the test to damage."""
    return Path(shutil.copytree(template, tmp_path / "data"))


def check(root: Path, level: str = "full", processes: int = 1, *, isolated: bool = False) -> Report:
    """Run fsck; without ``isolated`` it reads the index in this process, which is faster."""
    with nullcontext() if isolated else index_read_here():
        return fsck(root, level=level, processes=processes)  # type: ignore[arg-type]


def the_fault(report: Report) -> Fault:
    assert len(report.faults) == 1, str(report)
    return report.faults[0]


# --- what is right is clean


@pytest.mark.parametrize("level", ["full", "quick"])
@pytest.mark.parametrize("kind", ["template", "packed"])
def test_a_healthy_directory_is_clean(kind: str, level: str, request: pytest.FixtureRequest) -> None:
    report = check(request.getfixturevalue(kind), level)
    assert report.ok, str(report)
    seen = report.counters
    assert (seen.labels, seen.entries, seen.checkpoints, seen.attachments) == (3, 50, 6, 1)
    if level == "full":
        # a pruned entry and a token's have only the hub's; the hub checkpoint has one
        assert seen.signatures == 2 * 48 - 8 + 2 + 1
        assert report.notes == []


@pytest.mark.parametrize("kind", ["template", "packed"])
def test_two_processes_find_the_same_as_one(kind: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(kind)
    assert check(root, processes=2) == check(root)


THREADS = """
import threading
from veen_storage.fsck.workers import process_context
for _ in range(100):
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    assert process_context().get_start_method() == "fork"
go_on = threading.Event()
running = threading.Thread(target=go_on.wait)
running.start()
print(process_context().get_start_method())
go_on.set()
"""


def test_processes_are_forked_although_a_thread_has_just_ended_and_not_while_one_runs() -> None:
    """In a process of its own: this one has threads."""
    ran = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("forkserver\n", "")


def test_an_empty_directory_is_clean(tmp_path: Path) -> None:
    create(tmp_path / "data", HUB_KEY, BORN)
    report = check(tmp_path / "data")
    assert report.ok, str(report)


@pytest.mark.parametrize("zstd", [None, 3], ids=["plain", "zstd"])
def test_a_directory_whose_journal_is_not_applied_is_clean_and_its_entries_are_counted(
    zstd: int | None, tmp_path: Path
) -> None:
    root = make(tmp_path / "data", zstd)
    store = Store(root, background=False)
    send(store, ORDERS, 12, now=at(70))
    send(store, NEW, 9, now=at(71))
    checkpoint(store, NEW, at(71))
    abandon(store)
    for level in ("full", "quick"):
        report = check(root, level)
        assert report.ok, str(report)
        assert (report.counters.labels, report.counters.entries) == (4, 71)
    Store(root, background=False).close()
    assert check(root).ok


@pytest.mark.parametrize("zstd", [None, 3], ids=["plain", "zstd"])
@pytest.mark.parametrize("step", ["index", "finish"])
def test_an_interrupted_round_of_the_applier_is_clean(
    step: str, zstd: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "data", zstd)
    store = Store(root, background=False)
    send(store, ORDERS, 12, now=at(70))
    send(store, NEW, 20, now=at(71))
    batch = store.batch(at(72))
    batch.prune(due(store.index, INVOICES, PruneRule(max_age_sec=0), at(72))[0])
    batch.anchor(ORDERS, StreamSeq(16), b"anchored again")
    batch.anchor(INVOICES, StreamSeq(8), b"anchored for the first time")
    store.commit(batch)

    def stop(*_: object) -> None:
        raise OSError(5, "cut off")

    monkeypatch.setattr(
        store._index if step == "index" else store._applier, "write" if step == "index" else "finish", stop
    )
    with pytest.raises(OSError, match="cut off"):
        store.apply()
    abandon(store)
    report = check(root)
    assert report.ok, str(report)
    assert report.counters.entries == 82
    Store(root, background=False).close()
    assert check(root).ok


def test_a_torn_last_batch_is_a_note(root: Path) -> None:
    store = Store(root, background=False)
    send(store, ORDERS, 2, now=at(70))
    send(store, ORDERS, 2, now=at(71))
    abandon(store)
    segment = next((root / "journal").glob("journal-*.wal"))
    segment.write_bytes(segment.read_bytes()[:-10])
    report = check(root)
    assert report.ok
    assert report.counters.entries == 52
    assert any("never fully reached the disk" in note for note in report.notes)


def test_a_torn_write_to_a_chunk_that_the_journal_holds_is_a_note(root: Path) -> None:
    store = Store(root, background=False)
    send(store, ORDERS, 1, now=at(70))
    frame = store._queue.waiting[0].steps[-1].frame  # type: ignore[union-attr]
    abandon(store)
    growing = next((root / "log").glob(f"chunk-{ORDERS.hex()}-*.open"))
    growing.write_bytes(growing.read_bytes() + frame[:100])
    report = check(root)
    assert report.ok, str(report)
    assert any("part of an interrupted write" in note for note in report.notes)


def test_epochs_and_rotated_keys_are_clean(tmp_path: Path) -> None:
    root = tmp_path / "data"
    create(root, HUB_KEY, BORN, limits=SMALL, profile=PROFILES["rotating"])
    with Store(root, background=False, previous_label=lambda _label: NEW) as store:
        for second in range(0, 240, 30):
            send(store, ORDERS, 3, now=at(second))
        store.apply()
    report = check(root)
    assert report.ok, str(report)
    assert report.counters.checkpoints == 2


def test_a_directory_that_is_open_is_refused(root: Path) -> None:
    with Store(root, background=False), pytest.raises(LockedError, match="in use by process"):
        fsck(root)


def test_a_folder_that_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a VEEN data directory"):
        fsck(tmp_path)


def test_progress_is_reported(template: Path) -> None:
    told: list[int] = []
    fsck(template, progress=told.append, processes=1)
    assert told == sorted(told)
    assert told[-1] == 50


def test_leftovers_of_interrupted_writes_are_notes(root: Path) -> None:
    (root / "log" / "checkpoint-x.cbor.tmp").write_bytes(b"half")
    folder = next((root / "attachments").glob("??/??"))
    (folder / "0123.99-0.tmp").write_bytes(b"half")
    report = check(root)
    assert report.ok
    assert len(report.notes) == 2


# --- planted faults


def chunk_path(root: Path, of: Label, start: int) -> Path:
    names = [
        path
        for path in (root / "log").iterdir()
        if (n := parse_chunk_name(path.name))
        and n.label == of
        and n.start == start
        and n.kind in {"log", "open"}
    ]
    return names[0]


def frames(path: Path) -> list[bytes]:
    with ChunkFile(path, compressed=False) as chunk:
        return [frame for _offset, frame in chunk.walk()]


def offset_of(path: Path, position: int) -> int:
    """Return the offset of the entry at a position; later entries may be damaged."""
    data, offset = path.read_bytes(), 0
    for _ in range(position):
        offset += decode_frame(data[offset:]).size
    return offset


def change_frames(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(frames(path))))


def forge(frame: bytes, key: SigningKey = HUB_KEY, msg_bytes: bytes | None = None, **fields: object) -> bytes:
    """Return the frame with changed receipt fields, signed and hashed again."""
    entry = unframe(frame)
    unsigned = dataclasses.replace(entry.receipt, **fields)  # type: ignore[arg-type]
    receipt = sign_receipt(key, unsigned).encode()
    return Entry(entry.label, entry.stream_seq, msg_bytes or entry.msg_bytes, receipt, entry.flags).encode()


def at_two(change: Callable[[bytes], bytes]) -> Callable[[list[bytes]], list[bytes]]:
    return lambda held: [*held[:2], change(held[2]), *held[3:]]


def resign_badly(frame: bytes) -> bytes:
    msg = unframe(frame).msg
    return forge(frame, msg_bytes=dataclasses.replace(msg, sig=type(msg.sig)(bytes(64))).encode())


def other_profile(frame: bytes) -> bytes:
    binding = dataclasses.replace(unframe(frame).msg.binding, profile_id=PROFILES["bulk"].profile_id)
    msg = sign_msg(signing_key("bob"), binding, unframe(frame).msg.ciphertext)
    return forge(frame, msg_bytes=msg.encode(), leaf_hash=msg.leaf_hash)


def skipped_client_seq(frame: bytes) -> bytes:
    binding = unframe(frame).msg.binding
    binding = dataclasses.replace(binding, client_seq=type(binding.client_seq)(99))
    msg = sign_msg(signing_key("bob"), binding, ciphertext(b"skipped"))
    return forge(frame, msg_bytes=msg.encode(), leaf_hash=msg.leaf_hash)


def ahead_of_the_stream(frame: bytes) -> bytes:
    binding = dataclasses.replace(unframe(frame).msg.binding, prev_ack=StreamSeq(50))
    msg = sign_msg(signing_key("bob"), binding, unframe(frame).msg.ciphertext)
    return forge(frame, msg_bytes=msg.encode(), leaf_hash=msg.leaf_hash)


# INVOICES' chunks hold entries 1 to 8, 9 to 16 and 17 to 18. Faults are planted around entry 11.


@pytest.mark.parametrize(
    ("change", "position", "seq", "what"),
    [
        (lambda f: [*f[:2], *f[3:]], 2, 12, "is where entry 11 should be"),
        (lambda f: [*f[:2], f[3], f[2], *f[4:]], 2, 12, "is where entry 11 should be"),
        (lambda f: [*f[:3], f[2], *f[3:]], 3, 11, "is where entry 12 should be"),
        (at_two(lambda f: forge(f, mmr_root=type(unframe(f).receipt.mmr_root)(bytes(32)))), 2, 11, "I3"),
        (at_two(lambda f: forge(f, key=signing_key("other hub"))), 2, 11, "RECEIPT.hub_sig"),
        (at_two(resign_badly), 2, 11, "MSG.sig"),
        (at_two(lambda f: forge(f, hub_ts=at(1))), 2, 11, "H3: "),
        (at_two(other_profile), 2, 11, "I4"),
        (at_two(skipped_client_seq), 2, 11, "I9"),
        (at_two(ahead_of_the_stream), 2, 11, "I6"),
        (at_two(lambda f: f[:-1] + bytes([f[-1] ^ 1])), 2, 11, "entry_hash"),
        (lambda f: [*f[:2], b"\x02" + f[2][1:], *f[3:]], 2, 11, "entry_ver"),
    ],
    ids=[
        "dropped",
        "swapped",
        "duplicated",
        "forged root",
        "wrong hub key",
        "wrong signature",
        "time going back",
        "other profile",
        "skipped client_seq",
        "prev_ack ahead",
        "flipped bit",
        "other version",
    ],
)
def test_a_forged_entry_is_reported_with_file_offset_and_entry(
    root: Path, change: Callable[[list[bytes]], list[bytes]], position: int, seq: int, what: str
) -> None:
    path = chunk_path(root, INVOICES, 9)
    change_frames(path, change)
    report = check(root)
    found = [fault for fault in report.faults if what in fault.what]
    assert found, str(report)
    where = (path.name, offset_of(path, position), INVOICES, seq)
    assert (found[0].file, found[0].offset, found[0].label, found[0].seq) == where
    assert "restore" in found[0].remedy


def test_a_truncated_chunk_is_found_where_it_ends(root: Path) -> None:
    path = chunk_path(root, INVOICES, 9)
    path.write_bytes(path.read_bytes()[:-7])
    fault = the_fault(check(root))
    assert (fault.file, fault.offset, fault.seq) == (path.name, offset_of(path, 7), 16)


def test_a_sealed_chunk_that_lacks_its_last_entry_is_found(root: Path) -> None:
    path = chunk_path(root, INVOICES, 9)
    end = offset_of(path, 7)
    path.write_bytes(path.read_bytes()[:end])
    fault = the_fault(check(root))
    assert (fault.file, fault.offset, fault.seq) == (path.name, end, 16)
    assert "ends after entry 15" in fault.what


def test_a_growing_chunk_that_lost_entries_must_be_restored_not_repaired(root: Path) -> None:
    path = chunk_path(root, INVOICES, 17)
    path.write_bytes(path.read_bytes()[: offset_of(path, 1)])
    report = check(root)
    fault = the_fault(report)
    assert (fault.label, fault.seq) == (INVOICES, 18)
    assert "entries 18 to 18 are in the index, but in no file" in fault.what
    assert "restore" in fault.remedy


def test_a_missing_chunk_is_named_and_the_next_chunk_is_still_checked(root: Path) -> None:
    gone, after = chunk_path(root, INVOICES, 9), chunk_path(root, INVOICES, 17)
    gone.unlink()
    change_frames(after, lambda f: [f[0], resign_badly(f[1])])
    report = check(root)
    assert [(f.file, f.seq) for f in report.faults] == [(gone.name, 9), (after.name, 18)]
    assert any(f"label {INVOICES.hex()} is damaged" in note for note in report.notes)


def test_a_missing_label_is_found(root: Path) -> None:
    for path in (root / "log").glob(f"*{INVOICES.hex()}*"):
        path.unlink()
    report = check(root)
    assert (the_fault(report).file, the_fault(report).label) == ("log", INVOICES)
    assert not any("repair" in f.remedy for f in report.faults if f.label == INVOICES)


def test_a_chunk_that_overlaps_others_is_found(root: Path) -> None:
    path = chunk_path(root, INVOICES, 17)
    stray = path.with_name(path.name.replace("-00000000000000000017", "-00000000000000000012"))
    stray.write_bytes(path.read_bytes())
    report = check(root)
    assert (report.faults[0].file, "overlaps" in report.faults[0].what) == (stray.name, True)


def test_a_chunk_under_another_labels_name_is_found(root: Path) -> None:
    path = chunk_path(root, INVOICES, 17)
    stray = path.with_name(path.name.replace(INVOICES.hex(), NEW.hex()).replace("017.open", "001.open"))
    stray.write_bytes(path.read_bytes())
    report = check(root)
    assert any(f.file == stray.name and "the entry has label" in f.what for f in report.faults)


def test_a_chunk_that_ends_too_early_is_found(root: Path) -> None:
    path = chunk_path(root, INVOICES, 17)
    held = frames(path)
    path.write_bytes(held[0])
    (root / "log" / path.name.replace("017.open", "018.open")).write_bytes(held[1])
    report = check(root)
    assert any(f.seq == 18 and "begins a new chunk too early" in f.what for f in report.faults)


@pytest.mark.parametrize("kind", ["summary", "peaks", "checkpoint", "checkpoint-index", "anchor"])
@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_a_summary_peaks_checkpoint_or_anchor_file_that_is_missing_or_changed_is_found(
    root: Path, kind: str, harm: str
) -> None:
    of = ORDERS if kind == "anchor" else INVOICES
    names = {
        "summary": f"chunk-{of.hex()}-*.summary",
        "checkpoint-index": f"checkpoint-index-{of.hex()}.cbor",
        "checkpoint": f"checkpoint-{of.hex()}-*8.cbor",
    }
    path = sorted((root / "log").glob(names.get(kind, f"{kind}-{of.hex()}-*.cbor")))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.unlink() if harm == "missing" else path.write_bytes(data)
    report = check(root)
    if (kind, harm) == ("anchor", "missing"):  # only the index knows that there was one
        assert "table anchors" in the_fault(report).what
    else:
        assert report.faults[0].file == path.name, str(report)
    repairable = kind in {"summary", "peaks", "checkpoint-index"} or (kind, harm) == ("anchor", "missing")
    assert ("repair" in report.faults[0].remedy) == repairable


@pytest.mark.parametrize("harm", ["missing", "shorter", "longer", "changed"])
def test_a_checkpoint_binding_without_exactly_one_line_per_checkpoint_is_found(root: Path, harm: str) -> None:
    path = root / "checkpoint-binding.cbor"
    data = path.read_bytes()
    line = len(data) // 6
    changed = {
        "shorter": data[:-line],
        "longer": data + data[:line],
        "changed": data[:70] + b"\x00" + data[71:],
    }
    path.unlink() if harm == "missing" else path.write_bytes(changed[harm])
    report = check(root)
    assert report.faults
    assert {fault.file for fault in report.faults} == {path.name}


def test_a_checkpoint_beyond_the_last_entry_is_found(root: Path) -> None:
    path = next((root / "log").glob(f"checkpoint-{INVOICES.hex()}-*8.cbor"))
    stray = path.with_name(path.name.replace("008.cbor", "077.cbor"))
    stray.write_bytes(path.read_bytes())
    assert the_fault(check(root)).file == stray.name


def test_a_pruned_chunk_that_does_not_match_its_summary_is_found(root: Path) -> None:
    path = next((root / "log").glob("*.pruned"))
    data = bytearray(path.read_bytes())
    at_ = data.rindex(b"\x02\x58\x20") + 10  # in the entry hash of the last entry
    data[at_] ^= 1
    path.write_bytes(data)
    report = check(root)
    assert any(f.file.endswith(".summary") for f in report.faults), str(report)


def test_a_fault_in_a_pruned_chunk_names_its_offset(root: Path) -> None:
    path = next((root / "log").glob("*.pruned"))
    data, (_head, kept) = path.read_bytes(), read_pruned_chunk(path)
    for place, entry in kept:
        broken = bytearray(data)
        broken[data.index(entry.receipt.hub_sig)] ^= 1
        path.write_bytes(broken)
        fault = the_fault(check(root))
        assert (fault.file, fault.offset, fault.label) == (path.name, place, ORDERS)
        assert fault.seq == entry.receipt.stream_seq


def test_the_fault_of_a_damaged_pruned_chunk_has_an_offset_at_or_before_the_damage(root: Path) -> None:
    path = next((root / "log").glob("*.pruned"))
    data = path.read_bytes()
    for at_ in range(0, len(data), len(data) // 25):
        path.write_bytes(data[:at_] + bytes([data[at_] ^ 0x10]) + data[at_ + 1 :])
        report = check(root)
        faults = [fault for fault in report.faults if fault.file == path.name]
        others = [fault for fault in report.faults if fault.file.endswith(".summary")]
        assert faults or others, f"byte {at_}: {report}"
        for fault in faults:
            assert fault.label == ORDERS
            assert fault.offset is not None, str(fault)
            assert 0 <= fault.offset <= at_ or "entries" in fault.what, f"byte {at_}: {fault}"


def test_a_derived_file_that_was_changed_is_a_fault_at_the_byte_that_differs(root: Path) -> None:
    path = next((root / "log").glob("*.summary"))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert the_fault(check(root)).offset == len(data) - 5


def test_an_attachment_whose_content_does_not_match_its_name_is_found_by_the_full_level(root: Path) -> None:
    path = next(p for p in (root / "attachments").rglob("*") if p.is_file())
    path.write_bytes(b"Attached")
    assert the_fault(check(root)).file == f"attachments/{path.name}"
    quick = check(root, "quick")
    assert quick.ok
    assert any("attachments were not read" in note for note in quick.notes)


def test_an_unknown_file_in_the_log_is_found(root: Path) -> None:
    (root / "log" / "notes.txt").write_text("mine")
    fault = the_fault(check(root))
    assert (fault.file, fault.remedy) == ("notes.txt", "move it out of the data directory")


@pytest.mark.parametrize(
    "name",
    [
        f"anchor-{ORDERS.hex()}-{2**64:020d}.cbor",
        f"chunk-{ORDERS.hex()}-{2**64:020d}.open",
        f"checkpoint-{ORDERS.hex()}-{SIXTEEN}.cbor",
        f"chunk-{ORDERS.hex()}-{9:020d}-{15:020d}.log",
        f"chunk-{ORDERS.hex()}-{9:020d}-{17:020d}.log",
        f"chunk-{ORDERS.hex()}-{1:020d}-{7:020d}.pruned",
    ],
    ids=["beyond-u64", "chunk-beyond-u64", "other-digits", "ends-earlier", "ends-later", "pruned-twice"],
)
def test_a_file_with_an_almost_valid_name_is_the_only_fault(root: Path, name: str) -> None:
    (root / "log" / name).write_bytes(b"")
    fault = the_fault(check(root))
    assert (fault.file, fault.remedy) == (name, "move it out of the data directory")


def test_an_unreadable_file_is_a_fault_and_does_not_end_the_check(template: Path, tmp_path: Path) -> None:
    """A folder in place of the file simulates a bad sector: the operating system refuses to read it."""
    send_to = Path(shutil.copytree(template, tmp_path / "pending"))
    store = Store(send_to, background=False)
    send(store, ORDERS, 2, now=at(90))
    abandon(store)
    spared = ("lock", "data.mdb", "lock.mdb")
    names = [path.relative_to(send_to) for path in sorted(send_to.rglob("*")) if path.is_file()]
    names = [name for name in names if name.name not in spared and name.parts[0] != "attachments"]
    assert {name.parts[0] for name in names} >= {"log", "keys", "journal", "registry.cbor", "VERSION"}
    for number, name in enumerate(names):
        root = Path(shutil.copytree(send_to, tmp_path / str(number)))
        (root / name).unlink()
        (root / name).mkdir()
        found = [fault for fault in check(root).faults if name.name in fault.file or fault.file in str(name)]
        assert any("directory" in fault.what for fault in found), name
        shutil.rmtree(root)


@pytest.mark.parametrize("level", ["full", "quick"])
def test_a_folder_with_the_name_of_an_attachment_is_reported_as_a_folder(
    root: Path, level: Literal["full", "quick"]
) -> None:
    path = next(p for p in (root / "attachments").rglob("*") if p.is_file())
    path.unlink()
    path.mkdir()
    told = [fault for fault in fsck(root, level=level, processes=1).faults if "is a folder" in fault.what]
    assert [fault.file for fault in told] == [str(path.relative_to(root))]


def test_an_unreadable_attachment_is_a_fault(tmp_path: Path) -> None:
    _size, fault = check_attachment(tmp_path, 1_000_000, content=True)
    assert fault is not None
    assert "cannot be read" in fault.what


def test_a_changed_limit_in_the_registry_is_found(root: Path) -> None:
    path = root / "registry.cbor"
    held = Registry.decode(path.read_bytes())
    edited = dataclasses.replace(held, limits=dataclasses.replace(SMALL, max_checkpoint_interval=16))
    path.write_bytes(edited.encode())
    report = check(root)
    assert report.faults[0].file == path.name
    assert any("may not be the original" in note for note in report.notes)
    assert any("(core §4.8.2)" in fault.what for fault in report.faults), "chunks roll by the true limit"


def test_a_key_that_others_can_read_and_one_that_is_not_the_hubs_are_found(root: Path) -> None:
    path = next((root / "keys").iterdir())
    path.chmod(0o644)
    assert "mode 0644" in the_fault(check(root)).what
    path.write_bytes(KeyFile(hub_pk=signing_key("x").public, seed=signing_key("x").seed).encode())  # type: ignore[arg-type]
    path.chmod(0o600)
    assert the_fault(check(root)).file == path.name


@pytest.mark.parametrize("name", ["hub-identity.sig", "hub-key-map.cbor"])
def test_artifacts_that_do_not_match_the_identity_are_found(root: Path, name: str) -> None:
    data = bytearray((root / name).read_bytes())
    data[-1] ^= 1
    (root / name).write_bytes(data)
    fault = the_fault(check(root))
    assert (fault.file, fault.remedy) == (name, "run `veen hub repair`")


def test_a_damaged_journal_is_found_where_it_is(root: Path) -> None:
    store = Store(root, background=False)
    send(store, ORDERS, 2, now=at(70))
    second = store._journal._size
    send(store, ORDERS, 2, now=at(71))
    send(store, ORDERS, 2, now=at(72))
    abandon(store)
    path = next((root / "journal").glob("journal-*.wal"))
    data = bytearray(path.read_bytes())
    data[second + 200] ^= 1
    path.write_bytes(data)
    fault = the_fault(check(root))
    assert (fault.file, fault.offset) == (path.name, second)


def test_a_forged_entry_that_only_the_journal_holds_is_found(root: Path) -> None:
    store = Store(root, background=False)
    batch = store.batch(at(70))
    msg = dataclasses.replace(compose(batch, ORDERS), sig=Receipt.__dataclass_fields__["hub_sig"].default)
    batch.add(msg, msg.encode(), msg.leaf_hash)
    store.commit(batch)
    abandon(store)
    fault = the_fault(check(root))
    assert fault.file.startswith("journal-")
    assert (fault.label, fault.seq) == (ORDERS, 31)
    assert "MSG.sig" in fault.what


def test_the_quick_level_notes_that_it_skips_old_signatures_and_the_full_level_verifies_them(
    tmp_path: Path,
) -> None:
    root = make(tmp_path / "data")
    change_frames(chunk_path(root, INVOICES, 9), at_two(resign_badly))
    # only MSG.sig is wrong, but it is under the entry hash: summary and roots see it too
    quick, full = check(root, "quick"), check(root)
    assert not any("MSG.sig" in fault.what for fault in quick.faults)
    assert any("last 256 entries" in note for note in quick.notes)
    assert any("MSG.sig" in fault.what for fault in full.faults)


def test_every_fault_is_reported_not_only_the_first(root: Path) -> None:
    change_frames(chunk_path(root, INVOICES, 1), at_two(resign_badly))
    change_frames(chunk_path(root, INVOICES, 9), at_two(lambda f: forge(f, key=signing_key("x"))))
    change_frames(chunk_path(root, ORDERS, 17), at_two(resign_badly))
    next((root / "log").glob(f"peaks-{CONTROL.hex()}*"), root / "hub-key-map.cbor").write_bytes(b"\xa0")
    report = check(root)
    signatures = {(f.label, f.seq) for f in report.faults if "sig" in f.what}
    assert signatures == {(INVOICES, 3), (INVOICES, 11), (ORDERS, 19)}
    assert any(f.file == "hub-key-map.cbor" for f in report.faults)
    assert str(report).count("fault: ") == len(report.faults)


def test_a_token_that_is_authorized_twice_is_found(root: Path) -> None:
    with Store(root, background=False) as store:
        authorize(store, token(who="bob"), at(80))
        store.apply()
    fault = next(f for f in check(root).faults)
    assert (fault.label, fault.seq) == (CONTROL, 3)
    assert fault.what.startswith("H5: ")


# --- the index


def change_index(root: Path, change: Callable[..., None]) -> None:
    index = Index(Layout(root).index)
    index.write(change)
    index.close()


@pytest.mark.parametrize("harm", ["deleted", "changed", "added"])
@pytest.mark.parametrize("table", [table for table in TABLES if table != "attachments"])
def test_a_row_of_the_index_that_does_not_follow_from_the_log_is_found(
    root: Path, table: str, harm: str
) -> None:
    def change(txn: object) -> None:
        rows = [row for row in txn.scan(table, b"") if row[0] != b"finishing"]  # type: ignore[attr-defined]
        assert rows, f"the template has no {table}"
        key, value = rows[-1]
        if harm == "deleted":
            txn.delete(table, key)  # type: ignore[attr-defined]
        elif harm == "changed":
            txn.put(table, key, bytes([*value[:-1], value[-1] ^ 1]) if value else b"x")  # type: ignore[attr-defined]
        else:
            txn.put(table, key[:-1] + bytes([key[-1] ^ 0x80]), value)  # type: ignore[attr-defined]

    change_index(root, change)
    report = check(root)
    assert not report.ok
    assert {fault.file for fault in report.faults} == {"index/data.mdb"}, str(report)
    assert any(f"table {table}" in f.what or "no file holds it" in f.what for f in report.faults), str(report)


def test_a_deleted_index_is_found_and_repair_is_the_remedy(root: Path) -> None:
    shutil.rmtree(root / "index")
    fault = the_fault(check(root))
    assert (fault.file, fault.remedy) == ("index/data.mdb", "run `veen hub repair`")


def test_an_index_that_crashes_its_reader_is_a_fault_and_does_not_end_the_check(root: Path) -> None:
    path = root / "index" / "data.mdb"
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):  # all but the two meta pages: pointers into nowhere
        data[page * 4096 + 10 : (page + 1) * 4096] = b"\xff" * 4086
    path.write_bytes(data)
    report = check(root, isolated=True)
    assert {(f.file, f.remedy) for f in report.faults} == {("index/data.mdb", "run `veen hub repair`")}
    assert report.counters.entries == 50


def test_an_index_of_another_hub_is_found(root: Path, tmp_path: Path) -> None:
    create(tmp_path / "other", signing_key("other hub"), BORN, limits=Limits())
    shutil.rmtree(root / "index")
    shutil.copytree(tmp_path / "other" / "index", root / "index")
    report = check(root)
    assert any("table meta" in f.what for f in report.faults)
    assert any("table labels" in f.what for f in report.faults)
