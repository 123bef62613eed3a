"""A mapping of bounded size evicts the key unused for longest (core §3.4.1)."""

import pytest

from veen_core.lru import Lru


def test_beyond_the_limit_the_oldest_key_is_evicted_and_counted() -> None:
    table = Lru[str, int](2)
    for number, key in enumerate("abc"):
        table.put(key, number)
    assert table.items() == [("b", 1), ("c", 2)]
    assert (table.evicted, len(table)) == (1, 2)
    assert "a" not in table
    assert table.get("a") is None


def test_setting_a_key_again_makes_it_the_newest() -> None:
    table = Lru[str, int](2)
    for key in "abac":
        table.put(key, 0)
    assert [key for key, _ in table.items()] == ["a", "c"]


def test_reading_a_key_does_not_change_the_order() -> None:
    table = Lru[str, int](2)
    table.put("a", 1)
    table.put("b", 2)
    assert table.get("a") == 1
    table.put("c", 3)
    assert "a" not in table


def test_a_copy_is_independent() -> None:
    table = Lru[str, int](1)
    table.put("a", 1)
    twin = table.copy()
    twin.put("b", 2)
    assert (table.items(), table.evicted) == ([("a", 1)], 0)
    assert (twin.items(), twin.evicted) == ([("b", 2)], 1)


def test_a_limit_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, found 0"):
        Lru[str, int](0)
