"""The cryptographic profile and its id (§3.2), and the named profiles a hub is created with (H10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core.hashing import Ht
from veen_core.ids import ProfileId
from veen_core.wire import Wire, int_map


@int_map("profile", section="3.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Wire):
    """Everything two parties must agree on before they exchange a byte."""

    aead: Literal["xchacha20poly1305"] = "xchacha20poly1305"
    kdf: Literal["hkdf-sha256"] = "hkdf-sha256"
    sig: Literal["ed25519"] = "ed25519"
    dh: Literal["x25519"] = "x25519"
    hpke_suite: Literal["X25519-HKDF-SHA256-CHACHA20POLY1305"] = "X25519-HKDF-SHA256-CHACHA20POLY1305"
    epoch_sec: int
    pad_block: int
    mmr_hash: Literal["sha256"] = "sha256"

    @property
    def profile_id(self) -> ProfileId:
        """``Ht("veen/profile", CBOR(profile))`` (§3.2)."""
        return ProfileId(Ht("veen/profile", self.encode()))


PROFILES: Final = {
    "default": Profile(epoch_sec=0, pad_block=256),
    "bulk": Profile(epoch_sec=0, pad_block=0),
    "rotating": Profile(epoch_sec=60, pad_block=256),
}
"""Chosen when a hub is created and fixed for its life (H10)."""
DEFAULT_PROFILE: Final = PROFILES["default"]
