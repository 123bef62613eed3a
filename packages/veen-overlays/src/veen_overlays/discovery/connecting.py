"""Choose a hub and a service from a directory: phases 1 and 2 of connect (spec-5 §7).

Every candidate gets a judgement with its reason, also those that are refused. Descriptors are hints (8.1):
the caller still pins the chosen hub; ``descriptor_lie`` compares the hub that answers with its descriptor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from veen_core.ids import HubId, HubPk, ProfileId, SchemaId
from veen_overlays.discovery.identifiers import overlay_id
from veen_overlays.discovery.records import (
    Descriptor,
    HubAdvertise,
    OverlayAdvertise,
    OverlayId,
    ServiceAdvertise,
)
from veen_overlays.rpc.records import Reply, Request

D = TypeVar("D", bound=Descriptor)
INTERNAL: Final = "internal"
"""The tag of descriptors that are proposed only to clients that ask for the tag (spec-5 8.3)."""
TRANSPORTS: Final = ("https", "http", "quic", "nats")
"""Kinds of endpoints that this client can use, in the order of preference."""
RPC_SCHEMAS: Final = frozenset((SchemaId(Request.SCHEMA), SchemaId(Reply.SCHEMA)))
"""The schemas that this client's RPC implementation expects (7.2)."""


@dataclass(frozen=True, slots=True)
class Judgement(Generic[D]):
    """A candidate, whether it may be used, and why."""

    descriptor: D
    accepted: bool
    why: str


def _refused_tags(found: Descriptor, tags: Collection[str]) -> str:
    missing = [tag for tag in tags if tag not in found.tags]
    if missing:
        return f"it has no tag {missing[0]}"
    if INTERNAL in found.tags and INTERNAL not in tags:
        return f"it is tagged {INTERNAL}"
    return ""


# --- phase 1: hubs (7.1)


def endpoints_of(hub: HubAdvertise) -> list[str]:
    """The addresses of a hub that this client can use, the preferred ones first."""
    usable = [each for each in hub.endpoints if each.kind in TRANSPORTS]
    return [each.url for each in sorted(usable, key=lambda each: TRANSPORTS.index(each.kind))]


def choose_hubs(
    found: Iterable[HubAdvertise],
    *,
    profiles: Collection[ProfileId],
    region: str | None = None,
    overlay: OverlayId | None = None,
    tags: Collection[str] = (),
    pinned: Collection[HubId] = (),
) -> list[Judgement[HubAdvertise]]:
    """Judge candidate hubs; the first accepted one is preferred.

    Refused are hubs without a supported profile (7.1), without a usable endpoint, or with the wrong tags.
    Preferred are hubs in the region, then those that advertise the overlay, then those pinned before.
    """
    ranked: list[tuple[tuple[bool, bool, bool, bool, bytes], Judgement[HubAdvertise]]] = []
    for hub in found:
        in_region, has_overlay = region == hub.region, overlay in hub.overlays
        refusal = _refused_tags(hub, tags)
        if hub.profile_id not in profiles:
            refusal = f"this client does not support its profile {hub.profile_id.hex()}"
        elif not endpoints_of(hub):
            refusal = "it has no http or https endpoint"
        merits = [
            *([f"in region {hub.region}"] if in_region else [] if region is None else [f"in {hub.region}"]),
            *(["advertises the overlay"] if has_overlay else []),
            *(["pinned before"] if hub.hub_id in pinned else []),
        ]
        why = refusal or ", ".join(merits) or "it fits"
        rank = bool(refusal), not in_region, not has_overlay, hub.hub_id not in pinned, bytes(hub.hub_id)
        ranked.append((rank, Judgement(hub, not refusal, why)))
    return [judgement for _, judgement in sorted(ranked, key=lambda each: each[0])]


# --- phase 2: overlays and services (7.2)


def refused_overlay(used: OverlayId, described: OverlayAdvertise | None) -> str:
    """Why this client cannot use a service's overlay; empty if its schemas are those of RPC0.

    This client knows the schemas of ``rpc`` itself: no descriptor of another publisher can change them.
    """
    if used == overlay_id("rpc"):
        return ""
    if described is None:
        return f"the directory does not describe its overlay {used.hex()}"
    missing = RPC_SCHEMAS.difference(described.schemas)
    return f"its overlay {described.name} lacks the schema {min(missing).hex()} of rpc" if missing else ""


def choose_services(
    found: Iterable[tuple[ServiceAdvertise, bytes]],
    overlays: Collection[OverlayAdvertise],
    *,
    name: str | None = None,
    method: str | None = None,
    region: str | None = None,
    tags: Collection[str] = (),
    publisher: bytes | None = None,
) -> list[Judgement[ServiceAdvertise]]:
    """Judge candidate services, each with its publisher; the first accepted one is preferred."""
    described = {bytes(each.overlay_id): each for each in overlays}
    ranked: list[tuple[tuple[bool, bool, str, bytes], Judgement[ServiceAdvertise]]] = []
    for service, signer in found:
        refusal = _refused_tags(service, tags)
        if publisher is not None and signer != publisher:
            refusal = f"its publisher is {signer.hex()}"
        elif name is not None and service.name != name:
            refusal = f"its name is {service.name}"
        elif method is not None and method not in service.methods:
            refusal = f"it has no method {method}"
        elif not service.stream_ids:
            refusal = "it names no stream"
        elif why := refused_overlay(service.overlay_id, described.get(bytes(service.overlay_id))):
            refusal = why
        in_region = region is not None and region in service.regions
        why = refusal or (f"prefers region {region}" if in_region else "it fits")
        rank = bool(refusal), not in_region, service.name, bytes(service.service_id)
        ranked.append((rank, Judgement(service, not refusal, why)))
    return [judgement for _, judgement in sorted(ranked, key=lambda each: each[0])]


# --- pinning (8.1)


def descriptor_lie(hub: HubAdvertise, keys: Collection[HubPk], profile: ProfileId) -> str:
    """How a descriptor differs from the hub that has answered; empty if it tells the truth.

    ``keys`` are the hub's active keys and ``profile`` is its profile, both verified against ``hub_id``.
    """
    if hub.hub_pk not in keys:
        return f"its descriptor names the key {hub.hub_pk.hex()}, which is not an active key of the hub"
    if hub.profile_id != profile:
        return f"its descriptor names the profile {hub.profile_id.hex()}, but the hub has {profile.hex()}"
    return ""
