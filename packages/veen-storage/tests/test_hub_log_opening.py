"""The hub log when a directory is opened: older directories, damaged files, damaged journals (P1)."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from veen_core.errors import VeenError
from veen_core.hub_log import LabelHead
from veen_core.ids import StreamSeq, UnixTime
from veen_core.tlog.note import Note, sign_note
from veen_core.tlog.tiles import ENTRIES, Tile, decode_bundle, encode_bundle
from veen_core.tlog.tree import Tree, leaf_hash
from veen_core.tlog.tree_head import TreeHead, parse_signed_head
from veen_storage.commit import journal
from veen_storage.commit.changes import HubExtension
from veen_storage.commit.journal import Item
from veen_storage.errors import DamageError, MismatchError
from veen_storage.fsck import RefusedError, fsck, repair
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.read import hub_log_view
from veen_storage.store import Store

from .conftest import MakeStore
from .faulty_files import FaultyFiles
from .oracle import drop, hub_entries, index_read_here
from .sample import HUB_KEY, INVOICES, ORDERS, ORIGIN, at, hub_checkpoint, label, send, signing_key

NEWS = label("news")


def filled(store: Store) -> Store:
    """A hub log of some entries, published and applied."""
    for second in range(5):
        send(store, ORDERS, 2, now=at(second))
        send(store, INVOICES, now=at(second))
        signed = hub_checkpoint(store, at(second))
        assert signed is not None
    store.publish(signed)
    store.apply()
    return store


def clean(root: Path) -> list[str]:
    """Return the notes of fsck, which must find no fault."""
    with index_read_here():
        report = fsck(root, processes=1)
    assert report.ok, str(report)
    return report.notes


# --- a directory of an older veen


def make_old(root: Path) -> None:
    """Turn a closed directory into one that a veen without a hub log has written."""
    index = Index(root / "index", sync=False)

    def change(txn: Transaction) -> None:
        for table in tables.HUB_LOG_TABLES:
            txn.clear(table)
        txn.delete(tables.META.name, tables.HUB_LOG)
        txn.delete(tables.META.name, tables.HUB_CHECKPOINT)
        tables.META.put(txn, tables.FORMAT, tables.FORMAT_WITHOUT_HUB_LOG)

    index.write(change)
    index.close()


@pytest.fixture
def old(make_store: MakeStore) -> Path:
    """A directory of an older veen, with a batch that it has not applied."""
    store = make_store()
    send(store, ORDERS, 9, now=at(1))
    send(store, INVOICES, now=at(1))
    store.apply()
    send(store, NEWS, now=at(2))
    drop(store)
    make_old(store.layout.root)
    shutil.rmtree(store.layout.hub_log)
    return store.layout.root


def test_a_directory_of_an_older_veen_opens_with_all_its_labels_moved(
    old: Path, make_store: MakeStore
) -> None:
    assert any("no hub log yet" in note for note in clean(old))
    store = make_store()
    assert (store.hub_log.moved, store.hub_log.size, store.hub_log.published) == (3, 0, None)
    assert hub_checkpoint(store, at(3)) is not None
    heads = {head.label: head.upto_seq for head in store.hub_log.heads()}
    assert heads == {ORDERS: 9, INVOICES: 1, NEWS: 1}
    store.close()
    clean(old)


def test_an_older_directory_whose_first_opening_is_interrupted_opens_the_next_time(
    old: Path, tmp_path: Path
) -> None:
    for number in count(1):
        root = Path(shutil.copytree(old, tmp_path / f"{number}"))
        files = FaultyFiles(number, "after" if number % 2 else "before")
        try:
            Store(root, files=files, background=False).close()
        except OSError:
            assert files.failed is not None
        else:
            break
        clean(root)
        with Store(root, background=False) as store:
            assert store.hub_log.moved == 3
    assert number > 3


def test_an_older_directory_can_be_repaired(old: Path, make_store: MakeStore) -> None:
    shutil.rmtree(old / "index")
    repair(old)
    assert make_store().hub_log.moved == 3


def test_an_index_that_an_older_veen_made_next_to_a_hub_log_must_be_repaired(
    store: Store, make_store: MakeStore
) -> None:
    """The older veen did not note which labels moved: its index would leave them out for ever."""
    signed = filled(store).hub_log.checkpoint
    send(store, NEWS, now=at(9))
    store.apply()
    store.close()
    make_old(store.layout.root)
    with pytest.raises(MismatchError, match="lacks the hub log; run `veen hub repair`"):
        make_store()
    repair(store.layout.root)
    store = make_store()
    assert (store.hub_log.checkpoint, store.hub_log.moved) == (signed, 1)
    store.close()
    clean(store.layout.root)


def test_an_older_veen_refuses_an_index_with_a_hub_log() -> None:
    assert tables.INDEX_FORMAT > tables.FORMAT_WITHOUT_HUB_LOG


# --- damaged files


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x00")


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])


def remove(path: Path) -> None:
    path.unlink()


def sign_another_root(path: Path) -> None:
    head = dataclasses.replace(parse_signed_head(path.read_bytes()).head, root=bytes(32))
    path.write_bytes(Note(head.text, (sign_note(HUB_KEY, ORIGIN, head.text),)).encode())


def sign_with_another_key(path: Path) -> None:
    text = parse_signed_head(path.read_bytes()).head.text
    path.write_bytes(Note(text, (sign_note(signing_key("mallory"), ORIGIN, text),)).encode())


def sign_a_larger_size(path: Path) -> None:
    head = TreeHead(ORIGIN, 1_000, bytes(32))
    path.write_bytes(Note(head.text, (sign_note(HUB_KEY, ORIGIN, head.text),)).encode())


Harm = Callable[[Path], None]
HARMS: dict[str, tuple[str, Harm, str]] = {
    "entries cut short": ("entries", cut_short, "hublog/entries at byte 779: ends here"),
    "entries removed": ("entries", remove, "hublog/entries at byte 0: ends here"),
    "entries lengthened": ("entries", lengthen, "hublog/entries at byte 780: contains bytes that are in"),
    "checkpoint removed": ("checkpoint", remove, "hublog/checkpoint: is missing"),
    "checkpoint flipped": ("checkpoint", flip, "hublog/checkpoint: "),
    "checkpoint of another root": ("checkpoint", sign_another_root, "is not the hub checkpoint of the index"),
    "checkpoint of another key": ("checkpoint", sign_with_another_key, "no key of the hub signed it"),
    "published flipped to no note": ("published", cut_short, "hublog/published: "),
    "published of another root": ("published", sign_another_root, "another root than the hub log at size 10"),
    "published ahead": ("published", sign_a_larger_size, "has size 1000, but the hub log ends at 10"),
}


@pytest.mark.parametrize(("name", "harm", "message"), HARMS.values(), ids=HARMS)
def test_a_damaged_file_of_the_hub_log_is_refused_with_its_name_and_a_remedy(
    store: Store, make_store: MakeStore, name: str, harm: Harm, message: str
) -> None:
    filled(store).close()
    harm(store.layout.hub_log / name)
    with pytest.raises(DamageError, match=message) as refused:
        make_store()
    assert "hublog/" in str(refused.value)
    assert "clone" in refused.value.action or "`veen hub repair`" in refused.value.action
    with index_read_here():
        report = fsck(store.layout.root, processes=1)
    assert [fault.file for fault in report.faults] == [f"hublog/{name}"], str(report)


def test_a_missing_folder_is_not_taken_for_an_older_directory(store: Store, make_store: MakeStore) -> None:
    filled(store).close()
    shutil.rmtree(store.layout.hub_log)
    with pytest.raises(DamageError, match="hublog: is missing; restore it from a clone"):
        make_store()
    with index_read_here():
        report = fsck(store.layout.root, processes=1)
    assert [fault.file for fault in report.faults] == ["hublog"]
    with pytest.raises(RefusedError, match="hublog"):
        repair(store.layout.root)


@pytest.mark.parametrize("size", [10, 11], ids=["even", "odd"])
def test_a_flipped_bit_in_an_entry_is_an_error_and_not_a_wrong_answer(
    store: Store, make_store: MakeStore, size: int
) -> None:
    filled(store)
    if size == 11:
        send(store, NEWS, now=at(9))
        hub_checkpoint(store, at(9))
        store.apply()
    store.close()
    entries = store.layout.hub_log_entries
    whole = entries.read_bytes()
    starts = [start for start, _end in hub_log_view._places(whole, 0, size)]
    for at_byte in range(0, len(whole), 7):
        entries.write_bytes(whole[:at_byte] + bytes([whole[at_byte] ^ 4]) + whole[at_byte + 1 :])
        number = sum(start - 2 <= at_byte for start in starts) - 1
        with make_store() as opened:
            log = opened.hub_log
            for ask in (
                lambda log=log: log.bundle(Tile(ENTRIES, 0, size)),
                lambda log=log: log.tile(Tile(0, 0, size)),
                lambda log=log, number=number: log.bundle(Tile(ENTRIES, 0, number + 1)),
                lambda log=log, number=number: (
                    log.prove_inclusion(number ^ 1, size) if number ^ 1 < size else log.root_at(size)
                ),
            ):
                with pytest.raises(DamageError, match="hublog/entries at byte") as found:
                    ask()
                assert found.value.action == "run `veen hub fsck`"


def test_repair_replaces_an_unreadable_published_hub_checkpoint_by_the_newest(
    store: Store, make_store: MakeStore
) -> None:
    filled(store).close()
    store.layout.hub_log_published.write_bytes(b"nothing")
    with pytest.raises(DamageError, match="run `veen hub repair`"):
        make_store()
    assert repair(store.layout.root).rewritten == ["hublog/published"]
    store = make_store()
    assert store.hub_log.published == store.hub_log.checkpoint


# --- a damaged journal


def forge(store: Store, change: Callable[[list[bytes]], list[bytes]], key: str = "hub/0") -> HubExtension:
    """Return the extension that follows a store's hub log, with other entries, signed over its own tree."""
    batch = store.batch(at(9))
    batch.hub_checkpoint(ORIGIN)
    right = HubExtension.decode(batch.items[-1].data)
    entries = change(decode_bundle(right.entries))
    tree = Tree()
    for entry in (*hub_entries(store), *entries):
        tree.append(leaf_hash(entry))
    text = TreeHead(ORIGIN, tree.size, tree.root).text
    note = Note(text, (sign_note(signing_key(key), ORIGIN, text),))
    return HubExtension(entries=encode_bundle(entries), checkpoint=note.encode())


def other_root(entries: list[bytes]) -> list[bytes]:
    head = LabelHead.decode(entries[0])
    return [dataclasses.replace(head, mmr_root=type(head.mmr_root)(bytes(32))).encode(), *entries[1:]]


def other_time(entries: list[bytes]) -> list[bytes]:
    head = LabelHead.decode(entries[0])
    return [dataclasses.replace(head, hub_ts=UnixTime(head.hub_ts + 1)).encode(), *entries[1:]]


def other_seq(entries: list[bytes]) -> list[bytes]:
    head = LabelHead.decode(entries[0])
    return [dataclasses.replace(head, upto_seq=StreamSeq(head.upto_seq + 1)).encode(), *entries[1:]]


FORGERIES: dict[str, Callable[[Store], HubExtension]] = {
    "another root of a label": lambda store: forge(store, other_root),
    "another time": lambda store: forge(store, other_time),
    "an entry that is not there": lambda store: forge(store, other_seq),
    "a label left out": lambda store: forge(store, lambda entries: entries[1:]),
    "no label at all": lambda store: forge(store, lambda _entries: []),
    "a label twice": lambda store: forge(store, lambda entries: [*entries, entries[-1]]),
    "another order": lambda store: forge(store, lambda entries: entries[::-1]),
    "another key": lambda store: forge(store, lambda entries: entries, "mallory"),
    "another tree": lambda store: dataclasses.replace(
        forge(store, lambda entries: entries), checkpoint=forge(store, other_root).checkpoint
    ),
}


def test_an_unchanged_extension_would_be_replayed(store: Store, make_store: MakeStore) -> None:
    filled(store)
    send(store, ORDERS, now=at(8))
    send(store, NEWS, now=at(8))
    extension = forge(store, lambda entries: entries)
    store._journal.append([Item(journal.HUB_CHECKPOINT, extension.encode())])
    drop(store)
    clean(store.layout.root)
    assert make_store().hub_log.size == 12


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_an_extension_that_the_hub_could_not_have_made_is_not_replayed(
    store: Store, make_store: MakeStore, forgery: Callable[[Store], HubExtension]
) -> None:
    filled(store)
    send(store, ORDERS, now=at(8))
    send(store, NEWS, now=at(8))
    store._journal.append([Item(journal.HUB_CHECKPOINT, forgery(store).encode())])
    drop(store)
    with pytest.raises(VeenError, match="journal") as refused:
        make_store()
    assert isinstance(refused.value, DamageError)
    with index_read_here():
        faults = fsck(store.layout.root, processes=1).faults
    assert [fault.file.startswith("journal-") for fault in faults] == [True]
