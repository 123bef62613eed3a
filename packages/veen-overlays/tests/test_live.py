"""The materializer over a log with real seals, receipts and proofs (core §11.3, spec-3 §7)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from memory_log import LABEL, READER, MemoryLog
from test_wallet import tight_record

from veen_core import DhKey, DhSecret, LeafHash, LogReader, LogWriter, StreamSeq
from veen_core.errors import DivergenceError, VerificationError
from veen_core.hashing import Ht
from veen_core.ids import MmrRoot
from veen_overlays.crdt import G_COUNTER, CounterAdd, ShardId
from veen_overlays.fold.event import MemorySeenKeys
from veen_overlays.fold.overlay import Overlay, StateHash
from veen_overlays.kv import KV, Put
from veen_overlays.live import Materializer, open_entry
from veen_overlays.snapshot import SNAPSHOTS, StateCheckpoint, StateId
from veen_overlays.summary_tree.nodes import SeqRange
from veen_overlays.summary_tree.store import MemoryStore
from veen_overlays.wallet.ledger import LEDGER

BLOCK_HEIGHT = 3
STATE_ID = StateId(b"\x05" * 32)


def ledger_log(size: int) -> MemoryLog:
    log, rng = MemoryLog(), random.Random(7)
    log.write(*(tight_record(rng) for _ in range(size)))
    return log


async def opened(
    log: MemoryLog, store: MemoryStore | None = None, overlay: Overlay[Any] = LEDGER
) -> Materializer[Any]:
    view = Materializer(
        overlay,
        LABEL,
        log,
        key=READER,
        store=MemoryStore() if store is None else store,
        block_height=BLOCK_HEIGHT,
    )
    await view.open()
    return view


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_the_test_logs_implement_cores_protocols() -> None:
    assert isinstance(MemoryLog(), LogReader)
    assert isinstance(MemoryLog(), LogWriter)


def test_a_view_is_the_plain_fold_and_names_the_last_receipt() -> None:
    async def check() -> None:
        log = ledger_log(45)
        view = await opened(log)
        assert await view.catch_up() == 45
        messages = [open_entry(e, e.receipt, READER) for e in log.entries]
        answer = await view.state()
        assert answer.summary == LEDGER.fold(messages)
        assert answer.receipt == log.entries[-1].receipt
        assert answer.state_hash == LEDGER.state_hash(answer.summary)
        for upto in (1, 8, 17, 44, 45):
            then = await view.state(upto)
            assert then.summary == LEDGER.fold(messages[:upto])
            assert then.mmr_root == log.entries[upto - 1].receipt.mmr_root
        seen = MemorySeenKeys()
        LEDGER.fold(messages[:9], seen)
        part = await view.fold(10, 33)
        assert part.range == SeqRange(10, 33)
        assert part.summary == LEDGER.fold(messages[9:33], seen)

    run(check())


def test_the_first_use_of_a_key_is_known_after_a_restart_without_reading_the_log() -> None:
    async def check() -> None:
        log, store = ledger_log(45), MemoryStore()
        messages = [open_entry(e, e.receipt, READER) for e in log.entries]
        used = [(m.seq, key) for m in messages for key in LEDGER.keys_of(LEDGER.decode(m))]
        first = {key: seq for seq, key in reversed(used)}
        await (await opened(log, store)).catch_up()
        view = await opened(log, store)
        await view.catch_up()
        log.read = 0
        assert first
        assert {key: await view.first_use(key) for key in first} == first
        assert await view.first_use(bytes(32)) is None
        assert log.read == 0
        assert await view.message(17) == messages[16]

    run(check())


def test_an_empty_log_has_an_empty_state() -> None:
    async def check() -> None:
        view = await opened(MemoryLog())
        assert await view.catch_up() == 0
        answer = await view.state()
        assert (answer.summary, answer.receipt) == (LEDGER.empty, None)
        with pytest.raises(VerificationError, match="no snapshot"):
            await view.snapshot(STATE_ID)

    run(check())


def test_following_folds_each_entry_as_it_arrives() -> None:
    async def check() -> None:
        log = MemoryLog()
        view = await opened(log, overlay=KV)
        following = asyncio.create_task(view.follow())
        for n in range(1, 20):
            await log.submit(log.seal(Put(key=b"k", value=bytes([n]))))
            await view.reached(n)
            assert (await view.state()).view == {b"k": bytes([n])}
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    run(check())


def test_a_restart_reads_only_the_open_block() -> None:
    async def check() -> None:
        log, store = ledger_log(61), MemoryStore()
        first = await opened(log, store)
        await first.catch_up()
        log.read = 0
        again = await opened(log, store)
        assert again.size == 56
        assert log.read == 0
        await again.catch_up()
        assert log.read == 5
        assert (await again.state()).summary == (await first.state()).summary
        log.write(tight_record(random.Random(1)))
        await again.catch_up()
        assert again.size == 62

    run(check())


def test_a_log_that_was_rolled_back_or_rewritten_is_divergence() -> None:
    async def check() -> None:
        log, store = ledger_log(20), MemoryStore()
        await (await opened(log, store)).catch_up()
        with pytest.raises(DivergenceError, match="fewer than the 16 entries"):
            await opened(ledger_log(15), store)
        other = MemoryLog()
        other.write(*(Put(key=b"k", value=bytes([n])) for n in range(20)))
        with pytest.raises(DivergenceError, match="at entry 16 differs") as caught:
            await opened(other, store)
        assert caught.value.shown == other.entries[15].receipt.encode()

    run(check())


def test_an_entry_that_does_not_extend_the_log_is_not_folded() -> None:
    async def check() -> None:
        log = ledger_log(9)
        view = await opened(log)
        await view.catch_up()
        forged = replace(log.entries[-1].receipt, stream_seq=StreamSeq(10), mmr_root=MmrRoot(b"\x00" * 32))
        log.entries.append(replace(log.entries[-1], stream_seq=StreamSeq(10), receipt_bytes=forged.encode()))
        before = await view.state()
        with pytest.raises(DivergenceError, match="does not extend") as caught:
            await view.catch_up()
        assert caught.value.held == log.entries[8].receipt.encode()
        assert caught.value.shown == forged.encode()
        assert await view.state() == before

    run(check())


def test_clearing_folds_the_log_again() -> None:
    async def check() -> None:
        log = ledger_log(20)
        view = await opened(log)
        await view.catch_up()
        before = await view.state()
        await view.clear()
        assert view.size == 0
        await view.catch_up()
        assert await view.state() == before

    run(check())


def test_unopened_messages_are_counted_and_a_bridged_copy_counts_once() -> None:
    async def check() -> None:
        log, shard = MemoryLog(), ShardId(b"\x01" * 32)
        add = CounterAdd(shard=shard, delta=5)
        log.write(add)
        log.append(log.seal(add, reader=DhKey(DhSecret(b"\x09" * 32))))
        log.append(log.seal(add, parent_id=LeafHash(log.entries[0].receipt.leaf_hash)))
        view = await opened(log, overlay=G_COUNTER)
        await view.catch_up()
        answer = await view.state()
        assert answer.view["total"] == 5
        assert (answer.summary.events, answer.summary.foreign) == (1, 1)

    run(check())


# --- snapshots


def test_a_snapshot_is_published_read_back_and_verified() -> None:
    async def check() -> None:
        log = ledger_log(30)
        view = await opened(log)
        await view.catch_up()
        claimed = await view.snapshot(STATE_ID, upto=21)
        assert claimed.state_hash == Ht(
            "veen/state-wallet.ledger", LEDGER.state_bytes((await view.state(21)).summary)
        )
        published = MemoryLog()
        await published.submit(published.seal(claimed))
        registry = await opened(published, overlay=SNAPSHOTS)
        await registry.catch_up()
        [shown] = (await registry.state()).view
        assert shown["upto_stream_seq"] == 21
        entry = published.entries[0]
        read_back = StateCheckpoint.decode(open_entry(entry, entry.receipt, READER).body)
        await (await _caught_up(log)).verify(read_back)

    run(check())


def test_snapshots_of_two_classes_coexist_and_the_latest_of_one_counts() -> None:
    """Spec-3 S1: one state_id may have snapshots of several classes."""

    async def check() -> None:
        log, published = ledger_log(9), MemoryLog()
        for overlay in (KV, LEDGER, KV):
            view = await opened(log, overlay=overlay)
            await view.catch_up()
            published.write(await view.snapshot(STATE_ID))
        wrong = replace(await view.snapshot(STATE_ID), state_hash=StateHash(b"\x00" * 32))
        published.write(wrong)
        registry = await opened(published, overlay=SNAPSHOTS)
        await registry.catch_up()
        shown = {each["state_class"]: each["state_hash"] for each in (await registry.state()).view}
        ledger = LEDGER.state_hash(LEDGER.fold([open_entry(e, e.receipt, READER) for e in log.entries]))
        assert shown == {"kv.map": bytes(32), "wallet.ledger": bytes(ledger)}

    run(check())


async def _caught_up(log: MemoryLog) -> Materializer[Any]:
    view = await opened(log)
    await view.catch_up()
    return view


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state_hash": StateHash(b"\x00" * 32)}, "state_hash"),
        ({"mmr_root": MmrRoot(b"\x00" * 32)}, "mmr_root"),
        ({"state_class": "crdt.lww"}, "state_class"),
        ({"upto_stream_seq": StreamSeq(20)}, "mmr_root"),
        ({"upto_stream_seq": StreamSeq(31)}, "only .* are folded"),
    ],
    ids=["state", "root", "class", "another prefix", "beyond"],
)
def test_a_snapshot_of_another_state_root_class_or_prefix_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    """Spec-3 S2."""

    async def check() -> None:
        view = await _caught_up(ledger_log(30))
        claimed = await view.snapshot(STATE_ID, upto=21)
        with pytest.raises(VerificationError, match=why):
            await view.verify(replace(claimed, **changes))

    run(check())


def test_the_schema_of_a_snapshot_is_the_published_one() -> None:
    assert StateCheckpoint.SCHEMA.hex() == "38d54b9a599a8b6fbd433b715fb23999bb37b12a0f1b62a8e7505e58cd462788"


def test_an_authorize_entry_is_ignored_by_every_overlay() -> None:
    """RESOLUTIONS H5: an authorize entry contains a token instead of a MSG."""
    entry = replace(ledger_log(1).entries[0], msg_bytes=b"token", flags=1)
    message = open_entry(entry, entry.receipt, READER)
    assert (message.schema, message.body) == (bytes(32), b"")


def test_of_several_keys_the_one_that_opens_a_message_counts() -> None:
    entry = ledger_log(1).entries[0]
    stranger = DhKey(DhSecret(b"\x05" * 32))
    assert open_entry(entry, entry.receipt, (stranger, READER)) == open_entry(entry, entry.receipt, READER)
    assert open_entry(entry, entry.receipt, (stranger,)).schema == bytes(32)


def test_a_range_from_the_start_is_a_prefix() -> None:
    async def check() -> None:
        view = await _caught_up(ledger_log(30))
        assert await view.fold(1, 21) == await view.state(21)

    run(check())


def test_a_range_whose_edges_changed_in_the_log_is_refused() -> None:
    async def check() -> None:
        log = ledger_log(45)
        view = await _caught_up(log)
        swapped = log.entries[12]
        log.entries[12] = replace(
            swapped,
            receipt_bytes=replace(swapped.receipt, leaf_hash=LeafHash(b"\x00" * 32)).encode(),
        )
        with pytest.raises(VerificationError, match="path does not lead"):
            await view.fold(10, 33)
        with pytest.raises(DivergenceError, match="at entry 14 differs"):
            await view.state(14)

    run(check())
