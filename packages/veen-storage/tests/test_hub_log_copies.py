"""Clones, forks and exports carry the hub log, and a label that is missing from one of them shows (P1)."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from veen_core.export import IDENTITY, MANIFEST, SIGNATURE, ExportedFile, ExportForm, FileHash, Manifest
from veen_core.hub_export import HUB_EXPORT, HUB_HEAD, HubHead, HubManifest
from veen_core.hub_log import LabelHead
from veen_core.ids import MmrRoot, NodeHash, StreamSeq
from veen_core.tlog.note import Note, sign_note
from veen_core.tlog.tiles import decode_bundle, encode_bundle
from veen_core.tlog.tree import Tree, leaf_hash
from veen_core.tlog.tree_head import SignedHead, TreeHead, parse_signed_head
from veen_storage.copies.clone import clone
from veen_storage.copies.consistent_prefix import take_cut
from veen_storage.copies.export import (
    export,
    export_hub,
    range_verifier,
    verify_export,
    verify_hub_export,
)
from veen_storage.copies.fork import fork
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, MismatchError, StorageError
from veen_storage.store import Store

from .conftest import MakeStore
from .oracle import check_files, hub_entries
from .sample import (
    HUB_ID,
    HUB_KEY,
    INVOICES,
    ORDERS,
    ORIGIN,
    Unsynced,
    at,
    hub_checkpoint,
    label,
    send,
    signing_key,
)

NEWS = label("news")
FORMS: tuple[ExportForm, ...] = ("set", "chunks")
forms = pytest.mark.parametrize("form", FORMS)


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    """Three labels; two hub checkpoints, the first published; one label has moved since the second."""
    store = make_store()
    send(store, ORDERS, 10, now=at(1))
    send(store, INVOICES, 3, now=at(1))
    first = hub_checkpoint(store, at(2))
    assert first is not None
    send(store, ORDERS, 4, now=at(3))
    send(store, NEWS, now=at(3))
    hub_checkpoint(store, at(4))
    send(store, ORDERS, now=at(5))
    store.publish(first)
    store.apply()
    return store


# --- clone


def test_a_clone_has_the_hub_log_and_continues_it(store: Store, tmp_path: Path) -> None:
    clone(store, tmp_path / "clone", with_keys=True, files=Unsynced())
    check_files(tmp_path / "clone")
    with Store(tmp_path / "clone", background=False) as copy:
        for ours, theirs in ((store.hub_log, copy.hub_log),):
            assert theirs.checkpoint == ours.checkpoint
            assert theirs.published == ours.published
            assert theirs.moved == ours.moved == 1
        assert hub_entries(copy) == hub_entries(store)
        assert hub_checkpoint(copy, at(9)) == hub_checkpoint(store, at(9))


def test_a_clone_of_an_open_store_ends_at_the_hub_checkpoint_that_is_applied(
    store: Store, tmp_path: Path
) -> None:
    applied = store.hub_log.checkpoint
    send(store, NEWS, 3, now=at(6))
    later = hub_checkpoint(store, at(7))
    assert later is not None
    store.publish(later)
    cut = take_cut(store.index)
    assert cut.hub_log is not None
    assert parse_signed_head(cut.hub_log.checkpoint) == applied
    clone(store, tmp_path / "clone", files=Unsynced())
    check_files(tmp_path / "clone")
    with Store(tmp_path / "clone", background=False) as copy:
        assert copy.hub_log.checkpoint == applied
        assert copy.hub_log.published is None, "its entries are not in the clone"


def test_a_damaged_hub_log_is_not_cloned(store: Store, tmp_path: Path) -> None:
    path = store.layout.hub_log_entries
    data = path.read_bytes()
    path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    with pytest.raises(DamageError, match="hublog/"):
        clone(store, tmp_path / "clone", files=Unsynced())
    assert not (tmp_path / "clone" / "VERSION").exists()


# --- fork


def forked(store: Store, tmp_path: Path, upto: dict[bytes, int]) -> tuple[Path, Path]:
    target = tmp_path / "fork"
    cuts = {type(ORDERS)(name): StreamSeq(end) for name, end in upto.items()}
    fork(store, target, signing_key("fork/0"), at(100), cuts, files=Unsynced())
    check_files(target)
    ancestor = Layout(target).ancestor(store.identity.hub_id)
    check_files(ancestor)
    return target, ancestor


def test_a_fork_has_a_hub_log_of_its_own_and_keeps_the_old_one_as_evidence(
    store: Store, tmp_path: Path
) -> None:
    target, ancestor = forked(store, tmp_path, {})
    with Store(target, background=False) as new:
        assert (new.hub_log.size, new.hub_log.moved, new.hub_log.published) == (0, 0, None)
    with Store(ancestor, background=False) as old:
        assert (old.hub_log.checkpoint, old.hub_log.published) == (
            store.hub_log.checkpoint,
            store.hub_log.published,
        )


CUTS = {
    "at its newest head": ({ORDERS: 14}, True),
    "after its newest head": ({NEWS: 1}, True),
    "before its newest head": ({ORDERS: 13}, False),
    "before all its heads": ({ORDERS: 2}, False),
    "left out": ({INVOICES: 0}, False),
}


@pytest.mark.parametrize(("upto", "kept"), CUTS.values(), ids=CUTS)
def test_an_ancestor_that_ends_before_a_head_has_no_hub_log(
    store: Store, tmp_path: Path, upto: dict[bytes, int], kept: bool
) -> None:
    """The hub checkpoint commits to entries that the ancestor does not have."""
    _target, ancestor = forked(store, tmp_path, upto)
    with Store(ancestor, background=False) as old:
        assert old.hub_log.checkpoint == (store.hub_log.checkpoint if kept else None)
        assert old.hub_log.published == (store.hub_log.published if kept else None)


# --- export of one label


@forms
@pytest.mark.parametrize(
    ("to_seq", "size"), [(3, 2), (10, 2), (11, 4), (14, 4), (15, None)], ids=lambda n: f"{n}"
)
def test_an_export_leads_to_the_published_hub_checkpoint_or_to_the_newest_that_covers_it(
    store: Store, tmp_path: Path, form: ExportForm, to_seq: int, size: int | None
) -> None:
    export(store, ORDERS, StreamSeq(2), StreamSeq(to_seq), tmp_path / "out", form=form, files=Unsynced())
    found = verify_export(tmp_path / "out", HUB_ID).hub_checkpoint
    assert (found.head.size if found is not None else None) == size
    assert (tmp_path / "out" / HUB_HEAD).exists() == (size is not None)


def change_head(out: Path, change: Callable[[HubHead], HubHead]) -> None:
    """Replace hub-head.cbor, and its hash in the manifest."""
    (out / HUB_HEAD).write_bytes(change(HubHead.decode((out / HUB_HEAD).read_bytes())).encode())
    content = (out / HUB_HEAD).read_bytes()
    manifest = Manifest.decode((out / MANIFEST).read_bytes())
    new = ExportedFile(name=HUB_HEAD, size=len(content), digest=FileHash(sha256(content).digest()))
    files = tuple(new if file.name == HUB_HEAD else file for file in manifest.files)
    (out / MANIFEST).write_bytes(dataclasses.replace(manifest, files=files).encode())
    (out / SIGNATURE).unlink()


def unsigned(head: HubHead) -> HubHead:
    signed = parse_signed_head(head.checkpoint)
    mallory = Note(signed.note.text, (sign_note(signing_key("mallory"), ORIGIN, signed.note.text),))
    return dataclasses.replace(head, checkpoint=mallory.encode())


def of_label(head: HubHead, **fields: object) -> HubHead:
    return dataclasses.replace(head, head=dataclasses.replace(head.head, **fields))  # type: ignore[arg-type]


NO_HASH = NodeHash(bytes(32))
FORGED: dict[str, tuple[Callable[[HubHead], HubHead], str]] = {
    "another label": (lambda head: of_label(head, label=NEWS), "another label"),
    "another root": (lambda head: of_label(head, mmr_root=MmrRoot(bytes(32))), "hub-head.cbor"),
    "another index": (lambda head: dataclasses.replace(head, index=1 - head.index), "inclusion proof"),
    "no consistency proof": (lambda head: dataclasses.replace(head, consistency=None), "at entry 9"),
    "another proof": (
        lambda head: dataclasses.replace(head, proof=(NO_HASH,)),
        "inclusion proof",
    ),
    "another key": (unsigned, "no key of the hub signed it"),
    "no note": (lambda head: dataclasses.replace(head, checkpoint=b"x"), "hub-head.cbor"),
}


@pytest.mark.parametrize(("change", "message"), FORGED.values(), ids=FORGED)
def test_a_hub_head_that_proves_nothing_is_refused(
    store: Store, tmp_path: Path, change: Callable[[HubHead], HubHead], message: str
) -> None:
    out = tmp_path / "out"
    export(store, ORDERS, StreamSeq(1), StreamSeq(9), out, files=Unsynced())
    change_head(out, lambda head: head)
    verify_export(out, HUB_ID)
    shutil.rmtree(out)
    export(store, ORDERS, StreamSeq(1), StreamSeq(9), out, files=Unsynced())
    change_head(out, change)
    with pytest.raises(DamageError, match=message) as refused:
        verify_export(out, HUB_ID)
    assert refused.value.file == HUB_HEAD


# --- export of a whole hub


@pytest.fixture
def out(store: Store, tmp_path: Path) -> Path:
    export_hub(store, tmp_path / "out", files=Unsynced())
    return tmp_path / "out"


@forms
def test_an_export_of_a_hub_proves_which_labels_there_are(
    store: Store, tmp_path: Path, form: ExportForm
) -> None:
    seen: list[tuple[int, int]] = []
    manifest = export_hub(
        store, tmp_path / "out", form=form, files=Unsynced(), progress=lambda *at: seen.append(at)
    )
    signed, published = store.hub_log.checkpoint, store.hub_log.published
    store.close()
    shutil.rmtree(tmp_path / "data")
    verified = verify_hub_export(tmp_path / "out", HUB_ID)
    assert verified.manifest == manifest
    assert (verified.manifest.labels, verified.entries, verified.manifest.size) == (3, 19, 4)
    assert (verified.checkpoint, verified.published) == (signed, published)
    assert verified.uncovered == (ORDERS,)
    assert verified.followed_all
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_export_of_a_hub_with_more_writers_than_are_followed_says_so(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_verifier, "MAX_WRITERS", 1)
    for number in range(3):
        send(store, ORDERS, who=f"writer {number}", now=at(6))
    store.apply()
    export_hub(store, tmp_path / "out", files=Unsynced())
    assert not verify_hub_export(tmp_path / "out", HUB_ID).followed_all


def test_a_label_that_is_missing_from_an_export_of_a_hub_is_named(out: Path) -> None:
    shutil.rmtree(out / "labels" / NEWS.hex())
    message = f"labels/{NEWS.hex()}: is missing: the hub log has its head at entry 1"
    with pytest.raises(DamageError, match=message):
        verify_hub_export(out, HUB_ID)


def test_a_label_cannot_be_hidden_by_leaving_out_the_hub_log(out: Path) -> None:
    shutil.rmtree(out / "labels" / NEWS.hex())
    shutil.rmtree(out / "hublog")
    (out / HUB_EXPORT).write_bytes(HubManifest(hub_id=HUB_ID, labels=2, size=0).encode())
    with pytest.raises(DamageError, match="leads to a hub log of 2 entries, but hublog/entries has 0"):
        verify_hub_export(out, HUB_ID)


def test_a_label_cannot_be_hidden_behind_an_older_hub_log(store: Store, tmp_path: Path) -> None:
    first, newest = store.hub_log.published, store.hub_log.checkpoint
    assert first is not None
    assert newest is not None
    store.publish(newest)
    out = tmp_path / "out"
    export_hub(store, out, files=Unsynced())
    shutil.rmtree(out / "labels" / NEWS.hex())
    layout = Layout(out)
    entries = decode_bundle(layout.hub_log_entries.read_bytes())
    layout.hub_log_entries.write_bytes(encode_bundle(entries[: first.head.size]))
    layout.hub_log_checkpoint.write_bytes(first.encode())
    layout.hub_log_published.write_bytes(first.encode())
    (out / HUB_EXPORT).write_bytes(HubManifest(hub_id=HUB_ID, labels=2, size=first.head.size).encode())
    with pytest.raises(DamageError, match="leads to a hub log of 4 entries, but hublog/entries has 2"):
        verify_hub_export(out, HUB_ID)


def test_the_labels_of_an_export_lead_to_no_newer_hub_log_than_is_exported(
    store: Store, tmp_path: Path
) -> None:
    """A hub that runs goes on while it is exported."""
    send(store, NEWS, 3, now=at(6))
    later = hub_checkpoint(store, at(7))  # durable and published, and not applied to the index
    assert later is not None
    store.publish(later)
    manifest = export_hub(store, tmp_path / "out", files=Unsynced())
    assert manifest.size < later.head.size
    assert verify_hub_export(tmp_path / "out", HUB_ID).manifest == manifest


def test_a_label_that_ends_before_its_head_is_named(store: Store, out: Path) -> None:
    folder = out / "labels" / ORDERS.hex()
    shutil.rmtree(folder)
    export(store, ORDERS, StreamSeq(1), StreamSeq(13), folder, files=Unsynced())
    with pytest.raises(DamageError, match="ends at entry 13, but the hub log has its head at entry 14"):
        verify_hub_export(out, HUB_ID)


def test_a_label_that_begins_later_is_refused(store: Store, out: Path) -> None:
    folder = out / "labels" / ORDERS.hex()
    shutil.rmtree(folder)
    export(store, ORDERS, StreamSeq(2), StreamSeq(15), folder, files=Unsynced())
    with pytest.raises(DamageError, match="is not an export of this label from its first entry on"):
        verify_hub_export(out, HUB_ID)


def test_a_label_that_the_manifest_does_not_count_is_refused(store: Store, out: Path) -> None:
    send(store, label("new"), now=at(9))
    export(store, label("new"), StreamSeq(1), StreamSeq(1), out / "labels" / label("new").hex())
    with pytest.raises(DamageError, match=r"has 4 labels, but hub-export\.cbor says 3"):
        verify_hub_export(out, HUB_ID)


def lie(out: Path, change: Callable[[list[LabelHead]], list[LabelHead]]) -> None:
    """Replace the hub log by one that the hub could have signed."""
    layout = Layout(out)
    heads = [LabelHead.decode(entry) for entry in decode_bundle(layout.hub_log_entries.read_bytes())]
    entries, tree = [head.encode() for head in change(heads)], Tree()
    for entry in entries:
        tree.append(leaf_hash(entry))
    layout.hub_log_entries.write_bytes(encode_bundle(entries))
    text = TreeHead(ORIGIN, tree.size, tree.root).text
    layout.hub_log_checkpoint.write_bytes(Note(text, (sign_note(HUB_KEY, ORIGIN, text),)).encode())
    layout.hub_log_published.unlink(missing_ok=True)


def test_every_head_must_be_that_of_the_exported_label(out: Path) -> None:
    lie(out, lambda heads: [dataclasses.replace(heads[0], mmr_root=MmrRoot(bytes(32))), *heads[1:]])
    with pytest.raises(DamageError, match="is not that of the label's head in the hub log"):
        verify_hub_export(out, HUB_ID)


def test_a_label_that_the_hub_left_out_of_its_hub_log_is_named(out: Path) -> None:
    """Its entry is older than the newest head, so the hub had it when it signed."""
    lie(out, lambda heads: [head for head in heads if head.label != INVOICES])
    change_size(out, 3)
    message = f"the hub log does not cover entry 1 of label {INVOICES.hex()}"
    with pytest.raises(DamageError, match=message):
        verify_hub_export(out, HUB_ID)


def change_size(out: Path, size: int) -> None:
    manifest = HubManifest.decode((out / HUB_EXPORT).read_bytes())
    (out / HUB_EXPORT).write_bytes(dataclasses.replace(manifest, size=size).encode())


def test_a_hub_log_that_contradicts_itself_is_refused(out: Path) -> None:
    lie(out, lambda heads: heads[::-1])
    with pytest.raises(DamageError, match=r"hublog/entries at byte .* does not grow"):
        verify_hub_export(out, HUB_ID)


def replace_by(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda out: (out / name).write_bytes(content) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda out: (out / name).unlink()


def publish_another_root(out: Path) -> None:
    signed = parse_signed_head((out / "hublog" / "published").read_bytes())
    write_note(out / "hublog" / "published", dataclasses.replace(signed.head, root=bytes(32)))


def publish_a_later_size(out: Path) -> None:
    signed = parse_signed_head((out / "hublog" / "checkpoint").read_bytes())
    write_note(out / "hublog" / "published", dataclasses.replace(signed.head, size=signed.head.size + 1))


def write_note(path: Path, head: TreeHead) -> None:
    signed = SignedHead(head, Note(head.text, (sign_note(HUB_KEY, ORIGIN, head.text),)))
    path.write_bytes(signed.encode())


def cut_entries(out: Path) -> None:
    path = out / "hublog" / "entries"
    path.write_bytes(path.read_bytes()[:-1])


def drop_entry(out: Path) -> None:
    path = out / "hublog" / "entries"
    path.write_bytes(encode_bundle(decode_bundle(path.read_bytes())[:-1]))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "entries cut": (cut_entries, "hublog/entries at byte .*: ends within entry 3"),
    "an entry dropped": (drop_entry, "hublog/checkpoint: size or root is not that of the 3 entries"),
    "entries removed": (remove("hublog/entries"), "hublog/entries: is missing"),
    "checkpoint removed": (remove("hublog/checkpoint"), "hublog/checkpoint: is missing"),
    "checkpoint replaced": (replace_by("hublog/checkpoint", b"x"), "hublog/checkpoint: note"),
    "another root published": (publish_another_root, "hublog/published: has another root"),
    "a later size published": (publish_a_later_size, "hublog/published: has size 5, more than"),
    "manifest damaged": (replace_by(HUB_EXPORT, b"x"), HUB_EXPORT),
    "identity removed": (remove(IDENTITY[0]), "hub-identity.cbor: is missing"),
    "labels removed": (lambda out: shutil.rmtree(out / "labels"), "labels: is missing"),
    "another folder": (lambda out: (out / "labels" / "x").mkdir(), "labels/x: is not the folder of a label"),
}


@pytest.mark.parametrize(("harm", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_export_of_a_hub_is_refused(
    out: Path, harm: Callable[[Path], object], message: str
) -> None:
    harm(out)
    with pytest.raises(DamageError, match=message):
        verify_hub_export(out, HUB_ID)


def test_an_export_of_a_hub_is_for_one_hub_and_finished(store: Store, out: Path) -> None:
    with pytest.raises(MismatchError, match="the pinned hub is"):
        verify_hub_export(out, type(HUB_ID)(bytes(32)))
    with pytest.raises(StorageError, match="is not empty"):
        export_hub(store, out)
    (out / HUB_EXPORT).unlink()
    with pytest.raises(StorageError, match=f"it has no {HUB_EXPORT}"):
        verify_hub_export(out, HUB_ID)


def test_an_export_of_a_hub_without_a_hub_checkpoint_says_so(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store("fresh")
    send(store, ORDERS)
    store.apply()
    export_hub(store, tmp_path / "fresh-out", files=Unsynced())
    verified = verify_hub_export(tmp_path / "fresh-out", HUB_ID)
    assert (verified.checkpoint, verified.uncovered) == (None, (ORDERS,))
