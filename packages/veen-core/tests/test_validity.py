"""Half-open intervals of time (§8.4, spec-2 §2.2)."""

import pytest

from veen_core.ids import UnixTime
from veen_core.validity import active_at, until


@pytest.mark.parametrize(
    ("now", "active"),
    [
        pytest.param(9, False, id="before"),
        pytest.param(10, True, id="on the first second"),
        pytest.param(19, True, id="on the last second"),
        pytest.param(20, False, id="at the end"),
    ],
)
def test_the_start_counts_and_the_end_does_not(now: int, active: bool) -> None:
    assert active_at(UnixTime(now), UnixTime(10), UnixTime(20)) is active


def test_without_an_end_a_period_lasts_for_ever() -> None:
    assert active_at(UnixTime(2**63), UnixTime(10), None)


def test_a_ttl_gives_an_end_and_no_ttl_gives_no_end() -> None:
    assert until(UnixTime(10), 5) == 15
    assert until(UnixTime(10), 0) == 10
    assert until(UnixTime(10), None) is None
