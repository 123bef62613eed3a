"""The rounds of the joined hub log that are kept for replicas: rows of its index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from veen_core import cbor
from veen_core.ids import UnixTime
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Transaction, View

MAX_DROPPED: Final = 8
"""Rounds that are removed in one transaction."""
_PREFIX: Final = b"round/"


@dataclass(frozen=True, slots=True)
class Round:
    """One extension of the joined hub log, and which batches of the parts it covers."""

    before: int
    """Size of the joined hub log before it."""
    size: int
    batches: Mapping[int, int]
    """The last batch of each part that the round covers, by the part's number."""


@dataclass(frozen=True, slots=True)
class KeptRound:
    """A round with what its extension holds."""

    round: Round
    start: int
    """Offset of its first entry in ``hublog/entries``."""
    end: int
    hub_ts: UnixTime
    checkpoint: bytes
    """The signed hub checkpoint."""


def put_round(txn: Transaction, kept: KeptRound) -> None:
    batches = [[part, batch] for part, batch in sorted(kept.round.batches.items())]
    row = [kept.round.before, kept.start, kept.end, int(kept.hub_ts), batches, kept.checkpoint]
    tables.META.put(txn, _key(kept.round.size), cbor.encode(row))


def drop_rounds(txn: Transaction, before: int) -> None:
    """Remove the rounds that are older than a time, a few at a time."""
    for kept in list(islice(rounds_after(txn, 0), MAX_DROPPED)):
        if kept.hub_ts >= before:
            return
        txn.delete(tables.META.name, _key(kept.round.size))


def rounds_after(view: View, size: int) -> Iterator[KeptRound]:
    """Yield the rounds whose size is greater, in order."""
    for key, row in view.scan(tables.META.name, _key(size + 1), _PREFIX):
        before, start, end, hub_ts, batches, checkpoint = cbor.decode_items(row)
        found = Round(before, int.from_bytes(key.removeprefix(_PREFIX), "big"), dict(batches))
        yield KeptRound(found, start, end, UnixTime(hub_ts), checkpoint)


def _key(size: int) -> bytes:
    return _PREFIX + size.to_bytes(8, "big")
