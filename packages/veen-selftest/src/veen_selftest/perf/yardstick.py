"""What cannot be had cheaper on this machine: many messages' cryptography, and all that one message needs."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from veen_core.hashing import H
from veen_core.ids import Signature
from veen_core.keys import SigningKey, SigningSeed, verify

KEY = SigningKey(SigningSeed(H(b"floor")))
PAUSE_SEC = 0.001
FLOOR_SEC = 0.5
EACH = 300
SYNCS = 150
ENTRY = 1_500
"""Bytes of one message and its receipt, about."""


def crypto_floor() -> float:
    """Messages a second that one thread can verify and sign, doing nothing else."""
    messages = _signed(EACH)
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < FLOOR_SEC:
        for digest, signature in messages:
            verify(KEY.public, digest, signature, "")
            KEY.sign(digest)
        count += EACH
    return count / elapsed


def lone_seconds(folder: Path) -> float:
    """One verification, one signature, one small write and ``fdatasync``, at the median.

    Each after a pause, as between the messages of one client: a machine that idled in between is slower at
    first, for a hub as for this.
    """
    path = folder / "sync"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)

    def work(at: int, digest: bytes, signature: Signature) -> None:
        verify(KEY.public, digest, signature, "")
        KEY.sign(digest)
        os.pwrite(fd, bytes(ENTRY), at * ENTRY)
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
    """Different ones, as messages are: the same again and again verifies a twentieth faster."""
    return [(digest, KEY.sign(digest)) for digest in (H(n.to_bytes(2, "big")) for n in range(count))]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
