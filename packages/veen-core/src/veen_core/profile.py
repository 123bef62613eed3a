"""The cryptographic profile and its id (§3.2), and the named profiles for new hubs (H10)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from veen_core.errors import ConfigError
from veen_core.hashing import Ht
from veen_core.ids import ProfileId
from veen_core.wire import Wire, int_map

MAX_PAD_BLOCK: Final = 1_048_576
"""The largest pad_block, in bytes: the size of the largest MSG (§14)."""


@int_map("profile", section="3.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Wire):
    """The algorithms and parameters on which hub and clients must agree."""

    aead: Literal["xchacha20poly1305"] = "xchacha20poly1305"
    kdf: Literal["hkdf-sha256"] = "hkdf-sha256"
    sig: Literal["ed25519"] = "ed25519"
    dh: Literal["x25519"] = "x25519"
    hpke_suite: Literal["X25519-HKDF-SHA256-CHACHA20POLY1305"] = "X25519-HKDF-SHA256-CHACHA20POLY1305"
    epoch_sec: int
    pad_block: int
    mmr_hash: Literal["sha256"] = "sha256"

    def __post_init__(self) -> None:
        if self.pad_block > MAX_PAD_BLOCK:
            raise ConfigError(
                f"pad_block {self.pad_block} exceeds {MAX_PAD_BLOCK}, the size of the largest MSG (core §14)"
            )

    @property
    def profile_id(self) -> ProfileId:
        """``Ht("veen/profile", CBOR(profile))`` (§3.2)."""
        return _profile_id(self)


@lru_cache(maxsize=64)
def _profile_id(profile: Profile) -> ProfileId:
    return ProfileId(Ht("veen/profile", profile.encode()))


PROFILES: Final = {
    "default": Profile(epoch_sec=0, pad_block=256),
    "bulk": Profile(epoch_sec=0, pad_block=0),
    "rotating": Profile(epoch_sec=60, pad_block=256),
}
"""The named profiles. A hub gets one when it is created and keeps it for life (H10)."""
DEFAULT_PROFILE: Final = PROFILES["default"]
