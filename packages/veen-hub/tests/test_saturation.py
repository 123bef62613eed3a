"""When helper processes pay: many messages wait, and the hub has had no idle moment."""

from __future__ import annotations

import time

import pytest

from veen_hub.pipeline.saturation import MIN_SECONDS, MIN_WAITING, Saturation


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_hub_is_saturated_once_many_messages_have_waited_without_a_break(clock: list[float]) -> None:
    saturation = Saturation()
    saturation.note(MIN_WAITING)
    assert not saturation.is_saturated()
    clock[0] += MIN_SECONDS
    saturation.note(1)
    assert saturation.is_saturated()
    saturation.note(0)
    assert not saturation.is_saturated()


def test_few_messages_or_an_idle_moment_do_not_saturate_a_hub(clock: list[float]) -> None:
    saturation = Saturation()
    saturation.note(MIN_WAITING - 1)
    clock[0] += MIN_SECONDS
    assert not saturation.is_saturated()
    saturation.note(MIN_WAITING)
    saturation.note(0)
    saturation.note(MIN_WAITING)
    assert not saturation.is_saturated()
