"""Mirrored events in folds: once, under the identity of their source (ID 12.1, WALBR0 11.4, P4, P7)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_log import READER, WRITER, MemoryLog
from strategies import records
from test_wallet import tight_record

from veen_core import DhKey, DhSecret, Label
from veen_core.entry import Entry
from veen_core.ids import NO_BUNDLE, ClientId, HubId, UnixTime
from veen_overlays.bridge import ORIGINS, ImportedEvent
from veen_overlays.bridge.unwrapping import is_wrapped
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.live import Materializer, open_entry
from veen_overlays.schema.record import Record
from veen_overlays.summary_tree.store import MemoryStore
from veen_overlays.wallet.ledger import LEDGER

SOURCE_READER = DhKey(DhSecret(b"\x07" * 32))
SOURCE, TARGET = Label(b"\x0a" * 32), Label(b"\x0b" * 32)
BOTH = (READER, SOURCE_READER)


def wrapper(entry: Entry) -> ImportedEvent:
    return ImportedEvent(
        bundle_id=NO_BUNDLE,
        source_hub_id=HubId(b"\x01" * 32),
        source_label=entry.label,
        source_stream_seq=entry.stream_seq,
        origin_receipt=entry.receipt_bytes,
        origin_msg=entry.msg_bytes,
        import_time=UnixTime(1),
        bridge_id=ClientId(WRITER.public),
    )


def source_log(events: list[Record]) -> MemoryLog:
    log = MemoryLog(SOURCE)
    for each in events:
        log.append(log.seal(each, SOURCE_READER))
    return log


def wrap(target: MemoryLog, entry: Entry) -> None:
    target.append(target.seal(wrapper(entry), READER, parent_id=entry.receipt.leaf_hash))


def reseal(target: MemoryLog, entry: Entry, record: Record) -> None:
    target.append(target.seal(record, READER, parent_id=entry.receipt.leaf_hash))


def state(log: MemoryLog, overlay: Overlay[Any], keys: tuple[DhKey, ...] = BOTH) -> bytes:
    async def work() -> bytes:
        view = Materializer(overlay, log.label, log, key=keys, store=MemoryStore(), block_height=2)
        await view.open()
        await view.catch_up()
        return overlay.state_bytes((await view.state()).summary)

    return asyncio.run(work())


def payments(count: int) -> list[Record]:
    rng = random.Random(3)
    return [tight_record(rng) for _ in range(count)]


@pytest.mark.parametrize("name", OVERLAYS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_wrapped_log_folds_to_the_state_of_its_source(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    if overlay is ORIGINS:
        return  # folds wrappers; see below
    drawn = data.draw(st.lists(st.one_of(*map(records, overlay.schemas)), max_size=6), label="records")
    source, target = source_log(drawn), MemoryLog(TARGET)
    for entry in source.entries:
        wrap(target, entry)
    assert state(target, overlay) == state(source, overlay)


def test_an_event_mirrored_by_wrap_and_by_reseal_and_again_counts_once() -> None:
    events = payments(30)
    source, target = source_log(events), MemoryLog(TARGET)
    for entry, each in zip(source.entries, events, strict=True):
        wrap(target, entry)
        reseal(target, entry, each)
        wrap(target, entry)
    assert state(target, LEDGER) != state(MemoryLog(TARGET), LEDGER)
    once = MemoryLog(TARGET)
    for entry in source.entries:
        wrap(once, entry)
    assert state(target, LEDGER) == state(once, LEDGER)


def test_a_message_wrapped_over_two_hubs_is_the_event_of_the_first() -> None:
    source, between, target = source_log(payments(10)), MemoryLog(Label(b"\x0c" * 32)), MemoryLog(TARGET)
    for entry in source.entries:
        wrap(between, entry)
    for entry in between.entries:
        wrap(target, entry)
    assert state(target, LEDGER) == state(source, LEDGER)


def test_a_wrapped_answer_keeps_the_identity_that_it_has_at_its_source() -> None:
    first, second = payments(2)
    source, target = source_log([first]), MemoryLog(TARGET)
    parent = source.entries[0].receipt.leaf_hash
    source.append(source.seal(second, SOURCE_READER, parent_id=parent))
    for entry in source.entries:
        wrap(target, entry)
    for here, there in zip(source.entries, target.entries, strict=True):
        assert (
            open_entry(here, here.receipt, BOTH).identity == open_entry(there, there.receipt, BOTH).identity
        )
        assert open_entry(there, there.receipt, BOTH).msg_id == there.receipt.leaf_hash


def test_a_reader_without_the_sources_key_ignores_wrapped_events() -> None:
    source, target = source_log(payments(3)), MemoryLog(TARGET)
    for entry in source.entries:
        wrap(target, entry)
    assert state(target, LEDGER, (READER,)) == state(MemoryLog(TARGET), LEDGER)


def test_a_wrapper_with_a_false_parent_or_a_forged_original_stays_a_wrapper() -> None:
    source, target = source_log(payments(2)), MemoryLog(TARGET)
    one, other = source.entries
    target.append(target.seal(wrapper(one), READER, parent_id=other.receipt.leaf_hash))
    forged = replace(one.msg, sig=other.msg.sig).encode()
    lie = replace(wrapper(one), origin_msg=forged)
    target.append(target.seal(lie, READER, parent_id=one.receipt.leaf_hash))
    assert all(is_wrapped(open_entry(entry, entry.receipt, BOTH)) for entry in target.entries)


def test_an_overlay_that_declares_wrappers_sees_them() -> None:
    source, target = source_log(payments(5)), MemoryLog(TARGET)
    for entry in source.entries:
        wrap(target, entry)
    assert state(target, ORIGINS) != state(MemoryLog(TARGET), ORIGINS)
