"""How ids of overlays and services are derived, if their publishers choose no others (ADR 0027)."""

from __future__ import annotations

from veen_core.errors import DecodeError
from veen_core.hashing import Ht
from veen_core.ids import ClientId
from veen_overlays.discovery.records import OverlayId, ServiceId


def overlay_id(name: str) -> OverlayId:
    """``Ht("disc/overlay-id", name)``: the same for every publisher of an overlay."""
    return OverlayId(Ht("disc/overlay-id", name.encode()))


def overlay_named(text: str) -> OverlayId:
    """The id of an overlay, from its id in hex or its name."""
    try:
        return OverlayId.from_hex(text.lower())
    except DecodeError:
        return overlay_id(text)


def service_id(publisher: ClientId, name: str) -> ServiceId:
    """``Ht("disc/service-id", publisher || name)``: two publishers never derive the same id."""
    return ServiceId(Ht("disc/service-id", publisher + name.encode()))
