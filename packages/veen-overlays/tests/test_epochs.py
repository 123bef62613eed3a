"""The view of a stream whose label changes with every epoch (core §12)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from failing_store import DiskFullError, FailingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_log import READER
from test_realm import Logs

from veen_core import Entry, Mmr
from veen_core.errors import DivergenceError, VeenError, VerificationError
from veen_core.hashing import H, u64be
from veen_core.ids import Epoch, Label, LeafHash, MmrRoot, UnixTime
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import WalletId
from veen_overlays.kv import KV, Delete, Put
from veen_overlays.live import EpochView, open_entry
from veen_overlays.schema.record import Record
from veen_overlays.summary_tree.store import MemoryStore
from veen_overlays.wallet.ledger import LEDGER, ref_key
from veen_overlays.wallet.records import Withdraw

BLOCK_HEIGHT = 2
FIRST_EPOCH = Epoch(5)


WALLET = WalletId(b"\x07" * 32)


def label_of(epoch: Epoch) -> Label:
    return Label(H(b"label" + u64be(epoch)))


@dataclass
class Stream:
    """A stream at a hub that accepts messages for the epochs around ``now``."""

    now: int = FIRST_EPOCH
    logs: Logs = field(default_factory=Logs)
    forgotten: list[Label] = field(default_factory=list)
    since: Epoch = FIRST_EPOCH
    behind: int | None = None
    """The hub's epoch, if the local clock is ahead of it."""

    @staticmethod
    def label_of(epoch: Epoch) -> Label:
        return label_of(epoch)

    def window(self) -> range:
        return range(self.now - 1, self.now + 2)

    async def confirmed(self) -> range:
        return self.window() if self.behind is None else range(self.behind - 1, self.behind + 2)

    async def forget(self, label: Label) -> None:
        self.forgotten.append(label)

    def write(self, epoch: int, *records: Record) -> None:
        self.logs.at(label_of(Epoch(epoch))).write(*records)

    overlay: Overlay[Any] = KV

    def view(self, store: MemoryStore) -> EpochView[object]:
        return EpochView(self.overlay, self, self.logs, key=READER, store=store, block_height=BLOCK_HEIGHT)  # type: ignore[arg-type]

    def in_order(self) -> list[Message]:
        """All messages with their positions as seq."""
        found: list[Message] = []
        for epoch in range(FIRST_EPOCH, self.now + 2):
            for entry in self.logs.at(label_of(Epoch(epoch))).entries:
                message = open_entry(entry, entry.receipt, READER)
                found.append(message._replace(seq=len(found) + 1))
        return found


async def taken_up(stream: Stream, store: MemoryStore) -> EpochView[object]:
    view = stream.view(store)
    await view.open()
    await view.catch_up()
    return view


def put(key: str, value: str) -> Put:
    return Put(key=key.encode(), value=value.encode())


def test_a_write_of_a_later_epoch_wins_whatever_its_stream_seq() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"), put("b", "1"), put("b", "2"))
        stream.write(6, put("b", "3"))
        view = await taken_up(stream, store)
        assert (await view.state()).view == {b"a": b"1", b"b": b"3"}
        stream.write(5, put("b", "late, and before the other"), Delete(key=b"a"))
        await view.catch_up()
        answer = await view.state()
        assert (answer.view, answer.range.to_seq) == ({b"b": b"3"}, 6)
        assert answer.receipt is not None
        assert answer.receipt.label == view.label == label_of(Epoch(6))

    asyncio.run(check())


STEPS = st.lists(
    st.tuples(st.integers(-1, 1), st.sampled_from("abc"), st.integers(0, 9), st.booleans())
    | st.integers(1, 3),
    max_size=40,
)


@settings(max_examples=40)
@given(STEPS)
def test_the_view_is_the_fold_of_its_labels_in_order(
    steps: list[tuple[int, str, int, bool] | int],
) -> None:
    """For any writes in the window and any passing of epochs, with restarts in between."""

    async def check() -> None:
        stream, store = Stream(now=FIRST_EPOCH + 1), MemoryStore()
        view = await taken_up(stream, store)
        for step in steps:
            if isinstance(step, int):
                stream.now += step
            else:
                offset, key, value, restart = step
                stream.write(stream.now + offset, put(key, str(value)))
                view = stream.view(store) if restart else view
                if restart:
                    await view.open()
            await view.catch_up()
            answer, plain = await view.state(), KV.fold(stream.in_order())
            assert KV.encode(answer.summary) == KV.encode(plain)
            assert answer.range.to_seq == view.size == len(stream.in_order())
            assert answer.mmr_root == root_of(stream.in_order())

    asyncio.run(check())


def root_of(messages: list[Message]) -> MmrRoot:
    tree = Mmr()
    for message in messages:
        tree.add(message.msg_id)
    return tree.root


@settings(max_examples=40)
@given(STEPS, st.data())
def test_any_prefix_and_range_is_the_fold_of_its_labels_in_order(
    steps: list[tuple[int, str, int, bool] | int], data: st.DataObject
) -> None:
    """WAL §1: several labels have one total order, so prefixes and ranges are defined (core §11.3)."""

    async def check() -> None:
        stream, store = Stream(now=FIRST_EPOCH + 1), MemoryStore()
        for step in steps:
            if isinstance(step, int):
                stream.now += step
            else:
                stream.write(stream.now + step[0], put(step[1], str(step[2])))
        view, messages = await taken_up(stream, store), stream.in_order()
        with pytest.raises(VerificationError, match="only 1 to"):
            await view.state(len(messages) + 1)
        assert [position for position, _ in await everything(view)] == [m.seq for m in messages]
        if not messages:
            return
        to_seq = data.draw(st.integers(1, len(messages)))
        from_seq = data.draw(st.integers(1, to_seq))
        before, part = await view.state(to_seq), await view.fold(from_seq, to_seq)
        assert KV.encode(before.summary) == KV.encode(KV.fold(messages[:to_seq]))
        seen = MemorySeenKeys()
        KV.fold(messages[: from_seq - 1], seen)
        assert KV.encode(part.summary) == KV.encode(KV.fold(messages[from_seq - 1 : to_seq], seen))
        for answer in (before, part):
            assert answer.mmr_root == root_of(messages[:to_seq])
            assert answer.receipt is not None
            assert bytes(answer.receipt.leaf_hash) == messages[to_seq - 1].msg_id
            assert view.position_of(answer.receipt) == to_seq

    asyncio.run(check())


def test_the_first_use_of_a_key_is_found_in_a_closed_label_and_in_one_of_the_window() -> None:
    """A ref of a withdrawal is such a key (WAL §7); the view finds it without reading the stream."""

    def withdraw(ref: bytes) -> Withdraw:
        return Withdraw(wallet_id=WALLET, amount=1, ts=UnixTime(1), ref=ref)

    async def check() -> None:
        stream, store = Stream(overlay=LEDGER), MemoryStore()
        stream.write(5, *(withdraw(b"%d" % n) for n in range(9)), withdraw(b"3"))
        stream.now = 9
        stream.write(9, withdraw(b"3"), withdraw(b"new"))
        view = await taken_up(stream, store)
        assert await view.first_use(ref_key(WALLET, b"3")) == 4
        assert await view.first_use(ref_key(WALLET, b"new")) == 12
        assert await view.first_use(ref_key(WALLET, b"none")) is None
        for position in (4, 12):
            assert (await view.message(position)).body == stream.in_order()[position - 1].body

    asyncio.run(check())


async def everything(view: EpochView[object]) -> list[tuple[int, Entry]]:
    return [found async for found in view.entries()]


def test_a_receipt_of_another_stream_has_no_position() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"))
        view = await taken_up(stream, store)
        other = stream.logs.at(Label(bytes(32)))
        with pytest.raises(VerificationError, match="does not belong to this stream"):
            view.position_of(other.append(other.seal(put("a", "1"))))

    asyncio.run(check())


def test_a_view_names_every_label_it_is_folded_from() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        for epoch in (5, 7, 20):
            stream.now = epoch
            stream.write(epoch, put("a", str(epoch)))
            view = await taken_up(stream, store)
        written = {label_of(Epoch(epoch)) for epoch in (5, 7, 20)}
        assert written <= view.labels == (await taken_up(stream, store)).labels
        stream.now = 30
        await view.catch_up()
        assert written <= view.labels

    asyncio.run(check())


def test_a_label_is_closed_only_by_the_hubs_own_time() -> None:
    """Otherwise a follower whose clock is ahead would miss messages that are still accepted."""

    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"))
        view = await taken_up(stream, store)
        stream.now, stream.behind = 20, 6
        await view.catch_up()
        stream.write(6, put("a", "2"))
        await view.catch_up()
        assert (await view.state()).view == {b"a": b"2"}
        assert stream.forgotten == []
        stream.behind = None
        await view.catch_up()
        assert (await view.state()).view == {b"a": b"2"}
        assert label_of(Epoch(6)) in stream.forgotten

    asyncio.run(check())


def test_a_copy_in_a_later_epoch_changes_nothing() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"), put("a", "2"))
        view = await taken_up(stream, store)
        for now in (6, 9):  # the original still in the window, then in the tree
            stream.now = now
            log = stream.logs.at(label_of(Epoch(now)))
            original = stream.logs.at(label_of(FIRST_EPOCH)).entries[0].receipt.leaf_hash
            log.append(log.seal(put("a", "1"), parent_id=LeafHash(original)))
            await view.catch_up()
            answer = await view.state()
            assert (answer.view, answer.summary.events) == ({b"a": b"2"}, 2)

    asyncio.run(check())


def test_a_restart_reads_only_messages_that_are_not_in_the_tree() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        for epoch in range(5, 25):
            stream.now = epoch
            stream.write(epoch, *(put("k", f"{epoch}/{n}") for n in range(10)))
        before = await taken_up(stream, store)
        for log in stream.logs.logs.values():
            log.read = 0
        again = await taken_up(stream, store)
        assert KV.encode((await again.state()).summary) == KV.encode((await before.state()).summary)
        read = {epoch: stream.logs.at(label_of(Epoch(epoch))).read for epoch in range(5, 26)}
        assert {epoch for epoch, n in read.items() if n} == {21, 22, 23, 24}, "the open block and the window"
        assert label_of(Epoch(21)) in stream.forgotten

    asyncio.run(check())


@pytest.mark.parametrize("epoch", [5, 9], ids=["in the tree", "in the window"])
def test_a_label_that_contradicts_the_folded_one_is_reported_as_evidence(epoch: int) -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"), put("a", "2"))
        stream.now = 9
        stream.write(9, put("a", "3"), put("a", "4"))
        view = await taken_up(stream, store)
        label = label_of(Epoch(epoch))
        del stream.logs.logs[label]
        stream.write(epoch, put("a", "other"), put("a", "words"), put("a", "more"))
        with pytest.raises(DivergenceError):
            await (view.catch_up() if epoch == 9 else stream.view(store).open())

    asyncio.run(check())


def test_a_prefix_never_gets_a_receipt_of_another_history() -> None:
    """A hub later shows another history of a closed label: the folded state is right, its receipt is not."""

    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"), put("a", "2"), put("a", "3"))
        stream.now = 9
        view = await taken_up(stream, store)
        assert (await view.state(2)).receipt == stream.logs.at(label_of(FIRST_EPOCH)).entries[1].receipt
        del stream.logs.logs[label_of(FIRST_EPOCH)]
        stream.write(5, put("a", "other"), put("a", "words"), put("a", "more"))
        with pytest.raises(VerificationError, match="differs from the root that was folded"):
            await view.state(2)

    asyncio.run(check())


def test_two_views_on_one_store_do_not_disturb_each_other() -> None:
    """Of two concurrent commands the slower one writes an older cursor after the rows of the faster one."""

    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "5"))
        slow = await taken_up(stream, store)
        for epoch in range(6, 16):
            stream.now = epoch
            stream.write(epoch, *(put(f"{n}", f"{epoch}") for n in range(3)))
        fast = await taken_up(stream, store)
        stream.now = 9
        await slow.catch_up()  # closes fewer epochs, and says so last
        stream.now = 15
        again = await taken_up(stream, store)
        wanted = KV.fold(stream.in_order())
        for view in (fast, slow, again):
            await view.catch_up()
            assert KV.encode((await view.state()).summary) == KV.encode(wanted)
            assert [position for position, _ in await everything(view)] == list(range(1, view.size + 1))

    asyncio.run(check())


def test_a_label_that_another_process_closed_stays_in_this_views_window() -> None:
    """Keys that the other process has already stored do not make this view's messages duplicates."""

    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, *(put(f"{n}", "5") for n in range(1 << BLOCK_HEIGHT)))
        slow = await taken_up(stream, store)
        stream.now = 12
        fast = await taken_up(stream, store)
        assert KV.encode((await slow.state()).summary) == KV.encode((await fast.state()).summary)

    asyncio.run(check())


@pytest.mark.parametrize("happens", [False, True], ids=["before it happened", "after it happened"])
@pytest.mark.parametrize("fail_in", range(1, 14))
def test_a_write_that_fails_loses_no_message(fail_in: int, happens: bool) -> None:
    """Rows, cursor and tree are written one after the other; no failure in between loses a message."""

    async def check() -> None:
        stream, store = Stream(), FailingStore(happens=happens)
        view = await taken_up(stream, store)
        store.fail_in = fail_in
        for epoch in range(5, 14):
            stream.now = epoch
            stream.write(epoch, *(put(f"{n}", f"{epoch}") for n in range(5)))
            with suppress(DiskFullError):
                await view.catch_up()
        await view.catch_up()
        assert store.fail_in <= 0, "it has failed"
        wanted = KV.encode(KV.fold(stream.in_order()))
        for each in (view, await taken_up(stream, store)):
            answer = await each.state()
            assert (KV.encode(answer.summary), answer.range.to_seq) == (wanted, 45)
            assert [position for position, _ in await everything(each)] == list(range(1, 46))

    asyncio.run(check())


def test_a_damaged_tree_is_folded_again_from_the_labels() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        for epoch in range(5, 12):
            stream.now = epoch
            stream.write(epoch, *(put(f"{n}", f"{epoch}") for n in range(5)))
        before = await taken_up(stream, store)
        wanted = KV.encode((await before.state()).summary)
        nodes = [key for key, _ in store.scan(b"", b"\xff" * 40) if b"n" in key[33:34]]
        store.write(dict.fromkeys(nodes, b"damaged"))
        again = await taken_up(stream, store)
        assert KV.encode((await again.state()).summary) == wanted

    asyncio.run(check())


def test_a_label_that_cannot_be_read_is_read_again() -> None:
    async def check() -> None:
        stream, store = Stream(), MemoryStore()
        stream.write(5, put("a", "1"))
        view = await taken_up(stream, store)
        stream.logs.broken = True
        stream.now = 12
        with pytest.raises(VeenError, match="unreachable"):
            await view.catch_up()
        stream.logs.broken = False
        stream.write(12, put("a", "2"))
        await view.catch_up()
        assert (await view.state()).view == {b"a": b"2"}

    asyncio.run(check())
