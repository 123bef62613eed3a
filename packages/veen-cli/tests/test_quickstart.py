from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from veen_cli.frame.exits import Exit
from veen_cli.quickstart import story
from veen_cli.quickstart.world import Running, World
from veen_hub.client.errors import Unreachable
from veen_testing.ports import free_port

from .running import process, shell, veen


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("kept")
    return folder, process(folder, "quickstart", "--keep", "demo", "--json").json


def at_a_free_port(commands: list[str]) -> list[str]:
    """Return the commands with another port: the one after the quickstart's may be taken by now."""
    (shown,) = {found[1] for line in commands if (found := re.search(r"--port (\d+)", line))}
    here = str(free_port())
    return [line.replace(shown, here) for line in commands]


def test_quickstart_plays_all_chapters_in_a_few_seconds(tmp_path: Path) -> None:
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


def test_the_suggested_commands_run_in_an_empty_folder(tmp_path: Path) -> None:
    told = veen("quickstart", "--json").json
    assert told["folder"] is None
    said = shell(tmp_path, at_a_free_port(told["commands"]))
    assert "Hello Bob" in said.splitlines()[-2]
    assert "stopped the hub" in said.splitlines()[-1]


def test_the_suggested_commands_run_in_the_kept_folder(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, told = kept
    assert told["folder"] == "demo"
    said = shell(folder, at_a_free_port(told["commands"]))
    assert "A fourth message" in said
    assert said.count("✓") == 7
    assert "clean (full)" in said.splitlines()[-1]
    assert "not empty" in process(folder, "quickstart", "--keep", "demo").failed(1)


def test_the_hubs_bytes_do_not_contain_the_text(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, told = kept
    assert [message["attachments"] for message in told["messages"]] == [0, 1, 0]
    for message in told["messages"]:
        assert message["text"].encode() not in bytes.fromhex(message["ciphertext"])
    disk = b"".join(path.read_bytes() for path in (folder / "demo/hub").rglob("*") if path.is_file())
    assert bytes.fromhex(told["messages"][0]["ciphertext"]) in disk
    assert b"Hello Bob" not in disk
    assert b"CONTRACT" not in disk


def test_fsck_names_the_file_and_entry_of_the_flipped_bit(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, told = kept
    assert told["fsck"]["original"]["ok"] is True
    assert {fault["stream_seq"] for fault in told["fsck"]["tampered"]["faults"]} == {2}
    found = veen("hub", "fsck", "--data-dir", folder / "demo/hub-tampered")
    assert "restore" in found.failed(3)
    assert "entry 2" in found.out


def test_quiet_prints_nothing() -> None:
    done = veen("quickstart", "--quiet").ok()
    assert done.out == ""


def test_if_the_hub_fails_its_own_error_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("veen_cli.quickstart.world.ENVIRONMENT", {})
    monkeypatch.setenv("VEEN_ROLE", "leader")
    told = veen("quickstart").failed(Exit.USAGE)
    assert "is not one of authority, tenant" in told
    assert str(tmp_path) not in told, "that folder is gone"
    assert list(tmp_path.iterdir()) == []


def test_variables_for_another_hub_do_not_affect_the_quickstart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEEN_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.setenv("VEEN_ROLE", "leader")
    veen("quickstart", "--quiet").ok()
    assert list(tmp_path.iterdir()) == []


def test_if_the_hub_is_killed_the_error_names_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def shoot(_world: World, hub: Running) -> None:
        os.kill(hub.pid, signal.SIGKILL)
        os.waitid(os.P_PID, hub.pid, os.WEXITED | os.WNOWAIT)
        raise Unreachable("gone")

    monkeypatch.setattr(story, "permit", shoot)
    assert "the hub was ended by SIGKILL" in veen("quickstart").failed(Exit.USAGE)
