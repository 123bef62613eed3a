"""Class rates: in-memory buckets for rates that a policy sets in place of the tokens' own (LCLASS0 6.2).

A class exists only in the policy's view, so its buckets are not part of the log's state. A bucket that
is not in memory, after a restart or an eviction, starts with what the token's own bucket has left. A writer
therefore never gains messages.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from veen_core.cap import Rate
from veen_core.ids import Label, UnixTime
from veen_core.rate import Bucket

MAX_BUCKETS: Final = 65_536
"""Buckets in memory; the least recently used is evicted first."""

RateKey = tuple[bytes, Label]
"""A writer at a label: the claims of its token, or its client_id if it has none."""


class ClassRates:
    """The buckets of one hub; owned by the sequencer's thread."""

    def __init__(self, max_buckets: int = MAX_BUCKETS) -> None:
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[RateKey, tuple[Rate, Bucket]] = OrderedDict()

    def bucket(self, key: RateKey, rate: Rate, now: UnixTime, own: Bucket | None) -> Bucket:
        """Return the bucket, refilled up to ``now``; a change of rate does not refill it."""
        before, bucket = self._buckets.get(key, (rate, None))
        if bucket is None:
            left = rate.burst if own is None else min(rate.burst, own.tokens)
            bucket = Bucket(left, now)
        elif before != rate:
            bucket = Bucket(min(rate.burst, bucket.tokens), bucket.refilled_at)
        return bucket.at(rate, now)

    def take(self, key: RateKey, rate: Rate, bucket: Bucket) -> None:
        """Count an accepted message."""
        self._buckets[key] = rate, bucket.take()
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_buckets:
            self._buckets.popitem(last=False)
