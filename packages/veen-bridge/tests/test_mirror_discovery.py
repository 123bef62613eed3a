"""Discovery by realm: descriptors that a bridge mirrors keep their publishers (spec-5 §9, pattern B)."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_bridge.transfer import Mode
from veen_core.ids import ClientId, HubPk, ProfileId, StreamId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.stream import hub_id
from veen_hub.client import Hub
from veen_overlays.discovery import DISCOVERY, Directory
from veen_overlays.discovery.identifiers import overlay_id, service_id
from veen_overlays.discovery.query import answer
from veen_overlays.discovery.records import HubAdvertise, Query, ServiceAdvertise
from veen_overlays.recorder.records import sign_continuity

from .mirror_fixtures import (
    SOURCE_READER,
    folded_stream,
    mirroring,
    read_all,
    run,
    serving,
    settings,
    talking,
)

HUB_KEY, PERSON = SigningKey(SigningSeed(b"\x0a" * 32)), SigningKey(SigningSeed(b"\x0b" * 32))
END = UnixTime(2**40)


def descriptors() -> tuple[HubAdvertise, ServiceAdvertise]:
    key = HubPk(HUB_KEY.public)
    return HubAdvertise(
        hub_id=hub_id(key),
        hub_pk=key,
        profile_id=ProfileId(bytes(32)),
        region="eu",
        tags=(),
        endpoints=(),
        overlays=(),
        ttl_sec=60,
        version="1",
        expires_at=END,
    ), ServiceAdvertise(
        service_id=service_id(ClientId(PERSON.public), "shop"),
        name="shop",
        overlay_id=overlay_id("rpc"),
        methods=("pay",),
        stream_ids=(StreamId(bytes(32)),),
        regions=("eu",),
        required_caps=(),
        tags=(),
        ttl_sec=60,
        expires_at=END,
    )


async def answers(hub: Hub, stream: str) -> list[bytes]:
    """The replies to a query for all hubs and for all services, as bytes."""
    folded = await folded_stream(hub, stream, DISCOVERY)
    directory = Directory(folded.summary.inner)
    return [answer(directory, Query(kind=kind, filter={}), END - 1).encode() for kind in ("hub", "service")]


@pytest.mark.parametrize("mode", [Mode.WRAP, Mode.RESEAL])
def test_mirrored_descriptors_count_as_their_publishers_said_them_only_if_wrapped(
    tmp_path: Path, mode: Mode
) -> None:
    """A resealed message is signed by the bridge, which is no key of the hub that is described."""
    stream = "disc.hubs.v1"

    async def work() -> None:
        hub_descriptor, service = descriptors()
        async with talking(source) as here, talking(target) as there:
            out = here.stream(stream, readers=(SOURCE_READER,))
            client = await out.client_id()
            links = [sign_continuity(key, client) for key in (HUB_KEY, PERSON)]
            events = [*links, hub_descriptor, service]
            for event in events:
                await out.send(event)
            async with mirroring(await settings(source, target, tmp_path, stream, mode=mode)):
                await read_all(there, stream, len(events))
            own, mirrored = await answers(here, stream), await answers(there, stream)
        assert own[1] == mirrored[1]
        assert (own[0] == mirrored[0]) == (mode is Mode.WRAP)

    with serving(tmp_path / "source") as source, serving(tmp_path / "target") as target:
        run(work())
