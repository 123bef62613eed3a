"""Summary monoids to build overlays from: each with an identity, an associative combine, canonical bytes.

Values are immutable by agreement: ``combine`` returns a new value or one of its arguments. ``dump``
gives a plain CBOR item with maps in key order, so one value has one encoding; ``load`` is its inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veen_core import cbor
from veen_core.hashing import U64_MAX
from veen_overlays.fold.event import Stamp
from veen_overlays.fold.layers import join

S = TypeVar("S")
K = TypeVar("K", bytes, str)


@dataclass(frozen=True, slots=True)
class Monoid(Generic[S]):
    """``combine(empty, x) = x = combine(x, empty)``; ``combine`` is associative (§11.3)."""

    empty: S
    combine: Callable[[S, S], S]
    dump: Callable[[S], Any]
    load: Callable[[Any], S]


def int_to_item(n: int) -> int | str:
    """An integer as an item; beyond 64 bits, where CBOR would need a tag, as decimal text."""
    return n if cbor.INT_MIN <= n <= U64_MAX else str(n)


def item_to_int(item: int | str) -> int:
    return int(item)


SUM: Monoid[int] = Monoid(0, lambda a, b: a + b, int_to_item, item_to_int)
"""A sum; it may outgrow 64 bits."""


StampedValue = tuple[Stamp, bytes]
"""What a last-writer-wins register holds: stamp and canonical bytes."""


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
"""Last writer wins by (timestamp, stream_seq, identity) (§11.1)."""


def _earlier(a: StampedValue | None, b: StampedValue | None) -> StampedValue | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


FIRST_WRITER: Monoid[StampedValue | None] = Monoid(None, _earlier, LWW.dump, LWW.load)
"""First writer wins, by the same order."""


GROW_SET: Monoid[frozenset[bytes]] = Monoid(frozenset(), lambda a, b: a | b, sorted, frozenset)
"""A set that only grows."""


def map_of(value: Monoid[S]) -> Monoid[Mapping[Any, S]]:
    """A map whose values combine key by key; bytes or text for keys, never both."""
    return Monoid(
        {},
        lambda a, b: join(a, b, value.combine),
        lambda s: {key: value.dump(s[key]) for key in sorted(s)},
        lambda item: {key: value.load(inner) for key, inner in item.items()},
    )


def product(**parts: Monoid[Any]) -> Monoid[Mapping[str, Any]]:
    """Several at once, by name: each combines with its own kind. Parts left out are empty."""

    def combine(a: Mapping[str, Any], b: Mapping[str, Any]) -> Mapping[str, Any]:
        if not a or not b:
            return b or a
        return {
            name: part.combine(a[name], b[name]) if name in a and name in b else a.get(name, b.get(name))
            for name, part in parts.items()
            if name in a or name in b
        }

    return Monoid(
        {},
        combine,
        lambda s: {name: part.dump(s[name]) for name, part in parts.items() if name in s},
        lambda item: {name: parts[name].load(inner) for name, inner in item.items()},
    )
