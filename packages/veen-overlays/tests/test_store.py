"""The contract of ``SummaryStore``, which every implementation must pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veen_overlays.summary_tree.store import MemoryStore, SummaryStore

KEYS = st.binary(max_size=3)


def check_store(store: SummaryStore, steps: list[tuple[dict[bytes, bytes], list[bytes]]]) -> None:
    model: dict[bytes, bytes] = {}
    for puts, deletes in steps:
        store.write(puts, deletes)
        for key in deletes:
            model.pop(key, None)
        model |= puts
        assert list(store.scan(b"", b"\xff" * 9)) == sorted(model.items())
    for key in [*model, b"never written"]:
        assert store.get(key) == model.get(key)
    for start, stop in ((b"a", b"b"), (b"\x00", b"\x80"), (b"b", b"a")):
        assert list(store.scan(start, stop)) == sorted((k, v) for k, v in model.items() if start <= k < stop)


@given(st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=3)), st.lists(KEYS)), max_size=5))
def test_the_memory_store_obeys_the_contract(steps: list[tuple[dict[bytes, bytes], list[bytes]]]) -> None:
    check_store(MemoryStore(), steps)


def test_the_memory_store_is_a_store() -> None:
    assert isinstance(MemoryStore(), SummaryStore)
