"""The section ``discovery`` of hub.yaml: how the hub advertises itself in a directory (spec-5 §4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veen_hub import extension
from veen_hub.ops.config.addresses import check_address, check_ca
from veen_hub.ops.config.setting_error import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """The hub's descriptor in a directory; without this section the hub advertises nothing (spec-5 4.1).

    The hub publishes its descriptor at the start, renews it before its expiry, and withdraws it at a planned
    end.
    """

    url: str | None = None
    """Address of the hub that has the directory; by default this hub."""
    pinned: str | None = None
    """hub_id of the hub at `discovery.url`, in hex."""
    ca: Path | None = None
    """PEM file, if this machine does not trust the certificate of the hub at `discovery.url`."""
    token: Path | None = None
    """File with a cap token (CBOR) for this hub's key, if the hub with the directory is gated."""
    stream: str = "disc.hubs.v1"
    """Stream of hub descriptors."""
    region: str = ""
    """Region of this hub, such as `ap-northeast-1`."""
    tags: tuple[str, ...] = ()
    """Such as `public`, `private` or `test`."""
    endpoints: tuple[str, ...] = ()
    """Addresses at which clients reach this hub; by default its address on each transport that is on."""
    overlays: tuple[str, ...] = ()
    """Names or ids of overlays that this hub takes part in, such as `rpc`."""
    ttl_sec: int = 3_600
    """Seconds for which an advertisement holds; it is renewed after a third of them."""

    def __post_init__(self) -> None:
        extension.find(extension.DESCRIPTORS, SPEC_5, "discovery", "; install veen-overlays")
        if (self.url is None) != (self.pinned is None):
            raise SettingError(
                "discovery", "give both url and pinned, or neither if this hub has the directory"
            )
        if self.url is not None:
            check_address("discovery.url", self.url)
        for each in self.endpoints:
            if not each.startswith(OTHER_SCHEMES):
                check_address("discovery.endpoints", each)
        if self.ttl_sec < MIN_TTL_SEC:
            raise SettingError("discovery.ttl_sec", f"must be at least {MIN_TTL_SEC}")
        check_ca("discovery.ca", self.ca, "discovery.url", self.url)


OTHER_SCHEMES = ("h3://", "nats://", "tls://")
"""Beginnings of addresses that are not HTTP/1.1 (ADR 0031); the client checks the rest."""
SPEC_5 = "spec-5"
"""Name of the entry point with the records of discovery; veen-overlays provides it."""
MIN_TTL_SEC = 3
