"""Races and kill -9 under load: a witness never cosigns a smaller tree, nor two roots at one size.

``VEEN_CRASH_ROUNDS`` for more than the usual twelve.
"""

from __future__ import annotations

import base64
import http.client
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from .independent_log import IndependentLog
from .witnessing import SIZE, WitnessProcess, make_witness, verify_cosignature

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "12"))
LOGS = 4
ENTRIES = 4_000
SHARED = 3
"""Entries that the two histories of a log have in common."""
RACES = 60


def test_of_two_requests_at_once_one_is_cosigned_and_the_other_learns_its_size(tmp_path: Path) -> None:
    log = IndependentLog.of("log.example/race", 10 + 2 * RACES)
    make_witness(tmp_path / "witness", [log])
    witness = WitnessProcess(tmp_path / "witness")
    try:
        witness.cosigned(log, 0, 10)
        known = 10
        with ThreadPoolExecutor(2) as pool:
            for _ in range(RACES):
                sizes = known + 1, known + 2
                bodies = [log.request(known, size) for size in sizes]
                answers = list(pool.map(witness.post, bodies))
                assert sorted(answer.status for answer in answers) == [200, 409]
                winner = sizes[[answer.status for answer in answers].index(200)]
                refused = next(answer for answer in answers if answer.status == 409)
                assert refused.body.decode() == f"{winner}\n"
                known = winner
        newest = witness.get(f"/{log.hash}/checkpoint").body.decode()
        assert newest.startswith(log.text(known))
    finally:
        witness.stop()


def test_the_race_of_the_page_does_not_roll_back(tmp_path: Path) -> None:
    """Requests for N and for N+K from the same size, many at once: what is stored only grows."""
    log = IndependentLog.of("log.example/race", 400)
    make_witness(tmp_path / "witness", [log])
    witness = WitnessProcess(tmp_path / "witness")
    known, granted = 1, []
    try:
        witness.cosigned(log, 0, known)
        with ThreadPoolExecutor(8) as pool:
            while known < 300:
                sizes = random.sample(range(known + 1, known + 40), 8)
                answers = list(pool.map(witness.post, [log.request(known, size) for size in sizes]))
                [winner] = [size for size, answer in zip(sizes, answers, strict=True) if answer.status == 200]
                granted.append(winner)
                known = witness.size_of(log)
                assert known == winner
        assert granted == sorted(granted)
    finally:
        witness.stop()


class Recorder:
    """Everything that a witness has ever cosigned of one log."""

    def __init__(self, log: IndependentLog, vkey: str) -> None:
        self.histories = (log, log.fork(SHARED, ENTRIES))
        self._vkey = vkey
        self.lock = threading.Lock()
        self.largest = 0
        self.roots: dict[int, bytes] = {}

    def run(self, port: int, history: IndependentLog) -> None:
        """Ask for cosignatures of one history until the witness is gone."""
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            known = 0
            try:
                while known < ENTRIES - 50:
                    known = self._ask(connection, history, known)
            except (OSError, http.client.HTTPException):
                return  # killed

    def _ask(self, connection: http.client.HTTPConnection, history: IndependentLog, known: int) -> int:
        size = known + random.randrange(0 if known else 1, 4)
        with self.lock:
            before = self.largest
        connection.request("POST", "/add-checkpoint", history.request(known, size).encode())
        answer = connection.getresponse()
        body = answer.read().decode()
        match answer.status, answer.headers["Content-Type"]:
            case 200, _:
                verify_cosignature(self._vkey, body, history.text(size))
                self._record(size, history.root(size), before)
                return size
            case 409, kind if kind == SIZE:
                return int(body)
            case (
                (409 | 422),
                _,
            ):  # the other history was cosigned: try again and again, it must not be this one
                return known
        raise AssertionError((answer.status, body))

    def _record(self, size: int, root: bytes, before: int) -> None:
        with self.lock:
            assert size >= before, f"cosigned {size} after an answer for {before}"
            assert self.roots.setdefault(size, root) == root, f"cosigned two roots at size {size}"
            self.largest = max(self.largest, size)


def test_kill_9_under_load_never_makes_the_witness_forget(tmp_path: Path) -> None:
    logs = [IndependentLog.of(f"log.example/{n}", ENTRIES) for n in range(LOGS)]
    vkey = make_witness(tmp_path / "witness", logs)
    recorders = [Recorder(log, vkey) for log in logs]
    for _ in range(ROUNDS):
        witness = WitnessProcess(tmp_path / "witness")
        try:
            for recorder in recorders:
                _check_state(witness, recorder)
            with ThreadPoolExecutor(2 * LOGS) as pool:
                running = [
                    pool.submit(recorder.run, witness.port, history)
                    for recorder in recorders
                    for history in recorder.histories
                ]
                time.sleep(random.uniform(0.05, 0.4))
                witness.kill()
                for each in running:
                    each.result()
        finally:
            witness.kill()
    assert all(recorder.largest > SHARED for recorder in recorders)
    witness = WitnessProcess(tmp_path / "witness")
    try:
        for recorder in recorders:
            _check_state(witness, recorder)
            assert (
                len(
                    {
                        root == recorder.histories[0].root(size)
                        for size, root in recorder.roots.items()
                        if size > SHARED
                    }
                )
                == 1
            )
            assert witness.logs()[recorder.histories[0].origin]["contradictions"]
    finally:
        assert witness.stop() == 0


def _check_state(witness: WitnessProcess, recorder: Recorder) -> None:
    """What was answered is still known, with the root that was answered."""
    log = recorder.histories[0]
    answer = witness.get(f"/{log.hash}/checkpoint")
    if not recorder.largest:
        assert answer.status in (200, 404)
        return
    _origin, size, root = answer.body.decode().split("\n")[:3]
    assert int(size) >= recorder.largest
    recorder._record(int(size), base64.b64decode(root), recorder.largest)
