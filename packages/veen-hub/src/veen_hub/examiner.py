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
import marshal
import select
import signal
import struct
import subprocess
import sys
from typing import BinaryIO, Final

from veen_core.errors import AdmissionError, ApiError, VeenError
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, ProfileId, StreamSeq
from veen_core.limits import Limits
from veen_core.rejection import TABLE, Code
from veen_hub.examination import Submission, Supported, examine
from veen_hub.logs import LOGGER

WORTH_THE_WAY: Final = 16
"""Messages: below this a thread is faster than the way to a process and back."""
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


class Examiner:
    """Belongs to one worker thread."""

    def __init__(self, supported: Supported, *, apart: bool) -> None:
        """With ``apart`` off there is no process: on one core it would only cost."""
        self._supported = supported
        self._apart = apart
        self._process: subprocess.Popen[bytes] | None = None
        self.ready = False
        """Whether its process takes questions."""

    def examine(self, wires: list[bytes]) -> list[Verdict]:
        if self._apart and len(wires) >= WORTH_THE_WAY and self._is_ready():
            try:
                return self._ask(wires)
            except (OSError, EOFError, ValueError) as exc:
                LOGGER.warning("an examiner is lost (%s): its thread does the work, a new one starts", exc)
                self.close()
        return [examined(wire, self._supported) for wire in wires]

    def _is_ready(self) -> bool:
        """Start the process if there is none; it says hello when it has imported what it needs."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - this very module
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            hub = self._supported
            _send(self._pipes()[0], [bytes(hub.profile_id), hub.limits.encode()])
        if not self.ready:
            answers = self._pipes()[1]
            self.ready = bool(select.select([answers], [], [], 0)[0]) and _receive(answers) is not None
        return self.ready

    def _pipes(self) -> tuple[BinaryIO, BinaryIO]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdin, process.stdout  # type: ignore[return-value]  # typeshed's IO[bytes]

    def _ask(self, wires: list[bytes]) -> list[Verdict]:
        questions, answers = self._pipes()
        _send(questions, wires)
        rows = _receive(answers)
        if rows is None or len(rows) != len(wires):
            raise EOFError("it ended")
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
        if (process := self._process) is not None:
            for pipe in self._pipes():
                with contextlib.suppress(OSError):  # what was on its way to one that died
                    pipe.close()  # the end of its input ends it
            process.wait()
        self._process, self.ready = None, False


def _send(pipe: BinaryIO, frame: list[bytes] | list[tuple[object, ...]]) -> None:
    data = marshal.dumps(frame)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> list[tuple[object, ...]] | None:
    """The next frame; None at the end of the pipe."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return marshal.loads(data) if len(data) == length else None  # noqa: S302 - from our own process


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
    for number in (signal.SIGINT, signal.SIGTERM):  # the hub's to handle; it ends our input
        signal.signal(number, signal.SIG_IGN)
    LOGGER.disabled = True  # the hub says what there is to say
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    if (hello := _receive(questions)) is None:
        return
    profile_id, limits = hello
    supported = Supported(ProfileId(profile_id), Limits.decode(limits))  # type: ignore[arg-type]
    _send(answers, [])
    while (wires := _receive(questions)) is not None:
        _send(answers, [_row(examined(wire, supported)) for wire in wires])  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
