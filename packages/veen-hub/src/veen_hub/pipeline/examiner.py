"""Examiner process: runs the stateless half of admission for one worker thread."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from veen_core.errors import AdmissionError, VeenError
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, ProfileId, StreamSeq
from veen_core.limits import Limits
from veen_core.rejection import TABLE
from veen_hub.admission.stateless import ProfileAndLimits, Submission, examine
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.failures import internal_error
from veen_hub.pipeline.worker_process import WorkerProcess, serve

_ROWS: Final = {row.detail: row for row in TABLE}
_PASSED: Final = struct.Struct(">32s32s32s32sQQ?")
_NO_TOKEN: Final = bytes(32)

Verdict = Submission | VeenError


def verdict_of(wire: bytes, supported: ProfileAndLimits) -> Verdict:
    """Examine one message; a bug refuses that message and never ends the worker."""
    try:
        return examine(wire, supported)
    except AdmissionError as exc:
        return without_frames(exc)
    except Exception:  # noqa: BLE001 - logged; answered as an internal error
        LOGGER.exception("examination_failed")
        return internal_error()


class Examiner:
    """Examines messages for one worker thread; large groups may be examined in a helper process."""

    def __init__(
        self, supported: ProfileAndLimits, *, enabled: Callable[[], bool], timeout_sec: float = 10.0
    ) -> None:
        self._supported = supported
        self.process = WorkerProcess(__name__, enabled=enabled, timeout_sec=timeout_sec)

    def examine(self, wires: list[bytes]) -> list[Verdict]:
        """Return a verdict for each message, even if the process fails."""
        hub = self._supported
        rows = self.process.ask([bytes(hub.profile_id), hub.limits.encode()], wires)
        if rows is not None:
            try:
                return [self._verdict(row, wire) for row, wire in zip(rows, wires, strict=True)]
            except (TypeError, ValueError, VeenError) as exc:
                self.process.give_up(str(exc))
        return [verdict_of(wire, hub) for wire in wires]

    def _verdict(self, row: object, wire: bytes) -> Verdict:
        match row:
            case bytes():
                return _submission(row, wire)
            case (str(detail), str(why)) if detail in _ROWS:
                return AdmissionError(_ROWS[detail], why)
        return verdict_of(wire, self._supported)  # a bug in the process: reproduce it here, and log it

    def close(self) -> None:
        self.process.close()


# --- between the processes: a submission as packed bytes, a refusal as (detail, why), a bug as ()


def _row(verdict: Verdict) -> object:
    match verdict:
        case Submission():
            auth_ref = verdict.auth_ref
            ids = (verdict.label, verdict.client_id, verdict.leaf, auth_ref or _NO_TOKEN)
            return _PASSED.pack(*ids, verdict.client_seq, verdict.prev_ack, auth_ref is not None)
        case AdmissionError():
            return verdict.rejection.detail, str(verdict)
    return ()


def _submission(row: bytes, wire: bytes) -> Submission:
    """Unpack a submission without the id types' size checks (half the cost): the struct has fixed sizes."""
    try:
        label, client_id, leaf, auth_ref, client_seq, prev_ack, has_token = _PASSED.unpack(row)
    except struct.error as exc:
        raise ValueError(str(exc)) from None
    make = bytes.__new__
    return Submission(
        make(Label, label),
        make(ClientId, client_id),
        ClientSeq(client_seq),
        StreamSeq(prev_ack),
        make(AuthRef, auth_ref) if has_token else None,
        make(LeafHash, leaf),
        wire,
    )


def _open_with(opening: list[bytes]) -> Callable[[bytes], object]:
    profile_id, limits = opening
    supported = ProfileAndLimits(ProfileId(profile_id), Limits.decode(limits))
    return lambda wire: _row(verdict_of(wire, supported))


if __name__ == "__main__":
    serve(_open_with)
