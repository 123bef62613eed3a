"""Examiner processes: their verdicts equal the thread's own, and the hub works without them."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.errors import AdmissionError
from veen_core.limits import Limits
from veen_hub.admission.stateless import ProfileAndLimits, Submission
from veen_hub.pipeline.examiner import Examiner, Verdict, verdict_of
from veen_hub.pipeline.worker_process import MIN_QUESTIONS

from .conftest import StartProcess
from .people import Writer
from .serving import (
    RunningHub,
    answer_with,
    authorized_writers,
    end_while_starting,
    processes_of,
    saturate,
    until,
)

MANY = 2 * MIN_QUESTIONS

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core a hub has no examiners")


def as_values(verdict: Verdict) -> object:
    if isinstance(verdict, Submission):
        return verdict
    assert isinstance(verdict, AdmissionError)
    return verdict.rejection, str(verdict)


def examiners_of(pid: int) -> list[int]:
    return processes_of(pid, b"veen_hub.pipeline.examiner")


@pytest.fixture
def wires(hub: RunningHub) -> list[bytes]:
    alice = Writer("alice", hub.hub_id)
    good = [alice.next() for _ in range(MANY)]
    flipped = bytes([*good[0][:-1], good[0][-1] ^ 1])
    return [*good, flipped, good[1][:-1], b"", b"\xff", bytes(2_000)]


@pytest.fixture
def examiner(hub: RunningHub, wires: list[bytes]) -> Iterator[Examiner]:
    made = Examiner(ProfileAndLimits(hub.profile.profile_id, Limits()), enabled=lambda: True, timeout_sec=1.0)
    until(lambda: made.examine(wires[:MANY]) and made.process.ready, "the process is ready")
    yield made
    made.close()


def test_a_process_returns_the_same_results_as_a_thread(
    hub: RunningHub, wires: list[bytes], examiner: Examiner
) -> None:
    supported = ProfileAndLimits(hub.profile.profile_id, Limits())
    apart = [as_values(verdict) for verdict in examiner.examine(wires)]
    assert examiner.process.ready
    assert apart == [as_values(verdict_of(wire, supported)) for wire in wires]
    assert len({str(verdict) for verdict in apart[MANY:]}) > 2


def test_a_process_that_dies_loses_no_result(wires: list[bytes], examiner: Examiner) -> None:
    expected = [as_values(verdict) for verdict in examiner.examine(wires)]
    for child in examiners_of(os.getpid()):
        os.kill(child, signal.SIGKILL)
    assert [as_values(verdict) for verdict in examiner.examine(wires[:MIN_QUESTIONS])] == expected[
        :MIN_QUESTIONS
    ]
    until(lambda: examiner.examine(wires) and examiner.process.ready, "a new one is ready")
    assert [as_values(verdict) for verdict in examiner.examine(wires)] == expected


def test_a_process_that_ends_before_it_is_ready_loses_no_result(
    wires: list[bytes], examiner: Examiner
) -> None:
    expected = [as_values(verdict) for verdict in examiner.examine(wires)]
    examiner.close()
    end_while_starting(examiner.process)
    assert [as_values(verdict) for verdict in examiner.examine(wires)] == expected


@two_cores
def test_the_hub_keeps_order_and_answers_while_its_examiners_are_killed(start_process: StartProcess) -> None:
    process = start_process()
    writers = authorized_writers(process)
    received: list[list[int]] = [[] for _ in writers]
    killed = 0
    while killed < 3:
        for seqs, receipts in zip(received, saturate(process, writers), strict=True):
            seqs += [receipt.stream_seq for receipt in receipts]
        for child in examiners_of(process.process.pid):
            os.kill(child, signal.SIGKILL)
            killed += 1
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in received)


@two_cores
def test_no_examiner_outlives_a_hub_that_is_killed(start_process: StartProcess) -> None:
    process = start_process()
    writers = authorized_writers(process)
    children: list[int] = []
    while not children:
        saturate(process, writers)
        children = examiners_of(process.process.pid)
    process.process.kill()
    process.process.wait()
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "they are gone")


def test_a_process_that_does_not_answer_is_given_up(wires: list[bytes], examiner: Examiner) -> None:
    expected = [as_values(verdict) for verdict in examiner.examine(wires)]
    for child in examiners_of(os.getpid()):
        os.kill(child, signal.SIGSTOP)
    assert [as_values(verdict) for verdict in examiner.examine(wires)] == expected
    assert not examiner.process.ready


def test_a_thread_replaces_a_process_that_cannot_be_started(hub: RunningHub, wires: list[bytes]) -> None:
    supported = ProfileAndLimits(hub.profile.profile_id, Limits())
    alone = Examiner(supported, enabled=lambda: True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # no new descriptor; open ones stay open
    try:
        verdicts = alone.examine(wires)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        alone.close()
    assert not alone.process.ready
    assert [as_values(verdict) for verdict in verdicts] == [
        as_values(verdict_of(wire, supported)) for wire in wires
    ]


@pytest.mark.parametrize("answer", [b"\x00garbage", []], ids=["garbage", "nothing"])
def test_a_process_that_answers_nonsense_is_given_up(
    wires: list[bytes], examiner: Examiner, answer: bytes | list[bytes]
) -> None:
    expected = [as_values(verdict) for verdict in examiner.examine(wires)]
    examiner.close()
    answer_with(examiner.process, answer)
    assert [as_values(verdict) for verdict in examiner.examine(wires)] == expected
    assert not examiner.process.ready
