"""``veen inspect`` names every VEEN file and common foreign files, and reports damage."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from zlib import crc32

import pytest

from veen_cli.evidence import rendering
from veen_cli.evidence.recognition import overlay_records, wire_kinds
from veen_cli.evidence.recognition import recognize as recognizing
from veen_cli.evidence.recognition.recognize import recognize
from veen_cli.evidence.recognition.recognized import Bare
from veen_cli.frame.exits import CommandFailed, Exit
from veen_core import cbor, chunk, mmr
from veen_core.entry import Entry
from veen_core.hashing import H
from veen_core.hub_identity import new_identity, rotate, sign_identity
from veen_core.ids import Epoch, HubId, HubPk, Label, MmrRoot, NodeHash, StreamSeq, UnixTime, VerifyKey
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import ED25519, NoteKey
from veen_core.wire import Wire
from veen_hub.client.state.records import EpochsRecord
from veen_hub.ops.anchors import GENESIS, AnchoredRoot, LedgerLine
from veen_overlays.identifiers import WalletId
from veen_overlays.kv import Put
from veen_overlays.schema.record import Record
from veen_overlays.wallet.records import Close
from veen_storage import DamageError
from veen_storage.chunks.pruned_chunk import encode_pruned
from veen_storage.commit import journal
from veen_storage.commit.changes import Anchor, Prune
from veen_storage.commit.journal import Item
from veen_storage.commit.journal_floor import Floor
from veen_storage.disk.hub_keys import NextIdentity, encode_key_map

from .conftest import STREAM, Town
from .running import veen

OLD, NEW = (SigningKey(SigningSeed(bytes([n]) * 32)) for n in (7, 8))
LABEL = Label(b"\x01" * 32)
IDENTITY = rotate(new_identity(OLD, UnixTime(1)), OLD, HubPk(NEW.public), UnixTime(2), 3)
SIGNATURE = sign_identity(NEW, IDENTITY)
PEAKS = [NodeHash(bytes([n]) * 32) for n in (1, 2)]
ROOT = AnchoredRoot(
    hub_id=HubId(b"\x02" * 32),
    label=LABEL,
    upto_seq=StreamSeq(3),
    mmr_root=MmrRoot(b"\x03" * 32),
    epoch=Epoch(0),
    ts=UnixTime(4),
)
ANCHOR = Anchor(label=LABEL, upto_seq=StreamSeq(3), anchor_ref=b"there")
PRUNE = Prune(label=LABEL, start_seq=StreamSeq(1), end_seq=StreamSeq(4), pruned_at=UnixTime(5))
CIPHERTEXT = bytes(range(256))
FLOOR = Floor(12, 10).text.encode()
SEGMENT = journal.segment_path(Path(), 7).name


@pytest.fixture(scope="session")
def entry(town: Town) -> Entry:
    """Return an entry from a chunk of a real hub."""
    town.as_("alice", "send", "recognize me", "-s", STREAM).ok()
    deadline = time.monotonic() + 30
    while True:  # the hub applies a moment later
        for path in (town / "hub/log").glob("chunk-*.open"):
            for found in recognize(str(path), path.read_bytes()):
                if isinstance(found.thing, Entry) and not found.thing.is_authorize:
                    return found.thing
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wal(*batches: list[Item], first: int = 7) -> bytes:
    data = b""
    for number, items in enumerate(batches, first):
        data += journal.encode_batch(number, items)
    return data


def forged(payload: bytes) -> bytes:
    """Return a batch with correct checksums and invalid items."""
    header = struct.pack(">4sQII32s", journal.MAGIC, 7, len(payload), 0, H(payload))
    return header + struct.pack(">I", crc32(header)) + payload + b"\xff"


def items(entry: Entry) -> list[Item]:
    return [
        Item(journal.ENTRY, entry.encode()),
        Item(journal.ANCHOR, ANCHOR.encode()),
        Item(journal.PRUNE, PRUNE.encode()),
    ]


@pytest.mark.parametrize(
    ("name", "data", "kind", "section"),
    [
        ("hub-identity.sig", bytes(SIGNATURE), "hub-identity signature", "8.4"),
        ("manifest.sig", bytes(SIGNATURE), "export manifest signature", "ADR 0007"),
        ("other.sig", bytes(SIGNATURE), "Ed25519 signature", "3.2"),
        ("peaks.cbor", chunk.encode_peaks(PEAKS), "peaks", "4.8.3"),
        ("hub-key-map.cbor", encode_key_map(IDENTITY), "hub-key-map", "8.4"),
        ("applied", FLOOR, "journal floor", "H2"),
        ("VERSION", f"veen-data 1 {'ab' * 32}\n".encode(), "data directory's VERSION", "14.1"),
        (H(CIPHERTEXT).hex(), CIPHERTEXT, "attachment's ciphertext", "4.6"),
        (
            "hub-identity.next",
            NextIdentity(identity=IDENTITY, signature=SIGNATURE).encode(),
            "hub-identity.next",
            "8.4",
        ),
        ("anchor.cbor", ANCHOR.encode(), "anchor", "ANCHOR0.2"),
        ("prune.cbor", PRUNE.encode(), "prune", "COMP0.1"),
        ("ledger", LedgerLine(offset=0, previous=GENESIS, root=ROOT).encode(), "ledger line", "ANCHOR0.1"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_each_kind_is_named_by_inspect_and_undecided_for_verify(
    tmp_path: Path, name: str, data: bytes, kind: str, section: str
) -> None:
    (tmp_path / name).write_bytes(data)
    told = veen("inspect", tmp_path / name, "--json").json["objects"][0]
    assert (told["kind"], told["section"]) == (kind, section)
    assert kind in veen("inspect", tmp_path / name).ok().out.splitlines()[0]
    judged = veen("verify", tmp_path / name, "--json")
    assert [each["holds"] for each in json.loads(judged.out)["verdicts"]] == [None]
    assert "not evidence" in judged.failed(Exit.PROTOCOL)


def test_peaks_are_shown_with_their_root(tmp_path: Path) -> None:
    (tmp_path / "peaks").write_bytes(chunk.encode_peaks(PEAKS))
    shown = veen("inspect", tmp_path / "peaks").ok().out
    assert PEAKS[1].hex() in shown
    assert f"mmr_root: {mmr.root_of(PEAKS).hex()}" in shown


def test_similar_cbor_is_of_an_unknown_kind() -> None:
    bent = dict.fromkeys(map(bytes, IDENTITY.key_map), bytes(OLD.public))
    for name, data in {
        "hub-key-map.cbor": cbor.encode(bent),
        "peaks.cbor": cbor.encode([bytes(PEAKS[0]), b"short"]),
        H(b"other").hex(): cbor.encode([1, 2]),
    }.items():
        assert [found.name for found in recognize(name, data)] == ["CBOR of an unknown kind"]


def test_an_overlay_record_is_named_if_only_one_schema_fits(town: Town, tmp_path: Path) -> None:
    seq = town.as_("alice", "kv", "put", "colour", "blue", "-s", STREAM, "--json").json["stream_seq"]
    put = Put(key=b"colour", value=b"blue")
    shown = town.as_("alice", "stream", "-s", STREAM, "--from", seq, "--upto", seq, "-q").ok().out.strip()
    assert shown == put.encode().hex()
    (tmp_path / "record").write_text(shown)
    (told,) = veen("inspect", tmp_path / "record", "--json").json["objects"]
    assert (told["kind"], told["value"]) == ("kv.put.v1", {"key": b"colour".hex(), "value": b"blue".hex()})
    assert Put.SCHEMA.hex() in told["derived"].values()
    assert "not evidence" in veen("verify", tmp_path / "record").failed(Exit.PROTOCOL)


def test_a_record_that_fits_several_schemas_is_of_an_unknown_kind() -> None:
    close = Close(wallet_id=WalletId(bytes(32)), ts=UnixTime(1))
    stray = {"key": b"colour", "value": b"blue", "more": 1}
    for data in (close.encode(), cbor.encode(stray), cbor.encode({"key": "colour"})):
        assert [found.name for found in recognize("-", data)] == ["CBOR of an unknown kind"]


@pytest.mark.parametrize("schema", overlay_records.SCHEMAS, ids=lambda schema: schema.__name__)
def test_no_overlay_record_decodes_as_a_wire_object(schema: type[Record]) -> None:
    """Wire objects are tried first, so such a record would get the wrong name."""
    assert _form(schema) not in [_form(kind) for kind in wire_kinds.KINDS]


def _form(kind: type[Wire] | type[Record]) -> dict[int | str, str]:
    """The CBOR type of each field."""
    return {field.key: _cbor_type(field.kind.describe()) for field in kind.codec.fields}


def _cbor_type(described: str) -> str:
    types = {"[": "array", "b": "bytes", "t": "text", "'": "text", "u": "uint", "1": "uint"}
    return "bool" if described == "bool" else types.get(described[0], described)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("hub-identity.sig", bytes(SIGNATURE)[:-1], "has 64 bytes, this file has 63"),
        ("applied", FLOOR.replace(b"12", b"13"), "with a wrong checksum"),
    ],
    ids=["signature", "floor"],
)
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_damaged_file_is_reported_as_damaged(
    command: str, tmp_path: Path, name: str, data: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert why in veen(command, tmp_path / name).failed(Exit.PROTOCOL)


def test_an_attachment_whose_hash_is_not_its_name_is_not_recognized() -> None:
    with pytest.raises(CommandFailed, match="not a VEEN file"):
        recognize(H(CIPHERTEXT).hex(), CIPHERTEXT[:-1])


# --- the journal


def test_a_journal_segment_yields_every_item_of_its_batches(entry: Entry, tmp_path: Path) -> None:
    (tmp_path / SEGMENT).write_bytes(wal(items(entry), items(entry)[1:]))
    told = veen("inspect", tmp_path / SEGMENT, "--json").json["objects"]
    assert [each["kind"] for each in told] == [
        *("log entry", "anchor", "prune"),
        *("anchor", "prune"),
        "journal segment",
    ]
    assert told[3]["file"].endswith(f"{SEGMENT} batch 8 item 1")
    assert told[-1]["value"] == {"first batch": 7, "last batch": 8}
    assert "§4.8.1" in veen("inspect", "-", stdin=(tmp_path / SEGMENT).read_bytes()).ok().out


def test_the_journal_and_the_files_of_a_data_directory_are_recognized(town: Town, entry: Entry) -> None:
    del entry  # it was written, so there is a segment
    (*_, newest) = journal.list_segments(town / "hub/journal")
    told = veen("inspect", newest, "--json").json["objects"]
    assert told[-1]["kind"] == "journal segment"
    for name in ("VERSION", "hub-identity.sig", "hub-key-map.cbor", "journal/applied"):
        veen("inspect", town / "hub" / name).ok()


def test_entries_in_a_journal_are_verified_and_the_segment_itself_is_undecided(
    town: Town, tmp_path: Path
) -> None:
    (*_, newest) = journal.list_segments(town / "hub/journal")
    (tmp_path / newest.name).write_bytes(newest.read_bytes())
    veen("hub", "keys", "--data-dir", town / "hub", "--out", tmp_path / "hub-identity.cbor").ok()
    judged = veen(
        *("verify", tmp_path / newest.name, tmp_path / "hub-identity.cbor"),
        *("--trust", town.hub_id, "--json"),
    )
    verdicts = json.loads(judged.out)["verdicts"]
    assert {each["holds"] for each in verdicts if each["kind"] == "log entry"} == {True}
    assert [each["holds"] for each in verdicts if each["kind"] == "journal segment"] == [None]
    assert judged.code == Exit.PROTOCOL


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_damaged_segment_is_reported_and_nothing_is_skipped(
    command: str, entry: Entry, tmp_path: Path
) -> None:
    data = bytearray(wal(items(entry), items(entry)))
    data[200] ^= 1
    (tmp_path / SEGMENT).write_bytes(data)
    failed = veen(command, tmp_path / SEGMENT).failed(Exit.PROTOCOL)
    assert "at byte 0: a batch does not match its checksum" in failed
    (tmp_path / SEGMENT).write_bytes(b"X" + data[1:])
    assert "batch header" in veen(command, tmp_path / SEGMENT).failed(Exit.PROTOCOL)


def test_a_torn_last_batch_is_accepted_only_in_the_newest_segment(entry: Entry, tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(wal(items(entry), items(entry))[:-20])
    shown = veen("inspect", path).ok().out
    assert "torn: " in shown
    assert "never fully reached the disk" in shown
    assert shown.count("log entry") == 1
    (tmp_path / journal.segment_path(Path(), 9).name).write_bytes(wal(items(entry), first=9))
    assert "cut short" in veen("inspect", path).failed(Exit.PROTOCOL)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (wal([Item(journal.ANCHOR, b"\xa0")]), "anchor"),
        (wal([Item(9, b"new")]), "unknown kind 9"),
        (forged(b"\x03\x00\x00\x00\x09short"), "ends after the batch"),
        (forged(b"\x03\x00"), "ends after the batch"),
        (wal([Item(journal.ANCHOR, ANCHOR.encode())]) * 2, "batch 7 comes directly after batch 7"),
    ],
    ids=["undecodable", "unknown", "long", "headless", "twice"],
)
def test_a_malformed_batch_is_damage(data: bytes, why: str) -> None:
    with pytest.raises(DamageError, match=why):
        recognize("-", data)


# --- chunks


def test_a_pruned_chunk_yields_its_header_and_its_pruned_entries(entry: Entry, tmp_path: Path) -> None:
    head = chunk.PrunedHead(
        label=entry.label,
        start_seq=entry.stream_seq,
        end_seq=entry.stream_seq,
        pruned_at=UnixTime(5),
        sizes=(len(entry.encode()),),
    )
    data = encode_pruned(head, [chunk.prune(entry)])
    (tmp_path / "pruned").write_bytes(data)
    told = veen("inspect", tmp_path / "pruned", "--json").json["objects"]
    assert [each["kind"] for each in told] == ["pruned chunk", "pruned entry"]
    (tmp_path / "pruned").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "offsets" in veen("inspect", tmp_path / "pruned").failed(Exit.PROTOCOL)


def test_a_damaged_chunk_is_not_reported_as_a_foreign_file(entry: Entry, tmp_path: Path) -> None:
    whole = entry.encode()
    (tmp_path / "chunk").write_bytes(whole + whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "is a damaged chunk: entry at byte" in veen("inspect", tmp_path / "chunk").failed(Exit.PROTOCOL)
    name = chunk.chunk_name(entry.label, StreamSeq(1), None)
    (tmp_path / name).write_bytes(whole[:-1])
    assert "is a damaged chunk" in veen("inspect", tmp_path / name).failed(Exit.PROTOCOL)


# --- foreign files


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PAR1\x15\x04", "a Parquet file"),
        (bytes(16) + b"\xde\xc0\xef\xbe" + bytes(9), "an LMDB database"),
        (b"\xde\xc0\xef\xbe" + bytes(9), "LMDB's lock file"),
        (b'{"a": 1}\n{"a": 2}\n', "JSON text"),
        (b'{\n  "a": 1\n}\n', "JSON text"),
        (b'<?xml version="1.0"?><testsuites/>', "XML"),
        (b"-----BEGIN CERTIFICATE-----\n", "PEM text"),
        ("gating: false  # für alle\n".encode(), "plain text"),
        (b"123456\n", "plain text"),
        (b"logs: []\nwitnesses\n", "plain text"),
        (b"veen-data one\n", "plain text"),
    ],
    ids=["parquet", "lmdb", "lmdb-lock", "jsonl", "json", "xml", "pem", "yaml", "pid", "words", "version"],
)
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_foreign_file_is_named_for_what_it_is(command: str, tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "file").write_bytes(data)
    assert f"not a VEEN file, but {why}" in veen(command, tmp_path / "file").failed(Exit.PROTOCOL)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"# mine\nquorm none\nquorum none\n", "line 2: 'quorm none' is not a line of a policy"),
        (b"witness w x\n", "line 1: verifier key"),
        (
            f"log {NoteKey('log.example', ED25519, VerifyKey(bytes(32))).text}\n".encode(),
            "has no quorum line",
        ),
    ],
    ids=["misspelt word", "no key", "no quorum"],
)
def test_a_witness_policy_with_an_error_is_shown_the_error(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "policy.txt").write_bytes(data)
    failed = veen("inspect", tmp_path / "policy.txt").failed(Exit.PROTOCOL)
    assert "read as a witness policy: policy (C2SP tlog-policy)" in failed
    assert why in failed
    assert "a policy has lines log, witness, group, quorum" in failed


def test_a_truncated_object_is_reported_as_truncated() -> None:
    with pytest.raises(CommandFailed, match=r"it holds no object .*ends early.*fetch it again"):
        recognize("anchor.cbor", ANCHOR.encode()[:-1])
    with pytest.raises(CommandFailed, match=f"from byte {len(ANCHOR.encode())} on"):
        recognize("anchors", ANCHOR.encode() + ANCHOR.encode()[:-1])


# --- bounds


def test_meaningless_bytes_cost_bounded_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(*_: object) -> None:
        pytest.fail("nothing of ours begins so")

    monkeypatch.setattr(wire_kinds.cbor, "decode_items", tried)
    assert wire_kinds.decode_any(b"\x80") is None
    monkeypatch.undo()
    assert len(recognize("-", b"\x80" * 1_000)) == 1_000
    monkeypatch.setattr(recognizing, "MAX_OBJECTS", 999)
    with pytest.raises(CommandFailed, match="more than 999 objects"):
        recognize("-", b"\x80" * 1_000)
    large = cbor.encode([bytes(recognizing.MAX_UNKNOWN_BYTES)])
    with pytest.raises(CommandFailed, match="of an unknown kind"):
        recognize("-", large)


def test_a_long_list_is_shortened_in_text_but_not_in_json(tmp_path: Path) -> None:
    record = EpochsRecord(epochs=tuple(map(Epoch, range(rendering.MAX_SHOWN_ITEMS + 7))))
    (tmp_path / "epochs").write_bytes(record.encode())
    assert "… and 7 more" in veen("inspect", tmp_path / "epochs").ok().out
    told = veen("inspect", tmp_path / "epochs", "--json").json["objects"][0]
    assert len(told["value"]["epochs"]) == rendering.MAX_SHOWN_ITEMS + 7


def test_no_view_shows_a_secret() -> None:
    """Only typed secrets are hidden, so no bare object may contain one."""
    made = Bare("x", "3.2", {"held": SigningSeed(b"\x09" * 32)})
    assert (b"\x09" * 32).hex() not in json.dumps(rendering.as_dict(made)) + "".join(rendering.as_lines(made))
