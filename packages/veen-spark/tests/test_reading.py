"""Log files become rows. These tests call the data source without Spark; ``test_source`` uses Spark."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from veen_core.chunk import chunk_name
from veen_core.entry import FRAME_SIZE, Entry, split_frames
from veen_core.ids import Label, StreamSeq
from veen_core.limits import Limits
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_spark.errors import DamagedLog, SparkSetupError
from veen_spark.read import rows

from .logs import BORN, Hub, files_of, lone_entry
from .reading import Reading


@pytest.fixture
def orders(hub: Hub) -> Hub:
    """Thirty entries: three sealed chunks of eight and one that still grows."""
    for n in range(3):
        hub.send("orders", 10, who=("alice", "bob")[n % 2])
    return hub


def test_every_form_of_a_log_gives_the_same_rows_as_the_hub_has(orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    orders.export("orders", tmp_path / "chunks", form="chunks")
    clone = orders.clone(tmp_path / "clone")
    entries = orders.store.read.entries(orders.label("orders"), 1, 30)
    held = [(entry.stream_seq, entry.receipt_bytes, entry.msg_bytes) for entry in entries]
    for place in (tmp_path / "set", tmp_path / "chunks", clone, clone / "log"):
        table = Reading(place).table
        columns = (table[name].to_pylist() for name in ("stream_seq", "receipt", "msg"))
        assert list(zip(*columns, strict=True)) == held
        assert set(table["hub_id"].to_pylist()) == {None if place.name == "log" else orders.hub_id}


def test_the_columns_are_what_the_objects_say(orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "chunks", form="chunks")
    for row in Reading(tmp_path / "chunks").table.to_pylist():
        receipt, msg = Receipt.decode(row["receipt"]), Msg.decode(row["msg"])
        for name in ("label", "stream_seq", "hub_ts", "leaf_hash", "mmr_root"):
            assert row[name] == getattr(receipt, name)
        for name in ("client_id", "client_seq", "prev_ack", "auth_ref", "ct_hash"):
            assert row[name] == getattr(msg, name)
        assert (row["kind"], row["hub_id"]) == ("msg", orders.hub_id)
        assert Path(row["file"]).read_bytes()[row["offset"] + FRAME_SIZE :].startswith(row["msg"])


def test_pruned_and_control_entries_are_rows_too(orders: Hub, tmp_path: Path) -> None:
    token = orders.authorize()
    assert orders.prune("orders", max_bytes=10_000) == 2
    orders.export("orders", tmp_path / "set")
    for place in (orders.clone(tmp_path / "clone"), tmp_path / "set"):
        found = Reading(place).table.to_pylist()
        pruned = [row for row in found if row["kind"] == "pruned"]
        assert [row["stream_seq"] for row in pruned] == list(range(1, 17))
        assert all(row["msg"] is None and row["client_id"] is not None for row in pruned)
        assert all(Receipt.decode(row["receipt"]).leaf_hash == row["leaf_hash"] for row in pruned)
        assert sum(row["kind"] == "msg" for row in found) == 14
    (control,) = (row for row in Reading(tmp_path / "clone").table.to_pylist() if row["kind"] == "authorize")
    assert (control["msg"], control["auth_ref"]) == (token.encode(), token.auth_ref)
    orders.export("control", tmp_path / "control")
    (exported,) = Reading(tmp_path / "control").table.to_pylist()
    assert (exported["kind"], exported["msg"]) == ("authorize", token.encode())


def test_compressed_chunks_are_read_as_if_they_were_not(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    hub = make_hub(zstd_level=3)
    hub.send("orders", 30)
    table = Reading(hub.clone(tmp_path / "clone")).table
    assert table["stream_seq"].to_pylist() == list(range(1, 31))
    before = hub.store.read.entries(hub.label("orders"), 1, 7)
    assert table["offset"][7].as_py() == sum(len(entry.encode()) for entry in before)


def test_a_compressed_chunk_cut_short_keeps_what_decompresses(
    make_hub: Callable[..., Hub], tmp_path: Path
) -> None:
    """Entries before the cut are rows; the incomplete entry is damage at its own offset."""
    hub = make_hub(zstd_level=3, limits=Limits(max_checkpoint_interval=200))
    hub.send("orders", bodies=[random.Random(n).randbytes(3_000) for n in range(201)], cheap=True)
    chunk = files_of(hub.clone(tmp_path / "clone"))[0]
    entries = list(hub.store.read.entries(hub.label("orders"), 1, 200))
    starts = list(accumulate((len(entry.encode()) for entry in entries), initial=0))
    content = chunk.read_bytes()
    for left in (len(content) // 2, len(content) * 3 // 4):
        chunk.write_bytes(content[:left])
        *rows, damaged = Reading(chunk, mode="quarantine").table.to_pylist()
        assert [row["msg"] for row in rows] == [entry.msg_bytes for entry in entries[: len(rows)]]
        assert len(rows) >= 200 * left // len(content) - 200_000 // 3_000
        assert damaged["offset"] == starts[len(rows)]
        assert "cannot be decompressed" in damaged["damage"]["reason"]
        assert damaged["damage"]["reason"].endswith(f"entries {len(rows) + 1} to 200 are missing")
        with pytest.raises(
            DamagedLog, match=f"{chunk}, byte {starts[len(rows)]}: the file cannot be decompressed"
        ):
            assert Reading(chunk).numbers


def test_a_chunk_is_cut_at_frames_and_a_set_at_its_index(hub: Hub, tmp_path: Path) -> None:
    hub.send("orders", 40)
    hub.export("orders", tmp_path / "set")
    for place in (hub.clone(tmp_path / "clone"), tmp_path / "set"):
        for size in ("700", "1500", "4000", "1000000"):
            reading = Reading(place, maxPartitionBytes=size)
            assert reading.numbers == list(range(1, 41))
            assert len(reading.parts) >= {"700": 20, "1500": 10, "4000": 5}.get(size, 1)
        assert len(reading.parts) == 1


def test_a_list_a_glob_and_a_folder_of_exports_are_read_together(orders: Hub, tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    orders.export("orders", exports / "a", to_seq=12)
    orders.export("orders", exports / "b", from_seq=13, form="chunks")
    for paths in ((exports / "*",), (exports,), (exports / "a", exports / "b"), (exports, exports / "a")):
        assert Reading(*paths).numbers == list(range(1, 31))


def test_a_glob_or_a_list_of_chunk_files_ignores_summaries(orders: Hub, tmp_path: Path) -> None:
    log = orders.clone(tmp_path / "clone") / "log"
    summaries, chunks = files_of(log, "*.summary"), files_of(log, "chunk-*")
    assert summaries
    for paths in ((log / "chunk-*",), (log / "*",), chunks):
        assert Reading(*paths).numbers == list(range(1, 31))
    for path in (summaries[0], log / "*.summary"):
        with pytest.raises(SparkSetupError, match="not an export, a data directory or a chunk file"):
            Reading(path)


def test_a_path_that_holds_only_part_of_a_log_is_refused(orders: Hub, tmp_path: Path) -> None:
    log = orders.clone(tmp_path / "clone") / "log"
    orders.export("orders", tmp_path / "weeks" / "46")
    orders.export("orders", tmp_path / "weeks" / "47", form="chunks")
    summaries = tmp_path / "summaries"
    summaries.mkdir()
    for path in files_of(log, "*.summary"):
        shutil.copy(path, summaries)
    for paths in (
        (log, summaries / "*"),
        (log, *files_of(summaries, "*")),
        (tmp_path / "weeks" / "*" / "*",),
    ):
        with pytest.raises(SparkSetupError, match="not an export, a data directory or a chunk file"):
            Reading(*paths)
    for paths in ((summaries,), (log, summaries)):
        with pytest.raises(DamagedLog, match="summaries but no chunk file"):
            Reading(*paths)


def test_a_chunk_in_two_forms_is_read_once_also_by_a_glob(orders: Hub, tmp_path: Path) -> None:
    log = orders.clone(tmp_path / "clone") / "log"
    first = files_of(log)[0]
    shutil.copy(
        first, log / chunk_name(orders.label("orders"), StreamSeq(1), None)
    )  # as after a kill while the chunk was sealed
    for place in (log, log / "chunk-*"):
        assert Reading(place).numbers == list(range(1, 31))


def test_a_folder_whose_name_could_be_a_glob_is_itself(orders: Hub, tmp_path: Path) -> None:
    clone = orders.clone(tmp_path / "week[46]")
    assert Reading(clone).numbers == list(range(1, 31))
    assert Reading(tmp_path / "week*").numbers == list(range(1, 31))


def test_a_hub_without_messages_is_an_empty_table(hub: Hub, tmp_path: Path) -> None:
    assert Reading(hub.clone(tmp_path / "clone")).numbers == []


def test_a_hundred_thousand_labels_are_a_few_parts(hub: Hub, tmp_path: Path) -> None:
    home = hub.clone(tmp_path / "clone")
    shape = lone_entry(0)
    read = {*range(8_192), 40_000, 77_777, 80_000}
    existing = home
    for number in range(100_000):
        label = Label(number.to_bytes(32, "big"))
        path = home / "log" / chunk_name(label, StreamSeq(1), None)
        if number not in read:  # planning only looks at names and sizes
            path.hardlink_to(existing)
            continue
        msg = shape.msg_bytes.replace(shape.label, label)  # reading does not verify signatures
        entry = Entry(label, StreamSeq(1), msg, shape.receipt_bytes.replace(shape.label, label))
        path.write_bytes(entry.encode())
        existing = path  # a file has at most 65,000 links
    reading = Reading(home)
    assert len(reading.parts) < 30
    batches = [batch for part in reading.parts[:2] for batch in reading.batches(part)]
    assert sum(batch.num_rows for batch in batches) == 8_192
    assert len(batches) == 8  # not one per label: a batch costs Spark more than its row
    wanted = EqualTo(("label",), (77_777).to_bytes(32, "big"))
    assert Reading(home, filters=(wanted,)).table["label"].to_pylist() == [wanted.value]


# --- filters


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ((GreaterThan(("stream_seq",), 8), LessThanOrEqual(("stream_seq",), 16)), range(9, 17)),
        ((EqualTo(("stream_seq",), 20),), [20]),
        ((In(("stream_seq",), (17, 20)),), range(17, 21)),
        ((EqualTo(("hub_ts",), BORN + 2),), range(11, 21)),
        ((GreaterThanOrEqual(("hub_ts",), BORN + 2), LessThan(("stream_seq",), 18)), range(11, 18)),
        ((GreaterThan(("hub_ts",), BORN + 3),), []),
        ((StringContains(("file",), "chunk"),), range(1, 31)),
    ],
    ids=["range", "one", "in", "moment", "since", "later", "not understood"],
)
@pytest.mark.parametrize("form", ["set", "chunks"])
def test_a_filter_excludes_only_rows_that_cannot_match(
    filters: Any, expected: Any, form: Any, orders: Hub, tmp_path: Path
) -> None:
    orders.export("orders", tmp_path / "export", form=form)
    assert Reading(tmp_path / "export", filters=filters).numbers == list(expected)


def test_files_that_a_filter_excludes_are_not_read(orders: Hub, tmp_path: Path) -> None:
    orders.send("invoices", 4)
    clone, invoices = orders.clone(tmp_path / "clone"), orders.label("invoices")
    chunks = [path for path in files_of(clone / "log", "chunk-*") if invoices.hex() not in path.name]
    for path in chunks:
        if "00001-0" in path.name or "00009-0" in path.name:
            path.write_bytes(b"damaged")
    assert Reading(clone, filters=(EqualTo(("label",), bytes(invoices)),)).numbers == [1, 2, 3, 4]
    assert Reading(clone, filters=(In(("label",), (bytes(invoices), b"")),)).numbers == [1, 2, 3, 4]
    only_orders = EqualTo(("label",), bytes(orders.label("orders")))
    after = (only_orders, GreaterThan(("stream_seq",), 16))
    assert Reading(clone, filters=after).numbers == list(range(17, 31))
    late = (only_orders, GreaterThan(("hub_ts",), BORN + 2))
    with pytest.raises(DamagedLog):  # its first receipt is unreadable, so the file is not excluded
        assert Reading(clone, filters=late).numbers


def test_a_filter_on_time_excludes_chunks_by_their_first_receipts(orders: Hub, tmp_path: Path) -> None:
    clone = orders.clone(tmp_path / "clone")
    assert len(Reading(clone, maxPartitionBytes="1").parts) == 30
    late = Reading(clone, filters=(GreaterThan(("hub_ts",), BORN + 2),), maxPartitionBytes="100000")
    (part,) = late.parts
    assert [segment.start_seq for segment in part.segments] == [17, 25]


@pytest.mark.parametrize("bit", [0x80, 0x40], ids=["later", "earlier"])
def test_a_flipped_bit_in_a_first_receipts_time_excludes_nothing(
    bit: int, orders: Hub, tmp_path: Path
) -> None:
    orders.export("orders", tmp_path / "chunks", form="chunks")
    second = files_of(tmp_path / "chunks")[1]
    at = frames(second)[1] - 66 - 4  # the four bytes of hub_ts, before the signature
    content = bytearray(second.read_bytes())
    assert int.from_bytes(content[at : at + 4], "big") == BORN + 1
    content[at] ^= bit
    second.write_bytes(content)
    for condition in (LessThan(("hub_ts",), BORN + 2), GreaterThan(("hub_ts",), BORN)):
        with pytest.raises(DamagedLog, match="entry_hash"):
            assert Reading(tmp_path / "chunks", filters=(condition,)).numbers


# --- damage


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def frames(path: Path) -> list[int]:
    """Return the offsets of the entries of a chunk, and the end of the last one."""
    starts = [0]
    for entry in split_frames(path.read_bytes()):
        starts.append(starts[-1] + len(entry.encode()))
    return starts


@pytest.fixture
def second_chunk(orders: Hub, tmp_path: Path) -> Path:
    orders.export("orders", tmp_path / "chunks", form="chunks")
    return files_of(tmp_path / "chunks")[1]


EVERYWHERE = [0, 1, 10, 34, 41, 43, 47, 60, 82, 83, 90, 186, 500]
"""Offsets in every field of the frame header and in the entry."""


@pytest.mark.parametrize("at", EVERYWHERE, ids=lambda at: f"byte {at}")
def test_a_damaged_frame_fails_the_read_with_file_and_offset(at: int, second_chunk: Path) -> None:
    third = frames(second_chunk)[2]
    flip(second_chunk, third + at)
    with pytest.raises(DamagedLog) as failed:
        assert Reading(second_chunk.parent).numbers
    assert str(failed.value).startswith(f"{second_chunk}, byte {third}: ")


@pytest.mark.parametrize("at", EVERYWHERE, ids=lambda at: f"byte {at}")
@pytest.mark.parametrize("size", ["1000000", "1000"], ids=["whole", "cut"])
def test_in_quarantine_a_damaged_frame_is_one_row_and_the_others_are_read(
    at: int, size: str, second_chunk: Path
) -> None:
    starts = frames(second_chunk)
    reading = Reading(second_chunk.parent, mode="quarantine", maxPartitionBytes=size)
    flip(second_chunk, starts[2] + at)
    assert reading.numbers == [n for n in range(1, 31) if n != 11]
    (damaged,) = (row for row in reading.table.to_pylist() if row["damage"] is not None)
    assert (damaged["file"], damaged["offset"]) == (str(second_chunk), starts[2])
    assert damaged["damage"]["reason"]
    if at not in (1, 34, 41):  # for these header bytes the frame is valid and its content is shown
        assert damaged["damage"]["length"] == starts[3] - starts[2]
        assert damaged["damage"]["bytes"] == second_chunk.read_bytes()[starts[2] :][:64]
    assert (damaged["stream_seq"], damaged["msg"]) == (None, None)
    assert damaged["label"] is not None  # so that a filter on the label keeps it


def test_a_truncated_chunk_keeps_its_complete_entries_and_reports_the_rest(second_chunk: Path) -> None:
    starts = frames(second_chunk)
    second_chunk.write_bytes(second_chunk.read_bytes()[: starts[5] + 30])
    reading = Reading(second_chunk, mode="quarantine")
    assert reading.numbers == [9, 10, 11, 12, 13]
    damaged = reading.table.to_pylist()[-1]
    assert (damaged["offset"], damaged["damage"]["length"]) == (starts[5], 30)
    assert "ends inside an entry" in damaged["damage"]["reason"]


@pytest.mark.parametrize("left", [0, 5])
@pytest.mark.parametrize("size", ["1000000", "1000"], ids=["whole", "cut"])
def test_a_chunk_that_ends_between_two_entries_is_incomplete(
    size: str, left: int, second_chunk: Path
) -> None:
    starts = frames(second_chunk)
    second_chunk.write_bytes(second_chunk.read_bytes()[: starts[left]])
    at, lost = starts[max(0, left - 1)], f"entries {9 + left} to 16 are missing"
    with pytest.raises(DamagedLog, match=f"byte {at}: .*the log ends too early; {lost}"):
        assert Reading(second_chunk.parent, maxPartitionBytes=size).numbers
    reading = Reading(second_chunk.parent, mode="quarantine", maxPartitionBytes=size)
    assert reading.numbers == [n for n in range(1, 31) if not 9 + left <= n <= 16]
    (damaged,) = (row for row in reading.table.to_pylist() if row["damage"] is not None)
    assert (damaged["offset"], damaged["damage"]["length"]) == (at, 0)
    assert damaged["damage"]["reason"].endswith(lost)


def test_a_set_without_its_last_entries_is_incomplete(orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    for name in ("payloads", "receipts"):
        (tmp_path / "set" / f"{name}.cborseq").write_bytes(b"")
    with pytest.raises(DamagedLog, match="entries 1 to 30 are missing"):
        assert Reading(tmp_path / "set").numbers


def test_two_damaged_places_are_two_rows(second_chunk: Path) -> None:
    starts = frames(second_chunk)
    for n in (1, 4, 5):
        flip(second_chunk, starts[n] + 45)
    rows = Reading(second_chunk, mode="quarantine").table.to_pylist()
    lost = [(row["offset"], row["damage"]["length"]) for row in rows if row["damage"] is not None]
    assert lost == [(starts[1], starts[2] - starts[1]), (starts[4], starts[6] - starts[4])]


@pytest.mark.parametrize("name", ["receipts", "payloads"])
def test_a_damaged_set_fails_or_is_quarantined(name: str, orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    flip(tmp_path / "set" / f"{name}.cborseq", 3)  # the length of the first item's first hash
    with pytest.raises(DamagedLog):
        assert Reading(tmp_path / "set").numbers
    rows = Reading(tmp_path / "set", mode="quarantine").table.to_pylist()
    assert any(row["damage"] for row in rows)


@pytest.mark.parametrize("size", ["1000000", "2000"], ids=["whole", "split"])
@pytest.mark.parametrize("name", ["receipts", "payloads"])
def test_any_flipped_bit_of_a_set_fails_the_read_and_is_a_row_in_quarantine(
    name: str, size: str, orders: Hub, tmp_path: Path
) -> None:
    orders.export("orders", tmp_path / "set")
    path = tmp_path / "set" / f"{name}.cborseq"
    whole = path.read_bytes()
    for at in random.Random(7).sample(range(len(whole)), 30):
        flip(path, at)
        with pytest.raises(DamagedLog, match=str(tmp_path / "set")):
            assert Reading(tmp_path / "set", maxPartitionBytes=size).numbers
        rows = Reading(tmp_path / "set", mode="quarantine", maxPartitionBytes=size).table.to_pylist()
        assert any(row["damage"] for row in rows), at
        path.write_bytes(whole)


def test_a_flipped_bit_in_a_ciphertext_of_a_set_damages_only_its_entry(orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    path = tmp_path / "set" / "payloads.cborseq"
    third = Reading(tmp_path / "set").table.to_pylist()[2]
    flip(path, third["offset"] + len(third["msg"]) - 100)
    with pytest.raises(DamagedLog, match=rf"{path}, byte {third['offset']}: .*MSG\.ct_hash"):
        assert Reading(tmp_path / "set").numbers
    reading = Reading(tmp_path / "set", mode="quarantine")
    assert reading.numbers == [n for n in range(1, 31) if n != 3]


@pytest.mark.parametrize("mode", ["failfast", "quarantine"])
def test_an_unreadable_chunk_file_is_damage(mode: str, second_chunk: Path) -> None:
    second_chunk.unlink()
    second_chunk.mkdir()
    if mode == "failfast":
        with pytest.raises(DamagedLog, match=f"{second_chunk}, byte 0: the file cannot be read"):
            assert Reading(second_chunk.parent).numbers
    else:
        numbers = Reading(second_chunk.parent, mode=mode, maxPartitionBytes="1").numbers
        assert numbers == [n for n in range(1, 31) if not 9 <= n <= 16]


def test_an_entry_missing_from_a_set_is_damage_not_a_shift(orders: Hub, tmp_path: Path) -> None:
    orders.export("orders", tmp_path / "set")
    path = tmp_path / "set" / "receipts.cborseq"
    first = orders.store.read.receipt(orders.label("orders"), 1)
    assert first is not None
    path.write_bytes(path.read_bytes()[len(first.encode()) :])
    with pytest.raises(DamagedLog, match="is 2, expected 1 at this position"):
        assert Reading(tmp_path / "set").numbers


def test_the_error_suggests_quarantine_only_where_it_helps(second_chunk: Path) -> None:
    content = second_chunk.read_bytes()
    flip(second_chunk, 0)
    with pytest.raises(DamagedLog, match="or read the rest with mode=quarantine"):
        assert Reading(second_chunk.parent).numbers
    second_chunk.write_bytes(content)
    flip(second_chunk.parent / "hub-identity.cbor", 0)
    with pytest.raises(DamagedLog, match=r"fetch the file again$"):  # the hub of these entries is unknown
        assert Reading(second_chunk.parent, mode="quarantine").numbers


@pytest.mark.parametrize("filters", [(), (GreaterThan(("stream_seq",), 0), GreaterThan(("hub_ts",), 0))])
def test_a_filter_does_not_hide_numbers_that_a_column_cannot_hold(
    filters: Any, orders: Hub, tmp_path: Path
) -> None:
    last = files_of(orders.clone(tmp_path / "clone"), "*.open")[0]
    last.rename(last.with_name(chunk_name(orders.label("orders"), StreamSeq(2**63), None)))
    assert Reading(tmp_path / "clone", filters=filters).numbers == list(range(1, 31))  # as its frames say
    manifest = orders.export("orders", tmp_path / "set")
    for from_seq, to_seq in ((2**63, 2**63 + 29), (2**64 - 1, 2**64 - 1), (30, 1)):
        wrong = dataclasses.replace(manifest, from_seq=StreamSeq(from_seq), to_seq=StreamSeq(to_seq))
        (tmp_path / "set" / "manifest.cbor").write_bytes(wrong.encode())
        with pytest.raises(DamagedLog, match="are not a valid range"):
            assert Reading(tmp_path / "set", filters=filters).numbers


def test_rows_decoded_one_by_one_are_sent_in_batches_of_bounded_size(
    second_chunk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(second_chunk, frames(second_chunk)[7] + 34)
    monkeypatch.setattr(rows, "MAX_BATCH_BYTES", 1_000)
    reading = Reading(second_chunk, mode="quarantine")
    assert [batch.num_rows for batch in reading.batches(reading.parts[0])] == [3, 3, 2]


def test_a_message_of_another_label_is_damage(tmp_path: Path) -> None:
    here, there = lone_entry(0), lone_entry(1)
    mixed = Entry(here.label, StreamSeq(1), there.msg_bytes, here.receipt_bytes)
    path = tmp_path / chunk_name(here.label, StreamSeq(1), None)
    path.write_bytes(mixed.encode())
    with pytest.raises(DamagedLog, match=r"byte 0: MSG\.label"):
        assert Reading(path).numbers


def test_a_frame_inside_a_message_is_not_taken_for_an_entry(hub: Hub, tmp_path: Path) -> None:
    """A malicious writer may embed a whole frame in a message."""
    hub.send("orders", 1)
    entry = next(iter(hub.store.read.entries(hub.label("orders"), 1, 1)))
    hub.send("orders", bodies=[entry.encode()] * 8, cheap=True)
    hub.export("orders", tmp_path / "chunks", form="chunks")
    for size in ("300", "1000", "100000"):
        assert Reading(tmp_path / "chunks", maxPartitionBytes=size).numbers == list(range(1, 10))


# --- wrong arguments


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("nowhere", {}, "does not exist"),
        ("nothing-*", {}, "nothing matches"),
        ("", {}, "is not an export, a data directory or a chunk file"),
        ("unrelated.txt", {}, "is not an export, a data directory or a chunk file"),
        ("", {"mode": "permissive"}, "permissive is not one of failfast, quarantine"),
        ("", {"mod": "quarantine"}, "has no option mod"),
        ("", {"maxPartitionBytes": "0"}, "0 is not an integer ≥ 1"),
    ],
)
def test_a_wrong_path_or_option_is_refused_with_the_reason(
    path: str, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "unrelated.txt").write_text("not a log")
    with pytest.raises(SparkSetupError, match=message):
        Reading(tmp_path / path, **options)
