"""The overlays' view ``SummaryStore``: in memory and on disk it keeps one contract."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from veen_overlays.summary_tree.store import MemoryStore, SummaryStore
from veen_storage import ViewStore

KEYS = st.binary(max_size=3)
STEPS = st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=3)), st.lists(KEYS)), max_size=5)
RANGES = ((b"", b"\xff" * 9), (b"a", b"b"), (b"\x00", b"\x80"), (b"b", b"a"))


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_both_view_stores_pass_the_same_contract(steps: list[tuple[dict[bytes, bytes], list[bytes]]]) -> None:
    model: dict[bytes, bytes] = {}
    with tempfile.TemporaryDirectory() as folder, ViewStore(Path(folder, "view")) as disk:
        stores: tuple[SummaryStore, ...] = (MemoryStore(), disk)
        for puts, deletes in steps:
            model = {key: value for key, value in model.items() if key not in deletes} | puts
            for store in stores:
                store.write(puts, deletes)
        for store in stores:
            for start, stop in RANGES:
                within = sorted((k, v) for k, v in model.items() if start <= k < stop)
                assert list(store.scan(start, stop)) == within
            assert {key: store.get(key) for key in model} == model
            assert store.get(b"never written") is None


def test_the_store_on_disk_implements_the_view_store_protocol(tmp_path: Path) -> None:
    with ViewStore(tmp_path) as store:
        assert isinstance(store, SummaryStore)


def test_the_overlays_benchmark_prints_every_figure_under_its_name() -> None:
    """The benchmark needs the store on disk, so it runs here; its speed is not checked."""
    run = Path(__file__).parents[2] / "veen-overlays" / "benchmarks" / "run.py"
    ran = subprocess.run(
        [sys.executable, run, "--tiny"], capture_output=True, text=True, check=False, timeout=120
    )
    assert not ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    names = [line["name"] for line in lines]
    assert names == [
        *("overlays.fold", "overlays.fold_ops", "overlays.range_growth", "overlays.restart_growth"),
        *("query.verify", "query.evidence_bytes", "disc.query_growth"),
    ]
    assert all(line["value"] > 0 for line in lines)
