from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from .running import process, shell, veen


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("kept")
    return folder, process(folder, "quickstart", "--keep", "demo", "--json").json


def test_quickstart_tells_the_whole_story_in_time(tmp_path: Path) -> None:
    started = time.monotonic()
    done = process(tmp_path, "quickstart").ok()
    assert time.monotonic() - started < 20
    story = (
        "alice",
        "the hub saw",
        "Bob reads",
        "receipts are signed",
        "inclusion",
        "consistency",
        "✗ the copy",
    )
    assert [word for word in story if word not in done.out] == []
    assert "Hello Bob, this is Alice." in done.out
    assert list(tmp_path.iterdir()) == []


def test_its_last_words_can_be_typed_from_nothing(tmp_path: Path) -> None:
    told = veen("quickstart", "--json").json
    assert told["folder"] is None
    said = shell(tmp_path, told["commands"])
    assert "Hello Bob" in said.splitlines()[-2]
    assert "stopped the hub" in said.splitlines()[-1]


def test_what_was_kept_can_be_gone_on_with(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, told = kept
    assert told["folder"] == "demo"
    said = shell(folder, told["commands"])
    assert "A fourth message" in said
    assert said.count("✓") == 7
    assert "clean (full)" in said.splitlines()[-1]
    assert "not empty" in process(folder, "quickstart", "--keep", "demo").failed(1)


def test_what_the_hub_saw_is_not_the_text(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, told = kept
    assert [message["attachments"] for message in told["messages"]] == [0, 1, 0]
    for message in told["messages"]:
        assert message["text"].encode() not in bytes.fromhex(message["ciphertext"])
    disk = b"".join(path.read_bytes() for path in (folder / "demo/hub").rglob("*") if path.is_file())
    assert bytes.fromhex(told["messages"][0]["ciphertext"]) in disk
    assert b"Hello Bob" not in disk
    assert b"CONTRACT" not in disk


def test_the_flipped_bit_is_found_where_it_is(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, told = kept
    assert told["fsck"]["original"]["ok"] is True
    assert {fault["stream_seq"] for fault in told["fsck"]["tampered"]["faults"]} == {2}
    found = veen("hub", "fsck", "--data-dir", folder / "demo/hub-tampered")
    assert "restore" in found.failed(3)
    assert "entry 2" in found.out


def test_quiet_means_quiet() -> None:
    done = veen("quickstart", "--quiet").ok()
    assert done.out == ""
