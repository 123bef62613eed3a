"""A map in two layers behaves like a plain map."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from veen_overlays.fold.layers import Layers, join
from veen_overlays.fold.monoid import SUM, map_of

SMALL = st.dictionaries(st.integers(0, 2_000).map(lambda n: b"%d" % n), st.integers(1, 9), max_size=20)
LARGE = {b"%d" % n: n for n in range(1_000)}


def plainly(a: dict[bytes, int], b: dict[bytes, int]) -> dict[bytes, int]:
    return a | {key: a.get(key, 0) + value for key, value in b.items()}


@given(st.lists(SMALL, max_size=12))
def test_adding_a_little_again_and_again_gives_the_plain_map(additions: list[dict[bytes, int]]) -> None:
    counter, layered, plain = map_of(SUM), LARGE, LARGE
    for addition in additions:
        layered = counter.combine(layered, addition)  # type: ignore[assignment]
        plain = plainly(plain, addition)
        assert len(layered) == len(plain)
        assert layered == plain
        assert plain == layered
        assert sorted(layered) == sorted(plain)
        assert counter.dump(layered) == counter.dump(plain)
        assert all(layered.get(key) == plain.get(key) for key in (*addition, b"never"))
    assert {b"%d" % n: n for n in range(1_000)} == LARGE


def test_a_large_map_is_not_copied_for_one_more_key() -> None:
    joined = join(LARGE, {b"new": 1}, int.__add__)
    assert isinstance(joined, Layers)
    assert joined.split()[0] is LARGE
    again = join(joined, {b"0": 5}, int.__add__)
    assert isinstance(again, Layers)
    assert again.split()[0] is LARGE
    assert (again[b"0"], joined[b"0"], len(again)) == (5, 0, 1_001)
    assert b"new" in again
    assert repr(again) == repr(dict(again))


def test_layers_travel_between_processes() -> None:
    joined = join(LARGE, {b"new": 1}, int.__add__)
    assert pickle.loads(pickle.dumps(joined)) == joined
