"""A service that records events and ends: no event is lost silently, and no service hangs (SDR0 3.2.1)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from veen_core.errors import StateError
from veen_hub.client.roles import open_role
from veen_overlays.live.recorder import Recorder as Producer

from .conftest import Town
from .running import ending_hubs, veen
from .test_record import ORDERS, Recorder, recorder_at

MAX_EXIT_SECONDS = 60
HANDLER = """
import logging, sys
from veen_hub.client.roles import open_role
from veen_overlays.live.recorder import RecorderHandler

log = logging.getLogger("shop")
log.setLevel("INFO")
log.addHandler(RecorderHandler(open_role(sys.argv[1])))

def work(first, last):
    for n in range(first, last):
        log.info("placed", extra={"event_type": "order.placed", "subject_id": "user:ann", "order": n})
"""
ENDS = {
    "at-its-last-line": (HANDLER + "work(0, 2000)", 2000, 0),
    "with-an-error": (HANDLER + "work(0, 600)\nraise SystemExit(7)", 600, 7),
    "in-a-thread-that-outlives-the-main-one": (
        HANDLER
        + """
import threading

def late():
    threading.main_thread().join()
    work(300, 900)

work(0, 300)
threading.Thread(target=late).start()
""",
        900,
        0,
    ),
    "after-a-fork-has-ended": (
        HANDLER
        + """
import os
work(0, 20)
if (child := os.fork()) == 0:
    logging.raiseExceptions = False
    work(20, 21)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
work(20, 40)
""",
        40,
        0,
    ),
    "with-a-processor-of-structlog": (
        """
import sys
from veen_hub.client.roles import open_role
from veen_overlays.live.recorder import RecorderProcessor

record = RecorderProcessor(open_role(sys.argv[1]), strict=True)
for n in range(600):
    record(None, "info", {"event_type": "order.placed", "subject_id": "user:ann", "order": n})
""",
        600,
        0,
    ),
}
OUTAGE = """
import logging, sys
from veen_hub.client.roles import open_role
from veen_overlays.live.recorder import Recorder, RecorderHandler

log = logging.getLogger("shop")
log.setLevel("INFO")
log.addHandler(RecorderHandler(Recorder(open_role(sys.argv[1]), close_seconds=1.0)))
print("connected", flush=True)
sys.stdin.readline()
for n in range(700):
    log.info("placed", extra={"event_type": "order.placed", "subject_id": "user:ann", "order": n})
"""


@pytest.mark.parametrize("how", ENDS)
def test_every_event_of_a_service_that_ends_is_recorded(town: Town, tmp_path: Path, how: str) -> None:
    recorder = recorder_at(town, tmp_path, gated=True)
    script, events, code = ENDS[how]
    before = len(orders(recorder))
    done = subprocess.run(
        [sys.executable, "-c", script, str(recorder / "shop" / "recorder.yaml")],
        capture_output=True,
        text=True,
        timeout=MAX_EXIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert orders(recorder)[before:] == list(range(events))


def orders(recorder: Recorder) -> list[int]:
    rows = recorder.rows(ORDERS)
    return [row["payload"]["order"] for row in rows if row.get("event_type") == "order.placed"]


def test_a_service_that_ends_without_its_hub_says_how_many_events_are_not_recorded(
    square: Town, tmp_path: Path
) -> None:
    data = ("--data-dir", tmp_path / "hub")
    made = veen("hub", "init", *data, "--admin", square / "admin", "--json").json
    start = ("hub", "start", *data, "--port", "0", "--open", "--detach", "--log-level", "error", "--json")
    with ending_hubs(tmp_path):
        started = veen(*start).json
        town = Town(square.root, started["url"], started["probes_url"], made["hub_id"])
        recorder = recorder_at(town, tmp_path, gated=False)
        with subprocess.Popen(
            [sys.executable, "-c", OUTAGE, str(recorder / "shop" / "recorder.yaml")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as service:
            try:
                assert service.stdout is not None
                assert service.stdout.readline() == "connected\n"
                veen("hub", "stop", *data).ok()
                _, err = service.communicate("\n", timeout=20)
            finally:
                service.kill()
    assert service.returncode == 0, err
    assert "veen: 700 events of shop are not recorded: the hub did not accept them within 1 s\n" in err
    assert "Traceback" not in err


def test_a_recorder_whose_sender_has_stopped_refuses_events_and_lets_no_caller_wait(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorder_at(town, tmp_path, gated=True)
    role = open_role(recorder / "shop" / "recorder.yaml")

    def fail(_name: str, **_options: object) -> NoReturn:
        raise OSError("the disk is full")

    monkeypatch.setattr(role, "stream", fail)
    made = Producer(role)
    made.record("order.placed", subject="user:ann")
    assert not made.flush(MAX_EXIT_SECONDS)
    with pytest.raises(StateError, match=r"the disk is full.*was not recorded"):
        made.record("order.placed", subject="user:ann")
    assert made.close() == 1
    assert made.close() == 1
