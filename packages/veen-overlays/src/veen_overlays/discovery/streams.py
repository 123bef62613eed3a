"""The streams of discovery, and the reader key of public ones (spec-5 §5, Pattern C).

A discovery stream is an ordinary stream: its messages are sealed to a reader key (RESOLUTIONS H11). The key
of a public one is derived from its stream_id, so that every client can read it: sealing then hides nothing.
An operator who wants a private directory seals to a reader key of its own.
"""

from __future__ import annotations

from typing import Final

from veen_core.hashing import Ht
from veen_core.ids import StreamId
from veen_core.keys import DhKey, DhSecret
from veen_overlays.discovery.records import Kind

STREAMS: Final[dict[Kind, str]] = {
    "hub": "disc.hubs.v1",
    "overlay": "disc.overlays.v1",
    "service": "disc.services.v1",
}
"""The common name of the stream of each kind (spec-5 5.1); an operator may choose others."""


def public_reader(stream: StreamId) -> DhKey:
    """The reader key of a public discovery stream: ``Ht("disc/public-reader", stream_id)``."""
    return DhKey(DhSecret(Ht("disc/public-reader", stream)))
