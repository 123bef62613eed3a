"""Verification checks the hub log: every head is its label's, and no label is missing (RESOLUTIONS P1)."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core.chunk import chunk_name
from veen_core.export import FileHash, Manifest
from veen_core.hub_export import HUB_HEAD, HubHead, HubManifest
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead, origin_of
from veen_core.ids import HubId, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.tlog import note, tree
from veen_core.tlog.tiles import decode_bundle, encode_bundle
from veen_core.tlog.tree_head import TreeHead
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import find_segments
from veen_spark.verify import LabelReport, VerificationReport, verify
from veen_spark.verify.hub_log import comparison
from veen_spark.verify.hub_log.heads import compare_labels
from veen_spark.verify.pipeline import run_pipeline

from .commands import run
from .logs import Hub, files_of, lone_entry, signing_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = pytest.mark.parametrize("size", [100_000, 500], ids=["whole", "cut"])
NAMES = ("orders", "invoices", "returns")


def here(task: Callable[[list[Any]], list[Any]], work: Sequence[list[Any]]) -> list[Any]:
    """Run the pipeline's tasks in this process; pickle arguments and results as Spark does."""
    return [
        pickle.loads(pickle.dumps(done)) for piece in work for done in task(pickle.loads(pickle.dumps(piece)))
    ]


def check(*paths: Path, size: int = 100_000, **how: Any) -> VerificationReport:
    return run_pipeline(here, [str(path) for path in paths], max_partition_bytes=size, **how)


@pytest.fixture
def shop(hub: Hub) -> Hub:
    """A hub with three labels, chunks of eight entries, 15 heads, and an older published hub checkpoint."""
    for n in range(5):
        for count, name in enumerate(NAMES, 1):
            hub.send(name, count * 2 if n else count, cheap=True)
        hub.hub_checkpoint(publish=n == 2)
    return hub


@pytest.fixture
def clone(shop: Hub, tmp_path: Path) -> Path:
    return shop.clone(tmp_path / "clone")


def heads_of(home: Path) -> list[LabelHead]:
    return [LabelHead.decode(entry) for entry in decode_bundle((home / "hublog" / "entries").read_bytes())]


def rewrite(home: Path, heads: Iterable[LabelHead], *, key: SigningKey | None = None) -> None:
    """Replace the hub log; with a key, also its hub checkpoint, as a dishonest hub would."""
    grown, entries = tree.Tree(), [head.encode() for head in heads]
    for entry in entries:
        grown.append(tree.leaf_hash(entry))
    (home / "hublog" / "entries").write_bytes(encode_bundle(entries))
    if key is not None:
        sign(home, grown.size, grown.root, key)
        (home / "hublog" / "published").unlink(missing_ok=True)


def sign(home: Path, size: int, root: bytes, key: SigningKey, name: str = "checkpoint") -> None:
    origin = origin_of(HubIdentity.decode((home / "hub-identity.cbor").read_bytes()).hub_id)
    text = TreeHead(origin, size, root).text
    made = note.Note(text, (note.sign_note(key, origin, text),))
    (home / "hublog" / name).write_bytes(made.encode())


def remove_label(home: Path, label: Label) -> None:
    for path in (home / "log").glob(f"*{label.hex()}*"):
        path.unlink()


def only_fault(report: VerificationReport) -> LabelReport:
    (row,) = report.faults
    assert row.fault is not None
    return row


# --- honest hub logs


@SIZES
@pytest.mark.parametrize("form", ["clone", "set", "chunks"])
def test_an_honest_hub_log_agrees_with_its_labels(form: Any, size: int, shop: Hub, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shop.clone(place) if form == "clone" else shop.export_hub(place, form=form)
    report = check(place, size=size, pinned=[HubId(shop.hub_id)])
    assert report.ok, report.as_object()
    assert len(report.labels) == 3
    assert report.without_hub_log == ()
    assert [one.as_object() for one in report.hub_logs] == [
        {
            "origin": str(place / "hublog"),
            "hub_id": shop.hub_id.hex(),
            "size": 15,
            "published": 9,
            "covered": 3,
            "uncovered": 0,
        }
    ]


@SIZES
def test_entries_and_labels_after_the_hub_checkpoint_are_no_fault(
    size: int, shop: Hub, tmp_path: Path
) -> None:
    shop.send("orders", 3, cheap=True)
    shop.send("new", 2, cheap=True)
    for place in (shop.clone(tmp_path / "clone"), shop.export_hub(tmp_path / "export")):
        report = check(place, size=size)
        assert report.ok, report.as_object()
        assert [(one.covered, one.uncovered) for one in report.hub_logs] == [(3, 2)]


@SIZES
def test_a_hub_with_pruned_entries_tokens_and_a_rotated_key_agrees_with_its_hub_log(
    size: int, shop: Hub, tmp_path: Path
) -> None:
    shop.authorize()
    shop.hub_checkpoint()
    shop.rotate()
    shop.send("orders", 12, cheap=True)
    shop.hub_checkpoint()
    assert shop.prune("returns", max_bytes=5_000) > 0
    for place in (shop.clone(tmp_path / "clone"), shop.export_hub(tmp_path / "export")):
        report = check(place, size=size)
        assert report.ok, report.as_object()
        assert [(one.size, one.covered) for one in report.hub_logs] == [(17, 4)]
        assert sum(row.pruned for row in report.labels) > 0


def test_compressed_chunks_agree_with_their_hub_log(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    hub = make_hub(zstd_level=1)
    hub.send("orders", 30, cheap=True)
    hub.hub_checkpoint()
    assert [one.covered for one in check(hub.clone(tmp_path / "clone")).hub_logs] == [1]


@pytest.mark.parametrize("form", ["clone", "hub export", "label"])
def test_without_a_hub_log_the_report_says_so_and_the_log_verifies_as_before(
    form: str, hub: Hub, tmp_path: Path
) -> None:
    hub.send("orders", 10, cheap=True)
    place = tmp_path / "place"
    if form == "clone":
        shutil.rmtree(hub.clone(place) / "hublog")
    elif form == "hub export":
        hub.export_hub(place)
    else:
        hub.export("orders", place)
    report = check(place)
    assert report.ok, report.as_object()
    assert report.hub_logs == ()
    assert report.without_hub_log == (str(place / "log" if form == "clone" else place),)
    assert report.as_object()["without_hub_log"] == list(report.without_hub_log)


def test_chunk_files_by_name_are_not_compared_with_the_hub_log(clone: Path) -> None:
    """The user has named some of the files, so that others are not missing."""
    report = check(clone / "log" / "chunk-*", size=500)
    assert (report.ok, report.hub_logs, report.without_hub_log) == (True, (), (str(clone / "log"),))
    assert [one.size for one in check(clone / "log").hub_logs] == [15]


def test_an_export_of_a_hub_is_read_like_any_log(shop: Hub, tmp_path: Path) -> None:
    segments = find_segments([str(shop.export_hub(tmp_path / "export"))])
    assert {segment.label for segment in segments} == {shop.label(name) for name in NAMES}


def test_copies_of_one_hub_log_agree_whatever_their_size(shop: Hub, tmp_path: Path) -> None:
    shop.clone(tmp_path / "copies" / "older")
    shop.send("orders", 1, cheap=True)
    shop.hub_checkpoint(publish=True)
    shop.export_hub(tmp_path / "copies" / "newer")
    report = check(tmp_path / "copies")
    assert report.ok, report.as_object()
    assert sorted(one.size for one in report.hub_logs) == [15, 16]


def test_many_labels_are_compared_with_their_hub_log(hub: Hub, tmp_path: Path) -> None:
    """The files have one entry each and are made here, because a hub would take longer to write them."""
    home, heads = hub.clone(tmp_path / "clone"), []
    for number in range(400):
        entry = lone_entry(number)
        fields = {name: getattr(entry.receipt, name) for name in ("label", "mmr_root", "hub_ts")}
        (home / "log" / chunk_name(entry.label, StreamSeq(1), None)).write_bytes(entry.encode())
        heads.append(LabelHead(upto_seq=StreamSeq(1), **fields))
    rewrite(home, heads, key=signing_key("hub/0"))
    report = check(home, size=8_000)
    assert report.ok, report.as_object()
    assert [(one.size, one.covered) for one in report.hub_logs] == [(400, 400)]
    remove_label(home, heads[77].label)
    assert only_fault(check(home, size=8_000)).label == heads[77].label


# --- labels that are missing


@SIZES
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_label_is_a_fault_that_names_the_label(
    name: str, size: int, shop: Hub, clone: Path
) -> None:
    label = shop.label(name)
    remove_label(clone, label)
    row = only_fault(check(clone, size=size))
    last = heads_of(clone)[-1 - sorted(map(shop.label, NAMES), reverse=True).index(label)]
    assert (row.label, row.hub_id, row.origin, row.entries) == (label, shop.hub_id, str(clone / "log"), 0)
    assert row.fault is not None
    assert row.fault.reason.startswith(
        f"P1: the label has no entries, but the hub log has its head at entry {last.upto_seq};"
    )
    assert row.fault.file == str(clone / "hublog" / "entries")
    assert Path(row.fault.file).read_bytes()[row.fault.offset + 2 :].startswith(last.encode())


def test_all_labels_missing_are_a_fault_each(shop: Hub, clone: Path) -> None:
    for name in NAMES:
        remove_label(clone, shop.label(name))
    report = check(clone, size=500)
    assert {row.label for row in report.faults} == {shop.label(name) for name in NAMES}


def test_a_label_missing_from_an_export_of_a_hub_is_a_fault(shop: Hub, tmp_path: Path) -> None:
    export, label = shop.export_hub(tmp_path / "export"), shop.label("orders")
    shutil.rmtree(export / "labels" / label.hex())
    stated, missing = sorted(check(export).faults, key=lambda row: row.label or b"")
    assert "states 3 labels, but there are 2" in str(stated.row())
    assert (missing.label, missing.origin) == (label, str(export / "labels" / label.hex()))
    assert "the label has no entries" in str(missing.row())


@SIZES
def test_a_label_that_ends_before_its_newest_head_is_a_fault(size: int, shop: Hub, clone: Path) -> None:
    """Only the hub log shows that the chunk that was growing is missing."""
    label = shop.label("orders")
    (growing,) = (clone / "log").glob(f"chunk-{label.hex()}*.open")
    growing.unlink()
    row = only_fault(check(clone, size=size))
    assert (row.label, row.to_seq) == (label, 8)
    assert row.fault is not None
    assert row.fault.seq == 9
    assert "P1: the label ends at entry 8, but the hub log has its head at entry 9" in row.fault.reason


def test_a_label_whose_only_file_was_emptied_is_a_fault(hub: Hub, tmp_path: Path) -> None:
    """The file of a growing chunk may be empty, so nothing but the hub log shows that it was not."""
    for name in NAMES:
        hub.send(name, 3, cheap=True)
    hub.hub_checkpoint()
    clone, label = hub.clone(tmp_path / "clone"), hub.label("orders")
    (clone / "log" / chunk_name(label, StreamSeq(1), None)).write_bytes(b"")
    row = only_fault(check(clone))
    assert (row.label, row.entries) == (label, 0)
    assert "the label has no entries, but the hub log has its head at entry 3" in str(row.row())


def test_an_export_of_a_hub_with_a_label_that_ends_early_is_a_fault(shop: Hub, tmp_path: Path) -> None:
    export, label = shop.export_hub(tmp_path / "export"), shop.label("orders")
    place = export / "labels" / label.hex()
    shutil.rmtree(place)
    shop.export("orders", place, to_seq=7)
    assert "the label ends at entry 7, but the hub log has its head at entry 9" in str(
        only_fault(check(export)).row()
    )


@SIZES
def test_a_label_that_the_hub_left_out_of_its_hub_log_is_a_fault(size: int, shop: Hub, clone: Path) -> None:
    """The label has entries that are older than the newest head, so the hub must have known them."""
    hidden = shop.label("invoices")
    rewrite(clone, [head for head in heads_of(clone) if head.label != hidden], key=signing_key("hub/0"))
    row = only_fault(check(clone, size=size))
    assert row.label == hidden
    assert f"P1: the hub log does not cover entry 1 of label {hidden.hex()}" in str(row.row())


@SIZES
def test_entries_that_the_hub_left_out_of_its_hub_log_are_a_fault(size: int, shop: Hub, clone: Path) -> None:
    label, heads = shop.label("returns"), heads_of(clone)
    kept = [head for head in heads if head.label != label or head.upto_seq <= 9]
    rewrite(clone, kept, key=signing_key("hub/0"))
    row = only_fault(check(clone, size=size))
    assert (row.label, row.fault and row.fault.seq) == (label, 10)
    assert "does not cover entry 10" in str(row.row())


# --- false heads


@SIZES
@pytest.mark.parametrize("field", ["mmr_root", "hub_ts"])
def test_a_head_that_is_not_the_labels_is_a_fault_even_if_the_hub_signed_it(
    field: str, size: int, clone: Path
) -> None:
    heads = heads_of(clone)
    lies: dict[str, Any] = {"mmr_root": MmrRoot(bytes(32)), "hub_ts": UnixTime(heads[7].hub_ts - 1)}
    heads[7] = dataclasses.replace(heads[7], **{field: lies[field]})
    rewrite(clone, heads, key=signing_key("hub/0"))
    row = only_fault(check(clone, size=size))
    assert (row.label, row.fault and row.fault.seq) == (heads[7].label, heads[7].upto_seq)
    assert "P1: entry 7 of the hub log has another root or hub_ts than the RECEIPT" in str(row.row())


@SIZES
def test_a_changed_head_is_a_fault_of_the_hub_log_and_of_its_label(size: int, clone: Path) -> None:
    heads = heads_of(clone)
    heads[7] = dataclasses.replace(heads[7], mmr_root=MmrRoot(bytes(32)))
    rewrite(clone, heads)
    of_label, *of_notes = check(clone, size=size).faults
    assert of_label.label == heads[7].label
    assert {row.fault.file for row in of_notes if row.fault} == {
        str(clone / "hublog" / name) for name in ("checkpoint", "published")
    }
    assert all("its root is not that of hublog/entries at size" in str(row.row()) for row in of_notes)


@SIZES
@pytest.mark.parametrize("how", ["back", "twice"])
def test_a_label_whose_heads_do_not_grow_is_a_fault(how: str, size: int, shop: Hub, clone: Path) -> None:
    """Each head is the label's, but their order says that the label was shorter later."""
    label, heads = shop.label("returns"), heads_of(clone)
    own = [at for at, head in enumerate(heads) if head.label == label]
    if how == "back":
        heads[own[0]], heads[own[3]] = heads[own[3]], heads[own[0]]
    else:
        heads.append(heads[own[2]])
    rewrite(clone, heads, key=signing_key("hub/0"))
    row = only_fault(check(clone, size=size))
    assert row.label == label
    words = (
        "does not grow in the hub log: 9, then 3"
        if how == "back"
        else "the hub log has two heads at this entry"
    )
    assert words in str(row.row())


def test_a_label_with_a_fault_of_its_own_is_not_compared(clone: Path) -> None:
    chunk = files_of(clone)[0]
    chunk.write_bytes(chunk.read_bytes()[:-1])
    row = only_fault(check(clone, size=500))
    assert row.fault is not None
    assert row.fault.file == str(chunk)


# --- tree, hub checkpoint, files


@pytest.mark.parametrize("name", ["checkpoint", "published"])
def test_a_hub_checkpoint_with_a_wrong_root_is_a_fault(name: str, clone: Path) -> None:
    sign(clone, 15 if name == "checkpoint" else 9, bytes(32), signing_key("hub/0"), name)
    row = only_fault(check(clone))
    assert (row.label, row.origin) == (None, str(clone / "hublog"))
    assert row.fault is not None
    assert row.fault.file == str(clone / "hublog" / name)
    assert "its root is not that of hublog/entries at size" in row.fault.reason


@pytest.mark.parametrize("name", ["checkpoint", "published"])
def test_a_hub_checkpoint_that_the_hub_did_not_sign_is_a_fault(name: str, clone: Path) -> None:
    path = clone / "hublog" / name
    held = note.parse_note(path.read_bytes())
    origin = held.text.split("\n")[0]
    forged = note.Note(held.text, (note.sign_note(signing_key("somebody"), origin, held.text),))
    path.write_bytes(forged.encode())
    assert "no key of the hub signed it" in str(only_fault(check(clone)).row())


def test_a_key_that_had_ended_cannot_have_signed_the_hub_checkpoint(shop: Hub, tmp_path: Path) -> None:
    shop.rotate(window_sec=10)
    shop.now = UnixTime(shop.now + 100)
    shop.send("orders", 1, cheap=True)
    signed = shop.hub_checkpoint()
    clone = shop.clone(tmp_path / "clone")
    sign(clone, signed.head.size, signed.head.root, signing_key("hub/0"))
    assert "no key of the hub signed it" in str(only_fault(check(clone)).row())


def cut_within_an_entry(folder: Path) -> None:
    (folder / "entries").write_bytes((folder / "entries").read_bytes()[:-1])


def cut_at_an_entry(folder: Path) -> None:
    heads = decode_bundle((folder / "entries").read_bytes())
    (folder / "entries").write_bytes(encode_bundle(heads[:-1]))


def longer(folder: Path) -> None:
    (folder / "entries").write_bytes((folder / "entries").read_bytes() + b"\0\0")


def not_a_head(folder: Path) -> None:
    heads = decode_bundle((folder / "entries").read_bytes())
    (folder / "entries").write_bytes(encode_bundle([*heads[:5], heads[5][:-1] + b"\x18\x01", *heads[6:]]))


def out_of_range(folder: Path) -> None:
    heads = decode_bundle((folder / "entries").read_bytes())
    large = dataclasses.replace(LabelHead.decode(heads[5]), upto_seq=StreamSeq(2**63)).encode()
    (folder / "entries").write_bytes(encode_bundle([*heads[:5], large, *heads[6:]]))


def beyond(folder: Path) -> None:
    (folder / "published").write_bytes((folder / "checkpoint").read_bytes())
    sign(folder.parent, 9, bytes(32), signing_key("hub/0"))


DAMAGE: dict[Callable[[Path], object], str] = {
    cut_within_an_entry: "ends within or after entry 14, but the hub checkpoint covers 15 entries",
    cut_at_an_entry: "ends within or after entry 14, but the hub checkpoint covers 15 entries",
    longer: "has bytes after the 15 entries that the hub checkpoint covers; if the hub is running",
    not_a_head: "entry 5: ",
    out_of_range: "entry 5: label head (RESOLUTIONS P1): upto_seq 9223372036854775808 or hub_ts",
    beyond: "has size 15, but the hub log ends at 9",
    lambda folder: (folder / "entries").unlink(): "No such file or directory",
    lambda folder: (folder / "checkpoint").unlink(): "the file is missing",
    lambda folder: (folder / "checkpoint").write_bytes(b"x"): "note (C2SP signed-note)",
}


@SIZES
@pytest.mark.parametrize("plant", DAMAGE, ids=lambda plant: DAMAGE[plant][:24])
def test_a_damaged_hub_log_is_a_fault_and_its_labels_are_verified(
    plant: Callable[[Path], object], size: int, clone: Path
) -> None:
    plant(clone / "hublog")
    report = check(clone, size=size)
    row = only_fault(report)
    assert (row.label, row.origin) == (None, str(clone / "hublog"))
    assert DAMAGE[plant] in str(row.fault and row.fault.reason)
    assert len([label for label in report.labels if label.fault is None]) == 3


def test_any_flipped_bit_of_a_hub_log_is_found(hub: Hub, tmp_path: Path) -> None:
    for name in ("orders", "returns"):
        hub.send(name, 1, cheap=True)
        hub.hub_checkpoint(publish=name == "orders")
    folder = hub.export_hub(tmp_path / "export") / "hublog"
    assert check(folder.parent).ok
    for path in sorted(folder.iterdir()):
        held = path.read_bytes()
        for at in range(0, len(held), 9):
            path.write_bytes(held[:at] + bytes([held[at] ^ 1 << at % 8]) + held[at + 1 :])
            assert not check(folder.parent).ok, (path.name, at)
        path.write_bytes(held)


def test_two_hub_logs_of_one_hub_are_found(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    """Each label has one history, but the hub has shown them to others in two orders."""
    for name, order in (("one", ("orders", "returns")), ("two", ("returns", "orders"))):
        hub = make_hub(name)
        for stream in order:
            hub.send(stream, 1, cheap=True, who=name)
            hub.hub_checkpoint()
        shutil.copytree(hub.clone(tmp_path / name / "clone"), tmp_path / "clones" / name)
    faults = [row for row in check(tmp_path / "clones").faults if row.label is None]
    assert {row.origin for row in faults} == {
        str(tmp_path / "clones" / name / "hublog") for name in ("one", "two")
    }
    assert all("the hub has two hub logs" in str(row.row()) for row in faults)


# --- exports


@pytest.mark.parametrize("form", ["set", "chunks"])
def test_the_head_of_an_export_ties_it_to_a_hub_checkpoint(form: Any, shop: Hub, tmp_path: Path) -> None:
    """The export ends before its head, so that a consistency proof leads there."""
    shop.export("returns", tmp_path / "export", form=form, to_seq=20)
    path = tmp_path / "export" / HUB_HEAD
    head = HubHead.decode(path.read_bytes())
    assert head.consistency is not None
    assert check(tmp_path / "export").ok


@pytest.mark.parametrize("how", ["other label", "other hub", "not decodable"])
def test_a_head_that_does_not_lead_from_the_export_to_the_hub_is_a_fault(
    how: str, shop: Hub, tmp_path: Path
) -> None:
    shop.export("orders", tmp_path / "export")
    shop.export("returns", tmp_path / "other")
    path = tmp_path / "export" / HUB_HEAD
    head = HubHead.decode(path.read_bytes())
    if how == "other label":
        head = HubHead.decode((tmp_path / "other" / HUB_HEAD).read_bytes())
    elif how == "other hub":
        text = note.parse_note(head.checkpoint).text
        forged = note.sign_note(signing_key("somebody"), text.split("\n")[0], text)
        head = dataclasses.replace(head, checkpoint=note.Note(text, (forged,)).encode())
    replace(tmp_path / "export", HUB_HEAD, head.encode() if how != "not decodable" else b"\xff")
    row = only_fault(check(tmp_path / "export"))
    assert row.fault is not None
    assert (row.fault.file, row.label) == (str(path), shop.label("orders"))


def replace(export: Path, name: str, content: bytes) -> None:
    """Replace a file of an export, its hash in the manifest too, and remove the hub's signature."""
    (export / name).write_bytes(content)
    (export / "manifest.sig").unlink()
    path = export / "manifest.cbor"
    manifest = Manifest.decode(path.read_bytes())
    files = [
        dataclasses.replace(file, size=len(content), digest=FileHash(sha256(content).digest()))
        if file.name == name
        else file
        for file in manifest.files
    ]
    path.write_bytes(dataclasses.replace(manifest, files=tuple(files)).encode())


def no_manifest(export: Path, _hub: Hub) -> None:
    (export / "hub-export.cbor").unlink()


def other_hub(export: Path, _hub: Hub) -> None:
    (export / "hub-export.cbor").write_bytes(HubManifest(hub_id=HubId(bytes(32)), labels=3, size=15).encode())


def other_size(export: Path, hub: Hub) -> None:
    manifest = HubManifest(hub_id=hub.identity.hub_id, labels=3, size=16)
    (export / "hub-export.cbor").write_bytes(manifest.encode())


def no_hub_log(export: Path, _hub: Hub) -> None:
    shutil.rmtree(export / "hublog")


def label_hidden_by_leaving_out_the_hub_log(export: Path, hub: Hub) -> None:
    shutil.rmtree(export / "hublog")
    shutil.rmtree(export / "labels" / hub.label("orders").hex())
    manifest = HubManifest(hub_id=hub.identity.hub_id, labels=2, size=0)
    (export / "hub-export.cbor").write_bytes(manifest.encode())


def no_identity(export: Path, _hub: Hub) -> None:
    (export / "hub-identity.cbor").unlink()


def moved(export: Path, hub: Hub) -> None:
    place = export / "labels" / hub.label("orders").hex()
    place.rename(place.with_name("00" * 32))


def from_the_middle(export: Path, hub: Hub) -> None:
    place = export / "labels" / hub.label("orders").hex()
    shutil.rmtree(place)
    hub.export("orders", place, from_seq=3)


def unreadable_label(export: Path, hub: Hub) -> None:
    (export / "labels" / hub.label("orders").hex() / "manifest.cbor").write_bytes(b"\xff")


EXPORT_DAMAGE: dict[Callable[[Path, Hub], None], str] = {
    no_manifest: "the file is missing, so the export of the hub is incomplete",
    other_hub: "the hub_id differs from the one in hub-identity.cbor",
    other_size: "states size 16 of the hub log, but its checkpoint has 15",
    no_hub_log: "the file is missing",
    label_hidden_by_leaving_out_the_hub_log: "leads to a hub log of 15 entries, but the export has one of 0",
    no_identity: "has no hub-identity.cbor",
    moved: "this hub's export of the label in its name",
    from_the_middle: "from entry 1 on",
    unreadable_label: "export manifest",
}


@pytest.mark.parametrize("plant", EXPORT_DAMAGE, ids=lambda plant: plant.__name__)
def test_a_damaged_export_of_a_hub_is_a_fault(
    plant: Callable[[Path, Hub], None], shop: Hub, tmp_path: Path
) -> None:
    export = shop.export_hub(tmp_path / "export")
    plant(export, shop)
    assert EXPORT_DAMAGE[plant] in str(only_fault(check(export)).row())


def test_an_export_of_a_hub_without_labels_verifies(hub: Hub, tmp_path: Path) -> None:
    report = check(hub.export_hub(tmp_path / "export"))
    assert (report.ok, report.without_hub_log) == (True, (str(tmp_path / "export"),))


# --- files that change during the verification


def test_a_label_that_changes_while_it_is_compared_is_a_fault(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "walk", lambda _segment: iter(()))
    report = check(clone)  # every label has heads before its last entry
    assert len(report.faults) == 3
    assert "cannot be read again to compare it with the hub log" in str(report.faults[0].row())


def test_a_hub_log_that_changes_while_it_is_read_ends_the_verification(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def emptied(*args: Any) -> Any:
        (clone / "hublog" / "entries").write_bytes(b"")
        return compare_labels(*args)

    monkeypatch.setattr("veen_spark.verify.hub_log.check.compare_labels", emptied)
    with pytest.raises(DamagedLog, match="the file has changed"):
        check(clone)


# --- on Spark, and from the command line


def test_spark_gives_the_same_report_of_hub_logs(shop: Hub, spark: SparkSession, tmp_path: Path) -> None:
    good, bad = shop.clone(tmp_path / "good"), shop.export_hub(tmp_path / "bad")
    shutil.rmtree(bad / "labels" / shop.label("orders").hex())
    heads = heads_of(bad)
    heads[3] = dataclasses.replace(heads[3], mmr_root=MmrRoot(bytes(32)))
    rewrite(bad, heads, key=signing_key("hub/0"))
    report = verify(spark, str(good), str(bad), max_partition_bytes=9_000)
    assert report == check(good, bad, size=9_000)
    false, stated, *two_histories, missing = report.faults
    assert (false.label, missing.label) == (heads[3].label, shop.label("orders"))
    assert (stated.origin, len(two_histories)) == (str(bad), 2)


@pytest.mark.usefixtures("spark")
def test_the_command_shows_hub_logs_and_their_faults_in_words_and_json(shop: Hub, tmp_path: Path) -> None:
    shop.send("orders", 1, cheap=True)
    clone = shop.clone(tmp_path / "clone")
    good = run("verify", clone, "--hub-id", shop.hub_id.hex())
    assert good.exit_code == 0, good.stderr
    assert (
        f"hub log {clone / 'hublog'}: 15 heads, agrees with 3 labels; 1 label with later entries"
        in good.stdout
    )
    label = shop.label("returns")
    remove_label(clone, label)
    bad = run("verify", clone, "--json")
    assert bad.exit_code == 3
    found = json.loads(bad.stdout)
    assert [row["label"] for row in found["faults"]] == [label.hex()]
    assert found["hub_logs"][0]["size"] == 15
    shutil.rmtree(clone / "hublog")
    without = run("verify", clone)
    assert without.exit_code == 0
    assert (
        f"NO HUB LOG: nothing to check in {clone / 'log'}; a missing label would not show" in without.stdout
    )
