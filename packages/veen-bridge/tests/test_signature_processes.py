"""Helper processes change how fast signatures are verified, never which ones are found invalid."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from veen_bridge import bulk_verification as bulk
from veen_bridge import signature_processes
from veen_bridge.signature_processes import SignatureProcesses
from veen_core.errors import SignatureError
from veen_core.hashing import H, u64be
from veen_core.ids import Signature
from veen_core.keys import SigningKey, SigningSeed
from veen_core.signatures import SignatureBatch, SignatureClaim, assisted

KEY, OTHER = (SigningKey(SigningSeed(H(name))) for name in (b"one", b"other"))
COUNT = 320
FLIPPED = [0, 5, 63, 64, 200, 319]


def claim(number: int, *, intact: bool = True) -> SignatureClaim:
    digest = H(u64be(number))
    signature = KEY.sign(digest)
    if not intact:
        signature = Signature(bytes([signature[0] ^ 1]) + signature[1:])
    return SignatureClaim((OTHER.public, KEY.public), digest, signature, lambda: SignatureError("invalid"))


CLAIMS = [claim(number, intact=number not in FLIPPED) for number in range(COUNT)]


@pytest.fixture
def processes() -> Iterator[SignatureProcesses]:
    """Helper processes that are ready."""
    with contextlib.closing(SignatureProcesses()) as made:
        if not made._processes:
            pytest.skip("this machine has one core")
        for each in made._processes:
            while not each._is_ready:
                each._read(wait=True)
        yield made


def test_processes_name_invalid_signatures_under_every_key(processes: SignatureProcesses) -> None:
    assert processes.offer(0, CLAIMS[:64])
    assert processes.offer(64, CLAIMS[64:100])
    assert processes.collect() == [0, 5, 63, 64]
    assert processes.collect() == []


def test_a_process_takes_only_so_much(processes: SignatureProcesses) -> None:
    while processes.offer(0, CLAIMS[1:5]):
        assert sum(len(each._taken) for each in processes._processes) <= 64
    assert processes.collect() == []
    assert processes.offer(0, CLAIMS[1:5])


def test_a_process_takes_no_more_than_the_caller_has_left(processes: SignatureProcesses) -> None:
    for each in processes._processes:
        os.kill(each._process.pid, signal.SIGSTOP)  # it answers nothing meanwhile
    count = len(processes._processes)
    for _ in range(count):
        assert processes.offer(0, CLAIMS[1:5], left=7)
    assert not processes.offer(0, CLAIMS[1:5], left=7)
    assert processes.offer(0, CLAIMS[1:5], left=8)
    for each in processes._processes:
        os.kill(each._process.pid, signal.SIGCONT)
    assert processes.collect() == []


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_what_a_lost_process_had_taken_is_verified_here(
    processes: SignatureProcesses, way: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signature_processes, "ANSWER_SECONDS", 0.2)
    for each in processes._processes:
        os.kill(each._process.pid, way)
    taken = [at for at in range(0, COUNT, 32) if processes.offer(at, CLAIMS[at : at + 32])]
    assert processes.collect() == [at for at in FLIPPED if at // 32 * 32 in taken]
    assert not processes.offer(0, CLAIMS[:32])


@pytest.mark.parametrize("started", [0, 1])
def test_processes_that_cannot_be_started_change_no_result(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, tries = subprocess.Popen, iter(range(100))

    def popen(*about: Any, **named: Any) -> Any:
        if next(tries) >= started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start(*about, **named)

    monkeypatch.setattr(signature_processes, "usable_cores", lambda: 3)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with contextlib.closing(SignatureProcesses()) as made, assisted(made), SignatureBatch() as batch:
        assert len(made._processes) == started
        batch.claims += CLAIMS
        assert batch.finish() == FLIPPED


def test_many_cores_start_only_so_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(signature_processes, "usable_cores", lambda: 192)
    monkeypatch.setattr(signature_processes, "_Process", lambda: made.append(1))
    SignatureProcesses()
    assert len(made) == signature_processes.MAX_PROCESSES


def test_bulk_verification_has_the_result_of_one_thread_and_restores_the_collector() -> None:
    before = gc.get_threshold()
    with bulk.bulk_verification(bulk.MIN_EVENTS), SignatureBatch() as batch:
        assert gc.get_threshold() != before
        for each in CLAIMS:
            batch.claims.append(each)
            batch.start()
        assert batch.finish() == FLIPPED
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
