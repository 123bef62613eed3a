"""Duplicates between ranges: found by fingerprints, settled by the keys themselves (ADR 0011).

The first event of an identity counts, and of each key its overlay names. A task settles what it sees; of what
other tasks see it knows nothing. So

1. every range claims the keys that it asked for, as fingerprints of 8 bytes: moved instead of events;
2. a fingerprint in two ranges of a label marks both, for a duplicate or, rarely, for a coincidence;
3. of the marked ranges, the messages with a fingerprint that occurs more than once tell their keys whole, and
   these are settled in stream order as the definition says: an identity's first counts, and claims its keys;
4. the marked ranges are lifted again with that answer; all others stand.

A coincidence costs time, never truth. In a log without duplicates nothing is read twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

FINGERPRINT: Final = 8
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
    return blake2b(key, digest_size=FINGERPRINT).digest()


@dataclass(frozen=True, slots=True)
class First:
    """A ``Seen`` that knows who was first; a key it does not know occurs once."""

    seqs: Mapping[bytes, int]

    def first(self, key: bytes, seq: int) -> bool:
        return self.seqs.get(key, seq) == seq


class RangeKeys:
    """A ``Seen`` for one range that remembers what it was asked.

    Within a range, who asks first is first; unless ``settled`` knows better. ``kept`` are the keys that were
    first, for whoever carries an index of them on.
    """

    __slots__ = ("_asked", "_keys", "_settled", "kept")

    def __init__(self, settled: First | None = None, *, keep: bool = False) -> None:
        self._keys: set[bytes] = set()
        self._asked: list[bytes] = []
        self._settled = settled
        self.kept: list[tuple[bytes, int]] | None = [] if keep else None

    def first(self, key: bytes, seq: int) -> bool:
        self._asked.append(blake2b(key, digest_size=8).digest())
        if self._settled is None:
            before = len(self._keys)
            self._keys.add(key)
            is_first = len(self._keys) != before
        else:
            is_first = self._settled.first(key, seq)
        if self.kept is not None and is_first:
            self.kept.append((key, seq))
        return is_first

    def packed(self) -> bytes:
        """Every fingerprint, as often as its key was asked for."""
        return b"".join(self._asked)


class SharedRange(NamedTuple):
    """A range that shares a fingerprint with another one of its label."""

    label: bytes
    from_seq: int
    to_seq: int
    repeated: frozenset[bytes]
    """Fingerprints in it that occur more than once in the label."""


Claimed = tuple[bytes, int, int, bytes]
"""Label, from_seq, to_seq and fingerprints of a range."""


Repeating = tuple[bytes, int, int, bytes, bool]
"""Likewise, with those fingerprints that the label has more than once; and whether another range has one."""


def repeated_fingerprints(claims: Sequence[Claimed], known: bytes = b"") -> Iterator[Repeating]:
    """Of one label's ranges (or one bucket of their fingerprints) those with a repeated one.

    Also if it is repeated in that range alone: what another bucket says may mark the range, and then whoever
    settles it has to know all that repeats there. ``known`` are fingerprints of keys before all of them.
    """
    arrays = [np.frombuffer(packed, dtype=">u8") for packed in (*(packed for *_, packed in claims), known)]
    everything, counts = np.unique(np.concatenate(arrays), return_counts=True)
    repeated = everything[counts > 1]
    if not len(repeated):
        return
    held, ranges = np.unique(np.concatenate([np.unique(a) for a in arrays]), return_counts=True)
    shared = held[ranges > 1]
    for (label, from_seq, to_seq, _), array in zip(claims, arrays, strict=False):
        mine = np.unique(array[np.isin(array, repeated)])
        if len(mine):
            yield label, from_seq, to_seq, mine.astype(">u8").tobytes(), bool(np.isin(mine, shared).any())


def shared_ranges(found: Iterable[Sequence[Any]]) -> list[SharedRange]:
    """What the buckets say of each range, together: those that share a fingerprint, with all that repeat."""
    by_range: dict[tuple[bytes, int, int], set[bytes]] = {}
    sharing = set()
    for label, from_seq, to_seq, packed, shared in found:
        place = (bytes(label), from_seq, to_seq)
        prints = (bytes(packed[n : n + FINGERPRINT]) for n in range(0, len(packed), FINGERPRINT))
        by_range.setdefault(place, set()).update(prints)
        if shared:
            sharing.add(place)
    return [SharedRange(*place, frozenset(prints)) for place, prints in by_range.items() if place in sharing]


class KeyedMessage(NamedTuple):
    """A message of a marked range, as far as duplicates go."""

    label: bytes
    seq: int
    identity: bytes
    keys: tuple[bytes, ...]


class FirstOccurrences:
    """The answer for the marked ranges: which they are, and the first of each repeated key."""

    def __init__(self, marked: Iterable[SharedRange], firsts: Mapping[bytes, Mapping[bytes, int]]) -> None:
        self._starts: dict[bytes, list[int]] = {}
        self._ends: dict[bytes, list[int]] = {}
        for mark in sorted(marked, key=lambda m: (m.label, m.from_seq)):
            self._starts.setdefault(mark.label, []).append(mark.from_seq)
            self._ends.setdefault(mark.label, []).append(mark.to_seq)
        self._firsts = firsts

    def wants(self, label: bytes, seq: int) -> bool:
        """Whether the entry lies in a marked range; these do not overlap."""
        at = bisect_right(self._starts.get(label, ()), seq) - 1
        return at >= 0 and seq <= self._ends[label][at]

    def of(self, label: bytes) -> First:
        return First(self._firsts.get(label, {}))


Earlier = Callable[[bytes, bytes], int | None]
"""Label and key → the ``stream_seq`` that had it before all of these messages, if one had."""


def first_occurrences(
    told: Iterable[KeyedMessage], earlier: Earlier = lambda _label, _key: None
) -> dict[bytes, dict[bytes, int]]:
    """The definition, in stream order: label → key → the first to have it."""
    firsts: dict[bytes, dict[bytes, int]] = {}
    for label, seq, identity, keys in sorted(told, key=lambda t: (t.label, t.seq)):
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
