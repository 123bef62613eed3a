"""An examiner: a worker thread's own process for the stateless half of admission."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from veen_core.errors import AdmissionError, ApiError, VeenError
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, ProfileId, StreamSeq
from veen_core.limits import Limits
from veen_core.rejection import TABLE, Code
from veen_hub.admission.stateless import Submission, Supported, examine
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.worker_process import Apart, serve

_ROWS: Final = {row.detail: row for row in TABLE}
_PASSED: Final = struct.Struct(">32s32s32s32sQQ?")
_NO_TOKEN: Final = bytes(32)

Verdict = Submission | VeenError


def examined(wire: bytes, supported: Supported) -> Verdict:
    """Nothing that a message holds may end a worker: whoever sent it gets an answer."""
    try:
        return examine(wire, supported)
    except AdmissionError as exc:
        return without_frames(exc)  # they hold the message, and through it themselves
    except Exception:  # noqa: BLE001 - logged; a bug refuses one message, not the hub
        LOGGER.exception("bug in admission")
        return ApiError(Code.UNAVAILABLE, "internal error: see the hub's log", retry_after=5)


class Examiner:
    """Belongs to one worker thread."""

    def __init__(self, supported: Supported, *, apart: bool) -> None:
        self._supported = supported
        self.apart = Apart(__name__, enabled=apart)

    def examine(self, wires: list[bytes]) -> list[Verdict]:
        """A verdict for each, whatever becomes of the process."""
        hub = self._supported
        rows = self.apart.ask([bytes(hub.profile_id), hub.limits.encode()], wires)
        if rows is not None:
            try:
                return [self._verdict(row, wire) for row, wire in zip(rows, wires, strict=True)]
            except (TypeError, ValueError, VeenError) as exc:  # no sense in it
                self.apart.give_up(str(exc))
        return [examined(wire, hub) for wire in wires]

    def _verdict(self, row: object, wire: bytes) -> Verdict:
        match row:
            case bytes():
                return _submission(row, wire)
            case (str(detail), str(why)) if detail in _ROWS:
                return AdmissionError(_ROWS[detail], why)
        return examined(wire, self._supported)  # a bug over there: let it show here

    def close(self) -> None:
        self.apart.close()


# --- between the processes: a submission packed, a refusal as its row and why, a bug as nothing


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
    """The struct sees to the sizes; half the cost of asking each type."""
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
    supported = Supported(ProfileId(profile_id), Limits.decode(limits))
    return lambda wire: _row(examined(wire, supported))


if __name__ == "__main__":
    serve(_open_with)
