"""The registry: settings that are fixed when a hub is created and copied with its log (§14.1, H10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veen_core.ids import HubId, VerifyKey
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_core.wire import Wire, int_map


@int_map("registry", section="14.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Registry(Wire):
    """The fixed configuration of a hub. Without ``zstd_level``, chunks are not compressed."""

    ver: Literal[1] = 1
    hub_id: HubId
    limits: Limits = DEFAULT_LIMITS
    profile: Profile = DEFAULT_PROFILE
    zstd_level: int | None = None
    admin_pk: VerifyKey | None = None
    """The admin key created with the hub: the hub accepts its tokens and its tooling requests (H18, H19)."""
