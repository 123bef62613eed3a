"""Helper processes that verify signatures while this process decodes, hashes and writes.

A thread cannot do this well: it needs the GIL after every signature. A request is a number of signatures,
each as key, signature and digest; the answer has one byte for each. A signature that is found invalid is
verified again here, under all of its keys.

A process that ends, or does not answer, costs time but no result: its signatures are verified here. It ends
when its socket is closed, so it never outlives this process.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

from veen_core.ids import Signature, VerifyKey
from veen_core.keys import is_valid
from veen_core.signatures import SignatureClaim, invalid_signatures

MAX_PROCESSES: Final = 8
"""Most helper processes: each has its own memory."""
MAX_PENDING_REQUESTS: Final = 4
"""Most requests that one process holds: about 5 ms of work, as long as a thread waits for the GIL."""
ANSWER_SECONDS: Final = 30.0
"""Longest time until a process answers, or is given up."""
MAX_ANSWER_BYTES: Final = 65_536
_COUNT: Final = struct.Struct(">H")
_SIGNATURE: Final = struct.Struct(f"{VerifyKey.SIZE}s{Signature.SIZE}s32s")
_READY: Final = b"r"


class SignatureProcesses:
    """A helper process for each core but one, up to a limit; implements ``veen_core.signatures.Assistant``.

    If the system refuses a process, those that exist do the work; without any, this process does.
    """

    def __init__(self) -> None:
        self._processes: list[_Process] = []
        try:
            for _ in range(min(usable_cores() - 1, MAX_PROCESSES)):
                self._processes.append(_Process())
        except OSError:
            pass  # too many processes or files, or too little memory
        except BaseException:
            self.close()
            raise

    def offer(self, at: int, claims: Sequence[SignatureClaim], *, left: int | None = None) -> bool:
        return any(each.offer(at, claims, left=left) for each in self._processes)

    def collect(self) -> list[int]:
        return [position for each in self._processes for position in each.collect()]

    def close(self) -> None:
        """End the processes."""
        for each in self._processes:
            each.close()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Process:
    """One helper process; used by one thread at a time."""

    def __init__(self) -> None:
        self._taken: deque[tuple[int, Sequence[SignatureClaim]]] = deque()
        """Requests without an answer, and the position of the first claim of each."""
        self._received = b""
        """Bytes of the next answer that have arrived."""
        self._invalid: list[int] = []
        self._is_ready = False
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)  # never blocks: MAX_PENDING_REQUESTS fit into the socket's buffer
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - our own module, nothing from the working directory
                    [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for this process to handle
                )
        except BaseException:
            self._socket.close()
            raise

    def offer(self, at: int, claims: Sequence[SignatureClaim], *, left: int | None) -> bool:
        self._read(wait=False)
        if not self._is_ready or len(self._taken) >= MAX_PENDING_REQUESTS:
            return False
        if left is not None and left < len(claims) + sum(len(taken) for _, taken in self._taken):
            return False  # the calling thread would end before this process, and wait for it
        fields = [field for each in claims for field in (each.keys[0], each.signature, each.digest)]
        request = b"".join((_COUNT.pack(len(claims)), *fields))
        if len(request) != _COUNT.size + len(claims) * _SIGNATURE.size:
            return False  # a digest of another size
        try:
            self._socket.sendall(request)
        except OSError:
            self._give_up()
            return False
        self._taken.append((at, claims))
        return True

    def collect(self) -> list[int]:
        while self._taken:
            self._read(wait=True)
        found, self._invalid = self._invalid, []
        return found

    def _read(self, *, wait: bool) -> None:
        """Take the answers that have arrived; ``wait`` for some if there are none."""
        if self._socket.fileno() < 0:
            return
        if wait and not select.select([self._socket], [], [], ANSWER_SECONDS)[0]:
            self._give_up()
            return
        try:
            arrived = self._socket.recv(MAX_ANSWER_BYTES)
        except BlockingIOError:
            return
        except OSError:
            arrived = b""
        if not arrived:
            self._give_up()
            return
        if not self._is_ready:
            self._is_ready = arrived[:1] == _READY
            arrived = arrived[1:]
        self._received += arrived
        while self._taken and len(self._received) >= len(self._taken[0][1]):
            at, claims = self._taken.popleft()
            answer, self._received = self._received[: len(claims)], self._received[len(claims) :]
            if answer != bytes(len(claims)):
                self._verify_here(at, claims)

    def _verify_here(self, at: int, claims: Sequence[SignatureClaim]) -> None:
        self._invalid += [at + position for position in invalid_signatures(claims, threads=1)]

    def _give_up(self) -> None:
        """End the process, and verify its unanswered requests in this process."""
        self.close()
        while self._taken:
            self._verify_here(*self._taken.popleft())

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


# --- the process


def _serve(end: socket.socket) -> None:
    """Verify signatures until the other end is closed."""
    with end, end.makefile("rb") as requests:
        end.sendall(_READY)
        while head := requests.read(_COUNT.size):
            request = requests.read(_COUNT.unpack(head)[0] * _SIGNATURE.size)
            answer = bytes(
                not is_valid(VerifyKey(key), digest, Signature(signature))
                for key, signature, digest in _SIGNATURE.iter_unpack(request)
            )
            end.sendall(answer)


if __name__ == "__main__":
    with contextlib.suppress(OSError, struct.error):  # the other process was killed
        _serve(socket.socket(fileno=int(sys.argv[1])))
