"""Logs whose reader is slow or gone: the hub continues, drops lines and reports how many (OBS0.2)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_hub.ops import logs
from veen_hub.ops.logs import CLOSE_SEC, JsonLines, LogQueue

from .people import Writer
from .serving import PATIENCE, Calls, addresses_in, make_directory, until

SHUTDOWN_SEC = 20.0
SUBMITS = 30


class Pipe:
    """One that takes nothing more until it is read."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.writes, False)
        self.filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self.filled += os.write(self.writes, b" " * 4_096)
        os.set_blocking(self.writes, True)

    def let_go(self) -> None:
        """Of this process's own end for writing: others may still hold theirs."""
        os.close(self.writes)
        self.writes = -1

    def lines(self) -> list[str]:
        """Everything until nobody can write any more."""
        with os.fdopen(os.dup(self.reads), "rb") as stream:
            return stream.read()[self.filled :].decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for end in (made.reads, made.writes):
        if end >= 0:
            os.close(end)


class Unread(Calls):
    """A hub whose stderr is a full pipe from the beginning."""

    def __init__(self, root: Path, pipe: Pipe, *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "veen_hub.main",
            f"--data-dir={root}",
            "--port=0",
            "--log-level=debug",
            *flags,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipe.writes, text=True)
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            _, self.port, self.probes_port = addresses_in(line)

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def unread(tmp_path: Path, pipe: Pipe) -> Iterator[Unread]:
    make_directory(tmp_path / "data")
    hub = Unread(tmp_path / "data", pipe, "--open")
    yield hub
    hub.process.kill()
    hub.end()


def test_a_hub_whose_log_is_not_read_answers_and_stops(unread: Unread) -> None:
    alice = Writer("alice", unread.status().identity.hub_id)
    for _ in range(SUBMITS):
        unread.accept(alice.next())
    assert unread.get("/healthz").status == 200
    assert b"veen_log_lines_dropped_total 0.0" in unread.get("/metrics").body
    started = time.monotonic()
    unread.process.send_signal(signal.SIGTERM)
    assert unread.end() == 0
    assert time.monotonic() - started < SHUTDOWN_SEC


def test_waiting_lines_are_written_in_order_once_the_log_is_read(unread: Unread, pipe: Pipe) -> None:
    alice = Writer("alice", unread.status().identity.hub_id)
    for _ in range(SUBMITS):
        unread.accept(alice.next())
    pipe.let_go()
    unread.process.send_signal(signal.SIGTERM)
    told: list[dict[str, Any]] = [json.loads(line) for line in pipe.lines()]
    assert unread.end() == 0
    assert [line["stream_seq"] for line in told if line["event"] == "accepted"] == list(range(1, SUBMITS + 1))
    assert [line["event"] for line in told[-3:]] == ["draining", "submits", "stopped"]


def test_a_hub_that_cannot_start_ends_even_if_its_log_is_not_read(tmp_path: Path, pipe: Pipe) -> None:
    """Its error is lost; its exit code is not."""
    make_directory(tmp_path / "data")
    first = Unread(tmp_path / "data", pipe, "--open")
    second = Unread(tmp_path / "data", pipe, "--open")
    try:
        started = time.monotonic()
        assert second.end() == 4  # the directory is in use
        assert time.monotonic() - started < SHUTDOWN_SEC
    finally:
        first.process.kill()
        first.end()


# --- the queue alone


def queue_to(pipe: Pipe) -> LogQueue:
    return LogQueue(JsonLines(), pipe.writes)


def record(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelno": level, "levelname": logging.getLevelName(level)})


def events(text: bytes) -> list[str]:
    return [json.loads(line)["event"] for line in text.decode().splitlines()]


def read_until(pipe: Pipe, end: bytes) -> bytes:
    os.read(pipe.reads, pipe.filled)
    found = b""
    while end not in found:
        found += os.read(pipe.reads, 65_536)
    return found


def test_lines_beyond_the_bound_are_dropped_counted_and_reported(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 3)
    monkeypatch.setattr(logs, "RESERVED_LINES", 2)
    lines = queue_to(pipe)
    lines.handle(record("taken"))
    until(lines.is_drained, "the writer has the first line and waits")
    for number in range(5):
        lines.handle(record(f"info_{number}"))
    for number in range(4):
        lines.handle(record(f"warning_{number}", logging.WARNING))
    assert lines.dropped == 2 + 2
    found = events(read_until(pipe, b"log_lines_dropped"))
    assert found == ["taken", "info_0", "info_1", "info_2", "warning_0", "warning_1", "log_lines_dropped"]
    lines.handle(record("later"))
    assert lines.stop(PATIENCE)
    assert events(os.read(pipe.reads, 65_536)) == ["later"]


def test_stopping_does_not_wait_longer_than_its_timeout(pipe: Pipe) -> None:
    lines = queue_to(pipe)
    lines.handle(record("unread", logging.WARNING))
    started = time.monotonic()
    assert not lines.stop(0.05)
    assert time.monotonic() - started < CLOSE_SEC
    assert events(read_until(pipe, b"\n")) == ["unread"]


def test_a_full_pipe_is_noticed_though_no_line_waits(pipe: Pipe) -> None:
    assert not queue_to(pipe).stop(PATIENCE)


def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.writes, False)
    lines = queue_to(pipe)
    lines.handle(record("late"))
    assert events(read_until(pipe, b"\n")) == ["late"]
    assert lines.stop(PATIENCE)
    assert lines.dropped == 0


def test_lines_for_a_reader_that_is_gone_are_counted(pipe: Pipe) -> None:
    os.close(pipe.reads)
    pipe.reads = -1
    lines = queue_to(pipe)
    lines.handle(record("lost"))
    until(lambda: lines.dropped == 1, "the line is given up")
    lines.handle(record("lost too"))
    assert lines.stop(PATIENCE)
    assert lines.dropped == 2


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("veen.hub", "listening", {"event": "listening"}),
        (
            "veen_storage",
            "storage_notice: chunk 3 is left alone",
            {"event": "storage_notice", "message": "storage_notice: chunk 3 is left alone"},
        ),
        (
            "aiohttp.server",
            "Error handling request",
            {"event": "message", "logger": "aiohttp.server", "message": "Error handling request"},
        ),
        ("asyncio", "socket closed", {"event": "message", "logger": "asyncio", "message": "socket closed"}),
    ],
    ids=["key", "key and text", "sentence", "lower case"],
)
def test_every_line_has_a_stable_key(name: str, text: str, shown: dict[str, str]) -> None:
    record = logging.makeLogRecord({"name": name, "levelname": "WARNING", "msg": text})
    line = json.loads(JsonLines().format(record))
    assert {key: value for key, value in line.items() if key not in ("ts", "level", "component")} == shown
