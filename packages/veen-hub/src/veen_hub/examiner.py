"""An examiner: a worker thread's own process for the stateless half of admission."""

from __future__ import annotations

from collections.abc import Callable

from veen_core.errors import AdmissionError, ApiError, VeenError
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, ProfileId, StreamSeq
from veen_core.limits import Limits
from veen_core.rejection import TABLE, Code
from veen_hub.apart import Apart, serve
from veen_hub.examination import Submission, Supported, examine
from veen_hub.logs import LOGGER

_ROWS = {row.detail: row for row in TABLE}

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
        self.apart.close()


def _row(verdict: Verdict) -> tuple[object, ...]:
    match verdict:
        case Submission():
            auth_ref = bytes(verdict.auth_ref) if verdict.auth_ref is not None else None
            ids = (bytes(verdict.label), bytes(verdict.client_id), verdict.client_seq, verdict.prev_ack)
            return (*ids, auth_ref, bytes(verdict.leaf))
        case AdmissionError():
            return (verdict.rejection.detail, str(verdict))
    return ()


def _open_with(opening: list[bytes]) -> Callable[[bytes], tuple[object, ...]]:
    profile_id, limits = opening
    supported = Supported(ProfileId(profile_id), Limits.decode(limits))
    return lambda wire: _row(examined(wire, supported))


if __name__ == "__main__":
    serve(_open_with)
