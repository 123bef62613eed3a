"""Every example in ``veen spark … --help`` runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from veen_cli.frame import Command
from veen_core.hashing import H
from veen_core.ids import UnixTime
from veen_core.keys import SigningSeed
from veen_core.keystore import Secrets
from veen_overlays.kv import Put
from veen_spark.commands import COMMANDS
from veen_spark.commands import spark as group

from .commands import run
from .live_hub import LiveHub
from .logs import Hub, reader_key
from .recorder_hub import event

ENDLESS = "veen spark stream --hub http://127.0.0.1:8080 --hub-id 62c1… --stream orders --out parquet/"
"""This example runs until Ctrl-C, so the test adds ``--once``."""
FAILURES = {
    "scope": ["record/security/login"],
    "filter": {"event_type": ["login.failed"]},
    "projection": ["subject_id", "payload.status"],
    "evidence": {"mode": "full"},
}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveHub]:
    live = LiveHub(tmp_path / "hub")
    live.start()
    live.send("orders", 3)
    yield live
    live.stop()


def examples(name: str) -> list[str]:
    command = group.get_command(click.Context(group), name)
    assert isinstance(command, Command)
    assert command.examples
    return [f"{line} --once" if line == ENDLESS else line for line in command.examples]


def run_example(line: str, instead: dict[str, str]) -> None:
    for shown, here in instead.items():
        line = line.replace(shown, here)
    args = shlex.split(line)[2:]
    result = run(*(path for arg in args for path in (sorted(glob(arg)) or [arg])))
    assert result.exit_code == 0, (line, result.stderr)


def glob(arg: str) -> list[str]:
    """Expand a glob as a shell does."""
    return [str(path) for path in Path().glob(arg)] if arg.endswith("/*") else []


@pytest.mark.usefixtures("spark")
def test_every_example_on_logs_runs(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub.send_records("record/security/login", [event(n) for n in range(6)], reader="reader")
    hub.export("record/security/login", tmp_path / "exports" / "login")
    (tmp_path / "failures.json").write_text(json.dumps(FAILURES))
    for name in ("orders", "config"):
        hub.send_records(name, [Put(key=b"colour", value=b"green")], reader="reader")
        hub.export(name, tmp_path / "exports" / name)
    hub.clone(tmp_path / "clone")
    secrets = Secrets(
        id_sign=SigningSeed(H(b"reader")), id_dh=reader_key("reader").secret, created_at=UnixTime(1)
    )
    file = tmp_path / "reader" / "secrets.cbor"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_bytes(secrets.encode())
    for name in COMMANDS:
        for line in examples(name) if name != "stream" else ():
            run_example(line, {"62c1…": hub.hub_id.hex()})


@pytest.mark.usefixtures("spark")
def test_every_example_on_a_live_hub_runs(
    live: LiveHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEEN_HUB", live.url)
    found = examples("stream")
    assert f"{ENDLESS} --once" in found
    for line in found:
        run_example(line, {"62c1…": live.hub_id.hex(), "http://127.0.0.1:8080": live.url})
