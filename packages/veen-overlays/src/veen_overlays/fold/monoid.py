"""Monoids: the building blocks of summaries, with canonical bytes.

Values are never modified: ``combine`` returns a new value or one of its arguments. ``dump`` returns a plain
CBOR item with maps in key order, so that a value has one encoding; ``load`` is its inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from veen_core import cbor
from veen_core.hashing import U64_MAX
from veen_overlays.fold.event import Stamp
from veen_overlays.fold.layers import join

S = TypeVar("S")
K = TypeVar("K", bytes, str)


@dataclass(frozen=True, slots=True)
class Monoid(Generic[S]):
    """An associative ``combine`` with the identity ``empty``, and a CBOR form (core §11.3)."""

    empty: S
    combine: Callable[[S, S], S]
    dump: Callable[[S], Any]
    load: Callable[[Any], S]
    join: Callable[[Sequence[S]], S] | None = None
    """A faster ``combine`` of many values in order; it has the same result."""

    def combine_all(self, values: Iterable[S]) -> S:
        """Combine values in order, in a balanced tree unless the monoid joins many at once.

        ``empty`` takes part only if there are no values: inside maps it need not be an identity.
        """
        if self.join is not None:
            return self.join(list(values))
        stack: list[tuple[int, S]] = []
        for value in values:
            height, right = 0, value
            while stack and stack[-1][0] == height:
                height, right = height + 1, self.combine(stack.pop()[1], right)
            stack.append((height, right))
        if not stack:
            return self.empty
        return reduce(lambda right, left: self.combine(left, right), [held for _, held in reversed(stack)])


def int_to_item(n: int) -> int | str:
    """The CBOR item of an integer: decimal text beyond 64 bits, where CBOR would need a tag."""
    return n if cbor.INT_MIN <= n <= U64_MAX else str(n)


def item_to_int(item: int | str) -> int:
    """The inverse of ``int_to_item``."""
    return int(item)


SUM: Monoid[int] = Monoid(0, lambda a, b: a + b, int_to_item, item_to_int, sum)
"""A sum, which may exceed 64 bits."""


StampedValue = tuple[Stamp, bytes]
"""The value of a register: the stamp of the write, and the written bytes."""


def _later(a: StampedValue | None, b: StampedValue | None) -> StampedValue | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


LWW: Monoid[StampedValue | None] = Monoid(
    None,
    _later,
    lambda w: None if w is None else [*w[0], w[1]],
    lambda i: None if i is None else ((i[0], i[1], i[2]), i[3]),
)
"""A register: the write with the greatest (timestamp, stream_seq, identity) wins (core §11.1)."""


def _earlier(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _to_list(held: tuple[Any, ...] | None) -> list[Any] | None:
    return None if held is None else list(held)


def _to_tuple(item: list[Any] | None) -> Any:
    return None if item is None else tuple(item)


FIRST_WRITER: Monoid[StampedValue | None] = Monoid(None, _earlier, LWW.dump, LWW.load)
"""A register: the write with the smallest (timestamp, stream_seq, identity) wins."""


FIRST: Monoid[Any] = Monoid(None, _earlier, _to_list, _to_tuple)
"""A register of tuples that start with a stream_seq: the smallest tuple wins."""


CountedValue = tuple[int, bytes, bytes, int]
"""A value that was written once or more: stream_seq, identity and bytes of the first write, and a count."""


def _counted(a: CountedValue | None, b: CountedValue | None) -> CountedValue | None:
    if a is None or b is None:
        return b if a is None else a
    seq, identity, content, _ = min(a, b)
    return seq, identity, content, a[3] + b[3]


FIRST_COUNTED: Monoid[CountedValue | None] = Monoid(None, _counted, _to_list, _to_tuple)
"""A register that keeps the first write and counts all of them."""


GROW_SET: Monoid[frozenset[bytes]] = Monoid(
    frozenset(), lambda a, b: a | b, sorted, frozenset, lambda sets: frozenset().union(*sets)
)
"""A set that only grows."""


def map_of(value: Monoid[S]) -> Monoid[Mapping[Any, S]]:
    """A map whose values are combined key by key. Its keys are all bytes or all text."""

    def join_all(maps: Sequence[Mapping[Any, S]]) -> Mapping[Any, S]:
        by_key: dict[Any, list[S]] = {}
        for each in maps:
            for key, inner in each.items():
                if key in by_key:
                    by_key[key].append(inner)
                else:
                    by_key[key] = [inner]
        return {key: held[0] if len(held) == 1 else value.combine_all(held) for key, held in by_key.items()}

    return Monoid(
        {},
        lambda a, b: join(a, b, value.combine),
        lambda s: {key: value.dump(s[key]) for key in sorted(s)},
        lambda item: {key: value.load(inner) for key, inner in item.items()},
        join_all,
    )


def product(**parts: Monoid[Any]) -> Monoid[Mapping[str, Any]]:
    """A value with named parts, each combined with its own monoid; an absent part is empty."""

    def combine(a: Mapping[str, Any], b: Mapping[str, Any]) -> Mapping[str, Any]:
        if not a or not b:
            return b or a
        return {
            name: part.combine(a[name], b[name]) if name in a and name in b else a.get(name, b.get(name))
            for name, part in parts.items()
            if name in a or name in b
        }

    def join_all(values: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        held = {name: [each[name] for each in values if name in each] for name in parts}
        return {name: parts[name].combine_all(each) for name, each in held.items() if each}

    return Monoid(
        {},
        combine,
        lambda s: {name: part.dump(s[name]) for name, part in parts.items() if name in s},
        lambda item: {name: parts[name].load(inner) for name, inner in item.items()},
        join_all,
    )
