"""The figure ``disc.query_growth``: queries over many descriptors, divided by those over few (spec-5 §6).

The queries are those of clients: by method and region, by name, by tag, of hubs by region. Each finds at most
one page. The number of descriptors grows, and with it the number of names, methods and tags; what fits a
query stays the same.
"""

from __future__ import annotations

import time

from veen_core.hashing import H, u64be
from veen_core.ids import HubPk, ProfileId, StreamId
from veen_core.stream import hub_id
from veen_overlays.discovery.directory import Directory
from veen_overlays.discovery.identifiers import overlay_id
from veen_overlays.discovery.publishers import SignerRecords
from veen_overlays.discovery.query import answer
from veen_overlays.discovery.records import HubAdvertise, Query, ServiceAdvertise, ServiceId
from veen_overlays.discovery.state import DiscoveryState

END = 2**40
GROUP = 20
"""Descriptors that share a method, and hubs that share a region."""
QUERIES = 200


def _service(n: int) -> ServiceAdvertise:
    return ServiceAdvertise(
        service_id=ServiceId(H(u64be(n))),
        name=f"service-{n // GROUP:06}-{n % GROUP:02}",
        overlay_id=overlay_id("rpc"),
        methods=(f"method-{n // GROUP}", "ping"),
        stream_ids=(StreamId(bytes(32)),),
        regions=("eu" if n % 2 else "us",),
        required_caps=(),
        tags=(f"team-{n // GROUP}", "public"),
        ttl_sec=END,
    )


def _hub(n: int) -> HubAdvertise:
    key = HubPk(H(b"hub" + u64be(n)))
    return HubAdvertise(
        hub_id=hub_id(key),
        hub_pk=key,
        profile_id=ProfileId(bytes(32)),
        region=f"region-{n // GROUP}",
        tags=("public",),
        endpoints=(),
        overlays=(),
        ttl_sec=END,
        version="1",
    )


def directory(size: int) -> Directory:
    """A directory of ``size`` descriptors, half of them hubs, as a fold leaves them."""
    services = {}
    hubs = {}
    for n in range(size // 2):
        service, hub = _service(n), _hub(n)
        services[bytes(service.service_id)] = {
            b"p" * 32: SignerRecords(n + 1, 1, n + 1, 0, False, service.encode())
        }
        hubs[bytes(hub.hub_id)] = {bytes(hub.hub_pk): SignerRecords(n + 1, 1, n + 1, 0, False, hub.encode())}
    state: DiscoveryState = {"service": services, "hub": hubs}
    return Directory(state)


def queries(size: int) -> list[Query]:
    """Queries spread over the whole directory."""
    found = []
    for n in range(QUERIES):
        group = n * (size // 2 // GROUP) // QUERIES
        found += [
            Query(kind="service", filter={"method": f"method-{group}", "region": "eu"}),
            Query(kind="service", filter={"name_prefix": f"service-{group:06}"}),
            Query(kind="service", filter={"method": "ping", "tags_any": [f"team-{group}", "none"]}),
            Query(kind="service", filter={"region": "us", "tags_any": ["public"]}, limit=GROUP),
            Query(kind="hub", filter={"region": f"region-{group}", "tags_any": ["public"]}),
        ]
    return found


def query_growth(many: int, few: int, rounds: int) -> float:
    """Time of the queries over ``many`` descriptors, divided by that over ``few``."""
    sides = [(directory(size), queries(size)) for size in (many, few)]
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for n, (found, asked) in enumerate(sides):
            start = time.process_time()
            for query in asked:
                assert answer(found, query, END - 1).results
            best[n] = min(best[n], time.process_time() - start)
    return best[0] / best[1]
