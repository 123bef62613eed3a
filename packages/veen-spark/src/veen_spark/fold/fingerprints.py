"""Duplicates between ranges: found by fingerprints, resolved by the keys themselves (ADR 0011).

Of several events with the same identity, or with the same key of the overlay, only the first counts. A task
sees duplicates within its own range, but not those in other ranges. Therefore:

1. Every range reports the keys of its events as fingerprints of 8 bytes.
2. Ranges of a label that share a fingerprint may contain a duplicate (or, rarely, two keys with the same
   fingerprint).
3. The messages in these ranges whose fingerprint occurs more than once report their complete keys. The driver
   finds the first occurrence of each key in stream order.
4. These ranges are folded again with that answer. All other ranges stay as they are.

Two keys with the same fingerprint cost time but do not change the result. A log without duplicates is read
once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

FINGERPRINT_BYTES: Final = 8
DUPLICATE_SCHEMA: Final = pa.schema(
    [
        pa.field("label", pa.binary()),
        pa.field("from_seq", pa.int64()),
        pa.field("to_seq", pa.int64()),
        pa.field("repeated", pa.binary()),
        pa.field("shared", pa.bool_()),
    ]
)


def fingerprint(key: bytes) -> bytes:
    """Return the fingerprint of a key."""
    return blake2b(key, digest_size=FINGERPRINT_BYTES).digest()


@dataclass(frozen=True, slots=True)
class FirstOccurrenceKeys:
    """An overlay's ``Seen`` with known first occurrences; a key that is not listed occurs once."""

    seqs: Mapping[bytes, int]

    def first(self, key: bytes, seq: int) -> bool:
        return self.seqs.get(key, seq) == seq


class RangeKeys:
    """An overlay's ``Seen`` for one range, which records the keys of the range.

    The first query of a key is its first occurrence, unless ``resolved`` names another entry. ``first_keys``
    are the keys whose first occurrence is in this range, for the index of a live fold.
    """

    __slots__ = ("_asked", "_keys", "_resolved", "first_keys")

    def __init__(self, resolved: FirstOccurrenceKeys | None = None, *, keep: bool = False) -> None:
        self._keys: set[bytes] = set()
        self._asked: list[bytes] = []
        self._resolved = resolved
        self.first_keys: list[tuple[bytes, int]] | None = [] if keep else None

    def first(self, key: bytes, seq: int) -> bool:
        self._asked.append(blake2b(key, digest_size=FINGERPRINT_BYTES).digest())
        if self._resolved is None:
            before = len(self._keys)
            self._keys.add(key)
            is_first = len(self._keys) != before
        else:
            is_first = self._resolved.first(key, seq)
        if self.first_keys is not None and is_first:
            self.first_keys.append((key, seq))
        return is_first

    def packed(self) -> bytes:
        """Return the fingerprints of all queried keys, including repeated ones."""
        return b"".join(self._asked)


class SharedRange(NamedTuple):
    """A range that shares a fingerprint with another range of its label."""

    label: bytes
    from_seq: int
    to_seq: int
    repeated: frozenset[bytes]
    """The fingerprints in the range that occur more than once in the label."""


RangeFingerprints = tuple[bytes, int, int, bytes]
"""Label, from_seq, to_seq and fingerprints of a range."""


Repeated = tuple[bytes, int, int, bytes, bool]
"""Label, from_seq, to_seq, repeated fingerprints of a range, and whether another range has one of them."""


def repeated_fingerprints(ranges: Sequence[RangeFingerprints], known: bytes = b"") -> Iterator[Repeated]:
    """Yield the ranges of one label with a repeated fingerprint.

    A range whose fingerprint repeats only within itself is included: another bucket of fingerprints may show
    that the range is shared, and then all of its repeated keys must be resolved. ``known`` are fingerprints
    of keys before all of these ranges.
    """
    arrays = [np.frombuffer(packed, dtype=">u8") for packed in (*(packed for *_, packed in ranges), known)]
    everything, counts = np.unique(np.concatenate(arrays), return_counts=True)
    repeated = everything[counts > 1]
    if not len(repeated):
        return
    distinct, counts_of_ranges = np.unique(np.concatenate([np.unique(a) for a in arrays]), return_counts=True)
    shared = distinct[counts_of_ranges > 1]
    for (label, from_seq, to_seq, _), array in zip(ranges, arrays, strict=False):
        mine = np.unique(array[np.isin(array, repeated)])
        if len(mine):
            yield label, from_seq, to_seq, mine.astype(">u8").tobytes(), bool(np.isin(mine, shared).any())


def shared_ranges(found: Iterable[Sequence[Any]]) -> list[SharedRange]:
    """Join the results of all buckets: the shared ranges, each with all of its repeated fingerprints."""
    by_range: dict[tuple[bytes, int, int], set[bytes]] = {}
    sharing = set()
    for label, from_seq, to_seq, packed, shared in found:
        range_key = (bytes(label), from_seq, to_seq)
        prints = (bytes(packed[n : n + FINGERPRINT_BYTES]) for n in range(0, len(packed), FINGERPRINT_BYTES))
        by_range.setdefault(range_key, set()).update(prints)
        if shared:
            sharing.add(range_key)
    return [
        SharedRange(*range_key, frozenset(prints))
        for range_key, prints in by_range.items()
        if range_key in sharing
    ]


class KeyedMessage(NamedTuple):
    """The deduplication keys of one message."""

    label: bytes
    seq: int
    identity: bytes
    keys: tuple[bytes, ...]


class FirstOccurrences:
    """The shared ranges, and the first occurrence of each repeated key."""

    def __init__(self, ranges: Iterable[SharedRange], firsts: Mapping[bytes, Mapping[bytes, int]]) -> None:
        self._starts: dict[bytes, list[int]] = {}
        self._ends: dict[bytes, list[int]] = {}
        for each in sorted(ranges, key=lambda m: (m.label, m.from_seq)):
            self._starts.setdefault(each.label, []).append(each.from_seq)
            self._ends.setdefault(each.label, []).append(each.to_seq)
        self._firsts = firsts

    def wants(self, label: bytes, seq: int) -> bool:
        """Return whether the entry is in one of the ranges; ranges do not overlap."""
        at = bisect_right(self._starts.get(label, ()), seq) - 1
        return at >= 0 and seq <= self._ends[label][at]

    def of(self, label: bytes) -> FirstOccurrenceKeys:
        return FirstOccurrenceKeys(self._firsts.get(label, {}))


Earlier = Callable[[bytes, bytes], int | None]
"""Returns the stream_seq of an earlier occurrence of a label's key, or None."""


def first_occurrences(
    messages: Iterable[KeyedMessage], earlier: Earlier = lambda _label, _key: None
) -> dict[bytes, dict[bytes, int]]:
    """Return label → key → stream_seq of its first occurrence, by the definition of ADR 0011."""
    firsts: dict[bytes, dict[bytes, int]] = {}
    for label, seq, identity, keys in sorted(messages, key=lambda m: (m.label, m.seq)):
        first = firsts.setdefault(label, {})
        if _first(first, label, identity, seq, earlier):
            for key in keys:
                _first(first, label, key, seq, earlier)
    return firsts


def _first(first: dict[bytes, int], label: bytes, key: bytes, seq: int, earlier: Earlier) -> bool:
    if key not in first:
        before = earlier(label, key)
        first[key] = seq if before is None else before
    return first[key] == seq
