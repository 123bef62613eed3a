"""The limit registry: every size and time bound, fixed for a hub's life (§3.5, §14, §14.1).

The defaults are §14's maxima and, where §14 names none, ours (see the ADR on limits). A
deployment may lower any of them; raising one would break wire compatibility and is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from veen_core.errors import ConfigError
from veen_core.wire import Wire, int_map

MAX_PROOF_PATH: Final = 64
"""Longest inclusion path that is verified (§14). Not configurable: 2^64 leaves need no more."""
MAX_CAP_CHAIN: Final = 8
"""Longest signature chain of a cap token (§14)."""


@int_map("LIMITS", section="14.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Wire):
    """Names and order as §14.1 lists them; sizes in bytes, times in seconds."""

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
            if type(value) is not int or value < _LEAST.get(field.name, 1):
                raise ConfigError(
                    f"{field.name} must be a whole number of at least {_LEAST.get(field.name, 1)}"
                )
            if value > most:
                raise ConfigError(
                    f"{field.name} = {value} is above the maximum {most}: limits may only be lowered (§14.1)"
                )
        if self.max_chunk_bytes < self.max_msg_bytes + ENTRY_OVERHEAD:
            raise ConfigError(
                f"max_chunk_bytes = {self.max_chunk_bytes} cannot hold one entry of max_msg_bytes = "
                f"{self.max_msg_bytes}: use at least {self.max_msg_bytes + ENTRY_OVERHEAD}"
            )

    def lowered(self, changes: Mapping[str, int]) -> Limits:
        """These limits with some of them changed; an unknown name or a raised value is refused."""
        for name, value in changes.items():
            if name not in MAXIMA:
                raise ConfigError(f"unknown limit {name}: the registry has {', '.join(MAXIMA)}")
            if type(value) is int and value > getattr(self, name):
                raise ConfigError(f"{name} = {value} would raise the limit of {getattr(self, name)} (§14.1)")
        return dataclasses.replace(self, **changes)


ENTRY_OVERHEAD: Final = 1_024
"""Room for an entry's frame header and RECEIPT beside the largest MSG (§4.8.1)."""
_LEAST: Final[Mapping[str, int]] = {
    "max_attachments_per_msg": 0,
    "max_attachment_bytes": 0,
    "max_epoch_skew_sec": 0,
}
MAXIMA: Final[Mapping[str, int]] = {f.name: cast(int, f.default) for f in dataclasses.fields(Limits)}
DEFAULT_LIMITS: Final = Limits()
