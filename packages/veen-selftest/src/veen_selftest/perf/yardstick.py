"""What cannot be had cheaper on this machine: the crypto floor, and one sync of its disk."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from veen_core.hashing import H
from veen_core.keys import SigningKey, SigningSeed, verify

ROUNDS = 7
EACH = 300
SYNCS = 150
ENTRY = 1_500
"""Bytes of one message and its receipt, about."""


def crypto_floor() -> float:
    """Messages a second that one thread can verify and sign, doing nothing else; the best of some rounds."""
    key, digest = SigningKey(SigningSeed(H(b"floor"))), H(b"")
    signature = key.sign(digest)

    def work() -> None:
        for _ in range(EACH):
            verify(key.public, digest, signature, "")
            key.sign(digest)

    return EACH / min(_timed(work) for _ in range(ROUNDS))


def sync_seconds(folder: Path) -> float:
    """One small write and ``fdatasync``, at the median."""
    path = folder / "sync"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        times = []
        for at in range(SYNCS):
            os.pwrite(fd, bytes(ENTRY), at * ENTRY)
            times.append(_timed(lambda: os.fdatasync(fd)))
        return statistics.median(times)
    finally:
        os.close(fd)
        path.unlink()


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
