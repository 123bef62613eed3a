"""Streams, epochs, routing keys and labels: how a label is derived (§2, §3.2, §12, B12, B13)."""

from __future__ import annotations

from veen_core.errors import EncodeError
from veen_core.hashing import U64_MAX, H, Ht, u64be
from veen_core.ids import Epoch, HubId, HubPk, Label, RoutingKey, StreamId, UnixTime

HEX_NAME_LENGTH = 2 * StreamId.SIZE


def stream_id(name: str) -> StreamId:
    """Return ``H(utf8(name))``; a name of 64 hex digits is the id itself (B12)."""
    if len(name) == HEX_NAME_LENGTH and all(c in "0123456789abcdefABCDEF" for c in name):
        return StreamId(bytes.fromhex(name))
    try:
        return StreamId(H(name.encode()))
    except UnicodeEncodeError:
        raise EncodeError(
            "the name of the stream contains a lone surrogate, which UTF-8 cannot encode (B12)"
        ) from None


def hub_id(first_hub_pk: HubPk) -> HubId:
    """Return the hub_id, which the first key fixes for the life of the hub (B13)."""
    return HubId(Ht("veen/hub-id", first_hub_pk))


def routing_key(hub: HubId) -> RoutingKey:
    """Return the routing key, which is the same for the life of a hub identity (§12, B13)."""
    return RoutingKey(Ht("veen/routing_key", hub))


def epoch_at(now: UnixTime, epoch_sec: int) -> Epoch:
    """Return ``floor(unix_time_sec / epoch_sec)``, or 0 if ``epoch_sec`` is 0 (§3.2)."""
    return Epoch(now // epoch_sec if epoch_sec > 0 else 0)


def epoch_window(now: UnixTime, epoch_sec: int, max_skew_sec: int) -> range:
    """Return the epochs that a hub accepts at ``now``: current ± floor(skew / epoch_sec) (§12).

    A label encodes its epoch as a u64 (§2), so the range is limited to 0 … 2^64 - 1.
    """
    if epoch_sec == 0:
        return range(1)
    current, skew = epoch_at(now, epoch_sec), max_skew_sec // epoch_sec
    return range(max(0, current - skew), min(current + skew, U64_MAX) + 1)


def label(routing: RoutingKey, stream: StreamId, epoch: Epoch) -> Label:
    """Return ``Ht("veen/label", routing_key || stream_id || u64be(epoch))`` (§2)."""
    return Label(Ht("veen/label", routing + stream + u64be(epoch)))


def control_label(routing: RoutingKey) -> Label:
    """Return the label on which a hub authorizes tokens: the stream ``veen/control`` in epoch 0 (H5)."""
    return label(routing, stream_id("veen/control"), Epoch(0))
