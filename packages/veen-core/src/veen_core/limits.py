"""The limit registry: every bound on sizes and times, fixed for the life of a hub (§3.5, §14, §14.1).

The defaults are the maxima of §14 or, where §14 names none, those of ADR 0004. A deployment may lower a
limit. Raising one would break wire compatibility and is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from veen_core.errors import ConfigError
from veen_core.wire import Wire, int_map

MAX_PROOF_PATH: Final = 64
"""Longest path of an inclusion proof (§14); enough for 2^64 leaves, so it is not configurable."""
MAX_CAP_CHAIN: Final = 8
"""Longest signature chain of a cap token (§14)."""


@int_map("LIMITS", section="14.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Wire):
    """The limits of a hub, in the order of §14.1; sizes in bytes, times in seconds."""

    max_msg_bytes: int = 1_048_576
    max_hdr_bytes: int = 16_384
    max_body_bytes: int = 1_048_320
    max_attachments_per_msg: int = 1_024
    max_attachment_bytes: int = 64 * 1_048_576
    max_chunk_bytes: int = 64 * 1_048_576
    max_checkpoint_interval: int = 65_536
    max_cap_rate_per_sec: int = 100_000
    max_cap_rate_burst: int = 1_000_000
    max_epoch_skew_sec: int = 60

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, most = getattr(self, field.name), MAXIMA[field.name]
            if type(value) is not int or value < _MINIMA.get(field.name, 1):
                raise ConfigError(f"{field.name} must be an integer of at least {_MINIMA.get(field.name, 1)}")
            if value > most:
                raise ConfigError(
                    f"{field.name} = {value} is above the maximum {most}; limits may only be lowered "
                    "(core §14.1)"
                )
        if self.max_chunk_bytes < self.max_msg_bytes + ENTRY_OVERHEAD_BYTES:
            raise ConfigError(
                f"max_chunk_bytes = {self.max_chunk_bytes} is too small for one entry of max_msg_bytes = "
                f"{self.max_msg_bytes}; set it to at least {self.max_msg_bytes + ENTRY_OVERHEAD_BYTES}"
            )

    def lowered(self, changes: Mapping[str, int]) -> Limits:
        """Return these limits with some lowered; an unknown name or a raised value is a ``ConfigError``."""
        for name, value in changes.items():
            if name not in MAXIMA:
                raise ConfigError(f"unknown limit {name}; known are {', '.join(MAXIMA)}")
            if type(value) is int and value > getattr(self, name):
                raise ConfigError(
                    f"{name} = {value} would raise the limit of {getattr(self, name)} (core §14.1)"
                )
        return dataclasses.replace(self, **changes)


ENTRY_OVERHEAD_BYTES: Final = 1_024
"""Bytes that an entry may take in addition to its MSG: frame header and RECEIPT (§4.8.1)."""
_MINIMA: Final[Mapping[str, int]] = {
    "max_attachments_per_msg": 0,
    "max_attachment_bytes": 0,
    "max_epoch_skew_sec": 0,
}
MAXIMA: Final[Mapping[str, int]] = {f.name: cast(int, f.default) for f in dataclasses.fields(Limits)}
DEFAULT_LIMITS: Final = Limits()
