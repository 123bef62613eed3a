from __future__ import annotations

import dataclasses
import os
import shutil
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from veen_core import cbor, hub_identity
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.chunk import ChunkSummary, decode_peaks, parse_chunk_name
from veen_core.entry import split_frames
from veen_core.export import (
    MANIFEST,
    SIGNATURE,
    ExportedFile,
    ExportForm,
    FileHash,
    IndexRow,
    Manifest,
    PrunedPayload,
    PrunedRange,
)
from veen_core.ids import Epoch, HubId, HubPk, Label, MmrRoot, Signature, StreamSeq
from veen_core.keys import SigningKey
from veen_core.limits import Limits
from veen_core.msg import Msg
from veen_core.profile import PROFILES
from veen_core.receipt import Receipt
from veen_storage.chunks.retention import PruneRule
from veen_storage.copies.export import export, export_window, range_verifier, sequence, verify_export
from veen_storage.copies.export.sequence import read_sequence
from veen_storage.errors import AbsentError, DamageError, MismatchError, StorageError
from veen_storage.opening.rotation import rotate
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import (
    CONTROL,
    HUB_ID,
    HUB_KEY,
    ORDERS,
    Unsynced,
    at,
    authorize,
    checkpoint,
    prune,
    send,
    send_each,
    signing_key,
    token,
    tree,
)

FORMS: tuple[ExportForm, ...] = ("set", "chunks")
forms = pytest.mark.parametrize("form", FORMS)


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


def items(path: Path) -> list[bytes]:
    return list(cbor.split_sequence(path.read_bytes()))


@pytest.fixture
def written(make_store: MakeStore) -> Store:
    """Thirty entries in four chunks; the last ten are durable and not yet applied."""
    store = make_store()
    for n in range(10):
        send(store, ORDERS, now=at(n), who="alice")
        send(store, ORDERS, now=at(n), who="bob")
    store.apply()
    send(store, ORDERS, 10, now=at(60))
    return store


@forms
@pytest.mark.parametrize(
    ("start", "end"), [(1, 30), (1, 1), (8, 9), (9, 16), (12, 25), (30, 30)], ids=lambda n: f"{n}"
)
def test_a_range_verifies_from_its_files_alone(
    written: Store, tmp_path: Path, form: ExportForm, start: int, end: int
) -> None:
    export(written, ORDERS, seq(start), seq(end), tmp_path / "out", form=form)
    last = written.read.receipt(ORDERS, seq(end))
    written.close()
    shutil.rmtree(tmp_path / "data")
    verified = verify_export(tmp_path / "out", HUB_ID)
    assert (verified.entries, verified.pruned) == (end - start + 1, 0)
    assert verified.mmr_root == last.mmr_root
    assert verified.checkpoints == sum(start - 1 <= upto <= end for upto in (8, 16, 24))


@forms
def test_every_range_of_a_log_verifies(written: Store, tmp_path: Path, form: ExportForm) -> None:
    for start in range(1, 31, 3):
        for end in range(start, 31, 4):
            out = tmp_path / f"{start}-{end}"
            export(written, ORDERS, seq(start), seq(end), out, form=form, files=Unsynced())
            assert verify_export(out, HUB_ID).mmr_root == written.read.root(ORDERS, seq(end))


def test_the_set_holds_the_receipts_and_messages_in_order(written: Store, tmp_path: Path) -> None:
    export(written, ORDERS, seq(5), seq(20), tmp_path / "out")
    entries = [written.read.entry(ORDERS, seq(n)) for n in range(5, 21)]
    assert items(tmp_path / "out" / "receipts.cborseq") == [entry.receipt_bytes for entry in entries]
    assert items(tmp_path / "out" / "payloads.cborseq") == [entry.msg_bytes for entry in entries]
    assert items(tmp_path / "out" / "checkpoints.cborseq") == [
        written.read.checkpoint(ORDERS, seq(upto)).encode() for upto in (8, 16)
    ]


def test_the_sidecar_finds_any_entry_without_reading_the_rest(written: Store, tmp_path: Path) -> None:
    export(written, ORDERS, seq(5), seq(20), tmp_path / "out")
    payloads = (tmp_path / "out" / "payloads.cborseq").read_bytes()
    rows = [IndexRow.decode(row) for row in items(tmp_path / "out" / "payloads.index.cborseq")]
    assert [row.stream_seq for row in rows] == list(range(5, 21))
    found = next(cbor.split_sequence(payloads[rows[7].offset :]))
    assert Msg.decode(found) == written.read.entry(ORDERS, seq(12)).msg


def test_exported_chunks_are_byte_for_byte_the_hubs_own(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(zstd_level=3)
    plain = make_store("plain")
    for each in (store, plain):
        send(each, ORDERS, 30)
        each.apply()
    export(store, ORDERS, seq(5), seq(28), tmp_path / "out", form="chunks")
    whole = [name for name in tree(tmp_path / "out") if (p := parse_chunk_name(name)) and p.start in (9, 17)]
    assert len(whole) == 4
    for name in whole:
        assert (tmp_path / "out" / name).read_bytes() == (plain.layout.log / name).read_bytes()


def test_each_exported_chunk_verifies_alone(written: Store, tmp_path: Path) -> None:
    export(written, ORDERS, seq(5), seq(28), tmp_path / "out", form="chunks")
    files = tree(tmp_path / "out")
    parts = sorted(p.start for name in files if (p := parse_chunk_name(name)) and p.kind == "log")
    assert parts == [5, 9, 17, 25]
    for name, content in files.items():
        if not (parsed := parse_chunk_name(name)) or parsed.kind != "log":
            continue
        assert parsed.end is not None
        summary = ChunkSummary.decode(files[name.removesuffix("log") + "summary"])
        log = written.read.consistency(ORDERS, seq(parsed.start - 1), parsed.end)
        assert decode_peaks(files[f"peaks-{ORDERS.hex()}-{parsed.start - 1:020d}.cbor"]) == log.peaks_from
        entries = list(split_frames(content))
        assert [e.stream_seq for e in entries] == list(range(parsed.start, parsed.end + 1))
        assert summary.mmr_root_end == entries[-1].receipt.mmr_root


@forms
def test_pruned_entries_are_exported_and_marked(
    make_store: MakeStore, tmp_path: Path, form: ExportForm
) -> None:
    store = make_store()
    send_each(store, ORDERS, 30)
    prune(store, ORDERS, PruneRule(max_age_sec=20), at(37))
    manifest = export(store, ORDERS, seq(3), seq(26), tmp_path / "out", form=form)
    assert manifest.pruned == (PrunedRange(start_seq=seq(3), end_seq=seq(16)),)
    verified = verify_export(tmp_path / "out", HUB_ID)
    assert (verified.entries, verified.pruned) == (24, 14)
    if form == "set":
        payloads = items(tmp_path / "out" / "payloads.cborseq")
        receipts = [Receipt.decode(item) for item in items(tmp_path / "out" / "receipts.cborseq")]
        assert [r.stream_seq for r in receipts] == list(range(3, 27))
        assert PrunedPayload.decode(payloads[0]).pruned.receipt == receipts[0]
        assert Msg.decode(payloads[14]).leaf_hash == receipts[14].leaf_hash
    else:
        kinds = sorted((p.start, p.kind) for n in tree(tmp_path / "out") if (p := parse_chunk_name(n)))
        assert [kind for kind in kinds if kind[1] != "summary"] == [
            (3, "pruned"), (9, "pruned"), (17, "log"), (25, "log"),
        ]  # fmt: skip


@forms
def test_tokens_on_the_control_label_are_exported(
    make_store: MakeStore, tmp_path: Path, form: ExportForm
) -> None:
    store = make_store()
    authorize(store, token())
    send(store, CONTROL)
    authorize(store, token("bob"))
    export(store, CONTROL, seq(1), seq(3), tmp_path / "out", form=form)
    assert verify_export(tmp_path / "out", HUB_ID).entries == 3


@forms
def test_a_token_that_is_authorized_twice_is_refused(
    make_store: MakeStore, tmp_path: Path, form: ExportForm
) -> None:
    store = make_store()
    for _ in range(2):
        authorize(store, token())
    export(store, CONTROL, seq(1), seq(2), tmp_path / "out", form=form)
    with pytest.raises(DamageError, match="was already authorized by entry 1"):
        verify_export(tmp_path / "out", HUB_ID)


@forms
def test_an_export_across_a_key_rotation_verifies(
    make_store: MakeStore, tmp_path: Path, form: ExportForm
) -> None:
    store = make_store()
    send(store, ORDERS, 10, now=at(1))
    store.close()
    rotate(tmp_path / "data", signing_key("hub/1"), at(50), window_sec=10)
    store = make_store()
    send(store, ORDERS, 10, now=at(55))
    export(store, ORDERS, seq(1), seq(20), tmp_path / "out", form=form)
    assert len(verify_export(tmp_path / "out", HUB_ID).identity.hub_keys) == 2


def test_adjacent_exports_continue_each_other(written: Store, tmp_path: Path) -> None:
    first = export(written, ORDERS, seq(1), seq(13), tmp_path / "first")
    second = export(written, ORDERS, seq(14), seq(30), tmp_path / "second")
    assert second.peaks_before == first.peaks_after
    assert second.before is not None
    assert second.before.encode() == items(tmp_path / "first" / "receipts.cborseq")[-1]


def test_a_later_checkpoint_ties_the_range_to_the_newest_signed_tree(written: Store, tmp_path: Path) -> None:
    checkpoint(written, ORDERS, at(70))
    manifest = export(written, ORDERS, seq(3), seq(20), tmp_path / "out")
    assert manifest.later is not None
    assert manifest.later.checkpoint.upto_seq == 30
    verify_export(tmp_path / "out", HUB_ID)


def test_a_window_in_time_is_exported(written: Store, tmp_path: Path) -> None:
    manifest = export_window(written, ORDERS, at(3), at(60), tmp_path / "out")
    assert (manifest.from_seq, manifest.to_seq) == (7, 30)
    assert (manifest.from_ts, manifest.to_ts) == (at(3), at(60))
    verify_export(tmp_path / "out", HUB_ID)
    with pytest.raises(AbsentError, match="no entry from"):
        export_window(written, ORDERS, at(20), at(59), tmp_path / "none")


@pytest.mark.parametrize(("start", "end"), [(0, 3), (5, 4), (1, 31)], ids=["zero", "reversed", "beyond"])
def test_a_range_that_is_not_there_is_refused(written: Store, tmp_path: Path, start: int, end: int) -> None:
    with pytest.raises(AbsentError, match="has 30 entries"):
        export(written, ORDERS, seq(start), seq(end), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_into_a_folder_that_is_not_empty_is_refused(written: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not empty"):
        export(written, ORDERS, seq(1), seq(3), tmp_path)


def test_a_damaged_log_is_not_exported(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 4)
    store.apply()
    path = store.layout.chunk(ORDERS, seq(1), None)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamageError):
        export(store, ORDERS, seq(1), seq(4), tmp_path / "out")
    with pytest.raises(StorageError, match="not an export"):
        verify_export(tmp_path / "out", HUB_ID)


# --- what verification refuses


@forms
def test_every_flipped_bit_is_refused(make_store: MakeStore, tmp_path: Path, form: ExportForm) -> None:
    store = make_store()
    send(store, ORDERS, 3)
    checkpoint(store, ORDERS)
    send(store, ORDERS, 2)
    out = tmp_path / "out"
    export(store, ORDERS, seq(2), seq(4), out, form=form)
    for name, content in tree(out).items():
        for place in {0, len(content) // 2, len(content) - 1} if content else set():
            changed = bytearray(content)
            changed[place] ^= 1
            (out / name).write_bytes(bytes(changed))
            with pytest.raises((DamageError, MismatchError)) as refused:
                verify_export(out, HUB_ID)
            assert name in str(refused.value) or name == MANIFEST
        (out / name).write_bytes(content)
    verify_export(out, HUB_ID)


def test_another_hubs_export_is_refused(written: Store, tmp_path: Path) -> None:
    export(written, ORDERS, seq(1), seq(3), tmp_path / "out")
    with pytest.raises(MismatchError, match="pinned"):
        verify_export(tmp_path / "out", HubId(bytes(32)))


@forms
def test_missing_and_added_files_are_named(written: Store, tmp_path: Path, form: ExportForm) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(10), out, form=form)
    (out / "notes.txt").write_text("hello")
    with pytest.raises(DamageError, match=r"notes\.txt.*not in the manifest"):
        verify_export(out, HUB_ID)
    (out / "notes.txt").unlink()
    gone = next(path for path in out.iterdir() if path.suffix in (".cborseq", ".summary"))
    gone.unlink()
    with pytest.raises(DamageError, match=f"{gone.name}.*is missing"):
        verify_export(out, HUB_ID)


def resealed(out: Path, **changes: object) -> None:
    """Write a manifest that matches the files as they are now, as a forger would."""
    held = Manifest.decode((out / MANIFEST).read_bytes())
    files = tuple(
        ExportedFile(name=name, size=len(content), digest=FileHash(sha256(content).digest()))
        for name, content in sorted(tree(out).items())
        if name not in (MANIFEST, SIGNATURE)
    )
    (out / SIGNATURE).unlink(missing_ok=True)  # a forger has no key of the hub
    (out / MANIFEST).write_bytes(dataclasses.replace(held, files=files, **changes).encode())


def edit_sequence(out: Path, stem: str, edit: Callable[[list[bytes]], list[bytes]], first: int = 1) -> None:
    """Change the items of a sequence and write the matching sidecar."""
    changed = edit(items(out / f"{stem}.cborseq"))
    rows, offset = [], 0
    for number, item in enumerate(changed, start=first):
        rows.append(IndexRow(offset=offset, stream_seq=seq(number)).encode())
        offset += len(item)
    (out / f"{stem}.cborseq").write_bytes(b"".join(changed))
    (out / f"{stem}.index.cborseq").write_bytes(b"".join(rows))


def swapped(held: list[bytes]) -> list[bytes]:
    return [held[1], held[0], *held[2:]]


def shortened(held: list[bytes]) -> list[bytes]:
    return held[:-1]


def repeated(held: list[bytes]) -> list[bytes]:
    return [*held, held[0]]


@pytest.mark.parametrize(
    ("stems", "edit", "why"),
    [
        pytest.param(["payloads"], swapped, "I2: leaf_hash", id="messages-swapped"),
        pytest.param(["payloads"], shortened, "no item for receipt 6", id="message-left-out"),
        pytest.param(["payloads"], repeated, "more items", id="message-added"),
        pytest.param(["receipts"], swapped, "the index says stream_seq 1", id="receipts-swapped"),
        pytest.param(["receipts", "payloads"], swapped, "the index says stream_seq 1", id="entries-swapped"),
        pytest.param(["receipts", "payloads"], shortened, "to_seq is 6", id="end-cut-off"),
    ],
)
def test_a_forger_who_rewrites_the_manifest_still_fails(
    written: Store, tmp_path: Path, stems: list[str], edit: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(6), out)
    for stem in stems:
        edit_sequence(out, stem, edit)
    resealed(out)
    with pytest.raises(DamageError, match=why):
        verify_export(out, HUB_ID)


def test_a_duplicate_checkpoint_is_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(10), out)
    (once,) = items(out / "checkpoints.cborseq")
    (out / "checkpoints.cborseq").write_bytes(2 * once)
    rows = (IndexRow(offset=offset, stream_seq=seq(8)) for offset in (0, len(once)))
    (out / "checkpoints.index.cborseq").write_bytes(b"".join(row.encode() for row in rows))
    resealed(out)
    with pytest.raises(DamageError, match=rf"checkpoints\.cborseq at byte {len(once)}: .* already"):
        verify_export(out, HUB_ID)


@pytest.mark.parametrize(
    "forgery",
    [
        pytest.param(({"epoch": Epoch(1)}, [], "epoch"), id="epoch"),
        pytest.param(({"label_prev": CONTROL}, [], "label_prev"), id="label_prev"),
        pytest.param(({}, [signing_key("stranger")], "witness"), id="witness"),
    ],
)
@forms
def test_a_checkpoint_with_a_false_epoch_label_prev_or_witness_is_refused(
    written: Store, tmp_path: Path, form: ExportForm, forgery: tuple[dict[str, Any], list[SigningKey], str]
) -> None:
    """The hub's key signs all three, so that only the rules of core §4.4.1 and H9 can refuse them."""
    fields, witnesses, why = forgery
    out = tmp_path / "out"
    held = export(written, ORDERS, seq(1), seq(20), out, form=form)
    assert held.later is not None

    def forged(made: Checkpoint) -> Checkpoint:
        unsigned = dataclasses.replace(made, witness_sigs=None, **fields)
        return sign_checkpoint(HUB_KEY, unsigned, witnesses)

    resealed(out, later=dataclasses.replace(held.later, checkpoint=forged(held.later.checkpoint)))
    with pytest.raises(DamageError, match=f"later: .*{why}"):
        verify_export(out, HUB_ID)
    name = f"checkpoint-{ORDERS.hex()}-{16:020d}.cbor" if form == "chunks" else "checkpoints.cborseq"
    *kept, last = items(out / name)
    (out / name).write_bytes(b"".join([*kept, forged(Checkpoint.decode(last)).encode()]))
    resealed(out, later=held.later)
    with pytest.raises(DamageError, match=f"checkpoint at 16: .*{why}"):
        verify_export(out, HUB_ID)


def test_a_label_that_rotated_is_exported_and_verifies(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(profile=PROFILES["rotating"], previous_label=lambda _label: CONTROL)
    for second in range(0, 240, 30):
        send(store, ORDERS, 3, now=at(second))
    for first, last in ((1, 24), (1, 10), (9, 24), (10, 24), (17, 20)):
        out = tmp_path / f"{first}-{last}"
        export(store, ORDERS, seq(first), seq(last), out)
        assert verify_export(out, HUB_ID).entries == last - first + 1


def test_a_pruned_entry_that_acknowledges_a_later_entry_is_refused(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store, out = make_store(), tmp_path / "out"
    send(store, ORDERS, 20)
    prune(store, ORDERS, PruneRule(max_bytes=0), at(1))
    export(store, ORDERS, seq(1), seq(20), out)

    def forge(held: list[bytes]) -> list[bytes]:
        kept = PrunedPayload.decode(held[2]).pruned
        ahead = PrunedPayload(pruned=dataclasses.replace(kept, prev_ack=seq(3)))
        return [*held[:2], ahead.encode(), *held[3:]]

    edit_sequence(out, "payloads", forge)
    resealed(out)
    with pytest.raises(DamageError, match="pruned entry 3: I6: prev_ack 3 is beyond"):
        verify_export(out, HUB_ID)


@pytest.mark.parametrize("name", ["manifest.sig", "manifest.cbor", "receipts.cborseq", "registry.cbor"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_pipe_or_folder_instead_of_a_file_is_refused_at_once(
    written: Store, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    export(written, ORDERS, seq(1), seq(3), tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    make(tmp_path / "out" / name)
    with pytest.raises(StorageError, match=r"is not a file|has no manifest"):
        verify_export(tmp_path / "out", HUB_ID)


def test_a_checkpoint_file_with_another_checkpoint_is_named(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(20), out, form="chunks")
    held, other = (f"checkpoint-{ORDERS.hex()}-{upto:020d}.cbor" for upto in (8, 16))
    (out / held).write_bytes((out / other).read_bytes())
    resealed(out)
    with pytest.raises(DamageError, match=f"{held} at byte 0: checkpoint at 16"):
        verify_export(out, HUB_ID)


def test_a_receipt_of_another_signer_is_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(3), out)

    def forge(held: list[bytes]) -> list[bytes]:
        receipt = Receipt.decode(held[2])
        forged = dataclasses.replace(receipt, hub_sig=Signature(bytes(64)))
        return [*held[:2], forged.encode()]

    edit_sequence(out, "receipts", forge)
    resealed(out)
    with pytest.raises(DamageError, match=r"payloads\.cborseq at byte \d+: entry 3: RECEIPT\.hub_sig"):
        verify_export(out, HUB_ID)


@pytest.mark.parametrize(
    ("forged", "later", "why"),
    [
        pytest.param(2, 5, "entry 3: RECEIPT.hub_sig", id="signature-first"),
        pytest.param(5, 2, "entry 3: .*I10", id="damage-first"),
    ],
)
def test_of_several_faults_the_first_in_the_log_is_named(
    written: Store, tmp_path: Path, forged: int, later: int, why: str
) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(30), out)

    def forge(held: list[bytes]) -> list[bytes]:
        receipt = dataclasses.replace(Receipt.decode(held[forged]), hub_sig=Signature(bytes(64)))
        return [*held[:forged], receipt.encode(), *held[forged + 1 :]]

    edit_sequence(out, "receipts", forge)
    edit_sequence(out, "payloads", lambda held: [*held[:later], b"\x80", *held[later + 1 :]])
    resealed(out)
    with pytest.raises(DamageError, match=why):
        verify_export(out, HUB_ID)


def test_an_identity_that_does_not_chain_to_the_pin_is_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(3), out)
    mallory = signing_key("mallory")
    fake = dataclasses.replace(hub_identity.new_identity(mallory, at(0)), hub_id=HUB_ID)
    (out / "hub-identity.cbor").write_bytes(fake.encode())
    (out / "hub-identity.sig").write_bytes(hub_identity.sign_identity(mallory, fake))
    resealed(out)
    with pytest.raises(DamageError, match="hub_id is not the hash of the first key"):
        verify_export(out, HUB_ID)
    assert HubPk(mallory.public) not in written.identity.key_map.values()


def test_false_claims_of_the_manifest_are_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    held = export(written, ORDERS, seq(5), seq(20), out)
    assert held.before is not None
    assert held.later is not None
    claims: list[tuple[dict[str, object], str]] = [
        ({"peaks_before": held.peaks_after[:1]}, "before is not the RECEIPT|peaks"),
        ({"peaks_after": held.peaks_before}, "peaks_after"),
        ({"before": None}, "if and only if"),
        ({"before": dataclasses.replace(held.before, hub_ts=at(0))}, "hub_sig"),
        ({"from_ts": at(500)}, "from_ts"),
        ({"to_ts": at(500)}, "to_ts"),
        ({"to_seq": seq(21)}, "to_seq is 21"),
        ({"from_seq": seq(4)}, "peaks"),
        ({"pruned": (PrunedRange(start_seq=seq(5), end_seq=seq(6)),)}, "pruned"),
        ({"label": Label(bytes(32))}, "before"),
        ({"form": "chunks"}, "no place|is missing"),
        (
            {"later": dataclasses.replace(
                held.later,
                checkpoint=dataclasses.replace(held.later.checkpoint, mmr_root=MmrRoot(bytes(32))),
            )},
            "later",
        ),
    ]  # fmt: skip
    for changes, why in claims:
        resealed(out, **changes)
        with pytest.raises(DamageError, match=why):
            verify_export(out, HUB_ID)
        (out / MANIFEST).write_bytes(held.encode())
    verify_export(out, HUB_ID)


def test_a_sidecar_with_wrong_offsets_is_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(3), out)
    path = out / "receipts.index.cborseq"
    rows = [IndexRow.decode(row) for row in items(path)]
    rows[1] = IndexRow(offset=rows[1].offset + 1, stream_seq=rows[1].stream_seq)
    path.write_bytes(b"".join(row.encode() for row in rows))
    resealed(out)
    with pytest.raises(DamageError, match="where none begins"):
        verify_export(out, HUB_ID)
    path.write_bytes(b"".join(row.encode() for row in rows[:1]))
    resealed(out)
    with pytest.raises(DamageError, match="does not list"):
        verify_export(out, HUB_ID)


def test_a_forged_summary_and_a_missing_chunk_are_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(20), out, form="chunks")
    name = f"chunk-{ORDERS.hex()}-{1:020d}-{8:020d}"
    summary = ChunkSummary.decode((out / f"{name}.summary").read_bytes())
    lie = dataclasses.replace(summary, entry_count=7)
    (out / f"{name}.summary").write_bytes(lie.encode())
    resealed(out)
    with pytest.raises(DamageError, match="does not match its chunk"):
        verify_export(out, HUB_ID)
    for suffix in ("log", "summary"):
        (out / f"{name}.{suffix}").unlink()
    resealed(out)
    with pytest.raises(DamageError, match="does not follow entry 0"):
        verify_export(out, HUB_ID)


def test_sequences_are_read_through_a_small_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "WINDOW_BYTES", 16)
    path = tmp_path / "items.cborseq"
    held = [cbor.encode(bytes(n)) for n in range(40)]
    path.write_bytes(b"".join(held))
    assert [item for _offset, item in read_sequence(path, 64)] == held
    with pytest.raises(DamageError, match="byte"):
        list(read_sequence(path, 20))
    path.write_bytes(b"".join(held)[:-1])
    with pytest.raises(DamageError, match="byte"):
        list(read_sequence(path, 64))


@forms
def test_memory_does_not_grow_with_the_export(
    make_store: MakeStore, tmp_path: Path, form: ExportForm
) -> None:
    store = make_store(limits=Limits())
    for _ in range(16):
        send(store, ORDERS, 20, body=bytes(100_000))
        store.apply()
    tracemalloc.start()
    try:
        export(store, ORDERS, seq(1), seq(320), tmp_path / "out", form=form, files=Unsynced())
        verify_export(tmp_path / "out", HUB_ID)
        assert tracemalloc.get_traced_memory()[1] < 20 * 1_048_576  # of 32 MB: a page, its bytes, a buffer
    finally:
        tracemalloc.stop()


def test_more_writers_than_are_followed_still_verify(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_verifier, "MAX_WRITERS", 3)
    store = make_store()
    for n in range(12):
        send(store, ORDERS, who=f"writer {n % 5}")
    export(store, ORDERS, seq(1), seq(12), tmp_path / "out")
    verified = verify_export(tmp_path / "out", HUB_ID)
    assert verified.entries == 12
    assert not verified.followed_all


# --- what only the hub's signature of the manifest tells


@forms
def test_the_manifest_signature_covers_what_no_receipt_commits_to(
    written: Store, tmp_path: Path, form: ExportForm
) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(20), out, form=form)
    assert verify_export(out, HUB_ID).signed
    signature = (out / SIGNATURE).read_bytes()
    if form == "set":
        edit_sequence(out, "checkpoints", lambda _made: [])
    else:
        for path in out.glob("checkpoint-*"):
            path.unlink()
    resealed(out, later=None)
    assert not verify_export(out, HUB_ID).signed  # nothing else tells that they are gone
    (out / SIGNATURE).write_bytes(signature)
    with pytest.raises(DamageError, match=r"manifest\.sig.*does not verify for manifest"):
        verify_export(out, HUB_ID)


def test_an_export_of_a_clone_without_keys_is_not_signed(written: Store, tmp_path: Path) -> None:
    for key in written.layout.keys.iterdir():
        key.unlink()
    written.close()
    with Store(written.layout.root, background=False) as keyless:
        export(keyless, ORDERS, seq(1), seq(9), tmp_path / "out")
    assert not (tmp_path / "out" / SIGNATURE).exists()
    assert not verify_export(tmp_path / "out", HUB_ID).signed


def test_a_key_map_that_is_not_the_identitys_is_refused(written: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(written, ORDERS, seq(1), seq(9), out)
    (out / "hub-key-map.cbor").write_bytes(cbor.encode({bytes(32): bytes(32)}))
    resealed(out)
    with pytest.raises(DamageError, match="hub-key-map"):
        verify_export(out, HUB_ID)


def test_a_chunk_that_is_sealed_and_pruned_meanwhile_is_exported_as_pruned(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(store, ORDERS, 5)
    store.apply()
    entries = store.read.entries

    def prune_first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(store.read, "entries", entries)
        send(store, ORDERS, 15, now=at(1))
        assert [p.end_seq for p in prune(store, ORDERS, PruneRule(max_age_sec=0), at(60))] == [8, 16]
        return entries(*args, **kwargs)

    monkeypatch.setattr(store.read, "entries", prune_first)
    export(store, ORDERS, seq(1), seq(5), tmp_path / "out", form="chunks")
    assert verify_export(tmp_path / "out", HUB_ID).pruned == 5


def test_progress_is_reported_until_all_is_written(store: Store, tmp_path: Path) -> None:
    send(store, ORDERS, 9)
    told: list[tuple[int, int]] = []
    export(store, ORDERS, StreamSeq(3), StreamSeq(9), tmp_path / "out", progress=lambda *at: told.append(at))
    assert told[-1] == (7, 7)
