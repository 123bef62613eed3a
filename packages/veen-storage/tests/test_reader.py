from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from veen_core import hub_identity
from veen_core.chunk import PrunedEntry
from veen_core.consistency import verify_consistency
from veen_core.entry import Entry
from veen_core.errors import ProofError, VeenError
from veen_core.ids import StreamSeq, UnixTime
from veen_core.limits import Limits
from veen_core.profile import PROFILES
from veen_core.proof import verify_inclusion
from veen_storage.chunks.chunk_files import ENTRIES_AT_ONCE
from veen_storage.errors import AbsentError
from veen_storage.read import entry_reader
from veen_storage.read.proof_cache import ProofCache
from veen_storage.read.reader import FOREVER
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import BORN, INVOICES, ORDERS, add, at, checkpoint, label, send, send_each

NOWHERE = label("nowhere")
WHERE = ("applied", "half-applied", "unapplied")


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


def seqs(entries: list[Entry | PrunedEntry]) -> list[int]:
    return [entry.receipt.stream_seq for entry in entries]


@pytest.fixture(params=WHERE)
def written(request: pytest.FixtureRequest, store: Store) -> Store:
    """Thirty entries a second apart; all in files, half of them, or all still in the journal's tail."""
    send_each(store, ORDERS, 15)
    if request.param == "half-applied":
        store.apply()
    send_each(store, ORDERS, 15, now=at(15))
    if request.param == "applied":
        store.apply()
    return store


# --- heads and labels


def test_an_empty_label_has_no_head_and_no_entries(store: Store) -> None:
    assert store.read.head(NOWHERE) is None
    assert store.read.entries(NOWHERE, seq(1), 10) == []
    assert store.read.labels() == []
    assert store.read.window(NOWHERE, at(0), FOREVER) is None
    assert store.read.latest_checkpoint(NOWHERE) is None
    assert store.read.anchor(NOWHERE, seq(1)) is None
    for ask in (lambda: store.read.proof(NOWHERE, seq(1)), lambda: store.read.root(NOWHERE, seq(1))):
        with pytest.raises(AbsentError, match="has no entries"):
            ask()
    for ask in (lambda: store.read.entry(NOWHERE, seq(1)), lambda: store.read.receipt(NOWHERE, seq(1))):
        with pytest.raises(AbsentError, match="has no entry 1"):
            ask()


def test_the_head_is_the_newest_durable_entry(written: Store) -> None:
    head, last = written.read.head(ORDERS), written.read.receipt(ORDERS, seq(30))
    assert head is not None
    assert (head.stream_seq, head.mmr_root, head.hub_ts) == (30, last.mmr_root, at(29))


def test_labels_come_in_byte_order_a_page_at_a_time(store: Store) -> None:
    names = sorted(label(f"stream {n}") for n in range(25))
    for number, name in enumerate(names[::2] + names[1::2]):
        send(store, name)
        if number == 12:
            store.apply()  # every other label is still in the tail
    assert store.read.labels() == names
    for size in (1, 7, 24, 25, 26):
        pages, after = [], None
        while page := store.read.labels(after, size):
            assert len(page) <= size
            pages += page
            after = page[-1]
        assert pages == names


# --- entries


def test_ranges_stop_at_their_limit_and_at_the_end(written: Store) -> None:
    read = written.read
    assert seqs(read.entries(ORDERS, seq(1), 30)) == list(range(1, 31))
    assert seqs(read.entries(ORDERS, seq(7), 12)) == list(range(7, 19))
    assert seqs(read.entries(ORDERS, seq(28), 100)) == [28, 29, 30]
    assert seqs(read.entries(ORDERS, seq(5), 100, end=seq(9))) == [5, 6, 7, 8, 9]
    assert seqs(read.entries(ORDERS, seq(5), 2, end=seq(9))) == [5, 6]
    assert read.entries(ORDERS, seq(31), 5) == []
    assert read.entries(ORDERS, seq(1), 0) == []
    assert read.entries(ORDERS, seq(5), 10, end=seq(4)) == []


def test_entries_equal_the_messages_that_were_sent(written: Store) -> None:
    for entry in written.read.entries(ORDERS, seq(1), 30):
        assert isinstance(entry, Entry)
        assert entry.msg.leaf_hash == entry.receipt.leaf_hash
        hub_identity.verify_receipt(written.identity, entry.receipt)
    assert written.read.entry(ORDERS, seq(17)) == written.read.entries(ORDERS, seq(17), 1)[0]


def test_contents_are_the_bytes_of_the_entries_wherever_they_are(written: Store) -> None:
    for start, limit, end in [
        (1, 99, None),
        (0, 3, None),
        (14, 4, None),
        (10, 99, 20),
        (30, 9, None),
        (31, 9, None),
    ]:
        asked = (ORDERS, seq(start), limit)
        entries = written.read.entries(*asked, end=seq(end) if end is not None else None)
        contents = written.read.contents(*asked, end=seq(end) if end is not None else None)
        assert contents == [one.content for one in entries if isinstance(one, Entry)]
    assert len(written.read.contents(ORDERS, seq(1), 99)) == 30
    assert written.read.contents(NOWHERE, seq(1), 9) == []


def test_a_reader_of_many_stored_entries_gives_way_in_between(make_store: MakeStore) -> None:
    store = make_store(limits=Limits())
    send_each(store, ORDERS, 3 * ENTRIES_AT_ONCE)
    store.apply()
    pauses: list[int] = []
    store.read.give_way = lambda: pauses.append(1)
    for count, wanted in ((1, 0), (ENTRIES_AT_ONCE, 0), (ENTRIES_AT_ONCE + 1, 1), (3 * ENTRIES_AT_ONCE, 2)):
        pauses.clear()
        assert len(store.read.contents(ORDERS, seq(1), count)) == count
        assert len(pauses) == wanted


@pytest.mark.parametrize("beyond", [0, 31, 2**63])
def test_reading_a_missing_entry_raises_absent(written: Store, beyond: int) -> None:
    with pytest.raises(AbsentError, match=f"no entry {beyond}"):
        written.read.entry(ORDERS, seq(beyond))
    with pytest.raises(AbsentError):
        written.read.receipt(ORDERS, seq(beyond))


def test_a_page_is_bounded_in_bytes_but_never_empty(written: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_reader, "MAX_PAGE_BYTES", 1)
    found, at_ = [], 1
    while page := written.read.entries(ORDERS, seq(at_), 100):
        found += seqs(page)
        at_ += len(page)
    assert found == list(range(1, 31))


# --- proofs


def test_every_leaf_is_proved_against_every_tree_that_contains_it(written: Store) -> None:
    read = written.read
    for size in range(1, 31):
        root = read.root(ORDERS, seq(size))
        assert root == read.receipt(ORDERS, seq(size)).mmr_root
        for n in range(1, size + 1):
            leaf = read.receipt(ORDERS, seq(n)).leaf_hash
            verify_inclusion(read.proof(ORDERS, seq(n), seq(size)), root, seq(n), leaf, size)


def test_by_default_a_leaf_is_proved_against_its_own_receipt(written: Store) -> None:
    for n in range(1, 31):
        receipt = written.read.receipt(ORDERS, seq(n))
        verify_inclusion(written.read.proof(ORDERS, seq(n)), receipt.mmr_root, seq(n), receipt.leaf_hash)


def test_every_tree_is_shown_to_be_a_prefix_of_every_later_one(written: Store) -> None:
    read = written.read
    for larger in range(2, 31):
        for smaller in range(1, larger):
            proof = read.consistency(ORDERS, seq(smaller), seq(larger))
            verify_consistency(proof, read.root(ORDERS, seq(smaller)), read.root(ORDERS, seq(larger)))


@pytest.mark.parametrize(("n", "size"), [(1, 31), (31, None), (5, 2**40)], ids=["tree", "leaf", "huge"])
def test_no_proof_reaches_beyond_the_end(written: Store, n: int, size: int | None) -> None:
    with pytest.raises(AbsentError, match="has 30 entries"):
        written.read.proof(ORDERS, seq(n), None if size is None else seq(size))
    with pytest.raises(AbsentError, match="has 30 entries"):
        written.read.consistency(ORDERS, seq(1), seq(31))


@pytest.mark.parametrize(("n", "size"), [(0, 5), (6, 5)], ids=["zero", "not-in-the-tree"])
def test_a_proof_of_a_leaf_outside_of_the_tree_is_refused(written: Store, n: int, size: int) -> None:
    with pytest.raises(ProofError):
        written.read.proof(ORDERS, seq(n), seq(size))
    with pytest.raises(ProofError):
        written.read.consistency(ORDERS, seq(6), seq(5))


# --- time


def test_windows_in_time_have_inclusive_ends(written: Store) -> None:
    read = written.read
    assert read.window(ORDERS, at(0), at(29)) == (1, 30)
    assert read.window(ORDERS, at(3), at(3)) == (4, 4)
    assert read.window(ORDERS, at(14), at(15)) == (15, 16)
    assert read.window(ORDERS, UnixTime(0), FOREVER) == (1, 30)
    assert read.window(ORDERS, at(20), FOREVER) == (21, 30)
    assert read.window(ORDERS, at(30), FOREVER) is None
    assert read.window(ORDERS, UnixTime(0), UnixTime(BORN - 1)) is None
    assert read.window(ORDERS, at(9), at(8)) is None


def test_windows_over_seconds_with_many_entries_and_none(store: Store) -> None:
    for second, count in ((0, 5), (10, 3), (11, 1), (20, 4)):
        send(store, ORDERS, count, now=at(second))
        if second == 10:
            store.apply()
    expected = {(0, 9): (1, 5), (1, 9): None, (5, 10): (6, 8), (10, 19): (6, 9), (11, 20): (9, 13)}
    for (start, end), window in expected.items():
        assert store.read.window(ORDERS, at(start), at(end)) == window


def test_a_second_that_is_half_applied_still_begins_with_its_first_entry(store: Store) -> None:
    send(store, ORDERS, 2, now=at(5))
    store.apply()
    send(store, ORDERS, 2, now=at(5))
    assert store.read.window(ORDERS, at(5), at(5)) == (1, 4)


# --- checkpoints


def test_the_nearest_and_the_exact_checkpoint_are_found(written: Store) -> None:
    read = written.read
    nearest = [read.checkpoint_before(ORDERS, seq(n)) for n in (7, 8, 9, 16, 23, 30)]
    assert [made.upto_seq if made is not None else 0 for made in nearest] == [0, 8, 8, 16, 16, 24]
    assert read.checkpoint(ORDERS, seq(16)).mmr_root == read.root(ORDERS, seq(16))
    latest = read.latest_checkpoint(ORDERS)
    assert latest is not None
    assert latest.upto_seq == 24
    with pytest.raises(AbsentError, match="no checkpoint at 15"):
        read.checkpoint(ORDERS, seq(15))


def test_a_checkpoint_by_hand_is_found_and_not_made_twice(written: Store) -> None:
    checkpoint(written, ORDERS, at(40))
    assert written.read.checkpoint(ORDERS, seq(30)).upto_seq == 30
    batch = written.batch(at(41))
    assert batch.checkpoint(ORDERS) is None
    with pytest.raises(AbsentError, match="no entries to checkpoint"):
        batch.checkpoint(NOWHERE)
    assert batch.items == []


def test_checkpoints_are_listed_by_epoch(make_store: MakeStore) -> None:
    store = make_store(profile=PROFILES["rotating"])
    for minute in range(5):
        for name in (ORDERS, INVOICES):
            send(store, name, now=at(60 * minute))
            checkpoint(store, name, at(60 * minute))
    store.apply()
    first = BORN // 60
    listed = store.read.checkpoints_by_epoch(first + 1, first + 3, 100)
    assert [(c.epoch - first, c.label_curr, c.upto_seq) for c in listed] == [
        (minute, name, minute + 1) for minute in (1, 2, 3) for name in (ORDERS, INVOICES)
    ]
    assert store.read.checkpoints_by_epoch(first, first + 9, 3) == store.read.checkpoints_by_epoch(
        first, first + 1, 3
    )
    for made in listed:
        hub_identity.verify_checkpoint(store.identity, made, 60)


def test_an_anchor_is_found_with_its_checkpoint(store: Store) -> None:
    send(store, ORDERS)
    checkpoint(store, ORDERS)
    batch = store.batch(at(5))
    batch.anchor(ORDERS, seq(1), b"block 7")
    store.commit(batch)
    store.apply()
    assert store.read.anchor(ORDERS, seq(1)) == b"block 7"
    assert store.read.anchor(ORDERS, seq(2)) is None
    assert store.layout.anchor(ORDERS, seq(1)).exists()


# --- while a writer runs


def test_readers_next_to_a_running_writer_see_a_valid_prefix(make_store: MakeStore) -> None:
    """Whatever was acknowledged is found, whatever is found verifies, and nothing ever goes back."""
    store = make_store(background=True, limits=Limits(max_checkpoint_interval=16, max_msg_bytes=2_048))
    acknowledged = [0]
    stop = threading.Event()
    failures: list[BaseException] = []

    def read_all() -> None:
        seen = 0
        try:
            while not stop.is_set():
                least = acknowledged[0]
                head = store.read.head(ORDERS)
                size = head.stream_seq if head is not None else 0
                assert size >= max(least, seen)
                seen = size
                if size < 2:
                    continue
                page = store.read.entries(ORDERS, seq(max(1, size - 20)), 100)
                assert seqs(page)[-1] >= size
                assert all(b - a == 1 for a, b in pairwise(seqs(page)))
                for n in (1, size // 2, size):
                    receipt = store.read.receipt(ORDERS, seq(max(n, 1)))
                    proof = store.read.proof(ORDERS, receipt.stream_seq, seq(size))
                    root = store.read.root(ORDERS, seq(size))
                    verify_inclusion(proof, root, receipt.stream_seq, receipt.leaf_hash, size)
                window = store.read.window(ORDERS, at(0), FOREVER)
                assert window is not None
                assert window[0] == 1
                assert window[1] >= size
                assert ORDERS in store.read.labels()
        except (AssertionError, VeenError, KeyError, IndexError) as exc:
            failures.append(exc)

    threads = [threading.Thread(target=read_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(300):
        batch = store.batch(at(n // 10))
        for _ in range(3):
            add(batch, ORDERS)
            add(batch, INVOICES, who="bob")
        store.commit(batch)
        acknowledged[0] += 3
        if n % 50 == 0:
            store.settle()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.settle()
    assert store.lag == 0


def test_cached_proofs_equal_new_ones_and_the_cache_is_bounded(written: Store) -> None:
    written.read.proofs = ProofCache(capacity=5)
    sizes = [(seq(n), seq(size)) for size in (1, 7, 15) for n in range(1, size + 1)]
    cold = [written.read.proof(ORDERS, *one) for one in sizes]
    written.read.proofs.clear()
    assert [written.read.proof(ORDERS, *one) for one in reversed(sizes)] == cold[::-1]
    assert [written.read.proof(ORDERS, *one) for one in sizes] == cold
    assert len(written.read.proofs._proofs) == 5


def test_an_index_grows_while_a_reader_opens_a_second_view_inside_its_first(store: Store) -> None:
    send(store, ORDERS, 3)
    store.apply()
    inside, may_go_on = threading.Event(), threading.Event()
    found: list[int] = []

    def read() -> None:
        with store.index.reading() as outer:
            inside.set()
            assert may_go_on.wait(10)
            with store.index.reading() as inner:
                found.append(outer.count("entries") - inner.count("entries"))

    reader_thread = threading.Thread(target=read)
    reader_thread.start()
    assert inside.wait(10)
    grower = threading.Thread(target=store.index._grow, args=(lambda: True,))
    grower.start()
    while not store.index._growing:
        pass
    may_go_on.set()
    reader_thread.join(10)
    grower.join(10)
    assert found == [0]
    assert not grower.is_alive()


def test_progress_names_every_label_in_pages_from_tail_and_index(store: Store) -> None:
    """Of each label: its entries, and how far they are checkpointed and anchored."""
    send(store, ORDERS, 3)
    checkpoint(store, ORDERS)
    store.apply()
    send(store, ORDERS, 2)
    send(store, INVOICES, 4)
    checkpoint(store, INVOICES)
    batch = store.batch(BORN)
    batch.anchor(INVOICES, StreamSeq(4), b"somewhere public")
    store.commit(batch)
    expected = sorted([(ORDERS, 5, 3, 0), (INVOICES, 4, 4, 4)])
    for _applied in (False, True):
        first = store.read.label_progress(limit=1)
        assert [*first, *store.read.label_progress(first[-1].label, limit=1)] == expected
        assert store.read.label_progress(expected[-1][0]) == []
        store.apply()


def test_the_newest_head_is_of_a_label_with_an_entry_at_the_newest_time(store: Store) -> None:
    assert store.read.newest_head() is None
    send(store, ORDERS, 2, now=at(5))
    send(store, INVOICES, 1, now=at(9))
    for _applied in (False, True):
        newest = store.read.newest_head()
        assert newest is not None
        assert (newest.label, newest.stream_seq, newest.hub_ts) == (INVOICES, 1, at(9))
        store.apply()
