"""The logs of the other tests are valid according to veen-storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core.ids import HubId
from veen_storage.copies.export.check import verify_export
from veen_storage.fsck import fsck

from .logs import Hub, reader_key


def test_messages_open_with_the_streams_reader_key(hub: Hub) -> None:
    hub.send("orders", bodies=[b"first"])
    entry = next(iter(hub.store.read.entries(hub.label("orders"), 1, 1)))
    assert entry.msg.open(reader_key("orders")).body == b"first"


@pytest.mark.parametrize("form", ["set", "chunks"])
def test_an_export_of_a_log_that_was_rotated_and_pruned_verifies(hub: Hub, form: str, tmp_path: Path) -> None:
    hub.send("orders", 20)
    hub.rotate()
    hub.send("orders", 10)
    assert hub.prune("orders", max_bytes=10_000) > 0
    hub.export("orders", tmp_path / "export", form=form)  # type: ignore[arg-type]
    assert verify_export(tmp_path / "export", HubId(hub.hub_id)).entries == 30


@pytest.mark.parametrize("zstd_level", [None, 3], ids=["plain", "zstd"])
def test_a_clone_passes_fsck(make_hub: Callable[..., Hub], zstd_level: int | None, tmp_path: Path) -> None:
    hub = make_hub(zstd_level=zstd_level)
    hub.authorize()
    hub.send("orders", 20)
    assert fsck(hub.clone(tmp_path / "clone")).ok
