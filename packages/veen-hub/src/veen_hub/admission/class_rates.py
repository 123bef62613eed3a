"""In-memory buckets for rates that only a policy knows: of classes (LCLASS0 6.2) and of grants (spec-3 3.3).

Such a rate exists only in the policy's view, so its buckets are not part of the log's state. After a restart
or an eviction a bucket starts with what the token's own bucket has left. A grant has no such bucket: if the
grant is older than the restart or the last eviction, its bucket starts empty and has been refilled since
then. So a writer gains no messages.
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

    def __init__(self, begun_at: UnixTime, max_buckets: int = MAX_BUCKETS) -> None:
        """``begun_at``: the hub's last hub_ts before it started; earlier messages are not in the buckets."""
        self._max_buckets = max_buckets
        self._complete_since = begun_at
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

    def grant_bucket(self, key: RateKey, rate: Rate, now: UnixTime, issued_at: UnixTime) -> Bucket:
        """Return the bucket of a token that stands for a grant with this receipt time."""
        if key in self._buckets or issued_at > self._complete_since:
            return self.bucket(key, rate, now, None)
        return Bucket(0, self._complete_since).at(rate, now)

    def take(self, key: RateKey, rate: Rate, bucket: Bucket) -> None:
        """Count an accepted message."""
        self._buckets[key] = rate, bucket.take()
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_buckets:
            _, (_, evicted) = self._buckets.popitem(last=False)
            self._complete_since = max(self._complete_since, evicted.refilled_at)
