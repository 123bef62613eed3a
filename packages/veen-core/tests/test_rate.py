"""Token buckets, recomputed from receipts (OP0.3, H8)."""

import pytest

from veen_core import Receipt, mint
from veen_core.cap import Rate
from veen_core.ids import UnixTime
from veen_core.rate import Bucket

from .simulator import BORN, STREAM, Hub, signing_key

RATE = Rate(per_sec=2, burst=3)


def at(offset: int) -> UnixTime:
    return UnixTime(BORN + offset)


def drained(now: UnixTime) -> Bucket:
    bucket = Bucket.full(RATE, now)
    while bucket.allows:
        bucket = bucket.take()
    return bucket


def test_a_bucket_starts_full_and_allows_a_burst() -> None:
    bucket = Bucket.full(RATE, BORN)
    for _ in range(RATE.burst):
        assert bucket.allows
        bucket = bucket.take()
    assert not bucket.allows


@pytest.mark.parametrize(
    ("elapsed", "tokens"),
    [
        pytest.param(0, 0, id="the same second"),
        pytest.param(1, 2, id="one second"),
        pytest.param(2, 3, id="capped at burst"),
        pytest.param(10**9, 3, id="years"),
    ],
)
def test_whole_seconds_of_hub_ts_refill_a_bucket_up_to_its_burst(elapsed: int, tokens: int) -> None:
    assert drained(BORN).at(RATE, at(elapsed)).tokens == tokens


def test_a_bucket_is_not_refilled_while_time_stands_still() -> None:
    bucket = drained(BORN)
    assert bucket.at(RATE, at(-5)) == bucket  # H3 forbids it; a bucket must not run backwards either


def test_asking_twice_in_a_second_refills_once() -> None:
    once = drained(BORN).at(RATE, at(1))
    assert once.at(RATE, at(1)) == once


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [
        pytest.param(RATE, 1, id="a token each second"),
        pytest.param(Rate(per_sec=0, burst=3), None, id="no refill"),
        pytest.param(Rate(per_sec=3, burst=0), None, id="no room"),
    ],
)
def test_retry_after_is_the_time_until_the_next_token_or_none(rate: Rate, seconds: int | None) -> None:
    assert Bucket(0, BORN).retry_after(rate) == seconds


def replay(receipts: list[Receipt]) -> Bucket:
    """What an auditor does: nothing but receipts of accepted messages under one auth_ref."""
    bucket = Bucket.full(RATE, receipts[0].hub_ts)
    for receipt in receipts:
        bucket = bucket.at(RATE, receipt.hub_ts)
        assert bucket.allows
        bucket = bucket.take()
    return bucket


def test_the_hubs_bucket_is_recomputed_from_receipts_alone(hub: Hub) -> None:
    token = mint(signing_key("admin"), signing_key("bob").public, [STREAM], ttl=600, rate=RATE)
    bucket, receipts, refusals = Bucket.full(RATE, BORN), [], 0
    for offset in (0, 0, 0, 0, 0, 1, 1, 1, 4, 4, 4, 4, 9):
        hub.now = at(offset)
        bucket = bucket.at(RATE, hub.now)
        if not bucket.allows:  # a refused message consumes nothing and leaves no receipt
            refusals += 1
            continue
        bucket = bucket.take()
        receipts.append(hub.append(hub.compose("bob", auth_ref=token.auth_ref)))
    assert refusals == 4
    assert replay(receipts) == bucket
    assert replay(receipts) == replay([Receipt.decode(r.encode()) for r in receipts])
