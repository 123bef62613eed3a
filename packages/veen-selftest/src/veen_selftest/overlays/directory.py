"""A directory of services at the hub: readers agree, and only its publisher speaks for an id (spec-5)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.ids import StreamId
from veen_core.stream import stream_id
from veen_hub.client import Identity
from veen_overlays.discovery.directory import Directory
from veen_overlays.discovery.identifiers import overlay_id, service_id
from veen_overlays.discovery.query import answer
from veen_overlays.discovery.records import Query, QueryResult, ServiceAdvertise, ServiceId, ServiceRetire
from veen_overlays.discovery.state import DISCOVERY
from veen_overlays.discovery.streams import public_reader
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.overlay_reader import connected, folded, writable_hub
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext

SERVICE_TTL_SEC: Final = 600


def _directory(context: CheckContext) -> None:
    """Two readers find the same service; no stranger can speak for it; once retired it is not listed."""
    asyncio.run(_publish_and_query(context, writable_hub(context)))


async def _publish_and_query(context: CheckContext, hub: HttpHub) -> None:
    owner, stranger, reader = (Identity.generate(context.rng.randbytes) for _ in range(3))
    name = context.stream_name("directory")
    key = public_reader(StreamId(stream_id(name)))

    async def found(who: Identity, now: int) -> QueryResult:
        async with connected(hub, who) as connection:
            directory = Directory(await folded(connection, name, DISCOVERY, [key]))
        return answer(directory, Query(kind="service", filter={"method": "translate"}), now)

    async with connected(hub, owner) as at_owner, connected(hub, stranger) as at_stranger:
        mine, other = (each.stream(name, readers=[key]) for each in (at_owner, at_stranger))
        id_ = service_id(await mine.client_id(), "translator")
        await mine.send(_translator(id_, "west"))
        now = (await other.send(_translator(id_, "nowhere"))).hub_ts
        before = await found(reader, now)
        regions = [each["regions"] for each in before.results]
        require_equal(regions, [["west"]], "regions of the service that translates (P16)")
        again = await found(stranger, now)
        require_equal(again.encode(), before.encode(), "answer to another reader (spec-5 §5)")
        late = await found(reader, now + SERVICE_TTL_SEC + 1)
        require_equal(len(late.results), 0, "services after their lifetime (spec-5 5.2)")
        now = (await mine.send(ServiceRetire(service_id=id_))).hub_ts
        require_equal(len((await found(reader, now)).results), 0, "services after the retirement")


def _translator(id_: ServiceId, region: str) -> ServiceAdvertise:
    return ServiceAdvertise(
        service_id=id_,
        name="translator",
        overlay_id=overlay_id("rpc"),
        methods=("translate",),
        stream_ids=(StreamId(stream_id("translations")),),
        regions=(region,),
        required_caps=(),
        tags=(),
        ttl_sec=SERVICE_TTL_SEC,
    )


CHECKS: Final = (Check("overlay.directory", "spec-5 5.2, 6.1, P16", _directory),)
