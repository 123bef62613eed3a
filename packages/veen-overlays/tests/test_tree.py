"""The summary tree: any range, any damage, any restart gives the result of a plain fold (core §11.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from failing_store import DiskFullError, FailingStore
from hypothesis import given
from hypothesis import strategies as st
from logs import log_of
from strategies import logs
from test_wallet import tight_record

from veen_core import Mmr, MmrConsistency, verify_consistency
from veen_core.errors import VerificationError
from veen_core.hashing import H
from veen_core.ids import Label, StreamSeq
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.summary_tree.node import ClassId, NodeBinding
from veen_overlays.summary_tree.store import MemoryStore
from veen_overlays.summary_tree.tree import FoldedRange, SeqRange, SummaryTree, drive
from veen_overlays.wallet.ledger import LEDGER

LABEL = Label(b"\x0a" * 32)
BLOCK_HEIGHT = 2


def ledger_log(size: int, seed: int = 0) -> list[Message]:
    rng = random.Random(seed)
    log = [
        m._replace(msg_id=H(m.msg_id + bytes([seed])))
        for m in log_of(*(tight_record(rng) for _ in range(size)))
    ]
    for n in range(3, size, 7):  # and some copies of what came before
        log[n] = log[n]._replace(schema=log[n - 3].schema, body=log[n - 3].body, parent_id=log[n - 3].msg_id)
    return log


class Log:
    """A log that counts the messages it returns."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.asked: list[SeqRange] = []

    def read(self, wanted: SeqRange) -> Sequence[Message]:
        self.asked.append(wanted)
        return self.messages[wanted.from_seq - 1 : wanted.to_seq]


def grown(
    overlay: Overlay[Any],
    messages: list[Message],
    store: MemoryStore | None = None,
    block_height: int = BLOCK_HEIGHT,
) -> SummaryTree[Any]:
    tree = SummaryTree(overlay, LABEL, store if store is not None else MemoryStore(), block_height)
    drive(tree.load(), Log(messages).read)
    for message in messages[tree.size :]:
        tree.append(message)
    return tree


def plain(overlay: Overlay[Any], messages: list[Message], from_seq: int, to_seq: int) -> Summary[Any]:
    """The plain fold of a range, with the keys of all earlier messages known."""
    seen = MemorySeenKeys()
    overlay.fold(messages[: from_seq - 1], seen)
    return overlay.fold(messages[from_seq - 1 : to_seq], seen)


def folded(tree: SummaryTree[Any], log: Log, from_seq: int, to_seq: int) -> FoldedRange[Any]:
    return drive(tree.fold(from_seq, to_seq), log.read)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", OVERLAYS)
@given(data=st.data())
def test_every_range_is_its_plain_fold(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    messages = data.draw(logs(overlay, max_size=30))
    tree = grown(overlay, messages)
    assert overlay.encode(tree.state()) == overlay.encode(overlay.fold(messages))
    if messages:
        ends = st.integers(1, len(messages))
        a, b = sorted((data.draw(ends), data.draw(ends)))
        found = folded(tree, Log(messages), a, b)
        assert overlay.encode(found.summary) == overlay.encode(plain(overlay, messages, a, b))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 37])
def test_all_ranges_of_a_ledger_with_copies_in_it(size: int) -> None:
    messages = ledger_log(size)
    tree, log = grown(LEDGER, messages), Log(messages)
    for a in range(1, size + 1):
        for b in range(a, size + 1, 5):
            assert folded(tree, log, a, b).summary == plain(LEDGER, messages, a, b)


def test_appending_block_by_block_gives_the_same_store() -> None:
    messages = ledger_log(301)
    one, many = MemoryStore(), MemoryStore()
    a = grown(LEDGER, messages, one)
    b = SummaryTree(LEDGER, LABEL, many, BLOCK_HEIGHT)
    drive(b.load(), Log(messages).read)
    b.extend(messages[:10])
    b.extend(messages[10:])
    assert dict(one.scan(b"", b"\xff" * 40)) == dict(many.scan(b"", b"\xff" * 40))
    assert (a.mmr, a.state()) == (b.mmr, b.state())


def test_a_folded_prefix_has_the_root_of_its_log() -> None:
    messages = ledger_log(50)
    tree, mmr = grown(LEDGER, messages), Mmr()
    for n, message in enumerate(messages, start=1):
        mmr.add(message.msg_id)
        assert folded(tree, Log(messages), 1, n).mmr_root == mmr.root
    with pytest.raises(VerificationError, match="does not determine a root"):
        _ = folded(tree, Log(messages), 2, 9).mmr_root


def test_a_range_carries_the_consistency_path_between_its_ends() -> None:
    """RESOLUTIONS B11: with the peaks before it, the hashes prove that the range lies between two roots."""
    messages = ledger_log(50)
    tree = grown(LEDGER, messages)
    roots, peaks, mmr = {}, {}, Mmr()
    for n, message in enumerate(messages, start=1):
        mmr.add(message.msg_id)
        roots[n], peaks[n] = mmr.root, mmr.peaks
    for a, b in ((1, 50), (13, 37), (4, 5)):
        found = folded(tree, Log(messages), a + 1, b)
        proof = MmrConsistency(
            from_seq=StreamSeq(a), to_seq=StreamSeq(b), peaks_from=peaks[a], path=found.hashes
        )
        verify_consistency(proof, roots[a], roots[b])


def test_the_roots_of_appends_are_those_of_the_log() -> None:
    messages, mmr = ledger_log(20), Mmr()
    tree = SummaryTree(LEDGER, LABEL, MemoryStore(), BLOCK_HEIGHT)
    for message in messages:
        mmr.add(message.msg_id)
        assert tree.append(message) == mmr.root


# --- restart


@pytest.mark.parametrize("size", [0, 3, 4, 37, 64])
def test_a_restart_reads_only_the_open_block(size: int) -> None:
    messages, store = ledger_log(size), MemoryStore()
    before = grown(LEDGER, messages, store)
    log, tree = Log(messages), SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT)
    drive(tree.load(), log.read)
    assert log.asked == []
    assert tree.size == tree.stored == size - size % (1 << BLOCK_HEIGHT)
    for message in messages[tree.size :]:
        tree.append(message)
    assert tree.state() == before.state()
    assert tree.mmr == before.mmr


def test_a_store_of_another_label_overlay_or_block_size_is_not_used() -> None:
    messages, store = ledger_log(20), MemoryStore()
    grown(LEDGER, messages, store)
    for tree in (
        SummaryTree(LEDGER, Label(b"\x0b" * 32), store, BLOCK_HEIGHT),
        SummaryTree(OVERLAYS["crdt.lww"], LABEL, store, BLOCK_HEIGHT),
        SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT + 1),
    ):
        drive(tree.load(), Log(messages).read)
        assert tree.size == 0


# --- damage


def stored_nodes(store: MemoryStore) -> list[bytes]:
    return [key for key, _ in store.scan(b"", b"\xff" * 40) if key[33:34] == b"n"]


@given(st.data())
def test_damaged_and_missing_nodes_are_recomputed(data: st.DataObject) -> None:
    messages, store = ledger_log(43), MemoryStore()
    good = grown(LEDGER, messages, store).state()
    intact = dict(store.scan(b"", b"\xff" * 40))
    for key in data.draw(st.sets(st.sampled_from(stored_nodes(store)), min_size=1, max_size=6)):
        if data.draw(st.booleans()):
            store.write({}, [key])
        else:
            value = bytearray(intact[key])
            value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            store.write({key: bytes(value)})
    tree, log = SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT), Log(messages)
    drive(tree.load(), log.read)
    for message in messages[tree.size :]:
        tree.append(message)
    assert tree.state() == good
    for a in (1, 6, 21, 40):
        assert folded(tree, log, a, 43).summary == plain(LEDGER, messages, a, 43)
    for height in range(BLOCK_HEIGHT, 6):
        for index in range(40 >> height):
            drive(tree._nodes.tile(height, index), log.read)
    assert dict(store.scan(b"", b"\xff" * 40)) == intact


def test_a_node_of_another_log_or_position_is_found_and_replaced() -> None:
    messages, store, other = ledger_log(40), MemoryStore(), MemoryStore()
    good = grown(LEDGER, messages, store).state()
    grown(LEDGER, ledger_log(40, seed=1), other)
    for key in stored_nodes(store):
        for foreign in (other.get(key), store.get(stored_nodes(store)[0])):
            assert foreign is not None
            damaged = MemoryStore()
            damaged.write(dict(store.scan(b"", b"\xff" * 40)) | {key: foreign})
            tree, log = SummaryTree(LEDGER, LABEL, damaged, BLOCK_HEIGHT), Log(messages)
            drive(tree.load(), log.read)
            assert tree.state() == good
            assert folded(tree, log, 1, 27).summary == LEDGER.fold(messages[:27])


def test_a_node_of_the_same_leaves_after_another_prefix_is_stale() -> None:
    """A summary depends on all earlier messages, so a node is bound to the log's root, not to its leaves."""
    messages, store, other = ledger_log(16), MemoryStore(), MemoryStore()
    elsewhere = [*ledger_log(8, seed=5), *messages[8:]]
    changed = [m._replace(msg_id=bytes([n]) * 32) for n, m in enumerate(elsewhere[:8])] + messages[8:]
    grown(LEDGER, messages, store)
    grown(LEDGER, changed, other)
    last_block = max(key for key in stored_nodes(store) if key[34] == BLOCK_HEIGHT)
    stale = other.get(last_block)
    assert stale is not None
    store.write({last_block: stale})
    tree, log = SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT), Log(messages)
    drive(tree.load(), log.read)
    assert folded(tree, log, 13, 16).summary == plain(LEDGER, messages, 13, 16)
    assert log.asked == [SeqRange(13, 16)]


def test_a_damaged_head_starts_an_empty_tree() -> None:
    messages, store = ledger_log(40), MemoryStore()
    grown(LEDGER, messages, store)
    [head] = [key for key, _ in store.scan(b"", b"\xff" * 40) if key[33:] == b"h"]
    value = store.get(head)
    assert value is not None
    store.write({head: value[:-1] + b"\x00"})
    tree = SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT)
    drive(tree.load(), Log(messages).read)
    assert tree.size == 0
    assert list(store.scan(b"", b"\xff" * 40)) == []


def test_a_log_that_contradicts_the_stored_tree_is_an_error() -> None:
    messages, store = ledger_log(40), MemoryStore()
    grown(LEDGER, messages, store)
    for key in stored_nodes(store):
        store.write({}, [key])
    tree = SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT)
    with pytest.raises(VerificationError, match="contradicts"):
        drive(tree.load(), Log([m._replace(msg_id=b"\x77" * 32) for m in messages]).read)


def test_messages_out_of_turn_are_refused() -> None:
    messages = ledger_log(9)
    tree = grown(LEDGER, messages[:5])
    for wrong in (messages[4], messages[6]):
        with pytest.raises(VerificationError, match="does not follow message 5"):
            tree.append(wrong)
    with pytest.raises(VerificationError, match="not consecutive"):
        SummaryTree(LEDGER, LABEL, MemoryStore(), BLOCK_HEIGHT).extend(messages[1:])
    with pytest.raises(VerificationError, match="other messages than"):
        drive(tree.fold(1, 3), lambda _: messages[:1])
    with pytest.raises(VerificationError, match="only 1 to"):
        drive(tree.fold(2, 6), Log(messages).read)


def _one_by_one(tree: SummaryTree[Any], messages: list[Message]) -> None:
    for message in messages:
        tree.append(message)


@pytest.mark.parametrize("happens", [False, True], ids=["before it happened", "after it happened"])
@pytest.mark.parametrize("grow", [_one_by_one, SummaryTree.extend], ids=["not consecutive", "in blocks"])
@pytest.mark.parametrize("fail_in", range(1, 16))
def test_a_write_that_fails_leaves_the_tree_as_it_was(
    fail_in: int, grow: Callable[[SummaryTree[Any], list[Message]], None], happens: bool
) -> None:
    """The tree gives the same answers afterwards, and so does a tree loaded from the same store."""
    messages, store = ledger_log(60), FailingStore(happens=happens)
    tree, log = SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT), Log(messages)
    drive(tree.load(), log.read)
    store.fail_in = fail_in
    with pytest.raises(DiskFullError):
        grow(tree, messages)
    assert tree.size < len(messages)
    assert tree.state() == LEDGER.fold(messages[: tree.size])
    grow(tree, messages[tree.size :])
    for each in (tree, grown(LEDGER, messages, store)):
        assert each.state() == LEDGER.fold(messages)
        for a, b in ((1, 60), (1, 57), (5, 52), (33, 48)):
            assert folded(each, log, a, b).summary == plain(LEDGER, messages, a, b)


# --- cost


def test_a_range_needs_logarithmically_many_nodes_and_two_edges_of_the_log() -> None:
    messages = ledger_log(1 << 10)
    tree = SummaryTree(LEDGER, LABEL, MemoryStore(), block_height=4)
    tree.extend(messages)
    asked: list[tuple[int, int]] = []
    whole = tree._nodes.tile

    def counting(height: int, index: int) -> Any:
        asked.append((height, index))
        return whole(height, index)

    tree._nodes.tile = counting  # type: ignore[method-assign]
    log = Log(messages)
    folded(tree, log, 2, (1 << 10) - 1)
    assert len(asked) <= 2 * 10
    assert sum(b - a + 1 for a, b in log.asked) <= 2 * 15


def test_an_evicted_node_is_read_and_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is bounded; evicted nodes are read from the store."""
    monkeypatch.setattr("veen_overlays.summary_tree.nodes.MAX_CACHED_NODES", 3)
    messages = ledger_log(200)
    tree, log = grown(LEDGER, messages), Log(messages)
    for a, b in ((1, 200), (9, 150), (1, 64), (65, 128)):
        assert folded(tree, log, a, b).summary == plain(LEDGER, messages, a, b)
    assert len(tree._nodes._cache) <= 3
    with pytest.raises(VerificationError, match="beyond"):
        drive(tree._nodes.tile(BLOCK_HEIGHT, 50), log.read)


def test_a_node_that_names_other_children_is_recomputed() -> None:
    """A node with a correct checksum and position that names wrong children is not followed."""
    messages, store = ledger_log(16), MemoryStore()
    grown(LEDGER, messages, store)
    place = NodeBinding(ClassId(LEDGER.class_id), LABEL)
    top = max(stored_nodes(store), key=lambda key: key[34])
    held = place.open(store.get(top))
    assert held is not None
    store.write({top: place.seal(16, held.mmr_root, held.node, b"\x00" * 64, held.summary)})
    tree, log = SummaryTree(LEDGER, LABEL, store, BLOCK_HEIGHT), Log(messages)
    drive(tree.load(), log.read)
    assert folded(tree, log, 1, 12).summary == LEDGER.fold(messages[:12])
    assert place.open(store.get(top)) == held
