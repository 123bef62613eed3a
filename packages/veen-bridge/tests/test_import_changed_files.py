"""Files that change, or vanish, between their verification and their import (AGB0 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_bridge.bundles import open_bundles
from veen_bridge.importing import run as import_run

from .source_zone import STREAM, SourceZone
from .target_zone import TARGET, OfflineBridge, TargetHub, target_hub

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceZone]:
    zone = SourceZone(tmp_path_factory.mktemp("z1"))
    yield zone
    zone.stop()


@pytest.fixture(scope="module")
def media(source: SourceZone) -> Path:
    source.send(4, attachments=[b"attachment" * 100])
    source.export(STREAM)
    (path,) = source.out.glob("*.veenb")
    return path


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[TargetHub]:
    with target_hub(tmp_path / "z2") as started:
        yield started


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def change_signature(path: Path) -> None:
    """Change a hub_sig: leaf and root of the entry stay the same."""
    (files,) = open_bundles([path]).bundles
    entry = list(files.events())[1]
    flip(path, path.read_bytes().index(entry.receipt.hub_sig) + 5)


def change_attachment(path: Path) -> None:
    (files,) = open_bundles([path]).bundles
    ((coid, _size),) = files.coids()
    flip(path, path.read_bytes().index(files.attachment(coid) or b"none") + 5)


def change_index(path: Path) -> None:
    (files,) = open_bundles([path]).bundles
    row = files.header.parts[0]
    flip(path, row.size - 2)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:700])


@pytest.mark.parametrize("change", [change_signature, change_attachment, change_index, cut, Path.unlink])
def test_a_file_that_changes_after_its_verification_is_refused_before_an_event_is_written(
    *,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: SourceZone,
    media: Path,
    hub: TargetHub,
    change: Change,
) -> None:
    stick = tmp_path / media.name
    stick.write_bytes(media.read_bytes())
    bridge = OfflineBridge(tmp_path / "offline", hub, source.hub_id)
    plan_import = import_run.plan_import

    def plan_after_the_change(*args: Any, **options: Any) -> Any:
        change(stick)
        return plan_import(*args, **options)

    monkeypatch.setattr(import_run, "plan_import", plan_after_the_change)
    (outcome,) = bridge.import_(stick)
    assert outcome.code == "INVALID_BUNDLE"
    assert stick.name in str(outcome.failure)
    assert bridge.read(TARGET) == []

    monkeypatch.undo()
    stick.write_bytes(media.read_bytes())
    (outcome,) = bridge.import_(stick)
    assert outcome.code is None
    assert len(bridge.read(TARGET)) == 5
