"""The order of a sharded hub's merged journal: the part, and the part's batch, behind each of its batches.

Replicas follow one journal. A sharded hub has one per part, and the rounds of the joined hub log. The merged
journal has all of their batches under numbers of its own. Only the order is stored: the batches themselves
stay where they are (``merged_feed``).

``joined/order`` is a run of records of one size. A record gives numbers to a range of one part's batches, or
to one round. The file begins with the places of all parts before the first number: a replica that has less
needs a new copy. Order of ``extend``: the records are written and synced: **the commit point**; then readers
see them. A torn record at the end was never read, and is removed.

The order puts every round after exactly those batches that it covers. So each extension of the hub log has
the heads that a hub with one shard would have at that place.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import StorageError
from veen_storage.read.journal_feed import BatchesGoneError
from veen_storage.shards.joined_rounds import Round
from veen_storage.shards.sharded_layout import CONTROL

ROUND: Final = -2
"""In place of a part's number: one round of the joined hub log, by its size after the round."""
NUMBERS_PER_SEC_BITS: Final = 20
"""Bits of a number that count the batches of one second: a hub commits less than a million in a second."""
MAX_RECORDS: Final = 500_000
"""Records in the file, 20 MB; then the older half is removed, and replicas that need it copy anew."""
_FIELDS: Final = struct.Struct(">QqQQ")
_CRC: Final = struct.Struct(">I")
RECORD_BYTES: Final = _FIELDS.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Ordered:
    """One record: batch ``first`` has ``number`` in the merged journal; empty if ``last < first``."""

    number: int
    part: int
    """Number of a part, or ``ROUND``."""
    first: int
    last: int

    @property
    def end(self) -> int:
        """The number after the last one of this record."""
        return self.number + self.last + 1 - self.first

    def encode(self) -> bytes:
        data = _FIELDS.pack(self.number, self.part, self.first, self.last)
        return data + _CRC.pack(crc32(data))


@dataclass(slots=True)
class MergedPlace:
    """A place in the merged journal: each part's last batch before it, and the size of the joined hub log."""

    number: int
    """The last number so far."""
    size: int
    """Size of the joined hub log."""
    batches: dict[int, int] = field(default_factory=dict)
    """The last batch of each part."""

    def copy(self) -> MergedPlace:
        return MergedPlace(self.number, self.size, dict(self.batches))

    def base(self) -> list[Ordered]:
        """Return the empty records with which a file begins that continues here."""
        after = self.number + 1
        parts = [Ordered(after, part, upto + 1, upto) for part, upto in sorted(self.batches.items())]
        return [Ordered(after, ROUND, self.size + 1, self.size), *parts]

    def take(self, record: Ordered) -> None:
        if record.part == ROUND:
            self.size = record.last
        else:
            self.batches[record.part] = record.last
        self.number = record.end - 1


class BrokenOrderError(StorageError):
    """The order cannot be continued: replicas need a new copy."""


def order_between(place: MergedPlace, rounds: Sequence[Round], ends: Mapping[int, int]) -> list[Ordered]:
    """Return the records that follow ``place``, up to the batches ``ends``, which later rounds do not cover.

    The control part comes first: a token is in the journal before it is used.
    """
    now, found = place.copy(), list[Ordered]()

    def put(part: int, first: int, last: int) -> None:
        found.append(Ordered(now.number + 1, part, first, last))
        now.take(found[-1])

    def put_upto(batches: Mapping[int, int]) -> None:
        for part in sorted(now.batches):
            if (upto := batches[part]) > now.batches[part]:
                put(part, now.batches[part] + 1, upto)

    for each in rounds:
        if each.before != now.size or any(each.batches[part] < upto for part, upto in now.batches.items()):
            raise BrokenOrderError(f"round {each.size} of the hub log does not follow {now.size}")
        put_upto(each.batches)
        put(ROUND, each.size, each.size)
    if any(ends[part] < upto for part, upto in now.batches.items()):
        raise BrokenOrderError("a part has lost batches that are in the order")
    put_upto(ends)
    return found


def order_file(joined: Layout) -> Path:
    return joined.root / "order"


class MergedOrder:
    """The open file ``joined/order``. ``start`` and ``extend`` are called by one thread at a time."""

    def __init__(self, path: Path, files: Files, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._files = files
        self._now = now
        self._lock = threading.Lock()
        self._fd = -1
        self._count = 0
        self.place: MergedPlace | None = None
        """The last place; None if there is no order yet, or none that can be continued."""
        self.first = self.last = 0
        """The first number that can be read, and the last: without an order, ``first`` is after ``last``."""
        if path.exists():
            self._open()
        if self.place is None:
            self.give_up()

    def give_up(self) -> None:
        """Forget the order: every replica needs a new copy.

        New numbers follow all that may have been given, because they are times, in parts of a second.
        """
        self.place = None
        self.last = max(self.last, int(self._now()) << NUMBERS_PER_SEC_BITS)
        self.first = self.last + 1

    def _open(self) -> None:
        self._fd = self._files.open_append(self._path)
        content = self._path.read_bytes()
        place, count = MergedPlace(0, 0), 0
        for at in range(0, len(content) - RECORD_BYTES + 1, RECORD_BYTES):
            if (record := _decode(content[at : at + RECORD_BYTES])) is None:
                break
            if not count:
                self.first = record.number
            place.take(record)
            count += 1
        self._files.truncate(self._fd, count * RECORD_BYTES)
        self._count = count
        self.place, self.last = (place, place.number) if CONTROL in place.batches else (None, 0)

    def start(self, size: int, batches: Mapping[int, int]) -> None:
        """Begin a new order at a place that a copy has; every other replica needs a new copy."""
        self.give_up()
        place = MergedPlace(self.last, size, dict(batches))
        self._replace(place.base())
        self.place = place

    def extend(self, records: Sequence[Ordered]) -> None:
        """Append records durably."""
        assert self.place is not None
        if not records:
            return
        place = self.place.copy()
        for record in records:
            place.take(record)
        data = b"".join(record.encode() for record in records)
        try:
            self._files.write(self._fd, data, self._count * RECORD_BYTES)
            self._files.sync(self._fd)  # the commit point
        except BaseException:
            self.give_up()  # what the file has now is not known
            self._path.unlink(missing_ok=True)
            raise
        with self._lock:
            self._count += len(records)
            self.place, self.last = place, place.number
        if self._count > MAX_RECORDS:
            self._drop_older_half()

    def _drop_older_half(self) -> None:
        middle, place = self._count // 2, MergedPlace(0, 0)
        for at in range(middle):
            place.take(self._record(at))
        kept = [self._record(at) for at in range(middle, self._count)]
        self._replace([*place.base(), *kept])
        self.first = place.number + 1

    def _replace(self, records: Sequence[Ordered]) -> None:
        self._files.replace(self._path, b"".join(record.encode() for record in records))
        with self._lock:
            self.close()
            self._fd = self._files.open_append(self._path)
            self._count = len(records)

    def find(self, number: int) -> Ordered:
        """Return the record with a number up to ``last``; raise if it was removed, also a moment ago."""
        with self._lock:
            low, high = 0, self._count
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._record(middle).number <= number else (low, middle)
            found = self._record(low)
        if found.number > number:
            raise BatchesGoneError(f"batch {number} of the merged journal is no longer kept")
        return found

    def _record(self, at: int) -> Ordered:
        record = _decode(os.pread(self._fd, RECORD_BYTES, at * RECORD_BYTES))
        if record is None:
            raise BrokenOrderError(f"joined/order: record {at} does not match its checksum")
        return record

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _decode(data: bytes) -> Ordered | None:
    if len(data) != RECORD_BYTES or _CRC.unpack_from(data, _FIELDS.size) != (crc32(data[: _FIELDS.size]),):
        return None
    return Ordered(*_FIELDS.unpack_from(data))
