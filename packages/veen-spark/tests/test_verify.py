"""Verification finds every planted fault at its position and accepts every valid log."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core import mmr
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.chunk import chunk_name, parse_chunk_name
from veen_core.entry import Entry, split_frames
from veen_core.errors import DecodeError
from veen_core.export import Manifest, PrunedRange
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, StreamSeq, UnixTime
from veen_core.receipt import sign_receipt
from veen_spark.verify import VerificationReport, segment_verifier, verify
from veen_spark.verify.pipeline import run_pipeline
from veen_spark.verify.subtrees import Tiles

from .logs import Hub, files_of, lone_entry, signing_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = pytest.mark.parametrize("size", [100_000, 1_500], ids=["chunk by chunk", "cut"])


def here(task: Callable[[list[Any]], list[Any]], work: Sequence[list[Any]]) -> list[Any]:
    """Run the pipeline's tasks in this process; pickle arguments and results as Spark does."""
    return [
        pickle.loads(pickle.dumps(done)) for piece in work for done in task(pickle.loads(pickle.dumps(piece)))
    ]


def check(*paths: Path, size: int = 100_000, **how: Any) -> VerificationReport:
    return run_pipeline(here, [str(path) for path in paths], max_partition_bytes=size, **how)


@pytest.fixture
def orders(hub: Hub) -> Hub:
    for n in range(3):
        hub.send("orders", 10, who=("alice", "bob")[n % 2], cheap=True)
    return hub


@pytest.fixture
def chunks(orders: Hub, tmp_path: Path) -> Path:
    orders.export("orders", tmp_path / "chunks", form="chunks")
    return tmp_path / "chunks"


# --- valid logs


@SIZES
@pytest.mark.parametrize("form", ["set", "chunks", "clone"])
def test_a_valid_log_verifies_in_every_form_and_however_it_is_split(
    form: Any, size: int, orders: Hub, tmp_path: Path
) -> None:
    orders.authorize()
    place = tmp_path / "place"
    if form == "clone":
        orders.clone(place)
    else:
        orders.export("orders", place, form=form)
    report = check(place, size=size, pinned=[HubId(orders.hub_id)])
    assert report.ok, report.as_object()
    assert report.hubs == {orders.hub_id: True}
    row = next(row for row in report.labels if row.label == orders.label("orders"))
    head = orders.store.read.head(orders.label("orders"))
    assert head is not None
    assert (row.from_seq, row.to_seq, row.root) == (1, 30, head.mmr_root)
    assert row.entries == 30


@SIZES
@pytest.mark.parametrize("form", ["set", "chunks"])
def test_a_range_verifies_from_the_peaks_before_it(form: Any, size: int, orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "export", form=form, from_seq=6, to_seq=27)
    report = check(tmp_path / "export", size=size)
    assert report.ok, report.as_object()
    assert [(row.from_seq, row.to_seq, row.entries) for row in report.labels] == [(6, 27, 22)]


@SIZES
def test_a_log_with_rotated_keys_and_pruned_entries_verifies(size: int, orders: Hub, tmp_path: Path) -> None:
    orders.rotate()
    orders.send("orders", 12, cheap=True)
    assert orders.prune("orders", max_bytes=5_000) > 0
    orders.export("orders", tmp_path / "set")
    for place in (orders.clone(tmp_path / "clone"), tmp_path / "set"):
        report = check(place, size=size, pinned=[HubId(orders.hub_id)])
        assert report.ok, report.as_object()
        assert report.labels[0].pruned > 0
        assert report.labels[0].entries == 42


def test_logs_of_two_hubs_are_verified_with_their_own_keys(
    make_hub: Callable[..., Hub], tmp_path: Path
) -> None:
    hubs = [make_hub(name, key=name) for name in ("one", "two")]
    for hub in hubs:
        hub.send("orders", 10, cheap=True)
        hub.clone(tmp_path / "clones" / hub.root.name)
    report = check(tmp_path / "clones")
    assert report.ok
    assert report.hubs == {hub.hub_id: False for hub in hubs}
    refused = check(tmp_path / "clones", pinned=[HubId(hubs[0].hub_id)])
    assert [row.hub_id for row in refused.faults] == [hubs[1].hub_id]
    assert "not pinned" in str(refused.as_object())


def test_an_empty_log_verifies(hub: Hub, tmp_path: Path) -> None:
    report = check(hub.clone(tmp_path / "clone"))
    assert report.ok
    assert report.labels == ()


def test_compressed_chunks_and_their_summaries_verify(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    hub = make_hub(zstd_level=1)
    hub.send("orders", 30, cheap=True)
    assert check(hub.clone(tmp_path / "clone")).ok


@pytest.mark.parametrize("start", [0, 1, 5, 8, 13])
def test_subtrees_are_the_fewest_and_give_the_peaks(start: int) -> None:
    leaves = [bytes([n]) * 32 for n in range(40)]
    for end in range(start, 40):
        tiles, tree, whole = Tiles(start), mmr.Mmr(), mmr.Mmr()
        for leaf in leaves[:start]:
            tree.add(leaf)
        for leaf in leaves[:end]:
            whole.add(leaf)
        for leaf in leaves[start:end]:
            tiles.add(leaf)
        for height, node in tiles.tiles:
            tree.append_subtree(height, node)
        assert tree == whole
        assert [height for height, _ in tiles.tiles] == [height for height, _ in mmr.subtrees(start, end)]


# --- planted faults: each changes entry 12, the fourth of the second chunk


def entries_of(path: Path) -> list[Entry]:
    return list(split_frames(path.read_bytes()))


def rewrite(path: Path, entries: Sequence[Entry]) -> None:
    path.write_bytes(b"".join(entry.encode() for entry in entries))


def flipped_bit(path: Path, entries: list[Entry]) -> None:
    content = bytearray(path.read_bytes())
    content[sum(len(entry.encode()) for entry in entries[:3]) + 300] ^= 4
    path.write_bytes(content)


def dropped(path: Path, entries: list[Entry]) -> None:
    rewrite(path, entries[:3] + entries[4:])


def swapped(path: Path, entries: list[Entry]) -> None:
    rewrite(path, [*entries[:3], entries[4], entries[3], *entries[5:]])


def duplicated(path: Path, entries: list[Entry]) -> None:
    rewrite(path, [*entries[:3], entries[2], *entries[3:]])


def forged_message(path: Path, entries: list[Entry]) -> None:
    """Put another MSG under the receipt of entry 12."""
    forged = dataclasses.replace(entries[3], msg_bytes=entries[5].msg_bytes)
    rewrite(path, [*entries[:3], forged, *entries[4:]])


def forged_signature(path: Path, entries: list[Entry]) -> None:
    wire = entries[3].msg_bytes[:-64] + bytes(64)
    rewrite(path, [*entries[:3], dataclasses.replace(entries[3], msg_bytes=wire), *entries[4:]])


def wrong_hub_key(path: Path, entries: list[Entry]) -> None:
    """Sign the right receipt with a key that is not the hub's."""
    signed = sign_receipt(signing_key("somebody"), entries[3].receipt).encode()
    rewrite(path, [*entries[:3], dataclasses.replace(entries[3], receipt_bytes=signed), *entries[4:]])


def wrong_root(path: Path, entries: list[Entry]) -> None:
    """Let the hub sign a wrong root."""
    receipt = dataclasses.replace(entries[3].receipt, mmr_root=entries[2].receipt.mmr_root)
    signed = sign_receipt(signing_key("hub/0"), receipt).encode()
    rewrite(path, [*entries[:3], dataclasses.replace(entries[3], receipt_bytes=signed), *entries[4:]])


def earlier_time(path: Path, entries: list[Entry]) -> None:
    receipt = dataclasses.replace(entries[3].receipt, hub_ts=1_700_000_001)
    signed = sign_receipt(signing_key("hub/0"), receipt).encode()
    rewrite(path, [*entries[:3], dataclasses.replace(entries[3], receipt_bytes=signed), *entries[4:]])


def cut_at_a_frame(path: Path, entries: list[Entry]) -> None:
    rewrite(path, entries[:3])


def cut_inside_a_frame(path: Path, entries: list[Entry]) -> None:
    path.write_bytes(path.read_bytes()[: sum(len(entry.encode()) for entry in entries[:3]) + 40])


FAULTS: dict[Callable[[Path, list[Entry]], None], str] = {
    flipped_bit: "differs from the hash of the entry",
    dropped: "I3: the entry does not follow entry 11 |ends at entry 11, expected entry 12",
    swapped: "I3: the entry does not follow entry 11 |ends at entry 11, expected entry 12",
    duplicated: "I3: the entry does not follow entry 11 |ends at entry 11, expected entry 10",
    forged_message: "I2: leaf_hash is not the leaf hash of the MSG",
    forged_signature: "MSG.sig",
    wrong_hub_key: "no key of the hub that was active at",
    wrong_root: "I3: mmr_root does not follow",
    earlier_time: "H3: hub_ts",
    cut_at_a_frame: "ends at entry 11, expected entry 16|ends inside an entry",
    cut_inside_a_frame: "ends inside an entry",
}


@SIZES
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_where_it_is(
    plant: Callable[[Path, list[Entry]], None], size: int, chunks: Path, orders: Hub
) -> None:
    path = files_of(chunks)[1]
    plant(path, entries_of(path))
    report = check(chunks, size=size, pinned=[HubId(orders.hub_id)])
    (row,) = report.faults
    assert row.fault is not None
    assert (row.fault.file, row.fault.seq, row.to_seq) == (str(path), 12, 11)
    assert any(words in row.fault.reason for words in FAULTS[plant].split("|")), row.fault.reason
    assert row.root == orders.store.read.receipt(orders.label("orders"), StreamSeq(11)).mmr_root  # type: ignore[union-attr]


@SIZES
@pytest.mark.parametrize("between", [2, 11], ids=["in one chunk", "chunks apart"])
@pytest.mark.parametrize("form", ["set", "chunks"])
def test_a_token_that_is_authorized_twice_is_found(
    form: Any, between: int, size: int, hub: Hub, tmp_path: Path
) -> None:
    """The hub itself authorizes the token again, with valid signatures (RESOLUTIONS H5)."""
    hub.authorize("alice")
    for n in range(between):
        hub.authorize(f"writer {n}")
    hub.export("control", tmp_path / "before", form=form)
    assert check(tmp_path / "before", size=size).ok
    hub.authorize("alice")
    hub.authorize("bob")
    hub.export("control", tmp_path / "after", form=form)
    (row,) = check(tmp_path / "after", size=size).faults
    assert row.fault is not None
    assert row.fault.seq == between + 2
    assert re.search("^H5: token .* was already authorized by entry 1 ", row.fault.reason)
    if form != "set":
        named = parse_chunk_name(Path(row.fault.file).name)
        assert named is not None
        before = entries_of(Path(row.fault.file))[: between + 2 - named.start]
        assert row.fault.offset == sum(len(entry.encode()) for entry in before)


@pytest.mark.parametrize("limit", ["MAX_REPORTED_TOKENS", "MAX_REPORTED_WRITERS"])
def test_a_report_with_too_many_writers_or_tokens_to_compare_is_not_complete(
    limit: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(11):
        hub.authorize(f"writer {n}")
        hub.send("orders", 1, who=f"writer {n}", cheap=True)
    clone = hub.clone(tmp_path / "clone")
    assert check(clone).complete
    monkeypatch.setattr(segment_verifier, limit, 2)
    report = check(clone)
    assert (report.ok, report.complete, report.partly_followed) == (True, False, 1)


@SIZES
def test_a_chunk_that_is_missing_is_found(size: int, chunks: Path) -> None:
    files_of(chunks)[1].unlink()
    (row,) = check(chunks, size=size).faults
    assert row.fault is not None
    assert row.to_seq == 8
    assert "the entry follows entry 8; the entries in between are missing" in row.fault.reason


def test_a_set_that_lost_its_end_is_found(orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    last = orders.store.read.receipt(orders.label("orders"), StreamSeq(30))
    entry = next(iter(orders.store.read.entries(orders.label("orders"), 30, 30)))
    assert last is not None
    for name, item in (("receipts", last.encode()), ("payloads", entry.msg_bytes)):
        path = tmp_path / "set" / f"{name}.cborseq"
        path.write_bytes(path.read_bytes()[: -len(item)])
    (row,) = check(tmp_path / "set").faults
    assert "ends at entry 29, expected entry 30" in str(row.row())


@SIZES
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_an_export_without_its_first_or_last_chunk_is_found(which: int, size: int, chunks: Path) -> None:
    files_of(chunks)[which].unlink()
    (row,) = check(chunks, size=size).faults
    assert "missing" in str(row.row()) or "states 1 to 30" in str(row.row())


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\xff\xff")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "manifest.cbor": flipped,
    "manifest.sig": flipped,
    "hub-identity.cbor": emptied,
    "hub-identity.sig": Path.unlink,
    "registry.cbor": emptied,
    "payloads.cborseq": Path.unlink,
    "receipts.cborseq": Path.unlink,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_a_fault_and_the_others_are_verified(
    name: str, orders: Hub, tmp_path: Path
) -> None:
    for folder in ("bad", "good"):
        orders.export("orders", tmp_path / "many" / folder)
    file = tmp_path / "many" / "bad" / name
    DAMAGE[name](file)
    report = check(tmp_path / "many")
    bad, good = sorted(report.labels, key=lambda row: row.origin)
    assert bad.fault is not None
    assert (bad.fault.file, bad.origin, bad.entries) == (str(file), str(file.parent), 0)
    assert (good.fault, good.to_seq) == (None, 30)
    assert not report.ok


@pytest.mark.parametrize("form", ["set", "chunks"])
@pytest.mark.parametrize("where", ["", "*"], ids=["folder", "glob"])
def test_an_export_without_its_manifest_is_a_fault(
    where: str, form: Any, orders: Hub, tmp_path: Path
) -> None:
    for name in ("bad", "good"):
        orders.export("orders", tmp_path / "many" / name, form=form)
    manifest = tmp_path / "many" / "bad" / "manifest.cbor"
    manifest.unlink()
    report = check(tmp_path / "many" / where)
    assert [row.fault.file for row in report.faults if row.fault] == [str(manifest)]
    assert [row.to_seq for row in report.labels if row.fault is None] == [30]


@pytest.fixture
def aged(orders: Hub) -> Hub:
    """A hub with a rotated key, so that a checkpoint has two signatures, and a pruned beginning."""
    orders.rotate()
    orders.send("orders", 12, cheap=True)
    assert orders.prune("orders", max_bytes=12_000) > 0
    return orders


def flips(path: Path, count: int) -> Iterator[int]:
    """Flip one random bit of the file at a time; restore the file at the end."""
    held, rng = path.read_bytes(), random.Random(path.name)
    for at in sorted(rng.sample(range(len(held)), min(count, len(held)))):
        path.write_bytes(held[:at] + bytes([held[at] ^ 1 << rng.randrange(8)]) + held[at + 1 :])
        yield at
    path.write_bytes(held)


@pytest.mark.parametrize("form", ["set", "chunks"])
def test_any_flipped_bit_of_an_export_is_found(form: Any, aged: Hub, tmp_path: Path) -> None:
    aged.export("orders", tmp_path / "export", form=form)
    assert check(tmp_path / "export").ok
    for path in sorted((tmp_path / "export").iterdir()):
        for at in flips(path, 60 if path.stem == "payloads" or path.suffix == ".pruned" else 5):
            assert not check(tmp_path / "export").ok, (path.name, at)


def test_any_flipped_bit_in_an_artifact_of_a_clone_is_found(aged: Hub, tmp_path: Path) -> None:
    """Artifacts include witness signatures, the checkpoint index and summaries of pruned chunks."""
    clone = aged.clone(tmp_path / "clone")
    assert check(clone).ok
    artifacts = [path for path in sorted((clone / "log").iterdir()) if path.suffix in (".cbor", ".summary")]
    assert {path.name.split("-")[1] == "index" for path in artifacts} == {True, False}
    for path in artifacts:
        for at in flips(path, 8):
            assert not check(clone).ok, (path.name, at)


def test_a_missing_checkpoint_that_the_index_names_is_found(aged: Hub, tmp_path: Path) -> None:
    clone = aged.clone(tmp_path / "clone")
    (index,) = clone.rglob("checkpoint-index-*")
    max(clone.rglob("checkpoint-*-000*")).unlink()
    (row,) = check(clone).faults
    assert row.fault is not None
    assert (row.fault.file, "is missing" in row.fault.reason) == (str(index), True)


def test_a_pruned_chunk_without_the_offsets_of_its_entries_is_found(aged: Hub, tmp_path: Path) -> None:
    clone = aged.clone(tmp_path / "clone")
    path = files_of(clone, "*.pruned")[0]
    path.write_bytes(path.read_bytes()[: -(9 * 4 + 2)])
    assert "the offsets at the end do not match" in str(check(clone).as_object()["faults"])


def test_a_clone_with_a_damaged_identity_or_without_its_log_is_a_fault(orders: Hub, tmp_path: Path) -> None:
    identity = orders.clone(tmp_path / "many" / "one") / "hub-identity.cbor"
    identity.write_bytes(b"\xff")
    log = orders.clone(tmp_path / "many" / "two") / "log"
    log.rename(tmp_path / "elsewhere")
    assert orders.clone(tmp_path / "many" / "three").is_dir()
    report = check(tmp_path / "many")
    assert sorted(row.fault.file for row in report.faults if row.fault) == [str(identity), str(log)]
    assert {row.fault.seq for row in report.faults if row.fault} == {1}
    assert [row.origin for row in report.labels if row.fault is None] == [
        str(tmp_path / "many" / "three" / "log")
    ]


def test_a_folder_without_entries_whose_hub_is_not_the_pinned_one_is_a_fault(
    hub: Hub, tmp_path: Path
) -> None:
    (row,) = check(hub.clone(tmp_path / "clone"), pinned=[HubId(bytes(32))]).faults
    assert (row.label, "not pinned" in str(row.row())) == (None, True)


def test_an_export_without_any_chunk_is_a_fault(chunks: Path) -> None:
    for path in files_of(chunks):
        path.unlink()
    (row,) = check(chunks).faults
    assert "there is no chunk file" in str(row.row())


def test_an_unsigned_export_is_reported(orders: Hub, chunks: Path, tmp_path: Path) -> None:
    """An attacker who removes the signature can remove the last entries too."""
    orders.clone(tmp_path / "clone")  # a clone has no manifest
    assert check(chunks, tmp_path / "clone").unsigned == ()
    (chunks / "manifest.sig").unlink()
    report = check(chunks)
    assert (report.ok, report.unsigned) == (True, (str(chunks),))
    assert report.as_object()["unsigned"] == [str(chunks)]


@SIZES
@pytest.mark.parametrize("form", ["set", "chunks"])
def test_a_false_manifest_is_found(form: Any, size: int, aged: Hub, tmp_path: Path) -> None:
    """Without manifest.sig anybody can write a manifest."""
    aged.export("orders", tmp_path / "export", form=form, from_seq=4, to_seq=38)
    (tmp_path / "export" / "manifest.sig").unlink()
    path = tmp_path / "export" / "manifest.cbor"
    manifest = Manifest.decode(path.read_bytes())
    assert manifest.before is not None
    early = UnixTime(manifest.from_ts - 1)
    start, end = (StreamSeq(seq + 1) for seq in (manifest.pruned[0].start_seq, manifest.pruned[0].end_seq))
    later = dataclasses.replace(manifest.before, hub_ts=UnixTime(manifest.from_ts + 1))
    lies: list[dict[str, Any]] = [
        {"to_seq": StreamSeq(99)},
        {"from_ts": early},
        {"to_ts": early},
        {"peaks_after": ()},
        {"pruned": ()},
        {"pruned": (PrunedRange(start_seq=start, end_seq=end),)},
        {"files": manifest.files[1:]},
    ]
    for lie in lies:
        path.write_bytes(dataclasses.replace(manifest, **lie).encode())
        faults = str(check(tmp_path / "export", size=size).as_object()["faults"])
        assert "manifest.cbor" in faults or "expected entry 99" in faults, lie
    before = sign_receipt(signing_key("hub/0"), later)  # signed by the hub itself: its time went back
    path.write_bytes(dataclasses.replace(manifest, before=before).encode())
    (row,) = check(tmp_path / "export", size=size).faults
    assert row.fault is not None
    assert row.fault.reason.startswith(f"H3: hub_ts goes back from {later.hub_ts} to {manifest.from_ts} ")


@pytest.mark.parametrize("name", ["registry.cbor", "hub-key-map.cbor", "checkpoints.cborseq"])
def test_a_changed_file_is_found_by_its_hash_in_the_manifest(name: str, orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    (tmp_path / "set" / name).write_bytes(b"")
    assert name.partition(".")[0] in str(check(tmp_path / "set").as_object()["faults"])


@SIZES
def test_a_clone_without_a_labels_beginning_is_found(size: int, orders: Hub, tmp_path: Path) -> None:
    home = orders.clone(tmp_path / "clone")
    files_of(home)[0].unlink()
    (row,) = check(home, size=size).faults
    assert "missing" in str(row.row())
    assert row.fault is not None
    assert row.fault.seq == 1


def test_a_clone_without_its_registry_is_a_fault(orders: Hub, tmp_path: Path) -> None:
    """The registry states the profile of all messages (I4)."""
    registry = orders.clone(tmp_path / "clone") / "registry.cbor"
    registry.unlink()
    (row,) = check(tmp_path / "clone").faults
    assert row.fault is not None
    assert (row.fault.file, row.entries) == (str(registry), 0)
    assert "is missing" in row.fault.reason


def test_a_chunk_that_cannot_be_opened_is_a_fault_and_hides_no_other(orders: Hub, tmp_path: Path) -> None:
    orders.send("other", 3, cheap=True)
    chunk = files_of(orders.clone(tmp_path / "clone"))[1]
    chunk.unlink()
    chunk.symlink_to(tmp_path / "gone")
    report = check(tmp_path / "clone")
    (row,) = report.faults
    assert row.fault is not None
    assert len(report.labels) == 2
    assert (row.fault.file, row.fault.seq) == (str(chunk), 9)
    assert row.fault.reason == "No such file or directory"


@pytest.mark.parametrize(
    "pattern", ["*.log", "peaks-*", "checkpoint-*-0*", "*.summary", "checkpoint-index-*"]
)
@SIZES
def test_an_unreadable_file_is_a_fault_and_the_other_labels_are_verified(
    size: int, pattern: str, orders: Hub, make_hub: Callable[..., Hub], tmp_path: Path
) -> None:
    other = make_hub("other", key="other")
    other.send("orders", 20, cheap=True)
    other.clone(tmp_path / "many" / "good")
    file = files_of(orders.clone(tmp_path / "many" / "bad"), pattern)[-1]
    file.unlink()
    file.mkdir()
    report = check(tmp_path / "many", size=size)
    (row,) = report.faults
    assert row.fault is not None
    assert file.name in row.fault.file or file.name in row.fault.reason
    assert [row.entries for row in report.labels if row.fault is None] == [20]


def test_a_folder_that_cannot_be_listed_is_a_fault_and_the_others_are_verified(
    orders: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, whom no permission stops."""
    orders.clone(tmp_path / "many" / "good")
    closed = tmp_path / "many" / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    report = check(tmp_path / "many")
    (row,) = report.faults
    assert row.fault is not None
    assert (row.fault.file, row.fault.reason) == (str(closed), "cannot be read: Permission denied")
    assert [row.entries for row in report.labels if row.fault is None] == [30]


def test_a_clone_that_ends_before_its_checkpoints_is_found(orders: Hub, tmp_path: Path) -> None:
    home = orders.clone(tmp_path / "clone")
    for path in (files_of(home)[-1], *files_of(home, "*.open")):
        path.unlink()
    (row,) = check(home).faults
    assert (row.to_seq, row.fault and row.fault.seq) == (16, 17)
    assert "has entries 1 to 16; the rest is missing" in str(row.row())
    for path in files_of(home):
        path.unlink()
    (row,) = check(home).faults
    assert "has no entries" in str(row.row())


@SIZES
@pytest.mark.parametrize("kind", ["checkpoint", "peaks"])
def test_a_tampered_checkpoint_or_peaks_file_is_found(kind: str, size: int, chunks: Path) -> None:
    for path in sorted(chunks.glob(f"{kind}-*")):
        held = path.read_bytes()
        path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
        (row,) = check(chunks, size=size).faults
        assert row.fault is not None
        assert row.fault.file == str(path)
        path.write_bytes(held)


def test_a_checkpoint_that_the_hub_did_not_sign_is_found(chunks: Path) -> None:
    path = min(chunks.glob("checkpoint-*"))
    made = Checkpoint.decode(path.read_bytes())
    path.write_bytes(sign_checkpoint(signing_key("somebody"), made).encode())
    assert "hub_sig" in str(check(chunks).as_object()["faults"])


def test_two_chunks_that_begin_with_the_same_entry_are_found(chunks: Path) -> None:
    first = files_of(chunks)[0]
    for name in ("manifest.cbor", "manifest.sig"):
        (chunks / name).unlink()
    rewrite(first.with_name(first.name.replace("0008.log", "0007.log")), entries_of(first)[:7])
    assert not check(chunks).ok


@pytest.mark.parametrize("start", [0, 2**63, 10**20 - 1])
def test_a_chunk_named_after_no_entry_is_a_fault_and_hides_no_other(
    start: int, hub: Hub, tmp_path: Path
) -> None:
    for name in ("orders", "invoices"):
        hub.send(name, 3)
    log = hub.clone(tmp_path / "clone") / "log"
    label = hub.label("orders")
    (log / chunk_name(label, StreamSeq(1), None)).rename(log / chunk_name(label, StreamSeq(start), None))
    rows = check(tmp_path / "clone").table().to_pylist()
    assert {row["label"]: row["verdict"] for row in rows} == {label: "fault", hub.label("invoices"): "ok"}


@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_in_any_header_is_a_fault_and_no_error(bit: int, chunks: Path) -> None:
    """The chunk is also split by these headers."""
    path = files_of(chunks)[1]
    content = path.read_bytes()
    begins = [0]
    for entry in entries_of(path)[:-1]:
        begins.append(begins[-1] + len(entry.encode()))
    for begin in begins[:4]:
        for at in range(34, 50):  # the number and both lengths
            flipped = bytearray(content)
            flipped[begin + at] ^= 1 << bit
            path.write_bytes(flipped)
            assert len(check(chunks, size=1_500).faults) == 1


def test_a_given_identity_must_be_the_pinned_hub(chunks: Path, orders: Hub) -> None:
    for name in ("hub-identity.cbor", "hub-identity.sig", "manifest.cbor", "manifest.sig"):
        (chunks / name).unlink()
    report = check(chunks, identity=orders.identity, pinned=[HubId(bytes(32))])
    assert "is not pinned" in str(report.as_object())


def test_false_peaks_are_not_believed(chunks: Path) -> None:
    """False peaks may fit the chunk after them, but not the chunk before them."""
    peaks = sorted(chunks.glob("peaks-*"))
    peaks[1].write_bytes(peaks[1].read_bytes()[:-1] + b"\0")
    (row,) = check(chunks).faults
    assert row.fault is not None
    assert row.fault.seq == 17


@SIZES
def test_a_summary_that_does_not_fit_is_found(size: int, chunks: Path) -> None:
    first, second, *_ = sorted(chunks.glob("*.summary"))
    second.write_bytes(first.read_bytes())
    (row,) = check(chunks, size=size).faults
    assert "does not match its chunk" in str(row.row())


def test_a_hub_is_pinned_by_its_id_or_in_hex_and_by_nothing_else(chunks: Path, orders: Hub) -> None:
    hub_id = HubId(orders.hub_id)
    for pinned in ([hub_id], [hub_id.hex()], hub_id.hex(), hub_id):
        report = check(chunks, pinned=pinned)
        assert (report.ok, report.hubs) == (True, {bytes(hub_id): True})
    for wrong in ([None], [7], [bytes(hub_id)]):
        with pytest.raises(TypeError, match="expected a HubId or a hub_id in hex"):
            check(chunks, pinned=wrong)
    with pytest.raises(DecodeError):
        check(chunks, pinned=["zz"])


def test_a_forged_identity_is_refused(chunks: Path, orders: Hub) -> None:
    path = chunks / "hub-identity.cbor"
    identity = HubIdentity.decode(path.read_bytes())
    forged = dataclasses.replace(identity, hub_id=HubId(bytes(32)))
    path.write_bytes(forged.encode())
    (row,) = check(chunks, pinned=[HubId(orders.hub_id)]).faults
    assert "hub-identity" in str(row.row())


def test_chunks_without_an_identity_verify_only_with_a_given_one(chunks: Path, orders: Hub) -> None:
    identity = orders.identity
    for name in ("hub-identity.cbor", "hub-identity.sig", "manifest.cbor", "manifest.sig"):
        (chunks / name).unlink()
    assert "has no hub-identity.cbor" in str(check(chunks).as_object())
    assert check(chunks, identity=identity).ok


def test_chunks_whose_peaks_are_unknown_are_a_fault(chunks: Path) -> None:
    for path in (files_of(chunks)[0], *chunks.glob("peaks-*"), *chunks.glob("manifest.*")):
        path.unlink()
    (row,) = check(chunks).faults
    assert "the peaks before entry 9 are unknown" in str(row.row())


def test_two_histories_of_one_label_are_found(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    for name, who in (("one", "alice"), ("two", "bob")):
        hub = make_hub(name)
        hub.send("orders", 10, who=who, cheap=True)
        hub.clone(tmp_path / "clones" / name)
    (row,) = check(tmp_path / "clones").faults
    assert "two histories" in str(row.row())


@SIZES
@pytest.mark.parametrize(("form", "ends"), [("set", (19, 23)), ("clone", (5, 7))], ids=["set", "clone"])
def test_two_histories_that_end_at_different_entries_are_found(
    form: str, ends: tuple[int, int], size: int, make_hub: Callable[..., Hub], tmp_path: Path
) -> None:
    """Each copy verifies by itself, and their parts end at different entries."""
    for name, who, count in (("one", "alice", ends[0]), ("two", "bob", ends[1])):
        hub = make_hub(name)
        hub.send("orders", count, who=who, cheap=True)
        place = tmp_path / "places" / name
        if form == "clone":
            hub.clone(place)
        else:
            hub.export("orders", place)
        assert check(place, size=size).ok
    (row,) = check(tmp_path / "places", size=size).faults
    assert f"the root after entry {ends[0]} differs from the root in {tmp_path / 'places' / 'one'}" in str(
        row.row()
    )


@SIZES
def test_copies_of_one_log_agree_wherever_they_begin_and_end(size: int, orders: Hub, tmp_path: Path) -> None:
    places = tmp_path / "places"
    orders.clone(places / "before")
    orders.export("orders", places / "set", from_seq=6, to_seq=27)
    orders.export("orders", places / "middle", from_seq=20, to_seq=21)
    orders.export("orders", places / "next", form="chunks", from_seq=28)
    orders.authorize()
    assert orders.prune("orders", max_bytes=5_000) > 0
    orders.send("orders", 5, cheap=True)
    orders.clone(places / "after")
    report = check(places, size=size)
    assert report.ok, report.as_object()
    assert len(report.labels) == 6


# --- on Spark


def test_spark_gives_the_same_report(orders: Hub, chunks: Path, spark: SparkSession, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    path = files_of(chunks)[2]
    dropped(path, entries_of(path))
    report = verify(spark, str(chunks), str(tmp_path / "set"), max_partition_bytes=3_000)
    assert report == check(chunks, tmp_path / "set", size=3_000)
    table = report.frame(spark).orderBy("origin").collect()
    assert [(row.verdict, row.to_seq, row.fault_seq) for row in table] == [
        ("fault", 19, 20),
        ("ok", 30, None),
    ]
    assert table[0].fault_file == str(path)


def test_twenty_thousand_labels_are_verified_in_few_tasks(
    spark: SparkSession, tmp_path: Path, hub: Hub
) -> None:
    """The files have one entry each and are made here, because a hub would take minutes to write them."""
    home, labels = hub.clone(tmp_path / "clone"), 20_000
    for number in range(labels):
        entry = lone_entry(number)
        (home / "log" / chunk_name(entry.label, StreamSeq(1), None)).write_bytes(entry.encode())
    report = verify(spark, str(home), pinned=[HubId(hub.hub_id)])
    assert report.ok
    assert (len(report.labels), sum(row.entries for row in report.labels)) == (labels, labels)
