"""Immutable maps in two layers, so that adding one event does not copy a whole state (core §3.4).

Combining a large map with a small one copies only the upper layer of the large map. If the lower layer has n
keys, the upper layer has at most 4 * sqrt(n); when it grows beyond that, both layers are merged into one map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isqrt
from typing import Any, Final, TypeVar

S = TypeVar("S")

MIN_LAYERED_KEYS: Final = 512
"""Smaller maps are copied, which costs less than lookups in two layers."""


class Layers(Mapping[Any, S]):
    """An immutable map of two layers; a value of the upper layer hides the value of the same key below."""

    __slots__ = ("_above", "_below", "_size")

    def __init__(self, below: dict[Any, S], above: dict[Any, S], size: int) -> None:
        self._below, self._above, self._size = below, above, size

    def __getitem__(self, key: Any) -> S:
        return self._above[key] if key in self._above else self._below[key]

    def __contains__(self, key: object) -> bool:
        return key in self._above or key in self._below

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        yield from self._below
        yield from (key for key in self._above if key not in self._below)

    def __repr__(self) -> str:
        return repr(self.flat())

    def flat(self) -> dict[Any, S]:
        """Both layers as one dict."""
        return {**self._below, **self._above}

    def split(self) -> tuple[dict[Any, S], dict[Any, S]]:
        """The lower and the upper layer."""
        return self._below, self._above


def join(a: Mapping[Any, S], b: Mapping[Any, S], combine: Callable[[S, S], S]) -> Mapping[Any, S]:
    """The union of two maps; the values of a key in both are combined, ``a`` before ``b``."""
    if not a or not b:
        return b or a
    if len(a) < MIN_LAYERED_KEYS or len(b) > isqrt(len(a)):
        return _onto(dict(a), a, b, combine)
    below, above = a.split() if isinstance(a, Layers) else (dict(a) if type(a) is not dict else a, {})
    above = _onto(dict(above), a, b, combine)
    size = len(a) + sum(key not in a for key in b)
    layers = Layers(below, above, size)
    return layers.flat() if len(above) > 4 * isqrt(len(below)) else layers


def _onto(
    target: dict[Any, S], a: Mapping[Any, S], b: Mapping[Any, S], combine: Callable[[S, S], S]
) -> dict[Any, S]:
    for key, right in b.items():
        target[key] = combine(a[key], right) if key in a else right
    return target
