"""``veen monitor``: exit codes and output for alerts, evidence for a third party."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from veen_testing.ports import free_port

from .running import MAX_SECONDS, Done, ending_hubs, environment, veen


@dataclass
class Hub:
    """A hub of its own for a test that stops or restores it."""

    root: Path
    hub_id: str
    port: int = field(default_factory=free_port)
    url: str = ""

    @property
    def data(self) -> tuple[object, ...]:
        return ("--data-dir", self.root / "hub")

    def start(self) -> None:
        flags = ("--port", self.port, "--probes-port", "0", "--open", "--detach", "--log-level", "error")
        self.url = veen("hub", "start", *self.data, *flags, "--json").json["url"]

    def stop(self) -> None:
        veen("hub", "stop", *self.data).ok()

    def send(self, stream: str, count: int) -> None:
        lines = "".join(f"message {n}\n" for n in range(count)).encode()
        flags = ("--hub", self.url, "--trust", self.hub_id, "--client", self.root / "alice")
        veen("send", "--batch", "--stream", stream, *flags, stdin=lines)

    def once(self, *more: object) -> Done:
        return veen("monitor", self.url, "--trust", self.hub_id, "--once", *more)

    def wait_for(self, size: int, *more: object) -> dict[str, Any]:
        """Monitor until the hub log has so many entries; return the answer."""
        deadline = time.monotonic() + MAX_SECONDS
        while True:
            found = json.loads(self.once("--json", *more).out)
            if (found["hubs"][0]["size"] or 0) >= size:
                return dict(found)
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    veen("keygen", "--out", tmp_path / "alice", "--no-passphrase").ok()
    made = veen("hub", "init", "--data-dir", tmp_path / "hub", "--no-admin", "--json").json
    with ending_hubs(tmp_path):
        hub = Hub(tmp_path, made["hub_id"])
        hub.start()
        yield hub


def test_a_sound_hub_ends_with_0_and_says_what_was_checked(hub: Hub) -> None:
    hub.send("orders", 3)
    found = hub.wait_for(1, "--seen", hub.root / "alice")
    assert found["holds"]
    (seen,) = found["hubs"]
    assert seen["hub_id"] == hub.hub_id
    assert (seen["checked"], seen["labels"], seen["findings"]) == (seen["size"], 1, [])
    done = hub.once("--state", hub.root / "monitor").ok()
    assert done.out == f"✓ {hub.url}: 1 entry, 1 label\n"
    assert hub.once("--quiet").ok().out == ""
    assert hub.once().err == "note: without --state, a rollback between two runs is not found\n"


def test_the_hub_of_the_context_is_monitored(hub: Hub) -> None:
    veen("context", "add", "shop", "--hub", hub.url, "--trust", hub.hub_id).ok()
    veen("context", "use", "shop").ok()
    assert hub.url in veen("monitor", "--once", "--json").ok().out


def test_the_hub_of_the_variables_is_monitored(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEEN_HUB", hub.url)
    assert f"no hub is pinned for {hub.url}" in veen("monitor", "--once", "--quiet").failed(6)
    monkeypatch.setenv("VEEN_TRUST", hub.hub_id)
    assert hub.url in veen("monitor", "--once", "--json").ok().out
    assert veen("monitor", "--once", "--quiet", "--trust", "00" * 32).code == 3, "a flag wins"
    monkeypatch.setenv("VEEN_HUB", "http://127.0.0.1:1")
    assert hub.url in veen("monitor", hub.url, "--once", "--json").ok().out, "an argument wins"


def test_a_hub_that_does_not_answer_ends_with_2(hub: Hub) -> None:
    hub.stop()
    done = hub.once()
    assert done.code == 2
    assert "unreachable: the hub does not answer" in done.out
    hub.start()


def test_a_hub_must_be_pinned_once(hub: Hub) -> None:
    state = ("--state", hub.root / "monitor", "--once")
    assert "no hub is pinned" in veen("monitor", hub.url, *state).failed(6)
    veen("monitor", hub.url, *state, "--trust", "first").ok()
    veen("monitor", hub.url, *state).ok()
    assert veen("monitor", hub.url, "--once", "--trust", "00" * 32).code == 3


def test_wrong_options_are_refused_before_anything_is_asked(hub: Hub, tmp_path: Path) -> None:
    assert "URL is missing" in veen("monitor", "--once").failed(1)
    assert "is not HOST:PORT" in hub.once("--metrics", "nowhere").failed(1)
    assert "is not HOST:PORT" in hub.once("--metrics", ":9600").failed(1)
    assert "--metrics has no effect with --once" in hub.once("--metrics", "127.0.0.1:0").failed(1)
    assert "'0' is not a number of seconds ≥ 0.1" in hub.once("--interval", 0).failed(1)
    assert "cancels the other pins" in hub.once("--trust", "first").failed(1)
    address = hub.url.removeprefix("http://")
    assert f"URL {address} is not an address" in veen("monitor", address, "--once").failed(1)
    used = veen("monitor", hub.url, "--trust", "first", "--quiet", "--metrics", address).failed(1)
    assert "choose another port" in used
    assert "no such file" in hub.once("--seen", tmp_path / "nothing").failed(1)
    (tmp_path / "text").write_text("text")
    assert "has no receipt" in hub.once("--seen", tmp_path / "text").failed(1)
    assert "cannot be read" in hub.once("--witnesses", tmp_path / "nothing").failed(1)


def test_a_restored_hub_ends_with_3_and_its_evidence_verifies_offline(hub: Hub) -> None:
    state = ("--state", hub.root / "monitor")
    hub.send("orders", 2)
    hub.wait_for(1, *state)
    hub.stop()
    shutil.copytree(hub.root / "hub", hub.root / "copy")
    hub.start()
    hub.send("orders", 2)
    hub.wait_for(2, *state)
    hub.stop()
    shutil.rmtree(hub.root / "hub")
    shutil.copytree(hub.root / "copy", hub.root / "hub")
    hub.start()
    done = hub.once(*state)
    assert done.code == 3
    assert "rollback: the hub shows a hub log of 1 entry" in done.out
    hub.send("letters", 1)
    hub.wait_for(2)
    done = hub.once(*state, "--json")
    assert done.code == 3
    (found,) = json.loads(done.out)["hubs"][0]["findings"]
    assert (found["key"], found["proven"]) == ("fork", True)
    file = found["evidence"]
    assert Path(file).parent == hub.root / "monitor" / "evidence"
    assert "convict the pinned hub" in veen("verify", file, "--trust", hub.hub_id).ok().out
    assert "hub log fork" in veen("inspect", file).ok().out
    veen("verify", file, "--trust", "00" * 32).failed(3)


# --- running


class Running:
    """A ``veen monitor`` process."""

    def __init__(self, cwd: Path, *args: object) -> None:
        self.out, self.err = cwd / "monitor.out", cwd / "monitor.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                ["veen", "monitor", *map(str, args)],
                cwd=cwd,
                env={**environment(cwd / ".config"), "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=err,
            )

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def wait(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        while not holds():
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < deadline, (self.lines(), self.err.read_text())
            time.sleep(0.05)

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(MAX_SECONDS)


@pytest.fixture
def running(hub: Hub) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*more: object) -> Running:
        flags = ("--trust", hub.hub_id, "--state", hub.root / "monitor", "--interval", "0.2")
        started.append(Running(hub.root, hub.url, *flags, *more))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.kill(each.process.pid, signal.SIGKILL)
            each.process.wait()


def metrics_url(monitor: Running) -> str:
    monitor.wait(lambda: "metrics at " in monitor.err.read_text())
    return monitor.err.read_text().partition("metrics at ")[2].partition(";")[0]


def test_a_finding_is_one_line_when_it_begins_and_one_when_it_ends(
    hub: Hub, running: Callable[..., Running]
) -> None:
    hub.send("orders", 1)
    monitor = running("--metrics", "127.0.0.1:0")
    url = metrics_url(monitor)

    def metric(name: str, **labels: str) -> float:
        wanted = ",".join(f'{key}="{value}"' for key, value in {"hub": hub.url, **labels}.items())
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
        values = [
            line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name}{{{wanted}}}")
        ]
        return float(values[0]) if values else -1.0

    monitor.wait(lambda: metric("veen_monitor_hub_log_entries_checked") == 1)
    assert metric("veen_monitor_labels") == 1
    assert metric("veen_monitor_last_round_timestamp_seconds") > time.time() - 60
    assert metric("veen_monitor_checkpoint_age_seconds") >= 0
    hub.stop()
    monitor.wait(lambda: metric("veen_monitor_findings", key="unreachable") == 1)
    hub.start()
    monitor.wait(lambda: metric("veen_monitor_findings", key="unreachable") == 0)
    assert monitor.stop(signal.SIGTERM) == 0
    first, second = monitor.lines()
    assert "unreachable: the hub does not answer" in first
    assert "ended: unreachable" in second
    assert monitor.err.read_text().count("\n") == 1


def test_json_has_one_object_per_change_and_ctrl_c_ends_with_0(
    hub: Hub, running: Callable[..., Running]
) -> None:
    monitor = running("--json")
    hub.stop()
    monitor.wait(monitor.lines)
    assert monitor.stop(signal.SIGINT) == 0
    (line,) = monitor.lines()
    found = json.loads(line)
    assert (found["event"], found["key"], found["proven"], found["hub"]) == (
        "began",
        "unreachable",
        False,
        hub.url,
    )
    hub.start()


def test_one_state_folder_has_one_monitor(hub: Hub, running: Callable[..., Running]) -> None:
    monitor = running()
    monitor.wait(lambda: "monitoring 1 hub" in monitor.err.read_text())
    second = hub.once("--state", hub.root / "monitor")
    assert "another process uses" in second.failed(1)
    assert monitor.stop(signal.SIGTERM) == 0
    hub.once("--state", hub.root / "monitor").ok()
