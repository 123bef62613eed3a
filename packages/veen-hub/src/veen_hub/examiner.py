"""An examiner: a worker thread's own process for the stateless half of admission, while there is much to do.

Ed25519 runs outside the interpreter's lock; decoding and hashing around it do not, and would share one core
with the sequencer. So under load a worker hands its group to a process. Small groups stay in the thread: the
way there and back costs more than they do. The process starts with the first large group, and until it is
ready, or if it dies, the thread does the work itself: nobody waits for it.

It reads its standard input until that ends, so it never outlives the hub. Frames are ``marshal`` of lists of
bytes, between two processes of the same interpreter.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
import time
from typing import Any, Final

from veen_core.errors import AdmissionError, ApiError, VeenError
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, ProfileId, StreamSeq
from veen_core.limits import Limits
from veen_core.rejection import TABLE, Code
from veen_hub.examination import Submission, Supported, examine
from veen_hub.logs import LOGGER, log

WORTH_THE_WAY: Final = 16
"""Messages: below this a thread is faster than the way to a process and back."""
ANSWER_SEC: Final = 10.0
"""A process that gives no sign for so long is given up."""
RESTART_SEC: Final = 5.0
_LENGTH: Final = struct.Struct(">I")
_ROWS: Final = {row.detail: row for row in TABLE}

Verdict = Submission | VeenError


def examined(wire: bytes, supported: Supported) -> Verdict:
    """Nothing that a message holds may end a worker: whoever sent it gets an answer."""
    try:
        return examine(wire, supported)
    except AdmissionError as exc:
        return exc.with_traceback(None)  # its frames hold the message, and through it themselves
    except Exception:  # noqa: BLE001 - logged; a bug refuses one message, not the hub
        LOGGER.exception("bug in admission")
        return ApiError(Code.UNAVAILABLE, "internal error: see the hub's log", retry_after=5)


class LostError(OSError):
    """The process ended, or does not answer."""


class Examiner:
    """Belongs to one worker thread."""

    def __init__(self, supported: Supported, *, apart: bool) -> None:
        """With ``apart`` off there is no process: on one core it would only cost."""
        self._supported = supported
        self._apart = apart
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.ready = False
        """Whether its process takes questions."""

    def examine(self, wires: list[bytes]) -> list[Verdict]:
        """A verdict for each, whatever becomes of the process."""
        if self._apart and len(wires) >= WORTH_THE_WAY and time.monotonic() >= self._not_before:
            try:
                if self._is_ready():
                    return self._ask(wires)
            except (OSError, EOFError, TypeError, ValueError, VeenError) as exc:  # gone, or no sense in it
                log(logging.WARNING, "an examiner is lost: its thread does the work", error=str(exc))
                self.close()
                self._not_before = time.monotonic() + RESTART_SEC
        return [examined(wire, self._supported) for wire in wires]

    def _is_ready(self) -> bool:
        """Start the process if there is none; it says hello when it has imported what it needs."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - this very module, and nothing of the working directory
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is the hub's to handle
            )
            for fd in self._fds():
                os.set_blocking(fd, False)
            hub = self._supported
            _send(self._fds()[0], [bytes(hub.profile_id), hub.limits.encode()], ANSWER_SEC)
        if not self.ready and _is_readable(self._fds()[1]):
            _receive(self._fds()[1], ANSWER_SEC)
            self.ready = True
        return self.ready

    def _fds(self) -> tuple[int, int]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdin.fileno(), process.stdout.fileno()

    def _ask(self, wires: list[bytes]) -> list[Verdict]:
        questions, answers = self._fds()
        _send(questions, wires, ANSWER_SEC)
        rows = _receive(answers, ANSWER_SEC)
        return [self._verdict(row, wire) for row, wire in zip(rows, wires, strict=True)]

    def _verdict(self, row: tuple[object, ...], wire: bytes) -> Verdict:
        match row:
            case (label, client_id, client_seq, prev_ack, auth_ref, leaf):
                return Submission(
                    Label(label),  # type: ignore[arg-type]  # as ``_row`` packed them
                    ClientId(client_id),  # type: ignore[arg-type]
                    ClientSeq(client_seq),  # type: ignore[arg-type]
                    StreamSeq(prev_ack),  # type: ignore[arg-type]
                    AuthRef(auth_ref) if auth_ref is not None else None,  # type: ignore[arg-type]
                    LeafHash(leaf),  # type: ignore[arg-type]
                    wire,
                )
            case (detail, why) if detail in _ROWS:
                return AdmissionError(_ROWS[str(detail)], str(why))
        return examined(wire, self._supported)  # a bug over there: let it show here

    def close(self) -> None:
        """The process ends, whatever it does at the moment."""
        if (process := self._process) is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._process, self.ready = None, False


# --- frames, the same on both sides; without ``seconds`` a side waits for ever


def _send(fd: int, frame: list[bytes] | list[tuple[object, ...]], seconds: float | None = None) -> None:
    data = marshal.dumps(frame)
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    while rest:
        _wait(fd, select.POLLOUT, seconds)
        rest = rest[os.write(fd, rest) :]


def _receive(fd: int, seconds: float | None = None) -> list[Any]:
    (length,) = _LENGTH.unpack(_read(fd, _LENGTH.size, seconds))
    return marshal.loads(_read(fd, length, seconds))  # type: ignore[no-any-return]  # noqa: S302 - our own process


def _read(fd: int, length: int, seconds: float | None) -> bytes:
    parts = []
    while length:
        _wait(fd, select.POLLIN, seconds)
        if not (part := os.read(fd, length)):
            raise LostError("it ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _wait(fd: int, event: int, seconds: float | None) -> None:
    if not _happens(fd, event, seconds):
        raise LostError(f"no sign of it for {seconds} s")


def _is_readable(fd: int) -> bool:
    return _happens(fd, select.POLLIN, 0)


def _happens(fd: int, event: int, seconds: float | None) -> bool:
    poll = select.poll()  # a busy hub has more descriptors than ``select`` takes
    poll.register(fd, event)
    return bool(poll.poll(None if seconds is None else seconds * 1_000))


def _row(verdict: Verdict) -> tuple[object, ...]:
    match verdict:
        case Submission():
            auth_ref = bytes(verdict.auth_ref) if verdict.auth_ref is not None else None
            ids = (bytes(verdict.label), bytes(verdict.client_id), verdict.client_seq, verdict.prev_ack)
            return (*ids, auth_ref, bytes(verdict.leaf))
        case AdmissionError():
            return (verdict.rejection.detail, str(verdict))
    return ()


def main() -> None:
    """The process: frames in, frames out, until the input ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the hub's to handle; it ends our input
    LOGGER.disabled = True  # the hub says what there is to say
    questions, answers = sys.stdin.fileno(), sys.stdout.fileno()
    with contextlib.suppress(LostError, BrokenPipeError):
        profile_id, limits = _receive(questions)
        supported = Supported(ProfileId(profile_id), Limits.decode(limits))
        _send(answers, [])
        while True:
            _send(answers, [_row(examined(wire, supported)) for wire in _receive(questions)])


if __name__ == "__main__":
    main()
