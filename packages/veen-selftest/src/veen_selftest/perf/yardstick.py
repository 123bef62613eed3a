"""Lower bounds of this machine: the cryptography of many messages, and all work for one message."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

from veen_core.hashing import H
from veen_core.ids import Signature
from veen_core.keys import SigningKey, SigningSeed, verify
from veen_selftest.runner.load_profile import CoreFloor

KEY = SigningKey(SigningSeed(H(b"floor")))
PAUSE_SEC = 0.001
FLOOR_SEC = 0.5
MESSAGES = 300
SYNCS = 150
ENTRY_BYTES = 1_500
"""Approximate size of a message with its receipt."""


def crypto_floor(seconds: float = FLOOR_SEC) -> float:
    """Return how many messages per second one thread can verify and sign, doing nothing else."""
    messages = _signed(MESSAGES)
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        for digest, signature in messages:
            verify(KEY.public, digest, signature, "")
            KEY.sign(digest)
        count += MESSAGES
    return count / elapsed


def core_floor(seconds: float) -> CoreFloor:
    """Measure the crypto floor of one process alone, and of one process per core at once."""
    cores = len(os.sched_getaffinity(0))
    return CoreFloor(one=_at_once(1, seconds), together=_at_once(cores, seconds), processes=cores)


def _at_once(count: int, seconds: float) -> float:
    """Return the floors of so many processes that start to count together, added up."""
    program = (
        "import sys\nfrom veen_selftest.perf.yardstick import crypto_floor\n"
        f"print(flush=True)\nsys.stdin.readline()\nprint(crypto_floor({seconds}), flush=True)"
    )
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(  # noqa: S603 - this module, in another process
                    [sys.executable, "-P", "-c", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(count)
        ]
        for process in processes:
            _lines_of(process)[1].readline()  # printed after its imports
        for process in processes:
            to, _said = _lines_of(process)
            to.write("\n")
            to.flush()
        return sum(float(_lines_of(process)[1].readline()) for process in processes)


def _lines_of(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def lone_seconds(folder: Path) -> float:
    """Return the median time of one verification, one signature, one small write and ``fdatasync``.

    Each measurement follows a pause, as the messages of one client do: a machine is slower right after it was
    idle, and the hub is measured in the same way.
    """
    path = folder / "sync"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)

    def work(at: int, digest: bytes, signature: Signature) -> None:
        verify(KEY.public, digest, signature, "")
        KEY.sign(digest)
        os.pwrite(fd, bytes(ENTRY_BYTES), at * ENTRY_BYTES)
        os.fdatasync(fd)

    try:
        times = []
        for at, message in enumerate(_signed(SYNCS)):
            time.sleep(PAUSE_SEC)
            times.append(_timed(partial(work, at, *message)))
        return statistics.median(times)
    finally:
        os.close(fd)
        path.unlink()


def _signed(count: int) -> list[tuple[bytes, Signature]]:
    """Return different signed digests: repeating one would verify 5 % faster."""
    return [(digest, KEY.sign(digest)) for digest in (H(n.to_bytes(2, "big")) for n in range(count))]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
