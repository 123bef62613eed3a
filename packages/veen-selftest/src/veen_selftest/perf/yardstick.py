"""Lower bounds of this machine: the cryptography of many messages, and all work for one message."""

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
MESSAGES = 300
SYNCS = 150
ENTRY_BYTES = 1_500
"""Approximate size of a message with its receipt."""


def crypto_floor() -> float:
    """Return how many messages per second one thread can verify and sign, doing nothing else."""
    messages = _signed(MESSAGES)
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < FLOOR_SEC:
        for digest, signature in messages:
            verify(KEY.public, digest, signature, "")
            KEY.sign(digest)
        count += MESSAGES
    return count / elapsed


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
