"""The registry: what is fixed when a hub is created, and travels with its log (§14.1, H10, §4.8.4)."""

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
    """The deployment's deterministic configuration; ``zstd_level`` absent means no compression."""

    ver: Literal[1] = 1
    hub_id: HubId
    limits: Limits = DEFAULT_LIMITS
    profile: Profile = DEFAULT_PROFILE
    zstd_level: int | None = None
    admin_pk: VerifyKey | None = None
    """The admin key made with the hub: its tokens count, and it may use /tooling (H18, H19)."""
