"""A hub rotates its key while it is read, cloned and exported from beside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from veen_core.ids import StreamSeq
from veen_storage.copies.clone import clone
from veen_storage.copies.export import export, verify_export
from veen_storage.disk.layout import Layout
from veen_storage.fsck import fsck
from veen_storage.opening.observer import Observer, Source
from veen_storage.store import create

from .sample import BORN, HUB_ID, HUB_KEY, ORDERS, SMALL, Unsynced
from .scripted_run import memory_folder


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@dataclass
class Hub:
    """A hub in a process of its own (``rotating_child.py``)."""

    root: Path
    process: subprocess.Popen[str]

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def hub(place: Path) -> Iterator[Hub]:
    root = place / "hub"
    create(root, HUB_KEY, BORN, limits=SMALL)
    child = Path(__file__).with_name("rotating_child.py")
    with subprocess.Popen(
        [sys.executable, str(child), str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        hub = Hub(root, process)
        assert hub.hear() == "ready"
        assert hub.ask("write 12") == "done"
        yield hub
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


def check_export(source: Source, target: Path, upto: int) -> None:
    export(source, ORDERS, StreamSeq(1), StreamSeq(upto), target, files=Unsynced())
    verified = verify_export(target, HUB_ID)
    assert (verified.manifest.to_seq, verified.signed) == (upto, True)


def test_an_observer_opened_before_a_rotation_reads_and_exports_entries_of_the_next_key(
    hub: Hub, place: Path
) -> None:
    with Observer(hub.root) as source:
        check_export(source, place / "0", 12)
        for key in (1, 2):
            assert hub.ask(f"rotate {key}") == "done"
            assert hub.ask("write 12") == "done"
            assert len(source.read.entries(ORDERS, StreamSeq(1), 100)) == 12 + 12 * key
            check_export(source, place / f"{key}", 12 + 12 * key)
            assert len(source.identity.hub_keys) == 1 + key


def test_a_clone_during_a_key_rotation_is_complete(hub: Hub, place: Path) -> None:
    rotated: list[int] = []

    def rotate(done: int, _all: int) -> None:
        if not rotated:
            rotated.append(done)
            assert hub.ask("rotate 1") == "done"
            assert hub.ask("write 20") == "done"

    cut = clone(hub.root, place / "clone", progress=rotate, files=Unsynced())
    assert [held.stream_seq for held in cut.labels] == [12]
    report = fsck(place / "clone", processes=1)
    assert report.ok, str(report)
    assert hub.ask("write 20") == "done"
    clone(hub.root, place / "after", files=Unsynced())
    assert fsck(place / "after", processes=1).ok


def test_clone_and_export_are_complete_at_every_step_of_a_rotation(hub: Hub, place: Path) -> None:
    """The artifacts are three files, which change one after another (``hub_keys``)."""
    paused, said = [], hub.ask("pause 1")
    while said != "done":
        number = len(paused)
        clone(hub.root, place / f"clone {number}", files=Unsynced())
        report = fsck(place / f"clone {number}", processes=1)
        assert report.ok, f"before {said}: {report}"
        with Observer(hub.root) as source:
            check_export(source, place / f"export {number}", 12)
        paused.append(said)
        said = hub.ask("go on")
    layout = Layout(hub.root)
    replaced = [layout.identity_next, layout.key_map, layout.identity_signature, layout.identity]
    assert paused[1:] == [path.name for path in (*replaced, layout.identity_next)]
    assert paused[0].endswith(".key")
