"""A log that nobody reads: the hub goes on, and says what is missing when somebody does (OBS0.2)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_hub.ops.logs import PATIENCE_SEC, LineWriter

from .people import Writer
from .serving import PATIENCE, Calls, make_directory, until

SHUTDOWN_SEC = 20.0
SUBMITS = 30
LINE = "x" * 99
"""With its end, 100 bytes."""


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
        command = [sys.executable, "-m", "veen_hub.main", f"--data-dir={root}", "--port=0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipe.writes, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2] or 0)

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


def test_a_hub_whose_log_nobody_reads_answers_and_stops(unread: Unread) -> None:
    alice = Writer("alice", unread.status().identity.hub_id)
    for _ in range(SUBMITS):
        unread.accept(alice.next())
    assert unread.get("/healthz").status == 200
    assert b"veen_log_lines_dropped_total 0.0" in unread.get("/metrics").body
    started = time.monotonic()
    unread.process.send_signal(signal.SIGTERM)
    assert unread.end() == 0
    assert time.monotonic() - started < SHUTDOWN_SEC


def test_what_waited_comes_out_in_order_when_somebody_reads(unread: Unread, pipe: Pipe) -> None:
    alice = Writer("alice", unread.status().identity.hub_id)
    for _ in range(SUBMITS):
        unread.accept(alice.next())
    pipe.let_go()
    unread.process.send_signal(signal.SIGTERM)
    told: list[dict[str, Any]] = [json.loads(line) for line in pipe.lines()]
    assert unread.end() == 0
    assert [line["stream_seq"] for line in told if line["event"] == "accepted"] == list(range(1, SUBMITS + 1))
    assert [line["event"] for line in told[-2:]] == ["draining", "stopped"]


def test_a_hub_that_cannot_start_ends_though_nobody_reads_why(tmp_path: Path, pipe: Pipe) -> None:
    """Its error is lost; its exit code is not."""
    make_directory(tmp_path / "data")
    first = Unread(tmp_path / "data", pipe, "--open")
    second = Unread(tmp_path / "data", pipe, "--open")
    try:
        started = time.monotonic()
        assert second.end() == 1
        assert time.monotonic() - started < SHUTDOWN_SEC
    finally:
        first.process.kill()
        first.end()


# --- the writer alone


def writer(pipe: Pipe, most: int, reserved: int) -> LineWriter:
    return LineWriter(pipe.writes, lambda count: f"lost {count}", most=most, reserved=reserved)


def test_lines_beyond_the_bound_are_dropped_counted_and_told(pipe: Pipe) -> None:
    lines = writer(pipe, most=1_000, reserved=300)
    for number in range(15):
        lines.put(f"{number:02}{LINE[2:]}", matters=False)
    assert lines.dropped == 5
    for number in range(5):
        lines.put(f"w{number}{LINE[2:]}", matters=True)
    assert lines.dropped == 5 + 2
    reading = threading.Thread(target=os.read, args=(pipe.reads, pipe.filled))
    reading.start()
    assert lines.close(PATIENCE)
    reading.join()
    pipe.filled = 0
    pipe.let_go()
    told = [line[:2] for line in pipe.lines()]
    assert told == [*(f"{number:02}" for number in range(10)), "w0", "w1", "w2", "lo"]


def test_the_loss_is_told_as_soon_as_it_flows_again(pipe: Pipe) -> None:
    lines = writer(pipe, most=200, reserved=0)
    for _ in range(6):
        lines.put(LINE, matters=False)
    os.read(pipe.reads, pipe.filled)
    found = b""
    while b"lost" not in found:
        found += os.read(pipe.reads, 65_536)
    assert found.decode().splitlines() == [LINE, LINE, "lost 4"]
    lines.put("and on", matters=False)
    assert os.read(pipe.reads, 65_536) == b"and on\n"
    assert lines.close(PATIENCE)


def test_closing_waits_no_longer_than_it_was_told(pipe: Pipe) -> None:
    lines = writer(pipe, most=1_000, reserved=0)
    lines.put(LINE, matters=True)
    started = time.monotonic()
    assert not lines.close(0.05)
    assert time.monotonic() - started < PATIENCE_SEC
    os.read(pipe.reads, pipe.filled)
    assert lines.close(PATIENCE)


def test_a_full_pipe_is_known_though_no_line_waits(pipe: Pipe) -> None:
    assert not writer(pipe, most=1_000, reserved=0).close(PATIENCE)


def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.writes, False)
    lines = writer(pipe, most=1_000, reserved=0)
    lines.put(LINE, matters=False)
    assert not lines.close(0.05)
    os.read(pipe.reads, pipe.filled)
    assert lines.close(PATIENCE)
    assert os.read(pipe.reads, 65_536).decode() == f"{LINE}\n"
    assert lines.dropped == 0


def test_lines_for_a_reader_that_is_gone_are_counted(pipe: Pipe) -> None:
    os.close(pipe.reads)
    pipe.reads = -1
    lines = writer(pipe, most=1_000, reserved=0)
    lines.put(LINE, matters=False)
    until(lambda: lines.dropped == 1, "the line is given up")
    lines.put(LINE, matters=False)
    assert lines.close(PATIENCE)
    assert lines.dropped == 2
