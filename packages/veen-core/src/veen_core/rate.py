"""Token buckets for rate limits; receipts are enough to recompute them (OP0.3, RESOLUTIONS H8)."""

from __future__ import annotations

from dataclasses import dataclass

from veen_core.cap import Rate
from veen_core.ids import UnixTime


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket of one (claims_ref, label), refilled by whole seconds of hub_ts (H8)."""

    tokens: int
    refilled_at: UnixTime

    @staticmethod
    def full(rate: Rate, now: UnixTime) -> Bucket:
        """Return a full bucket, as it is before the first message."""
        return Bucket(rate.burst, now)

    def at(self, rate: Rate, now: UnixTime) -> Bucket:
        """Return the bucket refilled up to ``now``; hub_ts never decreases (H3)."""
        elapsed = now - self.refilled_at
        return Bucket(min(rate.burst, self.tokens + elapsed * rate.per_sec), now) if elapsed > 0 else self

    @property
    def allows(self) -> bool:
        """Whether one more message is within the rate."""
        return self.tokens > 0

    def take(self) -> Bucket:
        """Return the bucket after one accepted message."""
        return Bucket(max(0, self.tokens - 1), self.refilled_at)

    def retry_after(self, rate: Rate) -> int | None:
        """Return the seconds until the next message is within the rate; None for a rate of 0."""
        return 1 if rate.per_sec and rate.burst else None
