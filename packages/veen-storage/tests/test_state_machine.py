"""Any history of a store against a plain model of it: append, crash, reopen, prune, read, prove, fsck.

The model is lists: of each label its receipts and leaves, and an MMR that hashes everything anew. CI
runs the same histories every time; ``VEEN_STATE_EXAMPLES`` asks for that many new ones.
"""

from __future__ import annotations

import os
import sys
import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from veen_core import hub_identity
from veen_core.cap import Rate
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.consistency import verify_consistency
from veen_core.ids import AuthRef, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt
from veen_core.tlog import tree as rfc6962
from veen_core.tlog.tiles import ENTRIES, Tile, decode_bundle
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.commit import cursor_cache, journal
from veen_storage.commit.applier import Applier
from veen_storage.commit.cursor_cache import CursorCache
from veen_storage.commit.journal import Item
from veen_storage.commit.writer import Batch
from veen_storage.errors import AbsentError, PrunedError
from veen_storage.index.lmdb_index import Index
from veen_storage.store import Store, create

from .oracle import Promises, check_files, drop, examine
from .sample import BORN, CONTROL, HUB_KEY, ORIGIN, add, at, label, signing_key, token
from .scripted_run import FEW, memory_folder, short_segments

ASKED = os.environ.get("VEEN_STATE_EXAMPLES")
LABELS = [label(name) for name in ("orders", "invoices", "news")]
PEOPLE = ["alice", "bob"]

some_label = st.sampled_from(LABELS)
any_label = st.sampled_from([*LABELS, CONTROL])
positions = st.integers(0, 60)
clock = st.integers(-3, 5)


def naive_root(leaves: list[bytes]) -> bytes:
    """§5.1 from its definition: perfect trees of falling size, folded in increasing height."""
    peaks, start = [], 0
    for height in reversed(range(len(leaves).bit_length())):
        if len(leaves) >> height & 1:
            peaks.append(_perfect(leaves[start : start + (1 << height)]))
            start += 1 << height
    return peaks[0] if len(peaks) == 1 else sha256(b"veen/mmr-root\x00" + b"".join(reversed(peaks))).digest()


def _perfect(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return sha256(b"veen/mmr-node\x00" + _perfect(leaves[:half]) + _perfect(leaves[half:])).digest()


@dataclass
class ModelLabel:
    """What was acknowledged to a label."""

    receipts: list[Receipt] = field(default_factory=list)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    anchors: dict[int, bytes] = field(default_factory=dict)
    pruned: set[int] = field(default_factory=set)

    @property
    def leaves(self) -> list[bytes]:
        return [receipt.leaf_hash for receipt in self.receipts]

    @property
    def times(self) -> list[int]:
        return [receipt.hub_ts for receipt in self.receipts]

    def root(self, size: int) -> MmrRoot:
        return MmrRoot(naive_root(self.leaves[:size]))


class StoreMachine(RuleBasedStateMachine):
    """The store under test, without its thread: ``apply`` is a rule like any other."""

    def __init__(self) -> None:
        super().__init__()
        self._cleanup = ExitStack()
        self.root = self._cleanup.enter_context(memory_folder()) / "hub"
        self._cleanup.enter_context(short_segments(3_000))
        self.model: defaultdict[Label, ModelLabel] = defaultdict(ModelLabel)
        self.promises = Promises()
        self.now = BORN
        self.hub_ts = UnixTime(0)
        self.tokens: list[AuthRef] = []
        self.numbers = count()

    @initialize(zstd_level=st.sampled_from([None, 1]))
    def born(self, zstd_level: int | None) -> None:
        create(self.root, HUB_KEY, BORN, limits=FEW, zstd_level=zstd_level)
        self.store = Store(self.root, background=False)

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                examine(self.store, self.promises)
                self.store.close()
                check_files(self.root)
                with Store(self.root, background=False) as store:
                    examine(store, self.promises)
        finally:
            if hasattr(self, "store"):
                self.store.close()
            self._cleanup.close()

    # --- writing

    def begin(self, ticks: int) -> Batch:
        """The clock may go backwards; hub_ts may not (H3)."""
        self.now = UnixTime(max(BORN, self.now + ticks))
        return self.store.batch(self.now)

    def commit(self, batch: Batch) -> None:
        self.promises.commit(self.store, batch)
        for receipt in batch.receipts:
            held = self.model[receipt.label]
            held.receipts.append(receipt)
            assert receipt.stream_seq == len(held.receipts)
            assert receipt.mmr_root == held.root(receipt.stream_seq)
            assert receipt.hub_ts == max(self.now, self.hub_ts)
        if batch.receipts:
            self.hub_ts = UnixTime(max(self.now, self.hub_ts))

    @rule(
        messages=st.lists(
            st.tuples(some_label, st.sampled_from(PEOPLE), st.integers(0, 500)), min_size=1, max_size=6
        ),
        ticks=clock,
    )
    def append(self, messages: list[tuple[Label, str, int]], ticks: int) -> None:
        batch = self.begin(ticks)
        for to, who, size in messages:
            add(batch, to, who, f"{next(self.numbers)} ".encode().ljust(size, b"\x00"))
        self.commit(batch)

    @rule(to=some_label, ticks=clock)
    def forget_a_batch(self, to: Label, ticks: int) -> None:
        add(self.begin(ticks), to)

    @rule(who=st.sampled_from(PEOPLE), ticks=clock)
    def authorize(self, who: str, ticks: int) -> None:
        given = token(who, ttl=10**6 + next(self.numbers), rate=Rate(per_sec=1, burst=50))
        batch = self.begin(ticks)
        batch.authorize(given, given.encode(), CONTROL)
        self.commit(batch)
        self.tokens.append(given.auth_ref)

    @precondition(lambda self: self.tokens)
    @rule(to=some_label, which=positions, ticks=clock)
    def append_with_a_token(self, to: Label, which: int, ticks: int) -> None:
        batch = self.begin(ticks)
        add(batch, to, "carol", None, self.tokens[which % len(self.tokens)])
        self.commit(batch)

    @rule(of=any_label, ticks=clock)
    def checkpoint(self, of: Label, ticks: int) -> None:
        batch, held = self.begin(ticks), self.model[of]
        if not held.receipts:
            with pytest.raises(AbsentError):
                batch.checkpoint(of)
            return
        made = batch.checkpoint(of)
        self.commit(batch)
        if made is not None:
            assert (made.upto_seq, made.mmr_root) == (len(held.receipts), held.root(len(held.receipts)))
            held.checkpoints[made.upto_seq] = made
            self.promises.tell("checkpoints", (of, made.upto_seq), made.encode())
        else:
            latest = self.store.read.latest_checkpoint(of)
            assert latest is not None
            assert latest.upto_seq == len(held.receipts)

    @rule(
        messages=st.lists(st.tuples(some_label, st.sampled_from(PEOPLE)), max_size=3),
        ticks=clock,
        publish=st.booleans(),
    )
    def hub_checkpoint(self, messages: list[tuple[Label, str]], ticks: int, publish: bool) -> None:
        """Extend the hub log by every label that moved, with entries before and after in the same batch."""
        batch = self.begin(ticks)
        for to, who in messages[1:]:
            add(batch, to, who)
        made = batch.hub_checkpoint(ORIGIN)
        after = {to for to, _who in messages[:1]}
        for to, who in messages[:1]:
            add(batch, to, who)
        size, moved = self.store.hub_log.size, self.store.hub_log.moved
        self.commit(batch)
        assert self.store.hub_log.moved == len(after)
        if made is None:
            assert (moved, messages[1:], self.store.hub_log.size) == (0, [], size)
            return
        assert made.head.size > size, "a hub log never shrinks"
        assert self.promises.hub_checkpoints.get(made.head.size) is None, "signed twice at one size"
        self.promises.tell("hub_checkpoints", made.head.size, made.encode())
        if publish:
            self.store.publish(made)
            self.promises.tell("published", made.head.size, made.encode())

    @rule(a=positions, b=positions)
    def prove_in_the_hub_log(self, a: int, b: int) -> None:
        """All sizes that were signed are consistent with each other, and each entry is below them."""
        shown = {size: parse_signed_head(note).head for size, note in self.promises.hub_checkpoints.items()}
        if not shown:
            return
        sizes = sorted(shown)
        old, new = sorted((sizes[a % len(sizes)], sizes[b % len(sizes)]))
        log = self.store.hub_log
        proof = log.prove_consistency(old, new)
        rfc6962.verify_consistency(old, new, proof, shown[old].root, shown[new].root)
        index = (a * b) % new
        bundle = decode_bundle(log.bundle(Tile(ENTRIES, index // 256, index % 256 + 1)))
        proof = log.prove_inclusion(index, new)
        rfc6962.verify_inclusion(rfc6962.leaf_hash(bundle[-1]), index, new, proof, shown[new].root)

    @rule(of=some_label, reference=st.binary(min_size=1, max_size=40))
    def anchor(self, of: Label, reference: bytes) -> None:
        latest = self.store.read.latest_checkpoint(of)
        if latest is not None:
            batch = self.begin(0)
            batch.anchor(of, latest.upto_seq, reference)
            self.commit(batch)
            self.model[of].anchors[latest.upto_seq] = reference

    @rule(of=some_label, most=st.integers(0, 6_000))
    def prune(self, of: Label, most: int) -> None:
        """What is decided shows when it is applied."""
        self.store.apply()
        decisions = due(self.store.index, of, PruneRule(max_bytes=most), self.now)
        batch = self.begin(0)
        for decision in decisions:
            batch.prune(decision)
        self.commit(batch)
        for decision in decisions:
            self.model[of].pruned |= set(range(decision.start_seq, decision.end_seq + 1))
        self.apply()

    # --- what happens to the process

    @rule()
    def apply(self) -> None:
        self.store.apply()
        assert self.store.lag == 0

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        self.store = Store(self.root, background=False)

    @rule()
    def crash_and_reopen(self) -> None:
        drop(self.store)
        self.store = Store(self.root, background=False)
        assert self.store.lag == 0

    @rule(to=some_label, share=st.floats(0, 0.999), size=st.integers(0, 3_000))
    def crash_while_writing_the_journal(self, to: Label, share: float, size: int) -> None:
        """Of one more batch, only the beginning reaches the file."""
        batch = self.begin(0)
        add(batch, to)
        drop(self.store)
        segments = journal.list_segments(self.root / "journal")
        last = segments[-1] if segments else journal.segment_path(self.root / "journal", 10**6)
        held = [found.number for _at, found in journal.read_segment(last, last=True)] if segments else []
        number = (held[-1] + 1) if held else journal.first_batch(last)
        torn = journal.encode_batch(number, [*batch.items, Item(journal.ENTRY, b"\x07" * size)])
        with last.open("ab") as file:
            file.write(torn[: int(share * len(torn))])
        self.store = Store(self.root, background=False)

    @rule()
    def crash_before_the_index_knows(self) -> None:
        """A round has written its files, and they are written again."""
        self.crash_in(Index, "write")

    @rule()
    def crash_before_the_chunks_have_their_names(self) -> None:
        """The index knows of a round, and what it left to do is done at opening."""
        self.crash_in(Applier, "finish")

    def crash_in(self, where: type, what: str) -> None:
        if self.store.lag:
            with (
                patch.object(where, what, side_effect=OSError("power cut")),
                pytest.raises(OSError, match="power"),
            ):
                self.store.apply()
        drop(self.store)
        self.store = Store(self.root, background=False)

    @rule()
    def check_the_files(self) -> None:
        drop(self.store)
        check_files(self.root)
        self.store = Store(self.root, background=False)

    # --- reading

    @rule(of=any_label, start=st.integers(1, 60), limit=st.integers(0, 20), length=st.none() | positions)
    def read_a_page(self, of: Label, start: int, limit: int, length: int | None) -> None:
        end = None if length is None else StreamSeq(start + length)
        held = self.model[of]
        found = self.store.read.entries(of, StreamSeq(start), limit, end=end)
        expected = held.receipts[start - 1 : start - 1 + limit]
        if end is not None:
            expected = [receipt for receipt in expected if receipt.stream_seq <= end]
        assert [entry.receipt for entry in found] == expected
        for entry in found:
            assert isinstance(entry, PrunedEntry) == (entry.receipt.stream_seq in held.pruned)

    @rule(of=any_label, seq=positions)
    def read_one(self, of: Label, seq: int) -> None:
        held = self.model[of]
        if not 1 <= seq <= len(held.receipts):
            with pytest.raises(AbsentError):
                self.store.read.receipt(of, StreamSeq(seq))
            return
        assert self.store.read.receipt(of, StreamSeq(seq)) == held.receipts[seq - 1]
        if seq in held.pruned:
            with pytest.raises(PrunedError):
                self.store.read.entry(of, StreamSeq(seq))
        else:
            assert self.store.read.entry(of, StreamSeq(seq)).receipt == held.receipts[seq - 1]

    @rule(of=any_label, a=positions, b=positions)
    def prove(self, of: Label, a: int, b: int) -> None:
        held = self.model[of]
        seq, size = min(a, b), max(a, b)
        if not 1 <= seq <= size <= len(held.receipts):
            return
        proof = self.store.read.proof(of, StreamSeq(seq), StreamSeq(size))
        verify_inclusion(proof, held.root(size), StreamSeq(seq), LeafHash(held.leaves[seq - 1]), size)
        assert self.store.read.root(of, StreamSeq(size)) == held.root(size)
        if seq < size:
            grown = self.store.read.consistency(of, StreamSeq(seq), StreamSeq(size))
            verify_consistency(grown, held.root(seq), held.root(size))

    @rule(of=any_label, start=st.integers(-5, 60), length=st.integers(0, 40))
    def look_at_a_window(self, of: Label, start: int, length: int) -> None:
        first, last = at(start), at(start + length)
        times = self.model[of].times
        low, high = bisect_left(times, first), bisect_right(times, last)
        assert self.store.read.window(of, first, last) == ((low + 1, high) if low < high else None)

    @rule(of=any_label, seq=positions)
    def look_for_a_checkpoint(self, of: Label, seq: int) -> None:
        held, found = self.model[of], self.store.read.checkpoint_before(of, StreamSeq(seq))
        known = [upto for upto in held.checkpoints if upto <= seq]
        if found is None:
            assert not known
            return
        assert max(known, default=0) <= found.upto_seq <= seq
        assert found.mmr_root == held.root(found.upto_seq)
        hub_identity.verify_checkpoint(self.store.identity, found, 0)

    @rule(limit=st.integers(1, 5))
    def list_the_labels(self, limit: int) -> None:
        listed: list[Label] = []
        while page := self.store.read.labels(listed[-1] if listed else None, limit):
            listed.extend(page)
        assert listed == sorted(of for of, held in self.model.items() if held.receipts)

    @rule()
    def examine_everything(self) -> None:
        examine(self.store, self.promises)

    @precondition(lambda self: self.store.lag == 0)
    @rule()
    def look_at_the_anchors(self) -> None:
        self.store.apply()
        for of, held in self.model.items():
            for upto, reference in held.anchors.items():
                assert self.store.read.anchor(of, StreamSeq(upto)) == reference

    @invariant()
    def heads_are_those_of_the_model(self) -> None:
        for of in (*LABELS, CONTROL) if hasattr(self, "store") else ():
            head, held = self.store.read.head(of), self.model[of]
            assert (head.stream_seq if head is not None else 0) == len(held.receipts)
            assert head is None or head.mmr_root == held.receipts[-1].mmr_root

    @invariant()
    def nothing_is_poisoned(self) -> None:
        assert not hasattr(self, "store") or self.store.poisoned is None


def test_any_history_reads_as_it_was_acknowledged() -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=int(ASKED) if ASKED else 60,
            stateful_step_count=50,
            derandomize=ASKED is None,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def test_a_naive_root_is_that_of_the_specification() -> None:
    assert signing_key("hub/0").public == HUB_KEY.public
    leaves = [bytes([n]) * 32 for n in range(1, 4)]
    pair = sha256(b"veen/mmr-node\x00" + leaves[0] + leaves[1]).digest()
    assert naive_root(leaves[:1]) == leaves[0]
    assert naive_root(leaves[:2]) == pair
    assert naive_root(leaves) == sha256(b"veen/mmr-root\x00" + leaves[2] + pair).digest()


def test_a_cursor_is_never_evicted_while_the_writer_uses_it() -> None:
    """Else the label would go on from what the index knows, and a stream_seq would be given twice (H2)."""
    cache, applied, over = CursorCache[int, int](), [0], threading.Event()

    def applier() -> None:
        while not over.is_set():
            cache.shrink(applied[0])

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=applier)
    with patch.object(cursor_cache, "MAX_CACHED_CURSORS", 2):
        thread.start()
        sys.setswitchinterval(1e-6)
        try:
            for batch in range(1, 100_000):
                cache.get(batch % 5)
                cache.put(batch % 5, batch, batch)
                assert cache.get(batch % 5) == batch
                applied[0] = batch - 1
        finally:
            sys.setswitchinterval(interval)
            over.set()
            thread.join()
