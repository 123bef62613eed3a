"""The signing gate: whether the hub may sign anything now (RESOLUTIONS P3).

The sequencer reads the gate before every batch, and every signature of the hub is made in a batch: receipts,
checkpoints, authorizations, anchors and hub checkpoints. A closed gate therefore stops all of them, for every
caller. Actions that only read are not affected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen_core.errors import AdmissionError, ApiError
from veen_core.rejection import NOT_PRIMARY, Code

WAIT_RETRY_SEC: Final = 2
"""``Retry-After`` while the hub waits for its memories."""
REFUSAL_RETRY_SEC: Final = 60
"""``Retry-After`` once an operator must act."""


@dataclass(frozen=True, slots=True)
class ClosedGate:
    """Why the gate is closed, and whether it can open again in this process."""

    why: str
    """For clients: without addresses and file names."""
    detail: str
    """For the operator, on the probes' address."""
    final: bool
    elsewhere: bool = False
    """Whether another hub accepts writes instead (P9)."""


class SigningGate:
    """Whether the hub may sign now. Any thread may read it; only the event loop changes it."""

    def __init__(self) -> None:
        self._closed: ClosedGate | None = None
        self.changes = 0
        """How often the state has changed."""

    @property
    def closed(self) -> str | None:
        """Why the hub must not sign, or None if it may."""
        closed = self._closed
        return closed.why if closed is not None else None

    @property
    def detail(self) -> str | None:
        """Why the hub must not sign, with what only its operator may see."""
        closed = self._closed
        return closed.detail if closed is not None else None

    @property
    def is_final(self) -> bool:
        """Whether the gate stays closed until the hub is started again."""
        return self._closed is not None and self._closed.final

    @property
    def is_elsewhere(self) -> bool:
        """Whether another hub accepts writes instead of this one (P9)."""
        return self._closed is not None and self._closed.elsewhere

    def wait(self, why: str, detail: str) -> None:
        """Close the gate until ``open`` is called."""
        if not self.is_final:
            self._set(ClosedGate(why, detail, final=False))

    def open(self) -> None:
        """Let the hub sign, unless it was refused for good."""
        if not self.is_final:
            self._set(None)

    def refuse(self, why: str) -> None:
        """Close the gate for the rest of this process; the first reason is kept."""
        if not self.is_final:
            self._set(ClosedGate(why, why, final=True))

    def write_elsewhere(self, why: str) -> None:
        """Refuse every write for good: this hub is a replica, or hands over to its successor (P9)."""
        self._set(ClosedGate(why, why, final=True, elsewhere=True))

    def cancel_handover(self) -> None:
        """Open the gate again after a handover that failed."""
        self._set(None)

    def _set(self, closed: ClosedGate | None) -> None:
        if closed != self._closed:
            self._closed = closed
            self.changes += 1

    def check(self) -> None:
        """Raise E.AUTH / NOT_PRIMARY or E.UNAVAILABLE, with the reason, if the hub must not sign."""
        closed = self._closed
        if closed is not None and closed.elsewhere:
            raise AdmissionError(NOT_PRIMARY, closed.why)
        if closed is not None:
            retry_after = REFUSAL_RETRY_SEC if closed.final else WAIT_RETRY_SEC
            raise ApiError(
                Code.UNAVAILABLE, f"this hub signs nothing now: {closed.why}", retry_after=retry_after
            )
