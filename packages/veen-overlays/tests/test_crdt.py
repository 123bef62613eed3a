"""CRDT0, clause by clause (spec-1 §25)."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

from logs import log_of, state_of

from veen_overlays.crdt import (
    G_COUNTER,
    LWW_REGISTERS,
    OR_SET,
    AddId,
    CounterAdd,
    LwwWrite,
    OrSetAdd,
    OrSetRemove,
    ShardId,
    live_adds,
)
from veen_overlays.fold.event import Message

PUBLISHED = Path(__file__).parent / "vectors" / "published"


def write(ts: int, value: bytes, key: bytes = b"k") -> LwwWrite:
    return LwwWrite(key=key, ts=ts, value=value)


def at(seq: int, record: LwwWrite, msg_id: bytes = b"m") -> Message:
    return Message(seq, msg_id.ljust(32, bytes([seq % 256])), record.SCHEMA, record.encode())


def test_the_published_precedence_is_followed() -> None:
    """(ts, stream_seq) >= current replaces."""
    vector = json.loads((PUBLISHED / "lww_precedence.json").read_bytes())
    state = LWW_REGISTERS.fold([at(5, write(10, b"first"))])
    outcomes = {}
    steps = (("(10,5)->(11,3)", 3, 11), ("(9,100)", 100, 9), ("(11,7)", 7, 11))
    for name, seq, ts in steps:
        value = name.encode()
        state = LWW_REGISTERS.combine(state, LWW_REGISTERS.fold([at(seq, write(ts, value))]))
        held = LWW_REGISTERS.view(state.inner)[b"k"]
        outcomes[name] = "replaced" if held == value else "ignored"
    assert outcomes == vector["expected"]


def test_equal_timestamps_are_decided_by_stream_seq_then_by_identity() -> None:
    assert state_of(LWW_REGISTERS, [write(5, b"early"), write(5, b"late")]) == {b"k": b"late"}
    one, two = at(1, write(5, b"one"), b"a" * 32), at(1, write(5, b"two"), b"b" * 32)
    for log in ([one, two], [two, one]):
        assert LWW_REGISTERS.view(LWW_REGISTERS.fold(log).inner) == {b"k": b"two"}


def test_an_older_timestamp_never_wins_however_late_it_arrives() -> None:
    assert state_of(LWW_REGISTERS, [write(9, b"new"), write(8, b"old")]) == {b"k": b"new"}


def add(n: int, elem: bytes) -> OrSetAdd:
    return OrSetAdd(id=AddId(bytes([n]) * 32), elem=elem)


def remove(*ns: int) -> OrSetRemove:
    return OrSetRemove(tomb=tuple(AddId(bytes([n]) * 32) for n in ns))


def test_an_element_is_present_while_one_addition_is_not_removed() -> None:
    assert state_of(OR_SET, [add(1, b"x"), add(2, b"x"), remove(1)]) == [b"x"]
    assert state_of(OR_SET, [add(1, b"x"), add(2, b"x"), remove(1, 2)]) == []


def test_an_addition_concurrent_with_a_removal_survives_it() -> None:
    assert state_of(OR_SET, [add(1, b"x"), remove(1), add(2, b"x")]) == [b"x"]


def test_the_order_of_additions_and_removals_does_not_matter() -> None:
    steps = [add(1, b"x"), add(2, b"y"), remove(1), add(3, b"x")]
    assert {tuple(state_of(OR_SET, order)) for order in permutations(steps)} == {(b"x", b"y")}


def test_a_removal_names_the_additions_that_are_not_removed() -> None:
    inner = OR_SET.fold(log_of(add(1, b"x"), add(2, b"x"), remove(1))).inner
    assert live_adds(inner, b"x") == (AddId(b"\x02" * 32),)
    assert live_adds(inner, b"never") == ()


def test_a_counter_is_the_sum_of_its_shards_and_may_exceed_64_bits() -> None:
    one, two = ShardId(b"\x01" * 32), ShardId(b"\x02" * 32)
    most = 2**64 - 1
    steps = [
        CounterAdd(shard=one, delta=most),
        CounterAdd(shard=one, delta=1),
        CounterAdd(shard=two, delta=3),
    ]
    assert state_of(G_COUNTER, steps) == {
        "total": str(most + 4),
        "shards": {bytes(one): str(most + 1), bytes(two): 3},
    }
