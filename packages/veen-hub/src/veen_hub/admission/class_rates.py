"""Rates that a policy sets in place of the tokens' own: their buckets, in memory (LCLASS0 6.2, H8).

A class comes and goes with the policy's view, so its buckets are no part of the log's state. A bucket that is
not held, after a restart or because others were used more lately, starts with what the token's own bucket has
left, if the token has one: never with more than a writer could have had.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from veen_core.cap import Rate
from veen_core.ids import Label, UnixTime
from veen_core.rate import Bucket

HELD: Final = 65_536
"""Buckets kept; the one unused longest is forgotten first."""

Who = tuple[bytes, Label]
"""A writer at a label: its auth_ref, or its client_id where it has none."""


class Pace:
    """The buckets of one hub; the sequencer's thread owns them."""

    def __init__(self, held: int = HELD) -> None:
        self._held = held
        self._buckets: OrderedDict[Who, tuple[Rate, Bucket]] = OrderedDict()

    def bucket(self, who: Who, rate: Rate, now: UnixTime, own: Bucket | None) -> Bucket:
        """Refilled up to ``now``. Under another rate than before it goes on with what is left."""
        before, bucket = self._buckets.get(who, (rate, None))
        if bucket is None:
            left = rate.burst if own is None else min(rate.burst, own.tokens)
            bucket = Bucket(left, now)
        elif before != rate:
            bucket = Bucket(min(rate.burst, bucket.tokens), bucket.refilled_at)
        return bucket.at(rate, now)

    def take(self, who: Who, rate: Rate, bucket: Bucket) -> None:
        """A message was accepted."""
        self._buckets[who] = rate, bucket.take()
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._held:
            self._buckets.popitem(last=False)
