"""EvidencePolicy: how much of a result is verified before it is returned (query-api §4.2.6, §6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from veen_overlays.query.checks import read_object, want
from veen_overlays.query.errors import invalid


class EvidenceMode(enum.StrEnum):
    """The evidence modes (query-api §6)."""

    NONE = "none"
    SPOT = "spot"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePolicy:
    """A mode, and for "spot" the share of rows that is sampled."""

    mode: EvidenceMode = EvidenceMode.NONE
    sample_rate: float | None = None
    """In (0, 1] for "spot", otherwise None."""

    def as_json(self) -> dict[str, Any]:
        """Return the normal form: ``sample_rate`` only for "spot"."""
        item: dict[str, Any] = {"mode": str(self.mode)}
        return item if self.sample_rate is None else item | {"sample_rate": self.sample_rate}


def read_evidence(item: object) -> EvidencePolicy:
    """Validate and normalise ``evidence`` (query-api §4.2.6)."""
    parts = read_object(item, "evidence (query-api §4.2)", ("mode", "sample_rate"))
    mode, rate = parts.get("mode"), parts.get("sample_rate")
    where = "evidence.mode (query-api §4.2)"
    if type(mode) is not str:
        raise want("none, spot or full", mode, where, 'write "none", "spot" or "full"')
    if mode not in EvidenceMode.__members__.values():
        raise invalid(where, f"{mode[:40]!r} is not a mode", 'write "none", "spot" or "full"')
    where = "evidence.sample_rate (query-api §4.2)"
    if mode != EvidenceMode.SPOT:
        if rate is not None:
            raise invalid(where, f"mode {mode!r} has no sample_rate", 'leave it out, or use mode "spot"')
        return EvidencePolicy(mode=EvidenceMode(mode))
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise want("a number", rate, where, "write a number above 0 and up to 1")
    if not 0 < rate <= 1:
        raise invalid(where, "is not in (0, 1]", "write a number above 0 and up to 1")
    return EvidencePolicy(mode=EvidenceMode.SPOT, sample_rate=float(rate))
