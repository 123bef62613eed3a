"""The index: many threads write and read it while its map grows, and every one of them gets done."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from veen_storage.index import lmdb_index as index_module
from veen_storage.index.lmdb_index import Index, Transaction

WRITERS, READERS, ROWS = 4, 3, 150
PATIENCE = 60.0


def test_every_writer_finishes_while_the_map_doubles_repeatedly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 64 KiB: the applier and whoever puts attachments write at the same time."""
    monkeypatch.setattr(index_module, "FIRST_MAP_BYTES", 64 * 1_024)
    index = Index(tmp_path, sync=False)
    failures: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        def change(txn: Transaction, key: bytes) -> None:
            txn.put("meta", key, os.urandom(3_000))

        try:
            for row in range(ROWS):
                key = bytes([number]) + row.to_bytes(4, "big")
                index.write(lambda txn, key=key: change(txn, key))  # type: ignore[misc]
        except BaseException as exc:  # noqa: BLE001 - told below
            failures.append(exc)

    def read() -> None:
        while not done.is_set():
            with index.reading() as view:
                for _row in view.scan("meta", b""):
                    pass

    writers = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(WRITERS)]
    readers = [threading.Thread(target=read, daemon=True) for _ in range(READERS)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join(PATIENCE)
    done.set()
    assert not any(thread.is_alive() for thread in writers), "a writer waits for ever"
    assert not failures
    with index.reading() as view:
        assert sum(1 for _ in view.scan("meta", b"")) == WRITERS * ROWS
    for thread in readers:
        thread.join(PATIENCE)
    index.close()
