"""The ordered store of folded views, on real files. veen-cli's tests hold it to the overlays' contract."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from veen_storage.errors import ClosedError, DamageError, StorageError
from veen_storage.index.view_store import FIRST_MAP_BYTES, MAX_KEY, PAGE_ENTRIES, ViewStore


def test_written_entries_are_read_after_reopening(tmp_path: Path) -> None:
    with ViewStore(tmp_path / "view") as store:
        store.write({b"": b"empty", b"a": b"", b"b": b"2"})
        store.write({b"b": b"3"}, [b"a", b"b", b"never there"])
    with ViewStore(tmp_path / "view") as store:
        assert list(store.scan(b"", b"\xff")) == [(b"", b"empty"), (b"b", b"3")]


def test_a_scan_longer_than_a_page_is_whole_and_in_order_also_while_it_is_written(tmp_path: Path) -> None:
    keys = [n.to_bytes(4, "big") for n in range(2 * PAGE_ENTRIES + 3)]
    with ViewStore(tmp_path / "view") as store:
        store.write(dict.fromkeys(keys, b"x"))
        found = []
        for key, _ in store.scan(keys[1], keys[-1]):
            found.append(key)
            if len(found) == 1:
                store.write({b"\xff": b"beyond the end"})
        assert found == keys[1:-1]


def test_the_map_grows_when_it_is_full(tmp_path: Path) -> None:
    part = os.urandom(1_048_576)
    with ViewStore(tmp_path / "view") as store:
        for n in range(2 * FIRST_MAP_BYTES // len(part)):
            store.write({bytes([n]): part})
        assert store.get(b"\x00") == part


def test_two_processes_may_open_a_view_store_and_see_each_others_growth(tmp_path: Path) -> None:
    other = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from veen_storage.index.view_store import FIRST_MAP_BYTES, ViewStore
        with ViewStore(Path(sys.argv[1])) as store:
            for n in range(FIRST_MAP_BYTES // 1_000_000 + 2):
                store.write({bytes([n]): bytes(1_000_000)})
        """
    )
    with ViewStore(tmp_path / "view") as store:
        store.write({b"mine": b"1"})
        subprocess.run([sys.executable, "-c", other, tmp_path / "view"], check=True, timeout=60)
        assert store.get(b"\x00") == bytes(1_000_000)
        store.write({b"mine": b"2"})
        assert store.get(b"mine") == b"2"


def test_a_killed_writer_leaves_whole_writes_only(tmp_path: Path) -> None:
    writer = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from veen_storage.index.view_store import ViewStore
        store = ViewStore(Path(sys.argv[1]))
        n = 0
        while True:
            n += 1
            store.write({b"a": str(n).encode(), b"b": str(n).encode()})
            print(n, flush=True)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", writer, tmp_path / "view"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout if line.endswith("\n")]
    with ViewStore(tmp_path / "view") as store:
        a, b = store.get(b"a"), store.get(b"b")
        assert a is not None
        assert a == b
        assert int(a) in (told[-1], told[-1] + 1)


def test_a_key_that_is_too_long_is_refused_and_never_found(tmp_path: Path) -> None:
    with ViewStore(tmp_path / "view") as store:
        store.write({b"k" * MAX_KEY: b"the longest"})
        assert store.get(b"k" * MAX_KEY) == b"the longest"
        with pytest.raises(StorageError, match="longer than"):
            store.write({b"k" * (MAX_KEY + 1): b""})
        assert store.get(b"k" * (MAX_KEY + 1)) is None
        store.write({}, [b"k" * (MAX_KEY + 1)])


def test_using_a_closed_view_store_raises_closed(tmp_path: Path) -> None:
    store = ViewStore(tmp_path / "view")
    store.close()
    store.close()
    with pytest.raises(ClosedError, match="open it again"):
        store.get(b"")


@pytest.mark.parametrize("damage", ["garbage", "cut"], ids=["no LMDB file", "cut short"])
def test_the_error_of_a_damaged_view_store_says_that_it_may_be_removed(tmp_path: Path, damage: str) -> None:
    with ViewStore(tmp_path / "view") as store:
        for n in range(64):
            store.write({bytes([n]): bytes(4_096)})
    data = tmp_path / "view" / "data.mdb"
    data.write_bytes(b"\x55" * 9_000 if damage == "garbage" else data.read_bytes()[:-20_000])
    with pytest.raises(DamageError, match="rebuilt from the log"):
        ViewStore(tmp_path / "view")
