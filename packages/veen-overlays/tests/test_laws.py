"""The laws of core §11.1 and §11.3, tested on every overlay of the registry."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import lifted, logs

from veen_core import cbor
from veen_core.hashing import H, u64be
from veen_overlays import operations
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.fold.overlay import MAX_LISTED_IGNORED, Overlay, Summary
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record, decode_record, record

NAMED_BY_MESSAGE = {"queue.jobs", "rpc.calls", *(overlay.name for overlay in operations.OVERLAYS)}
"""Overlays whose states name jobs or operations by their messages, so that a parent changes a name."""

every_overlay = pytest.mark.parametrize("name", OVERLAYS)


def random_tree(overlay: Overlay[Any], parts: list[Summary[Any]], rng: random.Random) -> Summary[Any]:
    parts = [*parts, overlay.empty]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [overlay.combine(parts[at], parts[at + 1])]
    return parts[0]


@every_overlay
@given(data=st.data())
def test_any_tree_over_the_events_gives_the_bytes_of_the_plain_fold(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay))
    parts = lifted(overlay, log)
    plain = reduce(overlay.combine, parts, overlay.empty)
    for seed in range(3):
        assert overlay.encode(random_tree(overlay, parts, random.Random(seed))) == overlay.encode(plain)
    assert overlay.encode(overlay.fold(log)) == overlay.encode(plain)


@every_overlay
@given(data=st.data())
def test_cut_anywhere_the_parts_fold_to_the_same_bytes(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    seen = MemorySeenKeys()
    edges = zip([0, *cuts], [*cuts, len(log)], strict=True)
    parts = [overlay.fold(log[a:b], seen) for a, b in edges]
    assert overlay.encode(overlay.merge(parts)) == overlay.encode(overlay.fold(log))


@every_overlay
@given(data=st.data())
def test_empty_is_the_identity_and_combine_is_associative(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    a, b, c = (overlay.fold(data.draw(logs(overlay, 8))) for _ in range(3))
    join, form = overlay.combine, overlay.encode
    assert form(join(overlay.empty, a)) == form(a) == form(join(a, overlay.empty))
    assert form(join(join(a, b), c)) == form(join(a, join(b, c)))


@every_overlay
@given(data=st.data())
def test_combining_changes_neither_argument(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    a, b = (overlay.fold(data.draw(logs(overlay, 8))) for _ in range(2))
    before = overlay.encode(a), overlay.encode(b)
    overlay.combine(a, b)
    assert (overlay.encode(a), overlay.encode(b)) == before


@every_overlay
@given(data=st.data())
def test_a_prefix_replayed_or_mirrored_changes_nothing(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay))
    again = log[: data.draw(st.integers(0, len(log)))]
    mirrored = [
        m._replace(seq=len(log) + n, msg_id=H(b"copy" + u64be(n)), parent_id=m.msg_id)
        for n, m in enumerate(log, start=1)
    ]
    once = overlay.encode(overlay.fold(log))
    assert overlay.encode(overlay.fold(log + again)) == once
    assert overlay.encode(overlay.fold(log + mirrored)) == once
    assert overlay.encode(overlay.fold(log + mirrored + mirrored)) == once


@every_overlay
@given(data=st.data())
def test_a_log_of_copies_is_the_same_events(name: str, data: st.DataObject) -> None:
    """WALBR0 11.3, ID 12.1: on the other hub only the copies exist."""
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay))
    copies = [m._replace(msg_id=H(b"copy" + m.msg_id), parent_id=m.msg_id) for m in log]
    assert overlay.encode(overlay.fold(copies)) == overlay.encode(overlay.fold(log))


@every_overlay
@given(data=st.data())
def test_a_message_that_answers_another_is_an_event_of_its_own(name: str, data: st.DataObject) -> None:
    """An answer names its question as parent (RPC0.1), but only the same payload makes a copy (ID 12.1)."""
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay, 12))
    said = set()
    for n in range(1, len(log)):
        asked = log[data.draw(st.integers(0, n - 1))]
        answer = asked.msg_id, log[n].schema, log[n].body
        if answer not in said and (asked.schema, asked.body) != answer[1:]:
            log[n] = log[n]._replace(parent_id=asked.msg_id)
            said.add(answer)
    plain = overlay.fold([m._replace(parent_id=None) for m in log])
    folded = overlay.fold(log)
    assert folded[:3] == plain[:3], "none is lost"
    if name not in NAMED_BY_MESSAGE:
        assert overlay.state_bytes(folded) == overlay.state_bytes(plain)


@every_overlay
@given(data=st.data())
def test_a_forged_parent_cannot_suppress_a_copy_that_has_not_arrived(name: str, data: st.DataObject) -> None:
    """A message with another payload and the same parent does not suppress the copy."""
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay, 8))
    squatters = [
        Message(n, H(b"squat" + u64be(n)), H(b"nobody's"), b"", m.msg_id) for n, m in enumerate(log, 1)
    ]
    copies = [m._replace(seq=len(log) + m.seq, msg_id=H(b"copy" + m.msg_id), parent_id=m.msg_id) for m in log]
    assert overlay.fold([*squatters, *copies]).events == overlay.fold(log).events


@every_overlay
@given(data=st.data())
def test_a_summary_survives_encoding_and_loading(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    summary = overlay.fold(data.draw(logs(overlay)))
    encoded = overlay.encode(summary)
    cbor.decode(encoded)  # canonical (B3)
    assert overlay.load(encoded) == summary
    assert overlay.encode(overlay.load(encoded)) == encoded
    cbor.decode(overlay.state_bytes(summary))
    json.dumps(overlay.view_json(summary))
    assert overlay.state_hash(summary) == overlay.state_hash(overlay.load(encoded))


@every_overlay
@given(data=st.data())
def test_ignored_messages_are_counted_and_listed_and_change_no_state(name: str, data: st.DataObject) -> None:
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay))
    good = [m for m in log if _is_event(overlay, m)]
    whole, clean = overlay.fold(log), overlay.fold(good)
    assert whole.foreign + whole.undecodable == len(log) - len(good)
    bad = [m for m in log if m not in good]
    assert [fault.seq for fault in whole.ignored] == [m.seq for m in bad[:MAX_LISTED_IGNORED]]
    assert overlay.state_bytes(whole) == overlay.state_bytes(clean)
    assert clean.events == whole.events


def _is_event(overlay: Overlay[Any], message: Message) -> bool:
    shapes = overlay.shapes.get(message.schema)
    return shapes is not None and hasattr(decode_record(shapes, message.body), "codec")


@every_overlay
@given(data=st.data())
def test_duplicates_can_be_found_by_grouping_in_any_order(name: str, data: st.DataObject) -> None:
    """As a distributed fold does: group by identity first, then by each key."""
    overlay = OVERLAYS[name]
    log = data.draw(logs(overlay))
    copies = [m._replace(seq=len(log) + m.seq, msg_id=H(m.msg_id), parent_id=m.msg_id) for m in log[::2]]
    shuffled = data.draw(st.permutations([*log, *copies]))
    first: dict[bytes, Message] = {}
    for message in shuffled:
        held = first.get(message.identity, message)
        first[message.identity] = min(message, held, key=lambda m: m.seq)
    events = [overlay.decode(message) for message in first.values()]
    first_use: dict[bytes, int] = {}
    for event in events:
        for key in overlay.keys_of(event):
            first_use[key] = min(first_use.get(key, event.seq), event.seq)
    parts = []
    for event in sorted(events, key=lambda e: e.seq):
        marks = tuple(first_use[key] != event.seq for key in overlay.keys_of(event))
        parts.append(overlay.summarise(event._replace(repeated=marks) if any(marks) else event))  # type: ignore[call-arg]
    assert overlay.encode(overlay.merge(parts)) == overlay.encode(overlay.fold([*log, *copies]))


CHILD = """
import pickle, sys
from veen_overlays.fold.registry import OVERLAYS
name, log = pickle.loads(sys.stdin.buffer.read())
overlay = OVERLAYS[name]
summary = overlay.fold(log)
sys.stdout.buffer.write(overlay.encode(summary) + overlay.state_hash(summary))
"""


@every_overlay
def test_any_process_gives_the_same_bytes(name: str) -> None:
    """Two processes with different hash seeds give the same bytes."""
    import pickle  # noqa: PLC0415

    overlay = OVERLAYS[name]
    log: list[Message] = []

    @settings(max_examples=5, database=None, derandomize=True)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        for message in data.draw(logs(overlay)):
            n = len(log) + 1
            log.append(message._replace(seq=n, msg_id=H(u64be(n))))

    collect()
    answers = {
        subprocess.run(
            [sys.executable, "-c", CHILD],
            input=pickle.dumps((name, log)),
            capture_output=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    }
    here = overlay.fold(log)
    assert answers == {overlay.encode(here) + overlay.state_hash(here)}


@record("later.addition.v1", section="tests")
@dataclass(frozen=True, slots=True, kw_only=True)
class Later(Record):
    """A record that only a newer version of the overlay knows."""

    n: int


def newer(overlay: Overlay[Any]) -> Overlay[Any]:
    """A later version of the overlay with one more record."""
    return replace(
        overlay,
        schemas=(*overlay.schemas, Later),
        lift=lambda e: overlay.monoid.empty if isinstance(e.record, Later) else overlay.lift(e),
        bulk=None,
    )


@every_overlay
@given(data=st.data())
def test_old_logs_fold_under_new_overlays_and_new_logs_under_old_ones(name: str, data: st.DataObject) -> None:
    """Core §0, §1: older logs stay valid, and an older overlay ignores records it does not know."""
    old, new = OVERLAYS[name], newer(OVERLAYS[name])
    log = data.draw(logs(old))
    assert new.encode(new.fold(log)) == old.encode(old.fold(log))
    assert new.class_id != old.class_id  # stored summaries of one are not taken for the other's
    more = [*log, Message(len(log) + 1, H(b"later"), Later.SCHEMA, Later(n=1).encode())]
    assert new.state_hash(new.fold(more)) == old.state_hash(old.fold(more)) == old.state_hash(old.fold(log))
    assert old.fold(more).foreign == old.fold(log).foreign + 1
    assert new.fold(more).events == new.fold(log).events + 1
