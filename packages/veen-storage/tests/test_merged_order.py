"""The order of a sharded hub's merged journal: every round follows what it covers, and no number changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_storage.disk.files import Files
from veen_storage.read.journal_feed import BatchesGoneError
from veen_storage.shards import merged_order
from veen_storage.shards.joined_rounds import Round
from veen_storage.shards.merged_order import (
    RECORD_BYTES,
    ROUND,
    BrokenOrderError,
    MergedOrder,
    MergedPlace,
    Ordered,
    order_between,
)
from veen_storage.shards.sharded_layout import CONTROL

from .faulty_files import FaultyFiles, When

NOW = 1_000
BASE = NOW << merged_order.NUMBERS_PER_SEC_BITS
START = {CONTROL: 10, 0: 20, 1: 30}


def order_at(path: Path, files: Files | None = None) -> MergedOrder:
    return MergedOrder(path, files or Files(), now=lambda: NOW)


def started(path: Path, files: Files | None = None) -> MergedOrder:
    order = order_at(path, files)
    order.start(5, START)
    return order


def place_of(order: MergedOrder) -> MergedPlace:
    assert order.place is not None
    return order.place


def test_a_round_comes_after_the_batches_that_it_covers_and_before_all_others() -> None:
    place = MergedPlace(100, 5, dict(START))
    rounds = [Round(5, 8, {CONTROL: 11, 0: 20, 1: 33}), Round(8, 9, {CONTROL: 11, 0: 21, 1: 33})]
    found = order_between(place, rounds, {CONTROL: 12, 0: 25, 1: 33})
    assert found == [
        Ordered(101, CONTROL, 11, 11),
        Ordered(102, 1, 31, 33),
        Ordered(105, ROUND, 8, 8),
        Ordered(106, 0, 21, 21),
        Ordered(107, ROUND, 9, 9),
        Ordered(108, CONTROL, 12, 12),
        Ordered(109, 0, 22, 25),
    ]


@pytest.mark.parametrize(
    ("rounds", "ends"),
    [
        ([Round(6, 8, START)], START),
        ([Round(5, 8, {**START, 1: 29})], START),
        ([], {**START, 0: 19}),
    ],
    ids=["a round is missing", "a batch is after a round that covers it", "a part has lost a batch"],
)
def test_what_does_not_continue_the_order_breaks_it(rounds: list[Round], ends: dict[int, int]) -> None:
    with pytest.raises(BrokenOrderError):
        order_between(MergedPlace(100, 5, dict(START)), rounds, ends)


def test_numbers_are_the_same_after_a_restart_and_a_torn_record_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "order"
    order = started(path)
    assert (order.first, order.last) == (BASE + 1, BASE)
    order.extend(order_between(place_of(order), [Round(5, 7, {**START, 0: 22})], {CONTROL: 11, 0: 25, 1: 30}))
    found = {number: order.find(number) for number in range(order.first, order.last + 1)}
    assert [record.part for record in found.values()] == [0, 0, ROUND, CONTROL, 0, 0, 0]
    order.close()
    path.write_bytes(path.read_bytes() + b"torn")
    again = order_at(path)
    assert (again.first, again.last, again.place) == (order.first, order.last, order.place)
    assert {number: again.find(number) for number in found} == found
    again.close()
    assert len(path.read_bytes()) % RECORD_BYTES == 0


def test_a_new_order_gives_no_number_again(tmp_path: Path) -> None:
    order = started(tmp_path / "order")
    order.extend(order_between(place_of(order), [], {CONTROL: 15, 0: 25, 1: 35}))
    last = order.last
    order.give_up()
    assert order.place is None
    assert order.first > order.last >= last, "a replica asks for batches that are gone"
    order.start(5, START)
    assert order.first > last
    order.close()


def test_the_older_half_is_dropped_when_there_are_too_many_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_order, "MAX_RECORDS", 20)
    order = started(tmp_path / "order")
    ends = dict(START)
    while order.first == BASE + 1:
        ends = {part: upto + 1 for part, upto in ends.items()}
        order.extend(order_between(place_of(order), [], ends))
    assert place_of(order).batches == ends
    kept = [order.find(number) for number in range(order.first, order.last + 1)]
    assert [record.number for record in kept] == [*range(order.first, order.last + 1)]
    with pytest.raises(BatchesGoneError, match="no longer kept"):
        order.find(order.first - 1)  # a replica may read it at this moment
    order.close()
    again = order_at(tmp_path / "order")
    assert (again.first, again.last, again.place) == (order.first, order.last, order.place)
    again.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_order_that_could_not_be_written_is_given_up(tmp_path: Path, when: When) -> None:
    counting = FaultyFiles(10**9)
    order = started(tmp_path / "counted", counting)
    before = len(counting.operations)
    order.extend(order_between(place_of(order), [], {**START, 0: 21}))
    steps = len(counting.operations) - before
    order.close()
    for number in range(before + 1, before + steps + 1):
        path = tmp_path / f"order-{number}"
        order = started(path, FaultyFiles(number, when))
        last = order.last
        with pytest.raises(OSError, match="Input/output error"):
            order.extend(order_between(place_of(order), [], {**START, 0: 21}))
        assert order.place is None
        assert order.first > order.last >= last
        order.close()
        assert order_at(path).place is None
